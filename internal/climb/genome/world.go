package genome

import (
	"fmt"
	"math/rand/v2"
)

// World is a cluster object by object, in nobody's words: what measures a tree of Muster makes that tree's events of it.
type World struct {
	Nodes  []Node
	Queues []Queue
	Gangs  []Gang
	// Racked says that there is a topology, called Topology, of blocks and racks.
	Racked bool
	// Budgets are the values of the label "app" for which a PodDisruptionBudget allows nothing.
	Budgets []string
}

// Topology is the name of a World's topology, App the key of the label that all its pods have, All that of one that they have in common.
const (
	Topology = "dc"
	App      = "app"
	All      = "all"
)

// Node is a node. It has 1 TiB of memory and room for 110 pods.
type Node struct {
	Name       string
	Labels     map[string]string
	GPUs, CPUs int
	Taint      string // the value of the taint Own, "" for none
}

const (
	podsOfNode = 110
	wholeGPU   = 1000
)

// Queue is a queue; see [Queues].
type Queue struct {
	Name, Parent                       string
	Quota, Limit, Weight, Priority, Of int
	MinRuntime                         int
}

// Gang is a gang; see [Gangs].
type Gang struct {
	Name, Queue         string
	Priority            int
	Preemptible         bool
	Age, Started, Delay int
	Min                 int
	// Sets are the minimums of its sets, called s0, s1 and so on; nil for one default set.
	Sets                  []int
	Near, Prefer, SetNear string
	MilliGPU, MilliCPU    int
	Label                 string // value of App
	Says, Of, Where       string
	// Selects and Tolerates are values of the label and the taint Own, "" for none. AllTaints stands for all of them.
	Selects, Tolerates string
	Pods               []Pod
}

// AllTaints is what a gang tolerates that tolerates the taints of all nodes.
const AllTaints = "*"

// Pod is a pod, which runs if it has a node.
type Pod struct {
	Name, Set, Node string
	// Device is the shared device of the node that it is on, "" for none.
	Device string
}

// Lay makes the cluster. It takes time and memory by the number of objects.
func (g *Genome) Lay() World {
	var w World
	w.nodes(g)
	leaves := w.queues(g)
	room := make([]left, len(w.Nodes))
	for i := range room {
		room[i] = left{gpu: w.Nodes[i].GPUs * wholeGPU, cpu: w.Nodes[i].CPUs * 1000, pods: podsOfNode}
	}
	for i := range g.Gangs {
		w.gangs(i, &g.Gangs[i], leaves[g.Gangs[i].Queue%len(leaves)], room)
	}
	return w
}

func (w *World) nodes(g *Genome) {
	for k := range g.Nodes {
		n := &g.Nodes[k]
		for i := range n.Count {
			name := fmt.Sprintf("node-%05d", len(w.Nodes))
			node := Node{Name: name, GPUs: n.GPUs, CPUs: n.CPUs, Labels: map[string]string{Host: name}}
			if n.Rack > 0 {
				w.Racked = true
				rack := i / n.Rack
				node.Labels[Rack], node.Labels[Block] = fmt.Sprintf("%d-%d", k, rack), fmt.Sprintf("%d-%d", k, rack/max(1, n.Block))
			}
			if n.Zones > 0 {
				node.Labels[Zone] = fmt.Sprintf("z%d", i%n.Zones)
			}
			if n.Own > 0 {
				node.Labels[Own] = owner(len(w.Nodes))
			}
			if n.Tainted > 0 {
				node.Taint = owner(len(w.Nodes))
			}
			w.Nodes = append(w.Nodes, node)
		}
	}
}

func owner(i int) string { return fmt.Sprintf("owner-%d", i) }

// queues returns, of each group without children, the names.
func (w *World) queues(g *Genome) [][]string {
	names := make([][]string, len(g.Queues))
	parents := make([]bool, len(g.Queues))
	for k := range g.Queues {
		q := &g.Queues[k]
		for i := range q.Count {
			x := Queue{
				Name: fmt.Sprintf("queue-%d-%05d", k, i), Quota: q.Quota, Limit: q.Limit, Weight: q.Weight, Priority: q.Priority + i%q.Priorities,
				MinRuntime: q.MinRuntime,
			}
			if x.Quota >= 0 {
				x.Quota += i % q.Quotas
			}
			if q.Below > 0 {
				above := names[q.Below-1]
				x.Parent, parents[q.Below-1] = above[i%len(above)], true
			}
			names[k] = append(names[k], x.Name)
			w.Queues = append(w.Queues, x)
		}
	}
	var leaves [][]string
	for k := range names {
		if parents[k] { // a parent that got no child, as there are fewer of them, would be a leaf, and no gang may go into some parents only
			continue
		}
		leaves = append(leaves, names[k])
	}
	return leaves
}

