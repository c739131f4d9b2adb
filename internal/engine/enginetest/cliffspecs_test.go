package enginetest

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
)

// The cliffs of this file are those of what pods and others write down at length: a thousand gangs, no two of which say the same.

// crammed is a thousand nodes full of gangs, on each of which is one who need not go, with a label of its own each.
func crammed() *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("victims", "", 0), queue("taker", "", 8_000_000))
	s.victims(1000, func(i int) crew {
		return crew{queue: "victims", priority: 50, preemptible: i%8 != 0, labels: map[string]string{"app": fmt.Sprint("app-", i%300)}}
	})
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		node.Labels = maps.Clone(node.Labels)
		node.Labels["own"], node.Labels["size"] = owner(i), fmt.Sprint(i)
		s.nodes[i] = node
	}
	return s
}

func owner(i int) string { return fmt.Sprint("owner-", i) }

// asking adds n gangs of one pod each, of a whole node, that say what a function says.
func (s *situation) asking(n int, spec func(i int) cluster.ClassSpec) *situation {
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1, gpu: 8, age: 1, priority: 50, preemptible: true, spec: spec(i)}, int64(1000+i))
	}
	return s
}

// affine is a node affinity of so many terms.
func affine(terms int, term func(k int) v1.NodeSelectorRequirement) cluster.ClassSpec {
	sel := &v1.NodeSelector{}
	for k := range terms {
		sel.NodeSelectorTerms = append(sel.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{term(k)}})
	}
	return cluster.ClassSpec{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: sel}}
}

func in(key string, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}
}

// manyTaints is nodes of so many taints each, all of which a gang tolerates one by one but for the last.
func manyTaints(n, taints int) *situation {
	s := crammed()
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		for k := range taints {
			node.Taints = append(node.Taints, v1.Taint{Key: fmt.Sprint("taint-", k), Value: owner(i), Effect: v1.TaintEffectNoSchedule})
		}
		s.nodes[i] = node
	}
	return s.asking(n, func(i int) cluster.ClassSpec {
		spec := cluster.ClassSpec{}
		for k := range taints {
			t := v1.Toleration{Key: fmt.Sprint("taint-", k), Operator: v1.TolerationOpExists}
			if k == taints-1 {
				t.Operator, t.Value = v1.TolerationOpEqual, owner(i)
			}
			spec.Tolerations = append(spec.Tolerations, t)
		}
		return spec
	})
}

// tolerant is n gangs each of which tolerates so many taints, all of its own but for the one that all nodes have.
func tolerant(n, tolerations int) *situation {
	s := crammed()
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		node.Taints = []v1.Taint{{Key: "shared", Effect: v1.TaintEffectNoSchedule}, {Key: "own", Value: owner(i), Effect: v1.TaintEffectNoSchedule}}
		s.nodes[i] = node
	}
	return s.asking(n, func(i int) cluster.ClassSpec {
		spec := cluster.ClassSpec{Tolerations: []v1.Toleration{{Key: "shared", Operator: v1.TolerationOpExists}}}
		for k := range tolerations {
			spec.Tolerations = append(spec.Tolerations, v1.Toleration{Key: "own", Operator: v1.TolerationOpEqual, Value: owner(i + 1000*k)})
		}
		return spec
	})
}

// labelled is nodes of so many labels each, of values of their own, and n gangs each of which asks for some of them.
func labelled(n, labels int) *situation {
	s := crammed()
	for i := range s.nodes {
		node := s.nodes[i].(cluster.NodeState)
		node.Labels = maps.Clone(node.Labels)
		for k := range labels {
			node.Labels[fmt.Sprint("label-", k)] = owner(i)
		}
		s.nodes[i] = node
	}
	return s.asking(n, func(i int) cluster.ClassSpec {
		spec := cluster.ClassSpec{NodeSelector: map[string]string{}}
		for k := range labels / 10 {
			spec.NodeSelector[fmt.Sprint("label-", k)] = owner(i)
		}
		return spec
	})
}

