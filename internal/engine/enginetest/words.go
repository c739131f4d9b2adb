package enginetest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// statement is one line of a scenario: a verb, plain words, and key=value words. Indented lines below it are its parts.
type statement struct {
	line  int // in its section, from 1
	verb  string
	words []string
	attrs []attr
	parts []statement
	read  map[string]bool // keys and flags that were asked for
	fault error           // the first thing found wrong with it, which done returns
}

type attr struct{ key, value string }

// parseLines reads a section. Empty lines and lines that start with # are left out, and what follows " #" is a comment.
func parseLines(text string) ([]statement, error) {
	var out []statement
	for i, line := range strings.Split(text, "\n") {
		words, err := splitWords(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if len(words) == 0 {
			continue
		}
		s := statement{line: i + 1, verb: words[0], read: map[string]bool{}}
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				s.attrs = append(s.attrs, attr{k, v})
			} else {
				s.words = append(s.words, w)
			}
		}
		if line[0] != ' ' && line[0] != '\t' {
			out = append(out, s)
			continue
		}
		if len(out) == 0 {
			return nil, fmt.Errorf("line %d: an indented line belongs to the one above it, and there is none", i+1)
		}
		last := &out[len(out)-1]
		last.parts = append(last.parts, s)
	}
	return out, nil
}

// splitWords splits at blanks outside double quotes and drops the quotes and the comment.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quoted := false, false
	for _, r := range line {
		switch {
		case r == '"':
			quoted, in = !quoted, true
		case quoted:
			word.WriteRune(r)
		case r == '#' && !in:
			return words, nil
		case r == ' ' || r == '\t':
			if in {
				words = append(words, word.String())
				word.Reset()
			}
			in = false
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("a quote is not closed")
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

// name takes the first plain word.
func (s *statement) name() string {
	if len(s.words) == 0 {
		s.bad("needs a name")
		return ""
	}
	return s.words[0]
}

func (s *statement) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: %s: %s", s.line, s.verb, fmt.Sprintf(format, args...))
}

// bad notes what is wrong with the statement.
func (s *statement) bad(format string, args ...any) { s.note(s.errorf(format, args...)) }

func (s *statement) note(err error) {
	if s.fault == nil {
		s.fault = err
	}
}

// flag says whether the plain word is there, after the name.
func (s *statement) flag(word string) bool {
	s.read[word] = true
	return len(s.words) > 1 && slices.Contains(s.words[1:], word)
}

// all returns every value of a key, in order.
func (s *statement) all(key string) []string {
	s.read[key] = true
	var out []string
	for _, a := range s.attrs {
		if a.key == key {
			out = append(out, a.value)
		}
	}
	return out
}

// text returns the last value of a key.
func (s *statement) text(key, missing string) string {
	if vs := s.all(key); len(vs) > 0 {
		return vs[len(vs)-1]
	}
	return missing
}

func (s *statement) has(key string) bool { return len(s.all(key)) > 0 }

func (s *statement) int(key string, missing int) int {
	v := s.text(key, "")
	if v == "" {
		return missing
	}
	n, err := strconv.Atoi(v)
	if err != nil {
		s.bad("%s=%s: want a whole number", key, v)
	}
	return n
}

// int32 is int for a field of an object.
func (s *statement) int32(key string, missing int) *int32 { return new(int32(s.int(key, missing))) }

func (s *statement) duration(key string) (d time.Duration, stated bool) {
	v := s.text(key, "")
	if v == "" {
		return 0, false
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		s.bad("%s=%s: want a duration such as 90s or 2h", key, v)
	}
	return d, true
}

// done returns what is wrong with the statement, if anything is. It refuses words that nothing asked for, so that a typing error cannot
// make a scenario pass.
func (s *statement) done() error {
	for _, a := range s.attrs {
		if !s.read[a.key] {
			s.bad("does not know %s=%s", a.key, a.value)
		}
	}
	for i, w := range s.words {
		if i > 0 && !s.read[w] {
			s.bad("does not know the word %q", w)
		}
	}
	return s.fault
}

// anew is a statement of which nothing was asked yet.
func (s *statement) anew() {
	s.read, s.fault = map[string]bool{}, nil
	for i := range s.parts {
		s.parts[i].anew()
	}
}

// with returns s with the attributes and words of o laid over it.
func (s *statement) with(o *statement) statement {
	out := statement{line: o.line, verb: s.verb, words: slices.Clone(s.words), read: map[string]bool{}, parts: s.parts}
	for _, a := range s.attrs {
		if !slices.ContainsFunc(o.attrs, func(b attr) bool { return b.key == a.key }) {
			out.attrs = append(out.attrs, a)
		}
	}
	out.attrs = append(out.attrs, o.attrs...)
	for _, w := range o.words[2:] { // after the kind and the name
		if off, ok := strings.CutPrefix(w, "no-"); ok {
			out.words = slices.DeleteFunc(out.words, func(x string) bool { return x == off })
		} else {
			out.words = append(out.words, w)
		}
	}
	return out
}
