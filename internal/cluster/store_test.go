package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// fixture draws a stream of events over few names, so that objects meet, part and come back in every order.
type fixture struct {
	nodes, pods, gangs, queues []string
}

func (w fixture) event(t *rapid.T) Event {
	pick := func(names []string, label string) string { return rapid.SampledFrom(names).Draw(t, label) }
	amounts := func() []Quantity {
		return []Quantity{
			{"cpu", rapid.Int64Range(0, 4).Draw(t, "cpu")},
			{"gpu", 1000 * rapid.Int64Range(0, 3).Draw(t, "gpu")},
			{"pods", 1},
			{pick([]string{"x/a", "x/b"}, "dim"), rapid.Int64Range(0, 9).Draw(t, "ext")},
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return NodeState{
			Name: pick(w.nodes, "node"), Problem: pick([]string{"", "NotReady"}, "problem"), Allocatable: amounts(),
			GPUMemoryMiB: MiB(40 * rapid.Int64Range(0, 20).Draw(t, "memory")),
		}
	case 1:
		return NodeGone{Name: pick(w.nodes, "node")}
	case 2:
		return PodGone{UID: pick(w.pods, "pod")}
	case 3:
		return GangState{
			Key: Key{"kai", "ns", pick(w.gangs, "gang")}, Queue: pick(w.queues, "queue"),
			Preemptible: rapid.Bool().Draw(t, "preemptible"), Sets: FlatTree(int32(rapid.IntRange(0, 3).Draw(t, "min"))),
		}
	case 4:
		return GangGone{Key: Key{"kai", "ns", pick(w.gangs, "gang")}}
	case 5:
		return QueueState{Name: pick(w.queues, "queue"), Quota: amounts(), Limit: []Quantity{{"gpu", 5}}}
	case 6:
		return QueueGone{Name: pick(w.queues, "queue")}
	default:
		st := PodState{
			UID: pick(w.pods, "pod"), Namespace: "ns", Requests: amounts(), Spec: &ClassSpec{}, Ours: rapid.Bool().Draw(t, "ours"),
			Phase: Phase(rapid.IntRange(0, int(Unknown)).Draw(t, "phase")), SetName: pick([]string{"", "other"}, "set"),
		}
		st.Name = st.UID
		if st.Phase.Holds() || rapid.Bool().Draw(t, "late") {
			st.NodeName = pick(w.nodes, "node")
		}
		if rapid.Bool().Draw(t, "member") {
			st.Gang = Key{"kai", "ns", pick(w.gangs, "gang")}
		}
		st.Charged = recordOf(st.UID)
		switch rapid.IntRange(0, 3).Draw(t, "share") {
		case 0:
			st.Spec.Share = Share{Devices: int32(rapid.IntRange(1, 2).Draw(t, "devices")), Portion: 100_000 * Portion(rapid.Int64Range(1, 9).Draw(t, "portion"))}
		case 1:
			st.Spec.Share = Share{Devices: int32(rapid.IntRange(1, 2).Draw(t, "devices")), MemoryMiB: MiB(rapid.Int64Range(1, 500).Draw(t, "share of memory"))}
		case 2:
			st.Utility = !st.Ours
		}
		if st.Utility || !st.Spec.Share.None() {
			st.Charge = amounts()
			for range rapid.IntRange(0, 2).Draw(t, "groups") {
				st.Groups = append(st.Groups, pick([]string{"a", "b"}, "group"))
			}
		}
		if st.Phase == Releasing {
			st.DeletedAt = UnixNano(rapid.Int64Range(1, 50).Draw(t, "deleted"))
		}
		return st
	}
}

// recordOf is what is written on a pod when it is bound, if it is; some pods are bound without a record.
func recordOf(uid string) Charged {
	switch uid {
	case "p1":
		return Charged{Queue: "q1", Gang: Key{"kai", "ns", "g1"}}
	case "p2":
		return Charged{Queue: "q2", Gang: Key{"kai", "ns", "g1"}, Set: "other"}
	case "p3":
		return Charged{Queue: "q3", Gang: Key{"kai", "ns", "g3"}}
	}
	return Charged{}
}

var small = fixture{
	nodes: []string{"n1", "n2", "n3"}, pods: []string{"p1", "p2", "p3", "p4", "p5", "p6"},
	gangs: []string{"g1", "g2"}, queues: []string{"q1", "q2"},
}

// picture says everything a snapshot means, in names instead of IDs and dimension indices.
func picture(s *Snapshot) map[string]string {
	out := map[string]string{}
	res := func(r Resources) string { return fmt.Sprint(named(s.Dims, r)) }
	podNames := func(ids []PodID) map[string]bool {
		m := map[string]bool{}
		for _, id := range ids {
			m[s.Pod(id).UID] = true
		}
		return m
	}
	for _, id := range s.NodeOrder {
		n := s.Node(id)
		out["node "+n.Name] = fmt.Sprint(n.Problem, res(n.Allocatable), " used", res(n.Used), " rel", res(n.Releasing), " foreign", res(n.Foreign), podNames(n.Pods), n.Devices)
	}
	for _, id := range s.QueueOrder {
		q := s.Queue(id)
		out["queue "+q.Name] = fmt.Sprint(res(q.Quota), res(q.Allocated), res(q.AllocatedNonPreemptible), res(q.Requested), res(q.Leaving), res(q.LeavingNonPreemptible), res(q.Stuck), res(q.StuckNonPreemptible))
	}
	pending := map[GangID]bool{}
	for g := range s.PendingGangs() {
		pending[g.ID] = true
	}
	s.EachGang(func(g *Gang) {
		out["gang "+g.Key.String()] = fmt.Sprint(g.Queue, g.Preemptible, g.Sets, g.PendingPods, g.GatedPods, g.ActivePods, g.StrayPods, podNames(g.Pods), pending[g.ID])
	})
	s.EachPod(func(p *Pod) {
		node, gang := "-", "-"
		if p.Node != None {
			node = s.Node(p.Node).Name
		}
		if p.Gang != None {
			gang = s.Gang(p.Gang).Key.String()
		}
		out["pod "+p.UID] = fmt.Sprint(p.Phase, node, gang, p.Set, res(p.Class.Requests), res(p.Charge), p.Groups)
	})
	return out
}

func named(d Dims, r Resources) map[string]int64 {
	m := map[string]int64{}
	for i, x := range r {
		if x != 0 {
			m[d.Name(i)] = x
		}
	}
	return m
}

// Whatever the history, the store is what a store rebuilt from the final objects would be, in another order, once that
// one is told what no object says any more: to whom the pods without a record were charged when they were first seen.
func TestStoreEqualsRebuilt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := Options{StuckAfter: 10, DefaultQueue: rapid.SampledFrom([]string{"", "q2"}).Draw(t, "default queue")}
		s := NewStore(o)
		last := map[string]Event{}
		charged := map[string]Charged{} // of pods without a record
		notice := func() {
			for _, e := range last { // order: each pod on its own
				p, ok := e.(PodState)
				if !ok || p.Charged.Queue != "" {
					continue
				}
				if !p.Ours || !p.Phase.Holds() {
					delete(charged, p.UID)
				} else if g, known := last["gang "+p.Gang.Name].(GangState); known && charged[p.UID].Queue == "" {
					charged[p.UID] = Charged{Queue: g.Queue, Gang: p.Gang, Set: p.SetName, Fixed: !g.Preemptible}
				}
			}
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "events") {
			e := small.event(t)
			s.Apply(e)
			switch e := e.(type) {
			case NodeState:
				last["node "+e.Name] = e
			case NodeGone:
				delete(last, "node "+e.Name)
			case PodState:
				last["pod "+e.UID] = e
			case PodGone:
				delete(last, "pod "+e.UID)
				delete(charged, e.UID)
			case GangState:
				last["gang "+e.Key.Name] = e
			case GangGone:
				delete(last, "gang "+e.Key.Name)
			case QueueState:
				last["queue "+e.Name] = e
			case QueueGone:
				delete(last, "queue "+e.Name)
			}
			notice()
			if rapid.IntRange(0, 3).Draw(t, "snap") == 0 {
				s.Snapshot(UnixNano(int64(i)))
			}
		}
		fresh := NewStore(o)
		for _, e := range last { // order: random on purpose
			fresh.Apply(e)
		}
		fresh.Restore(Memory{Charged: charged})
		if d := cmp.Diff(picture(fresh.Snapshot(UnixNano(100))), picture(s.Snapshot(UnixNano(100)))); d != "" {
			t.Fatalf("rebuilt store (-) and incremental store (+) differ:\n%s", d)
		}
		if d := cmp.Diff(picture(s.Snapshot(UnixNano(100))), picture(Fork(s.Snapshot(UnixNano(100)), o).Snapshot(UnixNano(100)))); d != "" {
			t.Fatalf("snapshot (-) and its fork (+) differ:\n%s", d)
		}
	})
}

