package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/profile"
)

// noon is the moment random clusters are looked at.
var noon = cluster.UnixNano(1_700_000_000_000_000_000)

// herd is a random cluster: the latest event about each object, by a name that orders them.
type herd struct {
	events  map[string]cluster.Event
	pods    []string // UIDs
	gangs   []cluster.Key
	gangSet map[cluster.Key][]string // leaf names
	nodes   []string
	leaves  []string
	serial  int
}

// seconds is a small time, so that ages collide.
func seconds(t *rapid.T, label string) cluster.Instant {
	return noon.Add(-time.Duration(rapid.IntRange(0, 5).Draw(t, label)) * 1e9)
}

func newHerd(t *rapid.T) *herd {
	h := &herd{events: map[string]cluster.Event{}, gangSet: map[cluster.Key][]string{}}
	h.events["0 dc"] = cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "zone"}, {Label: "rack", Alias: "row"}}}
	for i := range rapid.IntRange(0, 6).Draw(t, "nodes") {
		h.node(t, fmt.Sprintf("n%d", i))
	}
	h.queues(t)
	for range rapid.IntRange(0, 7).Draw(t, "gangs") {
		h.gang(t)
	}
	return h
}

func (h *herd) node(t *rapid.T, name string) {
	if !slices.Contains(h.nodes, name) {
		h.nodes = append(h.nodes, name)
	}
	n := cluster.NodeState{
		GPUMemoryMiB: rapid.SampledFrom([]cluster.MiB{0, 1000, 80_050}).Draw(t, "gpu memory"),
		Name:         name, UID: name, Labels: map[string]string{"zone": rapid.SampledFrom([]string{"a", "b"}).Draw(t, "zone")},
		Allocatable: []cluster.Quantity{
			{Name: "gpu", Value: int64(rapid.SampledFrom([]int{0, 1, 2, 4, 8}).Draw(t, "gpus")) * 1000},
			{Name: "cpu", Value: int64(rapid.IntRange(1, 8).Draw(t, "cpus")) * 1000},
			{Name: "memory", Value: 1 << 33},
			{Name: "pods", Value: int64(rapid.SampledFrom([]int{2, 5, 50}).Draw(t, "slots"))},
		},
	}
	n.Labels["kind"] = rapid.SampledFrom([]string{"big", "small"}).Draw(t, "kind")
	if rack := rapid.IntRange(0, 3).Draw(t, "rack"); rack > 0 {
		n.Labels["rack"] = fmt.Sprint("r", rack%2)
	}
	if rapid.IntRange(0, 9).Draw(t, "problem") == 0 {
		n.Problem = "NotReady"
	}
	if rapid.IntRange(0, 5).Draw(t, "taint") == 0 {
		n.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoSchedule}}
	}
	if rapid.IntRange(0, 5).Draw(t, "nic") == 0 {
		n.Allocatable = append(n.Allocatable, cluster.Quantity{Name: "example.com/nic", Value: 2})
	}
	h.events["1 "+name] = n
}

// queues makes one to three departments, some with teams below.
func (h *herd) queues(t *rapid.T) {
	make := func(name, parent string) {
		amount := func(label string, options ...int64) int64 { return rapid.SampledFrom(options).Draw(t, label) }
		u := cluster.Unlimited
		h.events["2 "+name] = cluster.QueueState{
			Name: name, UID: name, Parent: parent, Priority: int32(amount("queue priority", 100, 100, 200)), Created: seconds(t, "queue age"),
			Quota:             []cluster.Quantity{{Name: "gpu", Value: amount("quota", 0, 1000, 3000, u)}, {Name: "cpu", Value: amount("cpu quota", u, u, 2000)}, {Name: "memory", Value: u}},
			Limit:             []cluster.Quantity{{Name: "gpu", Value: amount("limit", u, u, 2000, 5000)}, {Name: "cpu", Value: amount("cpu limit", u, u, 4000)}, {Name: "memory", Value: u}},
			Weight:            []cluster.Quantity{{Name: "gpu", Value: amount("weight", 0, 1000, 3000)}, {Name: "cpu", Value: amount("cpu weight", 0, 1000, 1000)}, {Name: "memory", Value: 1000}},
			ReclaimMinRuntime: cluster.Maybe[time.Duration]{Set: true, Value: time.Duration(amount("reclaim runtime", 0, 0, 3)) * 1e9}, PreemptMinRuntime: cluster.Maybe[time.Duration]{Set: true, Value: time.Duration(amount("preempt runtime", 0, 0, 3, 900)) * 1e9},
		}
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "departments") {
		dept := fmt.Sprintf("d%d", i)
		make(dept, "")
		teams := rapid.IntRange(0, 2).Draw(t, "teams")
		for k := range teams {
			make(fmt.Sprintf("%s-t%d", dept, k), dept)
			h.leaves = append(h.leaves, fmt.Sprintf("%s-t%d", dept, k))
		}
		if teams == 0 {
			h.leaves = append(h.leaves, dept)
		}
	}
}

