package actions

import (
	"container/heap"
	"encoding/binary"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Enqueue admits gangs that have to be admitted before they can be tried, in queue order: each is voted on once, with what those before it were admitted for. Of gangs
// of one queue that ask for the same, those behind one that is refused are refused with it, as long as no vote waits for a time: within a run nothing but more is
// claimed.
type Enqueue struct{}

// Run has every gang voted on that waits to be admitted. Ten thousand gangs of a few shapes cost little more than to find the first of each.
func (Enqueue) Run(s *engine.Session) {
	rows := alike(s, s.Unadmitted())
	first, of := make([]*ledger.GangState, 0, len(rows)), make(map[*ledger.GangState]*row, len(rows)) // whose turn it is in each
	for _, row := range rows {
		heap.Init(row)
		g := heap.Pop(row).(*ledger.GangState)
		first, of[g] = append(first, g), row
	}
	ahead := map[*ledger.QueueLedger]*policy.Verdict{} // of leaves that hand out in order and have refused somebody
	queue := s.NewGangQueue(first)
	for g := queue.Pop(); g != nil && !s.Aborted(); g = queue.Pop() {
		s.Recorder.Considered()
		row := of[g]
		no, wake := ahead[g.Leaf], cluster.Instant{}
		if no != nil {
			s.Rules.Refuse(g, no)
		} else if no, wake = s.Rules.Vote(g); no != nil && g.Leaf.InOrder {
			ahead[g.Leaf] = &policy.Verdict{Code: policy.No, Reason: policy.ReasonBehind, Object: g.Key.String()}
		}
		if !wake.IsZero() {
			s.Recorder.WakeAt(wake)
		}
		if no != nil && wake.IsZero() {
			if ahead[g.Leaf] != nil {
				no = ahead[g.Leaf]
			}
			for _, mate := range row.gangs {
				s.Rules.Refuse(mate, no)
			}
			continue
		}
		if len(row.gangs) > 0 {
			next := heap.Pop(row).(*ledger.GangState)
			of[next] = row
			queue.Push(next)
		}
	}
	if s.Aborted() {
		s.Recorder.Truncated()
	}
}

// alike puts gangs of one queue that ask for the same, and wait for as long, into one row each; where namespaces have quotas, of one namespace too.
func alike(s *engine.Session, gangs []*ledger.GangState) (rows []*row) {
	known, key, spaces := map[string]*row{}, []byte(nil), len(s.Snap.Objects(cluster.ResourceQuotas)) > 0
	for _, g := range gangs {
		key = binary.AppendVarint(binary.AppendVarint(key[:0], int64(g.Leaf.ID)), int64(g.AdmitAfter.Value))
		for _, x := range s.Ledger.Asks(g.Gang) {
			key = binary.AppendVarint(key, x)
		}
		if spaces {
			key = append(key, g.Key.Namespace...)
		}
		of := known[string(key)]
		if of == nil {
			of = &row{s: s}
			known[string(key)] = of
			rows = append(rows, of)
		}
		of.gangs = append(of.gangs, g)
	}
	return rows
}

// row is a heap of gangs, by their order.
type row struct {
	s     *engine.Session
	gangs []*ledger.GangState
}

func (r *row) Len() int           { return len(r.gangs) }
func (r *row) Less(i, j int) bool { return r.s.Rules.CompareGangs(r.gangs[i], r.gangs[j]) < 0 }
func (r *row) Swap(i, j int)      { r.gangs[i], r.gangs[j] = r.gangs[j], r.gangs[i] }
func (r *row) Push(x any)         { r.gangs = append(r.gangs, x.(*ledger.GangState)) }
func (r *row) Pop() any {
	g := r.gangs[len(r.gangs)-1]
	r.gangs = r.gangs[:len(r.gangs)-1]
	return g
}
