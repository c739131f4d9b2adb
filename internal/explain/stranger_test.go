package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// What a stranger met who asked why his job waits, question by question.

// class is a PriorityClass of the cluster.
func class(name string, value int32) cluster.Event {
	return cluster.ObjectState{Kind: cluster.PriorityClasses, Key: name, Object: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}}
}

// node is a node of eight GPUs with labels.
func node(name string, labels map[string]string) cluster.NodeState {
	return cluster.NodeState{Name: name, Labels: labels, Allocatable: append(request(64, 256, 8), cluster.Quantity{Name: "pods", Value: 110})}
}

// first is the first change of the first remedy, which must be the submitter's own.
func first(t *testing.T, e *Explanation) *Change {
	t.Helper()
	if len(e.Remedies) == 0 || e.Remedies[0].By != Submitter {
		t.Fatalf("the first remedy is not the submitter's own: %s", e.Text(100))
	}
	return e.Remedies[0].Changes[0]
}

func TestMistakesAreNamedFirst(t *testing.T) {
	t.Parallel()
	plenty := cluster.QueueState{Name: "research", Quota: []cluster.Quantity{{Name: "gpu", Value: 8000}}}
	gpus := []cluster.Event{node("n1", map[string]string{"gpu": "a100"}), node("n2", map[string]string{"gpu": "h100"}), node("n3", map[string]string{"gpu": "a100"})}
	for name, c := range map[string]struct {
		events []cluster.Event
		kind   Kind
		text   string
		word   Word
	}{
		"queue": {
			append(gang("ours", 1, 1, func(g *cluster.GangState, _ *cluster.PodState) { g.Queue = "reserch" }), plenty),
			MoveToQueue, `move the gang to queue research: did you mean that by "reserch"?`, Never,
		},
		"resource": {
			gang("ours", 1, 0, func(_ *cluster.GangState, p *cluster.PodState) {
				p.Requests = append(p.Requests, cluster.Quantity{Name: "nvidia.com/gpus", Value: 2})
			}),
			CorrectResource, `recreate the gang's pods with the resource nvidia.com/gpu: did you mean that by "nvidia.com/gpus"?`, Never,
		},
		"label value": {
			append(gang("ours", 1, 1, func(_ *cluster.GangState, p *cluster.PodState) {
				p.Spec.NodeSelector = map[string]string{"gpu": "h1000"}
			}), gpus...),
			CorrectSelector, "recreate the gang's pods with the node selector gpu=h100: did you mean that by gpu=h1000, which no node has (there is gpu=a100 on 2, gpu=h100 on 1)?", Never,
		},
		"selector": {
			append(gang("ours", 1, 1, func(_ *cluster.GangState, p *cluster.PodState) {
				p.Spec.NodeSelector = map[string]string{"gpu": "blackwell"}
			}), gpus...),
			DropSelector, "recreate the gang's pods without the node selector gpu=blackwell, which no node has (there is gpu=a100 on 2, gpu=h100 on 1)", Never,
		},
		"size": {
			gang("ours", 1, 16, nil),
			ShrinkPods, "recreate the gang's pods with at most 8 gpu each instead of 16: no node has more", Never,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := gangOf(t.Context(), scene(c.events...), newEngine, key("ours"))
			if err != nil {
				t.Fatal(err)
			}
			if got := first(t, e); got.Kind != c.kind || got.Text != c.text || e.Word != c.word {
				t.Errorf("%s: %s, %s", e.Word, got.Kind, got.Text)
			}
			for _, r := range e.Remedies {
				for _, k := range r.Changes {
					if k.Kind == LabelNode {
						t.Errorf("a label of hardware is offered for setting: %s", k.Text)
					}
				}
			}
		})
	}
}

// A label that says what a node is for may be set; one that says what it is may not.
func TestHardwareIsNoLabel(t *testing.T) {
	t.Parallel()
	for k, want := range map[string]bool{
		"gpu": true, "nvidia.com/gpu.product": true, "feature.node.kubernetes.io/cpu-model": true, "kubernetes.io/arch": true, "topology.kubernetes.io/zone": true,
		"node.kubernetes.io/instance-type": true, "cloud.google.com/gke-accelerator": true, "example.com/disk": true, "zone": true,
		"team": false, "pool": false, "example.com/tenant": false, "node-role.kubernetes.io/gpu-worker": true, "node-role.kubernetes.io/worker": false, "gputeam": false,
	} {
		if got := describesHardware(k); got != want {
			t.Errorf("%s: %t", k, got)
		}
	}
}

