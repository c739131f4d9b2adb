package filters

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/helper"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"

	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// spread says what upstream's PodTopologySpread says, from counts of its own: upstream counts anew for each pod that is asked about, and
// its AddPod and RemovePod keep only the two emptiest domains, enough for the removal of pods from one node at a time; a gang goes to
// many. Here whom constraints mean is counted once for all that mean the same, and follows the log. A property test compares the two.
type spread struct {
	*instance
	classes map[uint64]*spreading
	counts  map[string]*evenness
	grounds map[string]*ground
	lacks   map[string][]uint64 // nodes that lack one of some labels
}

// spreading is what a class asks for.
type spreading struct {
	failed  policy.Verdict // it cannot be understood
	lacking []uint64       // nodes that lack a label that a constraint names
	rules   []rule
}

// rule is a constraint that says DoNotSchedule.
type rule struct {
	of      *evenness
	self    int // 1 if it means the pod itself
	skew    int
	domains int // with fewer than these, the emptiest counts as empty
}

// ground is where pods count: the nodes that constraints look at, and how many of them each domain of a label has.
type ground struct {
	key     string
	nodes   []uint64
	domains map[string]int
}

// evenness is how many pods that a selector means are in each domain of a ground.
type evenness struct {
	*ground
	namespace string
	selector  labels.Selector
	named     label // that all whom it means have; no key if there is none
	counts    map[string]int
	having    map[int]int      // domains, by what they count, but for those that count nothing
	over      map[int][]uint64 // nodes of domains that count more
	read      int              // how much of the log is in it
}

func (i *instance) spread() *spread {
	if i.even == nil {
		i.upstream()
		i.even = &spread{instance: i, classes: map[uint64]*spreading{}, counts: map[string]*evenness{}, grounds: map[string]*ground{}, lacks: map[string][]uint64{}}
	}
	return i.even
}

func (s *spread) check(p *pod, n *node) policy.Verdict {
	c := s.class(p)
	if !c.failed.Yes() {
		return c.failed
	}
	if holds(c.lacking, n.ID) {
		return *no(ReasonTopologySpread)
	}
	for i := range c.rules {
		if r := &c.rules[i]; r.of.counts[n.Labels[r.of.key]] > r.most() {
			return *no(ReasonTopologySpread)
		}
	}
	return policy.Verdict{}
}

// refuses returns the nodes that refuse p, which are all there are.
func (s *spread) refuses(p *pod) refusal {
	c := s.class(p)
	if !c.failed.Yes() {
		return refusal{s.seen.everywhere(), &c.failed, true}
	}
	nodes := c.lacking
	for i := range c.rules {
		nodes = union(nodes, c.rules[i].of.above(s.seen, c.rules[i].most()))
	}
	return refusal{nodes, no(ReasonTopologySpread), true}
}

// class returns what the class of a pod asks for, with counts as things stand.
func (s *spread) class(p *pod) *spreading {
	c := s.classes[p.Class.ID]
	if c == nil {
		c = s.understand(p)
		s.classes[p.Class.ID] = c
	}
	for i := range c.rules {
		x := c.rules[i].of
		for _, u := range s.news(&x.read) {
			x.count(s.seen, s.seen.byID[u.node], &s.seen.info(u.pod).pod, u.by)
		}
	}
	return c
}

func (s *spread) understand(p *pod) *spreading {
	var hard []*v1.TopologySpreadConstraint
	var keys []string
	for i := range p.Class.Spread {
		if c := &p.Class.Spread[i]; c.WhenUnsatisfiable == v1.DoNotSchedule {
			hard, keys = append(hard, c), append(keys, c.TopologyKey)
		}
	}
	out := &spreading{lacking: s.lacking(keys)}
	for _, c := range hard {
		selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector)
		if err != nil {
			return &spreading{failed: s.upstream(p)}
		}
		selector = matching(selector, c.MatchLabelKeys, p.Labels)
		of := s.evenness(p, s.ground(p, c, keys, out.lacking), selector)
		r := rule{of: of, skew: int(c.MaxSkew), domains: 1}
		if selector.Matches(labels.Set(p.Labels)) {
			r.self = 1
		}
		if c.MinDomains != nil {
			r.domains = int(*c.MinDomains)
		}
		out.rules = append(out.rules, r)
	}
	return out
}

// lacking returns the nodes that lack one of some labels.
func (s *spread) lacking(keys []string) []uint64 {
	id := fmt.Sprintf("%q", keys)
	nodes := s.lacks[id]
	if nodes == nil {
		nodes = s.seen.those(func(n *nodeInfo) bool {
			return slices.ContainsFunc(keys, func(key string) bool { _, has := n.node.Labels[key]; return !has })
		})
		s.lacks[id] = nodes
	}
	return nodes
}

// upstream lets upstream say why it cannot understand a pod's constraints.
func (s *spread) upstream(p *pod) policy.Verdict {
	made, err := podtopologyspread.New(s.ctx, &config.PodTopologySpreadArgs{DefaultingType: config.ListDefaulting}, newHandle(s.seen, s.options), features())
	_, status := must[*podtopologyspread.PodTopologySpread](made, err).PreFilter(s.ctx, framework.NewCycleState(), &s.seen.info(p).pod, nil)
	return verdict(status, nil)
}

// matching is a selector that means those besides that have the same labels of some keys as the pod.
func matching(selector labels.Selector, keys []string, of map[string]string) labels.Selector {
	same := labels.Set{}
	for _, key := range keys {
		if value, ok := of[key]; ok {
			same[key] = value
		}
	}
	more, some := selector.Requirements()
	if len(same) == 0 || !some {
		return selector
	}
	return labels.SelectorFromSet(same).Add(more...)
}

