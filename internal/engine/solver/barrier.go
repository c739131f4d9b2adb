package solver

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// maxBarriers is up to how many queues, or budgets, are told of one by one that protect what is theirs by one rule. Where there
// are more, they are told of in one, which names none of them: what ten thousand gangs are told of ten thousand queues is no
// more than what they are told of a few.
const maxBarriers = 32

// told returns the barriers in the order in which they are told, those of many objects in one.
func (w *walk) told() []recorder.Barrier {
	switch {
	case len(w.kinds) == 1 && len(w.barred) == 0:
		return w.kinds
	case len(w.kinds) > 0 || len(w.barred) > maxBarriers:
		rows := make(map[policy.Verdict]int, 8)
		for i := range w.barred {
			rows[rule(w.barred[i].Verdict)]++
		}
		var merged []recorder.Barrier
		for i := range w.kinds {
			b := &w.kinds[i]
			rows[b.Verdict] = maxBarriers + 1
			w.count(barrierOf(&merged, b.Verdict), b.Gangs, b.Named)
		}
		for i := range w.barred {
			b := &w.barred[i]
			if as := rule(b.Verdict); b.Verdict.Object != "" && rows[as] > maxBarriers {
				w.count(barrierOf(&merged, as), b.Gangs, b.Named)
			} else {
				merged = append(merged, *b)
			}
		}
		w.barred, w.kinds, w.listed = merged, nil, nil
	}
	return sorted(w.barred)
}

// rule is a verdict without what it names and counts.
func rule(v policy.Verdict) policy.Verdict {
	return policy.Verdict{Code: v.Code, Reason: v.Reason, Plugin: v.Plugin}
}

// barKind counts the gangs of siblings of one kind that may not be asked, one of them left out.
func (w *walk) barKind(k *kind, but *branch, why policy.Verdict) {
	b := recorder.Barrier{Verdict: rule(why), Gangs: k.gangs, Named: k.but(but)}
	if but != nil && but.kind == k {
		b.Gangs -= but.heads().count
	}
	if w.wait(why); b.Gangs > 0 {
		w.kinds = append(w.kinds, b)
	}
}

// sorted puts barriers in the order in which they are told. There may be as many as queues, all of which bar as many gangs: each
// is made a text of once, where it has to be.
func sorted(bs []recorder.Barrier) []recorder.Barrier {
	if len(bs) < 2 {
		return bs
	}
	type titled struct {
		recorder.Barrier
		text string
	}
	order := make([]titled, len(bs))
	for i := range bs {
		order[i].Barrier = bs[i]
	}
	title := func(b *titled) string {
		if b.text == "" {
			b.text = b.Verdict.String()
		}
		return b.text
	}
	at := make([]*titled, len(order))
	for i := range order {
		at[i] = &order[i]
	}
	slices.SortFunc(at, func(a, b *titled) int {
		if c := cmp.Or(cmp.Compare(b.Gangs, a.Gangs), cmp.Compare(a.Verdict.Reason.String(), b.Verdict.Reason.String())); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(title(a), title(b)), slices.Compare(a.Named, b.Named))
	})
	for i, b := range at {
		bs[i] = b.Barrier
	}
	return bs
}

// barAll counts gangs that may not be touched for one reason.
func (w *walk) barAll(all *crowd, why policy.Verdict) {
	if len(all.gangs) > 0 {
		w.count(w.barrier(why), len(all.gangs), all.names())
	}
}

// count takes more gangs into a barrier.
func (w *walk) count(b *recorder.Barrier, gangs int, names []string) {
	b.Gangs += gangs
	if b.Named == nil {
		b.Named = slices.Clip(names) // shared until another name comes in
		return
	}
	for _, text := range names {
		nameAs(b, text)
	}
}

// named is how many gangs a barrier names: the first in the order of names, however they were met.
const named = 8

func name(b *recorder.Barrier, key cluster.Key) {
	n := len(b.Named)
	if n == named && !before(key, b.Named[n-1]) {
		return
	}
	nameAs(b, key.String())
}

func nameAs(b *recorder.Barrier, text string) {
	at, known := slices.BinarySearch(b.Named, text)
	if known {
		return
	}
	b.Named = slices.Insert(b.Named, at, text)
	b.Named = b.Named[:min(named, len(b.Named))]
}

// before says whether a key comes before a text, as text; it builds none.
func before(key cluster.Key, text string) bool {
	if key.Namespace == "" {
		return key.Name < text
	}
	n := len(key.Namespace)
	if len(text) <= n || text[:n] != key.Namespace || text[n] != '/' {
		return key.String() < text
	}
	return key.Name < text[n+1:]
}

// bar counts a gang that may not be touched.
func (w *walk) bar(v *ledger.GangState, why policy.Verdict) {
	b := w.barrier(why)
	b.Gangs++
	name(b, v.Key)
}

// barrier returns the count of a rule. A rule that ends with time asks for another run then.
func (w *walk) barrier(why policy.Verdict) *recorder.Barrier {
	w.wait(why)
	why.Object, why.WakeAt = barObject(why), cluster.Instant{}
	return w.barredBy(why)
}

func (w *walk) wait(why policy.Verdict) {
	if why.Code == policy.Wait {
		w.queues.s.Recorder.WakeAt(why.WakeAt)
		w.queues.wake = cluster.Earliest(w.queues.wake, why.WakeAt)
	}
}

// fewBarriers is up to how many barriers are looked through for one.
const fewBarriers = 16

// barredBy returns the count of a rule as it is told. Queues that protect what is theirs are a rule each.
func (w *walk) barredBy(why policy.Verdict) *recorder.Barrier {
	if len(w.barred) < fewBarriers {
		return barrierOf(&w.barred, why)
	}
	if w.listed == nil {
		w.listed = make(map[policy.Verdict]int, len(w.turned.leaves))
		for i := range w.barred {
			w.listed[w.barred[i].Verdict] = i
		}
	}
	i, known := w.listed[why]
	if !known {
		i = len(w.barred)
		w.barred, w.listed[why] = append(w.barred, recorder.Barrier{Verdict: why}), i
	}
	return &w.barred[i]
}

func barrierOf(all *[]recorder.Barrier, why policy.Verdict) *recorder.Barrier {
	i := slices.IndexFunc(*all, func(b recorder.Barrier) bool { return b.Verdict == why })
	if i < 0 {
		i = len(*all)
		*all = append(*all, recorder.Barrier{Verdict: why})
	}
	return &(*all)[i]
}

// barObject keeps the object of a verdict that is about a queue, so that gangs of one queue count together, and drops a
// gang's own name.
func barObject(v policy.Verdict) string {
	switch v.Reason {
	case policy.ReasonVictimWithinShare, policy.ReasonSaturation, policy.ReasonBudget, policy.ReasonNotReclaimable:
		return v.Object
	}
	return ""
}