// Priorities that no PriorityClass has are not offered, and it is said who would have to go.
func TestPriorityIsAClassThatExists(t *testing.T) {
	t.Parallel()
	running := func(g *cluster.GangState, p *cluster.PodState) {
		g.Priority, p.Phase, p.NodeName = 50, cluster.Running, "n1"
	}
	events := slices.Concat(gang("held", 4, 2, running), gang("ours", 4, 2, func(g *cluster.GangState, _ *cluster.PodState) { g.Priority = 50 }))
	e, err := gangOf(t.Context(), scene(events...), newEngine, key("ours"))
	if err != nil {
		t.Fatal(err)
	}
	if text := e.Text(100); strings.Contains(text, "priority 51") || strings.Contains(text, "to 51") || strings.Contains(text, "PriorityClass") {
		t.Errorf("a priority is offered that no class has: %s", text)
	}
	e, err = gangOf(t.Context(), scene(append(events, class("low", 10), class("urgent", 75), class("system-node-critical", 2_000_001_000), class("build", 100))...), newEngine, key("ours"))
	if err != nil {
		t.Fatal(err)
	}
	c := first(t, e)
	if c.Kind != RaisePriority || c.Text != "give the gang the PriorityClass urgent: priority 75 instead of 50" {
		t.Fatalf("%s: %s", c.Kind, c.Text)
	}
	cost := e.Remedies[0].Cost
	if cost == nil || cost.Gangs != 1 || cost.GPUs != "8" || len(cost.From) != 1 || cost.From[0].Gang != "held" || cost.Evicted != 4 {
		t.Errorf("cost %+v", cost)
	}
}

// TestRemedyAtItsTurn: a full cluster of 30 GPUs' worth of small gangs ahead of ours. Room for ours alone is taken by others; the remedy that is proven in
// line starts it at its place.
func TestRemedyAtItsTurn(t *testing.T) {
	t.Parallel()
	var events []cluster.Event
	events = append(events, gang("held", 8, 1, func(_ *cluster.GangState, p *cluster.PodState) { p.Phase, p.NodeName = cluster.Running, "n1" })...)
	for i := range 20 {
		events = append(events, gang(fmt.Sprintf("ahead%02d", i), 1, 1, func(g *cluster.GangState, _ *cluster.PodState) { g.Created = cluster.UnixNano(int64(i)) })...)
	}
	events = append(events, gang("ours", 3, 1, func(g *cluster.GangState, _ *cluster.PodState) { g.Created = cluster.UnixNano(1000) })...)
	for i := range 10 {
		events = append(events, gang(fmt.Sprintf("behind%02d", i), 1, 1, func(g *cluster.GangState, _ *cluster.PodState) { g.Created = cluster.UnixNano(int64(2000 + i)) })...)
	}
	r, err := Look(t.Context(), scene(events...), newEngine)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Gang(t.Context(), key("ours"))
	if err != nil {
		t.Fatal(err)
	}
	if e.Word != Blocked || e.Turn == nil || e.Turn.Position != 21 || e.Turn.Of != 31 {
		t.Fatalf("%s %+v", e.Word, e.Turn)
	}
	if err := r.Prove(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	best := e.Remedies[0]
	if !best.InLine || len(best.Changes) != 1 || best.Changes[0].Kind != AddRoom || best.Changes[0].Count != 23 {
		t.Errorf("in line: %s", e.Text(100))
	}
	if text := e.Text(100); !strings.Contains(text, "were it next, but not at its turn (cluster admin):\n  - add or free room for 3 pods") || strings.Index(text, "room for 23 pods") > strings.Index(text, "room for 3 pods") {
		t.Errorf("what holds in line does not come first: %s", text)
	}
}

// A bind that failed is what the scheduler's own condition says, and the explanation says it too.
func TestFailedBindIsToldAlike(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore(cluster.Options{})
	store.Apply(node("n1", nil), cluster.QueueState{Name: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: 8000}}})
	store.Apply(gang("ours", 1, 0, func(_ *cluster.GangState, p *cluster.PodState) {
		p.Spec.Share = cluster.Share{Devices: 1, Portion: 500_000}
	})...)
	store.Postpone("oursa", now.Add(20e9))
	r, err := Look(t.Context(), store.Snapshot(now), newEngine)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Gang(t.Context(), key("ours"))
	if err != nil {
		t.Fatal(err)
	}
	condition := r.Trace().Gangs[0].Message() // what the scheduler writes
	if e.Reason != "BindFailedRecently" || e.Message != condition || e.Word != Blocked || strings.Contains(e.Text(100), "nothing blocks it") {
		t.Errorf("condition %q, explanation %s: %s", condition, e.Word, e.Text(100))
	}
	if c := first(t, e); c.Kind != WaitUntil || cluster.InstantOf(*c.At) != now.Add(20e9) {
		t.Errorf("%s", c.Text)
	}
}

// The gangs of one shape share what was found, each with changes of its own.
func TestShapesShare(t *testing.T) {
	t.Parallel()
	events := []cluster.Event{cluster.QueueState{Name: "other"}}
	for i := range 40 {
		events = append(events, gang(fmt.Sprintf("g%02d", i), 1, 16-i%2, func(g *cluster.GangState, _ *cluster.PodState) { g.Queue = "qq" })...)
	}
	snap := scene(append(events, cluster.QueueState{Name: "qqq", Quota: []cluster.Quantity{{Name: "gpu", Value: 8000}}})...)
	r, err := Look(t.Context(), snap, newEngine)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		k := key(fmt.Sprintf("g%02d", i))
		e, err := r.Gang(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		if len(e.Remedies) == 0 {
			t.Fatalf("%s: %s", k, e.Text(100))
		}
		for _, m := range e.Remedies {
			if !placeable(t, snap, k, m.Changes) {
				t.Errorf("%s does not start after: %s", k, e.Text(100))
			}
		}
	}
	if len(r.shapes) != 2 {
		t.Errorf("%d shapes", len(r.shapes))
	}
}