// A snapshot that somebody holds never changes, whatever happens to the store.
func TestSnapshotIsImmutable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore(Options{})
		for range rapid.IntRange(0, 20).Draw(t, "before") {
			s.Apply(small.event(t))
		}
		held := s.Snapshot(UnixNano(1))
		want := picture(held)
		for range rapid.IntRange(1, 20).Draw(t, "after") {
			s.Apply(small.event(t))
			if rapid.Bool().Draw(t, "assume") {
				s.Assume(rapid.SampledFrom(small.pods).Draw(t, "pod"), "n1", nil, UnixNano(50))
			}
		}
		s.Snapshot(UnixNano(60))
		if d := cmp.Diff(want, picture(held)); d != "" {
			t.Fatalf("a held snapshot changed:\n%s", d)
		}
	})
}

// Assume and Forget are inverse; a confirmation keeps what was assumed; expiry is a Forget.
func TestAssume(t *testing.T) {
	s := NewStore(Options{})
	pod := PodState{UID: "p", Namespace: "ns", Name: "p", Ours: true, Requests: []Quantity{{"gpu", 1000}, {"pods", 1}}, Gang: Key{"kai", "ns", "g"}}
	s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 2000}, {"pods", 10}}}, QueueState{Name: "q"},
		GangState{Key: Key{"kai", "ns", "g"}, Queue: "q"}, pod)
	before := picture(s.Snapshot(Instant{}))
	if !s.Assume("p", "n", nil, UnixNano(100)) {
		t.Fatal("a pending pod could not be assumed")
	}
	if s.Assume("p", "n", nil, UnixNano(100)) {
		t.Fatal("a pod was assumed twice")
	}
	if got := s.Snapshot(UnixNano(1)).NodeByName("n").Idle().At(GPU); got != 1000 {
		t.Fatalf("idle GPU after assume: %d, want 1000", got)
	}
	s.Apply(pod) // an unrelated echo from the API server does not confirm
	if got := s.NextTimer(); got != UnixNano(100) {
		t.Fatalf("next timer %d, want the expiry 100", got.UnixNano())
	}
	if d := cmp.Diff(before, picture(s.Snapshot(UnixNano(100)))); d != "" {
		t.Fatalf("expiry did not restore the state:\n%s", d)
	}
	s.Assume("p", "n", nil, UnixNano(200))
	confirmed := pod
	confirmed.Phase, confirmed.NodeName = Binding, "n"
	s.Apply(confirmed)
	if got := s.NextTimer(); got != Forever {
		t.Fatalf("a confirmed assumption still has a timer: %d", got.UnixNano())
	}
	if s.Forget("p") {
		t.Fatal("a confirmed assumption was forgotten")
	}
}

