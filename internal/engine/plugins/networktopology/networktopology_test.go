package networktopology_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/networktopology"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// site is nodes, each in HyperNodes of some of two tiers, one above the other, with CPUs and memory that they have and that are used; and a gang, of which a pod waits.
type site struct {
	low, high int // the two tiers
	nodes     []spot
	gang      bool // it asks for a topology
	members   []int
	cpu, mem  int64
	args      policy.Arguments

	weight, fading, cpuWeight, memWeight float64 // as args say
}

type spot struct {
	low, high                 string // HyperNodes, "" for none
	cpu, mem, usedCPU, usedMB int64
}

// outcome is what the plugin says: of each node, of the pod; and of each HyperNode, of the pod's gang.
type outcome struct {
	nodes   []int64
	domains map[string]int64
}

func amounts(cpu, mem int64) []cluster.Quantity {
	return []cluster.Quantity{{Name: "cpu", Value: cpu}, {Name: "memory", Value: mem}}
}

// ask has the engine open the plugin on the site.
func (s *site) ask(t *testing.T) outcome {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	top := max(s.low, s.high) + 1
	topology := cluster.TopologyState{Name: networktopology.Tree, Declared: map[string][]string{}}
	for _, tier := range []int{top, s.high, s.low} {
		topology.Levels = append(topology.Levels, cluster.Level{Label: cluster.TierLevel(tier), Tier: tier})
	}
	key := cluster.Key{Face: "volcano", Namespace: "x", Name: "g"}
	for i, n := range s.nodes {
		name := fmt.Sprintf("n%d", i)
		switch { // a HyperNode without one above stands for that too
		case n.low != "" && n.high != "":
			topology.Declared[name] = []string{n.high, n.low}
		case n.low != "":
			topology.Declared[name] = []string{n.low, n.low}
		case n.high != "":
			topology.Declared[name] = []string{n.high}
		}
		store.Apply(
			cluster.NodeState{Name: name, UID: name, Allocatable: append(amounts(n.cpu, n.mem), cluster.Quantity{Name: "pods", Value: 100})},
			cluster.PodState{UID: "on" + name, Name: "on" + name, Phase: cluster.Running, NodeName: name, Requests: amounts(n.usedCPU, n.usedMB)},
		)
	}
	store.Apply(topology)
	sets := cluster.FlatTree(1)
	if s.gang {
		sets[0].Near = cluster.Constraint{Topology: networktopology.Tree, Preferred: cluster.Narrowest}
	}
	store.Apply(
		cluster.QueueState{Name: "volcano:q", UID: "q"},
		cluster.GangState{Key: key, UID: "g", Queue: "volcano:q", Preemptible: true, Sets: sets},
		cluster.PodState{UID: "p", Namespace: "x", Name: "p", Ours: true, Gang: key, Requests: amounts(s.cpu, s.mem)},
	)
	for k, i := range s.members {
		name := fmt.Sprintf("member%d", k)
		store.Apply(cluster.PodState{UID: name, Namespace: "x", Name: name, Ours: true, Gang: key, Phase: cluster.Running, NodeName: fmt.Sprintf("n%d", i)})
	}
	out := outcome{domains: map[string]int64{}}
	known, prof := builtin.Registry(), profile.BuiltIn()
	prof.Actions = nil
	prof.Tiers = append(prof.Tiers, []engine.PluginUse{{Name: "probe"}})
	known.Plugins["probe"] = []policy.Factory{policy.Opens(func(v *policy.View) *probe {
		return &probe{func() {
			open, _, err := networktopology.Factory.New(s.args)
			if err != nil {
				t.Fatal(err)
			}
			i, snap := open(v), v.Snapshot()
			out.nodes = make([]int64, len(s.nodes))
			snap.EachPod(func(p *cluster.Pod) {
				if p.UID != "p" {
					return
				}
				c := i.(policy.CompanyScore)
				if kind := c.Kind(p); kind > 0 {
					scores, _ := c.Company(kind)
					for k := range s.nodes {
						out.nodes[k] = scores[snap.NodeByName(fmt.Sprintf("n%d", k)).ID]
					}
				}
				q := &policy.SetQuery{Gang: v.Gang(p.Gang), Pods: []policy.Kind{{Class: p.Class, Count: 2}}}
				t := snap.Topology(networktopology.Tree)
				for d := range cluster.DomainID(t.MaxDomainID()) {
					if dom := t.Domain(d); dom != nil && dom.Level > 0 {
						out.domains[dom.Value] = i.(policy.DomainScore).ScoreDomain(q, t, d)
					}
				}
			})
		}}
	})}
	e, err := engine.New(prof, known)
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), store.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
	return out
}

