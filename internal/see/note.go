package see

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-scheduler/muster/internal/explain"
)

const (
	// NoteBytes bounds a note.
	NoteBytes = 2048
	// NoteEvery is how long a note stands at least before another one takes its place.
	NoteEvery = time.Minute
	// noteMessage bounds the message in it, noteRemedies how many remedies are told.
	noteMessage, noteRemedies = 512, 4
)

// Note is an explanation in at most 2 KiB, which a gang's own object carries for whoever may read no more than that. A tenant who may write the object may
// write the note too: it is nobody's proof, and nothing is decided by it. It is within the narrowest scope: of what is in other namespaces than the gang's own no name is told. Field
// names are stable.
type Note struct {
	APIVersion string `json:"apiVersion"`
	// At is the moment of the cycle that it is of.
	At       time.Time     `json:"at"`
	Word     explain.Word  `json:"word"`
	Reason   string        `json:"reason,omitempty"`
	Message  string        `json:"message,omitempty"`
	Turn     *explain.Turn `json:"turn,omitempty"`
	Remedies []NoteRemedy  `json:"remedies,omitempty"`
	// More is how many remedies are left out.
	More int `json:"more,omitempty"`
}

// NoteRemedy is a remedy in words. It was proven were the gang next, and not at its turn.
type NoteRemedy struct {
	By      explain.By `json:"by"`
	Changes []string   `json:"changes"`
	// Evicts is how many pods of others would have to go.
	Evicts int `json:"evicts,omitempty"`
}

// NoteOf is the note of an explanation of this cycle; nil for a gang that waits for nothing.
func (c *Cycle) NoteOf(e *Explanation) (*Note, error) {
	if e.Word == "" {
		return nil, nil
	}
	e, err := e.Within(c.Scope(func(namespace string) bool { return namespace == e.Namespace }))
	if err != nil {
		return nil, err
	}
	n := &Note{APIVersion: APIVersion, At: e.Cycle.At.Truncate(time.Second), Word: e.Word, Reason: e.Reason, Message: shortened(e.Message, noteMessage), Turn: e.Turn}
	for i := range e.Remedies {
		r := &e.Remedies[i]
		told := NoteRemedy{By: r.By}
		for _, k := range r.Changes {
			told.Changes = append(told.Changes, k.Text)
		}
		if r.Cost != nil {
			told.Evicts = r.Cost.Evicted
		}
		n.Remedies = append(n.Remedies, told)
	}
	for n.More = 0; len(n.Remedies) > noteRemedies || len(n.Remedies) > 0 && len(n.Text()) > NoteBytes; n.More++ {
		n.Remedies = n.Remedies[:len(n.Remedies)-1]
	}
	for len(n.Text()) > NoteBytes && n.Message != "" { // of characters that JSON escapes
		n.Message = shortened(n.Message, len(n.Message)/2-3)
	}
	return n, nil
}

// Text is the note as the object has it.
func (n *Note) Text() string {
	var b strings.Builder
	plain := json.NewEncoder(&b)
	plain.SetEscapeHTML(false)
	if err := plain.Encode(n); err != nil { // there is nothing in it that could not be printed
		panic(fmt.Sprintf("see: print a note: %v", err))
	}
	return strings.TrimSpace(b.String())
}

// ReadNote reads a note. What is no note, or too long for one, is a [Refusal].
func ReadNote(text string) (*Note, error) {
	no := func(rule string) error { return &Refusal{Field: "the note", Rule: rule} }
	if len(text) > NoteBytes {
		return nil, no(fmt.Sprintf("is %d bytes long; a note has at most %d", len(text), NoteBytes))
	}
	var n Note
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return nil, no("is no note: " + err.Error())
	}
	if n.APIVersion != APIVersion {
		return nil, no(fmt.Sprintf("is of version %.40q; this version of muster reads %q", n.APIVersion, APIVersion))
	}
	return &n, nil
}

// News says whether a note is to take the place of what an object has ("" for nothing) at a moment: when the word, the reason or a remedy is
// another one, and what is there has stood for a minute. Numbers in messages, and turns, are no news. A nil note takes what is there away at once.
func (n *Note) News(have string, now time.Time) bool {
	if n == nil || have == "" {
		return (n == nil) != (have == "")
	}
	old, err := ReadNote(have)
	if err != nil || old.At.After(now) { // somebody else wrote it, or a clock was set back
		return true
	}
	same := old.Word == n.Word && old.Reason == n.Reason && old.More == n.More && slices.EqualFunc(old.Remedies, n.Remedies, func(a, b NoteRemedy) bool {
		return a.By == b.By && slices.Equal(a.Changes, b.Changes)
	})
	return !same && now.Sub(old.At) >= NoteEvery
}

// shortened is the beginning of a text, in whole characters.
func shortened(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	if most <= 0 {
		return ""
	}
	return s[:most] + "…"
}
