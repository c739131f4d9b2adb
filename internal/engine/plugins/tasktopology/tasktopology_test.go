package tasktopology_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/tasktopology"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// site is a gang of pods of one CPU each, by task and the node on which they run ("" for one that waits), on nodes of some CPUs.
type site struct {
	says   cluster.Company
	nodes  []int
	pods   []worker
	weight int64
}

type worker struct {
	task string
	node int // -1: it waits
}

var key = cluster.Key{Face: "volcano", Namespace: "x", Name: "g"}

// ask returns the order in which pods are placed, and per pod the points of each node, as the plugin says before anything is decided.
func (s *site) ask(t *testing.T) (order []int, points [][]int64) {
	t.Helper()
	store := cluster.NewStore(cluster.Options{})
	for i, cpus := range s.nodes {
		store.Apply(cluster.NodeState{
			Name: fmt.Sprintf("n%d", i), UID: fmt.Sprint("n", i), Allocatable: []cluster.Quantity{{Name: "cpu", Value: int64(cpus) * 1000}, {Name: "pods", Value: 100}},
		})
	}
	says := s.says
	store.Apply(
		cluster.QueueState{Name: "volcano:q", UID: "q"},
		cluster.GangState{Key: key, UID: "g", Queue: "volcano:q", Preemptible: true, Sets: cluster.FlatTree(1), Company: &says},
	)
	for k, w := range s.pods {
		p := cluster.PodState{
			UID: fmt.Sprint("p", k), Namespace: "x", Name: fmt.Sprintf("p-%d", k), Ours: true, Gang: key, SetName: w.task,
			Requests: []cluster.Quantity{{Name: "cpu", Value: 1000}, {Name: "pods", Value: 1}},
		}
		if w.node >= 0 {
			p.Phase, p.NodeName = cluster.Running, fmt.Sprintf("n%d", w.node)
		}
		store.Apply(p)
	}
	known, prof := builtin.Registry(), profile.BuiltIn()
	prof.Actions = nil
	prof.Tiers = append(prof.Tiers, []engine.PluginUse{{Name: "probe"}})
	known.Plugins["probe"] = []policy.Factory{policy.Opens(func(v *policy.View) *probe {
		return &probe{func() {
			open, _, err := tasktopology.Factory.New(policy.Arguments{tasktopology.WeightArgument: fmt.Sprint(s.weight)})
			if err != nil {
				t.Fatal(err)
			}
			i, snap := open(v), v.Snapshot()
			pods := make([]*cluster.Pod, len(s.pods))
			snap.EachPod(func(p *cluster.Pod) {
				var k int
				_, _ = fmt.Sscanf(p.Name, "p-%d", &k)
				pods[k] = p
			})
			for k, p := range pods {
				order = append(order, k)
				at := make([]int64, len(s.nodes))
				if kind := i.(policy.CompanyScore).Kind(p); kind > 0 {
					scores, _ := i.(policy.CompanyScore).Company(kind)
					for n := range at {
						at[n] = scores[snap.NodeByName(fmt.Sprintf("n%d", n)).ID]
					}
				}
				if n, x := i.(policy.PodBonus).Bonus(p); n != cluster.None {
					var k int
					_, _ = fmt.Sscanf(snap.Node(n).Name, "n%d", &k)
					at[k] += x
				}
				points = append(points, at)
			}
			slices.SortStableFunc(order, func(a, b int) int { return i.(policy.PodOrder).ComparePods(pods[a], pods[b]) })
		}}
	})}
	e, err := engine.New(prof, known)
	if err != nil {
		t.Fatal(err)
	}
	e.Run(context.Background(), store.Snapshot(cluster.UnixNano(1)), func(engine.Plan) {})
	return order, points
}

// probe asks when all else is done.
type probe struct{ ask func() }

func (p *probe) Close() any {
	p.ask()
	return nil
}

func groups(text string) (out [][]string) {
	for _, g := range strings.Fields(text) {
		out = append(out, strings.Split(g, ","))
	}
	return out
}

