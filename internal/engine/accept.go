package engine

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Broken notes that the pod's eviction breaks a promise made to its owner, named by broken; "" for none.
func (s *Session) Broken(p *cluster.Pod, broken string) {
	if broken != "" {
		s.draft.broken[p.ID] = broken
	}
}

// Accept turns the statement into intents of the running action's plan, in one bundle with whatever the plan holds for
// the same gang already.
func (s *Session) Accept(st *ledger.Statement) {
	ops := st.Ops()
	i := slices.IndexFunc(ops, func(op ledger.Op) bool { return op.Gives() != 0 })
	if i < 0 {
		return
	}
	g := s.Ledger.Gang(ops[i].Pod.Gang)
	at, ok := s.draft.bundles[g.ID]
	if !ok {
		at = s.newBundle(g)
		s.draft.bundles[g.ID] = at
	}
	s.settle(st, g, at)
}

// AcceptFor turns the statement into a bundle of its own: evictions, and what they make room for. g is the beneficiary;
// for a repair, the gang that is released. The evictions that were taken back leave no trace.
func (s *Session) AcceptFor(st *ledger.Statement, g *ledger.GangState, record *EvictionRecord) {
	at := s.newBundle(g)
	s.draft.plan.Bundles[at].Eviction = record
	s.draft.plan.Bundles[at].Starts = false
	s.settle(st, g, at)
}

func (s *Session) newBundle(g *ledger.GangState) int {
	s.draft.plan.Bundles = append(s.draft.plan.Bundles, Bundle{Gang: g.Key, UID: g.UID, Starts: !g.HadRoom()})
	return len(s.draft.plan.Bundles) - 1
}

// settle appends what is left of the statement's operations to a bundle.
func (s *Session) settle(st *ledger.Statement, g *ledger.GangState, at int) {
	b, ops := &s.draft.plan.Bundles[at], st.Ops()
	if b.Intents == nil {
		b.Intents = make([]Intent, 0, len(ops))
	}
	var evicted map[cluster.PodID]int // index of the intent; most statements evict nobody
	for _, op := range ops {
		if op.Verb != ledger.Evict {
			continue
		}
		_, again := evicted[op.Pod.ID]
		if v := s.Ledger.Fate(op.Pod); !again && (v == ledger.Evict || v == ledger.Move) {
			g := s.Ledger.Gang(op.Pod.Gang)
			if evicted == nil {
				evicted = map[cluster.PodID]int{}
			}
			evicted[op.Pod.ID] = len(b.Intents)
			b.Intents = append(b.Intents, s.intent(op, Intent{
				Gang: g.Key, Set: op.Pod.SetName(), BelowMinimum: !g.Satisfied(), Budget: s.draft.broken[op.Pod.ID],
			}))
		}
	}
	moved := 0
	for _, op := range ops {
		switch op.Verb {
		case ledger.Bind, ledger.Nominate: // nobody else's: in a statement that evicts, these are the beneficiary's
			in := Intent{}
			if h, _ := s.Ledger.HoldFor(op.Pod); h != nil {
				in.Kept = h.ID()
			}
			in = s.intent(op, in)
			in.detail(s.Rules.Detail(op))
			b.Intents = append(b.Intents, in)
		case ledger.Move:
			in := &b.Intents[evicted[op.Pod.ID]]
			if in.To == "" {
				moved++
			}
			in.To, in.ToGroups = s.Snap.Node(op.Node).Name, op.Groups
			in.detail(s.Rules.Detail(op))
		}
	}
	s.Recorder.Settled(g, ops, len(evicted), moved)
	st.Settle(g.Key)
}

func (s *Session) intent(op ledger.Op, in Intent) Intent {
	in.Verb, in.Namespace, in.Pod, in.UID = op.Verb, op.Pod.Namespace, op.Pod.Name, op.Pod.UID
	in.Node, in.Groups, in.Share = s.Snap.Node(op.Node).Name, op.Groups, op.Pod.Class.Share
	in.Requests, in.Charge = op.Pod.Class.Requests, s.Ledger.ChargeOf(op)
	in.GPU = in.Charge.At(cluster.GPU)
	if op.Verb == ledger.Bind {
		g := s.Snap.Gang(op.Pod.Gang)
		in.Charged = cluster.Charged{Queue: g.Queue, Gang: g.Key, Set: op.Pod.SetName(), Fixed: !g.Preemptible, Share: op.Pod.Class.Share}
	}
	return in
}

// detail adds what plugins chose for the pod.
func (in *Intent) detail(d policy.Detail) { in.Claims, in.Zones = d.Claims, d.Zones }
