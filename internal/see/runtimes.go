package see

import (
	"slices"
	"strconv"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// enough is how many runs must have ended before anything is learned from a group of them.
const enough = 20

// latest is how many ended runs of a group are learned from: the latest to begin, and those that began since and go on. What is sent now is like what was
// sent lately: in a recorded trace the mean of all runs is more than twice what the work takes that comes in bursts, when there is somebody who waits.
const latest = 60

// measure is what runs of a group are counted in.
type measure byte

const (
	seconds    measure = 's'
	ofExpected measure = 'e' // parts of what their owners expect
	ofDeadline measure = 'd' // parts of their deadlines
)

// of is how long one unit is for a work; 0 if it has none.
func (m measure) of(w *Work) time.Duration {
	switch m {
	case ofExpected:
		return w.Expected
	case ofDeadline:
		return w.Deadline
	}
	return time.Second
}

// group is runs from which is learned together.
type group struct {
	measure measure
	by      string // "stem and amount", "stem", "kind, queue and amount", "kind, queue and size", "queue", "cluster"
	key     string
}

// asker is whose work it is, and what exactly it asks for.
type asker struct {
	queue string
	size  int
	ask   string
}

// groups are those that a work belongs to, in the order in which they are asked. What the owner expects is best corrected by how that went before;
// without it the narrowest group is asked first, in parts of deadlines where there are any.
func groups(by asker, w *Work) []group {
	stem := group{seconds, "stem", by.queue + "\x00" + w.Stem}
	kind := by.queue + "\x00" + w.Kind + "\x00"
	wide := func(m measure) []group {
		return []group{{m, "kind, queue and amount", kind + by.ask}, {m, "kind, queue and size", kind + strconv.Itoa(by.size)}, {m, "queue", by.queue}, {m, "cluster", ""}}
	}
	var out []group
	if w.Expected > 0 {
		out = append(out, group{ofExpected, "stem", stem.key})
		return append(out, wide(ofExpected)...)
	}
	if w.Stem != "" {
		out = append(out, group{seconds, "stem and amount", stem.key + "\x00" + by.ask}, stem)
	}
	if w.Deadline > 0 {
		out = append(out, wide(ofDeadline)...)
	}
	return append(out, wide(seconds)...)
}

// Source says where a runtime is from.
type Source struct {
	// How is "declared" (as its owner expects), "learned", "deadline" (nobody knows more than the bound), or "unknown".
	How string `json:"how"`
	// By is the group that it was learned from, Runs how many of its runs had ended.
	By   string `json:"by,omitempty"`
	Runs int    `json:"runs,omitempty"`
}

// The ways to know a runtime.
const (
	RuntimeDeclared = "declared"
	RuntimeLearned  = "learned"
	RuntimeDeadline = "deadline"
	RuntimeUnknown  = "unknown"
)

// runtimes are what is known of how long gangs run.
type runtimes struct {
	spans  map[group][]span
	curves map[group]*curve // nil for a group with too few ends
}

// learn reads the runs that are over and, as runs that were still going on, those of the cycle.
func learn(h *History, now cluster.Instant, members []*member) *runtimes {
	r := &runtimes{spans: map[group][]span{}, curves: map[group]*curve{}}
	for i := range h.Runs {
		run := &h.Runs[i]
		r.add(asker{run.Queue, run.Size, run.Ask}, &run.Work, run.At.Add(-run.Took), run.Took, run.Ended)
	}
	for _, m := range members {
		if m.whole && !m.over {
			ran := age(m, now)
			r.add(m.asker(), &m.work, now.Add(-ran), ran, false)
		}
	}
	return r
}

// age is for how long a gang has run, at least 0.
func age(m *member, now cluster.Instant) time.Duration {
	at := m.started
	if at.IsZero() {
		at = m.state.Created
	}
	return max(0, now.Sub(at))
}

func (r *runtimes) add(by asker, w *Work, began cluster.Instant, took time.Duration, ended bool) {
	// It counts in all groups, also in those that it would not ask itself.
	all := *w
	for _, m := range []measure{seconds, ofExpected, ofDeadline} {
		unit := m.of(w)
		if unit <= 0 {
			continue
		}
		s := span{float64(took) / float64(unit), ended, began}
		if m == seconds {
			all.Expected, all.Deadline = 0, 0
		} else {
			all.Expected, all.Deadline = w.Expected, w.Deadline
		}
		if m == ofDeadline {
			all.Expected = 0
		}
		for _, g := range groups(by, &all) {
			if g.measure == m {
				r.spans[g] = append(r.spans[g], s)
			}
		}
	}
}

// curve is what was learned from a group, nil for too little.
func (r *runtimes) curve(g group) *curve {
	c, known := r.curves[g]
	if !known {
		spans := r.spans[g]
		slices.SortStableFunc(spans, func(a, b span) int { return b.began.Compare(a.began) })
		n, upTo := 0, 0
		for ; n < latest && upTo < len(spans); upTo++ {
			if spans[upTo].ended {
				n++
			}
		}
		if n >= enough {
			c = newCurve(spans[:upTo])
		}
		r.curves[g] = c
	}
	return c
}

// runtime is what is known of one gang's.
type runtime struct {
	Source
	curve *curve
	unit  time.Duration
	work  Work
}

func (r *runtimes) of(by asker, w Work) runtime {
	for _, g := range groups(by, &w) {
		if c := r.curve(g); c != nil {
			return runtime{Source{RuntimeLearned, g.by, c.ends}, c, g.measure.of(&w), w}
		}
	}
	out := runtime{Source: Source{How: RuntimeUnknown}, work: w}
	if w.Deadline > 0 {
		out.How = RuntimeDeadline
	}
	if w.Expected > 0 {
		out.How = RuntimeDeclared
	}
	return out
}

// draw is how long a gang that has run for age works in all; 0 for ever, because nobody knows. A gang past its deadline, or past what its
// owner expects where nothing else is known, is taken to be about to end.
func (r *runtime) draw(age time.Duration, u float64) time.Duration {
	var out time.Duration
	switch {
	case r.curve != nil:
		units := r.curve.draw(float64(age)/float64(r.unit), u)
		out = time.Duration(min(units*float64(r.unit), float64(maxDeclared)))
	case r.work.Expected > 0:
		out = r.work.Expected
	}
	if r.work.Deadline > 0 && (out == 0 || out > r.work.Deadline) {
		out = r.work.Deadline
	}
	if out > 0 {
		out = max(out, age+time.Nanosecond)
	}
	return out
}