// ground returns the nodes that a pod's constraint counts on: with the labels that any of its constraints names, and, as its policies
// say, those that it selects and whose taints it tolerates.
func (s *spread) ground(p *pod, c *v1.TopologySpreadConstraint, keys []string, lacking []uint64) *ground {
	selects := c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor
	tolerates := c.NodeTaintsPolicy != nil && *c.NodeTaintsPolicy == v1.NodeInclusionPolicyHonor
	selects = selects && (p.Class.NodeSelector != nil || p.Class.NodeAffinity != nil)
	site := uint64(0)
	if selects || tolerates {
		site = p.Class.Site().ID
	}
	id := fmt.Sprintf("%q %q %t %t %d", c.TopologyKey, keys, selects, tolerates, site)
	g := s.grounds[id]
	if g != nil {
		return g
	}
	g = &ground{key: c.TopologyKey, nodes: make([]uint64, len(s.seen.everywhere())), domains: map[string]int{}}
	require := nodeaffinity.GetRequiredNodeAffinity(&s.seen.info(p).pod)
	for _, id := range s.seen.snap.NodeOrder {
		on := &s.seen.byID[id].node
		if holds(lacking, id) {
			continue
		}
		if match, _ := require.Match(on); selects && !match { // upstream ignores errors here, too
			continue
		}
		if tolerates {
			if _, bad := corev1.FindMatchingUntoleratedTaint(logr.Discard(), on.Spec.Taints, p.Class.Tolerations, helper.DoNotScheduleTaintsFilterFunc(), false); bad {
				continue
			}
		}
		g.nodes[id>>6] |= 1 << (id & 63)
		g.domains[on.Labels[g.key]]++
	}
	s.grounds[id] = g
	return g
}

func (s *spread) evenness(p *pod, g *ground, selector labels.Selector) *evenness {
	_, some := selector.Requirements()
	id := fmt.Sprintf("%p %q %t %s", g, p.Namespace, some, selector)
	x := s.counts[id]
	if x != nil {
		return x
	}
	x = &evenness{ground: g, namespace: p.Namespace, selector: selector, named: demanded(selector), counts: map[string]int{}, having: map[int]int{}, over: map[int][]uint64{}}
	s.counts[id] = x
	s.news(&x.read)
	look := func(n *nodeInfo) {
		for _, q := range n.GetPods() {
			x.count(s.seen, n, q.GetPod(), 1)
		}
	}
	switch {
	case !some || selector.Empty(): // it means nobody
	case x.named.key != "":
		at := slices.Clone(s.seen.having(x.named))
		slices.Sort(at)
		for _, at := range slices.Compact(at) { // where one came and went and came is named twice
			look(s.seen.nodes[at].(*nodeInfo))
		}
	default:
		for _, n := range s.seen.nodes {
			look(n.(*nodeInfo))
		}
	}
	return x
}

// demanded returns a label that all have whom a selector means; without a key if there is none.
func demanded(selector labels.Selector) label {
	var out label
	of, _ := selector.Requirements()
	for i := range of {
		switch of[i].Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if values := of[i].Values(); len(values) == 1 && (out.key == "" || strings.Compare(of[i].Key(), out.key) < 0) {
				out = label{of[i].Key(), values.UnsortedList()[0]}
			}
		}
	}
	return out
}

// count lets a pod that came or went count, if it is meant.
func (x *evenness) count(w *upstreamSnapshot, n *nodeInfo, p *v1.Pod, by int) {
	switch {
	case p.Namespace != x.namespace || p.DeletionTimestamp != nil || x.selector.Empty():
		return
	case x.named.key != "" && p.Labels[x.named.key] != x.named.value:
		return
	case !holds(x.nodes, n.model.ID) || !x.selector.Matches(labels.Set(p.Labels)):
		return
	}
	value := n.node.Labels[x.key]
	before := x.counts[value]
	now := before + by
	if x.counts[value] = now; now == 0 {
		delete(x.counts, value)
	}
	for _, c := range [...]struct{ count, by int }{{before, -1}, {now, 1}} {
		if c.count > 0 {
			if x.having[c.count] += c.by; x.having[c.count] == 0 {
				delete(x.having, c.count)
			}
		}
	}
	for most, nodes := range x.over { // order: each on its own
		if (before > most) != (now > most) {
			for _, id := range w.inDomain(x.key, value) {
				nodes[id>>6] ^= 1 << (id & 63)
			}
		}
	}
}

// most is how many a domain may have for one more pod to come.
func (r *rule) most() int {
	least := math.MaxInt32
	switch {
	case len(r.of.domains) < r.domains || len(r.of.counts) < len(r.of.domains):
		least = 0
	default:
		for count := range r.of.having { // order: minimum
			least = min(least, count)
		}
	}
	return r.skew - r.self + least
}

// above returns the nodes of domains that count more than most.
func (x *evenness) above(w *upstreamSnapshot, most int) []uint64 {
	if most < 0 {
		return w.everywhere()
	}
	nodes := x.over[most]
	if nodes != nil {
		return nodes
	}
	if len(x.over) == mostOver {
		clear(x.over)
	}
	nodes = make([]uint64, len(x.nodes))
	for value, count := range x.counts { // order: a set
		if count > most {
			for _, id := range w.inDomain(x.key, value) {
				nodes[id>>6] |= 1 << (id & 63)
			}
		}
	}
	x.over[most] = nodes
	return nodes
}

// mostOver is how many sets of nodes above some count are kept: what is asked for grows as the emptiest domain fills.
const mostOver = 4
