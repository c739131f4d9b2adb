package solver_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// exampleCluster is a small cluster as plain data: what the oracle's cases are made of, shrunk and printed as.
type exampleCluster struct {
	nodes  []exampleNode
	queues []team
	gangs  []crew
}

type exampleNode struct {
	gpu, cpu int64 // whole ones
	zone     string
}

type team struct {
	name, parent         string
	quota, limit, weight int64 // GPUs; -1 unlimited
	cpuQuota             int64 // cores; -1 unlimited
	priority             int32
	reclaim, preempt     int64 // minimum runtimes in seconds; -1 unset
}

type crew struct {
	queue    string
	priority int32
	fixed    bool // not preemptible
	least    int
	sets     []int // the minimums of its sets; nil for a gang of one, whose minimum is least
	need     int   // of sets, how many it needs
	near     bool  // all of it has to be in one zone
	nearSet  bool  // each of its sets has to be
	started  int64 // seconds ago; 0 never
	pods     []hand
}

type hand struct {
	gpu, cpu int64
	on       int    // node index; -1 pending
	port     bool   // opens a port that no other pod of its node may
	zone     string // node selector
	coming   bool   // decided, and not bound yet
	bare     bool   // nobody recreates it
	friend   bool   // others like its company
	lonely   bool   // runs only where a friend is and stays
	set      int    // of its gang's sets, from 0
	leaving  bool   // is being deleted
	stuck    bool   // is, and something keeps it
}

// noon is when cases happen.
var noon = cluster.UnixNano(1_700_000_000_000_000_000)

// draw makes a random town that is full enough for somebody to have to go.
func draw(r *rand.Rand) exampleCluster {
	pick := func(xs ...int64) int64 { return xs[r.IntN(len(xs))] }
	var w exampleCluster
	gpus := int64(0)
	for range 1 + r.IntN(5) {
		h := exampleNode{gpu: pick(1, 2, 2, 3, 4), cpu: pick(4, 8, 8), zone: "a"}
		if r.IntN(4) == 0 {
			h.zone = "b"
		}
		gpus += h.gpu
		w.nodes = append(w.nodes, h)
	}
	tree(r, &w)
	var leaves []string
	for _, q := range w.queues {
		if !slices.ContainsFunc(w.queues, func(o team) bool { return o.parent == q.name }) {
			leaves = append(leaves, q.name)
		}
	}
	mixed, ports, company := r.IntN(3) > 0, r.IntN(8) == 0, r.IntN(8) == 0
	for n, i := 3+r.IntN(4), 0; i < n; i++ {
		g := crew{queue: leaves[r.IntN(len(leaves))], priority: int32(pick(50, 50, 60, 75)), started: pick(10, 60, 60, 600, 3600)}
		g.fixed = r.IntN(8) == 0
		shape := func() hand {
			p := hand{gpu: pick(0, 1, 1, 1, 2, 2, 3), cpu: pick(0, 0, 1, 2), on: -1, port: ports && r.IntN(3) == 0, bare: r.IntN(6) == 0}
			if p.gpu+p.cpu == 0 {
				p.gpu = 1
			}
			p.friend, p.lonely = company && r.IntN(2) == 0, company && r.IntN(2) == 0
			if r.IntN(8) == 0 {
				p.zone = string(rune('a' + r.IntN(2)))
			}
			return p
		}
		p := shape()
		for range 1 + r.IntN(3) {
			if mixed && r.IntN(3) == 0 {
				p = shape()
			}
			g.pods = append(g.pods, p)
		}
		g.least = len(g.pods)
		if r.IntN(2) == 0 {
			g.least = 1 + r.IntN(len(g.pods))
		}
		w.gangs = append(w.gangs, g)
	}
	for i := range w.gangs {
		if waits := i > 0 && r.IntN(3) == 0 || i == len(w.gangs)-1; !waits {
			w.settle(r, i)
		}
	}
	return w
}