func (h *herd) gang(t *rapid.T) {
	h.serial++
	k := cluster.Key{Face: "kai", Namespace: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "namespace"), Name: fmt.Sprintf("g%d", h.serial)}
	g := cluster.GangState{
		Key: k, UID: k.String(), Queue: rapid.SampledFrom(append(h.leaves, "ghost")).Draw(t, "queue"), Created: seconds(t, "gang age"),
		Priority: int32(rapid.SampledFrom([]int{50, 50, 75, 100}).Draw(t, "priority")),
	}
	g.Preemptible = g.Priority < 100
	g.PreemptionDelay = time.Duration(rapid.SampledFrom([]int{0, 0, 0, 30, 600}).Draw(t, "delay")) * 1e9
	if rapid.IntRange(0, 3).Draw(t, "own grace") == 0 {
		g.StaleGrace = cluster.Maybe[time.Duration]{Set: true, Value: time.Duration(rapid.SampledFrom([]int{-1, 0, 5, 300}).Draw(t, "grace")) * 1e9}
	}
	sizes := []int{rapid.IntRange(1, 4).Draw(t, "pods")}
	leaves := []string{""}
	if rapid.IntRange(0, 2).Draw(t, "flat") > 0 {
		g.Sets = cluster.FlatTree(int32(rapid.IntRange(0, sizes[0]+1).Draw(t, "minimum")))
	} else { // two sets, the second of which may be an inner one of two
		sizes = []int{rapid.IntRange(0, 3).Draw(t, "a"), rapid.IntRange(0, 3).Draw(t, "b"), rapid.IntRange(0, 2).Draw(t, "c")}
		leaves = []string{"a", "b", "c"}
		least := func(i int) int32 { return int32(rapid.IntRange(0, max(1, sizes[i])).Draw(t, "set minimum")) }
		g.Sets = []cluster.Set{
			{Parent: cluster.None, Children: []int32{1, 2}, Min: int32(rapid.IntRange(0, 2).Draw(t, "sets needed"))},
			{Name: "a", Parent: 0, Leaf: true, Min: least(0)},
			{Name: "inner", Parent: 0, Children: []int32{3, 4}, Min: int32(rapid.IntRange(1, 2).Draw(t, "inner needed"))},
			{Name: "b", Parent: 2, Leaf: true, Min: least(1)},
			{Name: "c", Parent: 2, Leaf: true, Min: least(2)},
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "together") == 0 {
		for i := range g.Sets {
			if i == 0 || rapid.IntRange(0, 2).Draw(t, "set together") == 0 {
				g.Sets[i].Near = near(t)
			}
		}
	}
	h.gangs = append(h.gangs, k)
	h.gangSet[k] = leaves
	h.events["3 "+k.String()] = g
	shape := h.shape(t, k.Namespace)
	for i, n := range sizes {
		for range n {
			if rapid.IntRange(0, 4).Draw(t, "other shape") == 0 {
				shape = h.shape(t, k.Namespace)
			}
			h.pod(t, k, leaves[i], shape)
		}
	}
}

func near(t *rapid.T) cluster.Constraint {
	c := cluster.Constraint{
		Topology: "dc", Required: rapid.SampledFrom([]string{"", "zone", "zone", "rack", "row"}).Draw(t, "required"),
		Preferred: rapid.SampledFrom([]string{"", "", "zone", "rack"}).Draw(t, "preferred"),
	}
	if rapid.IntRange(0, 9).Draw(t, "mistaken") == 0 {
		c.Required = "nowhere"
	}
	return c
}

