package cluster

import (
	"cmp"
	"slices"
	"time"
)

// HoldState is a promise as plain data: room on a node that is promised and still being released, which nobody else gets until the
// promise is kept, withdrawn, or has run out.
type HoldState struct {
	// Gang is whom it is promised to.
	Gang Key `json:"gang"`
	// Pod is the UID of the waiting pod it is for. A hold for a pod that is to be made anew after its move has Moved
	// instead: the UID of the pod that had to go; whichever pod of the same set and size comes next may use it.
	Pod   string `json:"pod,omitzero"`
	Moved string `json:"moved,omitzero"`
	Set   string `json:"set,omitzero"` // name of the pod set
	Node  string `json:"node"`
	// Requests is how much of the node's sums, Share how much of devices, Charge what the queue is charged; in a Hold, vectors.
	Requests []Quantity `json:"requests,omitzero"`
	Share    Share      `json:"share,omitzero"`
	Charge   []Quantity `json:"charge,omitzero"`
	// Claims are the devices that its resource claims are to get.
	Claims []ClaimAllocation `json:"claims,omitzero"`
	// Zones is how much of which NUMA zones of the node; nil when nobody says.
	Zones []ZoneShare `json:"zones,omitzero"`
	// Until is when it runs out.
	Until Instant `json:"until"`
	// Bundle names the decision that promised it, "" for one of another process.
	Bundle string `json:"bundle,omitzero"`
}

// Hold is a promise of room.
type Hold struct {
	HoldState
	Requests, Charge Resources
	// Waits is, in a Snapshot, the pod that Pod names; None for a hold with Moved.
	Waits PodID
}

// ID names the hold: one pod has one.
func (h *HoldState) ID() string { return h.Pod + h.Moved }

// Hold records a promise, in place of any with the same ID. One that is made again runs out when the first did.
func (s *Store) Hold(h Hold) {
	if old, ok := s.holds[h.ID()]; ok && old.HoldState.equal(&h.HoldState) && old.Requests.Equal(h.Requests) && old.Charge.Equal(h.Charge) {
		return
	}
	s.holds[h.ID()] = h
	s.gen++
}

// Release withdraws a promise. It reports whether there was one.
func (s *Store) Release(id string) bool {
	_, ok := s.holds[id]
	if ok {
		delete(s.holds, id)
		s.gen++
	}
	return ok
}

// ReleaseOf withdraws a promise if it is still the one that the bundle made. It reports whether it was.
func (s *Store) ReleaseOf(id, bundle string) bool {
	h, ok := s.holds[id]
	return ok && h.Bundle == bundle && s.Release(id)
}

// HoldFor records a promise to a waiting pod of a known gang, for all it asks for; see Hold. It reports whether there is
// such a pod.
func (s *Store) HoldFor(uid, node string, until Instant) bool {
	id, ok := s.podIDs[uid]
	if !ok {
		return false
	}
	p := s.pods.get(int32(id))
	if p.Phase != Pending || p.Gang == None {
		return false
	}
	h := HoldState{Gang: p.PodState.Gang, Pod: uid, Set: p.PodState.SetName, Node: node, Share: p.Class.Share, Until: until}
	s.Hold(Hold{HoldState: h, Requests: p.Class.Requests, Charge: p.Class.ChargeOn(s.nodeByName(node))})
	return true
}

// nodeByName returns a node, nil for one that is not known.
func (s *Store) nodeByName(name string) *Node {
	if id, ok := s.nodeIDs[name]; ok {
		return s.nodes.get(int32(id))
	}
	return nil
}

// Started records that we give a gang its minimum now, which its object will say later.
func (s *Store) Started(key Key) {
	if id, ok := s.gangIDs[key]; ok {
		g := s.gang(id)
		g.Started = s.now
		g.LastStart = Latest(g.LastStart, s.now)
	}
}

// Stale records since when a gang has had too few pods, 0 for no more, which its object will say later.
func (s *Store) Stale(key Key, since Instant) {
	if id, ok := s.gangIDs[key]; ok {
		g := s.gang(id)
		g.Stale, g.StaleSince = Maybe[Instant]{Set: true, Value: since}, since
	}
}

// Admit records that a gang is admitted, or not any more.
func (s *Store) Admit(key Key, is bool) {
	if id, ok := s.gangIDs[key]; ok && s.gangs.get(int32(id)).Admitted != is {
		s.gang(id).Admitted = is
		s.gen++
	}
}

// pruneHolds drops the promises that have run out, been kept, or lost whom they were for.
func (s *Store) pruneHolds(now Instant) {
	for id, h := range s.holds { // order: each on its own
		_, gang := s.gangIDs[h.Gang]
		pid, pod := s.podIDs[h.Pod]
		if !gang || !h.Until.After(now) || h.Pod != "" && (!pod || s.pods.get(int32(pid)).Phase != Pending) {
			s.Release(id)
		}
	}
}

func (s *Store) sortedHolds() []Hold {
	if len(s.holds) == 0 {
		return nil
	}
	out := make([]Hold, 0, len(s.holds))
	for _, h := range s.holds { // order: sorted below
		h.Waits = None
		if id, ok := s.podIDs[h.Pod]; ok {
			h.Waits = id
		}
		out = append(out, h)
	}
	slices.SortFunc(out, func(a, b Hold) int {
		if c := a.Gang.compare(b.Gang); c != 0 {
			return c
		}
		return cmp.Compare(a.ID(), b.ID())
	})
	return out
}