// drawSets makes a random town as draw does, with gangs of several sets, some of which they can do without, gangs and sets that
// have to be in one zone, and pods that leave or are stuck. No pod likes company.
func drawSets(r *rand.Rand) exampleCluster {
	w := draw(r)
	for i := range w.nodes {
		w.nodes[i].zone = string(rune('a' + r.IntN(2)))
	}
	for i := range w.gangs {
		g := &w.gangs[i]
		for k := range g.pods {
			g.pods[k].on, g.pods[k].friend, g.pods[k].lonely = -1, false, false
		}
		if r.IntN(2) == 0 {
			g.sets = make([]int, 2)
			for k := range g.pods {
				g.pods[k].set = r.IntN(2)
				g.sets[g.pods[k].set]++
			}
			for k, n := range g.sets {
				g.sets[k] = r.IntN(n + 1)
			}
			g.need = 1 + r.IntN(2)
			g.nearSet = r.IntN(5) == 0
		}
		g.near = r.IntN(5) == 0
	}
	for i := range w.gangs {
		if waits := i > 0 && r.IntN(3) == 0 || i == len(w.gangs)-1; waits {
			continue
		}
		w.settle(r, i)
		for k := range w.gangs[i].pods {
			if p := &w.gangs[i].pods[k]; p.on >= 0 && r.IntN(8) == 0 {
				p.leaving, p.stuck = true, r.IntN(2) == 0
			}
		}
	}
	return w
}

func tree(r *rand.Rand, w *exampleCluster) {
	pick := func(xs ...int64) int64 { return xs[r.IntN(len(xs))] }
	add := func(name, parent string) {
		w.queues = append(w.queues, team{
			name: name, parent: parent, quota: pick(0, 0, 1, 2, 3, 4, -1), limit: pick(-1, -1, -1, -1, 2, 4), weight: pick(0, 1, 1, 1, 2, 3),
			cpuQuota: pick(-1, -1, -1, -1, 2), priority: int32(pick(100, 100, 100, 200)),
			reclaim: pick(-1, -1, -1, -1, -1, 0, 30, 300), preempt: pick(-1, -1, -1, -1, -1, 0, 30, 300),
		})
	}
	switch r.IntN(3) {
	case 0: // flat
		for i := range 1 + r.IntN(3) {
			add(fmt.Sprintf("q%d", i), "")
		}
	case 1: // one department
		add("d0", "")
		for i := range 1 + r.IntN(3) {
			add(fmt.Sprintf("q%d", i), "d0")
		}
	default: // two departments
		add("d0", "")
		add("d1", "")
		add("q0", "d0")
		add("q1", "d1")
		if r.IntN(2) == 0 {
			add("q2", fmt.Sprintf("d%d", r.IntN(2)))
		}
	}
}

// settle lets a gang run where there is room, if there is for its minimum.
func (w *exampleCluster) settle(r *rand.Rand, i int) {
	g := &w.gangs[i]
	for k := range g.pods {
		for _, n := range r.Perm(len(w.nodes)) {
			g.pods[k].on = n
			if w.sound() == nil {
				break
			}
			g.pods[k].on = -1
		}
	}
	if !g.whole() {
		for k := range g.pods {
			g.pods[k].on = -1
		}
	}
}

// whole says whether the gang has pods for its minimum.
func (g *crew) whole() bool {
	count := map[int]int{}
	for _, p := range g.pods {
		if p.on >= 0 {
			count[p.set]++
		}
	}
	if g.sets == nil {
		return count[0] >= g.least
	}
	have := 0
	for k, least := range g.sets {
		if count[k] >= least {
			have++
		}
	}
	return have >= g.need
}

// apart says whether the gang has pods in two zones that have to be in one.
func (g *crew) apart(w *exampleCluster) bool {
	for i, p := range g.pods {
		for _, o := range g.pods[:i] {
			if p.on >= 0 && o.on >= 0 && w.nodes[p.on].zone != w.nodes[o.on].zone && (g.near || g.nearSet && p.set == o.set) {
				return true
			}
		}
	}
	return false
}

// tree is the gang's, as a Store learns of it.
func (g *crew) tree() []cluster.Set {
	out := cluster.FlatTree(int32(g.least))
	near := func(yes bool) (c cluster.Constraint) {
		if yes {
			c = cluster.Constraint{Topology: "dc", Required: "zone"}
		}
		return c
	}
	if g.sets != nil {
		out = []cluster.Set{{Parent: cluster.None, Min: int32(g.need)}}
		for k, least := range g.sets {
			out[0].Children = append(out[0].Children, int32(k+1))
			out = append(out, cluster.Set{Name: fmt.Sprintf("s%d", k), Leaf: true, Min: int32(least), Near: near(g.nearSet)})
		}
	}
	out[0].Near = near(g.near)
	return out
}

