package see

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/sim"
)

// throng is a cluster with a gang that runs, several that wait, and one of another namespace.
func throng(t *testing.T) *Cycle {
	t.Helper()
	s := newStage(t, 1, "a", "b")
	s.submit("first", "a", 8, 0, Work{})
	s.live(time.Minute, nil)
	for name, kind := range map[string]string{
		"pg-train-0409daa7-0381-4310-a815-4b00f0ad07da": "Job", "pg-train-1409daa7-0381-4310-a815-4b00f0ad07da": "PyTorchJob",
		"pg-train-eval-2409daa7-0381-4310-a815-4b00f0ad07da": "Job", "lone": "",
	} {
		s.submit(name, "a", 8, 0, Work{Kind: kind})
	}
	s.Store.Apply(
		cluster.GangState{Key: cluster.Key{Face: "kai", Namespace: "other", Name: "secret"}, UID: "s", Queue: "b", Sets: cluster.FlatTree(1)},
		cluster.PodState{
			UID: "s-0", Namespace: "other", Name: "secret-0", Gang: cluster.Key{Face: "kai", Namespace: "other", Name: "secret"}, Ours: true,
			Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}},
		},
	)
	return s.cycle()
}

// TestFind: a gang is found by each of the names that it has for people; what could be several is refused with their names, and what is nobody's with those that are near, none of
// another namespace.
func TestFind(t *testing.T) {
	t.Parallel()
	c, ns := throng(t), sim.Key("x").Namespace
	const job, torch, eval = "pg-train-0409daa7-0381-4310-a815-4b00f0ad07da", "pg-train-1409daa7-0381-4310-a815-4b00f0ad07da", "pg-train-eval-2409daa7-0381-4310-a815-4b00f0ad07da"
	for name, want := range map[string]string{
		"Job train": job, "job/train": job, "PyTorchJob train": torch, job: job, "train-eval": eval, "Job train-eval": eval, "pg-train-e": eval, "pg-train-0…": job,
		"lone": "lone", "lone-0": "lone", " lone ": "lone", "fir": "first",
		"train":    "! name could mean 2 gangs in namespace " + ns + ": " + job + ", " + torch,
		"Pod lone": "? there is no gang Pod lone in namespace " + ns,
		"secret":   "? there is no gang secret in namespace " + ns,
		"secret-0": "? there is no gang secret-0 in namespace " + ns,
		"":         "? there is no gang  in namespace " + ns,
		"lnoe":     "? there is no gang lnoe in namespace " + ns + "; did you mean lone?",
	} {
		key, err := c.Find(t.Context(), ns, name)
		var no *Refusal
		got := key.Name
		if errors.As(err, &no) {
			got = map[bool]string{true: "? ", false: "! "}[no.Missing] + no.Error()
		} else if err != nil {
			t.Errorf("%q: %v", name, err)
		}
		if got != want && !(want[0] == '?' && strings.HasPrefix(got, want)) || strings.Contains(got, "other") && !strings.Contains(got, "others)") {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// TestGangs: the list has each gang with its word, and of what the viewer may not read nothing; without time the words are missing, and it says so.
func TestGangs(t *testing.T) {
	t.Parallel()
	c := throng(t)
	own := sim.Key("x").Namespace
	s := c.Scope(func(ns string) bool { return ns == own })
	every := func(cluster.Key) bool { return true }
	l, err := Gangs(t.Context(), c, s, every, func() bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Items) != 5 || l.Kind != "GangList" || l.APIVersion != APIVersion || l.Cycle.Cluster != "c1" {
		t.Fatalf("%+v", l)
	}
	for i := range l.Items {
		g := &l.Items[i]
		e, err := Explain(t.Context(), c, cluster.Key{Face: sim.Key("x").Face, Namespace: g.Namespace, Name: g.Gang})
		if err != nil {
			t.Fatal(err)
		}
		if g.Word != e.Word || g.Reason != e.Reason || g.Workload != e.Workload || (g.Word == "") != (g.Gang == "first") || g.Unasked {
			t.Errorf("%+v, and explain says %s %s", g, e.Word, e.Reason)
		}
	}
	if l, err = Gangs(t.Context(), c, s, every, func() bool { return false }); err != nil {
		t.Fatal(err)
	}
	for i := range l.Items {
		if g := &l.Items[i]; g.Unasked != (g.Gang != "first") || g.Word != explain.Word("") {
			t.Errorf("without time: %+v", g)
		}
	}
}

// TestQueuesOfOnesOwn: who may not list queues sees those that his gangs name, and what is above them; the others are counted.
func TestQueuesOfOnesOwn(t *testing.T) {
	t.Parallel()
	c := throng(t)
	l, err := Queues(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	names := func(l *QueueList) (out []string) {
		for i := range l.Items {
			out = append(out, l.Items[i].Name)
		}
		return out
	}
	if got := strings.Join(names(l), " "); got != "a b" || l.Items[0].Used["gpu"] != "8" || l.Items[0].Waiting != 4 || l.Kind != "QueueList" {
		t.Errorf("%s %+v", got, l.Items)
	}
	mine := l.Of(c, func(k cluster.Key) bool { return k.Namespace == "other" })
	if got := strings.Join(names(mine), " "); got != "b" || mine.Hidden != 1 || len(l.Items) != 2 {
		t.Errorf("%s, %d hidden", got, mine.Hidden)
	}
}

// TestNodes: each GPU is listed with who holds it, as a whole or in part; of a node that takes no pods it is said, and nodes without GPUs are counted.
func TestNodes(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore(cluster.Options{})
	gpu := func(n int64) []cluster.Quantity {
		return []cluster.Quantity{{Name: "gpu", Value: n}, {Name: "pods", Value: 110}}
	}
	gang := cluster.Key{Face: "kai", Namespace: "team", Name: "g"}
	store.Apply(
		cluster.NodeState{Name: "b", UID: "b", Allocatable: gpu(4000)}, cluster.NodeState{Name: "a", UID: "a", Problem: "Unschedulable", Allocatable: gpu(2000)},
		cluster.NodeState{Name: "c", UID: "c", Allocatable: gpu(0)},
		cluster.QueueState{Name: "q", UID: "q"},
		cluster.GangState{Key: gang, UID: "g", Queue: "q", Sets: cluster.FlatTree(1)},
		cluster.PodState{UID: "1", Namespace: "team", Name: "g-0", Gang: gang, Ours: true, Phase: cluster.Running, NodeName: "b", Requests: []cluster.Quantity{{Name: "gpu", Value: 2000}}},
		cluster.PodState{UID: "2", Namespace: "x", Name: "foreign", Phase: cluster.Running, NodeName: "b", Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}}},
	)
	c := NewCycle(store.Snapshot(cluster.UnixNano(1)), profile.BuiltIn(), builtin.Registry())
	l, err := Nodes(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	want := []NodeLine{
		{Name: "a", Problem: "Unschedulable", Devices: []DeviceLine{{}, {}}},
		{Name: "b", Devices: []DeviceLine{{Queue: "q", UsedMilli: 1000}, {Queue: "q", UsedMilli: 1000}, {UsedMilli: 1000, Foreign: true}, {}}},
	}
	if d := cmp.Diff(want, l.Items); d != "" || l.Bare != 1 {
		t.Errorf("%d without GPUs\n%s", l.Bare, d)
	}
}

// TestListsHide: in clusters with a rival whose names are nobody's business, the list of our gangs has none of them, and the list of all has.
func TestListsHide(t *testing.T) {
	t.Parallel()
	told := 0
	for seed := range int64(40) {
		c, _ := rivals(seed)
		if _, err := c.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, all := range []bool{false, true} {
			l, err := Gangs(t.Context(), c, c.Scope(func(ns string) bool { return all || ns == "ours" }), func(cluster.Key) bool { return true }, func() bool { return true })
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			switch foreign := strings.Contains(string(text), "sesame"); {
			case foreign && all:
				told++
			case foreign:
				t.Errorf("seed %d: a foreign name is told:\n%s", seed, text)
			case !all && len(l.Items) == 0:
				t.Errorf("seed %d: none of our gangs is listed", seed)
			}
		}
	}
	if told < 10 {
		t.Errorf("in only %d of 40 clusters there is a foreign name to hide", told)
	}
}
