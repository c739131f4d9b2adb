package actions

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// QueueGates lets pods in that ask their queue to before they may be placed, and have no other gate left: a queue lets in what it could be given, whether any node has room
// for it, so that who adds nodes sees pods that wait for one and not those that wait for their queue. Gangs are asked about in queue order, each once: all of its pods that ask, or as
// many of them, the oldest first, as the queue could be given, if its minimum is among what has no gate then. What was let in and has no place yet counts as given to its queue.
//
// It places nothing: a pod that was let in is tried when its gate has gone.
type QueueGates struct{}

// Run looks at all pods that wait if one of them asks, and at none otherwise: O(gangs that wait).
func (QueueGates) Run(s *engine.Session) {
	var ask []*ledger.GangState
	for gang := range s.Snap.PendingGangs() {
		if gang.GatedPods == 0 || !slices.ContainsFunc(gang.Pods, func(id cluster.PodID) bool { return asks(s.Snap.Pod(id)) }) {
			continue
		}
		if g := s.Ledger.Gang(gang.ID); g.HasQueue() && g.Invalid == "" && s.Ledger.Admitted(g) {
			ask = append(ask, g)
		}
	}
	if len(ask) == 0 {
		return
	}
	given := letIn(s)
	queue := s.NewGangQueue(ask)
	for g := queue.Pop(); g != nil && !s.Aborted(); g = queue.Pop() {
		s.Recorder.Considered()
		lift(s, g, given)
	}
	if s.Aborted() {
		s.Recorder.Truncated()
	}
}

// asks says whether a pod waits for its queue to let it in, and nothing else.
func asks(p *cluster.Pod) bool {
	return p.Ours && p.Phase == cluster.Gated && p.Entry == cluster.EntryAsked
}

// letIn is what queues have let in that has no place yet.
func letIn(s *engine.Session) map[*ledger.QueueLedger]cluster.Resources {
	out := map[*ledger.QueueLedger]cluster.Resources{}
	for gang := range s.Snap.PendingGangs() {
		g := s.Ledger.Gang(gang.ID)
		for _, id := range gang.Pods {
			if p := s.Snap.Pod(id); g.Leaf != nil && p.Ours && p.Phase == cluster.Pending && p.Entry == cluster.EntryGiven {
				sum := out[g.Leaf]
				sum.AddCapped(p.Class.Charge)
				out[g.Leaf] = sum
			}
		}
	}
	return out
}

// lift lets pods of a gang in, and adds them to what its queue is given; if none can be, and the gang has nothing else to place, that is why it waits.
func lift(s *engine.Session, g *ledger.GangState, given map[*ledger.QueueLedger]cluster.Resources) {
	pods, without := []*cluster.Pod(nil), int32(0) // those that ask, and how many count that have no gate
	for _, id := range g.Pods {
		switch p := s.Snap.Pod(id); {
		case asks(p):
			pods = append(pods, p)
		case p.Ours && p.Phase != cluster.Gated && p.Phase.Alive(), p.Finished():
			without++
		}
	}
	slices.SortFunc(pods, func(a, b *cluster.Pod) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	no := s.Rules.CheckTurn(g)
	sum, many := given[g.Leaf].Clone(), 0
	for ; many < len(pods) && no.Yes(); many++ {
		more := sum.Clone()
		more.AddCapped(pods[many].Class.Charge)
		if no = s.Rules.CheckGates(g, more); !no.Yes() {
			break
		}
		sum = more
	}
	if many == 0 || int64(without)+int64(many) < int64(g.MinPods()) {
		if next, _ := s.Ledger.Next(g); len(next) == 0 && !no.Yes() {
			s.Rules.Refuse(g, &no)
		}
		return
	}
	given[g.Leaf] = sum
	for _, p := range pods[:many] {
		s.Recorder.Lift(p)
	}
}
