package cluster

import (
	"cmp"
	"slices"
)

// Hold is room on a node that is promised and still being released: nobody else gets it until the promise is kept,
// withdrawn, or has run out.
type Hold struct {
	// Gang is whom it is promised to.
	Gang Key
	// Pod is the UID of the waiting pod it is for. A hold for a pod that is to be made anew after its move has Moved
	// instead: the UID of the pod that had to go; whichever pod of the same set and size comes next may use it.
	Pod   string
	Moved string
	Set   string // name of the pod set
	Node  string
	// Requests is how much of the node's sums, Share how much of devices, Charge what the queue is charged.
	Requests Resources
	Share    Share
	Charge   Resources
	// Claims are the devices that its resource claims are to get.
	Claims []ClaimAllocation
	// Zones is how much of which NUMA zones of the node; nil when nobody says.
	Zones []ZoneShare
	// Until is when it runs out, Unix nanoseconds.
	Until int64
	// Bundle names the decision that promised it, "" for one of another process.
	Bundle string
	// Waits is, in a Snapshot, the pod that Pod names; None for a hold with Moved.
	Waits PodID
}

// ID names the hold: one pod has one.
func (h *Hold) ID() string { return h.Pod + h.Moved }

// Hold records a promise, in place of any with the same ID.
func (s *Store) Hold(h Hold) {
	if old, ok := s.holds[h.ID()]; ok && old.Gang == h.Gang && old.Node == h.Node && old.Set == h.Set && old.Requests.Equal(h.Requests) && old.Charge.Equal(h.Charge) && old.Share == h.Share &&
		same(old.Claims, h.Claims) && slices.EqualFunc(old.Zones, h.Zones, ZoneShare.equal) {
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
func (s *Store) HoldFor(uid, node string, until int64) bool {
	id, ok := s.podIDs[uid]
	if !ok {
		return false
	}
	p := s.pods.get(int32(id))
	if p.Phase != Pending || p.Gang == None {
		return false
	}
	s.Hold(Hold{Gang: p.PodState.Gang, Pod: uid, Set: p.PodState.SetName, Node: node, Requests: p.Class.Requests, Share: p.Class.Share, Until: until}.charged(s, p.Class))
	return true
}

// charged fills in what the gang's queue is charged for the hold.
func (h Hold) charged(s *Store, c *Class) Hold {
	var n *Node
	if id, ok := s.nodeIDs[h.Node]; ok {
		n = s.nodes.get(int32(id))
	}
	h.Charge = c.ChargeOn(n)
	return h
}

// Started records that we give a gang its minimum now, which its object will say later.
func (s *Store) Started(key Key) {
	if id, ok := s.gangIDs[key]; ok {
		g := s.gang(id)
		g.started = s.now
		g.LastStart = max(g.LastStart, s.now)
	}
}

// Stale records since when a gang has had too few pods, 0 for no more, which its object will say later.
func (s *Store) Stale(key Key, since int64) {
	if id, ok := s.gangIDs[key]; ok {
		g := s.gang(id)
		g.stale, g.StaleSince = Maybe{Set: true, Value: since}, since
	}
}

// pruneHolds drops the promises that have run out, been kept, or lost whom they were for.
func (s *Store) pruneHolds(now int64) {
	for id, h := range s.holds { // order: each on its own
		_, gang := s.gangIDs[h.Gang]
		pid, pod := s.podIDs[h.Pod]
		if !gang || h.Until <= now || h.Pod != "" && (!pod || s.pods.get(int32(pid)).Phase != Pending) {
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
		return cmp.Or(cmp.Compare(a.Gang.String(), b.Gang.String()), cmp.Compare(a.ID(), b.ID()))
	})
	return out
}

// AssumeEvicted records our decision that a pod that holds room gives it back: until the API server shows that it is
// being deleted, it is spared, or until comes (Unix nanoseconds). It counts as a displacement of its gang by the gang by.
// It reports whether the pod was there and active.
func (s *Store) AssumeEvicted(uid string, by Key, until int64) bool {
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
		g.Displaced, g.evicted, g.LastEviction = s.now, s.now, max(g.LastEviction, s.now)
	}
	s.gen++
	return true
}

// Spare withdraws an assumed eviction: the pod is what the API server last said. It reports whether there was one.
func (s *Store) Spare(uid string) bool {
	id, ok := s.podIDs[uid]
	if !ok || s.pods.get(int32(id)).evicting == 0 {
		return false
	}
	s.detach(s.pods.get(int32(id)))
	p := s.pod(id)
	p.evicting, p.sent, p.Returning = 0, false, false
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
	// Until is in Unix nanoseconds, and not after Wake.
	Until int64
	// Asked is the generation of the snapshot in which the answer was found; 0 where that is not known.
	Asked uint64
	// Wake is when time alone may change the answer, Unix nanoseconds; Forever for never. It counts where Asked is known.
	Wake int64
	// Why is the answer, which only who asked understands. It is not written to.
	Why any
}

// Again is when whoever relies on the answer in a snapshot of this generation has to ask again, if nothing happens before: where
// nothing has changed since the answer was found, only when time may change it.
func (r RememberedAnswer) Again(generation uint64) int64 {
	if r.Asked == generation {
		return r.Wake
	}
	return r.Until
}

// RememberAnswer remembers the answer to a question, named in full. Its end is no change of the state and no timer of the Store's: who needs
// the answer then asks to be woken, see [RememberedAnswer.Again].
func (s *Store) RememberAnswer(question string, r RememberedAnswer) { s.answers[question] = r }

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
	since        int64
}