// sound says whether nothing is overcommitted.
func (w *exampleCluster) sound() error {
	for i := range w.gangs {
		if w.gangs[i].apart(w) {
			return fmt.Errorf("gang %d is not in one zone", i)
		}
	}
	for n, h := range w.nodes {
		gpu, cpu, ports := h.gpu, h.cpu, 0
		for _, g := range w.gangs {
			for _, p := range g.pods {
				if p.on == n {
					gpu, cpu = gpu-p.gpu, cpu-p.cpu
					if p.port {
						ports++
					}
					if p.zone != "" && p.zone != h.zone {
						return fmt.Errorf("node %d is in zone %s", n, h.zone)
					}
				}
			}
		}
		if gpu < 0 || cpu < 0 || ports > 1 {
			return fmt.Errorf("node %d is overcommitted", n)
		}
	}
	return nil
}

func gangName(i int) string { return fmt.Sprintf("g%d", i) }

// events are the town as a Store learns of it.
func (w *exampleCluster) events() []cluster.Event {
	out := []cluster.Event{cluster.TopologyState{Name: "dc", UID: "dc", Levels: []cluster.Level{{Label: "zone"}}}}
	for i, h := range w.nodes {
		out = append(out, cluster.NodeState{
			Name: fmt.Sprintf("n%d", i), UID: fmt.Sprintf("n%d", i), Labels: map[string]string{"zone": h.zone},
			Allocatable: []cluster.Quantity{{Name: "gpu", Value: h.gpu * 1000}, {Name: "cpu", Value: h.cpu * 1000}, {Name: "memory", Value: 1 << 36}, {Name: "pods", Value: 50}},
		})
	}
	scaled := func(x, by int64) int64 {
		if x < 0 {
			return cluster.Unlimited
		}
		return x * by
	}
	maybe := func(x int64) cluster.Maybe[time.Duration] {
		if x < 0 {
			return cluster.Maybe[time.Duration]{}
		}
		return cluster.Maybe[time.Duration]{Set: true, Value: time.Duration(x) * 1e9}
	}
	for i, q := range w.queues {
		u := cluster.Unlimited
		out = append(out, cluster.QueueState{
			Name: q.name, UID: q.name, Parent: q.parent, Priority: q.priority, Created: noon.Add(-1e15).Add(time.Duration(i) * 1e9),
			Quota:             []cluster.Quantity{{Name: "gpu", Value: scaled(q.quota, 1000)}, {Name: "cpu", Value: scaled(q.cpuQuota, 1000)}, {Name: "memory", Value: u}},
			Limit:             []cluster.Quantity{{Name: "gpu", Value: scaled(q.limit, 1000)}, {Name: "cpu", Value: u}, {Name: "memory", Value: u}},
			Weight:            []cluster.Quantity{{Name: "gpu", Value: q.weight * 1000}, {Name: "cpu", Value: 1000}, {Name: "memory", Value: 1000}},
			ReclaimMinRuntime: maybe(q.reclaim), PreemptMinRuntime: maybe(q.preempt),
		})
	}
	for i, g := range w.gangs {
		key := cluster.Key{Face: "kai", Namespace: "x", Name: gangName(i)}
		st := cluster.GangState{
			Key: key, UID: gangName(i), Queue: g.queue, Priority: g.priority, Preemptible: !g.fixed, Created: noon.Add(-1e14).Add(time.Duration(i) * 1e9), Sets: g.tree(),
		}
		if g.started > 0 && slices.ContainsFunc(g.pods, func(p hand) bool { return p.on >= 0 }) {
			st.LastStart = noon.Add(-time.Duration(g.started) * 1e9)
		}
		out = append(out, st)
		for k, p := range g.pods {
			name := fmt.Sprintf("%s-%d", gangName(i), k)
			ps := cluster.PodState{
				UID: name, Namespace: "x", Name: name, Gang: key, Ours: true, Recreated: !p.bare, Created: noon.Add(-1e13).Add(time.Duration(k)), Spec: &cluster.ClassSpec{},
				Requests: []cluster.Quantity{{Name: "pods", Value: 1}, {Name: "gpu", Value: p.gpu * 1000}, {Name: "cpu", Value: p.cpu * 1000}},
			}
			if g.sets != nil {
				ps.SetName = fmt.Sprintf("s%d", p.set)
			}
			if p.zone != "" {
				ps.Spec.NodeSelector = map[string]string{"zone": p.zone}
			}
			if p.friend {
				ps.Labels = map[string]string{"friend": "yes"}
			}
			if p.lonely {
				ps.Spec.PodAffinity = &v1.PodAffinity{}
			}
			if p.port {
				ps.Spec.HostPorts = []cluster.HostPort{{IP: "0.0.0.0", Protocol: "TCP", Port: 80}}
			}
			if p.on >= 0 {
				ps.Phase, ps.NodeName = cluster.Running, fmt.Sprintf("n%d", p.on)
				switch {
				case p.coming:
					ps.Phase = cluster.Binding
				case p.stuck:
					ps.Phase, ps.DeletedAt = cluster.StuckReleasing, noon.Add(-3600e9)
				case p.leaving:
					ps.Phase, ps.DeletedAt = cluster.Releasing, noon.Add(10e9)
				}
			}
			out = append(out, ps)
		}
	}
	return out
}

