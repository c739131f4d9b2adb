package actions

import (
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Order tells in which order the waiting gangs would be looked at as things stand, and decides nothing. It is no action of
// profiles: who wants to know runs an engine with it alone.
type Order struct {
	// Next is called with each gang in turn.
	Next func(g *ledger.GangState)
}

// Run tells every waiting gang that can be tried, once.
func (o Order) Run(s *engine.Session) {
	queue := s.NewGangQueue(s.Pending())
	for g := queue.Pop(); g != nil; g = queue.Pop() {
		o.Next(g)
	}
}
