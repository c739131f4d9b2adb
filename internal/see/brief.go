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
	// BriefBytes bounds a brief.
	BriefBytes = 2048
	// BriefEvery is how long a brief stands at least before another one takes its place.
	BriefEvery = time.Minute
	// briefMessage bounds the message in it, briefRemedies how many remedies are told.
	briefMessage, briefRemedies = 512, 4
)

// Brief is an explanation in at most 2 KiB, which a gang's own object carries for whoever may read no more than that. A tenant who may write the object may
// write the brief too: it is nobody's proof, and nothing is decided by it. It is within the narrowest scope: of what is in other namespaces than the gang's own no name is told. Field
// names are stable.
type Brief struct {
	APIVersion string `json:"apiVersion"`
	// At is the moment of the cycle that it is of.
	At       time.Time     `json:"at"`
	Word     explain.Word  `json:"word"`
	Reason   string        `json:"reason,omitempty"`
	Message  string        `json:"message,omitempty"`
	Turn     *explain.Turn `json:"turn,omitempty"`
	Remedies []BriefRemedy `json:"remedies,omitempty"`
	// More is how many remedies are left out.
	More int `json:"more,omitempty"`
	// Starts is when the gang is forecast to start; nil where nobody forecasts.
	Starts *BriefStart `json:"starts,omitempty"`
}

// BriefStart is a forecast in words, in UTC, as those of the whole cluster say it too.
type BriefStart struct {
	// At is the moment of the cycle that it was forecast from.
	At time.Time `json:"at"`
	// Band fits a column, as [Outlook.Band] does; Text is the sentence.
	Band string `json:"band"`
	Text string `json:"text"`
	// P50 is before which half of the draws start it; zero for beyond the horizon.
	P50 time.Time `json:"p50,omitzero"`
}

// moved says whether a forecast is another one in what a reader would plan by: another kind of answer, or a P50 that lies a fifth of the wait that was forecast from where it was.
func (a *BriefStart) moved(b *BriefStart) bool {
	switch {
	case a == nil || b == nil:
		return a != b
	case a.P50.IsZero() || b.P50.IsZero():
		return a.P50.IsZero() != b.P50.IsZero() || a.Band != b.Band
	}
	return 5*a.P50.Sub(b.P50).Abs() >= b.P50.Sub(b.At).Abs() && !a.P50.Equal(b.P50)
}

// BriefRemedy is a remedy in words. It was proven were the gang next, and not at its turn.
type BriefRemedy struct {
	By      explain.By `json:"by"`
	Changes []string   `json:"changes"`
	// Evicts is how many pods of others would have to go.
	Evicts int `json:"evicts,omitempty"`
}

// BriefOf is the brief of an explanation, with its forecast if it has one; nil for a gang that waits for nothing. The scope is of the explanation's cycle, and of a viewer who may read the
// gang's namespace and no other.
func BriefOf(e *Explanation, s *Scope) (*Brief, error) {
	if e.Word == "" {
		return nil, nil
	}
	e, err := e.Within(s)
	if err != nil {
		return nil, err
	}
	n := &Brief{APIVersion: APIVersion, At: e.Cycle.At.Truncate(time.Second), Word: e.Word, Reason: e.Reason, Message: shortened(e.Message, briefMessage), Turn: e.Turn}
	for i := range e.Remedies {
		r := &e.Remedies[i]
		told := BriefRemedy{By: r.By}
		for _, k := range r.Changes {
			told.Changes = append(told.Changes, k.Text)
		}
		if r.Cost != nil {
			told.Evicts = r.Cost.Evicted
		}
		n.Remedies = append(n.Remedies, told)
	}
	if t := e.Start; t != nil {
		n.Starts = &BriefStart{At: t.At.Truncate(time.Second), Band: t.Band, Text: shortened(t.Text, briefMessage), P50: t.P50.Truncate(time.Second)}
	}
	for n.More = 0; len(n.Remedies) > briefRemedies || len(n.Remedies) > 0 && len(n.Text()) > BriefBytes; n.More++ {
		n.Remedies = n.Remedies[:len(n.Remedies)-1]
	}
	if len(n.Text()) > BriefBytes && n.Starts != nil {
		n.Starts.Text = ""
	}
	for len(n.Text()) > BriefBytes && n.Message != "" { // of characters that JSON escapes
		n.Message = shortened(n.Message, len(n.Message)/2-3)
	}
	return n, nil
}

// Text is the brief as the object has it.
func (n *Brief) Text() string {
	var b strings.Builder
	plain := json.NewEncoder(&b)
	plain.SetEscapeHTML(false)
	if err := plain.Encode(n); err != nil { // there is nothing in it that could not be printed
		panic(fmt.Sprintf("see: print a brief: %v", err))
	}
	return strings.TrimSpace(b.String())
}

// ReadBrief reads a brief. What is no brief, or too long for one, is a [Refusal].
func ReadBrief(text string) (*Brief, error) {
	no := func(rule string) error { return &Refusal{Field: "the brief", Rule: rule} }
	if len(text) > BriefBytes {
		return nil, no(fmt.Sprintf("is %d bytes long; a brief has at most %d", len(text), BriefBytes))
	}
	var n Brief
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return nil, no("is no brief: " + err.Error())
	}
	if n.APIVersion != APIVersion {
		return nil, no(fmt.Sprintf("is of version %.40q; this version of muster reads %q", n.APIVersion, APIVersion))
	}
	return &n, nil
}

// News says whether a brief is to take the place of what an object has ("" for nothing) at a moment: when the word, the reason or a remedy is
// another one or the forecast has moved, and what is there has stood for a minute. Numbers in messages, and turns, are no news. A nil note takes what is there away at once.
func (n *Brief) News(have string, now time.Time) bool {
	if n == nil || have == "" {
		return (n == nil) != (have == "")
	}
	old, err := ReadBrief(have)
	if err != nil || old.At.After(now) { // somebody else wrote it, or a clock was set back
		return true
	}
	same := !n.Starts.moved(old.Starts) && old.Word == n.Word && old.Reason == n.Reason && old.More == n.More && slices.EqualFunc(old.Remedies, n.Remedies, func(a, b BriefRemedy) bool {
		return a.By == b.By && slices.Equal(a.Changes, b.Changes)
	})
	return !same && now.Sub(old.At) >= BriefEvery
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
