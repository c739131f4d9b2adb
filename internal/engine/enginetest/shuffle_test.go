package enginetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/plugins/rescheduling"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// lentSite is some nodes, of which some are lent until 13:00, and gangs that run on them, in words that what is expected of the action shuffle is told by.
type lentSite struct {
	cpus   []int
	zones  []string // by node: night until 13:00, day that the file does not name, or none
	gangs  []lentGang
	tdm    bool
	bounds [2]int // of lowNodeUtilization: little, much; 0 for no rescheduling
	every  int    // minutes between two evictions by rescheduling
}

type lentGang struct {
	min, cpu, priority int
	on                 []int // the node of each pod
	revocable, kept    bool
	most, left         int // of the budget; 0 for none
}

// drawLent draws a site of which everything fits.
func drawLent(r *rand.Rand) *lentSite {
	s := &lentSite{tdm: r.IntN(3) > 0, every: 1 + r.IntN(6)}
	if !s.tdm || r.IntN(2) == 0 {
		s.bounds = [2]int{10 * (1 + r.IntN(6)), 10 * (5 + r.IntN(5))}
	}
	for range 2 + r.IntN(5) {
		s.cpus = append(s.cpus, 4+r.IntN(8))
		s.zones = append(s.zones, []string{"", "", "night", "night", "day"}[r.IntN(5)])
	}
	free := slices.Clone(s.cpus)
	for range 2 + r.IntN(7) {
		g := lentGang{cpu: 1 + r.IntN(2), priority: 1 + r.IntN(3), revocable: r.IntN(4) > 0, kept: r.IntN(8) == 0}
		switch r.IntN(4) {
		case 0:
			g.most = 1 + r.IntN(3)
		case 1:
			g.left = 1 + r.IntN(3)
		}
		for range 1 + r.IntN(5) {
			if n := r.IntN(len(free)); free[n] >= g.cpu {
				free[n] -= g.cpu
				g.on = append(g.on, n)
			}
		}
		if len(g.on) > 0 {
			g.min = 1 + r.IntN(len(g.on))
			s.gangs = append(s.gangs, g)
		}
	}
	return s
}

// text is the site as a scenario.
func (s *lentSite) text() string {
	var b strings.Builder
	b.WriteString("A random site.\n-- options --\nvolcano\n-- volcano-config --\nactions: \"enqueue, allocate, backfill, shuffle\"\ntiers:\n- plugins:\n  - name: predicates\n")
	if s.tdm {
		b.WriteString("  - name: tdm\n    arguments: {tdm.revocable-zone.night: \"11:00-13:00\", tdm.evict.period: 1m}\n")
	}
	if s.bounds[0] > 0 {
		fmt.Fprintf(&b, "  - name: rescheduling\n    arguments:\n      interval: %dm\n      strategies: [{name: lowNodeUtilization, params: {thresholds: {cpu: %d}, targetThresholds: {cpu: %d}}}]\n", s.every, s.bounds[0], s.bounds[1])
	}
	b.WriteString("-- yaml --\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: default}\n")
	for i, g := range s.gangs {
		budget := ""
		if g.most > 0 {
			budget = fmt.Sprintf("volcano.sh/jdb-max-unavailable: %q", fmt.Sprint(g.most))
		} else if g.left > 0 {
			budget = fmt.Sprintf("volcano.sh/jdb-min-available: %q", fmt.Sprint(g.left))
		}
		fmt.Fprintf(&b, "---\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: c%d}\nvalue: %d\n", i, g.priority)
		fmt.Fprintf(&b, "---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: PodGroup\nmetadata: {name: g%d, namespace: default, annotations: {%s}}\nspec: {minMember: %d, priorityClassName: c%d}\n", i, budget, g.min, i)
	}
	b.WriteString("-- cluster --\n")
	for i, c := range s.cpus {
		fmt.Fprintf(&b, "node n%d cpu=%d", i, c)
		if s.zones[i] != "" {
			fmt.Fprintf(&b, " label=volcano.sh/revocable-zone=%s", s.zones[i])
		}
		b.WriteString("\n")
	}
	for i, g := range s.gangs {
		for k, n := range g.on {
			fmt.Fprintf(&b, "pod g%d-%d scheduler=volcano cpu=%d running=n%d annotation=scheduling.k8s.io/group-name=g%d", i, k, g.cpu, n, i)
			if g.revocable {
				b.WriteString(" annotation=volcano.sh/revocable-zone=*")
			}
			if g.kept {
				b.WriteString(" annotation=volcano.sh/preemptable=false")
			}
			b.WriteString("\n")
		}
	}
	return b.String() + "-- run --\nadvance 1h\n-- want --\n"
}

