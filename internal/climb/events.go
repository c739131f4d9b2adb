package climb

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/climb/genome"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// eventsOf makes a cluster of a world, in the order in which a feed would bring it.
func eventsOf(w *genome.World) []cluster.Event {
	var out []cluster.Event
	if w.Racked {
		out = append(out, cluster.TopologyState{Name: genome.Topology, Levels: []cluster.Level{{Label: genome.Block}, {Label: genome.Rack}}})
	}
	for i := range w.Nodes {
		n := &w.Nodes[i]
		s := cluster.NodeState{Name: n.Name, UID: n.Name, Labels: n.Labels, Allocatable: amounts(int64(n.CPUs)*1000, 1<<40, int64(n.GPUs)*1000, 110)}
		if n.Taint != "" {
			s.Taints = []v1.Taint{{Key: genome.Own, Value: n.Taint, Effect: v1.TaintEffectNoSchedule}}
		}
		out = append(out, s)
	}
	for i := range w.Queues {
		out = append(out, queueOf(&w.Queues[i]))
	}
	for _, b := range w.Budgets {
		x := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: b}}
		x.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{genome.App: b}}
		out = append(out, cluster.ObjectState{Kind: cluster.PodDisruptionBudgets, Key: namespace + "/" + b, Object: x})
	}
	for i := range w.Gangs {
		out = append(out, gangOf(&w.Gangs[i])...)
	}
	return out
}

const namespace = "ns"

func amounts(cpu, memory, gpu, pods int64) []cluster.Quantity {
	return []cluster.Quantity{{Name: "cpu", Value: cpu}, {Name: "memory", Value: memory}, {Name: "gpu", Value: gpu}, {Name: "pods", Value: pods}}
}

func queueOf(q *genome.Queue) cluster.QueueState {
	gpus := func(n int) []cluster.Quantity {
		x := int64(n) * 1000
		if n < 0 {
			x = cluster.Unlimited
		}
		return []cluster.Quantity{{Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}, {Name: "gpu", Value: x}}
	}
	weight := int64(q.Weight) * 1000
	s := cluster.QueueState{
		Name: q.Name, UID: q.Name, Parent: q.Parent, Priority: int32(q.Priority), Quota: gpus(q.Quota), Limit: gpus(q.Limit),
		Weight: []cluster.Quantity{{Name: "cpu", Value: weight}, {Name: "memory", Value: weight}, {Name: "gpu", Value: weight}},
	}
	if q.MinRuntime > 0 {
		d := cluster.Maybe[time.Duration]{Set: true, Value: time.Duration(q.MinRuntime) * time.Second}
		s.PreemptMinRuntime, s.ReclaimMinRuntime = d, d
	}
	return s
}

func gangOf(g *genome.Gang) []cluster.Event {
	key := cluster.Key{Face: "kai", Namespace: namespace, Name: g.Name}
	ago := func(seconds int) cluster.Instant { return noon().Add(-time.Duration(seconds) * time.Second) }
	s := cluster.GangState{
		Key: key, UID: g.Name, Queue: g.Queue, Priority: int32(g.Priority), Preemptible: g.Preemptible, Created: ago(1 + g.Age),
		PreemptionDelay: time.Duration(g.Delay) * time.Second, Sets: cluster.FlatTree(int32(g.Min)),
	}
	if g.Started > 0 {
		s.LastStart = ago(g.Started)
	}
	near := cluster.Constraint{Required: g.Near, Preferred: g.Prefer}
	if near != (cluster.Constraint{}) {
		near.Topology = genome.Topology
	}
	if g.Sets != nil {
		s.Sets = []cluster.Set{{Parent: cluster.None, Min: int32(len(g.Sets))}}
		for k, least := range g.Sets {
			set := cluster.Set{Name: fmt.Sprint("s", k), Leaf: true, Min: int32(least)}
			if g.SetNear != "" {
				set.Near = cluster.Constraint{Topology: genome.Topology, Required: g.SetNear}
			}
			s.Sets[0].Children = append(s.Sets[0].Children, int32(k+1))
			s.Sets = append(s.Sets, set)
		}
	}
	s.Sets[0].Near = near
	labels := map[string]string{genome.App: g.Label, genome.All: "yes"}
	spec, charge := specOf(g, labels), int64(g.MilliGPU)
	requests := amounts(int64(g.MilliCPU), 1<<30, charge, 1)
	var charged []cluster.Quantity
	if !spec.Share.None() {
		requests = amounts(int64(g.MilliCPU), 1<<30, 0, 1)
		charged = amounts(int64(g.MilliCPU), 1<<30, spec.Share.Charge(0), 1)
	}
	out := []cluster.Event{s}
	for i := range g.Pods {
		p := &g.Pods[i]
		x := cluster.PodState{
			UID: p.Name, Namespace: namespace, Name: p.Name, Gang: key, SetName: p.Set, Ours: true, Recreated: true, Labels: labels, Spec: spec,
			Requests: requests, Charge: charged, Created: s.Created,
		}
		if p.Node != "" {
			x.Phase, x.NodeName = cluster.Running, p.Node
		}
		if p.Device != "" {
			x.Groups = []string{p.Device}
		}
		out = append(out, x)
	}
	return out
}

func specOf(g *genome.Gang, labels map[string]string) *cluster.ClassSpec {
	s := &cluster.ClassSpec{}
	if g.MilliGPU > 0 && g.MilliGPU < 1000 {
		s.Share = cluster.Share{Devices: 1, Portion: cluster.Portion(g.MilliGPU) * cluster.WholePortion / 1000}
	}
	if g.Selects != "" {
		s.NodeSelector = map[string]string{genome.Own: g.Selects}
	}
	switch g.Tolerates {
	case "":
	case genome.AllTaints:
		s.Tolerations = []v1.Toleration{{Key: genome.Own, Operator: v1.TolerationOpExists}}
	default:
		s.Tolerations = []v1.Toleration{{Key: genome.Own, Operator: v1.TolerationOpEqual, Value: g.Tolerates}}
	}
	if g.Says == "" {
		return s
	}
	s.Namespace, s.Labels = namespace, labels
	of := map[string]string{genome.App: g.Label}
	switch g.Of {
	case genome.OfAll:
		of = map[string]string{genome.All: "yes"}
	case genome.OfNobody:
		of = map[string]string{"nobody": g.Label}
	}
	where := g.Where
	if where == "" {
		where = genome.Host
	}
	term := v1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: of}, TopologyKey: where}
	soft := []v1.WeightedPodAffinityTerm{{Weight: 100, PodAffinityTerm: term}}
	switch g.Says {
	case genome.Requires:
		s.PodAffinity = &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}
	case genome.Prefers:
		s.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: soft}
	case genome.Avoids:
		s.PodAntiAffinity = &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}
	case genome.AvoidsSoft:
		s.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: soft}
	case genome.SpreadsHard:
		s.Spread = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: where, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: term.LabelSelector}}
	}
	return s
}
