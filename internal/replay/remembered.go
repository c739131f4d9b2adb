package replay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// remembered is a cluster.Memory that is put together part by part. Nothing that it returns is written to later.
type remembered struct {
	rest      cluster.Memory // what is told whole: Frozen and News
	gangs     map[cluster.Key]cluster.GangMemory
	pods      map[string]podMemory // by UID, those of which something is remembered
	queues    map[string]queueMemory
	holds     map[string]cluster.HoldState
	answers   map[string]cluster.RememberedAnswer
	generated uint64 // the generation that answers are as old as

	// What was told anew since it was condensed last, beside the objects that changed; nil maps while that is not counted.
	again struct {
		gangs                  map[cluster.Key]bool
		pods, holds, questions map[string]bool
		generated              uint64
		whole                  bool
	}
}

// podMemory is what is remembered of a pod, queueMemory of a queue.
type podMemory struct {
	held, postponed cluster.Instant
	charged         cluster.Charged
	gone            cluster.Maybe[cluster.Gone]
	returning       bool
}

type queueMemory struct{ moved, served cluster.Instant }

// set takes a whole memory in.
func (r *remembered) set(m *cluster.Memory) {
	again := r.again
	*r = remembered{
		gangs: map[cluster.Key]cluster.GangMemory{}, pods: map[string]podMemory{}, queues: map[string]queueMemory{},
		holds: map[string]cluster.HoldState{}, answers: map[string]cluster.RememberedAnswer{}, generated: m.Generation,
	}
	r.learn(m)
	r.again = again
	r.again.whole = true
}

// add takes a part in, of the objects of an entry and of those that it names again.
func (r *remembered) add(m *cluster.Memory, events []cluster.Event, gone *gone, again *cluster.Again) {
	for _, event := range events {
		switch e := event.(type) {
		case cluster.GangState:
			delete(r.gangs, e.Key)
		case cluster.PodState:
			delete(r.pods, e.UID)
		case cluster.QueueState:
			delete(r.queues, e.Name)
		}
	}
	if gone != nil {
		drop(r.gangs, nil, gone.Gangs)
		drop(r.pods, nil, gone.Pods)
		drop(r.queues, nil, gone.Queues)
	}
	drop(r.gangs, r.again.gangs, again.Gangs)
	drop(r.pods, r.again.pods, again.Pods)
	drop(r.holds, r.again.holds, again.Holds)
	drop(r.answers, r.again.questions, again.Questions)
	r.generated += min(again.Changes, longAgo)
	if late := m.Generation; late > r.generated { // no scheduler says so: an answer that is older than all that there was
		for question, a := range r.answers { // order: each on its own
			if a.Asked > 0 {
				a.Asked += late - r.generated
				r.answers[question] = a
			}
		}
		r.generated = late
	}
	r.learn(m)
}

// drop forgets what has these names, and notes that if it is counted.
func drop[K comparable, V any](from map[K]V, noted map[K]bool, names []K) {
	for _, n := range names {
		delete(from, n)
		if noted != nil {
			noted[n] = true
		}
	}
}

// note adds what a memory says of each of several objects to what is remembered of it: with makes the one of the other.
func note[M, V any](all map[string]M, said map[string]V, with func(M, V) M) {
	for name, v := range said { // order: each object on its own
		all[name] = with(all[name], v)
	}
}

// learn adds what a memory says.
func (r *remembered) learn(m *cluster.Memory) {
	r.rest = cluster.Memory{Frozen: m.Frozen, News: m.News}
	for i := range m.Gangs {
		r.gangs[m.Gangs[i].Gang] = m.Gangs[i]
	}
	note(r.pods, m.Held, func(p podMemory, at cluster.Instant) podMemory { p.held = at; return p })
	note(r.pods, m.Postponed, func(p podMemory, at cluster.Instant) podMemory { p.postponed = at; return p })
	note(r.pods, m.Charged, func(p podMemory, c cluster.Charged) podMemory { p.charged = c; return p })
	note(r.pods, m.Gone, func(p podMemory, g cluster.Gone) podMemory {
		p.gone = cluster.Maybe[cluster.Gone]{Set: true, Value: g}
		return p
	})
	for _, uid := range m.Returning {
		p := r.pods[uid]
		p.returning = true
		r.pods[uid] = p
	}
	note(r.queues, m.Moved, func(q queueMemory, at cluster.Instant) queueMemory { q.moved = at; return q })
	note(r.queues, m.Served, func(q queueMemory, at cluster.Instant) queueMemory { q.served = at; return q })
	for i := range m.Holds {
		id := m.Holds[i].ID()
		r.holds[id] = m.Holds[i]
		if r.again.holds != nil {
			r.again.holds[id] = true
		}
	}
	for question, a := range m.Answers { // order: into a map
		if a.Asked > 0 {
			a.Asked += r.generated - m.Generation
		}
		r.answers[question] = a
		if r.again.questions != nil {
			r.again.questions[question] = true
		}
	}
}