// shape is what pods of a gang ask for.
func (h *herd) shape(t *rapid.T, namespace string) cluster.PodState {
	p := cluster.PodState{Namespace: namespace, Ours: true, Spec: &cluster.ClassSpec{}, Requests: []cluster.Quantity{
		{Name: "pods", Value: 1},
		{Name: "gpu", Value: int64(rapid.SampledFrom([]int{0, 1, 1, 2, 4}).Draw(t, "gpu")) * 1000},
		{Name: "cpu", Value: int64(rapid.SampledFrom([]int{0, 500, 1000}).Draw(t, "cpu"))},
	}}
	if rapid.IntRange(0, 2).Draw(t, "share") == 0 {
		h.share(t, &p)
	}
	switch rapid.IntRange(0, 9).Draw(t, "wish") {
	case 0:
		p.Spec.NodeSelector = map[string]string{"zone": "a"}
	case 1:
		p.Spec.Tolerations = []v1.Toleration{{Operator: v1.TolerationOpExists}}
	case 2:
		p.Spec.HostPorts = []cluster.HostPort{{IP: "0.0.0.0", Protocol: "TCP", Port: 80}}
	case 3:
		p.Requests = append(p.Requests, cluster.Quantity{Name: "example.com/nic", Value: 1})
	case 4:
		p.Spec.Unsupported = "a share of a GPU"
	case 6:
		p.Spec.NodeSelector = map[string]string{"kind": rapid.SampledFrom([]string{"big", "small"}).Draw(t, "wants kind")}
	case 5:
		if rapid.IntRange(0, 2).Draw(t, "absurd") == 0 {
			p.Requests = append(p.Requests, cluster.Quantity{Name: "memory", Value: cluster.MaxQuantity})
		}
	}
	return p
}

// share makes a shape one that takes parts of devices.
func (h *herd) share(t *rapid.T, p *cluster.PodState) {
	s := &p.Spec.Share
	s.Devices = int32(rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "devices"))
	p.Requests[1].Value = 0 // whole GPUs
	if rapid.Bool().Draw(t, "by memory") {
		s.MemoryMiB = rapid.SampledFrom([]cluster.MiB{1, 300, 500, 1000, 70_000}).Draw(t, "memory")
		return
	}
	s.Portion = rapid.SampledFrom([]cluster.Portion{100_000, 250_000, 333_333, 500_000, 700_000, 1_000_000}).Draw(t, "portion")
	p.Charge = slices.Clone(p.Requests)
	p.Charge[1].Value = s.Charge(0)
}

// pod adds a pod of a shape, pending or somewhere.
func (h *herd) pod(t *rapid.T, k cluster.Key, set string, shape cluster.PodState) {
	h.serial++
	p := shape
	p.Name = fmt.Sprintf("%s-%d", k.Name, h.serial)
	p.UID = k.Namespace + "/" + p.Name
	p.Gang, p.SetName, p.Created = k, set, noon
	if rapid.IntRange(0, 9).Draw(t, "stray") == 0 {
		p.SetName = "nowhere"
	}
	if p.Ours = rapid.IntRange(0, 14).Draw(t, "foreign") > 0; !p.Ours {
		spec := *p.Spec
		spec.Share = cluster.Share{}
		p.Spec, p.Charge = &spec, nil
	}
	if len(h.nodes) > 0 {
		node := rapid.SampledFrom(h.nodes).Draw(t, "node")
		switch rapid.IntRange(0, 9).Draw(t, "phase") {
		case 0:
			p.Phase, p.NodeName = cluster.Running, node
		case 1:
			p.Phase, p.NodeName, p.DeletedAt = cluster.Releasing, node, noon
		case 2:
			p.Phase = cluster.Gated
		case 3:
			p.Nominated = node
		case 4, 5:
			p = ended(t, p)
		}
		if !p.Spec.Share.None() && p.NodeName != "" {
			p.Groups = rapid.SampledFrom([][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"c"}}).Draw(t, "groups")
		}
	}
	h.pods = append(h.pods, p.UID)
	h.events["4 "+p.UID] = p
}

// ended is a pod that has come to its end, as dialects tell of it: well, mostly, and sometimes because it was told to go.
func ended(t *rapid.T, p cluster.PodState) cluster.PodState {
	p.Phase = rapid.SampledFrom([]cluster.Phase{cluster.Succeeded, cluster.Succeeded, cluster.Succeeded, cluster.Failed}).Draw(t, "end")
	if rapid.IntRange(0, 4).Draw(t, "told to go") == 0 {
		p.DeletedAt = noon
	}
	p.NodeName, p.Groups, p.Spec, p.Requests, p.Charge = "", nil, &cluster.ClassSpec{}, nil, nil
	return p
}