// A store that receives what it already knows does not move its generation, so the loop can sleep.
func TestEchoIsNoChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := NewStore(Options{})
		e := small.event(t)
		s.Apply(e)
		if g := s.Generation(); s.Apply(e) || s.Generation() != g {
			t.Fatalf("the same event twice counted as a change: %#v", e)
		}
	})
}

func BenchmarkSnapshotAfterOnePod(b *testing.B) {
	s := NewStore(Options{})
	for i := range 5000 {
		s.Apply(NodeState{Name: fmt.Sprintf("n%d", i), Allocatable: []Quantity{{"gpu", 8000}, {"pods", 110}}})
	}
	s.Apply(QueueState{Name: "q"})
	pods := make([]PodState, 40000)
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		s.Apply(GangState{Key: Key{"kai", "ns", name}, Queue: "q"})
		pods[i] = PodState{
			UID: name, Namespace: "ns", Name: name, Ours: true, Phase: Running, NodeName: fmt.Sprintf("n%d", i/8),
			Requests: []Quantity{{"gpu", 1000}, {"pods", 1}}, Gang: Key{"kai", "ns", name},
		}
		s.Apply(pods[i])
	}
	s.Snapshot(Instant{})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p := pods[i%len(pods)]
		p.Phase = Succeeded
		s.Apply(p)
		s.Snapshot(UnixNano(int64(i)))
		s.Apply(pods[i%len(pods)])
	}
}