// memory is the whole of it, at a moment. O(objects).
func (r *remembered) memory(now cluster.Instant) cluster.Memory {
	m := r.blank()
	for k := range r.gangs { // order: sorted below
		r.gang(&m, k)
	}
	for uid := range r.pods { // order: likewise
		r.pod(&m, uid, now)
	}
	for name := range r.queues { // order: into maps
		r.queue(&m, name)
	}
	for id := range r.holds { // order: sorted below
		m.Holds = append(m.Holds, r.holds[id])
	}
	m.Answers = maps.Clone(r.answers)
	sortMemory(&m)
	return m
}

// blank is a memory that says only what is told whole.
func (r *remembered) blank() cluster.Memory {
	m := r.rest
	m.Generation = r.generated
	m.Held, m.Postponed, m.Moved, m.Served = map[string]cluster.Instant{}, map[string]cluster.Instant{}, map[string]cluster.Instant{}, map[string]cluster.Instant{}
	m.Charged, m.Gone, m.Answers = map[string]cluster.Charged{}, map[string]cluster.Gone{}, map[string]cluster.RememberedAnswer{}
	return m
}

func sortMemory(m *cluster.Memory) {
	slices.SortFunc(m.Gangs, func(a, b cluster.GangMemory) int { return compareKeys(a.Gang, b.Gang) })
	slices.Sort(m.Returning)
	slices.SortFunc(m.Holds, func(a, b cluster.HoldState) int {
		return cmp.Or(compareKeys(a.Gang, b.Gang), cmp.Compare(a.ID(), b.ID()))
	})
}

func (r *remembered) gang(m *cluster.Memory, k cluster.Key) {
	if g, ok := r.gangs[k]; ok {
		m.Gangs = append(m.Gangs, g)
	}
}

func (r *remembered) pod(m *cluster.Memory, uid string, now cluster.Instant) {
	p := r.pods[uid]
	if !p.held.IsZero() {
		m.Held[uid] = p.held
	}
	if p.postponed.After(now) {
		m.Postponed[uid] = p.postponed
	}
	if p.charged != (cluster.Charged{}) {
		m.Charged[uid] = p.charged
	}
	if p.gone.Set {
		m.Gone[uid] = p.gone.Value
	}
	if p.returning {
		m.Returning = append(m.Returning, uid)
	}
}

func (r *remembered) queue(m *cluster.Memory, name string) {
	q := r.queues[name]
	if !q.moved.IsZero() {
		m.Moved[name] = q.moved
	}
	if !q.served.IsZero() {
		m.Served[name] = q.served
	}
}

// condensed begins to count what is told anew, or no longer counts it.
func (r *remembered) condensed(yes bool) {
	a := &r.again
	a.gangs, a.pods, a.holds, a.questions, a.generated, a.whole = nil, nil, nil, nil, r.generated, false
	if yes {
		a.gangs, a.pods, a.holds, a.questions = map[cluster.Key]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	}
}

// partOfMemory is that of what was touched, or told anew, since it was condensed last; of nothing else if again is not nil.
func (f *Follower) partOfMemory() (m cluster.Memory, again *cluster.Again) {
	r := &f.memory
	if r.again.whole {
		return r.memory(f.now), nil
	}
	m, again = r.blank(), &cluster.Again{Changes: r.generated - r.again.generated}
	for k := range f.gangs.touched { // order: sorted below
		r.gang(&m, k)
	}
	for k := range r.again.gangs { // order: likewise
		if !f.gangs.touched[k] {
			r.gang(&m, k)
			again.Gangs = append(again.Gangs, k)
		}
	}
	for uid := range f.pods.touched { // order: likewise
		r.pod(&m, uid, f.now)
	}
	for uid := range r.again.pods { // order: likewise
		if !f.pods.touched[uid] {
			r.pod(&m, uid, f.now)
			again.Pods = append(again.Pods, uid)
		}
	}
	for name := range f.queues.touched { // order: into maps
		r.queue(&m, name)
	}
	for id := range r.again.holds { // order: sorted below
		if h, ok := r.holds[id]; ok {
			m.Holds = append(m.Holds, h)
		} else {
			again.Holds = append(again.Holds, id)
		}
	}
	for question := range r.again.questions { // order: into a map, or sorted below
		if a, ok := r.answers[question]; ok {
			m.Answers[question] = a
		} else {
			again.Questions = append(again.Questions, question)
		}
	}
	sortMemory(&m)
	slices.SortFunc(again.Gangs, compareKeys)
	slices.Sort(again.Pods)
	slices.Sort(again.Holds)
	slices.Sort(again.Questions)
	return m, again
}
