package nodescores

import (
	"math"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// SpreadWeight is the argument of nodeorder that weighs how evenly pods are spread, 2 where it is not said.
const SpreadWeight = "podtopologyspread.weight"

// SpreadFactory declares the part of nodeorder that is about topology spread constraints that are wishes (ScheduleAnyway): kube-scheduler's. Of a node that has the labels of all of
// them the sum over the constraints counts of (pods that the constraint means in the node's domain) × ln(domains + 2) + maxSkew − 1, logarithms in millionths, the sum rounded to a whole number: the
// nodes of the least sum have 100 points, others 100 × (least + most − sum) ÷ most, all of them 100 if the most is 0, nodes without the labels none; times SpreadWeight.
var SpreadFactory = policy.Makes(func(args policy.Arguments) (func(*policy.View) *spreading, []string, error) {
	by, err := weight(args, SpreadWeight, 2)
	return func(v *policy.View) *spreading {
		return &spreading{view: v, weight: by, known: map[uint64]int{}}
	}, nil, err
})

// spreading is how evenly pods are spread, in one run.
type spreading struct {
	view   *policy.View
	weight int64
	known  map[uint64]int // numbers of kinds, by class; 0 for one without wishes
	kinds  []*wishes
	log    []moved
	seen   int // how much of the log some kind has read
}

// moved is a pod that came to a node (1) or left it (-1).
type moved struct {
	pod  *cluster.Pod
	node cluster.NodeID
	by   int64
}

// wishes are what pods of a class wish for.
type wishes struct {
	namespace string
	of        []wish
	nodes     []cluster.NodeID // that have all labels
	scores    []int64
	changed   []cluster.NodeID
	read      int // how much of the log is in the counts
	begun     bool
}

// wish is a constraint.
type wish struct {
	key      string
	selector labels.Selector
	counts   map[string]int64        // by domain
	leaves   map[cluster.NodeID]bool // nodes whose pods do not count
	each     int64                   // what a pod counts, in millionths
	more     int64                   // what counts besides, in millionths
}

// Done implements policy.Observer.
func (s *spreading) Done(op ledger.Op) { s.record(moved{op.Pod, op.Node, int64(op.Gives())}) }

// Undone implements policy.Observer.
func (s *spreading) Undone(op ledger.Op) { s.record(moved{op.Pod, op.Node, -int64(op.Gives())}) }

// record notes what happened. What is undone before anybody has read of it leaves nothing to read.
func (s *spreading) record(m moved) {
	if s.weight == 0 {
		return
	}
	if last := len(s.log) - 1; last >= s.seen && s.log[last] == (moved{m.pod, m.node, -m.by}) {
		s.log = s.log[:last]
		return
	}
	s.log = append(s.log, m)
}

// Kind implements policy.CompanyScore: the pods of a class are of one kind, as their labels and constraints are part of it.
func (s *spreading) Kind(p *cluster.Pod) int {
	if s.weight == 0 || len(p.Class.Spread) == 0 {
		return 0
	}
	n, known := s.known[p.Class.ID]
	if !known {
		if w := s.read(p.Class); w != nil {
			s.kinds = append(s.kinds, w)
			n = len(s.kinds)
		}
		s.known[p.Class.ID] = n
	}
	return n
}

// read returns what pods of a class wish for, with counts as things stand; nil for nothing, and for what cannot be understood, which upstream's filters tell of.
func (s *spreading) read(c *cluster.Class) *wishes {
	w := &wishes{namespace: c.Namespace}
	snap := s.view.Snapshot()
	for i := range c.Spread {
		t := &c.Spread[i]
		if t.WhenUnsatisfiable != v1.ScheduleAnyway {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
		if err != nil {
			return nil
		}
		same := labels.Set{}
		for _, key := range t.MatchLabelKeys {
			if value, has := c.Labels[key]; has {
				same[key] = value
			}
		}
		if more, some := selector.Requirements(); some && len(same) > 0 {
			selector = labels.SelectorFromSet(same).Add(more...)
		}
		selects := t.NodeAffinityPolicy == nil || *t.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor
		tolerates := t.NodeTaintsPolicy != nil && *t.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor
		w.of = append(w.of, wish{key: t.TopologyKey, selector: selector, counts: map[string]int64{}, leaves: s.left(c, selects, tolerates), more: (int64(t.MaxSkew) - 1) * million})
	}
	if len(w.of) == 0 {
		return nil
	}
	for _, id := range snap.NodeOrder {
		n, all := snap.Node(id), true
		for i := range w.of {
			_, has := n.Labels[w.of[i].key]
			all = all && has
		}
		if all {
			w.nodes = append(w.nodes, id)
		}
	}
	for i := range w.of {
		domains := map[string]bool{}
		for _, id := range w.nodes {
			domains[snap.Node(id).Labels[w.of[i].key]] = true
		}
		w.of[i].each = int64(math.Round(math.Log(float64(len(domains)+2)) * million))
	}
	for _, id := range w.nodes {
		for _, pid := range snap.Node(id).Pods {
			if p := snap.Pod(pid); p.Phase != cluster.Releasing {
				w.count(snap.Node(id), p, 1)
			}
		}
	}
	w.scores = make([]int64, snap.MaxNodeID())
	return w
}

// left are the nodes whose pods do not count for a constraint, as its policies have it: those that the class does not select, and those whose taints it does not tolerate.
func (s *spreading) left(c *cluster.Class, selects, tolerates bool) map[cluster.NodeID]bool {
	if selects = selects && (c.NodeSelector != nil || c.NodeAffinity != nil); !selects && !tolerates {
		return nil
	}
	pod := &v1.Pod{Spec: v1.PodSpec{NodeSelector: c.NodeSelector, Affinity: &v1.Affinity{NodeAffinity: c.NodeAffinity}}}
	require, out := nodeaffinity.GetRequiredNodeAffinity(pod), map[cluster.NodeID]bool{}
	snap := s.view.Snapshot()
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		on := v1.Node{}
		on.Name, on.Labels = n.Name, n.Labels
		if match, _ := require.Match(&on); selects && !match || tolerates && refused(c, n) {
			out[id] = true
		}
	}
	return out
}

// refused says whether a node has a taint for which a class does not come there.
func refused(c *cluster.Class, n *cluster.Node) bool {
	for i := range n.Taints {
		if t := &n.Taints[i]; t.Effect != v1.TaintEffectPreferNoSchedule && !policy.Tolerates(c.Tolerations, t) {
			return true
		}
	}
	return false
}

// count lets a pod that came to a node, or left it, count, and says whether that changes anything.
func (w *wishes) count(n *cluster.Node, p *cluster.Pod, by int64) (some bool) {
	if p.Namespace != w.namespace {
		return false
	}
	for i := range w.of {
		x := &w.of[i]
		if value, has := n.Labels[x.key]; has && !x.leaves[n.ID] && !x.selector.Empty() && x.selector.Matches(labels.Set(p.Labels)) {
			x.counts[value] += by
			some = true
		}
	}
	return some
}

// Company implements policy.CompanyScore. After a change that concerns the kind it costs a look at each node.
func (s *spreading) Company(kind int) (scores []int64, changed []cluster.NodeID) {
	w, snap := s.kinds[kind-1], s.view.Snapshot()
	fresh := !w.begun
	for ; w.read < len(s.log); w.read++ {
		m := s.log[w.read]
		if n := snap.Node(m.node); w.counts(n) {
			fresh = w.count(n, m.pod, m.by) || fresh
		}
	}
	s.seen = len(s.log)
	if !fresh {
		return w.scores, w.changed
	}
	w.begun = true
	sums := make([]int64, len(w.scores))
	for _, id := range w.nodes {
		sum := int64(0)
		for i := range w.of {
			x := &w.of[i]
			sum += x.counts[snap.Node(id).Labels[x.key]]*x.each + x.more
		}
		sums[id] = (sum + million/2) / million
	}
	low, top := policy.Bounds(w.nodes, sums)
	for _, id := range w.nodes {
		score := s.weight * whole
		if top > 0 {
			score = s.weight * part(100, max(0, top+low-sums[id]), top) * policy.ScorePoint
		}
		if w.scores[id] != score {
			w.scores[id] = score
			w.changed = append(w.changed, id)
		}
	}
	return w.scores, w.changed
}

// counts says whether a node has all labels.
func (w *wishes) counts(n *cluster.Node) bool {
	for i := range w.of {
		if _, has := n.Labels[w.of[i].key]; !has {
			return false
		}
	}
	return true
}
