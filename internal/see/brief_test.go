package see

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/explain"
)

// TestBrief: in crowded clusters of rivals the brief of our gang has the word, the reason and what would change it, in at most 2 KiB, reads as it was written, and tells no
// foreign name.
func TestBrief(t *testing.T) {
	t.Parallel()
	remedies := 0
	for seed := range int64(40) {
		c, key := rivals(seed)
		e, err := Explain(t.Context(), c, key)
		if err != nil {
			t.Fatal(err)
		}
		n, err := BriefOf(e, c.Scope(func(ns string) bool { return ns == e.Namespace }))
		if err != nil {
			t.Fatal(err)
		}
		if n == nil || n.Word != e.Word || n.Reason != e.Reason {
			t.Fatalf("seed %d: %+v of %s", seed, n, e.Text(100))
		}
		text := n.Text()
		if len(text) > BriefBytes || strings.Contains(text, "sesame") {
			t.Errorf("seed %d: %s", seed, text)
		}
		again, err := ReadBrief(text)
		if err != nil || again.Text() != text {
			t.Errorf("seed %d: %v", seed, err)
		}
		if len(n.Remedies)+n.More != len(e.Remedies) {
			t.Errorf("seed %d: %d and %d of %d remedies", seed, len(n.Remedies), n.More, len(e.Remedies))
		}
		remedies += len(n.Remedies)
	}
	if remedies < 20 {
		t.Errorf("only %d remedies are told", remedies)
	}
}

// TestBriefIsShort: whatever is said, the bound holds; what is left out is counted.
func TestBriefIsShort(t *testing.T) {
	t.Parallel()
	c, key := rivals(1)
	e, err := Explain(t.Context(), c, key)
	if err != nil {
		t.Fatal(err)
	}
	e.Message = strings.Repeat("ä<", 5000)
	e.Remedies = nil
	for range 9 {
		e.Remedies = append(e.Remedies, explain.Remedy{By: explain.Submitter, Changes: []*explain.Change{{Text: strings.Repeat("x", 300)}, {Text: strings.Repeat("y", 300)}}})
	}
	own := c.Scope(func(ns string) bool { return ns == e.Namespace })
	n, err := BriefOf(e, own)
	if err != nil || len(n.Text()) > BriefBytes || len(n.Remedies) == 0 || len(n.Remedies)+n.More != 9 {
		t.Fatalf("%d bytes, %d remedies and %d: %v", len(n.Text()), len(n.Remedies), n.More, err)
	}
	e.Start = &Expected{At: time.Unix(1_700_000_000, 0).UTC(), Band: "14:20 to 17:00", Text: strings.Repeat("z", 5000)}
	if n, err = BriefOf(e, own); err != nil || len(n.Text()) > BriefBytes || n.Starts == nil || n.Starts.Band != e.Start.Band {
		t.Errorf("with a forecast %d bytes, %+v: %v", len(n.Text()), n.Starts, err)
	}
	e.Message = strings.Repeat("\x01", 5000)
	if n, err = BriefOf(e, own); err != nil || len(n.Text()) > BriefBytes || n.Message == "" {
		t.Errorf("%d bytes: %v", len(n.Text()), err)
	}
	e.Word = ""
	if n, err := BriefOf(e, own); n != nil || err != nil {
		t.Errorf("nothing waits: %+v, %v", n, err)
	}
}

// TestNews: a brief is written when the word, the reason or a remedy is another, at most once a minute; numbers and turns are no news; what is no brief is
// overwritten; nothing is left when nothing waits.
func TestNews(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0).UTC()
	note := func(edit func(*Brief)) *Brief {
		n := &Brief{APIVersion: APIVersion, At: at, Word: explain.Blocked, Reason: "OverLimit", Message: "asks for 16", Turn: &explain.Turn{Position: 1, Of: 2}, Remedies: []BriefRemedy{{By: explain.QueueOwner, Changes: []string{"raise"}}}}
		if edit != nil {
			edit(n)
		}
		return n
	}
	start := func(p50 time.Duration) func(*Brief) { // 100 s ahead when it was forecast, or as said
		return func(n *Brief) { n.Starts = &BriefStart{At: at, Band: "14:20 to 17:00", P50: at.Add(p50)} }
	}
	never := func(n *Brief) { n.Starts = &BriefStart{At: at, Band: "not within 24h"} }
	have, minute := note(nil).Text(), at.Add(BriefEvery)
	for name, c := range map[string]struct {
		n    *Brief
		have string
		now  time.Time
		want bool
	}{
		"none, none":        {nil, "", minute, false},
		"the first":         {note(nil), "", at, true},
		"nothing waits":     {nil, have, at, true},
		"the same":          {note(nil), have, minute, false},
		"numbers":           {note(func(n *Brief) { n.Message, n.Turn = "asks for 8", nil }), have, minute, false},
		"another word":      {note(func(n *Brief) { n.Word = explain.InLine }), have, minute, true},
		"another reason":    {note(func(n *Brief) { n.Reason = "NoRoom" }), have, minute, true},
		"another remedy":    {note(func(n *Brief) { n.Remedies[0].Changes[0] = "lower" }), have, minute, true},
		"a remedy less":     {note(func(n *Brief) { n.Remedies = nil }), have, minute, true},
		"a forecast":        {note(start(100 * time.Second)), have, minute, true},
		"no forecast more":  {note(nil), note(start(100 * time.Second)).Text(), minute, true},
		"a fifth later":     {note(start(120 * time.Second)), note(start(100 * time.Second)).Text(), minute, true},
		"a fifth sooner":    {note(start(80 * time.Second)), note(start(100 * time.Second)).Text(), minute, true},
		"less than a fifth": {note(start(119 * time.Second)), note(start(100 * time.Second)).Text(), minute, false},
		"as forecast, late": {note(start(100 * time.Second)), note(start(100 * time.Second)).Text(), minute.Add(time.Hour), false},
		"not any more":      {note(never), note(start(100 * time.Second)).Text(), minute, true},
		"still not":         {note(never), note(never).Text(), minute, false},
		"too soon":          {note(func(n *Brief) { n.Word = explain.InLine }), have, minute.Add(-1), false},
		"not ours":          {note(nil), "hello", at, true},
		"much too long":     {note(nil), strings.Repeat(" ", 4000), at, true},
		"of another world":  {note(nil), `{"apiVersion":"v9"}`, minute, true},
		"of the future":     {note(nil), note(func(n *Brief) { n.At = at.Add(time.Hour) }).Text(), at, true},
	} {
		if got := c.n.News(c.have, c.now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	var refusal *Refusal
	if _, err := ReadBrief("hello"); !errors.As(err, &refusal) {
		t.Error(err)
	}
}