// String prints the town in the words of scenarios.
func (w *exampleCluster) String() string {
	var b strings.Builder
	for i, h := range w.nodes {
		fmt.Fprintf(&b, "node n%d gpu=%d cpu=%d label=zone=%s\n", i, h.gpu, h.cpu, h.zone)
	}
	for _, q := range w.queues {
		name := q.name
		if q.parent != "" {
			name = q.parent + "/" + name
		}
		fmt.Fprintf(&b, "queue %s quota=%d weight=%d priority=%d", name, q.quota, q.weight, q.priority)
		for _, f := range []struct {
			word  string
			value int64
			unit  string
		}{{"limit", q.limit, ""}, {"cpu.quota", q.cpuQuota, ""}, {"reclaim-min-runtime", q.reclaim, "s"}, {"preempt-min-runtime", q.preempt, "s"}} {
			if f.value >= 0 {
				fmt.Fprintf(&b, " %s=%d%s", f.word, f.value, f.unit)
			}
		}
		b.WriteString("\n")
	}
	for i, g := range w.gangs {
		fmt.Fprintf(&b, "gang %s queue=%s priority=%d", gangName(i), g.queue, g.priority)
		if g.sets == nil {
			fmt.Fprintf(&b, " pods=%d min=%d", len(g.pods), g.least)
		} else {
			fmt.Fprintf(&b, " min=%d", g.need)
		}
		if g.near {
			b.WriteString(" required=zone")
		}
		if g.fixed {
			b.WriteString(" nonpreemptible")
		}
		if g.started > 0 && slices.ContainsFunc(g.pods, func(p hand) bool { return p.on >= 0 }) {
			fmt.Fprintf(&b, " started=%ds", g.started)
		}
		b.WriteString("\n")
		for k, least := range g.sets {
			fmt.Fprintf(&b, "  set s%d min=%d", k, least)
			if g.nearSet {
				b.WriteString(" required=zone")
			}
			b.WriteString("\n")
		}
		for k, p := range g.pods {
			fmt.Fprintf(&b, "  pod %d gpu=%d cpu=%d", k, p.gpu, p.cpu)
			if p.on >= 0 {
				fmt.Fprintf(&b, " running=n%d", p.on)
			}
			if g.sets != nil {
				fmt.Fprintf(&b, " set=s%d", p.set)
			}
			if p.stuck {
				b.WriteString(" stuck")
			} else if p.leaving {
				b.WriteString(" releasing")
			}
			if p.port {
				b.WriteString(" port=80")
			}
			if p.zone != "" {
				b.WriteString(" selector=zone=" + p.zone)
			}
			if p.friend {
				b.WriteString(" label=friend=yes")
			}
			if p.lonely {
				b.WriteString(" affinity=friend=yes@kubernetes.io/hostname")
			}
			if p.bare {
				b.WriteString(" # nobody recreates it")
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// shrink returns the smallest town it finds for which bad still holds.
func shrink(w exampleCluster, bad func(*exampleCluster) bool) exampleCluster {
	again := true
	for steps := 0; again && steps < 200; steps++ {
		again = false
		for _, smaller := range w.simpler() {
			if smaller.sound() == nil && bad(&smaller) {
				w, again = smaller, true
				break
			}
		}
	}
	return w
}

func (w *exampleCluster) clone() exampleCluster {
	c := exampleCluster{nodes: slices.Clone(w.nodes), queues: slices.Clone(w.queues), gangs: slices.Clone(w.gangs)}
	for i := range c.gangs {
		c.gangs[i].pods, c.gangs[i].sets = slices.Clone(c.gangs[i].pods), slices.Clone(c.gangs[i].sets)
	}
	return c
}

// simpler lists towns with one thing less, or one thing made plain.
func (w *exampleCluster) simpler() []exampleCluster {
	var out []exampleCluster
	try := func(edit func(*exampleCluster)) {
		c := w.clone()
		edit(&c)
		if c.String() != w.String() {
			out = append(out, c)
		}
	}
	for i := range w.gangs {
		try(func(c *exampleCluster) { c.gangs = slices.Delete(c.gangs, i, i+1) })
	}
	for n := range w.nodes {
		if !slices.ContainsFunc(w.gangs, func(g crew) bool { return slices.ContainsFunc(g.pods, func(p hand) bool { return p.on == n }) }) && len(w.nodes) > 1 {
			try(func(c *exampleCluster) {
				c.nodes = slices.Delete(c.nodes, n, n+1)
				for i := range c.gangs {
					for k := range c.gangs[i].pods {
						if c.gangs[i].pods[k].on > n {
							c.gangs[i].pods[k].on--
						}
					}
				}
			})
		}
	}
	for i, q := range w.queues {
		used := slices.ContainsFunc(w.gangs, func(g crew) bool { return g.queue == q.name }) || slices.ContainsFunc(w.queues, func(o team) bool { return o.parent == q.name })
		if !used {
			try(func(c *exampleCluster) { c.queues = slices.Delete(c.queues, i, i+1) })
		}
		try(func(c *exampleCluster) { c.queues[i].limit = -1 })
		try(func(c *exampleCluster) { c.queues[i].cpuQuota = -1 })
		try(func(c *exampleCluster) { c.queues[i].reclaim = -1 })
		try(func(c *exampleCluster) { c.queues[i].preempt = -1 })
		try(func(c *exampleCluster) { c.queues[i].priority = 100 })
		try(func(c *exampleCluster) { c.queues[i].weight = 1 })
		try(func(c *exampleCluster) { c.queues[i].quota = max(0, c.queues[i].quota-1) })
		try(func(c *exampleCluster) { c.queues[i].quota = 0 })
	}
	for i, g := range w.gangs {
		for k := range g.pods {
			if len(g.pods) > 1 {
				try(func(c *exampleCluster) {
					c.gangs[i].pods = slices.Delete(c.gangs[i].pods, k, k+1)
					c.gangs[i].least = max(1, min(c.gangs[i].least, len(c.gangs[i].pods)))
				})
			}
			try(func(c *exampleCluster) { c.gangs[i].pods[k].port = false })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].zone = "" })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].bare = false })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].friend = false })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].lonely = false })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].stuck = false })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].leaving, c.gangs[i].pods[k].stuck = false, false })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].cpu = 0 })
			try(func(c *exampleCluster) { c.gangs[i].pods[k].gpu = max(1, c.gangs[i].pods[k].gpu-1) })
		}
		for k := range g.sets {
			try(func(c *exampleCluster) { c.gangs[i].sets[k] = max(0, c.gangs[i].sets[k]-1) })
		}
		try(func(c *exampleCluster) {
			c.gangs[i].sets, c.gangs[i].nearSet = nil, false
			for k := range c.gangs[i].pods {
				c.gangs[i].pods[k].set = 0
			}
		})
		try(func(c *exampleCluster) { c.gangs[i].near = false })
		try(func(c *exampleCluster) { c.gangs[i].nearSet = false })
		try(func(c *exampleCluster) { c.gangs[i].least = len(g.pods) })
		try(func(c *exampleCluster) { c.gangs[i].fixed = false })
		try(func(c *exampleCluster) { c.gangs[i].started = 0 })
		try(func(c *exampleCluster) { c.gangs[i].priority = 50 })
	}
	for n, h := range w.nodes {
		try(func(c *exampleCluster) { c.nodes[n].gpu = max(1, h.gpu-1) })
		try(func(c *exampleCluster) { c.nodes[n].zone = "a" })
		try(func(c *exampleCluster) { c.nodes[n].cpu = 8 })
	}
	return out
}
