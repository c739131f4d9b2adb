package nodescores

import (
	"math/bits"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// NodeOrderFactory declares nodeorder: the sum of kube-scheduler's scorers, each from 0 to 100 points times its weight.
//
//	leastrequested    1  the mean of what part of CPU and memory would be left
//	mostrequested     0  the mean of what part of them would be used
//	balancedresource  1  100 less the standard deviation of the parts of CPU, memory, and GPUs for who asks for some, that would be used
//	nodeaffinity      2  the weights of the preferred terms that the node matches, of the most that any node matches
//	tainttoleration   3  the taints PreferNoSchedule that the pod does not tolerate: 100 for none, 0 for the most of any node
//
// podaffinity and podtopologyspread are scorers that look at other nodes' pods: one is SpreadFactory, the other in package podaffinity. imagelocality is taken and has no effect.
var NodeOrderFactory = policy.Makes(buildNodeOrder)

func buildNodeOrder(args policy.Arguments) (func(*policy.View) *ordering, []string, error) {
	var o ordering
	for _, one := range []struct {
		name      string
		otherwise int64
		into      *int64
	}{
		{"leastrequested.weight", 1, &o.least},
		{"mostrequested.weight", 0, &o.most},
		{"balancedresource.weight", 1, &o.balanced},
		{"nodeaffinity.weight", 2, &o.affinity},
		{"tainttoleration.weight", 3, &o.taints},
		{"imagelocality.weight", 1, new(int64)},
		{"podaffinity.weight", 2, new(int64)},
		{SpreadWeight, 2, new(int64)},
	} {
		var err error
		if *one.into, err = weight(args, one.name, one.otherwise); err != nil {
			return nil, nil, err
		}
	}
	unknown := args.Unknown("leastrequested.weight", "mostrequested.weight", "balancedresource.weight", "nodeaffinity.weight", "tainttoleration.weight",
		"imagelocality.weight", "podaffinity.weight", SpreadWeight)
	return func(v *policy.View) *ordering {
		i := o
		i.view, i.terms, i.spared = v, map[uint64]*preferred{}, map[uint64]int64{}
		return &i
	}, unknown, nil
}

type ordering struct {
	view                                    *policy.View
	least, most, balanced, affinity, taints int64

	terms  map[uint64]*preferred // by class, nil for one without any
	spared map[uint64]int64      // by class: the most taints of any node that it does not tolerate
}

// preferred are the preferred terms of a class, and the most that a node matches of their weights.
type preferred struct {
	of   *nodeaffinity.PreferredSchedulingTerms
	most int64
}

// ScoreNode implements policy.NodeScore.
func (o *ordering) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	points := int64(0)
	if o.least+o.most+o.balanced > 0 {
		points += o.resources(c, n)
	}
	if o.affinity > 0 {
		points += o.affinity * o.matches(c, n)
	}
	if o.taints > 0 {
		points += o.taints * o.tolerates(c, n)
	}
	return points * policy.ScorePoint
}

// resources are the three scorers that look at room.
func (o *ordering) resources(c *cluster.Class, n *cluster.Node) int64 {
	var parts []int64 // in millionths
	least, most, both := int64(0), int64(0), int64(0)
	for _, dim := range [...]int{cluster.CPU, cluster.RAM, cluster.GPU} {
		used, of, over := use(o.view, c, n, dim)
		if of <= 0 || dim == cluster.GPU && c.Requests.At(dim) <= 0 {
			continue
		}
		used = min(used, of)
		parts = append(parts, part(million, used, of))
		if dim == cluster.GPU {
			continue
		}
		both++
		most += part(100, used, of)
		if !over {
			least += part(100, of-used, of)
		}
	}
	if both > 0 {
		least, most = least/both, most/both
	}
	return o.least*least + o.most*most + o.balanced*(100*(million-deviation(parts))/million)
}

const million = 1_000_000

// deviation is the standard deviation of some numbers up to a million, cut to the unit below.
func deviation(parts []int64) int64 {
	n := int64(len(parts))
	if n == 0 {
		return 0
	}
	sum, squares := int64(0), int64(0)
	for _, x := range parts {
		sum += x
		squares += x * x
	}
	return root((n*squares - sum*sum) / (n * n))
}

// root is the square root of x, 0 or more, cut to the unit below.
func root(x int64) int64 {
	if x <= 0 {
		return 0
	}
	r := int64(1) << ((bits.Len64(uint64(x)) + 1) / 2) // above it
	for {
		next := (r + x/r) / 2
		if next >= r {
			return r
		}
		r = next
	}
}

// matches is the scorer of preferred node affinity.
func (o *ordering) matches(c *cluster.Class, n *cluster.Node) int64 {
	if c.NodeAffinity == nil || len(c.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) == 0 {
		return 0
	}
	p, known := o.terms[c.ID]
	if !known {
		if of, err := nodeaffinity.NewPreferredSchedulingTerms(c.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution); err == nil {
			p = &preferred{of: of}
			snap := o.view.Snapshot()
			for _, id := range snap.NodeOrder {
				p.most = max(p.most, p.score(snap.Node(id)))
			}
		}
		o.terms[c.ID] = p
	}
	if p == nil || p.most <= 0 {
		return 0
	}
	return 100 * max(0, p.score(n)) / p.most
}

func (p *preferred) score(n *cluster.Node) int64 {
	node := v1.Node{}
	node.Name, node.Labels = n.Name, n.Labels
	return p.of.Score(&node)
}

// tolerates is the scorer of taints.
func (o *ordering) tolerates(c *cluster.Class, n *cluster.Node) int64 {
	most, known := o.spared[c.ID]
	if !known {
		snap := o.view.Snapshot()
		for _, id := range snap.NodeOrder {
			most = max(most, resented(c, snap.Node(id)))
		}
		o.spared[c.ID] = most
	}
	if most == 0 {
		return 100
	}
	return 100 - 100*resented(c, n)/most
}

// resented counts the taints PreferNoSchedule of a node that a class does not tolerate.
func resented(c *cluster.Class, n *cluster.Node) (count int64) {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect == v1.TaintEffectPreferNoSchedule && !policy.Tolerates(c.Tolerations, t) {
			count++
		}
	}
	return count
}
