package hypernodes

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
)

func node(name, rack string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rack": rack}}}
}

// hyper makes a HyperNode of members such as "Node:exact=n1", "Node:regex=^n" and "Node:rack=1".
func hyper(name string, tier int, members ...string) *topo.HyperNode {
	h := &topo.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: topo.HyperNodeSpec{Tier: tier}}
	for _, text := range members {
		kind, sel, _ := strings.Cut(text, ":")
		how, what, _ := strings.Cut(sel, "=")
		m := topo.MemberSpec{Type: topo.MemberType(kind)}
		switch how {
		case "exact":
			m.Selector.ExactMatch = &topo.ExactMatch{Name: what}
		case "regex":
			m.Selector.RegexMatch = &topo.RegexMatch{Pattern: what}
		default:
			m.Selector.LabelMatch = &metav1.LabelSelector{MatchLabels: map[string]string{how: what}}
		}
		h.Spec.Members = append(h.Spec.Members, m)
	}
	return h
}

// TestTopology: where nodes are, worked out by hand, and what is told.
func TestTopology(t *testing.T) {
	t.Parallel()
	nodes := []*corev1.Node{node("n1", "1"), node("n2", "1"), node("n3", "2"), node("n4", "2"), node("n5", "3")}
	var tiers []*topo.HyperNode
	for i := range 33 {
		tiers = append(tiers, hyper(fmt.Sprintf("t%02d", i), i, "Node:exact=n1"))
	}
	for _, c := range []struct {
		name   string
		hypers []*topo.HyperNode
		levels string // the widest first
		where  string
		wrong  string
	}{
		{"none", nil, "1", "", ""},
		{
			"two tiers",
			[]*topo.HyperNode{hyper("a", 1, "Node:exact=n1", "Node:exact=n2"), hyper("b", 1, "Node:regex=^n[34]$"), hyper("s", 2, "HyperNode:exact=a", "HyperNode:exact=b")},
			"3 2 1", "n1=s/a n2=s/a n3=s/b n4=s/b", "",
		},
		{
			"a tier is skipped",
			[]*topo.HyperNode{hyper("a", 1, "Node:rack=1"), hyper("m", 2, "Node:rack=2"), hyper("top", 5, "HyperNode:regex=^(a|m)$", "Node:exact=n5")},
			"6 5 2 1", "n1=top/a/a n2=top/a/a n3=top/m n4=top/m n5=top", "",
		},
		{
			"all by labels of nodes",
			[]*topo.HyperNode{hyper("a", 1, "Node:rack=1"), hyper("all", 2, "Node:regex=.")},
			"3 2 1", "n1=all/a n2=all/a n3=all n4=all n5=all", "",
		},
		{"nothing above", []*topo.HyperNode{hyper("a", 1, "Node:rack=1"), hyper("z", 3, "Node:rack=2")}, "4 3 1", "n1=a/a n2=a/a n3=z n4=z", ""},
		{
			"twice in a tier",
			[]*topo.HyperNode{hyper("b", 1, "Node:rack=1"), hyper("a", 1, "Node:exact=n2", "Node:exact=n3")},
			"2 1", "n1=b n2=a n3=a",
			"b: node n2 is in HyperNode a of tier 1 already, and counts there",
		},
		{
			"two parents",
			[]*topo.HyperNode{hyper("a", 1, "Node:rack=1"), hyper("p", 2, "HyperNode:exact=a"), hyper("q", 2, "HyperNode:exact=a")},
			"3 2 1", "n1=p/a n2=p/a",
			"q: node n1 is in HyperNode p of tier 2 already, and counts there",
		},
		{
			"divided",
			[]*topo.HyperNode{hyper("a", 1, "Node:rack=1"), hyper("p", 2, "Node:exact=n1")},
			"3 2 1", "n1=p/a n2=a/a",
			"a: its nodes n1 and n2 are in different HyperNodes of higher tiers: pods that must be in it are in one part of it",
		},
		{
			"a cycle",
			[]*topo.HyperNode{hyper("a", 1, "HyperNode:exact=b", "Node:exact=n1"), hyper("b", 1, "HyperNode:exact=a")},
			"2 1", "n1=a",
			"a: spec.members[0]: HyperNode b is of tier 1, and must be of one below 1; b: spec.members[0]: HyperNode a is of tier 1, and must be of one below 1",
		},
		{"its own", []*topo.HyperNode{hyper("a", 1, "HyperNode:exact=a")}, "2 1", "", "a: spec.members[0]: HyperNode a is of tier 1, and must be of one below 1"},
		{
			"missing",
			[]*topo.HyperNode{hyper("a", 1, "Node:exact=gone", "Node:exact=n1"), hyper("b", 2, "HyperNode:exact=nobody")},
			"3 2 1", "n1=a/a",
			`a: spec.members[0]: there is no Node "gone"; b: spec.members[0]: there is no HyperNode "nobody"`,
		},
		{
			"a long pattern",
			[]*topo.HyperNode{hyper("a", 1, "Node:regex="+strings.Repeat("n", 10_000)), hyper("b", 1, "Node:exact=n1")},
			"2 1", "n1=b",
			"a: spec.members[0]: a pattern has 10000 bytes, of at most 4096",
		},
		{
			"33 tiers", tiers, "33 31 30 29 28 27 26 25 24 23 22 21 20 19 18 17 16 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0",
			"n1=t31/t30/t29/t28/t27/t26/t25/t24/t23/t22/t21/t20/t19/t18/t17/t16/t15/t14/t13/t12/t11/t10/t09/t08/t07/t06/t05/t04/t03/t02/t01/t00",
			"t32: spec.tier is 32; of more than 32 tiers the lowest count",
		},
	} {
		tree := New()
		for _, n := range nodes {
			tree.NodeSeen(n, false)
		}
		for _, h := range c.hypers {
			tree.HyperSeen(h, false)
		}
		st, wrong := tree.Topology()
		var levels, where, told []string
		for _, l := range st.Levels {
			levels = append(levels, fmt.Sprint(l.Tier))
		}
		for _, name := range slices.Sorted(maps.Keys(st.Declared)) {
			where = append(where, name+"="+strings.Join(st.Declared[name], "/"))
		}
		for _, name := range slices.Sorted(maps.Keys(wrong)) {
			told = append(told, name+": "+wrong[name])
		}
		if got := strings.Join(levels, " "); got != c.levels {
			t.Errorf("%s: tiers %s, want %s", c.name, got, c.levels)
		}
		if got := strings.Join(where, " "); got != c.where {
			t.Errorf("%s: nodes are in\n%s\nwant\n%s", c.name, got, c.where)
		}
		if got := strings.Join(told, "; "); got != c.wrong {
			t.Errorf("%s: told\n%s\nwant\n%s", c.name, got, c.wrong)
		}
	}
}

