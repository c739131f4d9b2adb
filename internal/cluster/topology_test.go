package cluster

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestDomainTree: a tree that was kept up to date is the one that is made afresh, and snapshots keep theirs.
func TestDomainTree(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := NewStore(Options{})
		last := map[string]Event{}
		do := func(key string, e Event) { s.Apply(e); last[key] = e }
		var snaps []*Snapshot
		var texts []string
		for range 40 {
			name := fmt.Sprintf("n%d", r.IntN(6))
			switch r.IntN(9) {
			case 0:
				do(name, NodeGone{Name: name})
			case 1:
				do("dc", TopologyState{Name: "dc", Levels: []Level{{Label: "zone"}, {Label: "rack", Alias: fmt.Sprint("alias", r.IntN(2))}}})
			case 2:
				do("flat", TopologyState{Name: "flat", Levels: []Level{{Label: []string{"zone", "rack"}[r.IntN(2)]}}})
			case 3:
				if r.IntN(3) == 0 {
					do("dc", TopologyGone{Name: "dc"})
				}
			case 5:
				st := TopologyState{Name: "declared", Levels: []Level{{Label: "tier 4", Tier: 4}, {Label: "tier 3", Tier: 3}, {Label: "tier 1", Tier: 1}}, Declared: map[string][]string{}}
				for i := range 6 {
					at := []string{fmt.Sprint("h", r.IntN(2)), fmt.Sprint("l", r.IntN(2))}
					st.Declared[fmt.Sprintf("n%d", i)] = at[:r.IntN(3)]
				}
				do("declared", st)
			case 4:
				snaps = append(snaps, s.Snapshot(Instant{}))
				texts = append(texts, trees(snaps[len(snaps)-1]))
			default:
				if r.IntN(5) == 0 {
					do(name, NodeState{Name: name})
					continue
				}
				labels := map[string]string{"other": fmt.Sprint(r.IntN(2))}
				for _, l := range [...]string{"zone", "rack"} {
					if r.IntN(5) > 0 {
						labels[l] = fmt.Sprint(r.IntN(3))
					}
				}
				do(name, NodeState{Name: name, Labels: labels})
			}
		}
		fresh := NewStore(Options{})
		for _, e := range last { // order: does not matter to the state
			fresh.Apply(e)
		}
		now := s.Snapshot(Instant{})
		if diff := cmp.Diff(trees(fresh.Snapshot(Instant{})), trees(now)); diff != "" {
			t.Fatalf("seed %d: tree made afresh (-) and kept up to date (+):\n%s", seed, diff)
		}
		if diff := cmp.Diff(trees(now), trees(Fork(now, Options{}).Snapshot(Instant{}))); diff != "" {
			t.Fatalf("seed %d: tree and that of a fork:\n%s", seed, diff)
		}
		for i, snap := range snaps {
			if diff := cmp.Diff(texts[i], trees(snap)); diff != "" {
				t.Fatalf("seed %d: an old snapshot changed:\n%s", seed, diff)
			}
		}
	}
}

// trees prints the domains of both topologies, and checks that they and their nodes say the same.
func trees(s *Snapshot) string {
	var b strings.Builder
	for _, name := range [...]string{"dc", "flat", "declared"} {
		t := s.Topology(name)
		if t == nil {
			continue
		}
		fmt.Fprintln(&b, name, t.Levels)
		var walk func(d DomainID)
		walk = func(d DomainID) {
			dom := t.Domain(d)
			fmt.Fprintf(&b, "%d %s:", dom.Level, t.Path(d))
			for _, n := range dom.Nodes {
				fmt.Fprint(&b, " ", s.Node(n).Name)
				if t.DomainOf(n, dom.Level) != d {
					fmt.Fprint(&b, " says otherwise")
				}
			}
			fmt.Fprintln(&b)
			for _, c := range dom.Children {
				walk(c)
			}
		}
		walk(RootDomain)
	}
	return b.String()
}

// TestLevelByName: labels come before aliases, and nothing is no level.
func TestLevelByName(t *testing.T) {
	t.Parallel()
	top := &Topology{TopologyState: TopologyState{Levels: []Level{{Label: "zone"}, {Label: "example.com/rack", Alias: "rack"}, {Label: "host", Alias: "zone"}}}}
	for name, want := range map[string]int{"zone": 0, "rack": 1, "example.com/rack": 1, "host": 2, "": None, "row": None} {
		if got, ok := top.LevelByName(name); got != want || ok != (want != None) {
			t.Errorf("level %q is %d (%v), want %d", name, got, ok, want)
		}
	}
}

// TestTiers: of a declared topology a tier names its widest level of at most that, and every node is in the widest domain.
func TestTiers(t *testing.T) {
	t.Parallel()
	s := NewStore(Options{})
	s.Apply(NodeState{Name: "a"}, NodeState{Name: "b"}, NodeState{Name: "c"}, TopologyState{
		Name:   "t",
		Levels: []Level{{Label: "tier 6", Tier: 6}, {Label: "tier 5", Tier: 5, Alias: "spine"}, {Label: "tier 2", Tier: 2}}, Declared: map[string][]string{"a": {"s", "l"}, "b": {"l2", "l2"}},
	})
	top := s.Snapshot(Instant{}).Topology("t")
	for name, want := range map[string]int{"tier 9": 0, "tier 6": 0, "tier 5": 1, "tier 4": 2, "tier 2": 2, "tier 1": None, "tier x": None, "spine": None, "": None, Narrowest: 2} {
		if got, ok := top.LevelByName(name); got != want || ok != (want != None) {
			t.Errorf("level %q is %d (%v), want %d", name, got, ok, want)
		}
	}
	var paths []string
	for n := range NodeID(3) {
		paths = append(paths, top.Path(top.Narrowest(n)))
	}
	if got := strings.Join(paths, " "); got != "s/l l2 all nodes" {
		t.Errorf("the nodes are in %q", got)
	}
}