// What is deleted with a grace of a year is no room that comes back, until it is about to; what we evict is, whatever its grace.
func TestFarDeletion(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{StuckAfter: 120e9})
	pod := func(uid string, phase Phase, deletedAt Instant) PodState {
		return PodState{
			UID: uid, Namespace: "a", Name: uid, Phase: phase, NodeName: "n", Ours: true, Gang: Key{Namespace: "a", Name: "g"}, DeletedAt: deletedAt,
			Requests: []Quantity{{"gpu", 1000}},
		}
	}
	year := UnixNano(365 * 24 * 3600e9)
	s.Apply(NodeState{Name: "n", Allocatable: []Quantity{{"gpu", 8000}}}, QueueState{Name: "q"}, GangState{Key: Key{Namespace: "a", Name: "g"}, Queue: "q"},
		pod("theirs", Running, Instant{}), pod("ours", Running, Instant{}), pod("soon", Running, Instant{}))
	s.Snapshot(UnixNano(1e9))
	s.AssumeEvicted("ours", Key{}, UnixNano(30e9))
	s.Apply(pod("theirs", Releasing, year), pod("ours", Releasing, year), pod("soon", Releasing, UnixNano(60e9)))
	check := func(now Instant, theirs, ours, soon Phase, stuck int64) {
		t.Helper()
		snap := s.Snapshot(now)
		got := map[string]Phase{}
		snap.EachPod(func(p *Pod) { got[p.UID] = p.Phase })
		if got["theirs"] != theirs || got["ours"] != ours || got["soon"] != soon {
			t.Errorf("at %d: %v", now.UnixNano(), got)
		}
		q := snap.QueueByName("q")
		if q.Allocated.At(GPU) != 0 || q.Leaving.At(GPU) != 3000 || q.Stuck.At(GPU) != stuck || q.LeavingNonPreemptible.At(GPU) != 3000 {
			t.Errorf("at %d: allocated %v, leaving %v, stuck %v", now.UnixNano(), q.Allocated, q.Leaving, q.Stuck)
		}
	}
	check(UnixNano(2e9), StuckReleasing, Releasing, Releasing, 1000)
	if next := s.NextTimer(); next != UnixNano(180e9+1) {
		t.Errorf("next timer %d", next.UnixNano())
	}
	check(UnixNano(181e9), StuckReleasing, Releasing, StuckReleasing, 2000)
	if next := s.NextTimer(); next != year.Add(-FarAhead) {
		t.Errorf("next timer %d", next.UnixNano())
	}
	check(year.Add(-FarAhead), Releasing, Releasing, StuckReleasing, 1000)
	check(year.Add(121e9), StuckReleasing, StuckReleasing, StuckReleasing, 3000)
	s.Apply(PodGone{UID: "theirs"}, PodGone{UID: "ours"}, PodGone{UID: "soon"})
	if q := s.Snapshot(year.Add(122e9)).QueueByName("q"); q.Leaving.At(GPU) != 0 || q.Stuck.At(GPU) != 0 {
		t.Errorf("all gone: leaving %v, stuck %v", q.Leaving, q.Stuck)
	}
}
