package nodescores_test

import (
	"context"
	"fmt"
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/plugins/nodescores"
	"github.com/muster-scheduler/muster/internal/engine/plugins/podaffinity"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// opened opens a plugin on a cluster, and hands it over with the run's view.
func opened(t *rapid.T, s *cluster.Store, f policy.Factory, args policy.Arguments, use func(policy.Instance, *policy.View)) {
	known, prof := builtin.Registry(), profile.BuiltIn()
	known.Plugins["probe"] = []policy.Factory{policy.Opens(func(v *policy.View) *struct{} {
		open, unknown, err := f.New(args)
		if err != nil || len(unknown) > 0 {
			t.Fatal(err, unknown)
		}
		use(open(v), v)
		return nil
	})}
	prof.Tiers = append(prof.Tiers, []engine.PluginUse{{Name: "probe"}})
	e, err := engine.New(prof, known)
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), s.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
}

// speaker is a pod of the oracles: what it is, what it says of others, and where it is; "" for nowhere.
type speaker struct {
	name, label, node string
	terms             []voiced
}

// voiced is a term about pods with a label, in one domain of a key, that counts so much: less than 0 to be away from them.
type voiced struct {
	key, label string
	weight     int64
	required   bool
}

func (s *speaker) spec() *cluster.ClassSpec {
	c := &cluster.ClassSpec{Namespace: "x", Labels: map[string]string{"is": s.label}}
	for _, x := range s.terms {
		term := v1.PodAffinityTerm{TopologyKey: x.key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"is": x.label}}}
		switch {
		case x.required:
			if c.PodAffinity == nil {
				c.PodAffinity = &v1.PodAffinity{}
			}
			c.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = append(c.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, term)
		case x.weight < 0:
			if c.PodAntiAffinity == nil {
				c.PodAntiAffinity = &v1.PodAntiAffinity{}
			}
			c.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(c.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution, v1.WeightedPodAffinityTerm{Weight: int32(-x.weight), PodAffinityTerm: term})
		default:
			if c.PodAffinity == nil {
				c.PodAffinity = &v1.PodAffinity{}
			}
			c.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution = append(c.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution, v1.WeightedPodAffinityTerm{Weight: int32(x.weight), PodAffinityTerm: term})
		}
	}
	return c
}

// world is a random cluster of the oracles.
type world struct {
	store *cluster.Store
	nodes []map[string]string // their labels
}

func (w *world) draw(t *rapid.T) {
	w.store = cluster.NewStore(cluster.Options{})
	for i := range rapid.IntRange(1, 5).Draw(t, "nodes") {
		labels := map[string]string{}
		for _, key := range []string{"zone", "rack"} {
			if value := rapid.IntRange(0, 3).Draw(t, key); value > 0 {
				labels[key] = fmt.Sprint(value)
			}
		}
		w.nodes = append(w.nodes, labels)
		w.store.Apply(cluster.NodeState{Name: fmt.Sprint("n", i), UID: fmt.Sprint("n", i), Labels: labels, Allocatable: []cluster.Quantity{{Name: "cpu", Value: 9000}, {Name: "pods", Value: 50}}})
	}
}

func (w *world) put(s *speaker, spec *cluster.ClassSpec) {
	st := cluster.PodState{UID: s.name, Namespace: "x", Name: s.name, Labels: map[string]string{"is": s.label}, Requests: []cluster.Quantity{{Name: "pods", Value: 1}}, Spec: spec}
	if s.node != "" {
		st.NodeName, st.Phase = s.node, cluster.Running
	}
	w.store.Apply(st)
}

