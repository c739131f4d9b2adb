package explain

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// scene is one node of 8 GPUs, one queue, and what a case adds.
func scene(events ...cluster.Event) *cluster.Snapshot {
	store := cluster.NewStore(cluster.Options{})
	store.Apply(cluster.NodeState{Name: "n1", Allocatable: append(request(64, 256, 8), cluster.Quantity{Name: "pods", Value: 110})},
		cluster.QueueState{Name: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: 8000}}})
	store.Apply(events...)
	return store.Snapshot(now)
}

func key(name string) cluster.Key { return cluster.Key{Face: "kai", Namespace: "team", Name: name} }

// gang is a gang of equal pods of one GPU each unless edited.
func gang(name string, pods, gpu int, edit func(*cluster.GangState, *cluster.PodState)) []cluster.Event {
	g := cluster.GangState{Key: key(name), UID: name, Queue: "q", Preemptible: true, Sets: cluster.FlatTree(int32(pods)), Created: cluster.UnixNano(int64(len(name)))}
	var out []cluster.Event
	for i := range pods {
		p := cluster.PodState{UID: name + string(rune('a'+i)), Namespace: "team", Name: name + "-" + string(rune('a'+i)), Ours: true, Gang: g.Key, Spec: &cluster.ClassSpec{}, Requests: request(1, 1, gpu)}
		if edit != nil {
			edit(&g, &p)
		}
		out = append(out, p)
	}
	return append(out, g)
}

// gangOf looks at a snapshot and explains one gang of it.
func gangOf(ctx context.Context, snap *cluster.Snapshot, newEngine func() (*engine.Engine, error), key cluster.Key) (*Explanation, error) {
	r, err := Look(ctx, snap, newEngine)
	if err != nil {
		return nil, err
	}
	return r.Gang(ctx, key)
}

