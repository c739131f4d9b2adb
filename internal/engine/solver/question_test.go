package solver_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/solver"
)

// twins asks every waiting gang's question of a solver of its own, and keeps what was asked and answered.
type twins struct {
	cause policy.EvictionCause
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
		key, v, yes := solver.Ask(solver.New(s, w.cause, nil), g)
		if key == "" {
			continue
		}
		w.heard[key] = append(w.heard[key], reply{g.Key.Name, v.String(), yes})
	}
}

// double lets some waiting gangs of a town have a twin, and some gangs that run one that waits for more.
func double(r *rand.Rand, w *exampleCluster) {
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

// TestQuestion: gangs that ask the same get the same answer, whoever asks. The answer to one stands for all.
func TestQuestion(t *testing.T) {
	t.Parallel()
	for _, cause := range []policy.EvictionCause{policy.Reclaim, policy.Preempt, policy.Consolidation} {
		t.Run(string(cause), func(t *testing.T) {
			t.Parallel()
			pairs, yes := 0, 0
			for i := range cases(t, 1500) {
				r := rand.New(rand.NewPCG(*seed+77, uint64(i)))
				w := draw(r)
				double(r, &w)
				act := &twins{cause: cause, heard: map[string][]reply{}}
				stage(t, act, "allocate").Run(context.Background(), w.store(past(r, &w)).Snapshot(noon), func(engine.Plan) {})
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
			t.Logf("%s: %d pairs that ask the same, %d of them get room", cause, pairs, yes)
		})
	}
}

// TestQuestionOfSets: what a gang could be given instead is part of its question.
func TestQuestionOfSets(t *testing.T) {
	t.Parallel()
	w := plain(policy.Preempt)
	s := w.store(nil)
	tree := func(name string, sets ...string) {
		st := cluster.GangState{Key: gang(name), UID: name, Queue: "owner", Priority: 60, Preemptible: true, Created: noon.Add(-1e9)}
		st.Sets = []cluster.Set{{Parent: cluster.None, Min: 1}}
		for i, set := range sets {
			st.Sets[0].Children = append(st.Sets[0].Children, int32(i+1))
			st.Sets = append(st.Sets, cluster.Set{Name: set, Parent: 0, Min: 1, Leaf: true})
		}
		s.Apply(st)
		for k, set := range sets {
			s.Apply(cluster.PodState{
				UID: name + set, Namespace: "x", Name: name + set, Gang: gang(name), SetName: set, Ours: true, Created: noon.Add(-1e9).Add(time.Duration(k)),
				Requests: []cluster.Quantity{{Name: "pods", Value: 1}, {Name: "gpu", Value: int64(4-2*k) * 1000}},
			})
		}
	}
	tree("large", "a")
	tree("either", "a", "b")
	act := &twins{cause: policy.Preempt, heard: map[string][]reply{}}
	stage(t, act, "allocate").Run(context.Background(), s.Snapshot(noon), func(engine.Plan) {})
	for key, replies := range act.heard { // order: complaints
		if len(replies) > 1 && slices.ContainsFunc(replies, func(r reply) bool { return strings.HasPrefix(r.gang, "either") }) {
			t.Errorf("%q is asked by %v", key, replies)
		}
	}
}