// TestNames: a tier's name is shown where all of the tier agree on it, and stands for the highest tier that has it.
func TestNames(t *testing.T) {
	t.Parallel()
	tree := New()
	for i, name := range []string{"leaf", "", "leaf", "spine", "other", "leaf"} {
		h := hyper(fmt.Sprint("h", i), 1+i/3)
		h.Spec.TierName = name
		tree.HyperSeen(h, false)
	}
	st, _ := tree.Topology()
	if got := fmt.Sprint(st.Levels); got != "[{tier 3  3} {tier 2  2} {tier 1 leaf 1}]" {
		t.Errorf("levels %s", got)
	}
	if got := fmt.Sprint(tree.Tiers()); got != "map[leaf:2 other:2 spine:2]" {
		t.Errorf("tiers %s", got)
	}
}

// TestSelections: what is selected is kept as nodes and HyperNodes come and go, and no longer than it is needed.
func TestSelections(t *testing.T) {
	t.Parallel()
	tree := New()
	tree.NodeSeen(node("n1", "1"), false)
	tree.HyperSeen(hyper("a", 1, "Node:regex=^n", "Node:rack=2"), false)
	tree.HyperSeen(hyper("b", 2, "HyperNode:regex=^a"), false)
	count := func() int { m, _ := tree.Members(); return len(m["b"]) }
	if n := count(); n != 1 || len(tree.selections) != 3 {
		t.Errorf("%d nodes by %d selections", n, len(tree.selections))
	}
	tree.NodeSeen(node("n2", "1"), false)
	tree.NodeSeen(node("m", "2"), false)
	tree.NodeSeen(node("n1", ""), true)
	if n := count(); n != 2 {
		t.Errorf("%d nodes after changes", n)
	}
	tree.HyperSeen(hyper("a", 1, "Node:exact=n2"), false)
	if n := count(); n != 1 || len(tree.selections) != 1 {
		t.Errorf("%d nodes by %d selections", n, len(tree.selections))
	}
}

