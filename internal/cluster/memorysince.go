package cluster

import (
	"maps"
	"slices"
)

// Again names, beside the objects that Since names, those of which a part of a Memory says anew what is remembered.
type Again struct {
	// Gangs are those that no event is of: remnants.
	Gangs []Key `json:"gangs,omitzero"`
	// Pods are UIDs of pods that are as they were, but whose gang is not.
	Pods []string `json:"pods,omitzero"`
	// Holds are the IDs of those that are there no more, Questions those without an answer now.
	Holds     []string `json:"holds,omitzero"`
	Questions []string `json:"questions,omitzero"`
	// Changes is by how much the Generation has grown, which remembered answers are as old as.
	Changes uint64 `json:"changes,omitzero"`
}

// MemorySince returns what Memory says of what may be remembered otherwise than in an older snapshot of the same Store: of the gangs, pods and queues that Since names, of
// those that again names, and of holds and questions of which that is another than it was. Frozen and News are whole. Of anything else that is there the same is remembered as before,
// but that a pod is postponed no longer than until then.
// Cost: the pages that changed, the holds and the answers.
func (s *Snapshot) MemorySince(old *Snapshot) (part Memory, again Again) {
	part = s.recall()
	again.Changes = s.Generation - old.Generation
	part.holdsSince(s, old, &again)
	for question, r := range s.answers { // order: into a map
		if was, ok := old.answers[question]; !ok || !r.same(was) {
			part.Answers[question] = r
		}
	}
	for question := range old.answers { // order: sorted below
		if _, ok := s.answers[question]; !ok {
			again.Questions = append(again.Questions, question)
		}
	}
	slices.Sort(again.Questions)
	pods := map[string]*Pod{} // those of which it is said, by UID
	eachChanged(&s.pods, &old.pods, func(p, _ *Pod) {
		if p != nil {
			pods[p.UID] = p
		}
	})
	remnants := map[Key]bool{}
	eachChanged(&s.gangs, &old.gangs, func(g, was *Gang) {
		for _, x := range []*Gang{g, was} {
			if x != nil && x.Key.Remnant() {
				remnants[x.Key] = true
			}
		}
		if g == nil {
			return
		}
		part.gang(g)
		if was != nil && was.Key == g.Key && was.Preemptible == g.Preemptible && was.Queue == g.Queue {
			return
		}
		for _, id := range g.Pods { // whose record may be another one by that: see unsaid
			if p := s.Pod(id); pods[p.UID] == nil {
				pods[p.UID] = p
				again.Pods = append(again.Pods, p.UID)
			}
		}
	})
	again.Gangs = slices.SortedFunc(maps.Keys(remnants), Key.compare)
	slices.Sort(again.Pods)
	for _, p := range pods { // order: sorted below
		part.pod(s, p)
	}
	differ(s.QueueOrder, old.QueueOrder, s.Queue, old.Queue, func(q *Queue) string { return q.Name }, part.queue, func(*Queue) {})
	part.sort()
	return part, again
}

// holdsSince adds holds that are new, or other ones than they were, and names those that are gone.
func (m *Memory) holdsSince(s, old *Snapshot, again *Again) {
	if len(s.Holds)+len(old.Holds) == 0 {
		return
	}
	was := make(map[string]*Hold, len(old.Holds))
	for i := range old.Holds {
		was[old.Holds[i].ID()] = &old.Holds[i]
	}
	for i := range s.Holds {
		h := &s.Holds[i]
		if o := was[h.ID()]; o == nil || !h.equal(&o.HoldState) || h.Until != o.Until || h.Bundle != o.Bundle || !h.Requests.Equal(o.Requests) || !h.Charge.Equal(o.Charge) {
			m.hold(s, h)
		}
		delete(was, h.ID())
	}
	again.Holds = slices.Sorted(maps.Keys(was))
}

// same says that it is the answer that it was: two that were found in one generation, to hold as long, are one.
func (r *RememberedAnswer) same(was RememberedAnswer) bool {
	return r.Asked > 0 && r.Asked == was.Asked && r.Until == was.Until && r.Wake == was.Wake
}
