package spec

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Problem is one thing that is wrong with a pod.
type Problem struct {
	// Pod is namespace/name.
	Pod string
	// Field is the annotation's key, or the CRI's field.
	Field string
	// Value is what stands there, shortened; "" where it says nothing or must not be shown.
	Value string
	// Rule is what it would have to be.
	Rule string
}

// Error names pod, field, value and rule, in one line.
func (p Problem) Error() string {
	if p.Value == "" {
		return fmt.Sprintf("pod %s: %s: %s", p.Pod, p.Field, p.Rule)
	}
	return fmt.Sprintf("pod %s: %s %q: %s", p.Pod, p.Field, p.Value, p.Rule)
}

// Problems are all that is wrong with a pod, sorted by field.
type Problems []Problem

// Error has a line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// The bounds of what is said and read.
const (
	maxShown    = 48  // bytes of a value in an error
	maxProblems = 100 // of a pod; what comes after is only counted
)

// judgement gathers the problems of one pod.
type judgement struct {
	pod      string
	problems Problems
	more     int
}

// bad notes a problem. The value is shortened here.
func (j *judgement) bad(field, value, rule string, args ...any) {
	if len(j.problems) == maxProblems {
		j.more++
		return
	}
	j.problems = append(j.problems, Problem{Pod: oneLine(j.pod), Field: oneLine(field), Value: Short(value), Rule: oneLine(fmt.Sprintf(rule, args...))})
}

// oneLine keeps a hostile name from writing lines of its own into a log.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// err is nil or all problems, as an error of kind vm.Invalid.
func (j *judgement) err() error {
	if len(j.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(j.problems, func(a, b Problem) int { return strings.Compare(a.Field, b.Field) })
	if j.more > 0 {
		j.problems = append(j.problems, Problem{Pod: j.pod, Field: "annotations and configuration", Rule: fmt.Sprintf("%d more problems", j.more)})
	}
	return vm.Errorf(vm.Invalid, "%w", j.problems)
}

// Short is a value as it is shown in errors: its first bytes on one line.
func Short(value string) string {
	if len(value) <= maxShown {
		return value
	}
	cut := maxShown
	for cut > 0 && !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + "…"
}

// plain says that a text holds no control characters and is UTF-8, so that it can stand in XML, in a line of a file and in a log.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || r == '\uFFFE' || r == '\uFFFF' })
}