// list returns the events in a fixed order.
func (h *herd) list() []cluster.Event {
	keys := make([]string, 0, len(h.events))
	for k := range h.events {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := make([]cluster.Event, len(keys))
	for i, k := range keys {
		out[i] = h.events[k]
	}
	return out
}

func snapshotOf(events []cluster.Event) *cluster.Snapshot {
	s := cluster.NewStore(cluster.Options{})
	s.Apply(events...)
	return s.Snapshot(noon)
}

func newEngine(t *rapid.T, more ...string) *engine.Engine {
	p := profile.BuiltIn()
	p.Actions = append(more, "allocate")
	r := builtin.Registry()
	r.Actions["rehearse"] = func() engine.Action { return rehearsal{t} }
	e, err := engine.New(p, r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// outcome is everything a run says, in one text: plans byte for byte, and the reasons by gang.
func outcome(t *rapid.T, e *engine.Engine, snap *cluster.Snapshot) (string, []engine.Plan) {
	var plans []engine.Plan
	trace := e.Run(context.Background(), snap, func(p engine.Plan) { plans = append(plans, p) }).Trace
	return told(t, plans, trace, func(d *recorder.Diagnosis) any { return d }), plans
}

// told prints plans, and of every gang that something was said of what came of it, with what of the reason is to be compared.
func told(t *rapid.T, plans []engine.Plan, trace recorder.Trace, reason func(*recorder.Diagnosis) any) string {
	text, err := json.MarshalIndent(plans, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	var why []string
	for _, g := range trace.Gangs {
		why = append(why, fmt.Sprintf("%s placed %d nominated %d: %v", g.Gang, g.Placed, g.Nominated, reason(g.Diagnosis)))
	}
	sort.Strings(why)
	return string(text) + "\n" + strings.Join(why, "\n")
}

// TestPlansAreSound: in every prefix of every plan nothing is overcommitted, limits hold, and bundles are whole.
func TestPlansAreSound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		snap := snapshotOf(newHerd(t).list())
		_, plans := outcome(t, newEngine(t), snap)
		if err := errors.Join(Audit(snap, plans, true), AuditTogether(snap, plans)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestOrderOfEventsDoesNotMatter: the same objects learnt in another order give the same bytes.
func TestOrderOfEventsDoesNotMatter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := newHerd(t).list()
		want, _ := outcome(t, newEngine(t), snapshotOf(events))
		got, _ := outcome(t, newEngine(t), snapshotOf(rapid.Permutation(events).Draw(t, "order")))
		if got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestWarmIsCold: a store and an engine that have lived through changes decide as new ones do that are told what the store
// remembers.
func TestWarmIsCold(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHerd(t)
		s, e := cluster.NewStore(cluster.Options{}), newEngine(t)
		s.Apply(h.list()...)
		for range rapid.IntRange(1, 6).Draw(t, "rounds") {
			snap, cold := s.Snapshot(noon), cluster.NewStore(cluster.Options{})
			cold.Apply(h.list()...)
			cold.Restore(snap.Memory())
			got, plans := outcome(t, e, snap)
			want, _ := outcome(t, newEngine(t), cold.Snapshot(noon))
			if got != want {
				t.Fatalf("warm\n%s\ncold\n%s", got, want)
			}
			h.change(t, s, plans)
		}
	})
}

// change lets something happen, in the store and in the herd.
func (h *herd) change(t *rapid.T, s *cluster.Store, plans []engine.Plan) {
	apply := func(key string, e cluster.Event) {
		s.Apply(e)
		h.events[key] = e
	}
	for _, p := range plans { // decisions come true, or are only assumed
		for _, b := range p.Bundles {
			how := rapid.IntRange(0, 2).Draw(t, "fate")
			for _, in := range b.Intents {
				if in.Verb != ledger.Bind || how == 0 {
					continue
				}
				st := h.events["4 "+in.UID].(cluster.PodState)
				st.Phase, st.NodeName, st.Groups = cluster.Binding, in.Node, in.Groups
				if how == 1 {
					s.Assume(in.UID, in.Node, in.Groups, noon.Add(1))
				} else {
					st.Phase = cluster.Running
					s.Apply(st)
				}
				h.events["4 "+in.UID] = st
			}
		}
	}
	switch rapid.IntRange(0, 5).Draw(t, "change") {
	case 0:
		name := fmt.Sprintf("n%d", rapid.IntRange(0, 7).Draw(t, "which"))
		h.node(t, name)
		s.Apply(h.events["1 "+name])
	case 1:
		if len(h.nodes) > 0 {
			i := rapid.IntRange(0, len(h.nodes)-1).Draw(t, "which")
			s.Apply(cluster.NodeGone{Name: h.nodes[i]})
			delete(h.events, "1 "+h.nodes[i])
			h.nodes = slices.Delete(h.nodes, i, i+1)
		}
	case 2:
		if len(h.pods) > 0 {
			i := rapid.IntRange(0, len(h.pods)-1).Draw(t, "which")
			s.Apply(cluster.PodGone{UID: h.pods[i]})
			delete(h.events, "4 "+h.pods[i])
			h.pods = slices.Delete(h.pods, i, i+1)
		}
	case 3:
		before := map[string]bool{}
		for k := range h.events {
			before[k] = true
		}
		h.gang(t)
		for k, e := range h.events { // order: different objects
			if !before[k] {
				s.Apply(e)
			}
		}
	case 4:
		if len(h.gangs) > 0 {
			i := rapid.IntRange(0, len(h.gangs)-1).Draw(t, "which")
			s.Apply(cluster.GangGone{Key: h.gangs[i]})
			delete(h.events, "3 "+h.gangs[i].String())
			h.gangs = slices.Delete(h.gangs, i, i+1)
		}
	case 5:
		leaf := rapid.SampledFrom(h.leaves).Draw(t, "which")
		q := h.events["2 "+leaf].(cluster.QueueState)
		q.Limit = []cluster.Quantity{{Name: "gpu", Value: int64(rapid.IntRange(0, 4).Draw(t, "limit")) * 1000}}
		apply("2 "+leaf, q)
	}
}

// TestEnough: when nothing is being released, one cycle binds all it ever will: the next one has nothing to add.
func TestEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHerd(t)
		for k, e := range h.events { // order: each pod on its own
			if p, ok := e.(cluster.PodState); ok && p.Phase == cluster.Releasing {
				p.Phase, p.DeletedAt = cluster.Running, cluster.Instant{}
				h.events[k] = p
			}
		}
		_, plans := outcome(t, newEngine(t), snapshotOf(h.list()))
		for _, p := range plans {
			for _, b := range p.Bundles {
				for _, in := range b.Intents {
					st := h.events["4 "+in.UID].(cluster.PodState)
					st.Phase, st.NodeName, st.Groups = cluster.Running, in.Node, in.Groups
					h.events["4 "+in.UID] = st
				}
			}
		}
		again, plans := outcome(t, newEngine(t), snapshotOf(h.list()))
		if len(plans) > 0 {
			t.Fatalf("a second cycle adds\n%s", again)
		}
	})
}

