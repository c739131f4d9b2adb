package walk

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// step is a command of a page, and what the page says that comes out.
type step struct {
	line    int // of the command, from 1 on
	command string
	want    []string
	hidden  bool // nothing is said of its output
	end     int  // the line after the output
}

// steps are the commands of a page, in their order.
func steps(page string) (out []step) {
	lines := strings.Split(page, "\n")
	fenced := false
	for i, line := range lines {
		switch {
		case strings.HasPrefix(line, "```"):
			fenced = !fenced && line == "```console"
		case !fenced:
			if command, ok := strings.CutPrefix(line, "<!-- $ "); ok {
				out = append(out, step{line: i + 1, command: strings.TrimSuffix(command, " -->"), hidden: true, end: i + 2})
			}
			continue
		case strings.HasPrefix(line, "$ "):
			out = append(out, step{line: i + 1, command: strings.TrimPrefix(line, "$ "), end: i + 2})
			continue
		default:
			if n := len(out); n > 0 {
				out[n-1].want, out[n-1].end = append(out[n-1].want, line), i+2
			}
		}
	}
	return out
}

// holes are what may differ from one run to the next, by what stands for it.
var holes = []struct {
	is   string
	like *regexp.Regexp
}{
	{"<uid>", regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{0,12})+…?`)},
	{"<lab>", regexp.MustCompile(`(/[\w.…-]+)+/\.lab`)},
	{"<clock>", regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`)},
	{"<time>", regexp.MustCompile(`\b(\d+(\.\d+)? ?(h|ms|µs|m|s|d))+\b`)},
	{"-<id>", regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5}\b`)},
	{"node-<n>", regexp.MustCompile(`\bnode-\d+\b`)},
	{" ", regexp.MustCompile(`[ \t]+`)},
}

// plain is a line with holes where it may differ.
func plain(line string) string {
	for _, h := range holes {
		line = h.like.ReplaceAllString(line, h.is)
	}
	return strings.TrimSpace(line)
}

// says reports whether an output is what a page shows.
func says(want, got []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "…" {
		for i := range len(got) + 1 {
			if says(want[1:], got[i:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && plain(want[0]) == plain(got[0]) && says(want[1:], got[1:])
}

// TestPage: what a page says is found, holes fit, and what differs does not.
func TestPage(t *testing.T) {
	t.Parallel()
	page := "text\n```console\n$ a b\none 12s\n…\nend\n$ c\n```\n\n<!-- $ hidden one -->\n```\n$ no conversation\n```\n"
	got := fmt.Sprintf("%+v", steps(page))
	want := "[{line:3 command:a b want:[one 12s … end] hidden:false end:7} {line:7 command:c want:[] hidden:false end:8} {line:10 command:hidden one want:[] hidden:true end:11}]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		want, got string
		same      bool
	}{
		{"one 12s\n…\nend", "one   1m3s\nx\ny\nend", true},
		{"one 12s\n…\nend", "one 3s\nend", true},
		{"one 12s\n…\nend", "one 3s\nend\nmore", false},
		{"8 of 8", "8 of 9", false},
		{"/…/.lab/x pg-a-d71a44d0-0f4c-43f2-a8a7-d96fd38f1e36 train-0-x7k2p 10:11:12", "/tmp/y/.lab/x pg-a-00000000-0f4c-43f2-a8a7-d96fd38f1e36 train-0-zzzzz 00:00:00", true},
		{"train-0", "train-1", false},
	} {
		if says(strings.Split(c.want, "\n"), strings.Split(c.got, "\n")) != c.same {
			t.Errorf("%q and %q: same %t", c.want, c.got, !c.same)
		}
	}
}