// holds says, slowly and by the definition, whether a HyperNode has a node: itself, or through members of lower tiers.
func holds(all []*topo.HyperNode, h *topo.HyperNode, n *corev1.Node) bool {
	matches := func(m *topo.MemberSpec, name string) bool {
		switch s := m.Selector; {
		case s.ExactMatch != nil:
			return s.ExactMatch.Name == name
		case s.RegexMatch != nil:
			ok, err := regexp.MatchString(s.RegexMatch.Pattern, name)
			return ok && err == nil
		}
		return false
	}
	for i := range h.Spec.Members {
		m := &h.Spec.Members[i]
		if m.Type == topo.MemberTypeNode {
			if matches(m, n.Name) || m.Selector.LabelMatch != nil && n.Labels["rack"] == m.Selector.LabelMatch.MatchLabels["rack"] {
				return true
			}
			continue
		}
		for _, o := range all {
			if o.Spec.Tier < h.Spec.Tier && matches(m, o.Name) && holds(all, o, n) {
				return true
			}
		}
	}
	return false
}

// TestOracle: on random trees each domain of a tier lies within one HyperNode of at most that tier, by the slow definition; where HyperNodes nest it is all of one; and a node
// is in none only where no HyperNode of at most that tier has it.
func TestOracle(t *testing.T) {
	t.Parallel()
	nested := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 14))
		tree := New()
		var nodes []*corev1.Node
		var all []*topo.HyperNode
		for i := range 2 + r.IntN(7) {
			nodes = append(nodes, node(fmt.Sprint("n", i), fmt.Sprint(r.IntN(3))))
		}
		for i := range r.IntN(7) {
			var members []string
			for range 1 + r.IntN(3) {
				members = append(members, []string{
					fmt.Sprint("Node:exact=n", r.IntN(9)), fmt.Sprint("Node:regex=^n[", r.IntN(4), "-", 4+r.IntN(4), "]$"), fmt.Sprint("Node:rack=", r.IntN(3)),
					fmt.Sprint("HyperNode:exact=h", r.IntN(7)), fmt.Sprint("HyperNode:regex=^h[", r.IntN(3), "-", 3+r.IntN(3), "]$"),
				}[r.IntN(5)])
			}
			all = append(all, hyper(fmt.Sprint("h", i), r.IntN(5), members...))
		}
		store := cluster.NewStore(cluster.Options{})
		for _, i := range r.Perm(len(nodes)) {
			tree.NodeSeen(nodes[i], false)
			store.Apply(cluster.NodeState{Name: nodes[i].Name})
		}
		for _, i := range r.Perm(len(all)) {
			tree.HyperSeen(all[i], false)
		}
		st, wrong := tree.Topology()
		store.Apply(st)
		snap := store.Snapshot(cluster.Instant{})
		top := snap.Topology(TopologyName)
		members, _ := tree.Members()
		for _, h := range all {
			for _, n := range nodes {
				if got, want := members[h.Name][n.Name], holds(all, h, n); got != want {
					t.Fatalf("seed %d: HyperNode %s has %s: %v, want %v", seed, h.Name, n.Name, got, want)
				}
			}
		}
		clean := !slices.ContainsFunc(slices.Collect(maps.Values(wrong)), func(text string) bool { return !strings.Contains(text, "there is no") })
		if clean && len(all) > 1 {
			nested++
		}
		for tier := range 5 {
			level, ok := top.LevelByName(cluster.TierLevel(tier))
			if !ok || level == 0 {
				continue // no HyperNode is so low, or all nodes are one
			}
			together := map[cluster.DomainID][]*corev1.Node{}
			for _, n := range nodes {
				d := top.DomainOf(snap.NodeByName(n.Name).ID, level)
				if d != cluster.None {
					together[d] = append(together[d], n)
				} else if slices.ContainsFunc(all, func(h *topo.HyperNode) bool { return h.Spec.Tier <= tier && holds(all, h, n) }) {
					t.Fatalf("seed %d: %s is in no domain of tier %d", seed, n.Name, tier)
				}
			}
			for d, in := range together { // order: each on its own
				if !slices.ContainsFunc(all, func(h *topo.HyperNode) bool {
					return h.Spec.Tier <= tier && !slices.ContainsFunc(in, func(n *corev1.Node) bool { return !holds(all, h, n) })
				}) {
					t.Fatalf("seed %d: domain %s of tier %d lies within no HyperNode", seed, top.Path(d), tier)
				}
			}
			for _, h := range all {
				if !clean || h.Spec.Tier > tier {
					continue
				}
				parts := map[cluster.DomainID]bool{}
				for _, n := range nodes {
					if holds(all, h, n) {
						parts[top.DomainOf(snap.NodeByName(n.Name).ID, level)] = true
					}
				}
				if len(parts) > 1 {
					t.Fatalf("seed %d: HyperNode %s is in %d parts at tier %d, and nothing is told", seed, h.Name, len(parts), tier)
				}
			}
		}
	}
	if nested < 100 {
		t.Errorf("%d trees were without fault", nested)
	}
}