// stands is where each pod of each gang is, by its number; -1 for nowhere.
func (s *lentSite) stands(t *testing.T, b *Engine) [][]int {
	t.Helper()
	out := make([][]int, len(s.gangs))
	for i := range s.gangs {
		out[i] = slices.Repeat([]int{-1}, len(s.gangs[i].on))
	}
	pods, err := b.Pods()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		g, k, n := 0, 0, -1
		if _, err := fmt.Sscanf(p.Name, "g%d-%d", &g, &k); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscanf(p.Spec.NodeName, "n%d", &n); err == nil && p.DeletionTimestamp == nil {
			out[g][k] = n
		}
	}
	return out
}

// used is how much of each node is asked for.
func (s *lentSite) used(at [][]int) []int {
	out := make([]int, len(s.cpus))
	for g := range at {
		for _, n := range at[g] {
			if n >= 0 {
				out[n] += s.gangs[g].cpu
			}
		}
	}
	return out
}

// lent says whether a pod has to leave node n, as tdm's description has it: it is of a zone that is closed, and the pod is there because it is revocable.
func (s *lentSite) lent(g, n int) bool {
	return s.tdm && n >= 0 && s.zones[n] == "night" && s.gangs[g].revocable && !s.gangs[g].kept
}

// check says what is wrong with what one cycle had leave, which stood as at says.
func (s *lentSite) check(at [][]int, bundles []engine.Bundle) error {
	was := s.used(at)
	then := slices.Clone(was)
	gone, moved := make([][]int, len(at)), make([]int, len(at)) // numbers of those that go, and how many of these have a place
	fewest := map[int]int{}                                     // the smallest that left a node
	for _, bundle := range bundles {
		if bundle.Eviction.Cause != policy.Shuffle {
			return fmt.Errorf("%s of gang %s", bundle.Eviction.Cause, bundle.Gang)
		}
		for _, in := range bundle.Intents {
			g, k, to := 0, 0, -1
			if _, err := fmt.Sscanf(in.Pod, "g%d-%d", &g, &k); err != nil {
				return err
			}
			from := at[g][k]
			gone[g] = append(gone[g], k)
			if then[from] -= s.gangs[g].cpu; fewest[from] == 0 || s.gangs[g].cpu < fewest[from] {
				fewest[from] = s.gangs[g].cpu
			}
			if s.gangs[g].kept {
				return fmt.Errorf("%s is not to be evicted", in.Pod)
			}
			if _, err := fmt.Sscanf(in.To, "n%d", &to); err != nil {
				continue
			}
			moved[g]++
			if then[to] += s.gangs[g].cpu; then[to] > s.cpus[to] {
				return fmt.Errorf("node n%d has %d of %d", to, then[to], s.cpus[to])
			}
			switch little, much := s.bounds[0], s.bounds[1]; {
			case s.lent(g, from) && s.lent(g, to):
				return fmt.Errorf("%s moves from one node that is lent to another", in.Pod)
			case s.lent(g, from):
			case little == 0 || 100*was[from] <= much*s.cpus[from]:
				return fmt.Errorf("%s moves, and of node n%d no more than %d of %d was used", in.Pod, from, was[from], s.cpus[from])
			case 100*was[to] >= little*s.cpus[to] || 100*then[to] > much*s.cpus[to]:
				return fmt.Errorf("%s moves to node n%d, of which %d of %d was used, and %d then", in.Pod, to, was[to], s.cpus[to], then[to])
			}
		}
	}
	for g := range gone {
		if err := s.checkGang(g, at[g], gone[g], moved[g], len(bundles)); err != nil {
			return fmt.Errorf("gang g%d, of pods on %v: %v go, of which %d have a place: %w", g, at[g], gone[g], moved[g], err)
		}
	}
	return nil
}

// checkGang says what is wrong with what goes of a gang, of so many bundles of all.
func (s *lentSite) checkGang(g int, at, gone []int, moved, bundles int) error {
	gang, has, lent, fromLent := s.gangs[g], 0, 0, 0
	for k, n := range at {
		if n >= 0 {
			has++
		}
		if s.lent(g, n) {
			if lent++; slices.Contains(gone, k) {
				fromLent++
			}
		}
	}
	lost := len(gone) - moved
	switch whole := lost == has; {
	case lost > 0 && has >= gang.min && has-lost < gang.min && !whole:
		return fmt.Errorf("a part of the minimum of %d stays", gang.min)
	case lost > 0 && fromLent == 0:
		return fmt.Errorf("nobody of it has to leave, and not all have a place")
	case lost > 0 && !whole && fromLent < lost:
		return fmt.Errorf("only %d of them have to leave", fromLent)
	case gang.left > 0 && fromLent > max(0, has-gang.left):
		return fmt.Errorf("its owner has %d stay", gang.left)
	case gang.left == 0 && lost > 0 && !whole && lost > max(1, gang.most):
		return fmt.Errorf("its owner has %d go at once", max(1, gang.most))
	case gang.left == 0 && lent > 0 && len(gone) == 0 && bundles > 0:
		return fmt.Errorf("%d of it have to leave", lent)
	}
	return nil
}

