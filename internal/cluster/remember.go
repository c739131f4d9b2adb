package cluster

import (
	"cmp"
	"slices"
)

// Memory is what a Store knows beyond what objects say: promises, displacements, and what was displaced for whom. It is
// plain data, the same in a Store that goes on, in one that takes over (Restore), and in a file: the names are those of replay files, which
// say apart what is left out here. Times are. Lists are sorted.
type Memory struct {
	// Generation is the snapshot's, which tells how old the remembered answers are; see [RememberedAnswer].
	Generation uint64 `json:"-"`

	Holds   []HoldState                 `json:"holds,omitzero"`
	Gangs   []GangMemory                `json:"gangs,omitzero"`
	Held    map[string]Instant          `json:"held,omitzero"`  // by pod UID, see [Pod]
	Moved   map[string]Instant          `json:"moved,omitzero"` // by queue name, see Queue.ShareMoved
	Answers map[string]RememberedAnswer `json:"-"`              // by question
	// Charged are the records of pods that hold room of which their objects do not say as much, by UID.
	Charged map[string]Charged `json:"charged,omitzero"`
	// Returning are the UIDs of pods that were evicted and somebody makes anew, while they go.
	Returning []string `json:"returning,omitzero"`
	// Gone is, by UID, what is known of the going of pods beyond what their objects say.
	Gone map[string]Gone `json:"gone,omitzero"`
	// Frozen says until when pods of one gang may not be evicted for another.
	Frozen []Freeze `json:"frozen,omitzero"`
	// News is Snapshot.News.
	News Instant `json:"news,omitzero"`
	// Served is Queue.Served by queue name.
	Served map[string]Instant `json:"served,omitzero"`
	// Postponed says until when pods may not be placed, by UID.
	Postponed map[string]Instant `json:"-"`
}

// GangMemory is what is remembered of a gang.
type GangMemory struct {
	Gang Key `json:"gang"`
	GangHistory
	// LastStart and LastEviction are the gang's own where they may differ from what objects say: a clock has been set back, or a
	// remnant was formed before its former gang started anew. 0 for what objects say, and Started and Evicted; but of a remnant, a
	// LastStart of 0 is that it never started.
	LastStart, LastEviction Instant
}

// Gone is what a Store knows of a pod that goes: whether it sent the pod away itself, and by when it has to be gone by the
// Store's own clock, which may have been set back since its object said so; 0 for what the object says.
type Gone struct {
	Sent bool    `json:"sent,omitzero"`
	By   Instant `json:"by,omitzero"`
}

// Freeze is a frozen pair, and until when it is.
type Freeze struct {
	Frozen
	Until Instant `json:"until"`
}

// Gang returns what is remembered of a gang, the zero value for nothing.
func (m *Memory) Gang(k Key) GangMemory {
	if i, ok := slices.BinarySearchFunc(m.Gangs, k, func(g GangMemory, k Key) int { return g.Gang.compare(k) }); ok {
		return m.Gangs[i]
	}
	return GangMemory{}
}

// Memory returns what this snapshot remembers: O(pods).
func (s *Snapshot) Memory() Memory {
	m := s.recall()
	for i := range s.Holds {
		m.hold(s, &s.Holds[i])
	}
	s.EachGang(m.gang)
	s.EachPod(func(p *Pod) { m.pod(s, p) })
	for _, id := range s.QueueOrder {
		m.queue(s.Queue(id))
	}
	m.Answers = s.answers
	m.sort()
	return m
}

// recall is the part of Memory that is of no object, hold or question.
func (s *Snapshot) recall() Memory {
	m := Memory{
		Generation: s.Generation, Held: map[string]Instant{}, Moved: map[string]Instant{}, Answers: map[string]RememberedAnswer{}, Charged: map[string]Charged{},
		Gone: map[string]Gone{}, News: s.News, Served: map[string]Instant{}, Postponed: map[string]Instant{},
	}
	for pair, until := range s.frozen { // order: sorted below
		m.Frozen = append(m.Frozen, Freeze{pair, until})
	}
	slices.SortFunc(m.Frozen, func(a, b Freeze) int { return cmp.Or(a.Taker.compare(b.Taker), a.Giver.compare(b.Giver)) })
	return m
}

