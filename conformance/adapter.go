package conformance

import (
	"fmt"
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Units and constants of the files.
const (
	second        = int64(1e9)
	megabyte      = 1e6
	defaultSpace  = "default" // namespace of gangs that name none
	nodeTypeLabel = "kai.scheduler/type"
	taskLabel     = "kai.scheduler/task-priority"
	// nonPreemptibleFrom is the priority from which a gang is non-preemptible unless it says otherwise.
	nonPreemptibleFrom = 100
	// defaultQueuePriority is the priority of queues that name none.
	defaultQueuePriority = 100
	// startedAgo is for how long running gangs have run.
	startedAgo = 60 * second
	// stuckAfter is when a pod that should be gone is no longer counted on. Only its order of magnitude matters here:
	// pods are either just being deleted or stuck for good.
	stuckAfter = 60 * second
)

// start is the moment cases begin at: any moment with room before and after it.
const start = int64(1_700_000_000) * second

// events turns the case's cluster into the events that make a store know it. Pods come last and are identified by name.
func (c *Case) events() []cluster.Event {
	var out []cluster.Event
	for i := range c.Given.Nodes {
		out = append(out, c.Given.Nodes[i].event())
	}
	for i := range c.Given.Queues {
		out = append(out, c.Given.Queues[i].event())
	}
	for i := range c.Given.Gangs {
		g := &c.Given.Gangs[i]
		out = append(out, g.event())
	}
	return out
}

func (n *Node) event() cluster.NodeState {
	labels := map[string]string{nodeTypeLabel: n.Name}
	for k, v := range n.Labels { // order: a set
		labels[k] = v
	}
	gpus := n.GPUs
	if n.MIGStrategy == "mixed" {
		gpus = 0
	}
	alloc := []cluster.Quantity{{Name: "cpu", Value: n.CPUMilli}, {Name: "memory", Value: n.MemoryBytes}, {Name: "gpu", Value: gpus * 1000}, {Name: "pods", Value: n.PodSlots}}
	for name, x := range n.MIGInstances { // order: named quantities
		alloc = append(alloc, cluster.Quantity{Name: name, Value: x})
	}
	return cluster.NodeState{Name: n.Name, UID: n.Name, Labels: labels, GPUMemoryMiB: n.GPUMemoryMiB, Allocatable: alloc}
}

func (q *Queue) event() cluster.QueueState {
	st := cluster.QueueState{
		Name: q.Name, UID: q.Name, Display: q.Name, Parent: q.Parent, Priority: defaultQueuePriority,
		Created: start - 24*3600*second + q.CreatedAt*second,
	}
	if q.Priority != nil {
		st.Priority = *q.Priority
	}
	for _, d := range []struct {
		name  string
		share Share
		unit  float64
	}{{"gpu", q.GPU, 1000}, {"cpu", q.CPU, 1}, {"memory", q.Memory, megabyte}} {
		st.Quota = append(st.Quota, cluster.Quantity{Name: d.name, Value: d.share.Quota.in(d.unit)})
		st.Limit = append(st.Limit, cluster.Quantity{Name: d.name, Value: d.share.Limit.in(d.unit)})
		st.Weight = append(st.Weight, cluster.Quantity{Name: d.name, Value: int64(math.Round(math.Max(0, d.share.Weight) * 1000))})
	}
	return st
}

func (a Amount) in(unit float64) int64 {
	if a.Unlimited {
		return cluster.Unlimited
	}
	return cluster.Clamp(int64(math.Round(a.Value * unit)))
}

func (g *Gang) key() cluster.Key {
	ns := g.Namespace
	if ns == "" {
		ns = defaultSpace
	}
	return cluster.Key{Face: "kai", Namespace: ns, Name: g.Name}
}

func (g *Gang) created() int64 { return start - g.AgeSeconds*second }

func (g *Gang) preemptible() bool {
	switch g.Preemptibility {
	case "preemptible":
		return true
	case "non-preemptible":
		return false
	}
	return g.Priority < nonPreemptibleFrom
}

func (g *Gang) event() cluster.GangState {
	st := cluster.GangState{Key: g.key(), UID: g.Name, Queue: g.Queue, Priority: g.Priority, Preemptible: g.preemptible(), Created: g.created()}
	for i := range g.Pods {
		if g.Pods[i].Status == "Running" {
			st.LastStart = start - startedAgo
		}
	}
	if t := required(&g.Tree); t != "" {
		st.Invalid = "requires the topology level " + t + ", which this version cannot honour"
	}
	st.Sets = sets(&g.Tree)
	return st
}

// required names a topology level that a set of the tree must stay in, "" for none.
func required(t *Tree) string {
	if s := string(t.Topology); s != "" && s != "null" {
		var c struct {
			Required string `json:"required"`
		}
		if decode(t.Topology, &c) == nil && c.Required != "" {
			return c.Required
		}
	}
	for i := range t.Members {
		if r := required(&t.Members[i]); r != "" {
			return r
		}
	}
	return ""
}

// sets flattens the tree, parents before children.
func sets(root *Tree) []cluster.Set {
	var out []cluster.Set
	var walk func(t *Tree, parent int32)
	walk = func(t *Tree, parent int32) {
		i := int32(len(out))
		s := cluster.Set{Name: t.Name, Parent: parent, Leaf: len(t.Members) == 0}
		switch {
		case s.Leaf && t.MinMember != nil:
			s.Min = *t.MinMember
		case !s.Leaf && t.MinSubGroup != nil:
			s.Min = *t.MinSubGroup
		case !s.Leaf:
			s.Min = int32(len(t.Members))
		}
		out = append(out, s)
		if parent != cluster.None {
			out[parent].Children = append(out[parent].Children, i)
		}
		for m := range t.Members {
			walk(&t.Members[m], i)
		}
	}
	walk(root, cluster.None)
	return out
}

// pod returns the event for one pod as it is at the start.
func (g *Gang) pod(p *Pod) (cluster.PodState, error) {
	key := g.key()
	st := cluster.PodState{UID: p.Name, Namespace: key.Namespace, Name: p.Name, Gang: key, SetName: p.Subgroup, Ours: true, Created: g.created()}
	if p.TaskPriority != nil {
		st.Labels = map[string]string{taskLabel: strconv.Itoa(*p.TaskPriority)}
	}
	g.request(p, &st)
	g.demands(p, &st)
	switch p.Status {
	case "Pending", "Pipelined": // a promise of an earlier run is not part of what the API server knows
	case "Running":
		st.Phase, st.NodeName = cluster.Running, p.Node
	case "Releasing":
		st.Phase, st.NodeName, st.DeletedAt = cluster.Releasing, p.Node, start
	case "StuckInReleasing":
		st.Phase, st.NodeName, st.DeletedAt = cluster.Releasing, p.Node, start-60*stuckAfter
	case "Failed":
		st.Phase = cluster.Failed
	case "Succeeded":
		st.Phase = cluster.Succeeded
	default:
		return st, fmt.Errorf("pod %s: status %q is unknown", p.Name, p.Status)
	}
	return st, nil
}

// gpus returns what the pod asks for in milli-GPU.
func (g *Gang) gpus(p *Pod) int64 {
	if p.GPUs != nil {
		return int64(math.Round(*p.GPUs * 1000))
	}
	if g.PerPod == nil || g.BestEffort {
		return 0
	}
	return int64(math.Round(g.PerPod.GPUs*1000)) * max(1, g.PerPod.GPUDevices)
}

func (g *Gang) request(p *Pod, st *cluster.PodState) {
	st.Requests = []cluster.Quantity{{Name: "pods", Value: 1}}
	if g.BestEffort {
		return
	}
	if r := g.PerPod; r != nil {
		st.Requests = append(st.Requests, cluster.Quantity{Name: "cpu", Value: r.CPUMilli}, cluster.Quantity{Name: "memory", Value: r.MemoryBytes})
		if r.GPUMemoryMiB > 0 {
			st.Spec.Unsupported = "an amount of GPU memory"
		}
	}
	milli := g.gpus(p)
	st.Requests = append(st.Requests, cluster.Quantity{Name: "gpu", Value: milli})
	if milli%1000 != 0 {
		st.Spec.Unsupported = "a share of a GPU"
	}
	for name, x := range p.MIG { // order: named quantities
		st.Requests = append(st.Requests, cluster.Quantity{Name: name, Value: x})
		st.Spec.Unsupported = "a slice of a GPU"
	}
	if len(p.Claims) > 0 {
		st.Spec.Unsupported = "devices by resource claim"
	}
}

// demands fills where the pod may run.
func (g *Gang) demands(p *Pod, st *cluster.PodState) {
	if len(p.OnlyNodes) > 0 {
		st.Spec.NodeAffinity = &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: nodeTypeLabel, Operator: v1.NodeSelectorOpIn, Values: p.OnlyNodes}},
		}}}}
	}
	if p.AffinityLabels == nil {
		return
	}
	st.Labels, st.Spec.Labels, st.Spec.Namespace = p.AffinityLabels, p.AffinityLabels, st.Namespace
	term := func(key string) []v1.PodAffinityTerm {
		return []v1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: p.AffinityLabels}, TopologyKey: key}}
	}
	if p.AffinityKey != "" {
		st.Spec.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(p.AffinityKey)}
	}
	if p.AntiAffinityKey != "" {
		st.Spec.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: term(p.AntiAffinityKey)}
	}
}
