package votes_test

import (
	"context"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// amounts are of resources by name.
type amounts map[string]int64

type (
	world struct {
		nodes  []amounts
		queues []queue // parents before children; the first is root
		gangs  []gang
	}
	queue struct {
		name, parent                    string
		guarantee, deserved, capability amounts
	}
	gang struct {
		name, queue string
		min         int
		asks        amounts // nil for not said
		admitted    bool
		age, wait   time.Duration // wait is 0 for not said
		pods        []pod
	}
	pod struct {
		phase cluster.Phase
		node  int
		needs amounts
	}
)

// now is the moment of all worlds.
var now = cluster.UnixNano(1e18)

// draw makes up a world.
func draw(r *rand.Rand) *world {
	some := func(most int64) amounts {
		a := amounts{}
		for _, name := range [...]string{"cpu", "gpu"} {
			if r.IntN(3) > 0 {
				a[name] = r.Int64N(most + 1)
			}
		}
		return a
	}
	w := &world{queues: []queue{{name: "root"}}}
	for range r.IntN(4) {
		w.nodes = append(w.nodes, amounts{"cpu": 1 + r.Int64N(20), "gpu": r.Int64N(6)})
	}
	leaves := map[string]bool{}
	for i := range 1 + r.IntN(5) {
		q := queue{name: fmt.Sprint("q", i), parent: w.queues[r.IntN(len(w.queues))].name, guarantee: amounts{}, deserved: some(15), capability: amounts{}}
		if r.IntN(3) == 0 {
			q.guarantee = some(6)
		}
		if r.IntN(2) == 0 {
			q.capability = some(25)
		}
		delete(leaves, q.parent)
		leaves[q.name] = true
		w.queues = append(w.queues, q)
	}
	var names []string
	for _, q := range w.queues {
		if leaves[q.name] {
			names = append(names, q.name)
		}
	}
	for i := range r.IntN(8) {
		g := gang{name: fmt.Sprint("g", i), queue: names[r.IntN(len(names))], min: r.IntN(4), age: time.Duration(r.IntN(100)) * time.Minute, admitted: r.IntN(3) == 0}
		if r.IntN(5) > 0 {
			g.asks = some(12)
		}
		if r.IntN(4) == 0 {
			g.wait = time.Duration(1+r.IntN(100)) * time.Minute
		}
		for range r.IntN(5) {
			p := pod{phase: cluster.Pending, needs: some(8)}
			if len(w.nodes) > 0 {
				p.node = r.IntN(len(w.nodes))
				p.phase = []cluster.Phase{cluster.Pending, cluster.Pending, cluster.Gated, cluster.Running, cluster.Running, cluster.Succeeded, cluster.Failed, cluster.Releasing}[r.IntN(8)]
			}
			g.pods = append(g.pods, p)
		}
		w.gangs = append(w.gangs, g)
	}
	return w
}

// store is a Store that knows the world.
func (w *world) store() *cluster.Store {
	s := cluster.NewStore(cluster.Options{})
	list := func(a amounts) []cluster.Quantity {
		out := []cluster.Quantity{}
		for _, name := range [...]string{"cpu", "gpu"} {
			if x, said := a[name]; said {
				out = append(out, cluster.Quantity{Name: name, Value: x})
			}
		}
		return out
	}
	for i, n := range w.nodes {
		s.Apply(cluster.NodeState{Name: fmt.Sprint("n", i), Allocatable: append(list(n), cluster.Quantity{Name: "pods", Value: 99})})
	}
	for _, q := range w.queues {
		st := cluster.QueueState{Name: "volcano:" + q.name, UID: q.name, Guarantee: list(q.guarantee), Quota: list(q.deserved), Limit: list(q.capability)}
		if q.parent != "" {
			st.Parent = "volcano:" + q.parent
		}
		s.Apply(st)
	}
	for _, g := range w.gangs {
		key := cluster.Key{Face: "volcano", Namespace: "d", Name: g.name}
		st := cluster.GangState{Key: key, UID: g.name, Queue: "volcano:" + g.queue, Preemptible: true, Created: now.Add(-g.age), Sets: cluster.FlatTree(int32(g.min)), BeforePods: true}
		if g.asks != nil {
			st.Asks = list(g.asks)
		}
		if g.wait > 0 {
			st.AdmitAfter = cluster.Maybe[time.Duration]{Set: true, Value: g.wait}
		}
		s.Apply(st)
		for i, p := range g.pods {
			ps := cluster.PodState{UID: fmt.Sprint(g.name, "-", i), Namespace: "d", Name: fmt.Sprint(g.name, "-", i), Requests: list(p.needs), Phase: p.phase, Gang: key, Ours: true, Created: now.Add(-g.age)}
			if p.phase.Holds() {
				ps.NodeName = fmt.Sprint("n", p.node)
			}
			if p.phase == cluster.Releasing {
				ps.DeletedAt = now
			}
			s.Apply(ps)
		}
		s.Admit(key, g.admitted)
	}
	return s
}

// The oracle: Volcano's documentation read slowly, with maps and fractions. It takes from the engine the order in which gangs are asked, and nothing else.

type oracle struct {
	*world
	factor   *big.Rat
	tiers    [][]string
	wait     time.Duration // of the file
	reclaims bool
	let      map[string]amounts // who is let in and has not started, by name: what for
}

// started: of its pods as many as its minimum, and at least one, have a place, or had one.
func (g *gang) started() bool {
	n := 0
	for _, p := range g.pods {
		switch p.phase {
		case cluster.Running, cluster.Releasing, cluster.Succeeded, cluster.Failed:
			n++
		}
	}
	return n >= max(1, g.min)
}

// waits: a pod of it may be placed or has gates, or it has none yet.
func (g *gang) waits() bool {
	return len(g.pods) == 0 || slices.ContainsFunc(g.pods, func(p pod) bool { return p.phase == cluster.Pending || p.phase == cluster.Gated })
}

func (g *gang) sum(name string, phases ...cluster.Phase) (x int64) {
	for _, p := range g.pods {
		if slices.Contains(phases, p.phase) {
			x += p.needs[name]
		}
	}
	return x
}

// needs is what it is let in for: nothing where its pods are there, and too many of them are larger than any node.
func (o *oracle) needs(g *gang) amounts {
	living, ended, giants := 0, 0, 0
	for _, p := range g.pods {
		switch p.phase {
		case cluster.Succeeded:
			ended++
		case cluster.Running:
			living++
		case cluster.Pending:
			living++
			if !slices.ContainsFunc(o.nodes, func(n amounts) bool { return p.needs["cpu"] <= n["cpu"] && p.needs["gpu"] <= n["gpu"] }) {
				giants++
			}
		}
	}
	least := g.min
	if living < least {
		least = max(0, least-ended)
	}
	if living >= least && living-giants < least {
		return amounts{}
	}
	out := amounts{}
	for name, x := range g.asks {
		out[name] = max(0, x-g.sum(name, cluster.Gated))
	}
	return out
}

func (o *oracle) total(name string) (x int64) {
	for _, n := range o.nodes {
		x += n[name]
	}
	return x
}

// below are the leaves below a queue, and itself.
func (o *oracle) below(q string) (out []string) {
	out = []string{q}
	for _, c := range o.queues {
		if c.parent == q && c.name != q {
			out = append(out, o.below(c.name)...)
		}
	}
	return out
}

// sums of a resource over the gangs of queues: allocated, inqueue, elastic.
func (o *oracle) sums(queues []string, name string) (allocated, inqueue, elastic int64) {
	for i := range o.gangs {
		g := &o.gangs[i]
		if !slices.Contains(queues, g.queue) {
			continue
		}
		holds := g.sum(name, cluster.Running)
		allocated += holds
		if g.asks != nil {
			elastic += max(0, holds-g.asks[name])
		}
		running := 0
		for _, p := range g.pods {
			if p.phase == cluster.Running {
				running++
			}
		}
		switch let, is := o.let[g.name]; {
		case g.started() && running >= g.min && g.asks != nil:
			inqueue += max(0, o.needs(g)[name]-holds)
		case !g.started() && is:
			inqueue += let[name]
		}
	}
	return allocated, inqueue, elastic
}

func (o *oracle) queue(name string) *queue {
	return &o.queues[slices.IndexFunc(o.queues, func(q queue) bool { return q.name == name })]
}

// real is what a queue may have in all: flat, or in the tree.
func (o *oracle) real(q *queue, name string, tree bool) int64 {
	x := o.total(name)
	switch {
	case !tree:
		others := int64(0)
		for _, c := range o.queues[1:] {
			others += c.guarantee[name]
		}
		x = max(0, x-others) + q.guarantee[name]
	case q.parent != "":
		siblings := int64(0)
		for _, c := range o.queues {
			if c.parent == q.parent {
				siblings += c.guarantee[name]
			}
		}
		x = max(0, o.real(o.queue(q.parent), name, true)-siblings) + q.guarantee[name]
	}
	if most, bounded := q.capability[name]; bounded {
		x = min(x, most)
	}
	return x
}

// votes: 1 for, 0 abstains, -1 against.
func (o *oracle) vote(plugin string, g *gang) int {
	needs := o.needs(g)
	all := o.below("root")
	for _, name := range [...]string{"cpu", "gpu"} {
		if needs[name] == 0 {
			continue
		}
		switch plugin {
		case "overcommit":
			used := int64(0)
			for i := range o.gangs {
				used += o.gangs[i].sum(name, cluster.Running, cluster.Releasing)
			}
			_, inqueue, _ := o.sums(all, name)
			idle := new(big.Rat).Mul(o.factor, big.NewRat(o.total(name), 1))
			if idle.Sub(idle, big.NewRat(used, 1)).Cmp(big.NewRat(inqueue+needs[name], 1)) < 0 {
				return -1
			}
		case "proportion":
			allocated, inqueue, elastic := o.sums([]string{g.queue}, name)
			if needs[name]+allocated+inqueue-elastic > o.real(o.queue(g.queue), name, false) {
				return -1
			}
		}
	}
	if plugin == "capacity" {
		return o.capacity(g, needs)
	}
	if plugin != "sla" {
		return 1
	}
	switch wait := max(g.wait, 0); {
	case wait == 0 && o.wait == 0:
		return 0
	case wait == 0:
		wait = o.wait
		fallthrough
	default:
		if g.age >= wait {
			return 1
		}
		return 0
	}
}

// capacity asks each queue up to the root. One above the gang's own is no reason where the gang stays within what its queue deserves, and what others below hold beyond
// theirs makes room, if that can be reclaimed.
func (o *oracle) capacity(g *gang, needs amounts) int {
	own := o.queue(g.queue)
	within := true
	for name, x := range needs {
		allocated, inqueue, _ := o.sums([]string{own.name}, name)
		within = within && (x == 0 || x+allocated+inqueue <= own.deserved[name])
	}
	for q := own; ; q = o.queue(q.parent) {
		below := o.below(q.name)
		full, made := false, true
		for name, x := range needs {
			if x == 0 {
				continue
			}
			allocated, inqueue, elastic := o.sums(below, name)
			over := x + allocated + inqueue - elastic - o.real(q, name, true)
			full = full || over > 0
			back := int64(0)
			for _, leaf := range below {
				if leaf != own.name && len(o.below(leaf)) == 1 {
					a, _, _ := o.sums([]string{leaf}, name)
					back += max(0, a-o.queue(leaf).deserved[name])
				}
			}
			made = made && over <= back
		}
		if full && (q == own || !o.reclaims || !within || !made) {
			return -1
		}
		if q.parent == "" {
			return 1
		}
	}
}

// admits says whether a gang is let in: by whoever rejects, tier by tier, and by whoever permits.
func (o *oracle) admits(g *gang) bool {
	for _, tier := range o.tiers {
		permit := false
		for _, plugin := range tier {
			switch o.vote(plugin, g) {
			case -1:
				return false
			case 1:
				permit = true
			}
		}
		if permit {
			return true
		}
	}
	return true
}

// witness notes who is asked, in order.
type witness struct{ asked *[]string }

func (w witness) VoteAdmission(g *ledger.GangState, _ cluster.Resources) (policy.Vote, policy.Verdict) {
	*w.asked = append(*w.asked, g.Key.Name)
	return policy.Abstain, policy.Verdict{}
}

// oracleCases is the environment variable that says how many random clusters the oracles look at.
const oracleCases = "ORACLE_CASES"

func cases(t *testing.T, usual int) int {
	t.Helper()
	text := os.Getenv(oracleCases)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s is %q; it must be a number", oracleCases, text)
	}
	return n
}

