package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// width is how many columns the story fits into; margin is where its sentences begin.
const (
	width  = 80
	margin = 12
)

// narrator prints the story.
type narrator struct {
	out   io.Writer
	live  bool // a terminal, on which the line of what is being waited for may be replaced
	begun time.Time
}

// chapter begins a part of the story.
func (n *narrator) chapter(title string) {
	fmt.Fprintf(n.out, "\n%s\n", title)
}

// doing says what is being waited for, at a terminal only; the next sentence takes its place.
func (n *narrator) doing(what string) {
	if n.live {
		fmt.Fprintf(n.out, "\r\033[K  … %*s%s", margin-4, "", truncate(what, width-margin))
	}
}

// done prints a sentence that has come true, with the time since the demo began.
func (n *narrator) done(format string, args ...any) { n.mark("✓", format, args...) }

// failed prints what has not.
func (n *narrator) failed(format string, args ...any) { n.mark("✗", format, args...) }

func (n *narrator) mark(sign, format string, args ...any) {
	if n.live {
		fmt.Fprint(n.out, "\r\033[K")
	}
	lines := wrap(fmt.Sprintf(format, args...), width-margin)
	fmt.Fprintf(n.out, "  %s %5.1fs  %s\n", sign, time.Since(n.begun).Seconds(), lines[0])
	n.rest("", lines[1:])
}

// quote prints somebody else's words below a sentence.
func (n *narrator) quote(text string) {
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		n.rest("│ ", wrap(line, width-margin-2))
	}
}

// row prints a line as it is below a sentence.
func (n *narrator) row(format string, args ...any) {
	n.rest("", []string{fmt.Sprintf(format, args...)})
}

func (n *narrator) rest(prefix string, lines []string) {
	for _, line := range lines {
		fmt.Fprintln(n.out, strings.TrimRight(strings.Repeat(" ", margin)+prefix+line, " "))
	}
}

// wrap breaks text at spaces into lines of at most room characters; a longer word has a line of its own. The spaces that
// a text begins with are kept on each of its lines. There is always a line.
func wrap(text string, room int) []string {
	words := strings.Fields(text)
	indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
	if len(words) == 0 || len(indent) >= room/2 {
		indent = ""
	}
	lines := []string{indent}
	for i, w := range words {
		last := &lines[len(lines)-1]
		switch {
		case i == 0:
			*last += w
		case utf8.RuneCountInString(*last)+1+utf8.RuneCountInString(w) <= room:
			*last += " " + w
		default:
			lines = append(lines, indent+w)
		}
	}
	return lines
}

// unbroken joins what the command line has broken into lines of its own width: it indents what continues a line by two.
func unbroken(text string) string {
	var out strings.Builder
	for i, line := range strings.Split(text, "\n") {
		rest, continues := strings.CutPrefix(line, "  ")
		continues = continues && rest != "" && rest[0] != ' ' && rest[0] != '-'
		switch {
		case continues:
			out.WriteString(" " + rest)
		case i > 0:
			out.WriteString("\n" + line)
		default:
			out.WriteString(line)
		}
	}
	return out.String()
}

func truncate(text string, room int) string {
	if utf8.RuneCountInString(text) <= room {
		return text
	}
	return string([]rune(text)[:room-1]) + "…"
}

// count is "1 pod", "2 pods".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