// plays has a plugin follow some moves, and compares what it says of a pod with what the oracle says, before and after each.
func (w *world) plays(t *rapid.T, f policy.Factory, argument string, pods []*speaker, one string, oracle func() []int64) {
	weight := rapid.Int64Range(0, 3).Draw(t, "weight")
	opened(t, w.store, f, policy.Arguments{argument: fmt.Sprint(weight)}, func(i policy.Instance, v *policy.View) {
		company, follows, snap := i.(policy.CompanyScore), i.(policy.Observer), v.Snapshot()
		byName := map[string]*cluster.Pod{}
		snap.EachPod(func(p *cluster.Pod) { byName[p.Name] = p })
		followed := make([]int64, snap.MaxNodeID()) // by what is said to have changed alone
		read := 0
		compare := func() {
			kind := company.Kind(byName[one])
			var scores []int64
			if kind != 0 {
				var changed []cluster.NodeID
				scores, changed = company.Company(kind)
				for _, n := range changed[read:] {
					followed[n] = scores[n]
				}
				read = len(changed)
			}
			for k, want := range oracle() {
				id, got := snap.NodeByName(fmt.Sprint("n", k)).ID, int64(0)
				if kind != 0 {
					if got = scores[id]; got != followed[id] {
						t.Fatalf("n%d: %d, and it is not said to have changed from %d", k, got, followed[id])
					}
				}
				if want *= weight * policy.ScorePoint; got != want {
					t.Fatalf("n%d, weight %d: %d, want %d", k, weight, got, want)
				}
			}
		}
		if rapid.Bool().Draw(t, "asked before") {
			compare()
		}
		for range rapid.IntRange(0, 4).Draw(t, "moves") {
			p := rapid.SampledFrom(pods).Draw(t, "moves")
			was := p.node
			op := ledger.Op{Verb: ledger.Bind, Pod: byName[p.name]}
			if was != "" {
				op.Verb, op.Node, p.node = ledger.Evict, snap.NodeByName(was).ID, ""
			} else {
				p.node = fmt.Sprint("n", rapid.IntRange(0, len(w.nodes)-1).Draw(t, "to"))
				op.Node = snap.NodeByName(p.node).ID
			}
			follows.Done(op)
			if rapid.Bool().Draw(t, "compared") {
				compare()
			}
			if rapid.IntRange(0, 2).Draw(t, "undone") == 0 {
				follows.Undone(op)
				p.node = was
			}
		}
		compare()
	})
}

