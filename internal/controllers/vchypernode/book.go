package vchypernode

import (
	"fmt"
	"maps"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	topo "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// longestPattern is how many bytes a pattern of names may have: matching takes time in proportion to it.
const longestPattern = 4096

// book is what the controller knows.
type book struct {
	namespace  string                       // of the configuration
	nodes      map[string]map[string]string // labels by name
	hypers     map[string]*topo.HyperNode
	selections map[string]*selection // by what they select by
	config     *corev1.ConfigMap
	types      []topology // of the last configuration that can be read
	on         bool
	bad        *control.Note // what is wrong with the configuration
}

// selection is the nodes, or the HyperNodes, that a pattern or labels select. It is kept as they come and go, so that no change has all of them matched.
type selection struct {
	kind  topo.MemberType
	match func(name string, labels map[string]string) bool
	hits  map[string]bool
	wrong error // it selects nothing
}

func newBook(namespace string) *book {
	return &book{namespace: namespace, nodes: map[string]map[string]string{}, hypers: map[string]*topo.HyperNode{}, selections: map[string]*selection{}}
}

// nodeSeen takes in a node, and says whether something is new.
func (b *book) nodeSeen(n *corev1.Node, gone bool) bool {
	was, had := b.nodes[n.Name]
	if had && !gone && maps.Equal(was, n.Labels) {
		return false
	}
	if b.nodes[n.Name] = n.Labels; gone {
		delete(b.nodes, n.Name)
	}
	b.matched(topo.MemberTypeNode, n.Name, n.Labels, gone)
	return had || !gone
}

// hyperSeen takes in a HyperNode.
func (b *book) hyperSeen(h *topo.HyperNode, gone bool) bool {
	if b.hypers[h.Name] = h; gone {
		delete(b.hypers, h.Name)
	}
	b.matched(topo.MemberTypeHyperNode, h.Name, nil, gone)
	return true
}

// configSeen takes in a ConfigMap. A bad one is refused whole, while that before it rules on.
func (b *book) configSeen(m *corev1.ConfigMap, gone bool) bool {
	if m.Name != keys.ControllerConfig || m.Namespace != b.namespace {
		return false
	}
	b.config, b.bad = m, nil
	if gone {
		b.config, b.types, b.on = nil, nil, false
		return true
	}
	types, on, err := readConfig(m.Data[keys.ControllerConfigKey])
	if err != nil {
		b.bad = &control.Note{Warning: true, Reason: "InvalidConfiguration", Message: keys.ControllerConfigKey + ": " + err.Error()}
		return true
	}
	b.types, b.on = types, on
	return true
}

// matched keeps the selections of a kind.
func (b *book) matched(kind topo.MemberType, name string, labels map[string]string, gone bool) {
	for _, s := range b.selections { // order: each on its own
		if s.kind != kind {
			continue
		}
		delete(s.hits, name)
		if !gone && s.match(name, labels) {
			s.hits[name] = true
		}
	}
}

// selects returns what a member's selector selects. used are those that are needed; a pass forgets the others.
func (b *book) selects(m *topo.MemberSpec, used map[string]bool) (map[string]bool, error) {
	var id string
	s := &selection{kind: m.Type, hits: map[string]bool{}, match: func(string, map[string]string) bool { return false }}
	switch sel := &m.Selector; {
	case sel.ExactMatch != nil:
		if m.Type == topo.MemberTypeNode {
			_, there := b.nodes[sel.ExactMatch.Name]
			return map[string]bool{sel.ExactMatch.Name: there}, nil
		}
		return map[string]bool{sel.ExactMatch.Name: b.hypers[sel.ExactMatch.Name] != nil}, nil
	case sel.RegexMatch != nil:
		id = fmt.Sprintf("%s regex %s", m.Type, sel.RegexMatch.Pattern)
	case sel.LabelMatch != nil && m.Type == topo.MemberTypeNode:
		id = "Node labels " + metav1.FormatLabelSelector(sel.LabelMatch)
	default:
		return nil, nil
	}
	used[id] = true
	if have := b.selections[id]; have != nil {
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
	b.selections[id] = s
	if m.Type == topo.MemberTypeNode {
		for name, l := range b.nodes { // order: a set
			if s.match(name, l) {
				s.hits[name] = true
			}
		}
		return s.hits, s.wrong
	}
	for name := range b.hypers { // order: a set
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
