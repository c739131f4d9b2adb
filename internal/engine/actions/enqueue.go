package actions

import "github.com/muster-scheduler/muster/internal/engine"

// Enqueue admits gangs that have to be admitted before they can be tried, in queue order: each is voted on once, with what those before it were admitted for.
type Enqueue struct{}

// Run has every gang voted on that waits to be admitted.
func (Enqueue) Run(s *engine.Session) {
	queue := s.NewGangQueue(s.Unadmitted())
	for g := queue.Pop(); g != nil && !s.Aborted(); g = queue.Pop() {
		s.Recorder.Considered()
		if at := s.Rules.Vote(g); !at.IsZero() {
			s.Recorder.WakeAt(at)
		}
	}
	if s.Aborted() {
		s.Recorder.Truncated()
	}
}