// probe asks when all else is done.
type probe struct{ ask func() }

func (p *probe) Close() any {
	p.ask()
	return nil
}

// TestTable: the formulas by numbers worked out by hand. a (n0, n1) and b (n2) are of tier 1, below s of tier 2; n3 is in s alone, n4 in none.
func TestTable(t *testing.T) {
	t.Parallel()
	nodes := []spot{
		{"a", "s", 4000, 100, 1000, 20}, {"a", "s", 4000, 100, 2000, 0}, {"b", "s", 8000, 100, 7000, 80}, {"", "s", 4000, 100, 0, 0}, {"", "", 4000, 100, 0, 0},
	}
	const point = 1_000_000_000
	for name, c := range map[string]struct { // order: each for itself
		s       site
		nodes   string // points
		domains string
	}{
		// Two pods: a 3000+2000 of 8000 CPU, 20+20 of 200 memory: (62.5 + 20) / 2. b 9000 of 8000: 0. s 12000 of 20000, 120 of 400: (60 + 30) / 2.
		"domains": {site{gang: true, cpu: 1000, mem: 10}, "0 0 0 0 0", "a=41.25 b=0 s=45"},
		// CPU thrice: (3·62.5 + 20) / 4, and (3·60 + 30) / 4.
		"domains by weight": {site{gang: true, cpu: 1000, mem: 10, args: policy.Arguments{"hypernode.binpack.cpu": "3"}}, "0 0 0 0 0", "a=51.875 b=0 s=52.5"},
		// The gang is in a: the tiers are 1 to 3, s is of tier 2.
		"close to a": {site{gang: true, cpu: 1000, members: []int{0}}, "100 100 50 50 0", "a=62.5 b=0 s=60"},
		// It is in s: all below have that in common, and n3 is in the very same.
		"close to s":          {site{gang: true, cpu: 1000, members: []int{1, 2}}, "50 50 50 100 0", "a=62.5 b=0 s=60"},
		"twice":               {site{gang: true, cpu: 1000, members: []int{0}, args: policy.Arguments{"weight": "2"}}, "200 200 100 100 0", "a=62.5 b=0 s=60"},
		"in all of the world": {site{gang: true, cpu: 1000, members: []int{0, 4}}, "0 0 0 0 0", "a=62.5 b=0 s=60"},
		// One pod: a 4000 of 8000, b 8000 of 8000, s 11000 of 20000, times 0.8.
		"ordinary":       {site{cpu: 1000}, "94 94 144 44 100", "a=62.5 b=0 s=60"},
		"fading is less": {site{cpu: 1000, args: policy.Arguments{"hypernode.binpack.normal-pod.fading": "0.5"}}, "77.5 77.5 127.5 27.5 100", "a=62.5 b=0 s=60"},
		"ordinary off":   {site{cpu: 1000, args: policy.Arguments{"hypernode.binpack.normal-pod.enable": "false"}}, "0 0 0 0 0", "a=62.5 b=0 s=60"},
		// More than b has: 0 of it; s 12000 of 20000.
		"overflow": {site{cpu: 2000}, "110.5 110.5 48 48 100", "a=87.5 b=0 s=70"},
	} {
		c.s.nodes, c.s.low, c.s.high = nodes, 1, 2
		got := c.s.ask(t)
		var at []string
		for _, x := range got.nodes {
			at = append(at, fmt.Sprint(float64(x)/point))
		}
		if text := strings.Join(at, " "); text != c.nodes {
			t.Errorf("%s: nodes %s, want %s", name, text, c.nodes)
		}
		var of []string
		for d, x := range got.domains { // order: sorted below
			of = append(of, fmt.Sprintf("%s=%v", d, float64(x)/point))
		}
		slices.Sort(of)
		if text := strings.Join(of, " "); text != c.domains {
			t.Errorf("%s: HyperNodes %s, want %s", name, text, c.domains)
		}
	}
}

