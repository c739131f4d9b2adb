package tdm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/tdm"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// site is a node of a zone (its name; "" for none) beside an ordinary one that comes after it by name, and a pod of a gang.
type site struct {
	zone      string
	args      policy.Arguments
	revocable bool
	now       time.Time
}

// run returns on which node the pod is placed, and when another run is due.
func (s *site) run(t *testing.T) (at string, wake cluster.Instant) {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	amounts := []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 10}}
	lent := cluster.NodeState{Name: "n1", UID: "n1", Allocatable: amounts}
	if s.zone != "" {
		lent.Labels = map[string]string{"volcano.sh/revocable-zone": s.zone}
	}
	key := cluster.Key{Face: "volcano", Namespace: "x", Name: "g"}
	store.Apply(
		lent, cluster.NodeState{Name: "n0", UID: "n0", Allocatable: amounts},
		cluster.QueueState{Name: "volcano:q", UID: "q", Weight: []cluster.Quantity{{Name: "cpu", Value: 1000}}},
		cluster.GangState{Key: key, UID: "g", Queue: "volcano:q", Preemptible: true, Sets: cluster.FlatTree(1)},
		cluster.PodState{
			UID: "p", Namespace: "x", Name: "p", Ours: true, Gang: key, Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}},
			Spec: &cluster.ClassSpec{Revocable: s.revocable},
		},
	)
	p := profile.BuiltIn()
	p.Faces = []engine.Face{{Name: "volcano", Actions: []string{"allocate"}, Tiers: [][]engine.PluginUse{{{Name: tdm.Name, Arguments: s.args}}}}}
	e, err := engine.New(p, builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	r := e.Run(context.Background(), store.Snapshot(cluster.InstantOf(s.now)), func(plan engine.Plan) {
		for _, b := range plan.Bundles {
			for _, in := range b.Intents {
				at = in.Node
			}
		}
	})
	return at, r.Trace.WakeAt
}

// TestWindows: when a zone is open, by the description's words: from the first time on, up to the second, over midnight, in UTC. A pod that is revocable goes to the node of an open
// zone, before others; one that is not, never; and there is a run when the zone opens or closes next.
func TestWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		window, now string
		open        bool
		next        string // of the day, or of the next one
	}{
		{"09:00-17:00", "08:59:59.999999999", false, "09:00"},
		{"09:00-17:00", "09:00:00", true, "17:00"},
		{"09:00-17:00", "16:59:59", true, "17:00"},
		{"09:00-17:00", "17:00:00", false, "33:00"},
		{"9:00-17:00", "10:00:00", true, "17:00"},
		{"20:00-06:00", "19:59:00", false, "20:00"},
		{"20:00-06:00", "20:00:00", true, "30:00"},
		{"20:00-06:00", "00:00:00", true, "06:00"},
		{"20:00-06:00", "05:59:59", true, "06:00"},
		{"20:00-06:00", "06:00:00", false, "20:00"},
		{"00:00-12:00", "23:59:59", false, "24:00"},
		{" 00:00 - 12:00 ", "00:00:00", true, "12:00"},
		{"12:00-00:00", "23:59:59", true, "24:00"},
	} {
		for _, day := range []string{"2026-02-28", "1970-01-01"} {
			now, err := time.Parse("2006-01-02 15:04:05.999999999", day+" "+c.now)
			if err != nil {
				t.Fatal(err)
			}
			midnight, _ := time.Parse("2006-01-02", day)
			var h, m int
			_, _ = fmt.Sscanf(c.next, "%d:%d", &h, &m)
			if now = now.UTC(); now.UnixNano() == 0 {
				continue // no time at all
			}
			s := site{zone: "a", args: policy.Arguments{"tdm.revocable-zone.a": c.window}, now: now, revocable: true}
			at, wake := s.run(t)
			if want := map[bool]string{true: "n1", false: "n0"}[c.open]; at != want {
				t.Errorf("%s at %s %s: on %s, want %s", c.window, day, c.now, at, want)
			}
			if want := midnight.Add(time.Duration(h)*time.Hour + time.Duration(m)*time.Minute); !wake.Time().Equal(want) {
				t.Errorf("%s at %s %s: the next run is at %s, want %s", c.window, day, c.now, wake.Time().UTC(), want)
			}
			s.revocable = false
			if at, _ := s.run(t); at != "n0" {
				t.Errorf("%s at %s %s: a pod that is not revocable is on %s", c.window, day, c.now, at)
			}
		}
	}
	for _, revocable := range []bool{true, false} { // a node of a zone that nobody names, and one of none
		s := site{zone: "b", args: policy.Arguments{"tdm.revocable-zone.a": "00:00-23:59"}, now: time.Unix(1, 0), revocable: revocable}
		if at, wake := s.run(t); at != "n0" || wake != cluster.Forever {
			t.Errorf("a zone that nobody names: on %s, the next run is at %s", at, wake.Time())
		}
		s.zone = ""
		if at, wake := s.run(t); at != "n0" || wake != cluster.Forever {
			t.Errorf("no zone: on %s, the next run is at %s", at, wake.Time())
		}
	}
}

