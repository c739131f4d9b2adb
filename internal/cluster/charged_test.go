package cluster

import "testing"

// TestChargedUntilGone: whatever becomes of its labels, its gang and its queue label, what a pod of ours holds is charged to
// the queue it was bound for, by a gang that can give it.
func TestChargedUntilGone(t *testing.T) {
	t.Parallel()
	key := Key{Face: "kai", Namespace: "a", Name: "g"}
	record := Charged{Queue: "q", Gang: key, Set: "w"}
	sets := []Set{{Parent: None, Children: []int32{1}, Min: 1}, {Name: "w", Parent: 0, Leaf: true, Min: 1}}
	pod := PodState{
		UID: "p", Name: "p", Namespace: "a", Gang: key, SetName: "w", Ours: true, Phase: Running, NodeName: "n",
		Requests: []Quantity{{"gpu", 2000}}, Charged: record,
	}
	gang := GangState{Key: key, UID: "g", Queue: "q", Priority: 50, Sets: sets}
	for _, recorded := range []bool{true, false} {
		for _, c := range []struct {
			name   string
			happen func(s *Store, pod PodState)
			gang   string
			queue  string
			fixed  bool // non-preemptible still
			stray  bool
		}{
			{"nothing", func(*Store, PodState) {}, "a/g", "q", true, false},
			{"it says that it is of another gang", func(s *Store, p PodState) { p.Gang.Name = "nothing"; s.Apply(p) }, "a/g", "q", true, false},
			{"it says that it is of no gang", func(s *Store, p PodState) { p.Gang = Key{}; s.Apply(p) }, "a/g", "q", true, false},
			{"it says that it is of a set that does not exist", func(s *Store, p PodState) { p.SetName = "none"; s.Apply(p) }, "a/g", "q", true, false},
			{"its set goes", func(s *Store, _ PodState) { g := gang; g.Sets = FlatTree(1); s.Apply(g) }, "a/g", "q", true, true},
			{"its gang goes", func(s *Store, _ PodState) { s.Apply(GangGone{Key: key}) }, "a/g@q", "q", false, false},
			{"its gang moves", func(s *Store, _ PodState) { g := gang; g.Queue = "other"; s.Apply(g) }, "a/g@q", "q", true, false},
			{"its gang moves and comes back", func(s *Store, _ PodState) { g := gang; g.Queue = "other"; s.Apply(g, gang) }, "a/g", "q", true, false},
			{"its gang goes and comes back", func(s *Store, _ PodState) { s.Apply(GangGone{Key: key}, gang) }, "a/g", "q", true, false},
			{"it says so and its gang goes", func(s *Store, p PodState) { p.Gang = Key{}; s.Apply(p, GangGone{Key: key}) }, "a/g@q", "q", false, false},
			{"its node goes", func(s *Store, _ PodState) { s.Apply(NodeGone{Name: "n"}) }, "a/g", "q", true, false},
			{"its record is another", func(s *Store, p PodState) {
				if recorded {
					p.Charged.Queue = "other"
					s.Apply(p)
				}
			}, "a/g", "q", true, false},
		} {
			s := NewStore(Options{DefaultQueue: "default"})
			p := pod
			if !recorded {
				p.Charged = Charged{}
			}
			s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 8000}, {"pods", 10}}}, QueueState{Name: "q"}, QueueState{Name: "other"}, QueueState{Name: "default"}, gang, p)
			s.Snapshot(Instant{})
			c.happen(s, p)
			for i, snap := range []*Snapshot{s.Snapshot(UnixNano(1)), Fork(s.Snapshot(UnixNano(1)), Options{DefaultQueue: "default"}).Snapshot(UnixNano(1))} {
				is := snap.Pod(0)
				if is.Gang == None {
					t.Errorf("recorded %v, %s, store %d: it is in no gang", recorded, c.name, i)
					continue
				}
				g := snap.Gang(is.Gang)
				if g.Key.String() != c.gang || g.Queue != c.queue || g.Preemptible == c.fixed || (is.Set == None) != c.stray || g.ActivePods != 1 || (g.StrayPods == 1) != c.stray {
					t.Errorf("recorded %v, %s, store %d: in %s of queue %s, set %d, %+v", recorded, c.name, i, g.Key, g.Queue, is.Set, g)
				}
				if got := snap.QueueByName(c.queue).Allocated.At(GPU); got != 2000 {
					t.Errorf("recorded %v, %s, store %d: %s is charged %d", recorded, c.name, i, c.queue, got)
				}
			}
			p.Phase = Releasing
			s.Apply(p)
			if snap := s.Snapshot(UnixNano(2)); snap.QueueByName(c.queue).Allocated.At(GPU) != 0 {
				t.Errorf("recorded %v, %s: charged when it leaves", recorded, c.name)
			}
			s.Apply(PodGone{UID: "p"})
			s.Snapshot(UnixNano(3)).EachGang(func(g *Gang) {
				if g.Key.Remnant() {
					t.Errorf("recorded %v, %s: %s is left when it is gone", recorded, c.name, g.Key)
				}
			})
		}
	}
}