// literal is the description, word by word.
func (s *site) literal() (nodes []float64, hypers map[string]float64) {
	type hyper struct {
		name string
		tier int
		in   []int
	}
	var all []hyper
	add := func(name string, tier, node int) {
		for i := range all {
			if all[i].name == name {
				all[i].in = append(all[i].in, node)
				return
			}
		}
		all = append(all, hyper{name, tier, []int{node}})
	}
	for i, n := range s.nodes {
		if n.low != "" {
			add(n.low, s.low, i)
		}
		if n.high != "" {
			add(n.high, s.high, i)
		}
	}
	filled := func(h hyper, count float64) float64 {
		cpu, mem, usedCPU, usedMem := 0.0, 0.0, count*float64(s.cpu), count*float64(s.mem)
		for _, i := range h.in {
			n := s.nodes[i]
			cpu, mem, usedCPU, usedMem = cpu+float64(n.cpu), mem+float64(n.mem), usedCPU+float64(n.usedCPU), usedMem+float64(n.usedMB)
		}
		sum, weights := 0.0, 0.0
		if s.cpu > 0 && s.cpuWeight > 0 {
			if usedCPU > cpu {
				return 0
			}
			sum, weights = sum+s.cpuWeight*usedCPU/cpu, weights+s.cpuWeight
		}
		if s.mem > 0 && s.memWeight > 0 {
			if usedMem > mem {
				return 0
			}
			sum, weights = sum+s.memWeight*usedMem/mem, weights+s.memWeight
		}
		if weights == 0 {
			return 0
		}
		return sum / weights
	}
	hypers = map[string]float64{}
	for _, h := range all {
		hypers[h.name] = 100 * filled(h, 2)
	}
	lowest, highest := s.low, max(s.low, s.high)+1
	own := func(node int) (name string) { // the HyperNode of the lowest tier
		if n := s.nodes[node]; n.low != "" {
			return n.low
		}
		return s.nodes[node].high
	}
	has := func(h hyper, node int) bool { return slices.Contains(h.in, node) }
	for node := range s.nodes {
		score := 0.0
		switch {
		case s.gang:
			if len(s.members) == 0 || own(node) == "" {
				break
			}
			// The allocated HyperNode is the lowest that has all members; the common one the lowest that has the node besides.
			allocated, common, same := "", highest, false
			tierOf := highest
			for _, h := range all {
				if !slices.ContainsFunc(s.members, func(m int) bool { return !has(h, m) }) {
					if h.tier < tierOf {
						allocated, tierOf = h.name, h.tier
					}
					if has(h, node) && h.tier < common {
						common = h.tier
					}
				}
			}
			same = allocated != "" && own(node) == allocated
			if score = float64(highest-common) / float64(highest-lowest); same {
				score = 1
			}
		case own(node) == "":
			score = 1
		default:
			for _, h := range all {
				if has(h, node) {
					score += math.Pow(s.fading, float64(max(0, h.tier-1))) * filled(h, 1)
				}
			}
		}
		nodes = append(nodes, 100*s.weight*score)
	}
	return nodes, hypers
}