// TestOracle: whether a zone is open, and when that changes, minute by minute as a clock's hands show it, at random times.
func TestOracle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 8))
		from, to := r.IntN(24*60), r.IntN(24*60)
		if from == to {
			continue
		}
		// A minute belongs to the zone if the clock has shown from, and not to since.
		open := [24 * 60]bool{}
		for m := from; m != to; m = (m + 1) % (24 * 60) {
			open[m] = true
		}
		now := time.Date(2026, time.Month(1+r.IntN(12)), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1_000_000_000), time.UTC)
		next := now.Truncate(time.Minute).Add(time.Minute)
		for open[next.Hour()*60+next.Minute()] == open[now.Hour()*60+now.Minute()] {
			next = next.Add(time.Minute)
		}
		s := site{zone: "a", now: now, revocable: true, args: policy.Arguments{"tdm.revocable-zone.a": fmt.Sprintf("%02d:%02d-%02d:%02d", from/60, from%60, to/60, to%60)}}
		at, wake := s.run(t)
		if got := at == "n1"; got != open[now.Hour()*60+now.Minute()] || !wake.Time().Equal(next) {
			t.Fatalf("seed %d: %v at %s: open %v, the next run is at %s, want %s", seed, s.args, now, got, wake.Time().UTC(), next)
		}
	}
}

// TestVotes: how many pods of a gang preempt may take one after another, on random gangs: by the words of its budget, of the pods that it has, and only of one that makes way, for one that
// does not.
func TestVotes(t *testing.T) {
	t.Parallel()
	gave := 0
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 9))
		runs, waits, taker, giver := r.IntN(7), r.IntN(4), r.IntN(4) == 0, r.IntN(4) > 0
		var budget *cluster.GangBudget
		if r.IntN(3) > 0 {
			budget = &cluster.GangBudget{Number: int32(r.IntN(6)), Left: r.IntN(2) == 0}
			if r.IntN(2) == 0 {
				budget.Percent, budget.Number = true, int32(r.IntN(101))
			}
		}
		want := 1 // may go, by the budget
		if budget != nil {
			want = int(budget.Number)
			if budget.Percent {
				for want = 0; want*100 < int(budget.Number)*(runs+waits); want++ { // rounded up
				}
			}
			if budget.Left {
				want = runs - want
			}
		}
		if want = max(0, min(want, runs)); taker || !giver {
			want = 0
		}
		store := cluster.NewStore(cluster.Options{})
		key, other := cluster.Key{Face: "volcano", Namespace: "x", Name: "g"}, cluster.Key{Face: "volcano", Namespace: "x", Name: "taker"}
		store.Apply(
			cluster.NodeState{Name: "n", UID: "n", Allocatable: []cluster.Quantity{{Name: "pods", Value: 100}}},
			cluster.QueueState{Name: "volcano:q", UID: "q"},
			cluster.GangState{Key: key, UID: "g", Queue: "volcano:q", Preemptible: true, Sets: cluster.FlatTree(1), Yields: giver, Budget: budget},
			cluster.GangState{Key: other, UID: "t", Queue: "volcano:q", Preemptible: true, Sets: cluster.FlatTree(1), Yields: taker},
		)
		for i := range runs + waits {
			p := cluster.PodState{UID: fmt.Sprint(i), Namespace: "x", Name: fmt.Sprint("p", i), Ours: true, Gang: key}
			if i < runs {
				p.Phase, p.NodeName = cluster.Running, "n"
			}
			store.Apply(p)
		}
		known, prof := builtin.Registry(), profile.BuiltIn()
		prof.Actions = nil
		prof.Tiers = append(prof.Tiers, []engine.PluginUse{{Name: "probe"}})
		known.Plugins["probe"] = []policy.Factory{policy.Opens(func(v *policy.View) *probe {
			return &probe{func() {
				open, _, err := tdm.Factory.New(nil)
				if err != nil {
					t.Fatal(err)
				}
				i, snap := open(v).(policy.Preemptable), v.Snapshot()
				c := policy.Candidate{Gang: v.Gang(snap.GangByKey(key).ID)}
				for _, id := range c.Gang.Pods {
					if p := snap.Pod(id); p.Phase == cluster.Running {
						c.Pod = p
						if vote, _ := i.VotePreemptable(v.Gang(snap.GangByKey(other).ID), nil, &c); vote != policy.Permit {
							break
						}
						c.Before = append(c.Before, p)
					}
				}
				if gave += len(c.Before); len(c.Before) != want {
					t.Fatalf("seed %d: %d of %d pods, %d more that wait, by %+v: want %d", seed, len(c.Before), runs, waits, budget, want)
				}
			}}
		})}
		e, err := engine.New(prof, known)
		if err != nil {
			t.Fatal(err)
		}
		e.Run(context.Background(), store.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
	}
	if gave < 200 {
		t.Errorf("%d pods only may go", gave)
	}
}

// probe asks when all else is done.
type probe struct{ ask func() }

func (p *probe) Close() any {
	p.ask()
	return nil
}

// TestArguments: an argument that cannot be read is named, with what it must be.
func TestArguments(t *testing.T) {
	t.Parallel()
	for key, texts := range map[string][]string{ // order: each for itself
		"tdm.revocable-zone.a": {"", "always", "09:00", "09:00-09:00", "24:00-01:00", "09:60-10:00", "09:0-10:00", "-1:00-02:00", "09:00-10:00-11:00", "009:00-10:00"},
		"tdm.evict.period":     {"", "1", "0s", "-1m", "soon"},
	} {
		for _, text := range texts {
			if _, _, err := tdm.Factory.New(policy.Arguments{key: text}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("argument %q is %q; it must be", key, text)) {
				t.Errorf("%s: %q: %v", key, text, err)
			}
		}
	}
	if _, unknown, err := tdm.Factory.New(policy.Arguments{"tdm.revocable-zone.": "1:00-2:00", "tdm.evict.period": "1m", "tdm.whim": ""}); err != nil || len(unknown) != 1 || unknown[0] != "tdm.whim" {
		t.Error(unknown, err)
	}
}