// containers is n gangs of one pod each that consists of so many containers, which have to be aligned, where all nodes have room for
// one of the pods in all, and no zone has room for any of its containers. Zones have CPU if zoned is true, which all but one of the
// containers ask for; then that one is the last, so that all others are looked at first.
func containers(n, each int, zoned bool) *situation {
	s := &situation{}
	s.plant(1000)
	s.rest = append(s.rest, queue("team", "", cluster.Unlimited))
	gpus := func(n int64) []cluster.Quantity { return []cluster.Quantity{{Name: "gpu", Value: n * 1000}} }
	has := gpus(4)
	if zoned {
		has = append(has, cluster.Quantity{Name: "cpu", Value: 1 << 40})
	}
	for i := range 1000 {
		s.nodes = append(s.nodes, cluster.ObjectState{Kind: cluster.NodeResourceTopologies, Key: nodeName(i), Object: &cluster.NodeZones{
			Policy: cluster.ZonesSingle, Scope: cluster.PerContainer, Zones: []cluster.Zone{{Name: "node-0", Allocatable: has}, {Name: "node-1", Allocatable: has}},
		}})
	}
	for i := range n {
		spec := cluster.ClassSpec{Align: []cluster.Need{{Amounts: gpus(5)}}}
		for k := 1; k < each; k++ {
			spec.Align = append(spec.Align, cluster.Need{Amounts: []cluster.Quantity{{Name: "cpu", Value: int64(1 + i)}}})
		}
		if zoned {
			slices.Reverse(spec.Align)
		}
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "team", pods: 1, gpu: 5, age: 1, priority: 50, preemptible: true, spec: spec}, int64(each*(1+i)))
	}
	return s
}

// aligned lets the plugin for zones have a say.
func aligned(p *engine.Profile) {
	p.Tiers[len(p.Tiers)-1] = append(p.Tiers[len(p.Tiers)-1], engine.PluginUse{Name: numa.Name})
}

// ports is n gangs each of which opens a port of its own that is open on all nodes but a few; there is room.
func ports(n int) *situation {
	s := &situation{}
	s.plant(1000)
	s.rest = append(s.rest, queue("team", "", cluster.Unlimited), queue("taker", "", 8_000_000))
	var open []cluster.HostPort
	for i := range n {
		open = append(open, cluster.HostPort{IP: "0.0.0.0", Protocol: "TCP", Port: int32(10000 + i)})
	}
	for i := range 1000 {
		s.crew(crew{name: fmt.Sprintf("running-%06d", i), queue: "team", pods: 1, gpu: 1, node: nodeName(i), age: int64(10 + i), priority: 1000, spec: cluster.ClassSpec{HostPorts: open}})
	}
	for i := range n {
		s.crew(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 1, gpu: 1, age: 1, priority: 50, preemptible: true, spec: cluster.ClassSpec{HostPorts: open[i : i+1]}})
	}
	return s
}

// budgeted is gangs of many shapes, and budgets for the victims of a label each that allow nothing.
func budgeted(n, budgets int) *situation {
	s := crammed()
	for i := range budgets {
		name := fmt.Sprint("app-", i)
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		b.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{name}}}}
		s.rest = append(s.rest, cluster.ObjectState{Kind: cluster.PodDisruptionBudgets, Key: "ns/" + name, Object: b})
	}
	return s.asking(n, func(int) cluster.ClassSpec { return cluster.ClassSpec{} })
}

// subgroups is n gangs of so many sets of a whole node each, of shapes of their own.
func subgroups(n, sets int, near cluster.Constraint) *situation {
	s := crammed()
	s.racks(20)
	for i := range n {
		from := len(s.rest)
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: sets, gpu: 8, age: 1, priority: 50, preemptible: true}, int64(1000+i))
		g := s.rest[from].(cluster.GangState)
		g.Sets = []cluster.Set{{Parent: cluster.None, Min: int32(sets)}}
		for k := range sets {
			g.Sets[0].Children = append(g.Sets[0].Children, int32(k+1))
			g.Sets = append(g.Sets, cluster.Set{Name: fmt.Sprint("s", k), Parent: 0, Leaf: true, Min: 1, Near: near})
			p := s.rest[from+1+k].(cluster.PodState)
			p.SetName = fmt.Sprint("s", k)
			s.rest[from+1+k] = p
		}
		s.rest[from] = g
	}
	return s
}

// topologies is n gangs each of which names a topology of its own.
func topologies(n int) *situation {
	s := crammed()
	s.racks(20)
	for i := range n {
		s.nodes = append(s.nodes, cluster.TopologyState{Name: fmt.Sprint("dc-", i), Levels: []cluster.Level{{Label: "block"}, {Label: "rack"}}})
		s.near(1, 22, 8, cluster.Constraint{Topology: fmt.Sprint("dc-", i), Required: "rack"})
		g := len(s.rest) - 23
		st := s.rest[g].(cluster.GangState)
		st.Key.Name, st.UID = fmt.Sprintf("waiting-%06d", i), fmt.Sprintf("waiting-%06d", i)
		s.rest[g] = st
		for k := range 22 {
			p := s.rest[g+1+k].(cluster.PodState)
			p.Gang, p.Name, p.UID = st.Key, fmt.Sprintf("%s-%d", st.UID, k), fmt.Sprintf("%s-%d", st.UID, k)
			s.rest[g+1+k] = p
		}
	}
	return s
}