func TestText(t *testing.T) {
	t.Parallel()
	running := func(_ *cluster.GangState, p *cluster.PodState) { p.Phase, p.NodeName = cluster.Running, "n1" }
	ranked := func(priority int32) func(*cluster.GangState, *cluster.PodState) {
		return func(g *cluster.GangState, p *cluster.PodState) {
			running(g, p)
			g.Priority = priority
		}
	}
	unbound := func(name string, gpus int64) cluster.Event {
		return cluster.QueueState{Name: name, Quota: []cluster.Quantity{
			{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}, {Name: "gpu", Value: gpus * 1000},
		}}
	}
	leaving := func(_ *cluster.GangState, p *cluster.PodState) {
		p.Phase, p.NodeName, p.DeletedAt = cluster.Releasing, "n1", now
	}
	racked := func(rack string) cluster.Event {
		return cluster.NodeState{Name: "n" + rack, Labels: map[string]string{"rack": rack}, Allocatable: append(request(64, 256, 8), cluster.Quantity{Name: "pods", Value: 110})}
	}
	inRack := func(g *cluster.GangState, _ *cluster.PodState) {
		g.Sets[0].Near = cluster.Constraint{Topology: "dc", Required: "rack"}
	}
	for name, c := range map[string]struct {
		events []cluster.Event
		want   string
	}{
		"no topology": {
			gang("ours", 1, 8, inRack),
			`gang team/ours: never; room for 0 of 1 pods, 1 needed to start; queue q, priority 0
why: topology "dc" does not exist; create it, or correct the topology constraint
  [TopologyDoesNotExist]
a pod of cpu=1 memory=1Gi gpu=8 finds, on 1 node:
     1  room for some of the pods
turn: 1 of 1; of those ahead, 0 get room
what would change it (submitter):
  - correct the gang: topology "dc" does not exist; create it, or correct the topology constraint
`,
		},
		"no rack": {
			append(gang("ours", 2, 8, inRack), cluster.TopologyState{Name: "dc", Levels: []cluster.Level{{Label: "rack"}}}, racked("1"), racked("2"), unbound("q", 16)),
			`gang team/ours: never; room for 0 of 2 pods, 2 needed to start; queue q, priority 0
why: no rack of topology dc has room for the 2 pods that must be together; 1 has room for 1
  [TopologyNoRoom]
a pod of cpu=1 memory=1Gi gpu=8 finds, on 2 nodes:
     2  room for some of the pods
others do not make way for it:
        consolidation: no rearrangement of what runs makes room for it [NoRearrangement]
turn: 1 of 1; of those ahead, 0 get room
what would change it (submitter):
  - correct the gang: let it prefer one rack of topology dc instead of requiring it
`,
		},
		"turn": {
			append(gang("a", 1, 8, nil), gang("ours", 1, 8, nil)...),
			`gang team/ours: in line; room for 0 of 1 pods, 1 needed to start; queue q, priority 0
why: no node has room for the pod [GangNoRoom]
a pod of cpu=1 memory=1Gi gpu=8 finds, on 1 node:
     1  insufficient gpu
turn: 2 of 2; of those ahead, 1 gets room
what would change it: only its turn. By itself it could start; gangs served before it take what it
  needs
`,
		},
		"release": {
			append(gang("gone", 1, 8, leaving), gang("ours", 1, 8, nil)...),
			`gang team/ours: starting; room for 0 of 1 pods, 1 needed to start; queue q, priority 0
why: 1 pods wait for room that is being released [WaitingForRelease]
turn: 1 of 1; of those ahead, 0 get room
what would change it: nothing to do; it starts when the pods that are being deleted have gone
`,
		},
		"room": {
			append(gang("held", 3, 2, running), gang("ours", 3, 2, nil)...),
			`gang team/ours: blocked; room for 0 of 3 pods, 3 needed to start; queue q, priority 0
why: room for 1 of the 3 pods that must start together [GangNoRoom]
a pod of cpu=1 memory=1Gi gpu=2 finds, on 1 node:
     1  room for some of the pods
others do not make way for it:
        consolidation: insufficient gpu [InsufficientResources]
        reclaim: queue q would hold 6 cpu, above its fair share of 0 [OverFairShare]
        preempt: there is nobody it may displace [NoVictims]
     1  not touched: its priority is not lower
turn: 1 of 1; of those ahead, 0 get room
what would change it (cluster admin):
  - add or free room for 2 pods of cpu=1 memory=1Gi gpu=2 each
`,
		},
		"slices": {
			append(gang("ours", 1, 0, func(_ *cluster.GangState, p *cluster.PodState) {
				p.Requests = append(p.Requests, cluster.Quantity{Name: "nvidia.com/mig-1g.10gb", Value: 2})
				p.Charge = append(slices.Clone(p.Requests), cluster.Quantity{Name: "gpu", Value: 2000})
			}), unbound("q", 8), cluster.NodeState{
				Name: "n2", Slicing: cluster.SlicedMixed, Allocatable: append(request(64, 256, 0), cluster.Quantity{Name: "pods", Value: 110}, cluster.Quantity{Name: "nvidia.com/mig-1g.10gb", Value: 1}),
			}),
			`gang team/ours: never; room for 0 of 1 pods, 1 needed to start; queue q, priority 0
why: a pod asks for 2 nvidia.com/mig-1g.10gb; the largest node has 1 [TooBigForAnyNode]
turn: 1 of 1; of those ahead, 0 get room
what would change it (submitter):
  - recreate the gang's pods with at most 1 nvidia.com/mig-1g.10gb each instead of 2: no node has
      more
or instead (cluster admin):
  - add or free room for 1 pod of cpu=1 memory=1Gi nvidia.com/mig-1g.10gb=2
`,
		},
		"quota": {
			gang("ours", 2, 8, func(g *cluster.GangState, _ *cluster.PodState) { g.Preemptible = false }),
			`gang team/ours: never; room for 0 of 2 pods, 2 needed to start; queue q, priority 0
why: queue q: non-preemptible work asks for 2 cpu, 0 left under its quota [NonPreemptibleOverQuota]
others do not make way for it:
        consolidation: non-preemptible [NotPreemptible]
        reclaim: queue q would hold 2 cpu, above its fair share of 0 [OverFairShare]
turn: 1 of 1; of those ahead, 0 get room
what would change it, all of this together:
  - raise the cpu quota of queue q from 0 to 2 (queue owner)
  - raise the memory quota of queue q from 0 to 2Gi (queue owner)
  - raise the gpu quota of queue q from 8 to 16 (queue owner)
  - add or free room for 1 pod of cpu=1 memory=1Gi gpu=8 (cluster admin)
or instead, all of this together:
  - make the gang preemptible: only work that is not needs quota (submitter)
  - add or free room for 1 pod of cpu=1 memory=1Gi gpu=8 (cluster admin)
`,
		},
		"several": {
			gang("ours", 3, 1, func(g *cluster.GangState, p *cluster.PodState) {
				g.Queue, g.Sets = "typo", cluster.FlatTree(5)
				p.Phase = cluster.Gated
				p.Spec.NodeSelector = map[string]string{"disk": "fast"}
			}),
			`gang team/ours: never; room for 0 of 3 pods, 5 needed to start; queue typo, priority 0
why: queue "typo" does not exist [QueueDoesNotExist]
what would change it, all of this together:
  - create queue typo (cluster admin)
  - remove the scheduling gates of 3 pods (ours-a, ours-b, ours-c) (submitter)
  - create 2 more pods (submitter)
  - recreate the gang's pods without the node selector disk=fast, which no node has (none has the
      label at all) (submitter)
or instead, all of this together:
  - create queue typo (cluster admin)
  - remove the scheduling gates of 3 pods (ours-a, ours-b, ours-c) (submitter)
  - create 2 more pods (submitter)
  - add or free room for 5 pods of cpu=1 memory=1Gi gpu=1 each on nodes with disk=fast (cluster
      admin)
`,
		},
		"priority": {
			append(append(gang("held", 3, 2, ranked(5)), gang("ours", 3, 2, nil)...), class("low", 3), class("high", 7)),
			`gang team/ours: blocked; room for 0 of 3 pods, 3 needed to start; queue q, priority 0
why: room for 1 of the 3 pods that must start together [GangNoRoom]
a pod of cpu=1 memory=1Gi gpu=2 finds, on 1 node:
     1  room for some of the pods
others do not make way for it:
        consolidation: insufficient gpu [InsufficientResources]
        reclaim: queue q would hold 6 cpu, above its fair share of 0 [OverFairShare]
        preempt: there is nobody it may displace [NoVictims]
     1  not touched: its priority is not lower
turn: 1 of 1; of those ahead, 0 get room
what would change it (submitter):
  - give the gang the PriorityClass high: priority 7 instead of 0
    others would have to go for it: preempt takes the room of 3 pods, of 1 gang
or instead (cluster admin):
  - add or free room for 2 pods of cpu=1 memory=1Gi gpu=2 each
`,
		},
		"protected": {
			append(append(gang("held", 3, 2, func(g *cluster.GangState, p *cluster.PodState) {
				running(g, p)
				g.LastStart = now.Add(-10e9)
			}), cluster.QueueState{Name: "q", PreemptMinRuntime: cluster.Maybe[time.Duration]{Set: true, Value: 60e9}}),
				gang("ours", 3, 2, func(g *cluster.GangState, _ *cluster.PodState) { g.Priority = 1 })...),
			`gang team/ours: blocked; room for 0 of 3 pods, 3 needed to start; queue q, priority 1
why: room for 1 of the 3 pods that must start together [GangNoRoom]
a pod of cpu=1 memory=1Gi gpu=2 finds, on 1 node:
     1  room for some of the pods
others do not make way for it:
        consolidation: insufficient gpu [InsufficientResources]
        reclaim: queue q would hold 6 cpu, above its fair share of 0 [OverFairShare]
        preempt: there is nobody it may displace [NoVictims]
     1  not touched: protected by its minimum runtime
turn: 1 of 1; of those ahead, 0 get room
what would change it (submitter):
  - wait until 2023-11-14T22:14:10Z, when others may make way for it
    others would have to go for it: preempt takes the room of 3 pods, of 1 gang
or instead (cluster admin):
  - add or free room for 2 pods of cpu=1 memory=1Gi gpu=2 each
`,
		},
		"delayed": {
			append(gang("held", 3, 2, running), gang("ours", 3, 2, func(g *cluster.GangState, _ *cluster.PodState) {
				g.Priority, g.Created, g.PreemptionDelay = 1, now.Add(-10e9), 60e9
			})...),
			`gang team/ours: blocked; room for 0 of 3 pods, 3 needed to start; queue q, priority 1
why: room for 1 of the 3 pods that must start together [GangNoRoom]
a pod of cpu=1 memory=1Gi gpu=2 finds, on 1 node:
     1  room for some of the pods
others do not make way for it:
        consolidation, reclaim, preempt: its preemption delay is not over [PreemptionDelay]
turn: 1 of 1; of those ahead, 0 get room
what would change it (submitter):
  - wait until 2023-11-14T22:14:10Z, when others may make way for it
    others would have to go for it: preempt takes the room of 3 pods, of 1 gang
or instead (cluster admin):
  - add or free room for 2 pods of cpu=1 memory=1Gi gpu=2 each
`,
		},
		"quota of another": {
			append(append(gang("held", 4, 2, func(g *cluster.GangState, p *cluster.PodState) {
				running(g, p)
				g.Queue = "p"
			}), unbound("p", 2), unbound("q", 0)), gang("ours", 3, 2, nil)...),
			`gang team/ours: blocked; room for 0 of 3 pods, 3 needed to start; queue q, priority 0
why: room for 0 of the 3 pods that must start together [GangNoRoom]
a pod of cpu=1 memory=1Gi gpu=2 finds, on 1 node:
     1  insufficient gpu
others do not make way for it:
        consolidation: insufficient gpu [InsufficientResources]
        reclaim: queue q would hold 6 gpu, above its fair share of 0 [OverFairShare]
turn: 1 of 1; of those ahead, 0 get room
what would change it (queue owner):
  - raise the gpu quota of queue q from 0 to 6
    others would have to go for it: reclaim takes the room of 4 pods, of 1 gang
or instead (cluster admin):
  - add or free room for 3 pods of cpu=1 memory=1Gi gpu=2 each
`,
		},
		"others give way": {
			append(gang("held", 3, 2, running), gang("ours", 3, 2, func(g *cluster.GangState, _ *cluster.PodState) { g.Priority = 1 })...),
			`gang team/ours: starting; room for 0 of 3 pods, 3 needed to start; queue q, priority 1
why: 3 pods wait for room that is being released [WaitingForRelease]
turn: 1 of 1; of those ahead, 0 get room
what would change it: nothing to do; the next run of the scheduler makes others give way: preempt
  takes the room of 3 pods, of 1 gang. It starts when they have gone
`,
		},
		"running": {
			gang("ours", 2, 1, running),
			`gang team/ours: running; room for 2 of 2 pods, 2 needed to start; queue q, priority 0
nothing waits: every pod has room
`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := gangOf(t.Context(), scene(c.events...), newEngine, key("ours"))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, e.Text(100)); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// TestExplanationIsComplete: what the scheduler leaves for its next run, because others' questions took what one may spend, an
// explanation looks for all the same.
func TestExplanationIsComplete(t *testing.T) {
	t.Parallel()
	hurried := func() (*engine.Engine, error) {
		p := profile.BuiltIn()
		p.Settings.SearchSteps = 1
		return engine.New(p, builtin.Registry())
	}
	var events []cluster.Event
	for name, cpu := range map[string]int{"other": 1, "another": 2, "ours": 3} { // each asks a question of its own
		events = append(events, gang(name, 1, 8, func(g *cluster.GangState, p *cluster.PodState) {
			g.Created, p.Requests = cluster.UnixNano(int64(cpu)), request(cpu, 1, 8)
		})...)
	}
	events = append(events, gang("busy", 1, 8, func(g *cluster.GangState, p *cluster.PodState) {
		g.Queue, p.Phase, p.NodeName = "r", cluster.Running, "n1"
	})...)
	events = append(events, gang("small", 1, 0, func(g *cluster.GangState, p *cluster.PodState) { // so that there is somebody to look at
		g.Priority, g.Preemptible, p.Phase, p.NodeName = -1, true, cluster.Running, "n1"
	})...)
	events = append(events, cluster.QueueState{Name: "r", Quota: []cluster.Quantity{{Name: "gpu", Value: 8000}}})
	snap := scene(events...)
	scheduler, err := hurried()
	if err != nil {
		t.Fatal(err)
	}
	o := ask(context.Background(), scheduler, snap, key("ours"))
	if !slices.ContainsFunc(tried(&o), cutShort) {
		t.Fatalf("the scheduler answers it in its first run, which proves nothing: %+v", tried(&o))
	}
	e, err := gangOf(t.Context(), snap, hurried, key("ours"))
	if err != nil {
		t.Fatal(err)
	}
	if len(e.Tried) == 0 || slices.ContainsFunc(e.Tried, cutShort) {
		t.Errorf("tried: %+v", e.Tried)
	}
}

func cutShort(a Attempt) bool { return a.Reason == policy.ReasonNextCycle.Key }

// A gang that is not there, and a caller that gave up, are errors.
func TestErrors(t *testing.T) {
	t.Parallel()
	snap := scene(gang("ours", 2, 8, nil)...)
	if _, err := gangOf(context.Background(), snap, newEngine, key("other")); err == nil || !strings.Contains(err.Error(), "team/other") {
		t.Errorf("a gang that does not exist: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := gangOf(ctx, snap, newEngine, key("ours")); err == nil {
		t.Error("a cancelled explanation is not an error")
	}
}

// A try leaves nothing behind: the same question gives the same answer, and the fork stays what it was.
func TestTriesLeaveNoTrace(t *testing.T) {
	t.Parallel()
	for seed := range int64(50) {
		d := newDraw(seed)
		snap := d.store.Snapshot(now)
		e, err := newEngine()
		if err != nil {
			t.Fatal(err)
		}
		w := newStage(snap, e, everyWaiting).enter(context.Background(), d.target)
		before := state(w.store.Snapshot(now))
		w.own = seed%2 == 0
		w.search(nil)
		if diff := cmp.Diff(before, state(w.store.Snapshot(now))); diff != "" {
			t.Fatalf("seed %d: after %d tries the fork differs (-before +after):\n%s", seed, w.tries, diff)
		}
	}
}

// state is everything that tries could leave changed, by name.
func state(s *cluster.Snapshot) map[string]any {
	out := map[string]any{}
	for _, id := range s.NodeOrder {
		n := s.Node(id)
		out["node "+n.Name] = []any{n.State(s.Dims), s.Dims.Format(n.Used)}
	}
	for _, id := range s.QueueOrder {
		q := s.Queue(id)
		out["queue "+q.Name] = []any{q.State(s.Dims), s.Dims.Format(q.Requested)}
	}
	s.EachGang(func(g *cluster.Gang) {
		out["gang "+g.Key.String()] = []any{g.GangState, g.PendingPods, g.GatedPods, g.ActivePods}
	})
	s.EachPod(func(p *cluster.Pod) { out["pod "+p.UID] = p.State(s.Dims) })
	for k := range s.Objects(cluster.ConfigMaps) {
		out["configmap "+k] = true
	}
	return out
}

// Explanations of a large cluster: what a person waits for at the prompt.
func BenchmarkGang(b *testing.B) {
	store := cluster.NewStore(cluster.Options{})
	for i := range 1000 {
		n := cluster.NodeState{Name: "n" + string(rune('a'+i%26)) + strings.Repeat("x", i/26), Allocatable: append(request(64, 256, 8), cluster.Quantity{Name: "pods", Value: 110})}
		if i%10 == 0 {
			n.Taints = []v1.Taint{{Key: "pool", Value: "b", Effect: v1.TaintEffectNoSchedule}}
		}
		store.Apply(n)
	}
	store.Apply(cluster.QueueState{Name: "q"})
	for i := range 900 {
		store.Apply(gang(strings.Repeat("r", i+1), 1, 8, func(_ *cluster.GangState, p *cluster.PodState) {
			p.Phase, p.NodeName = cluster.Running, "n"+string(rune('a'+i%26))+strings.Repeat("x", i/26)
		})...)
	}
	store.Apply(gang("ours", 26, 8, func(g *cluster.GangState, _ *cluster.PodState) { g.Sets = cluster.FlatTree(500) })...)
	snap := store.Snapshot(now)
	for b.Loop() {
		if _, err := gangOf(context.Background(), snap, newEngine, key("ours")); err != nil {
			b.Fatal(err)
		}
	}
}
