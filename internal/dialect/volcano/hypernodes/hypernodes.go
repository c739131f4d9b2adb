// Package hypernodes knows which nodes belong to which HyperNode of Volcano's, for the controller, which counts them, and for the scheduler, to which they are a declared
// topology.
//
// A member that is a HyperNode must be of a lower tier: so no cycle can be. What cannot be read of a HyperNode has no nodes, and is told; the others stand.
package hypernodes

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
)

// longestPattern is how many bytes a pattern of names may have: matching takes time in proportion to it.
const longestPattern = 4096

// Tree is what is known of HyperNodes. New makes one; one goroutine works with it.
type Tree struct {
	Nodes  map[string]map[string]string // labels by name
	Hypers map[string]*topo.HyperNode

	selections map[string]*selection // by what they select by
}

// selection is the nodes, or the HyperNodes, that a pattern or labels select. It is kept as they come and go, so that no change has all of them matched.
type selection struct {
	kind  topo.MemberType
	match func(name string, labels map[string]string) bool
	hits  map[string]bool
	wrong error // it selects nothing
}

// New returns a Tree that knows no node and no HyperNode.
func New() *Tree {
	return &Tree{Nodes: map[string]map[string]string{}, Hypers: map[string]*topo.HyperNode{}, selections: map[string]*selection{}}
}

// NodeSeen takes in a node, and says whether something is new.
func (t *Tree) NodeSeen(n *corev1.Node, gone bool) bool {
	was, had := t.Nodes[n.Name]
	if had && !gone && maps.Equal(was, n.Labels) {
		return false
	}
	if t.Nodes[n.Name] = n.Labels; gone {
		delete(t.Nodes, n.Name)
	}
	t.matched(topo.MemberTypeNode, n.Name, n.Labels, gone)
	return had || !gone
}

// HyperSeen takes in a HyperNode, and says whether something is new.
func (t *Tree) HyperSeen(h *topo.HyperNode, gone bool) bool {
	if t.Hypers[h.Name] = h; gone {
		delete(t.Hypers, h.Name)
	}
	t.matched(topo.MemberTypeHyperNode, h.Name, nil, gone)
	return true
}

// matched keeps the selections of a kind.
func (t *Tree) matched(kind topo.MemberType, name string, labels map[string]string, gone bool) {
	for _, s := range t.selections { // order: each on its own
		if s.kind != kind {
			continue
		}
		delete(s.hits, name)
		if !gone && s.match(name, labels) {
			s.hits[name] = true
		}
	}
}

// selects returns what a member's selector selects. used are those that are needed; Members forgets the others.
func (t *Tree) selects(m *topo.MemberSpec, used map[string]bool) (map[string]bool, error) {
	var id string
	s := &selection{kind: m.Type, hits: map[string]bool{}, match: func(string, map[string]string) bool { return false }}
	switch sel := &m.Selector; {
	case sel.ExactMatch != nil:
		if m.Type == topo.MemberTypeNode {
			_, there := t.Nodes[sel.ExactMatch.Name]
			return map[string]bool{sel.ExactMatch.Name: there}, nil
		}
		return map[string]bool{sel.ExactMatch.Name: t.Hypers[sel.ExactMatch.Name] != nil}, nil
	case sel.RegexMatch != nil:
		id = fmt.Sprintf("%s regex %s", m.Type, sel.RegexMatch.Pattern)
	case sel.LabelMatch != nil && m.Type == topo.MemberTypeNode:
		id = "Node labels " + metav1.FormatLabelSelector(sel.LabelMatch)
	default:
		return nil, nil
	}
	used[id] = true
	if have := t.selections[id]; have != nil {
		return have.hits, have.wrong
	}
	if r := m.Selector.RegexMatch; r != nil {
		pattern, err := compile(r.Pattern)
		if s.wrong = err; err == nil {
			s.match = func(name string, _ map[string]string) bool { return pattern.MatchString(name) }
		}
	} else {
		of, err := metav1.LabelSelectorAsSelector(m.Selector.LabelMatch)
		if s.wrong = err; err == nil {
			s.match = func(_ string, l map[string]string) bool { return of.Matches(labels.Set(l)) }
		}
	}
	t.selections[id] = s
	if m.Type == topo.MemberTypeNode {
		for name, l := range t.Nodes { // order: a set
			if s.match(name, l) {
				s.hits[name] = true
			}
		}
		return s.hits, s.wrong
	}
	for name := range t.Hypers { // order: a set
		if s.match(name, nil) {
			s.hits[name] = true
		}
	}
	return s.hits, s.wrong
}

func compile(pattern string) (*regexp.Regexp, error) {
	if len(pattern) > longestPattern {
		return nil, fmt.Errorf("a pattern has %d bytes, of at most %d", len(pattern), longestPattern)
	}
	out, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("a pattern is no regular expression: %.200s", err.Error())
	}
	return out, nil
}

// Ascending are HyperNodes by their tiers, the lowest first, and those of one tier by name.
func Ascending(all map[string]*topo.HyperNode) []*topo.HyperNode {
	return slices.SortedFunc(maps.Values(all), func(x, y *topo.HyperNode) int {
		return cmp.Or(cmp.Compare(x.Spec.Tier, y.Spec.Tier), cmp.Compare(x.Name, y.Name))
	})
}

// Members returns the nodes of each HyperNode, those of HyperNodes below it among them, and the first thing that is wrong with a HyperNode. A member that is no
// HyperNode of a lower tier has none: so nothing is its own member. O(the nodes of all HyperNodes).
func (t *Tree) Members() (nodes map[string]map[string]bool, wrong map[string]string) {
	used := map[string]bool{}
	nodes, wrong = map[string]map[string]bool{}, map[string]string{}
	for _, h := range Ascending(t.Hypers) {
		in := map[string]bool{}
		nodes[h.Name] = in
		for i := range h.Spec.Members {
			m := &h.Spec.Members[i]
			tell := func(text string) {
				wrong[h.Name] = cmp.Or(wrong[h.Name], fmt.Sprintf("spec.members[%d]: %s", i, text))
			}
			hits, err := t.selects(m, used)
			if err != nil {
				tell(err.Error())
			}
			for name, hit := range hits { // order: a union; what is told is of the one that is named
				switch {
				case !hit:
				case m.Type == topo.MemberTypeNode:
					in[name] = true
				case t.Hypers[name].Spec.Tier >= h.Spec.Tier:
					if m.Selector.ExactMatch != nil { // a pattern may match more than is meant
						tell(fmt.Sprintf("HyperNode %s is of tier %d, and must be of one below %d", name, t.Hypers[name].Spec.Tier, h.Spec.Tier))
					}
				default:
					maps.Copy(in, nodes[name])
				}
			}
		}
	}
	maps.DeleteFunc(t.selections, func(id string, _ *selection) bool { return !used[id] })
	return nodes, wrong
}
