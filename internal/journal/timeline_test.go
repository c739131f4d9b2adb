package journal

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/see"
)

// TestTimeline: entries become what happened to one gang: waiting for one reason after another, bound, evicted for whom and why, and what was told again after nobody was there is not told twice. What
// follows a gap says that it may have been so earlier; other shards' gaps are none.
func TestTimeline(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	me, taker := cluster.Key{Face: "kai", Namespace: "team", Name: "train"}, cluster.Key{Name: "a gang of queue q"}
	reason := func(key, text string) *Entry {
		return &Entry{Kind: Cycle, Reasons: []Reason{{Gang: me, Reason: key, Text: text}, {Gang: taker, Reason: "Other", Text: "of somebody else"}}}
	}
	decision := func(d Decision) *Entry { return &Entry{Kind: Cycle, Decisions: []Decision{d}} }
	entries := []*Entry{
		reason("OverLimit", "asks for 4"),
		reason("OverLimit", "asks for 4, 3 left"),
		{Kind: Gap, Shard: "gold", Missing: &Missing{Why: Slow}},
		reason("NoNode", "no node"),
		{Kind: Gap, Missing: &Missing{Why: Away, Since: at}},
		reason("NoNode", "no node"),
		decision(Decision{Gang: me, Evicts: 3, Promises: 2, Cause: &engine.EvictionRecord{Cause: engine.Reclaim}}),
		decision(Decision{Gang: me, Binds: 2, Starts: true}),
		reason("", ""),
		{Kind: Came, Starts: []Start{{Gang: me, Held: 2, Of: 3}}},
		decision(Decision{Gang: taker, Queue: "q", Evicts: 2, Cause: &engine.EvictionRecord{Cause: engine.Preempt, Victims: []engine.Victim{{Gang: me, Pods: 2, Rule: "its priority is lower"}}}}),
		decision(Decision{Gang: me, Evicts: 1, Cause: &engine.EvictionRecord{Cause: engine.Repair}}),
		decision(Decision{Gang: taker, Binds: 9}),
	}
	for i, e := range entries {
		e.Number, e.At = uint64(i+1), at.Add(time.Duration(i)*time.Minute)
	}
	got := Timeline(me, "", entries)
	var lines []string
	for i := range got.Items {
		m := &got.Items[i]
		line := m.At.Format("04 ") + string(m.What) + "|" + m.Text + "|" + m.Reason + "|" + m.By
		if m.Unsure {
			line += "|unsure"
		}
		lines = append(lines, line)
	}
	want := []string{
		"00 waits|waits: asks for 4|OverLimit|",
		"03 waits|waits: no node|NoNode|",
		"04 gap|Nobody kept a journal, since Nov 26 12:00:00 UTC.||",
		"06 room|reclaim: 3 pods are made to give way to it|reclaim||unsure",
		"07 starts|2 pods bound: it has its minimum||",
		"08 no wait|waits no more||",
		"09 forecast|has started; 2 of 3 forecasts of that held||",
		"10 evicted|preempt for a gang of queue q: 2 pods evicted, because its priority is lower|preempt|a gang of queue q",
		"11 evicted|released: 1 of its pods, fewer than its minimum|repair|",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
	var many []*Entry
	for i := range maxMoments + 7 {
		many = append(many, decision(Decision{Gang: me, Binds: i + 1}))
	}
	if got := Timeline(me, "", many); len(got.Items) != maxMoments || got.Omitted != 7 || got.Items[0].Pods != 8 {
		t.Errorf("%d moments, %d left out", len(got.Items), got.Omitted)
	}
}

// TestLatest: entries of a time come in their order, over several files; where the reader's time is over or enough is read, older ones are left out, and from when on nothing is is told.
func TestLatest(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	now := at
	j, err := Open(Options{Folder: t.TempDir(), Keep: 32 * time.Hour, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	for i := range 12 { // a file an hour
		if _, err := j.Append(&Entry{At: at.Add(time.Duration(i) * 30 * time.Minute), Kind: Use}, nil); err != nil {
			t.Fatal(err)
		}
	}
	now = at.Add(6 * time.Hour)
	all := func(e *Entry) *Entry { return e }
	for name, c := range map[string]struct {
		since time.Time
		most  int
		n     int
		from  time.Time
	}{
		"all":    {at.Add(-time.Hour), 100, 12, at},
		"late":   {at.Add(4 * time.Hour), 100, 4, at.Add(4 * time.Hour)},
		"enough": {at.Add(-time.Hour), 3, 4, at.Add(4 * time.Hour)},
		"none":   {at.Add(7 * time.Hour), 100, 0, at.Add(7 * time.Hour)},
	} {
		got, from, err := j.Latest(t.Context(), c.since, c.most, all)
		if err != nil || len(got) != c.n || !from.Equal(c.from) {
			t.Errorf("%s: %d entries from %s, %v", name, len(got), from, err)
		}
		for i := 1; i < len(got); i++ {
			if got[i].Number != got[i-1].Number+1 {
				t.Errorf("%s: %d follows %d", name, got[i].Number, got[i-1].Number)
			}
		}
	}
	over, end := context.WithCancel(t.Context())
	end()
	if got, from, err := j.Latest(over, at, 100, all); err != nil || len(got) != 0 || !from.Equal(now) {
		t.Errorf("without time: %d entries from %s, %v", len(got), from, err)
	}
}

// TestTimelineOfABirth: when a gang was made stands in its place.
func TestTimelineOfABirth(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	line := &see.Timeline{Items: []see.Moment{{At: at, What: see.WasWaiting}, {At: at.Add(-time.Hour), What: see.WasBound}}} // the clock was set back
	var got []string
	for _, m := range line.With(at.Add(-time.Second), at.Add(time.Minute)).Items {
		got = append(got, string(m.What))
	}
	if strings.Join(got, " ") != "grouped waits bound made" || len(line.Items) != 2 {
		t.Errorf("%v", got)
	}
}
