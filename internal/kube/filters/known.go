package filters

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// label is a label with its value.
type label struct{ key, value string }

// named returns a label that every pod has which a term means; false when there is no such one.
func named(t *v1.PodAffinityTerm) (label, bool) {
	if t.LabelSelector == nil {
		return label{}, false
	}
	var out []label
	for k, v := range t.LabelSelector.MatchLabels { // order: the first by name is taken
		out = append(out, label{k, v})
	}
	for _, e := range t.LabelSelector.MatchExpressions {
		if e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1 {
			out = append(out, label{e.Key, e.Values[0]})
		}
	}
	if len(out) == 0 {
		return label{}, false
	}
	return slices.MinFunc(out, func(a, b label) int {
		return strings.Compare(a.key+"\x00"+a.value, b.key+"\x00"+b.value)
	}), true
}

// having returns the nodes, by position, that have, or had in this run, a pod with a label: O(pods), once.
func (w *upstreamSnapshot) having(l label) []int {
	if w.labelled == nil {
		w.labelled = map[label][]int{}
		for at, n := range w.nodes {
			for _, p := range n.(*nodeInfo).GetPods() {
				w.label(at, p.GetPod().Labels)
			}
		}
	}
	return w.labelled[l]
}

func (w *upstreamSnapshot) label(at int, of map[string]string) {
	for k, v := range of { // order: each on its own
		l := label{k, v}
		if has := w.labelled[l]; len(has) == 0 || has[len(has)-1] != at {
			w.labelled[l] = append(has, at)
		}
	}
}

// meant returns the nodes on which a pod may be that the required terms of a class mean, in their order: a term mostly names a label
// with its value, and then these are few.
func (w *upstreamSnapshot) meant(c *class) []fwk.NodeInfo {
	var at []int
	add := func(terms []v1.PodAffinityTerm, all bool) bool {
		for i := range terms {
			l, ok := named(&terms[i])
			if ok {
				at = append(at, w.having(l)...)
			}
			if ok && !all {
				return true
			}
			if !ok && all {
				return false
			}
		}
		return all || len(terms) == 0
	}
	near, apart := terms(c)
	// Whom affinity means, all of its terms mean.
	if !add(near, false) || !add(apart, true) {
		return w.nodes
	}
	slices.Sort(at)
	at = slices.Compact(at)
	out := make([]fwk.NodeInfo, len(at))
	for i, k := range at {
		out[i] = w.nodes[k]
	}
	return out
}

// terms returns what a class requires of other pods.
func terms(c *class) (near, apart []v1.PodAffinityTerm) {
	if c.PodAffinity != nil {
		near = c.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if c.PodAntiAffinity != nil {
		apart = c.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return near, apart
}

// inDomain returns the nodes that have a label with a value.
func (w *upstreamSnapshot) inDomain(key, value string) []cluster.NodeID {
	d := w.domains[key]
	if d == nil {
		d = map[string][]cluster.NodeID{}
		for _, id := range w.snap.NodeOrder {
			if v, ok := w.snap.Node(id).Labels[key]; ok {
				d[v] = append(d[v], id)
			}
		}
		w.domains[key] = d
	}
	return d[value]
}

// keptAway is the nodes that one term of anti-affinity forbids, whoever has it.
type keptAway struct {
	term   *fwk.AffinityTerm
	counts map[string]int // pods that it means, by domain
	bits   []uint64
	read   int // how much of the log is in it
}

// Refuses implements policy.NodeRefusals, in the order of CheckNode.
func (i *instance) Refuses(p *pod) ([]uint64, *policy.Verdict) {
	out := refusal{whole: true}
	if len(p.Class.Claims) > 0 {
		out = i.volumes().refuses(p)
	}
	if requiresSpread(p.Class) {
		out = out.and(i.spread().refuses(p))
	}
	if near, apart := terms(p.Class); len(near)+len(apart) > 0 {
		out = out.and(i.affinity().refuses(p))
	}
	return out.nodes, out.why
}

// refuses returns the nodes that are known to refuse p for its own terms: of pods with required affinity all nodes when nobody has a
// label that a term names; of those with anti-affinity only, the nodes that their own terms forbid.
func (a *affinity) refuses(p *pod) refusal {
	near, _ := terms(p.Class)
	spec := a.seen.spec(p.Class)
	switch {
	case spec.broken:
		return refusal{}
	case a.RefusesAll(p):
		return refusal{nodes: a.seen.everywhere(), why: no(ReasonPodAffinity)}
	case len(near) > 0:
		return refusal{}
	}
	var out []uint64
	for k := range spec.anti {
		if of := spec.anti[k].NamespaceSelector; of.Empty() || nothing(of) { // else whom it means depends on the labels of namespaces
			out = union(out, a.away(spec, k).bits)
		}
	}
	return refusal{nodes: out, why: no(ReasonPodAntiAffinity)}
}

// no is what nodes say that are refused for a reason.
func no(reason *policy.Reason) *policy.Verdict {
	return &policy.Verdict{Code: policy.No, Reason: reason}
}

// RefusesAll implements policy.NodeRefusals: nobody has, or had in this run, a label that required affinity asks for, nor has the pod itself.
func (i *instance) RefusesAll(p *pod) bool {
	near, _ := terms(p.Class)
	return slices.ContainsFunc(near, func(t v1.PodAffinityTerm) bool {
		l, ok := named(&t)
		return ok && p.Labels[l.key] != l.value && len(i.affinity().seen.having(l)) == 0
	})
}

// away returns the nodes that a class's k-th term of anti-affinity forbids: a look at the pods that it may mean, once for all classes
// that have it, and at who came and went since.
func (a *affinity) away(s *spec, k int) *keptAway {
	if len(s.away) == 0 {
		s.away = make([]*keptAway, len(s.anti))
	}
	x := s.away[k]
	if x == nil {
		t := &s.anti[k]
		key := strings.Join(append(slices.Sorted(maps.Keys(t.Namespaces)), strconv.FormatBool(nothing(t.NamespaceSelector)), t.TopologyKey, strconv.FormatBool(nothing(t.Selector)), t.Selector.String()), "\x00")
		if x = a.aways[key]; x == nil {
			x = &keptAway{term: t, counts: map[string]int{}, bits: make([]uint64, (a.seen.snap.MaxNodeID()+63)/64)}
			a.aways[key] = x
			a.news(&x.read)
			for _, n := range a.seen.meant(s.class) {
				for _, q := range n.GetPods() {
					x.count(a.seen, n.(*nodeInfo), q.GetPod(), 1)
				}
			}
		}
		s.away[k] = x
	}
	if x.read < len(a.log) {
		for _, c := range a.news(&x.read) {
			x.count(a.seen, a.seen.byID[c.node], &a.seen.info(c.pod).pod, c.by)
		}
	}
	return x
}

// nothing says whether a selector selects nobody, as one that is not given does.
func nothing(s labels.Selector) bool {
	_, some := s.Requirements()
	return !some
}

// count lets a pod that came or went count, if the term means it.
func (x *keptAway) count(w *upstreamSnapshot, n *nodeInfo, p *v1.Pod, by int) {
	value, ok := n.node.Labels[x.term.TopologyKey]
	if !ok || !x.term.Matches(p, nil) {
		return
	}
	x.counts[value] += by
	if now := x.counts[value]; (now > 0) == (now-by > 0) {
		return
	}
	for _, id := range w.inDomain(x.term.TopologyKey, value) {
		x.bits[id>>6] ^= 1 << (id & 63)
	}
}