// sort sorts what objects added.
func (m *Memory) sort() {
	slices.SortFunc(m.Gangs, func(a, b GangMemory) int { return a.Gang.compare(b.Gang) })
	slices.Sort(m.Returning)
}

func (m *Memory) hold(s *Snapshot, h *Hold) {
	said := h.HoldState
	said.Requests, said.Charge = s.Dims.some(h.Requests), s.Dims.some(h.Charge)
	m.Holds = append(m.Holds, said)
}

func (m *Memory) gang(g *Gang) {
	if !g.empty() || g.formed {
		m.Gangs = append(m.Gangs, GangMemory{Gang: g.Key, GangHistory: g.GangHistory, LastStart: g.LastStart, LastEviction: g.LastEviction})
	}
}

func (m *Memory) pod(s *Snapshot, p *Pod) {
	if !p.Held.IsZero() {
		m.Held[p.UID] = p.Held
	}
	if c := p.unsaid(s.Gang(p.Gang)); c != (Charged{}) {
		m.Charged[p.UID] = c
	}
	if p.Returning {
		m.Returning = append(m.Returning, p.UID)
	}
	if p.sent || p.goneBy != p.DeletedAt {
		m.Gone[p.UID] = Gone{p.sent, p.goneBy}
	}
	if p.NotBefore.After(s.Now) {
		m.Postponed[p.UID] = p.NotBefore
	}
}

func (m *Memory) queue(q *Queue) {
	if !q.ShareMoved.IsZero() {
		m.Moved[q.Name] = q.ShareMoved
	}
	if !q.Served.IsZero() {
		m.Served[q.Name] = q.Served
	}
}

// Restore takes over what another Store remembered about the same objects.
func (s *Store) Restore(m Memory) {
	for uid, until := range m.Postponed { // order: each pod on its own
		s.Postpone(uid, until)
	}
	for _, h := range m.Holds {
		s.Hold(s.promise(h))
	}
	for uid, c := range m.Charged { // order: each pod on its own
		if id, ok := s.podIDs[uid]; ok && !s.pods.get(int32(id)).recorded && s.pods.get(int32(id)).Phase.Holds() {
			s.detach(s.pods.get(int32(id)))
			p := s.pod(id)
			p.PodState.Charged = c
			s.attach(p)
		}
	}
	for i := range m.Gangs {
		s.restoreGang(&m.Gangs[i])
	}
	for uid, held := range m.Held { // order: each pod on its own
		if id, ok := s.podIDs[uid]; ok {
			s.pod(id).Held = held
		}
	}
	s.news = Latest(s.news, m.News)
	for _, uid := range m.Returning {
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
	for _, f := range m.Frozen {
		s.Freeze(f.Taker, f.Giver, f.Until)
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

// promise is a hold over the Store's dimensions.
func (s *Store) promise(h HoldState) Hold {
	requests, charge := s.asked(h.Requests), s.asked(h.Charge)
	h.Requests, h.Charge = nil, nil
	return Hold{HoldState: h, Requests: requests, Charge: charge}
}

func (s *Store) restoreGang(m *GangMemory) {
	id, ok := s.gangIDs[m.Gang]
	if !ok {
		return
	}
	g := s.gang(id)
	g.GangHistory = m.GangHistory
	if g.Key.Remnant() {
		g.LastStart, g.formed = m.LastStart, true
	} else {
		g.LastStart = cmp.Or(m.LastStart, Latest(g.LastStart, g.Started))
	}
	g.LastEviction = cmp.Or(m.LastEviction, Latest(g.LastEviction, g.Evicted))
	if g.Stale.Set {
		g.StaleSince = g.Stale.Value
	}
	s.setPartial(g)
	s.disturbed = s.disturbed || !g.Displaced.IsZero()
}
