package solver_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/solver"
	"github.com/muster-scheduler/muster/internal/profile"
)

// twins asks every waiting gang's question of a solver of its own, and keeps what was asked and answered.
type twins struct {
	right engine.Right
	heard map[string][]reply
}

// reply is one gang's.
type reply struct {
	gang, told string
	yes        bool
}

// Run implements engine.Action.
func (w *twins) Run(s *engine.Session) {
	for _, g := range s.Waiting() {
		key, v, yes := solver.Ask(solver.New(s, w.right), g)
		if key == "" {
			continue
		}
		w.heard[key] = append(w.heard[key], reply{g.Key.Name, v.String(), yes})
	}
}

// double lets some waiting gangs of a town have a twin, and some gangs that run one that waits for more.
func double(r *rand.Rand, w *town) {
	for i := range w.gangs {
		g := w.gangs[i]
		waiting := slices.ContainsFunc(g.pods, func(p hand) bool { return p.on < 0 })
		if !waiting || r.IntN(4) == 0 {
			continue
		}
		for range 1 + r.IntN(3) {
			twin := g
			twin.pods = slices.Clone(g.pods)
			if r.IntN(2) == 0 { // of an elastic gang, what is missing only
				twin.pods = slices.DeleteFunc(twin.pods, func(p hand) bool { return p.on >= 0 })
				twin.least = min(twin.least, len(twin.pods))
			}
			for k := range twin.pods {
				twin.pods[k].on = -1
			}
			twin.started = 0
			w.gangs = append(w.gangs, twin)
		}
	}
}

// past is a random history: who was displaced when, for whom, and is back since when; and which pairs are frozen.
func past(r *rand.Rand, w *town) func(*cluster.Store) {
	name := func() string { return gangName(r.IntN(len(w.gangs))) }
	when := func() int64 { // around the times at which gangs were made, or after all of them
		if r.IntN(2) == 0 {
			return noon - 1e9*int64(10+r.IntN(200))
		}
		return noon - 1e14 + int64(r.IntN(2*len(w.gangs)+1))*5e8
	}
	m := cluster.Memory{Gangs: map[cluster.Key]cluster.GangMemory{}, Held: map[string]int64{}}
	if r.IntN(2) == 0 {
		m.News = when()
	}
	for i, g := range w.gangs {
		if r.IntN(3) > 0 {
			continue
		}
		var gm cluster.GangMemory
		for range []int{1, 1, 2, 3, cluster.MaxDisplacements}[r.IntN(5)] {
			by := gang("other")
			if r.IntN(4) == 0 {
				by = gang(name())
			}
			gm.Displacements = append(gm.Displacements, cluster.Displacement{At: when(), By: by})
		}
		slices.SortFunc(gm.Displacements, func(a, b cluster.Displacement) int { return cmp.Compare(a.At, b.At) })
		gm.Displaced = gm.Displacements[len(gm.Displacements)-1].At
		m.Gangs[gang(gangName(i))] = gm
		for k := range g.pods {
			m.Held[fmt.Sprintf("%s-%d", gangName(i), k)] = when()
		}
	}
	frozen := map[[2]string]bool{}
	for range r.IntN(3) {
		frozen[[2]string{name(), name()}] = true
	}
	return func(s *cluster.Store) {
		s.Restore(m)
		for pair := range frozen { // order: each on its own
			s.Freeze(gang(pair[0]), gang(pair[1]), noon+1e9)
		}
	}
}

// TestQuestion: gangs that ask the same get the same answer, whoever asks. The answer to one stands for all.
func TestQuestion(t *testing.T) {
	t.Parallel()
	for _, right := range []engine.Right{engine.Reclaim, engine.Preempt, engine.Consolidation} {
		t.Run(string(right), func(t *testing.T) {
			t.Parallel()
			pairs, yes := 0, 0
			for i := range cases(t, 1500) {
				r := rand.New(rand.NewPCG(*seed+77, uint64(i)))
				w := draw(r)
				double(r, &w)
				e, act := asking(t, right)
				s := cluster.NewStore(cluster.Options{})
				s.Apply(w.events()...)
				s.Snapshot(noon)
				past(r, &w)(s)
				e.Run(context.Background(), s.Snapshot(noon), func(engine.Plan) {})
				for key, replies := range act.heard { // order: each on its own
					for _, o := range replies[1:] {
						pairs++
						if o.yes {
							yes++
						}
						if a := replies[0]; a.yes != o.yes || !a.yes && a.told != o.told {
							t.Fatalf("town %d: %q is asked by %s (%v: %s) and %s (%v: %s)\n%s", i, key, a.gang, a.yes, a.told, o.gang, o.yes, o.told, w.String())
						}
					}
				}
			}
			t.Logf("%s: %d pairs that ask the same, %d of them get room", right, pairs, yes)
		})
	}
}

// asking is an engine whose only other action asks.
func asking(t *testing.T, right engine.Right) (*engine.Engine, *twins) {
	act := &twins{right: right, heard: map[string][]reply{}}
	p := profile.BuiltIn()
	p.Actions = []string{"allocate", "asking"}
	r := builtin.Registry()
	r.Actions["asking"] = func() engine.Action { return act }
	e, err := engine.New(p, r)
	if err != nil {
		t.Fatal(err)
	}
	return e, act
}

// TestQuestionOfSets: what a gang could be given instead is part of its question.
func TestQuestionOfSets(t *testing.T) {
	t.Parallel()
	s := cluster.NewStore(cluster.Options{})
	w := plain(engine.Preempt)
	s.Apply(w.events()...)
	tree := func(name string, sets ...string) {
		st := cluster.GangState{Key: gang(name), UID: name, Queue: "owner", Priority: 60, Preemptible: true, Created: noon - 1e9}
		st.Sets = []cluster.Set{{Parent: cluster.None, Min: 1}}
		for i, set := range sets {
			st.Sets[0].Children = append(st.Sets[0].Children, int32(i+1))
			st.Sets = append(st.Sets, cluster.Set{Name: set, Parent: 0, Min: 1, Leaf: true})
		}
		s.Apply(st)
		for k, set := range sets {
			s.Apply(cluster.PodState{
				UID: name + set, Namespace: "x", Name: name + set, Gang: gang(name), SetName: set, Ours: true, Created: noon - 1e9 + int64(k),
				Requests: []cluster.Quantity{{Name: "pods", Value: 1}, {Name: "gpu", Value: int64(4-2*k) * 1000}},
			})
		}
	}
	tree("large", "a")
	tree("either", "a", "b")
	e, act := asking(t, engine.Preempt)
	e.Run(context.Background(), s.Snapshot(noon), func(engine.Plan) {})
	for key, replies := range act.heard { // order: complaints
		if len(replies) > 1 && slices.ContainsFunc(replies, func(r reply) bool { return strings.HasPrefix(r.gang, "either") }) {
			t.Errorf("%q is asked by %v", key, replies)
		}
	}
}
