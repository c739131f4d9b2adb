package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// nodeState is a node as it is.
type nodeState struct {
	state   cluster.NodeState
	outages int // under way: a second one may begin before the first is over
	pods    map[string]*pod
	left    cluster.Key // which gang had the pod that left last, and when
	leftAt  cluster.Instant
}

// gangState is a gang as it is.
type gangState struct {
	Gang
	state  cluster.GangState
	pods   []*pod
	active int   // running pods
	whole  bool  // has its minimum
	spell  int   // grows whenever it loses its minimum: an end that was put down for an earlier spell does not come
	gpu    int64 // of each pod; of a gang that was adopted, 0
	// adopted says that it is from an image: its minimum is its tree's.
	adopted bool
	// loose stands for the gang of pods that have none: nobody makes them anew.
	loose bool
}

// pod is one member of a gang, the present one of possibly many of that index.
type pod struct {
	gang  *gangState
	index int
	lives int // how many were made before it
	state cluster.PodState
	gpu   int64  // what it takes, in milli-GPU
	first string // the UID of the first of that index, if it was adopted
}

// face is the API family under which a Cluster's gangs are known.
const face = "sim"

// namespace is that of a Cluster's gangs.
const namespace = "sim"

// Key is how the scheduler knows a Cluster's gang of that name.
func Key(name string) cluster.Key { return cluster.Key{Face: face, Namespace: namespace, Name: name} }

// AddNode adds a node. An error names the rule it breaks.
func (w *Cluster) AddNode(n Node) error {
	if w.nodes[n.Name] != nil {
		return fmt.Errorf("there are two nodes called %q", n.Name)
	}
	st := cluster.NodeState{Name: n.Name, UID: n.Name, Labels: n.Labels, Allocatable: n.Allocatable}
	w.nodes[n.Name] = &nodeState{state: st, pods: map[string]*pod{}}
	w.Store.Apply(st)
	return nil
}

// outage lets a node fail, and puts down its repair.
func (w *Cluster) outage(o Outage) error {
	n := w.nodes[o.Node]
	if n == nil {
		return fmt.Errorf("outage of node %q, which does not exist", o.Node)
	}
	n.outages++
	w.Figures.Outages++
	if n.outages == 1 {
		n.state.Problem = "NotReady"
		w.Store.Apply(n.state)
	}
	for _, uid := range slices.Sorted(maps.Keys(n.pods)) {
		p := n.pods[uid]
		if p.state.Phase == cluster.Running {
			w.Figures.LostPods++
		}
		w.gone(p)
	}
	w.at(w.now.Add(o.For), func() {
		if w.frozen {
			return
		}
		if n.outages--; n.outages == 0 {
			n.state.Problem = ""
			w.Store.Apply(n.state)
		}
	})
	return nil
}

// Submit adds a gang and its pods, which wait from now. An error names the gang and the rule it breaks.
func (w *Cluster) Submit(g Gang) error {
	key := Key(g.Name)
	if g.Min == 0 {
		g.Min = g.Pods
	}
	switch {
	case w.gangs[key] != nil:
		return fmt.Errorf("gang %q: there is one of that name", g.Name)
	case g.Pods < 1:
		return fmt.Errorf("gang %q: it has %d pods; it must have at least one", g.Name, g.Pods)
	case g.Min < 0 || g.Min > g.Pods:
		return fmt.Errorf("gang %q: it needs %d of %d pods", g.Name, g.Min, g.Pods)
	case g.Duration < 0:
		return fmt.Errorf("gang %q: its duration is %s; it must not be negative", g.Name, g.Duration)
	}
	it := &gangState{
		Gang: g, state: cluster.GangState{
			Key: key, UID: g.Name, Queue: g.Queue, Priority: g.Priority, Preemptible: !g.Fixed, Created: w.now, Sets: cluster.FlatTree(int32(g.Min)),
		},
	}
	for _, q := range g.Requests {
		if q.Name == "gpu" {
			it.gpu += q.Value
		}
	}
	it.gpu += g.Share.Charge(0)
	w.gangs[key] = it
	w.Store.Apply(it.state)
	it.pods = make([]*pod, g.Pods)
	for i := range it.pods {
		it.pods[i] = &pod{gang: it, index: i}
		w.make(it.pods[i])
	}
	w.Figures.Arrived++
	return nil
}

// make lets the owner create the pod of that index, with a UID that never was.
func (w *Cluster) make(p *pod) {
	if p.first != "" {
		w.again(p)
		return
	}
	p.gpu = p.gang.gpu
	name := p.gang.Name + "-" + strconv.Itoa(p.index)
	p.state = cluster.PodState{
		UID: name + "#" + strconv.Itoa(p.lives), Namespace: namespace, Name: name, Requests: p.gang.Requests, Phase: cluster.Pending,
		Gang: p.gang.state.Key, Ours: true, Recreated: true, Created: w.now,
	}
	if share := p.gang.Share; !share.None() {
		p.state.Spec = &cluster.ClassSpec{Share: share}
		p.state.Charge = append(slices.Clone(p.gang.Requests), cluster.Quantity{Name: "gpu", Value: share.Charge(0)})
	}
	w.pods[p.state.UID] = p
	w.Store.Apply(p.state)
}

