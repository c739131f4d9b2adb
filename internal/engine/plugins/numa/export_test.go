package numa

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Audited builds the plugin so that every step and the end of every run are checked: nothing is taken that is not there,
// what is undone leaves no trace, and the ledgers are what they are when computed anew. wrong is told what is not so.
func Audited(wrong func(string)) policy.Factory {
	return policy.Makes(func(args policy.Arguments) (func(*policy.View) *audited, []string, error) {
		open, unknown, err := build(args)
		return func(v *policy.View) *audited {
			return &audited{instance: open(v), wrong: wrong, verbs: map[cluster.PodID]ledger.Verb{}}
		}, unknown, err
	}, ReasonZones)
}

type audited struct {
	*instance
	wrong  func(string)
	verbs  map[cluster.PodID]ledger.Verb
	before []ledger.Verb // per operation, what the pod's was
	texts  []string      // per operation, the node's ledger before
}

func (a *audited) text(n cluster.NodeID) string {
	if l := a.ledger(a.snap.Node(n)); l != nil {
		return fmt.Sprint(l.idle.v, l.give.v)
	}
	return ""
}

// Done implements policy.Observer.
func (a *audited) Done(op ledger.Op) {
	a.texts = append(a.texts, a.text(op.Node))
	a.before = append(a.before, a.verbs[op.Pod.ID])
	a.verbs[op.Pod.ID] = op.Verb
	a.instance.Done(op)
	e := a.journal
	if len(e) == 0 || e[len(e)-1].on == nil || !chooses(op.Verb) {
		return
	}
	l, taken := e[len(e)-1].on, e[len(e)-1].taken
	later := a.later(l)
	for k, x := range taken.v {
		if x > 0 && (later.v[k] < 0 || op.Verb == ledger.Bind && l.idle.v[k] < 0) {
			a.wrong(fmt.Sprintf("%s of %s on %s takes %v: idle %v, later %v", op.Verb, op.Pod.Name, a.snap.Node(op.Node).Name, taken.v, l.idle.v, later.v))
		}
	}
	if want := a.demand(op.Pod.Class); l.policy != cluster.ZonesBestEffort && len(want.each) > 0 && taken.span() == 0 && known(&l.shape, want.each) {
		a.wrong(fmt.Sprintf("%s of %s on %s got no zone", op.Verb, op.Pod.Name, a.snap.Node(op.Node).Name))
	}
}

// known says whether the node's zones have any of the resources.
func known(s *shape, groups []group) bool {
	for _, g := range groups {
		for _, w := range g.want {
			if s.index(w.res) >= 0 {
				return true
			}
		}
	}
	return false
}

// Undone implements policy.Observer.
func (a *audited) Undone(op ledger.Op) {
	a.instance.Undone(op)
	last := len(a.texts) - 1
	if now := a.text(op.Node); now != a.texts[last] {
		a.wrong(fmt.Sprintf("undoing %s of %s leaves %s, was %s", op.Verb, op.Pod.Name, now, a.texts[last]))
	}
	a.verbs[op.Pod.ID] = a.before[last]
	a.texts, a.before = a.texts[:last], a.before[:last]
}

// Close implements policy.Closer: the ledgers are computed anew.
func (a *audited) Close() any {
	for id, l := range a.nodes { // order: each on its own
		if l == nil {
			continue
		}
		n := a.snap.Node(id)
		fresh := a.build(n, a.zones(n.Name))
		for _, p := range n.Pods {
			if v := a.verbs[p]; v == ledger.Evict || v == ledger.Move {
				fresh.give.plus(fresh.record(a.snap.Pod(p), a.snap.Dims), 1)
			}
		}
		for p, at := range a.placed { // order: sums
			if at.on == l {
				fresh.give.plus(at.taken, -1)
				if a.verbs[p] == ledger.Bind {
					fresh.idle.plus(at.taken, -1)
				}
			}
		}
		if got, want := fmt.Sprint(l.idle.v, l.give.v), fmt.Sprint(fresh.idle.v, fresh.give.v); got != want {
			a.wrong(fmt.Sprintf("node %s: ledger %s, computed anew %s", n.Name, got, want))
		}
	}
	return nil
}
