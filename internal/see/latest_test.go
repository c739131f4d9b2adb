package see

import (
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestLatestRuns: what a group sent lately is learned from, and not what it sent long ago; runs that began since and go on count too.
func TestLatestRuns(t *testing.T) {
	t.Parallel()
	h := &History{}
	at := cluster.InstantOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	w := Work{Kind: "Job", Stem: "x"}
	for range 500 { // a month of long ones
		at = at.Add(time.Hour)
		h.Runs = append(h.Runs, Run{Queue: "a", Ask: "1", Work: w, At: at, Took: 10 * time.Hour, Ended: true})
	}
	for range latest { // and a day of short ones
		at = at.Add(20 * time.Minute)
		h.Runs = append(h.Runs, Run{Queue: "a", Ask: "1", Work: w, At: at, Took: 10 * time.Minute, Ended: true})
	}
	for _, ask := range []string{"1", "2"} { // who asks for something else is like others of its name
		r := learn(h, at, nil)
		rt := r.of(asker{queue: "a", ask: ask}, w)
		if got := rt.draw(0, 0.5); got != 10*time.Minute || rt.Runs != latest {
			t.Errorf("asks for %s: half of the runs last %s, from %d runs", ask, got, rt.Runs)
		}
	}
}

// TestMoments: of eighty bands that were told at one moment, four that were missed move an edge as one of another moment does; and all eighty are one step of what it learns, whatever their number.
func TestMoments(t *testing.T) {
	t.Parallel()
	b := Band{Low: 10 * time.Minute, Middle: 20 * time.Minute, High: 40 * time.Minute}
	record := func(n, of int) *Record {
		r := &Record{}
		for range n {
			r.Take(b, b, 10*time.Hour, of)
		}
		return r
	}
	burst, apart, all := record(4, 80), record(1, 1), record(4, 1)
	if x, y := burst.Scale(b).High, apart.Scale(b).High; x > y+time.Minute || x < b.High {
		t.Errorf("four of one moment move the edge to %s, one moment to %s", x, y)
	}
	whole := record(80, 80)
	if x, y := whole.Above.Alpha, apart.Above.Alpha; x < y-1e-9 || x > y+1e-9 {
		t.Errorf("alpha %v after a moment of eighty, and %v after one of one", x, y)
	}
	if x, y := whole.Below.Alpha, apart.Below.Alpha; x < y-1e-9 || x > y+1e-9 {
		t.Errorf("alpha of what held is %v after a moment of eighty, and %v after one of one", x, y)
	}
	if all.Above.Alpha >= apart.Above.Alpha {
		t.Error("four moments move it no further: the test shows nothing")
	}
	// Of a record of an earlier version no weight is known: each score is one.
	old := &Record{Above: Edge{Alpha: missed, Scores: []float64{5, 5, 5}}, Below: Edge{Alpha: missed, Scores: []float64{5, 5, 5}}}
	old.Take(b, b, 20*time.Minute, 40)
	if e := &old.Above; e.weight(0) != 1 || e.weight(2) != 1 || e.weight(3) != 0.5 {
		t.Errorf("weights %v of %d scores", e.Weights, len(e.Scores))
	}
}

// TestScoresAreBounded: whatever weights they have, a record keeps as many as count.
func TestScoresAreBounded(t *testing.T) {
	t.Parallel()
	b := Band{Low: 10 * time.Minute, Middle: 20 * time.Minute, High: 40 * time.Minute}
	for _, of := range []int{1, 40, 1_000_000} {
		r := &Record{}
		for range 2 * maxScores {
			r.Take(b, b, 20*time.Minute, of)
		}
		want := min(maxScores, window*max(of, ofBurst)/ofBurst)
		if e := &r.Above; len(e.Scores) != want || len(e.Weights) > len(e.Scores) || e.factor() <= 0 {
			t.Errorf("of %d: %d scores, %d weights, want %d", of, len(e.Scores), len(e.Weights), want)
		}
	}
}
