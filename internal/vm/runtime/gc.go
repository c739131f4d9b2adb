package runtime

import (
	"context"
	"errors"
)

// Garbage is something that no pod has any more: no record owns it, or whoever removed it was cut short.
type Garbage struct {
	// Verb is what is to be done about it, ID what of; Why says why it is garbage.
	Verb Verb
	ID   string
	Why  string
	// Err is why it is still there.
	Err error
}

// whyGarbage are the verbs of garbage. The others are of pods that there are.
var whyGarbage = map[Verb]string{
	Kill:            "a machine that no container has",
	Release:         "a network (namespace, taps, leases) that no pod has",
	Teardown:        "disks and file servers that no container has",
	Clear:           "first-boot data, ports and console that no container has",
	Forget:          "the description of a machine that has ended",
	RemoveContainer: "a container whose creation or removal was cut short",
	DropSandbox:     "a pod whose creation was cut short",
	RemoveSandbox:   "a pod whose removal was cut short",
}

// Collect finds garbage, as every sweep does, and takes it away unless dry. What belongs to a pod that somebody is at work on is none. A part that cannot be asked
// is in the error; what it has is then not looked at, and the rest is.
func (s *Server) Collect(ctx context.Context, dry bool) ([]Garbage, error) {
	select {
	case s.mending <- struct{}{}:
		defer func() { <-s.mending }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	k, err := s.known(ctx)
	errs := []error{err}
	var out []Garbage
	for _, step := range Reconcile(k) {
		why, ok := whyGarbage[step.Verb]
		if !ok || !s.idle(step) {
			continue
		}
		g := Garbage{Verb: step.Verb, ID: step.ID, Why: why}
		if !dry {
			g.Err = s.take(ctx, step)
		}
		out = append(out, g)
	}
	return out, errors.Join(errs...)
}

// idle says that nobody is at work on the pod that a step is about.
func (s *Server) idle(step Step) bool {
	if step.SandboxID == "" {
		return true
	}
	box := s.sandbox(step.SandboxID)
	if box == nil || !s.tryHold(box) {
		return false
	}
	s.free(box)
	return true
}

// Recorded gives all records as they are now, which hold no secret. None may be changed.
func (s *Server) Recorded() ([]*Sandbox, []*Container) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	boxes, containers := make([]*Sandbox, 0, len(s.sandboxes)), make([]*Container, 0, len(s.containers))
	for _, b := range s.sandboxes { // order: the caller's
		boxes = append(boxes, b.rec.Load())
	}
	for _, c := range s.containers { // order: the caller's
		containers = append(containers, c.rec.Load())
	}
	return boxes, containers
}