// TestDiscardLeavesNothing: trying every gang and discarding the attempt leaves every ledger as it was, and the plan of the
// action after it as if nothing had been tried. Why a gang waits is not compared: whoever failed in the attempt is told the same again as
// long as no room came back, and of the room there was then others may have taken some since.
func TestDiscardLeavesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		events := newHerd(t).list()
		after := func(first ...string) string {
			var plans []engine.Plan
			r := newEngine(t, first...).Run(context.Background(), snapshotOf(events), func(p engine.Plan) { plans = append(plans, p) })
			return told(t, plans, r.Trace, func(d *recorder.Diagnosis) any { return d != nil })
		}
		if got, want := after("rehearse"), after(); got != want {
			t.Fatalf("after attempts\n%s\nwithout\n%s", got, want)
		}
	})
}

// rehearsal is an action that tries gangs, one on top of another, and takes everything back.
type rehearsal struct{ t *rapid.T }

func (r rehearsal) Run(s *engine.Session) {
	gangs := s.Pending()
	before := ledgers(s, gangs)
	outer := s.Ledger.Begin()
	marks := []ledger.Mark{outer.Mark()}
	states := []string{before}
	for _, g := range gangs {
		if s.Placer.TryGang(outer, g) == nil {
			marks, states = append(marks, outer.Mark()), append(states, ledgers(s, gangs))
		}
	}
	for len(marks) > 1 {
		marks, states = marks[:len(marks)-1], states[:len(states)-1]
		outer.RollbackTo(marks[len(marks)-1])
		if now := ledgers(s, gangs); now != states[len(states)-1] {
			r.t.Fatalf("rolled back to\n%s\nwas\n%s", now, states[len(states)-1])
		}
	}
	outer.Discard()
	if now := ledgers(s, gangs); now != before {
		r.t.Fatalf("discarded to\n%s\nwas\n%s", now, before)
	}
}

