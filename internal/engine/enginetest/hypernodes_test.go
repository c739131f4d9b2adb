package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/dialect"
)

// networkSite is some nodes, HyperNodes over them, and gangs, in words that the definition of Volcano's HyperNodes understands by itself.
type networkSite struct {
	cpus   []int
	hypers []hyperSite
	gangs  []gangSite
}

type hyperSite struct {
	tier  int
	nodes []int
	kids  []int // counted only if their tier is lower
}

type gangSite struct {
	pods, min int
	within    int // the highest tier, -1 for no topology, -2 for soft
	parts     int // each pod is in one of so many subgroups of size parts, which have the topology; 0 for none
	priority  int
	running   int // the node on which all of it runs; -1 for none
}

func drawNetwork(r *rand.Rand) *networkSite {
	s := &networkSite{}
	for range 3 + r.IntN(4) {
		s.cpus = append(s.cpus, 1+r.IntN(3))
	}
	for range 1 + r.IntN(5) {
		h := hyperSite{tier: r.IntN(4)}
		for range 1 + r.IntN(3) {
			h.nodes = append(h.nodes, r.IntN(len(s.cpus)))
		}
		for range r.IntN(3) {
			h.kids = append(h.kids, r.IntN(5))
		}
		s.hypers = append(s.hypers, h)
	}
	free := slices.Clone(s.cpus)
	for range 2 + r.IntN(4) {
		g := gangSite{pods: 1 + r.IntN(4), within: r.IntN(6) - 2, priority: 1 + r.IntN(3), running: -1}
		g.min = 1 + r.IntN(g.pods)
		if n := r.IntN(len(free)); r.IntN(2) == 0 && free[n] >= g.pods {
			free[n] -= g.pods
			g.running, g.within = n, -1
		} else if r.IntN(3) == 0 && g.within >= 0 {
			g.parts = 1 + r.IntN(2)
			g.pods, g.min = 2*g.parts, g.parts*(1+r.IntN(2))
		}
		s.gangs = append(s.gangs, g)
	}
	return s
}

// text is the site as a scenario.
func (s *networkSite) text() string {
	var b strings.Builder
	b.WriteString("A random network.\n-- options --\nvolcano\n-- yaml --\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: default}\n")
	for i, h := range s.hypers {
		fmt.Fprintf(&b, "---\napiVersion: topology.volcano.sh/v1alpha1\nkind: HyperNode\nmetadata: {name: h%d}\nspec:\n  tier: %d\n  members:\n", i, h.tier)
		for _, n := range h.nodes {
			fmt.Fprintf(&b, "  - {type: Node, selector: {exactMatch: {name: n%d}}}\n", n)
		}
		for _, k := range h.kids {
			fmt.Fprintf(&b, "  - {type: HyperNode, selector: {exactMatch: {name: h%d}}}\n", k)
		}
	}
	for i, g := range s.gangs {
		if g.parts > 0 {
			fmt.Fprintf(&b, "---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g%d, namespace: default}\nspec:\n  minMember: %d\n  subGroupPolicy: [{name: s, subGroupSize: %d, matchLabelKeys: [part], networkTopology: {mode: hard, highestTierAllowed: %d}}]\n",
				i, g.min, g.parts, g.within)
		}
	}
	b.WriteString("-- cluster --\n")
	for i, c := range s.cpus {
		fmt.Fprintf(&b, "node n%d cpu=%d\n", i, c)
	}
	for i, g := range s.gangs {
		if g.parts > 0 {
			for p := range g.pods {
				fmt.Fprintf(&b, "pod g%d-%d scheduler=volcano cpu=1 label=part=%d annotation=scheduling.k8s.io/group-name=g%d\n", i, p, p/g.parts, i)
			}
			continue
		}
		fmt.Fprintf(&b, "gang g%d volcano priority=%d pods=%d min=%d cpu=1", i, g.priority, g.pods, g.min)
		switch {
		case g.running >= 0:
			fmt.Fprintf(&b, " running=n%d", g.running)
		case g.within == -2:
			b.WriteString(" soft")
		case g.within >= 0:
			fmt.Fprintf(&b, " within=%d", g.within)
		}
		b.WriteString("\n")
	}
	b.WriteString("-- run --\nsettle\ncycle\nsettle\n-- want --\n")
	return b.String()
}