// run lets a pod run on a node, and on devices there that it shares. The gang works from the moment it has its minimum.
func (w *Cluster) run(p *pod, on string, groups []string) {
	g := p.gang
	p.state.Phase, p.state.NodeName, p.state.Nominated, p.state.Groups = cluster.Running, on, "", groups
	if n := w.nodes[on]; n != nil {
		n.pods[p.state.UID] = p
	}
	w.Store.Apply(p.state)
	w.held[g.Queue] += p.gpu
	w.Figures.placed(p.gpu)
	g.active++
	if g.whole || !g.enough() {
		return
	}
	g.whole = true
	g.state.LastStart, g.state.StaleSince = w.now, cluster.Instant{}
	w.Store.Apply(g.state)
	where, after, free := w.places(g)
	since := w.now
	if w.o.Coarse {
		since = cluster.Latest(w.before, cluster.Latest(free, g.state.Created))
	}
	w.works(g, since)
	if w.o.Started != nil {
		w.o.Started(g.state.Key, where, after, since)
	}
}

// enough says whether a gang has its minimum.
func (g *gangState) enough() bool {
	if g.adopted {
		return Satisfied(g.state.Sets, g.members())
	}
	return g.active >= g.Min
}

// works puts down the end of a gang that has worked since then.
func (w *Cluster) works(g *gangState, since cluster.Instant) {
	if g.Duration <= 0 {
		return
	}
	spell := g.spell
	at := since.Add(g.Duration)
	w.at(cluster.Latest(w.now, at), func() {
		if g.whole && g.spell == spell && !w.frozen {
			w.end(g, at)
		}
	})
}

// places says where a gang runs, and who left there last, and when.
func (w *Cluster) places(g *gangState) (on []string, after cluster.Key, last cluster.Instant) {
	for _, p := range g.pods {
		if p.state.Phase != cluster.Running || slices.Contains(on, p.state.NodeName) {
			continue
		}
		on = append(on, p.state.NodeName)
		if n := w.nodes[p.state.NodeName]; n != nil && n.leftAt.After(last) {
			last, after = n.leftAt, n.left
		}
	}
	return on, after, last
}

// stop takes a running pod out of its gang's and queue's counts.
func (w *Cluster) stop(p *pod) {
	if p.state.Phase != cluster.Running {
		return
	}
	g := p.gang
	w.held[g.Queue] -= p.gpu
	g.active--
	if g.loose {
		return
	}
	if p.state.Phase = cluster.Releasing; g.whole && !g.enough() {
		g.whole = false
		g.spell++
		g.state.StaleSince = w.now
	}
	if g.active == 0 {
		g.state.StaleSince = cluster.Instant{}
	}
	w.Store.Apply(g.state)
}

// evict lets a running pod go, within the grace.
func (w *Cluster) evict(p *pod) {
	p.gang.state.LastEviction = w.now
	if w.o.Grace <= 0 {
		w.gone(p)
		return
	}
	w.stop(p)
	p.state.Phase, p.state.DeletedAt, p.state.Returning = cluster.Releasing, w.now.Add(w.o.Grace), true
	w.Store.Apply(p.state)
	uid := p.state.UID
	w.at(p.state.DeletedAt, func() {
		if w.pods[uid] == p { // its node may have failed before
			w.gone(p)
		}
	})
}

// gone removes a pod; its owner makes another one.
func (w *Cluster) gone(p *pod) {
	w.stop(p)
	w.remove(p, w.now)
	if p.gang.loose {
		return
	}
	p.lives++
	w.make(p)
}

// remove takes a pod out of the cluster, which it left then.
func (w *Cluster) remove(p *pod, at cluster.Instant) {
	if n := w.nodes[p.state.NodeName]; n != nil {
		delete(n.pods, p.state.UID)
		n.left, n.leftAt = p.gang.state.Key, at
	}
	delete(w.pods, p.state.UID)
	w.Store.Apply(cluster.PodGone{UID: p.state.UID})
}

// end is when a gang has worked for as long as it had to: now, or, in a coarse world, some time since the last decision.
func (w *Cluster) end(g *gangState, at cluster.Instant) {
	for _, p := range g.pods {
		if p.state.Phase == cluster.Running {
			w.held[g.Queue] -= p.gpu
		}
		w.remove(p, at)
	}
	delete(w.gangs, g.state.Key)
	w.Store.Apply(cluster.GangGone{Key: g.state.Key})
	w.Figures.Ended++
}