// TestTable: orders and points worked out by hand, the points in thousandths. Nodes are of 2, 4 and 1 CPUs.
func TestTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                  string
		together, apart, task string
		pods                  string // task@node, or task
		order                 string // by number
		of                    int    // the pod whose points these are
		points                []int64
	}{
		// Two buckets of a server and two workers each: p0 p2 p4, p1 p3 p5. A server is drawn to its two workers (3+3): n0 has room for one beside it, n1 for both, n2 for none.
		{"servers apart, workers with them", "ps,w", "ps", "", "ps ps w w w w", "0 2 4 1 3 5", 0, []int64{25_000, 50_000, 0}},
		// A worker is drawn to its server alone, and has nothing for the other worker: n0 and n1 have room for that one beside it.
		{"a worker's mates", "ps,w", "ps", "", "ps ps w w w w", "0 2 4 1 3 5", 2, []int64{50_000, 50_000, 0}},
		// The server p0 is on n0, and the worker p1 in its bucket: 100 there. Beside the worker nobody waits whom it is drawn to.
		{"where its bucket is", "ps,w", "", "", "ps@0 w", "0 1", 1, []int64{100_000, 0, 0}},
		// Two of one task on n1 and one that waits: it is drawn to both. Another one waits: 2 of 6 for it where there is room for both, halved.
		{"together by itself", "w", "", "", "w@1 w@1 w w", "0 1 2 3", 2, []int64{16_666, 66_666 + 16_666, 0}},
		// Of the two others that have a node or wait, one is on n0.
		{"apart by itself", "", "w", "", "w@0 w w", "0 1 2", 1, []int64{-50_000, 0, 0}},
		// 4 against 3: the task apart by itself goes first; two apart counts 1, and of the rivals one of two is on n1. The task with fewer pods goes first.
		{"two apart", "", "a,b", "", "a@1 a b", "0 2 1", 2, []int64{0, -50_000, 0}},
		// Together stands over apart for two tasks, and apart over together for one.
		{"the stronger stands", "a,b a", "a,b a", "", "a@0 b a", "0 1 2", 2, []int64{-100_000, 0, 0}},
		{"the stronger stands for the other", "a,b a", "a,b a", "", "a@0 b a", "0 1 2", 1, []int64{100_000, 0, 0}},
		// In a bucket the gang's order decides, and else tasks by what they have.
		{"the gang's order", "ps,w", "", "w ps", "ps w w", "1 2 0", 0, []int64{25_000, 50_000, 0}},
		// A larger bucket goes first, and those of which nothing is said last.
		{"larger buckets, and others", "w x,y", "", "", "o x w w w y", "2 3 4 1 5 0", 0, []int64{0, 0, 0}},
	} {
		s := site{nodes: []int{2, 4, 1}, weight: 1, says: cluster.Company{Together: groups(c.together), Apart: groups(c.apart), Order: strings.Fields(c.task)}}
		for _, w := range strings.Fields(c.pods) {
			task, node, placed := strings.Cut(w, "@")
			one := worker{task, -1}
			if placed {
				_, _ = fmt.Sscan(node, &one.node)
				s.nodes[one.node]++ // what is free is as said
			}
			s.pods = append(s.pods, one)
		}
		order, points := s.ask(t)
		if got := strings.Trim(fmt.Sprint(order), "[]"); got != c.order {
			t.Errorf("%s: order %s, want %s", c.name, got, c.order)
		}
		var got []int64
		for _, x := range points[c.of] {
			got = append(got, x/(policy.ScorePoint/1000))
		}
		if !slices.EqualFunc(got, c.points, func(a, b int64) bool { return a == b || a == b+1 }) { // sums of what was cut
			t.Errorf("%s: points %d, want %d", c.name, got, c.points)
		}
	}
}

// literal is the definition, word by word.
type literal struct {
	*site
	bucket []int // of each pod, -1 for none
}