// AssumeEvicted records our decision that a pod that holds room gives it back: until the API server shows that it is
// being deleted, it is spared, or until comes. It counts as a displacement of its gang by the gang by.
// It reports whether the pod was there and active.
func (s *Store) AssumeEvicted(uid string, by Key, until Instant) bool {
	id, ok := s.podIDs[uid]
	if !ok || !s.pods.get(int32(id)).Phase.Active() {
		return false
	}
	s.detach(s.pods.get(int32(id)))
	p := s.pod(id)
	p.evicting, p.Phase, p.sent, p.Returning = until, Releasing, true, p.Recreated
	s.evicting[id] = struct{}{}
	s.attach(p)
	s.disturbed = true
	if p.Gang != None {
		g := s.gang(p.Gang)
		if d := (Displacement{s.now, by}); !slices.Contains(g.Displacements, d) {
			g.Displacements = append(slices.Clone(g.Displacements[max(0, len(g.Displacements)+1-MaxDisplacements):]), d)
		}
		g.Displaced, g.Evicted, g.LastEviction = s.now, s.now, Latest(g.LastEviction, s.now)
	}
	s.gen++
	return true
}

// Spare withdraws an assumed eviction: the pod is what the API server last said. It reports whether there was one.
func (s *Store) Spare(uid string) bool {
	id, ok := s.podIDs[uid]
	if !ok || s.pods.get(int32(id)).evicting.IsZero() {
		return false
	}
	s.detach(s.pods.get(int32(id)))
	p := s.pod(id)
	p.evicting, p.sent, p.Returning = Instant{}, false, false
	delete(s.evicting, id)
	p.Phase, p.NodeName = p.PodState.Phase, p.PodState.NodeName
	if p.assumed != nil {
		p.Phase, p.NodeName = Binding, p.assumed.node
	}
	s.attach(p)
	s.gen++
	return true
}

// RememberedAnswer is an answer no that cost much to find: until Until it stands in for asking again, whatever happens meanwhile.
type RememberedAnswer struct {
	// Until is, and not after Wake.
	Until Instant
	// Asked is the generation of the snapshot in which the answer was found; 0 where that is not known.
	Asked uint64
	// Wake is when time alone may change the answer; Forever for never. It counts where Asked is known.
	Wake Instant
	// Why is the answer, which only who asked understands. It is not written to.
	Why any
}

// Again is when whoever relies on the answer in a snapshot of this generation has to ask again, if nothing happens before: where
// nothing has changed since the answer was found, only when time may change it.
func (r RememberedAnswer) Again(generation uint64) Instant {
	if r.Asked == generation {
		return r.Wake
	}
	return r.Until
}

// RememberAnswer remembers the answer to a question, named in full. Its end is no change of the state and no timer of the Store's: who needs
// the answer then asks to be woken, see [RememberedAnswer.Again].
func (s *Store) RememberAnswer(question string, r RememberedAnswer) { s.answers[question] = r }

// ForgetAnswers forgets all answers: whoever gave them is asked no more. It is a change: what another one answers in its place is no answer of the same generation.
func (s *Store) ForgetAnswers() {
	clear(s.answers)
	s.gen++
}

// lost notes that a gang lost room by something that was not our doing. p may be detached.
func (s *Store) lost(p *Pod) {
	s.news = s.now
	if id, ok := s.gangIDs[p.home()]; ok {
		s.gang(id).Since = s.now
	}
}

// noted is a fair share as it was when it last moved, and which other it has been since when.
type noted struct {
	share, other Resources
	since        Instant
}

// Dwell: a fair share has moved when it has been one and the same other, by more than a tenth of the larger
// and more than slack, for that long: what comes and goes makes shares swing for moments, and that is no news.
const (
	Dwell = time.Minute
	band  = 10
)

// slack is how far apart two shares may be without being different: a GPU, a core, a GiB.
func slack(dim int) int64 {
	switch dim {
	case CPU, GPU:
		return 1000
	case RAM:
		return 1 << 30
	}
	return 1
}

// NoteShares tells the Store what the fair shares are now, by queue name. A share that has moved to stay is news: who was
// evicted before may be evicted again for what was waiting then. See docs/concepts/disruption.md.
func (s *Store) NoteShares(shares map[string]Resources) {
	for name, share := range shares { // order: each queue on its own
		id, ok := s.queueIDs[name]
		if !ok {
			continue
		}
		old, known := s.shares[name]
		switch {
		case !known:
			s.shares[name] = noted{share: share.Clone()}
		case !moved(old.share, share):
			if !old.since.IsZero() {
				old.since = Instant{}
				s.shares[name] = old
			}
		case old.since.IsZero() || moved(old.other, share):
			old.since, old.other = Latest(UnixNano(1), s.now), share.Clone()
			s.shares[name] = old
		case s.now.Sub(old.since) >= Dwell:
			s.shares[name] = noted{share: share.Clone()}
			s.queue(id).ShareMoved = old.since
			if s.disturbed {
				s.gen++
			}
		}
	}
	for name := range s.shares { // order: each queue on its own
		if _, ok := s.queueIDs[name]; !ok {
			delete(s.shares, name)
		}
	}
}

// nextNote returns when a share that differs now will count as moved, or Forever. To a Store that has seen no eviction
// that is no news.
func (s *Store) nextNote() Instant {
	next := Forever
	if !s.disturbed {
		return next
	}
	for _, n := range s.shares { // order: minimum
		if !n.since.IsZero() {
			next = Earliest(next, n.since.Add(Dwell))
		}
	}
	return next
}

func moved(a, b Resources) bool {
	for d := range max(len(a), len(b)) {
		x, y := a.At(d), b.At(d)
		if apart := max(x, y) - min(x, y); apart > slack(d) && apart > max(x, y)/band {
			return true
		}
	}
	return false
}
