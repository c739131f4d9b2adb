package explain

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
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
	g := cluster.GangState{Key: key(name), UID: name, Queue: "q", Preemptible: true, Sets: cluster.FlatTree(int32(pods)), Created: int64(len(name))}
	var out []cluster.Event
	for i := range pods {
		p := cluster.PodState{UID: name + string(rune('a'+i)), Namespace: "team", Name: name + "-" + string(rune('a'+i)), Ours: true, Gang: g.Key, Requests: request(1, 1, gpu)}
		if edit != nil {
			edit(&g, &p)
		}
		out = append(out, p)
	}
	return append(out, g)
}

func TestText(t *testing.T) {
	t.Parallel()
	running := func(_ *cluster.GangState, p *cluster.PodState) { p.Phase, p.NodeName = cluster.Running, "n1" }
	leaving := func(_ *cluster.GangState, p *cluster.PodState) {
		p.Phase, p.NodeName, p.DeletedAt = cluster.Releasing, "n1", now
	}
	for name, c := range map[string]struct {
		events []cluster.Event
		want   string
	}{
		"turn": {
			append(gang("a", 1, 8, nil), gang("ours", 1, 8, nil)...),
			`gang team/ours: pending; room for 0 of 1 pods, 1 needed to start; queue q, priority 0
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
			`gang team/ours: pending; room for 0 of 1 pods, 1 needed to start; queue q, priority 0
why: 1 pods wait for room that is being released [WaitingForRelease]
turn: 1 of 1; of those ahead, 0 get room
what would change it: nothing to do; it starts when the pods that are being deleted have gone
`,
		},
		"room": {
			append(gang("held", 3, 2, running), gang("ours", 3, 2, nil)...),
			`gang team/ours: pending; room for 0 of 3 pods, 3 needed to start; queue q, priority 0
why: room for 1 of the 3 pods that must start together [GangNoRoom]
a pod of cpu=1 memory=1Gi gpu=2 finds, on 1 node:
     1  room for some of the pods
turn: 1 of 1; of those ahead, 0 get room
what would change it:
  - add or free room for 2 pods of cpu=1 memory=1Gi gpu=2 each
`,
		},
		"quota": {
			gang("ours", 2, 8, func(g *cluster.GangState, _ *cluster.PodState) { g.Preemptible = false }),
			`gang team/ours: pending; room for 0 of 2 pods, 2 needed to start; queue q, priority 0
why: queue q: non-preemptible work asks for 2 cpu, 0 left under its quota [NonPreemptibleOverQuota]
turn: 1 of 1; of those ahead, 0 get room
what would change it, all of this together:
  - raise the cpu quota of queue q from 0 to 2
  - raise the memory quota of queue q from 0 to 2Gi
  - raise the gpu quota of queue q from 8 to 16
  - add or free room for 1 pod of cpu=1 memory=1Gi gpu=8
or instead, all of this together:
  - make the gang preemptible: only work that is not needs quota
  - add or free room for 1 pod of cpu=1 memory=1Gi gpu=8
`,
		},
		"several": {
			gang("ours", 3, 1, func(g *cluster.GangState, p *cluster.PodState) {
				g.Queue, g.Sets = "typo", cluster.FlatTree(5)
				p.Phase = cluster.Gated
				p.Spec.NodeSelector = map[string]string{"disk": "fast"}
			}),
			`gang team/ours: pending; room for 0 of 3 pods, 5 needed to start; queue typo, priority 0
why: queue "typo" does not exist [QueueDoesNotExist]
what would change it, all of this together:
  - create queue typo
  - remove the scheduling gates of 3 pods (ours-a, ours-b, ours-c)
  - create 2 more pods
  - label node n1 disk=fast
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
			e, err := Gang(context.Background(), scene(c.events...), newEngine, key("ours"))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, e.Text); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

// A gang that is not there, and a caller that gave up, are errors.
func TestErrors(t *testing.T) {
	t.Parallel()
	snap := scene(gang("ours", 2, 8, nil)...)
	if _, err := Gang(context.Background(), snap, newEngine, key("other")); err == nil || !strings.Contains(err.Error(), "team/other") {
		t.Errorf("a gang that does not exist: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Gang(ctx, snap, newEngine, key("ours")); err == nil {
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
		w := newWorld(context.Background(), snap, e, d.target)
		before := state(w.store.Snapshot(now))
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
		out["gang "+g.Key.String()] = []any{g.State(), g.PendingPods, g.GatedPods, g.ActivePods}
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
		if _, err := Gang(context.Background(), snap, newEngine, key("ours")); err != nil {
			b.Fatal(err)
		}
	}
}