// Dwell, in nanoseconds: a fair share has moved when it has been one and the same other, by more than a tenth of the larger
// and more than slack, for that long: what comes and goes makes shares swing for moments, and that is no news.
const (
	Dwell = int64(60_000_000_000)
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
			if old.since != 0 {
				old.since = 0
				s.shares[name] = old
			}
		case old.since == 0 || moved(old.other, share):
			old.since, old.other = max(1, s.now), share.Clone()
			s.shares[name] = old
		case s.now-old.since >= Dwell:
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
func (s *Store) nextNote() int64 {
	next := Forever
	if !s.disturbed {
		return next
	}
	for _, n := range s.shares { // order: minimum
		if n.since != 0 {
			next = min(next, After(n.since, Dwell))
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

// Memory is what a Store knows beyond what objects say: promises, displacements, and what was displaced for whom. It is
// plain data.
type Memory struct {
	// Generation is the snapshot's, which tells how old the remembered answers are; see [RememberedAnswer].
	Generation uint64

	Holds   []Hold
	Gangs   map[Key]GangMemory
	Held    map[string]int64            // by pod UID, see [Pod]
	Moved   map[string]int64            // by queue name, see Queue.ShareMoved
	Answers map[string]RememberedAnswer // by question
	// Charged are the records of pods that hold room of which their objects do not say as much, by UID.
	Charged map[string]Charged
	// Returning are the UIDs of pods that were evicted and somebody makes anew, while they go.
	Returning map[string]struct{}
	// Gone is, by UID, what is known of the going of pods beyond what their objects say.
	Gone map[string]Gone
	// Frozen says until when pods of one gang may not be evicted for another.
	Frozen map[Frozen]int64
	// News is Snapshot.News.
	News int64
	// Served is Queue.Served by queue name.
	Served map[string]int64
}

// GangMemory is what is remembered of a gang; see [Gang].
type GangMemory struct {
	Displaced, Since int64
	Displacements    []Displacement
	// Started, Evicted and Stale are what its object will say later of LastStart, LastEviction and StaleSince.
	Started, Evicted int64
	Stale            Maybe
	// LastStart and LastEviction are the gang's own where they may differ from what objects say: a clock has been set back, or a
	// remnant was formed before its former gang started anew. 0 for what objects say, and Started and Evicted; but of a remnant, a
	// LastStart of 0 is that it never started.
	LastStart, LastEviction int64
}

// Gone is what a Store knows of a pod that goes: whether it sent the pod away itself, and by when it has to be gone by the
// Store's own clock, which may have been set back since its object said so; Unix nanoseconds, 0 for what the object says.
type Gone struct {
	Sent bool  `json:"sent,omitzero"`
	By   int64 `json:"by,omitzero"`
}

// Memory returns what this snapshot remembers: O(pods).
func (s *Snapshot) Memory() Memory {
	m := Memory{
		Generation: s.Generation, Holds: s.Holds, Frozen: s.frozen, Gangs: map[Key]GangMemory{}, Held: map[string]int64{}, Moved: map[string]int64{}, Answers: s.answers,
		Returning: map[string]struct{}{}, Charged: map[string]Charged{}, News: s.News, Served: map[string]int64{}, Gone: map[string]Gone{},
	}
	s.EachGang(func(g *Gang) {
		if g.Displaced != 0 || g.Since != 0 || g.started != 0 || g.evicted != 0 || g.stale.Set || g.formed {
			m.Gangs[g.Key] = GangMemory{
				Displaced: g.Displaced, Since: g.Since, Displacements: g.Displacements, Started: g.started, Evicted: g.evicted, Stale: g.stale,
				LastStart: g.LastStart, LastEviction: g.LastEviction,
			}
		}
	})
	s.EachPod(func(p *Pod) {
		if p.Held != 0 {
			m.Held[p.UID] = p.Held
		}
		if c := p.unsaid(s.Gang(p.Gang)); c != (Charged{}) {
			m.Charged[p.UID] = c
		}
		if p.Returning {
			m.Returning[p.UID] = struct{}{}
		}
		if p.sent || p.goneBy != p.DeletedAt {
			m.Gone[p.UID] = Gone{p.sent, p.goneBy}
		}
	})
	for _, id := range s.QueueOrder {
		q := s.Queue(id)
		if q.ShareMoved != 0 {
			m.Moved[q.Name] = q.ShareMoved
		}
		if q.Served != 0 {
			m.Served[q.Name] = q.Served
		}
	}
	return m
}

// Restore takes over what another Store remembered about the same objects.
func (s *Store) Restore(m Memory) {
	for _, h := range m.Holds {
		s.Hold(h)
	}
	for uid, c := range m.Charged { // order: each pod on its own
		if id, ok := s.podIDs[uid]; ok && !s.pods.get(int32(id)).recorded && s.pods.get(int32(id)).Phase.Holds() {
			s.detach(s.pods.get(int32(id)))
			p := s.pod(id)
			p.PodState.Charged = c
			s.attach(p)
		}
	}
	for key, gm := range m.Gangs { // order: each gang on its own
		if id, ok := s.gangIDs[key]; ok {
			g := s.gang(id)
			g.Displaced, g.Since, g.Displacements = gm.Displaced, gm.Since, gm.Displacements
			g.started, g.evicted, g.stale = gm.Started, gm.Evicted, gm.Stale
			if key.Remnant() {
				g.LastStart, g.formed = gm.LastStart, true
			} else {
				g.LastStart = cmp.Or(gm.LastStart, max(g.LastStart, g.started))
			}
			g.LastEviction = cmp.Or(gm.LastEviction, max(g.LastEviction, g.evicted))
			if g.stale.Set {
				g.StaleSince = g.stale.Value
			}
			s.setPartial(g)
			s.disturbed = s.disturbed || gm.Displaced != 0
		}
	}
	for uid, held := range m.Held { // order: each pod on its own
		if id, ok := s.podIDs[uid]; ok {
			s.pod(id).Held = held
		}
	}
	s.news = max(s.news, m.News)
	for uid := range m.Returning { // order: each pod on its own
		if id, ok := s.podIDs[uid]; ok {
			s.detach(s.pods.get(int32(id)))
			p := s.pod(id)
			p.Returning = true
			s.attach(p)
		}
	}
	for uid, gone := range m.Gone { // order: each pod on its own
		if id, ok := s.podIDs[uid]; ok {
			p := s.pod(id)
			p.sent, p.goneBy = gone.Sent, cmp.Or(gone.By, p.goneBy)
		}
	}
	for name, at := range m.Served { // order: each queue on its own
		s.served[name], s.dirty[name] = at, struct{}{}
	}
	for pair, until := range m.Frozen { // order: each on its own
		s.Freeze(pair.Taker, pair.Giver, until)
	}
	for name, at := range m.Moved { // order: each queue on its own
		if id, ok := s.queueIDs[name]; ok {
			s.queue(id).ShareMoved = at
		}
	}
	// Answers stay as old as they are.
	s.gen = max(s.gen+1, m.Generation)
	for q, r := range m.Answers { // order: each on its own
		if r.Asked > 0 {
			r.Asked += s.gen - m.Generation
		}
		s.RememberAnswer(q, r)
	}
}