// TestAttraction: what preferred affinities come to, pod by pod and node by node: of what a pod says of those that are there, and they of it, each counts at all nodes of the domain of who is
// there; the sums are laid out from 0 to 100.
func TestAttraction(t *testing.T) {
	t.Parallel()
	said := 0
	rapid.Check(t, func(t *rapid.T) {
		var w world
		w.draw(t)
		var pods []*speaker
		for k := range rapid.IntRange(2, 6).Draw(t, "pods") {
			p := &speaker{name: fmt.Sprint("p", k), label: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "is")}
			if k > 0 && rapid.IntRange(0, 3).Draw(t, "runs") > 0 {
				p.node = fmt.Sprint("n", rapid.IntRange(0, len(w.nodes)-1).Draw(t, "on"))
			}
			for range rapid.IntRange(0, 2).Draw(t, "terms") {
				x := voiced{rapid.SampledFrom([]string{"zone", "rack"}).Draw(t, "key"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of"), rapid.Int64Range(-5, 5).Draw(t, "weighs"), rapid.IntRange(0, 4).Draw(t, "required") == 0}
				if x.required {
					x.weight = 1
				}
				p.terms = append(p.terms, x)
			}
			pods = append(pods, p)
			w.put(p, p.spec())
		}
		one := pods[0]
		w.plays(t, podaffinity.NodeOrderFactory, podaffinity.Weight, pods[1:len(pods):len(pods)], one.name, func() []int64 {
			sums := make([]int64, len(w.nodes))
			near := func(q *speaker, x voiced) {
				var at int
				_, _ = fmt.Sscanf(q.node, "n%d", &at)
				for n, labels := range w.nodes {
					if value, has := labels[x.key]; has && value == w.nodes[at][x.key] {
						sums[n] += x.weight
					}
				}
			}
			for _, q := range pods[1:] {
				if q.node == "" {
					continue
				}
				for _, x := range one.terms {
					if !x.required && x.label == q.label {
						near(q, x)
					}
				}
				for _, x := range q.terms {
					if x.label == one.label {
						near(q, x)
					}
				}
			}
			low, top := sums[0], sums[0]
			for _, x := range sums {
				low, top = min(low, x), max(top, x)
			}
			for n := range sums {
				if sums[n] -= low; top > low {
					sums[n] = sums[n] * 100 / (top - low)
					said++
				}
			}
			return sums
		})
	})
	if said == 0 {
		t.Error("nobody was ever drawn anywhere")
	}
}

// TestSpread: how evenly a pod would be spread, by the words of the formula.
func TestSpread(t *testing.T) {
	t.Parallel()
	said := 0
	rapid.Check(t, func(t *rapid.T) {
		var w world
		w.draw(t)
		one := &speaker{name: "one", label: "a"}
		spec := &cluster.ClassSpec{Namespace: "x", Labels: map[string]string{"is": "a"}}
		type constraint struct {
			key, label string
			skew       int32
		}
		var wishes []constraint
		honours := rapid.Bool().Draw(t, "selects")
		if honours {
			spec.NodeSelector = map[string]string{"rack": "1"}
		}
		for range rapid.IntRange(0, 2).Draw(t, "wishes") {
			c := constraint{rapid.SampledFrom([]string{"zone", "rack"}).Draw(t, "key"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of"), rapid.Int32Range(1, 3).Draw(t, "skew")}
			wishes = append(wishes, c)
			spec.Spread = append(spec.Spread, v1.TopologySpreadConstraint{MaxSkew: c.skew, TopologyKey: c.key, WhenUnsatisfiable: v1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"is": c.label}}})
		}
		spec.Spread = append(spec.Spread, v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: "nobody has it", WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{}})
		w.put(one, spec)
		var pods []*speaker
		for k := range rapid.IntRange(1, 6).Draw(t, "pods") {
			p := &speaker{name: fmt.Sprint("p", k), label: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "is")}
			if rapid.IntRange(0, 3).Draw(t, "runs") > 0 {
				p.node = fmt.Sprint("n", rapid.IntRange(0, len(w.nodes)-1).Draw(t, "on"))
			}
			pods = append(pods, p)
			w.put(p, p.spec())
		}
		w.plays(t, nodescores.SpreadFactory, nodescores.SpreadWeight, pods, one.name, func() []int64 {
			out := make([]int64, len(w.nodes))
			if len(wishes) == 0 {
				return out
			}
			sums, counts := make([]int64, len(w.nodes)), make([]bool, len(w.nodes))
			for n, labels := range w.nodes {
				counts[n] = true
				for _, c := range wishes {
					_, has := labels[c.key]
					counts[n] = counts[n] && has
				}
			}
			low, top := int64(math.MaxInt64), int64(0)
			for n, labels := range w.nodes {
				if !counts[n] {
					continue
				}
				sum := 0.0
				for _, c := range wishes {
					domains, mates := map[string]bool{}, 0
					for m, labels := range w.nodes {
						if counts[m] {
							domains[labels[c.key]] = true
						}
					}
					for _, q := range pods {
						var at int
						if _, err := fmt.Sscanf(q.node, "n%d", &at); err == nil && counts[at] && q.label == c.label && w.nodes[at][c.key] == labels[c.key] && (!honours || w.nodes[at]["rack"] == "1") {
							mates++
						}
					}
					sum += float64(mates)*math.Log(float64(len(domains)+2)) + float64(c.skew-1)
				}
				sums[n] = int64(math.Round(sum))
				low, top = min(low, sums[n]), max(top, sums[n])
			}
			for n := range out {
				switch {
				case !counts[n]:
				case top == 0:
					out[n] = 100
				default:
					out[n] = 100 * (top + low - sums[n]) / top
					said++
				}
			}
			return out
		})
	})
	if said == 0 {
		t.Error("nothing was ever spread")
	}
}