// left is what is left of a node.
type left struct {
	gpu, cpu, pods, group int // group: pods of the group that is being laid
	device                string
	part                  int // of the device
}

// take takes room for a pod, and says whether there was any, and on which device the pod is.
func (l *left) take(node string, x *Gangs, cpu int) (device string, ok bool) {
	if l.pods == 0 || l.cpu < cpu || x.PerNode > 0 && l.group == x.PerNode {
		return "", false
	}
	gpu := x.MilliGPU / wholeGPU * wholeGPU
	if part := shared(x.MilliGPU); part > 0 {
		if l.part < part {
			if l.gpu < wholeGPU {
				return "", false
			}
			l.gpu -= wholeGPU
			l.part, l.device = wholeGPU, fmt.Sprintf("%s-%d", node, l.gpu/wholeGPU)
		}
		l.part -= part
		device, gpu = l.device, 0
	}
	if l.gpu < gpu {
		return "", false
	}
	l.gpu -= gpu
	l.cpu -= cpu
	l.pods--
	l.group++
	return device, true
}

// shared is what is taken of a GPU that is shared, in thousandths; 0 for none.
func shared(milli int) int {
	if milli >= wholeGPU {
		return 0
	}
	return milli
}

// gangs lays a group of gangs. Those that would run and have no room are left out, and so is the rest of the group.
func (w *World) gangs(k int, x *Gangs, queues []string, room []left) {
	order := make([]int, x.Count)
	for i := range order {
		order[i] = i
	}
	if x.Mixed > 0 {
		rand.New(rand.NewPCG(uint64(x.Mixed), uint64(k))).Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for i := range room {
		room[i].group = 0
	}
	for b := range min(x.Budgets, x.Labels) {
		w.Budgets = append(w.Budgets, label(k, b))
	}
	at := 0
	for i, n := range order {
		pods := x.Pods
		g := Gang{
			Name: fmt.Sprintf("gang-%d-%05d", k, i), Queue: queues[n%len(queues)], Priority: x.Priority + n%x.Priorities,
			Preemptible: x.Fixed == 0 || n%x.Fixed != 0, Age: x.Age + i, Started: x.Started, Delay: x.Delay, Min: x.Min,
			Near: x.Near, Prefer: x.Prefer, SetNear: x.SetNear, MilliGPU: x.MilliGPU, MilliCPU: x.MilliCPU + n%x.Shapes,
			Label: label(k, n%x.Labels), Says: x.Says, Of: x.Of, Where: x.Where,
		}
		if g.MilliGPU >= wholeGPU {
			g.MilliGPU = g.MilliGPU / wholeGPU * wholeGPU
		}
		if g.Min == 0 {
			g.Min = pods
		}
		switch x.Selects {
		case OneNode:
			g.Selects = owner(n % len(w.Nodes))
		case NoNode:
			g.Selects = fmt.Sprintf("nobody-%d", n)
		}
		switch x.Tolerates {
		case OneNode:
			g.Tolerates = owner(n % len(w.Nodes))
		case AllNodes:
			g.Tolerates = AllTaints
		}
		sets := min(x.Sets, pods)
		if sets > 1 || x.SetNear != "" {
			g.Sets = make([]int, sets)
		}
		for j := range pods {
			p := Pod{Name: fmt.Sprintf("%s-%d", g.Name, j)}
			if g.Sets != nil {
				p.Set = fmt.Sprintf("s%d", j%sets)
				if j < g.Min {
					g.Sets[j%sets]++
				}
			}
			if x.Running > 0 {
				ok := false
				for try := 0; try < len(room) && !ok; try++ {
					if p.Device, ok = room[at].take(w.Nodes[at].Name, x, g.MilliCPU); ok {
						p.Node = w.Nodes[at].Name
					} else {
						at = (at + 1) % len(room)
					}
				}
				if !ok {
					return
				}
			}
			g.Pods = append(g.Pods, p)
		}
		w.Gangs = append(w.Gangs, g)
	}
}

func label(group, i int) string { return fmt.Sprintf("app-%d-%d", group, i) }
