package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// floorMiB is to which multiple the memory of a device is rounded down, and what is assumed where it is unknown.
const floorMiB = 100

// devices returns the names of the shared devices that each pod which is on a node is on at the start, by pod. A name means
// one device per node. A pod for which the file names none is put on the first one of its node with room, or, if there is
// none, on a further one.
func (c *Case) devices() map[string][]string {
	out := map[string][]string{}
	for i := range c.Given.Nodes {
		n := &c.Given.Nodes[i]
		capacity := max(floorMiB, n.GPUMemoryMiB/floorMiB*floorMiB)
		var order []string
		used := map[string]int64{}
		take := func(g *Gang, p *Pod, name string) {
			if !slices.Contains(order, name) {
				order = append(order, name)
			}
			used[name] += g.memory(p, capacity)
			out[p.Name] = append(out[p.Name], name)
		}
		c.sharers(n.Name, func(g *Gang, p *Pod) {
			for _, name := range p.GPUGroups {
				take(g, p, name)
			}
		})
		c.sharers(n.Name, func(g *Gang, p *Pod) {
			if len(p.GPUGroups) > 0 {
				return
			}
			k := slices.IndexFunc(order, func(name string) bool { return used[name]+g.memory(p, capacity) <= capacity })
			if k >= 0 {
				take(g, p, order[k])
				return
			}
			free := 0
			for slices.Contains(order, strconv.Itoa(free)) {
				free++
			}
			take(g, p, strconv.Itoa(free))
		})
	}
	return out
}

// sharers calls f for every pod on a node that shares devices, in the order of the file.
func (c *Case) sharers(node string, f func(*Gang, *Pod)) {
	for i := range c.Given.Gangs {
		g := &c.Given.Gangs[i]
		for k := range g.Pods {
			p := &g.Pods[k]
			if p.Node == node && g.shares(p) && (p.Status == running || p.Status == releasing || p.Status == stuck) {
				f(g, p)
			}
		}
	}
}

// memory returns what a pod takes of each of the devices it shares, of which each has capacity.
func (g *Gang) memory(p *Pod, capacity int64) int64 {
	if g.PerPod != nil && g.PerPod.GPUMemoryMiB > 0 && p.GPUs == nil {
		return g.PerPod.GPUMemoryMiB
	}
	return g.perDevice(p) * capacity / 1000
}

// checkDevices compares which pods share a device, pair by pair, of those that are expected to be placed on shared ones.
// Names of devices are everybody's own.
func (w *caseRun) checkDevices(miss reporter) {
	type seat struct {
		name, node string // the node that is expected, or else the one that it got
		groups     []string
	}
	var seats []seat
	w.eachExpected(func(g *Gang, p *Pod, want Outcome) {
		placed := want.Status == binding || want.Status == nominated || want.Status == running
		if placed && !want.IgnoreGPUGroups && len(want.GPUGroups) > 0 && g.shares(p) {
			node := want.Node
			if node == "" {
				node = w.fates[p.Name].node
			}
			seats = append(seats, seat{p.Name, node, want.GPUGroups})
		}
	})
	for i, a := range seats {
		mine := w.fates[a.name]
		if len(mine.groups) == 0 && mine.node == a.node {
			miss("pod "+a.name, "on shared devices", "on none")
		}
		for _, b := range seats[:i] {
			theirs := w.fates[b.name]
			want, got := 0, 0
			if a.node == b.node {
				want = common(a.groups, b.groups)
			}
			if mine.node == theirs.node {
				got = common(mine.groups, theirs.groups)
			}
			if want != got {
				miss("pods "+b.name+" and "+a.name, fmt.Sprintf("%d devices in common", want), strconv.Itoa(got))
			}
		}
	}
}

// eachExpected calls f for every pod of which something is expected, by name.
func (w *caseRun) eachExpected(f func(*Gang, *Pod, Outcome)) {
	wants := map[string]Outcome{}
	for name, want := range w.c.Expect.Gangs { // order: a set
		if g := w.gang(name); g != nil {
			for i := range g.Pods {
				wants[g.Pods[i].Name] = want
			}
		}
	}
	maps.Copy(wants, w.c.Expect.Pods)
	for _, name := range slices.Sorted(maps.Keys(wants)) {
		if g, p := w.pod(name); p != nil {
			f(g, p, wants[name])
		}
	}
}

func common(a, b []string) int {
	n := 0
	for _, x := range a {
		if slices.Contains(b, x) {
			n++
		}
	}
	return n
}

// left returns the whole GPUs of a node that nobody has, and those that are being released and promised to nobody, after
// this run's decisions. A device that is shared counts as a whole, and as being released once nobody stays on it.
func (w *caseRun) left(node string) (idle, giving int64) {
	idle = w.snap.NodeByName(node).Allocatable.At(cluster.GPU)
	held, stays, promised := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for i := range w.c.Given.Gangs {
		g := &w.c.Given.Gangs[i]
		for k := range g.Pods {
			p := &g.Pods[k]
			f := w.fates[p.Name]
			from, groups, leaves := "", f.groups, f.status == releasing
			if l, ok := w.leaves[p.Name]; ok {
				from, groups, leaves = l.from, l.groups, true
			} else if slices.Contains([]string{running, binding, releasing, stuck}, f.status) {
				from = f.node
			}
			if whole := g.gpus(p); from == node && !g.shares(p) {
				idle -= whole
				if leaves {
					giving += whole
				}
			}
			if from == node && g.shares(p) {
				for _, d := range groups {
					held[d] = true
					stays[d] = stays[d] || !leaves
				}
			}
			if f.status != nominated || f.node != node {
				continue
			}
			if !g.shares(p) {
				giving -= g.gpus(p)
			}
			for _, d := range f.groups {
				promised[d] = true
			}
		}
	}
	for d := range held { // order: sums
		idle -= cluster.Whole
		if !stays[d] {
			giving += cluster.Whole
		}
	}
	for d := range promised { // order: a sum
		if !stays[d] {
			giving -= cluster.Whole
		}
	}
	return idle, giving
}
