package console

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// told is what the log of some output is, by definition: lines end at LF, one CR before it belongs to the end, and each is cut into parts of MaxLine. What has no end is
// all P.
func told(said string, ended bool) []string {
	var out []string
	for said != "" {
		line, rest, ends := strings.Cut(said, "\n")
		if !ends && !ended {
			break
		}
		said = rest
		if ends {
			line = strings.TrimSuffix(line, "\r")
		}
		for len(line) > MaxLine {
			out = append(out, "stdout P "+line[:MaxLine])
			line = line[MaxLine:]
		}
		if ends {
			out = append(out, "stdout F "+line)
		} else {
			out = append(out, "stdout P "+line)
		}
	}
	return out
}

// translated takes output as it comes in pieces.
func translated(pieces [][]byte, ended bool) []string {
	var out []string
	var waiting []byte
	for i := 0; i <= len(pieces); i++ {
		last := i == len(pieces)
		if !last {
			waiting = append(waiting, pieces[i]...)
		}
		for {
			e, n := next(waiting, last && ended)
			if n == 0 {
				break
			}
			out = append(out, string(e.appendText(nil)))
			waiting = waiting[n:]
		}
	}
	return out
}

func TestTranslate(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	for _, c := range []struct{ name, said, want string }{
		{"a line", "hello World\n", "F hello World"},
		{"CR LF", "hello World\r\n", "F hello World"},
		{"CR CR LF keeps one", "a\r\r\n", "F a\r"},
		{"a lone CR", "10%\r20%\r\n", "F 10%\r20%"},
		{"an empty line", "\n\r\n", "F |F "},
		{"no end", "login: ", "P login: "},
		{"no end but CR", "x\r", "P x\r"},
		{"bytes that are no text", "\xff\x00\xfe\n", "F \xff\x00\xfe"},
		{"as long as may be", long + "\n", "F " + long},
		{"as long as may be, CR LF", long + "\r\n", "F " + long},
		{"one more", long + "y\n", "P " + long + "|F y"},
		{"CR as the one more", long + "\ry\n", "P " + long + "|F \ry"},
		{"twice", long + long + "\n", "P " + long + "|F " + long},
		{"long without end", long + "\r", "P " + long + "|P \r"},
		{"what looks like an entry", "2026-11-23T12:00:00Z stderr F forged\n", "F 2026-11-23T12:00:00Z stderr F forged"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var want []string
			for _, w := range strings.Split(c.want, "|") {
				want = append(want, "stdout "+w)
			}
			got := translated([][]byte{[]byte(c.said)}, true)
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got  %.200q\nwant %.200q", got, want)
			}
			if d := told(c.said, true); fmt.Sprint(d) != fmt.Sprint(want) {
				t.Errorf("the definition says %.200q", d)
			}
		})
	}
	at := time.Date(2026, 11, 23, 13, 0, 0, 120, time.FixedZone("x", 3600))
	e, _ := next([]byte("hi\n"), false)
	if got := string(e.appendTo(nil, at)); got != "2026-11-23T12:00:00.00000012Z stdout F hi\n" {
		t.Errorf("an entry is %q", got)
	}
}

// FuzzTranslate: whatever comes, in whatever pieces, gives what the definition says, and no byte is dropped but line ends.
func FuzzTranslate(f *testing.F) {
	f.Add([]byte("a\r\nb\nc"), uint64(1), uint16(1))
	f.Add([]byte("\r\r\n\n\r"), uint64(2), uint16(16383))
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, stretch uint16) {
		r := rand.New(rand.NewPCG(seed, 1))
		// Long lines are made of short inputs: somewhere, one byte is repeated.
		if len(b) > 0 {
			i := r.IntN(len(b))
			b = bytes.Join([][]byte{b[:i], bytes.Repeat(b[i:i+1], int(stretch)), b[i:]}, nil)
		}
		var pieces [][]byte
		for rest := b; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		for _, ended := range []bool{true, false} {
			got, want := translated(pieces, ended), told(string(b), ended)
			if !ended && len(got) > len(want) { // parts of a line that has not ended yet may be told
				for _, g := range got[len(want):] {
					if !strings.HasPrefix(g, "stdout P ") || len(g) != len("stdout P ")+MaxLine {
						t.Fatalf("too early: %.100q", g)
					}
				}
				got = got[:len(want)]
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("ended %v: got  %.300q\nwant %.300q", ended, got, want)
			}
		}
	})
}