// has is what two pods have for each other.
func (l *literal) has(a, b int) int64 {
	x, y := l.pods[a].task, l.pods[b].task
	strongest := int64(0)
	for _, part := range []struct {
		groups    [][]string
		self, two int64
	}{{l.says.Together, 2, 3}, {l.says.Apart, -4, -1}} {
		for _, g := range part.groups {
			s := part.two
			if x == y {
				if len(g) != 1 || g[0] != x {
					continue
				}
				s = part.self
			} else if !slices.Contains(g, x) || !slices.Contains(g, y) {
				continue
			}
			if s*s > strongest*strongest {
				strongest = s
			}
		}
	}
	return strongest
}

// said says whether anything is said of a pod.
func (l *literal) said(k int) bool {
	return slices.Contains(slices.Concat(slices.Concat(append(slices.Concat(l.says.Together, l.says.Apart), l.says.Order)...)), l.pods[k].task)
}

// before says whether a pod's task goes before another's, by what they have for any, the gang's order, and name.
func (l *literal) compare(a, b int) int {
	own := func(k int) (most int) {
		for _, g := range slices.Concat(l.says.Together, l.says.Apart) {
			if !slices.Contains(g, l.pods[k].task) {
				continue
			}
			together := slices.ContainsFunc(l.says.Together, func(o []string) bool { return &o[0] == &g[0] })
			switch {
			case together && len(g) > 1:
				most = max(most, 3)
			case together:
				most = max(most, 2)
			case len(g) > 1:
				most = max(most, 1)
			default:
				most = max(most, 4)
			}
		}
		return most
	}
	if d := own(b) - own(a); d != 0 {
		return d
	}
	if d := l.many(a) - l.many(b); d != 0 {
		return d
	}
	if d := l.ordered(a) - l.ordered(b); d != 0 {
		return d
	}
	if d := strings.Compare(l.pods[a].task, l.pods[b].task); d != 0 {
		return d
	}
	return a - b
}

// many is how many pods are of a pod's task.
func (l *literal) many(k int) (n int) {
	for _, w := range l.pods {
		if w.task == l.pods[k].task {
			n++
		}
	}
	return n
}

func (l *literal) ordered(k int) int {
	if i := slices.Index(l.says.Order, l.pods[k].task); i >= 0 {
		return i
	}
	return len(l.says.Order)
}

func (s *site) literally() ([]int, [][]int64) {
	l := &literal{site: s, bucket: make([]int, len(s.pods))}
	var placed, waiting []int
	for k, w := range s.pods {
		if l.bucket[k] = -1; !l.said(k) {
			continue
		}
		if w.node >= 0 {
			placed = append(placed, k)
		} else {
			waiting = append(waiting, k)
		}
	}
	n, onNode := 0, map[int]int{}
	slices.SortFunc(placed, func(a, b int) int { return s.pods[a].node - s.pods[b].node })
	for _, k := range placed {
		if _, known := onNode[s.pods[k].node]; !known {
			onNode[s.pods[k].node] = n
			n++
		}
		l.bucket[k] = onNode[s.pods[k].node]
	}
	slices.SortFunc(waiting, l.compare)
	for _, k := range waiting {
		best, most, size := -1, int64(0), 0
		for b := range n {
			pull, pods := int64(0), 0
			for o := range s.pods {
				if l.bucket[o] == b {
					pull += l.has(k, o)
					pods++
				}
			}
			if pull > most || best >= 0 && pull == most && pods < size {
				best, most, size = b, pull, pods
			}
		}
		if best < 0 {
			best = n
			n++
		}
		l.bucket[k] = best
	}
	size := func(b int) (c int) {
		for _, of := range l.bucket {
			if of == b {
				c++
			}
		}
		return c
	}
	order := make([]int, len(s.pods))
	for k := range order {
		order[k] = k
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := l.bucket[a], l.bucket[b]
		switch {
		case x < 0 || y < 0:
			return map[bool]int{true: 1}[x < 0] - map[bool]int{true: 1}[y < 0]
		case x != y:
			if (x < len(onNode)) != (y < len(onNode)) {
				return x - y
			}
			if d := size(y) - size(x); d != 0 {
				return d
			}
			return x - y
		}
		if d := l.ordered(a) - l.ordered(b); d != 0 {
			return d
		}
		return l.compare(a, b)
	})
	points := make([][]int64, len(s.pods))
	for k := range s.pods {
		points[k] = make([]int64, len(s.nodes))
		if !l.said(k) {
			continue
		}
		drawn, rivals := int64(0), int64(0)
		on, against := make([]int64, len(s.nodes)), make([]int64, len(s.nodes))
		for o, w := range s.pods {
			if o == k || !l.said(o) {
				continue
			}
			h := l.has(k, o)
			if h > 0 && l.bucket[o] == l.bucket[k] {
				if drawn += h; w.node >= 0 {
					on[w.node] += h
				}
			}
			if h < 0 {
				if rivals -= h; w.node >= 0 {
					against[w.node] -= h
				}
			}
		}
		best := -1
		for n := range s.nodes {
			if on[n] > 0 && (best < 0 || on[n] > on[best]) {
				best = n
			}
		}
		for n := range s.nodes {
			free := s.nodes[n]
			for _, w := range s.pods {
				if w.node == n {
					free--
				}
			}
			whole := s.weight * 100 * policy.ScorePoint
			if n == best {
				points[k][n] += whole * on[n] / drawn
			}
			if rivals > 0 {
				points[k][n] -= whole * against[n] / rivals
			}
			room := int64(0)
			for _, o := range order {
				if o != k && s.pods[o].node < 0 && l.bucket[o] == l.bucket[k] && l.has(k, o) > 0 && free > 1 {
					free--
					room += l.has(k, o)
				}
			}
			if drawn > 0 {
				points[k][n] += whole * room / (2 * drawn)
			}
		}
	}
	return order, points
}