// TestOracle: on random sites the plugin says what the description says.
func TestOracle(t *testing.T) {
	t.Parallel()
	for i := range 1500 {
		r := rand.New(rand.NewPCG(41, uint64(i)))
		s := site{low: r.IntN(3), gang: r.IntN(2) == 0, cpu: int64(r.IntN(4)) * 500, mem: int64(r.IntN(3)) * 10}
		s.high = s.low + 1 + r.IntN(2)
		s.weight, s.fading, s.cpuWeight, s.memWeight = float64(r.IntN(3)), float64(r.IntN(11))/10, float64(r.IntN(3)), float64(r.IntN(3))
		s.args = policy.Arguments{
			"weight": fmt.Sprint(s.weight), "hypernode.binpack.normal-pod.fading": fmt.Sprint(s.fading), "hypernode.binpack.cpu": fmt.Sprint(s.cpuWeight),
			"hypernode.binpack.memory": fmt.Sprint(s.memWeight),
		}
		above := map[string]string{}
		for _, low := range []string{"a", "b", "c"} {
			above[low] = [...]string{"", "s", "t"}[r.IntN(3)]
		}
		for range 2 + r.IntN(6) {
			n := spot{cpu: int64(1+r.IntN(4)) * 1000, mem: int64(1+r.IntN(4)) * 25}
			n.usedCPU, n.usedMB = r.Int64N(n.cpu+1), r.Int64N(n.mem+1)
			if n.low = [...]string{"", "a", "b", "c"}[r.IntN(4)]; n.low != "" {
				n.high = above[n.low]
			} else {
				n.high = [...]string{"", "s", "t"}[r.IntN(3)]
			}
			s.nodes = append(s.nodes, n)
		}
		for range r.IntN(4) {
			s.members = append(s.members, r.IntN(len(s.nodes)))
		}
		got := s.ask(t)
		nodes, hypers := s.literal()
		for k, want := range nodes {
			if off := float64(got.nodes[k])/1e9 - want; math.Abs(off) > 1e-3 {
				t.Fatalf("site %d, node %d: %v, want %v: %+v", i, k, float64(got.nodes[k])/1e9, want, s)
			}
		}
		for name, want := range hypers { // order: complaints
			if off := float64(got.domains[name])/1e9 - want; math.Abs(off) > 1e-3 {
				t.Fatalf("site %d, HyperNode %s: %v, want %v: %+v", i, name, float64(got.domains[name])/1e9, want, s)
			}
		}
	}
}

// TestArguments: what cannot be read is refused, with the argument and the rule; what is not known is reported.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, value, want string }{
		{"weight", "-1", `argument "weight" is "-1"; it must be a whole number from 0 to 1000`},
		{"hypernode.binpack.cpu", "1.5", `argument "hypernode.binpack.cpu" is "1.5"`},
		{"hypernode.binpack.memory", "1001", `argument "hypernode.binpack.memory" is "1001"`},
		{"hypernode.binpack.resources", strings.Repeat("x,", 1) + manyNames(), `argument "hypernode.binpack.resources" names more than 32 resources`},
		{"hypernode.binpack.normal-pod.enable", "perhaps", `argument "hypernode.binpack.normal-pod.enable" is "perhaps"; it must be true or false`},
		{"hypernode.binpack.normal-pod.fading", "1.1", `argument "hypernode.binpack.normal-pod.fading" is "1.1"; it must be a number from 0 to 1`},
		{"hypernode.binpack.normal-pod.fading", "1e-5000000", `argument "hypernode.binpack.normal-pod.fading"`},
		{"hypernode.gradient.evict.max-hypernodes", "many", `argument "hypernode.gradient.evict.max-hypernodes" is "many"`},
		{"hypernode.binpack.resources", "example.com/nic", ""},
	} {
		_, unknown, err := networktopology.Factory.New(policy.Arguments{c.name: c.value, "whim": "1"})
		if said := fmt.Sprint(err); err != nil && c.want == "" || !strings.Contains(said, c.want) && c.want != "" || err == nil && fmt.Sprint(unknown) != "[whim]" {
			t.Errorf("%s=%s: %v, %v", c.name, c.value, err, unknown)
		}
	}
}

func manyNames() string {
	var names []string
	for i := range 40 {
		names = append(names, fmt.Sprintf("example.com/r%d", i))
	}
	return strings.Join(names, ",")
}