// TestNobodysPod: a pod of ours that runs and was never of a gang is charged to the default queue, until its gang is known.
func TestNobodysPod(t *testing.T) {
	t.Parallel()
	key := Key{Face: "kai", Namespace: "a", Name: "g"}
	s := NewStore(Options{DefaultQueue: "default"})
	s.Apply(NodeState{Name: "n"}, QueueState{Name: "q"}, QueueState{Name: "default"},
		PodState{UID: "p", Namespace: "a", Gang: key, Ours: true, Phase: Running, NodeName: "n", Requests: []Quantity{{"gpu", 2000}}},
		PodState{UID: "x", Namespace: "a", Ours: true, Phase: Running, NodeName: "n", Requests: []Quantity{{"gpu", 1000}}},
		PodState{UID: "y", Namespace: "a", Phase: Running, NodeName: "n", Requests: []Quantity{{"gpu", 1000}}})
	charged := func(queue string) int64 { return s.Snapshot(UnixNano(1)).QueueByName(queue).Allocated.At(GPU) }
	if got := charged("default"); got != 3000 {
		t.Errorf("without a gang: %d", got)
	}
	s.Apply(GangState{Key: key, UID: "g", Queue: "q"})
	if d, q := charged("default"), charged("q"); d != 1000 || q != 2000 {
		t.Errorf("when the gang is known: %d and %d", d, q)
	}
}

// TestRemnantsStart: what a gang left behind in a queue is protected by the start that it had there, and by no later one: neither
// an edit, nor a start elsewhere, nor a PodGroup deleted and made anew, which are a tenant's to write, protects it again.
func TestRemnantsStart(t *testing.T) {
	t.Parallel()
	key := Key{Face: "kai", Namespace: "a", Name: "g"}
	gang := func(uid, queue string, start Instant, priority int32) GangState {
		return GangState{Key: key, UID: uid, Queue: queue, LastStart: start, Priority: priority, Sets: FlatTree(1)}
	}
	moved := gang("1", "other", UnixNano(100), 50)
	for _, c := range []struct {
		name   string
		late   bool // its gang is not known when it runs
		events []Event
		start  Instant
	}{
		{"it moves", false, []Event{moved}, UnixNano(100)},
		{"it moves and is edited", false, []Event{moved, gang("1", "other", UnixNano(100), 60)}, UnixNano(100)},
		{"it moves and starts there", false, []Event{moved, gang("1", "other", UnixNano(200), 50), gang("1", "other", UnixNano(200), 60)}, UnixNano(100)},
		{"it is gone", false, []Event{GangGone{Key: key}}, Instant{}},
		{"it moves, is gone, and is made anew", false, []Event{moved, GangGone{Key: key}, gang("2", "other", UnixNano(200), 50)}, Instant{}},
		{"it moves, and is another", false, []Event{moved, gang("2", "other", UnixNano(200), 50)}, UnixNano(100)},
		{"it moves, is another, and that is edited", false, []Event{moved, gang("2", "other", UnixNano(200), 50), gang("2", "other", UnixNano(200), 60)}, UnixNano(100)},
		{"it is gone, and is made anew twice", false, []Event{GangGone{Key: key}, gang("2", "other", UnixNano(200), 50), GangGone{Key: key}, gang("3", "other", UnixNano(300), 50)}, Instant{}},
		{"it is known after its pod", true, []Event{moved}, UnixNano(100)},
	} {
		for _, rebuilt := range []bool{false, true} { // after each event, as by a restart
			s := NewStore(Options{DefaultQueue: "default"})
			s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 8000}, {"pods", 10}}}, QueueState{Name: "q"}, QueueState{Name: "other"})
			if !c.late {
				s.Apply(gang("1", "q", UnixNano(100), 50))
			}
			s.Apply(PodState{
				UID: "p", Name: "p", Namespace: "a", Gang: key, Ours: true, Phase: Running, NodeName: "n", Requests: []Quantity{{"gpu", 2000}},
				Charged: Charged{Queue: "q", Gang: key},
			})
			s.Snapshot(UnixNano(150))
			for i, e := range c.events {
				s.Apply(e)
				if snap := s.Snapshot(UnixNano(160 + int64(i))); rebuilt {
					s = Fork(snap, Options{DefaultQueue: "default"})
				}
			}
			snap := s.Snapshot(UnixNano(400))
			if g := snap.Gang(snap.Pod(0).Gang); !g.Key.Remnant() || g.Queue != "q" || g.LastStart != c.start {
				t.Errorf("%s, rebuilt %v: in %s of %s, which started at %d, not at %d", c.name, rebuilt, g.Key, g.Queue, g.LastStart.UnixNano(), c.start.UnixNano())
			}
		}
	}
}