// elastic is n gangs of a whole node each, where on every node a gang has one pod more than it needs, or needs none of them.
func elastic(n, least int) *situation {
	s := &situation{}
	s.rest = append(s.rest, queue("victims", "", 8_000_000), queue("taker", "", 8_000_000))
	s.plant(1000)
	for i := range 250 {
		from := len(s.rest)
		s.crew(crew{name: fmt.Sprintf("running-%06d", i), queue: "victims", pods: 4, gpu: 5, node: nodeName(i), age: int64(10 + i), priority: 50, preemptible: true})
		g := s.rest[from].(cluster.GangState)
		g.Sets = cluster.FlatTree(int32(least))
		s.rest[from] = g
		for k := range 4 {
			p := s.rest[from+1+k].(cluster.PodState)
			p.NodeName = nodeName(4*i + k)
			s.rest[from+1+k] = p
		}
	}
	return s.asking(n, func(int) cluster.ClassSpec { return cluster.ClassSpec{} })
}

// piecesBut is pieces of which so many belong to a queue that has to give.
func piecesBut(n, give int) *situation {
	s := pieces(0)
	s.rest = append(s.rest, queue("taker", "", 8_000_000), queue("giver", "", 0))
	for i := range s.rest {
		if g, ok := s.rest[i].(cluster.GangState); ok && give > 0 {
			give--
			g.Queue = "giver"
			s.rest[i] = g
		}
	}
	for i := range n {
		s.crewOf(crew{name: fmt.Sprintf("waiting-%06d", i), queue: "taker", pods: 11, gpu: 8, age: 1, priority: 50, preemptible: true}, int64(1000+i))
	}
	return s
}

// specCliffs are those of what is written at length.
func specCliffs() []cliff {
	whatever := func(_, _, _ int) bool { return true }
	return []cliff{
		{"affinity=1000/terms=50", func() *situation {
			return crammed().asking(1000, func(i int) cluster.ClassSpec {
				return affine(50, func(k int) v1.NodeSelectorRequirement { return in("own", owner(i+1000*k)) })
			})
		}, nil, idly},
		{"affinity=1000/values=500", func() *situation {
			return crammed().asking(1000, func(i int) cluster.ClassSpec {
				values := []string{}
				for k := range 500 {
					values = append(values, owner(i+1000*k))
				}
				return affine(1, func(int) v1.NodeSelectorRequirement { return in("own", values...) })
			})
		}, nil, idly},
		{"affinity=1000/gt", func() *situation {
			return crammed().asking(1000, func(i int) cluster.ClassSpec {
				return affine(50, func(k int) v1.NodeSelectorRequirement {
					return v1.NodeSelectorRequirement{Key: "size", Operator: v1.NodeSelectorOpGt, Values: []string{fmt.Sprint(1000 + i*50 + k)}}
				})
			})
		}, nil, idly},
		{"taints=1000/each=100", func() *situation { return manyTaints(1000, 100) }, nil, idly},
		{"tolerations=1000/each=100", func() *situation { return tolerant(1000, 100) }, nil, idly},
		{"labels=200", func() *situation { return labelled(1000, 200) }, nil, idly},
		{"containers=500x1000", func() *situation { return containers(500, 1000, false) }, []func(*engine.Profile){aligned}, idly},
		{"containers=500x1000/zoned", func() *situation { return containers(500, 1000, true) }, []func(*engine.Profile){aligned}, idly},
		{"ports=100", func() *situation { return ports(100) }, nil, idly},
		{"ports=1000", func() *situation { return ports(1000) }, nil, idly},
		{"budgets=300", func() *situation { return budgeted(300, 300) }, nil, idly},
		{"subgroups=500x100", func() *situation { return subgroups(500, 100, cluster.Constraint{}) }, nil, idly},
		{"subgroups=500x100/near", func() *situation { return subgroups(500, 100, oneRack) }, nil, idly},
		{"topologies=1000", func() *situation { return topologies(1000) }, nil, idly},
		{"elastic/min=3", func() *situation { return elastic(300, 3) }, nil, whatever},
		{"elastic/min=1", func() *situation { return elastic(300, 1) }, nil, whatever},
		{"pieces=300/give=1", func() *situation { return piecesBut(300, 1) }, nil, whatever},
		{"pieces=300/give=10", func() *situation { return piecesBut(300, 10) }, nil, whatever},
	}
}