// ledgers prints everything that statements change.
func ledgers(s *engine.Session, gangs []*ledger.GangState) string {
	var b strings.Builder
	for _, id := range s.Snap.NodeOrder {
		fmt.Fprintln(&b, s.Snap.Node(id).Name, s.Ledger.Idle(id), s.Ledger.Later(id))
	}
	for _, g := range gangs {
		pods, request := s.Ledger.Next(g)
		fmt.Fprintln(&b, g.Key, g.Satisfied(), g.Elastic(), pods, s.Snap.Dims.Format(request))
		for i := range g.Sets {
			fmt.Fprintln(&b, " ", g.SetActive(int32(i)), g.SetSatisfied(int32(i)))
		}
		for q := g.Leaf; q != nil; q = q.Parent {
			fmt.Fprintln(&b, " ", q.Name, q.Allocated, q.AllocatedNonPreemptible)
		}
	}
	return b.String()
}

// TestNoIsTrue: a gang of equal pods that was told there is no room has none, counted the obvious way: on all nodes, or, of a gang
// whose pods must be together, in the domain that has most.
func TestNoIsTrue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := newHerd(t)
		snap := snapshotOf(h.list())
		var plans []engine.Plan
		r := newEngine(t).Run(context.Background(), snap, func(p engine.Plan) { plans = append(plans, p) })
		a := newAuditor(snap)
		for _, p := range plans {
			for _, b := range p.Bundles {
				for _, in := range b.Intents {
					if err := a.take(snap.GangByKey(b.Gang), in); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		for _, g := range r.Trace.Gangs {
			if g.Diagnosis == nil || g.Diagnosis.Verdict.Reason != policy.ReasonGangNoRoom {
				continue
			}
			class, ok := onlyClass(snap, g.Gang)
			if !ok || len(class.HostPorts) > 0 {
				continue
			}
			rooms := map[string]int64{} // by domain
			near := snap.GangByKey(g.Gang).Sets[0].Near.Required
			for _, id := range snap.NodeOrder {
				n := snap.Node(id)
				domain, in := n.Labels["zone"], n.Labels["zone"] != "" && n.Labels["rack"] != "" // otherwise it is not in the topology
				switch near {
				case "":
					domain, in = "all", true
				case "rack", "row":
					domain += "/" + n.Labels["rack"]
				}
				if in && usable(class, n) {
					rooms[domain] += a.roomFor(class, n)
				}
			}
			room := int64(0)
			for _, n := range rooms { // order: the largest of them
				room = max(room, n)
			}
			if room >= g.Diagnosis.Verdict.Need {
				t.Fatalf("gang %s: %s, but there is room for %d", g.Gang, g.Diagnosis, room)
			}
		}
	})
}

// onlyClass returns the class of a gang's pods when they all have one.
func onlyClass(snap *cluster.Snapshot, k cluster.Key) (*cluster.Class, bool) {
	var c *cluster.Class
	for _, id := range snap.GangByKey(k).Pods {
		p := snap.Pod(id)
		if c != nil && p.Class != c {
			return nil, false
		}
		c = p.Class
	}
	return c, c != nil
}

// usable is the obvious reading of selectors, taints and problems that random clusters have.
func usable(c *cluster.Class, n *cluster.Node) bool {
	for k, v := range c.NodeSelector { // order: all must match
		if n.Labels[k] != v {
			return false
		}
	}
	if c.Share.MemoryMiB > 0 && n.GPUMemoryMiB == 0 { // nobody knows what part of a device that is
		return false
	}
	return n.Problem == "" && (len(n.Taints) == 0 || len(c.Tolerations) > 0)
}