// TestShuffle: on random clusters with nodes that were lent and nodes of which much is asked for, what the action shuffle has leave is what the descriptions of tdm and rescheduling say, and no
// gang is left with a part of its minimum. It comes to rest: nobody is moved for balance twice, nothing goes within a period, after a while nothing goes at all, and by then who was on a node
// that was lent has left it, unless his owner says otherwise.
func TestShuffle(t *testing.T) {
	t.Parallel()
	left, moves := 0, 0
	for seed := range uint64(150) {
		s := drawLent(rand.New(rand.NewPCG(seed, 31)))
		sc, err := Parse("random", []byte(s.text()))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		b, err := NewEngine(&sc.Options, Mutation{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		fail := func(minute int, err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("seed %d, minute %d: %v\n%s", seed, minute, err, s.text())
			}
		}
		if _, err := sc.Play(b); err != nil {
			fail(0, err)
		}
		again, quiet := map[string]int{}, 0
		for minute := 0; quiet < 8; minute++ {
			at := s.stands(t, b)
			b.Decisions()
			if _, err := b.step(); err != nil {
				fail(minute, err)
			}
			bundles := b.Decisions()
			fail(minute, s.check(at, bundles))
			if quiet++; len(bundles) > 0 {
				quiet = 0
			}
			for _, bundle := range bundles {
				for _, in := range bundle.Intents {
					if left++; in.To == "" {
						continue
					}
					g, k := 0, 0
					if _, err := fmt.Sscanf(in.Pod, "g%d-%d", &g, &k); err != nil {
						fail(minute, err)
					}
					if moves++; !s.lent(g, at[g][k]) {
						again[in.Pod]++
					}
				}
			}
			if minute > 100 {
				fail(minute, fmt.Errorf("it does not come to rest"))
			}
			if fail(minute, b.Settle()); len(b.Decisions()) > 0 {
				fail(minute, fmt.Errorf("pods go within a period"))
			}
			fail(minute, b.Advance(time.Minute))
		}
		for pod, n := range again { // order: any
			if n > 1 {
				fail(0, fmt.Errorf("%s is moved %d times", pod, n))
			}
		}
		for g, at := range s.stands(t, b) {
			for k, n := range at {
				if s.lent(g, n) && s.gangs[g].left == 0 {
					fail(0, fmt.Errorf("pod %d of gang g%d is still on node n%d", k, g, n))
				}
			}
		}
	}
	if left < 150 || moves < 50 {
		t.Errorf("%d pods left, %d of these for another node", left, moves)
	}
	t.Logf("%d left, %d", left, moves)
	t.Attr("pods", fmt.Sprintf("%d left, %d of these for another node", left, moves))
}

// eager is a victim source that counts how often it is asked, and names whoever runs on node n0.
type eager struct {
	view  *policy.View
	asked *int
}

func (e *eager) Victims() (out []*cluster.Pod) {
	*e.asked++
	e.view.Snapshot().EachPod(func(p *cluster.Pod) {
		if p.NodeName == "n0" {
			out = append(out, p)
		}
	})
	slices.SortFunc(out, func(x, y *cluster.Pod) int { return strings.Compare(x.Name, y.Name) })
	return out
}

func (e *eager) Leaves() bool                               { return true }
func (e *eager) Every() time.Duration                       { return 5 * time.Minute }
func (e *eager) Why(*ledger.VictimUnit) string              { return "it is on n0" }
func (e *eager) MayGo(_ *cluster.Pod, n *cluster.Node) bool { return n.Name != "n0" }

// TestSourcesRest: who says which pods are not to stay is not asked while nobody may go, whatever changes in the cluster meanwhile, and again once the time has passed.
func TestSourcesRest(t *testing.T) {
	t.Parallel()
	s := &lentSite{cpus: []int{4, 4}, zones: []string{"", ""}, bounds: [2]int{50, 60}, every: 5, gangs: []lentGang{{min: 1, cpu: 1, priority: 1, on: []int{0, 0}}}}
	sc, err := Parse("rest", []byte(s.text()))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	b, err := NewEngine(&sc.Options, Mutation{}, func(p engine.Profile, r engine.Registry) (engine.Profile, engine.Registry) {
		r.Faces[volcano.Face].Plugins[rescheduling.Name] = []policy.Factory{policy.Makes(func(policy.Arguments) (func(*policy.View) *eager, []string, error) {
			return func(v *policy.View) *eager { return &eager{v, &asked} }, nil, nil
		})}
		return p, r
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sc.Play(b); err != nil {
		t.Fatal(err)
	}
	last := -1
	for minute := range 12 {
		b.Decisions()
		before := asked
		if _, err := b.step(); err != nil {
			t.Fatal(err)
		}
		if rests := last >= 0 && minute < last+5; rests != (asked == before) {
			t.Errorf("minute %d: asked: %t, while pods last went in minute %d", minute, asked > before, last)
		}
		if len(b.Decisions()) > 0 {
			last = minute
		}
		if err := b.Advance(time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if last < 0 {
		t.Error("nobody went")
	}
}
