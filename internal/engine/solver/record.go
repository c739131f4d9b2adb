package solver

import (
	"maps"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// accept makes the decision part of the plan, with its record, and returns the queues of those who gave.
func (q *search) accept() []*ledger.QueueLedger {
	record := &engine.EvictionRecord{Cause: q.cause, Queue: q.g.Leaf.Name, Placed: q.request.At(cluster.GPU), Partial: q.partial}
	victims := map[*ledger.GangState]int{}
	var gangs []*ledger.GangState
	taken := map[*ledger.QueueLedger]cluster.Resources{}
	for i := range q.units {
		t := &q.units[i]
		v := t.Gang
		entry := func() *engine.Victim {
			k, known := victims[v]
			if !known {
				k = len(record.Victims)
				victims[v] = k
				gangs = append(gangs, v)
				record.Victims = append(record.Victims, engine.Victim{
					Gang: v.Key, UID: v.UID, Queue: v.Leaf.Name, Priority: v.Priority, Rule: t.rule,
				})
			}
			return &record.Victims[k]
		}
		if n := q.s.Ledger.Given(&t.VictimUnit); n > 0 {
			entry().Promised = n
			r := taken[v.Leaf]
			r.AddCapped(t.Charge)
			taken[v.Leaf] = r
		}
		for _, p := range t.Pods {
			fate := q.s.Ledger.Fate(p)
			if fate != ledger.Evict && fate != ledger.Move {
				continue
			}
			q.charge(entry(), record, t, p, fate == ledger.Move)
			q.s.Broken(p, t.budget)
			r := taken[v.Leaf]
			if fate == ledger.Evict {
				r.AddCapped(p.Charge)
			}
			taken[v.Leaf] = r
		}
	}
	leaves := slices.SortedFunc(maps.Keys(taken), func(a, b *ledger.QueueLedger) int { return strings.Compare(a.Name, b.Name) })
	record.Shares = q.shares(leaves, taken)
	if len(record.Victims) == 0 {
		record = nil // room that others had to leave already
	}
	q.s.AcceptFor(q.st, q.g, record)
	if q.victimQueues != nil {
		q.victimQueues.given(append(gangs, q.g)) // whoever has some already, and gets more, has another place too
	}
	return leaves
}

func (q *search) charge(v *engine.Victim, c *engine.EvictionRecord, t *taken, p *cluster.Pod, moved bool) {
	gpu := p.Charge.At(cluster.GPU)
	v.Pods++
	v.GPU += gpu
	since := t.Gang.LastStart
	if since.IsZero() {
		since = t.Gang.Created
	}
	v.Seconds += gpu * (int64(max(0, q.s.Snap.Now.Sub(since))) / 1_000_000_000)
	if moved {
		v.Moved++
		c.Moved += gpu
	} else {
		c.Evicted += gpu
	}
}

// shares lists the queues concerned, leaves and all above them, as they were and as they are.
func (q *search) shares(victimQueues []*ledger.QueueLedger, taken map[*ledger.QueueLedger]cluster.Resources) []engine.ShareChange {
	before := map[*ledger.QueueLedger]cluster.Resources{}
	var order []*ledger.QueueLedger
	add := func(leaf *ledger.QueueLedger, r cluster.Resources, gave bool) {
		for n := leaf; n != nil; n = n.Parent {
			if before[n] == nil {
				before[n] = n.Allocated.Clone()
				order = append(order, n)
			}
			was := before[n]
			if gave {
				was.AddCapped(r)
			} else {
				was.Sub(r)
			}
			before[n] = was
		}
	}
	add(q.g.Leaf, q.request, false)
	for _, leaf := range victimQueues {
		add(leaf, taken[leaf], true)
	}
	out := make([]engine.ShareChange, 0, len(order))
	for _, n := range order {
		out = append(out, engine.ShareChange{
			Queue: n.Name, Quota: n.Quota, FairShare: q.s.Rules.FairShare(n.ID).Clone(), Before: before[n], After: n.Allocated.Clone(),
		})
	}
	return out
}
