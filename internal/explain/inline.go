package explain

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The bounds of what is tried while everybody waits: each try is a run over the whole cluster.
const (
	inLineTries  = 160
	inLinePlaces = 1024 // for one pod each
)

// Prove tries the remedies of an explanation of this run while everybody else waits too, and looks for others with which the gang starts at
// its place: a PriorityClass, the quota of its queue, or room for those ahead as well. Those that hold come first. What is proven has no part
// that can go; what could not be proven within some 160 runs of the scheduler is not said. Nothing is done for a gang that starts, or for
// which nothing waits. The error says that ctx ended, or is newEngine's.
func (r *Run) Prove(ctx context.Context, e *Explanation) error {
	if e.Word == "" || e.Word == Starting {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s, err := r.stage(&r.crowd, nobody)
	if err != nil {
		return err
	}
	w := s.enter(ctx, e.key)
	w.most = inLineTries
	e.proven = true
	held := false
	remedies := make([]Remedy, 0, len(e.Remedies))
	for _, m := range e.Remedies {
		proven := w.prove(m.Changes)
		switch {
		case proven == nil:
			remedies = append(remedies, m)
		case len(proven.Changes) == len(m.Changes) && same(proven.Changes, m.Changes):
			m.InLine, m.Cost, held = true, proven.Cost, true
			remedies = append(remedies, m)
		default: // with others around less is enough
			held = true
			remedies = append(remedies, *proven)
		}
	}
	if !held {
		var from []*Change
		if len(e.Remedies) > 0 {
			from = e.Remedies[0].Changes
		}
		for _, way := range []func([]*Change) []*Change{w.promote, w.favour, w.makeWay} {
			if changes := way(from); changes != nil {
				if proven := w.prove(changes); proven != nil {
					remedies = append(remedies, *proven)
				}
			}
		}
	}
	sortRemedies(remedies)
	e.Remedies, e.Unknown = remedies, e.Unknown && len(remedies) == 0
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("explain gang %s: %w", e.key, err)
	}
	return nil
}

// prove returns a remedy that holds on this stage, made of the changes; nil when they do not suffice or tries ran out.
func (w *trial) prove(changes []*Change) *Remedy {
	if w.spent() || !w.enough(changes) {
		return nil
	}
	changes = w.minimise(changes)
	o := w.try(changes)
	if w.spent() || !o.placed() {
		return nil
	}
	m := newRemedy(changes, &o, w.key)
	m.InLine = true
	return &m
}

// same says whether two sets of changes are one.
func same(a, b []*Change) bool {
	for i := range a {
		if a[i].Kind != b[i].Kind || a[i].to != b[i].to || a[i].Count != b[i].Count || len(a[i].Nodes) != len(b[i].Nodes) || len(a[i].Pods) != len(b[i].Pods) {
			return false
		}
	}
	return true
}

// favour raises quotas of the gang's queue, and of those above, to all that is asked for there, so that it is served before others: of GPUs, or
// for work without any of CPUs and memory.
func (w *trial) favour(changes []*Change) []*Change {
	g := w.base.GangByKey(w.key)
	dims := []int{cluster.CPU, cluster.RAM}
	if slices.ContainsFunc(g.Pods, func(id cluster.PodID) bool { return w.base.Pod(id).Class.Charge.At(cluster.GPU) > 0 }) {
		dims = []int{cluster.GPU}
	}
	for _, d := range dims {
		for q, steps := w.base.QueueByName(g.Queue), 0; q != nil && steps <= len(w.base.QueueOrder); q, steps = w.base.QueueByName(q.Parent), steps+1 {
			have, want := q.Quota.At(d), q.Requested.At(d)
			if have == cluster.Unlimited || want <= have {
				continue
			}
			changes = merge(changes, w.one(Change{Kind: RaiseQuota, Queue: q.Name, Dimension: w.base.Dims.Name(d), bound: have, to: want, From: w.base.Dims.FormatOne(d, have)}))
		}
	}
	return changes
}

// maxPursuit bounds how many rules in a row are lifted for those ahead as well.
const maxPursuit = 12

// makeWay lifts what stops the gang at its place, rule by rule, for those ahead of it too: limits as high as all of them need, and places for
// one pod each until it gets one.
func (w *trial) makeWay(changes []*Change) []*Change {
	for range maxPursuit {
		o := w.try(changes)
		if o.placed() {
			return changes
		}
		d := o.diagnosis()
		if d == nil || w.spent() {
			return nil
		}
		var more []*Change
		switch d.Verdict.Reason.Unblock {
		case policy.UnblockRoom, policy.UnblockSize, policy.UnblockFirst:
			if more = w.roomForAll(changes, &o); more == nil {
				return nil
			}
			changes = more
			continue
		}
		if more = w.propose(changes, &o); len(more) == 0 {
			return nil
		}
		changes = merge(changes, more)
	}
	return nil
}

// roomForAll adds places for one pod each until the gang starts, or something else than room stops it.
func (w *trial) roomForAll(changes []*Change, o *outcome) []*Change {
	if o.gang.Diagnosis.Pods == nil {
		return nil
	}
	for _, p := range w.places(o.gang.Diagnosis.Pods, o) {
		for n := 1; n <= inLinePlaces && !w.spent(); n *= 4 { // what is too much is taken away later
			c := p.room
			c.Count = n
			with := merge(merge(changes, p.first), []*Change{&c})
			next := w.try(with)
			if d := next.diagnosis(); next.placed() || d != nil && !d.Verdict.Reason.Room() && d.Verdict.Reason.Unblock != policy.UnblockSize {
				return with
			}
		}
	}
	return nil
}