// TestOracle: on random clusters the engine lets in whom the documentation lets in, asks everybody who has to be asked, and says of each other why not.
func TestOracle(t *testing.T) {
	t.Parallel()
	worlds := cases(t, 1500)
	for name, file := range map[string]struct {
		tiers    [][]engine.PluginUse
		factor   string
		wait     time.Duration
		reclaims bool
	}{
		"overcommit": {tiers: [][]engine.PluginUse{{{Name: "sla"}}, {{Name: "overcommit", Arguments: policy.Arguments{"overcommit-factor": "1.35"}}}}, factor: "1.35"},
		"proportion": {
			tiers:  [][]engine.PluginUse{{{Name: "sla", Arguments: policy.Arguments{"sla-waiting-time": "80m"}}, {Name: "proportion"}}, {{Name: "overcommit"}}},
			factor: "1.2", wait: 80 * time.Minute,
		},
		"capacity": {
			tiers:  [][]engine.PluginUse{{{Name: "capacity", Arguments: policy.Arguments{"enableHierarchy": "true", "reclaim": "true"}}}},
			factor: "1.2", reclaims: true,
		},
		"capacity, nothing reclaimed": {
			tiers:  [][]engine.PluginUse{{{Name: "overcommit"}, {Name: "capacity", Arguments: policy.Arguments{"enableHierarchy": "true"}}}},
			factor: "1.2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			known := builtin.Registry()
			known.Faces["volcano"].Plugins["witness"] = []policy.Factory{policy.Opens(func(*policy.View) witness { return witness{&asked} })}
			p := profile.BuiltIn()
			p.Actions = []string{"allocate"}
			p.Faces = []engine.Face{{Name: "volcano", Actions: []string{"enqueue", "allocate"}, Tiers: append([][]engine.PluginUse{{{Name: "witness"}}}, file.tiers...)}}
			e, err := engine.New(p, known)
			if err != nil {
				t.Fatal(err)
			}
			factor, _ := new(big.Rat).SetString(file.factor)
			var refused, in int
			for seed := range uint64(worlds) {
				w := draw(rand.New(rand.NewPCG(seed, 14)))
				o := &oracle{world: w, factor: factor, wait: file.wait, reclaims: file.reclaims, let: map[string]amounts{}}
				for _, tier := range file.tiers {
					var names []string
					for _, u := range tier {
						names = append(names, u.Name)
					}
					o.tiers = append(o.tiers, names)
				}
				asked = nil
				res := e.Run(context.Background(), w.store().Snapshot(now), func(engine.Plan) {})
				want, ask := map[string]bool{}, map[string]bool{}
				for i := range w.gangs {
					switch g := &w.gangs[i]; {
					case g.admitted && !g.started():
						o.let[g.name] = o.needs(g)
					case g.started() || !g.waits():
					case len(o.needs(g)) == 0 && (g.asks == nil || !o.sizes(g)):
						want[g.name] = true // unasked
					default:
						ask[g.name] = true
					}
				}
				for _, name := range asked {
					if !ask[name] {
						t.Fatalf("world %d: %s was asked about, or twice", seed, name)
					}
					delete(ask, name)
					g := &w.gangs[slices.IndexFunc(w.gangs, func(g gang) bool { return g.name == name })]
					if o.admits(g) {
						o.let[name], want[name] = o.needs(g), true
						in++
					} else {
						refused++
					}
				}
				for i := range w.gangs { // nobody was asked about: one that asks for the same in the same queue was refused before
					if g := &w.gangs[i]; ask[g.name] {
						if o.admits(g) || !slices.ContainsFunc(asked, func(name string) bool { return o.alike(g, name) && !want[name] }) {
							t.Fatalf("world %d: nobody was asked about %s, of %v", seed, g.name, asked)
						}
					}
				}
				for _, key := range res.Admitted {
					if !want[key.Name] {
						t.Fatalf("world %d: %s was let in, of %v\n%+v", seed, key.Name, asked, w)
					}
					delete(want, key.Name)
				}
				if len(want) > 0 {
					t.Fatalf("world %d: %v should have been let in, of %v\n%+v", seed, want, asked, w)
				}
			}
			if refused < worlds/10 || in < worlds/10 {
				t.Errorf("%d were let in, %d were not", in, refused)
			}
			t.Logf("%d were let in, %d were not", in, refused)
		})
	}
}

// alike says whether a gang asks for the same as the one of that name, in the same queue.
func (o *oracle) alike(g *gang, name string) bool {
	other := &o.gangs[slices.IndexFunc(o.gangs, func(g gang) bool { return g.name == name })]
	nothing := func(_ string, x int64) bool { return x == 0 } // which is as good as not said
	mine, its := o.needs(g), o.needs(other)
	maps.DeleteFunc(mine, nothing)
	maps.DeleteFunc(its, nothing)
	return other.queue == g.queue && other.wait == g.wait && maps.Equal(its, mine)
}

// sizes says whether nodes could hold the pods of a gang.
func (o *oracle) sizes(g *gang) bool {
	probe := *g
	probe.asks = amounts{"cpu": 1 << 40}
	return len(o.needs(&probe)) > 0
}