// holds says whether HyperNode h has a node, by the definition.
func (s *networkSite) holds(h, node int) bool {
	return slices.Contains(s.hypers[h].nodes, node) || slices.ContainsFunc(s.hypers[h].kids, func(k int) bool {
		return k < len(s.hypers) && s.hypers[k].tier < s.hypers[h].tier && s.holds(k, node)
	})
}

// within says whether some HyperNode of at most a tier has all the nodes; the whole cluster is one, a tier above all.
func (s *networkSite) within(tier int, nodes []int) bool {
	widest := 0
	for i, h := range s.hypers {
		widest = max(widest, h.tier)
		if h.tier <= tier && !slices.ContainsFunc(nodes, func(n int) bool { return !s.holds(i, n) }) {
			return true
		}
	}
	return tier > widest
}

// TestHyperNodesHold: on random clusters, whatever action decides and whoever is evicted or moved, the pods of a gang, or of a subgroup, with a hard network topology are on
// nodes of one HyperNode of at most the tier, and what is below its minimum does not run. Where HyperNodes nest, a gang that waits has no HyperNode with room for it.
func TestHyperNodesHold(t *testing.T) {
	t.Parallel()
	placed, waiting, could := 0, 0, 0
	for seed := range uint64(600) {
		s := drawNetwork(rand.New(rand.NewPCG(seed, 25)))
		sc, err := Parse("random", []byte(s.text()))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		b, err := NewEngine(&sc.Options, Mutation{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sc.Play(b); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, s.text())
		}
		pods, err := b.Pods()
		if err != nil {
			t.Fatal(err)
		}
		free := slices.Clone(s.cpus)
		at := map[string][]int{} // by gang, and by subgroup
		for _, p := range pods {
			n := 0
			if _, err := fmt.Sscanf(p.Spec.NodeName, "n%d", &n); err != nil {
				continue
			}
			free[n]--
			g := groupOf(p)
			at[g] = append(at[g], n)
			if part, ok := p.Labels["part"]; ok {
				at[g+"/"+part] = append(at[g+"/"+part], n)
			}
		}
		nested := true
		for name, text := range b.tell.Problems() { // order: whether there is any
			nested = nested && (!strings.HasPrefix(name, dialect.VolcanoHyperNodes.String()) || strings.Contains(text, "there is no"))
		}
		for i, g := range s.gangs {
			name := fmt.Sprintf("g%d", i)
			has := len(at[name])
			switch {
			case has > 0 && has < g.min:
				t.Fatalf("seed %d: gang %s runs with %d pods of %d\n%s", seed, name, has, g.min, s.text())
			case has > 0 && g.within >= 0 && g.parts == 0 && !s.within(g.within, at[name]):
				t.Fatalf("seed %d: gang %s is on nodes %v\n%s", seed, name, at[name], s.text())
			}
			for part := range 2 {
				of := at[fmt.Sprintf("%s/%d", name, part)]
				if len(of) > 0 && (len(of) != g.parts || !s.within(g.within, of)) {
					t.Fatalf("seed %d: subgroup %d of gang %s is on nodes %v\n%s", seed, part, name, of, s.text())
				}
			}
			if has > 0 {
				placed++
				continue
			}
			waiting++
			if !nested || g.within < 0 || g.parts > 0 {
				continue
			}
			could++
			for k, h := range s.hypers {
				room := 0
				for n := range s.cpus {
					if h.tier <= g.within && s.holds(k, n) {
						room += free[n]
					}
				}
				if room >= g.min {
					t.Fatalf("seed %d: gang %s waits, and HyperNode h%d has room for %d pods\n%s", seed, name, k, room, s.text())
				}
			}
		}
	}
	t.Attr("gangs", fmt.Sprintf("%d placed, %d wait, of %d of these every HyperNode was looked at", placed, waiting, could))
	if placed < 300 || could < 30 {
		t.Errorf("%d gangs are placed, %d wait, %d were looked at", placed, waiting, could)
	}
}
