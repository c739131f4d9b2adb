// Package actions holds the flow of a cycle: one file per action. Actions know the engine and no plugin.
package actions

import "github.com/muster-scheduler/muster/internal/engine"

// Allocate gives waiting gangs the room that is there, in queue order: a gang gets its minimum whole or nothing, and one
// that has its minimum grows by one pod a turn. What fits only when releases have happened is nominated.
type Allocate struct{}

// Run tries every waiting gang once, and gangs that got something again, until nobody gets more: at most pods + gangs
// tries.
func (Allocate) Run(s *engine.Session) {
	queue := s.NewGangQueue(s.Pending())
	for g := queue.Pop(); g != nil && !s.Aborted(); g = queue.Pop() {
		s.Considered()
		st := s.Begin()
		if d := s.TryGang(st, g); d != nil {
			s.Diagnose(g, d)
			continue
		}
		st.Accept()
		if pods, _ := s.Next(g); len(pods) > 0 {
			queue.Push(g)
		}
	}
	if s.Aborted() {
		s.Truncated()
	}
}