// TestOracle: on random gangs the plugin says what its description says, read slowly and literally.
func TestOracle(t *testing.T) {
	t.Parallel()
	tasks := []string{"a", "b", "c", "d"}
	some := 0
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 41))
		s := &site{weight: r.Int64N(4)}
		for range 1 + r.IntN(4) {
			s.nodes = append(s.nodes, r.IntN(6))
		}
		draw := func() (out [][]string) {
			for range r.IntN(3) {
				at := r.Perm(3)[:1+r.IntN(3)]
				var g []string
				for _, i := range at {
					g = append(g, tasks[i])
				}
				out = append(out, g)
			}
			return out
		}
		s.says.Together, s.says.Apart = draw(), draw()
		for _, i := range r.Perm(3)[:r.IntN(3)] {
			s.says.Order = append(s.says.Order, tasks[i])
		}
		for range 1 + r.IntN(8) {
			w := worker{tasks[r.IntN(4)], -1}
			if n := r.IntN(len(s.nodes)); r.IntN(3) == 0 {
				w.node = n
				s.nodes[n]++
			}
			s.pods = append(s.pods, w)
		}
		order, points := s.ask(t)
		wantOrder, want := s.literally()
		if !slices.Equal(order, wantOrder) {
			t.Fatalf("seed %d: %+v: order %d, want %d", seed, s, order, wantOrder)
		}
		for k := range want {
			if s.pods[k].node >= 0 {
				continue // nobody asks
			}
			if !slices.Equal(points[k], want[k]) {
				t.Fatalf("seed %d: %+v: pod %d: points %d, want %d", seed, s, k, points[k], want[k])
			}
			if slices.ContainsFunc(want[k], func(x int64) bool { return x != 0 }) {
				some++
			}
		}
	}
	if some < 1000 {
		t.Errorf("of %d pods only anything was said", some)
	}
}

// TestArguments: a weight is a whole number up to 1,000, and an error names it.
func TestArguments(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"-1", "1001", "1.5", "much"} {
		if _, _, err := tasktopology.Factory.New(policy.Arguments{"task-topology.weight": text}); err == nil || !strings.Contains(err.Error(), `"task-topology.weight"`) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, unknown, err := tasktopology.Factory.New(policy.Arguments{"task-topology.weight": "0", "whim": ""}); err != nil || !slices.Equal(unknown, []string{"whim"}) {
		t.Error(unknown, err)
	}
}
