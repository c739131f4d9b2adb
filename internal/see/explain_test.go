package see

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/sim"
)

// TestExplain: one gang waits behind a full node. The explanation says of which cycle it is, how old that is, for whom it speaks, and whose view
// it is.
func TestExplain(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, "a")
	s.submit("train-7", "a", 8, 0, Work{})
	s.live(time.Minute, nil)
	s.submit("pg-eval-0409daa7-0381-4310-a815-4b00f0ad07da", "a", 8, 0, Work{Kind: "Job"})
	c := s.cycle()
	e, err := InLine(t.Context(), c, sim.Key("pg-eval-0409daa7-0381-4310-a815-4b00f0ad07da"))
	if err != nil {
		t.Fatal(err)
	}
	if e.APIVersion != "see.muster.dev/v1" || e.Kind != "Explanation" || e.Cycle.Cluster != "c1" || cluster.InstantOf(e.Cycle.At) != c.Case.Image.Now || e.Cycle.Scheduler {
		t.Errorf("%+v", e.Cycle)
	}
	if e.Workload != "Job eval" || e.Word != explain.Blocked || !strings.HasPrefix(e.Text(100), "Job eval (gang ") || len(e.Remedies) == 0 || !e.Remedies[0].InLine {
		t.Errorf("%s", e.Text(100))
	}
	if e.Cycle.Aged(e.Cycle.At.Add(1500 * time.Millisecond)); e.Cycle.AgeSeconds != 1.5 {
		t.Errorf("age %v", e.Cycle.AgeSeconds)
	}
	var refusal *Refusal
	if _, err := Explain(t.Context(), c, cluster.Key{Namespace: "x", Name: "y"}); !errors.As(err, &refusal) {
		t.Errorf("a gang that is not there: %v", err)
	}
}

// A cycle whose plans are on record is the scheduler's own view when the engine comes to them again, and only then.
func TestExplainSaysWhoseViewItIs(t *testing.T) {
	t.Parallel()
	s := newStage(t, 1, "a")
	s.submit("eval", "a", 4, 0, Work{})
	made := s.cycle()
	run, err := made.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, own := range []bool{true, false} {
		c := &Cycle{Registry: builtin.Registry(), Case: &replay.Case{Profile: profile.BuiltIn(), Image: made.Case.Image, Decided: true}}
		if own {
			c.Case.Plans = run.Plans()
		}
		e, err := Explain(t.Context(), c, sim.Key("eval"))
		if err != nil {
			t.Fatal(err)
		}
		if e.Cycle.Scheduler != own || e.Word != explain.Starting {
			t.Errorf("own %t: %+v %s", own, e.Cycle, e.Word)
		}
	}
}

// FuzzScope draws clusters with a rival whose names are nobody's business, and looks for them in all that is said of our gang.
func FuzzScope(f *testing.F) {
	for seed := range int64(40) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed int64) {
		c, key := rivals(seed)
		e, err := InLine(t.Context(), c, key)
		if err != nil {
			t.Fatal(err)
		}
		within, err := e.Within(c.Scope(func(ns string) bool { return ns == "ours" }))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(within)
		if err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{string(text), within.Text(100)} {
			if strings.Contains(strings.Join(strings.Fields(said), ""), "sesame") {
				t.Errorf("seed %d: a foreign name is told:\n%s", seed, said)
			}
		}
		for i := range e.Remedies {
			if a, b := e.Remedies[i].Cost, within.Remedies[i].Cost; (a == nil) != (b == nil) || a != nil && (a.Gangs != b.Gangs || a.Evicted != b.Evicted || a.GPUs != b.GPUs) {
				t.Errorf("seed %d: counts are lost: %+v, %+v", seed, a, b)
			}
		}
		if _, err := e.Within(c.Scope(func(string) bool { return false })); err == nil {
			t.Error("a gang of a namespace that may not be read is explained")
		}
	})
}

// TestScopeHides is that there is something to hide: with all rights the names are told.
func TestScopeHides(t *testing.T) {
	t.Parallel()
	told := 0
	for seed := range int64(40) {
		c, key := rivals(seed)
		e, err := InLine(t.Context(), c, key)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "sesame") {
			told++
		}
	}
	if told < 10 {
		t.Errorf("in only %d of 40 clusters there is a foreign name to hide", told)
	}
}

// rivals draws a full cluster in which a gang of ours waits, and gangs of namespaces whose names have "sesame" in them run and wait.
func rivals(seed int64) (*Cycle, cluster.Key) {
	r := rand.New(rand.NewSource(seed))
	size := func(gpu int64) []cluster.Quantity {
		return []cluster.Quantity{{Name: "cpu", Value: gpu * 1000}, {Name: "memory", Value: gpu << 30}, {Name: "gpu", Value: gpu * 1000}, {Name: "pods", Value: 1}}
	}
	store := cluster.NewStore(cluster.Options{})
	for i := range 3 {
		store.Apply(cluster.NodeState{Name: fmt.Sprintf("n%d", i), Allocatable: append(size(8), cluster.Quantity{Name: "pods", Value: 110})})
	}
	for _, q := range []string{"q", "p"} {
		store.Apply(cluster.QueueState{Name: q, UID: q, Quota: []cluster.Quantity{{Name: "gpu", Value: int64(r.Intn(24)) * 1000}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}})
	}
	for i := range 20 {
		key := cluster.Key{Face: "kai", Namespace: fmt.Sprintf("sesame-%d", r.Intn(3)), Name: fmt.Sprintf("sesame-job-%d", i)}
		store.Apply(cluster.GangState{Key: key, UID: key.Name, Queue: []string{"q", "p"}[r.Intn(2)], Priority: int32(r.Intn(3)), Preemptible: r.Intn(4) > 0, Sets: cluster.FlatTree(1), Created: cluster.UnixNano(int64(r.Intn(50)))})
		p := cluster.PodState{UID: key.Name, Namespace: key.Namespace, Name: key.Name + "-0", Ours: true, Gang: key, Requests: size(int64(1 + r.Intn(3)))}
		if i < 9 {
			p.Phase, p.NodeName = cluster.Running, fmt.Sprintf("n%d", i%3)
		}
		store.Apply(p)
	}
	key := cluster.Key{Face: "kai", Namespace: "ours", Name: "train"}
	pods := 1 + r.Intn(3)
	store.Apply(cluster.GangState{Key: key, UID: "ours", Queue: "q", Priority: int32(r.Intn(3)), Preemptible: r.Intn(3) > 0, Sets: cluster.FlatTree(int32(pods)), Created: cluster.UnixNano(25)})
	for i := range pods {
		store.Apply(cluster.PodState{UID: fmt.Sprint("ours", i), Namespace: "ours", Name: fmt.Sprint("train-", i), Ours: true, Gang: key, Requests: size(int64(4 + r.Intn(5)))})
	}
	return NewCycle(store.Snapshot(cluster.UnixNano(1_700_000_000_000_000_000)), profile.BuiltIn(), builtin.Registry()), key
}