// TestMany: 5,000 nodes that one HyperNode matches, below and above others, are looked at in one pass.
func TestMany(t *testing.T) {
	t.Parallel()
	tree := New()
	for i := range 5000 {
		tree.NodeSeen(node(fmt.Sprintf("n%04d", i), fmt.Sprint(i%100)), false)
	}
	for i := range 100 {
		tree.HyperSeen(hyper(fmt.Sprintf("r%02d", i), 1, fmt.Sprint("Node:rack=", i)), false)
	}
	tree.HyperSeen(hyper("spine", 2, "HyperNode:regex=^r"), false)
	tree.HyperSeen(hyper("all", 3, "Node:regex=^n[0-9]{4}$"), false)
	st, wrong := tree.Topology()
	if got := strings.Join(st.Declared["n4999"], "/"); len(st.Declared) != 5000 || got != "all/spine/r99" || len(wrong) > 0 {
		t.Errorf("%d nodes, the last in %s; %v", len(st.Declared), got, wrong)
	}
}

// FuzzTopology: whatever a HyperNode says, the tree stands, and what is beside it too.
func FuzzTopology(f *testing.F) {
	f.Add(1, "Node:regex=^n", "HyperNode:exact=h")
	f.Add(0, "Node:regex=(", "Other:rack=1")
	f.Add(1<<62, "HyperNode:regex=.*", "Node:rack=")
	f.Fuzz(func(t *testing.T, tier int, a, b string) {
		tree := New()
		tree.NodeSeen(node("n1", "1"), false)
		tree.NodeSeen(node("n2", "2"), false)
		tree.HyperSeen(hyper("h", max(0, tier), a, b), false)
		tree.HyperSeen(hyper("beside", 1, "Node:exact=n1"), false)
		st, _ := tree.Topology()
		for name, at := range st.Declared { // order: each on its own
			if len(at) == 0 || len(at) >= len(st.Levels) || slices.Contains(at, "") {
				t.Errorf("%s is in %q of levels %v", name, at, st.Levels)
			}
		}
	})
}
