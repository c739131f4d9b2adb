package predicates

import (
	"cmp"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// chosen is the nodes that a class selects by name, label and affinity.
type chosen struct {
	class *cluster.Class
	in    nodeSet // the nodes, once they were found by their labels; nil until then

	read bool // what follows, which asking node by node needs
	// affinity is the class's, compiled; nil when it has none.
	affinity *nodeaffinity.NodeSelector
	broken   bool // it cannot be parsed and matches nothing
	labels   []label
}

// label is one that a node must have.
type label struct{ key, value string }

// manyNodes is about how many nodes a class is asked at once that the taints which it tolerates are marked, and the nodes that it
// selects found by their labels.
const manyNodes = 32

// selection returns what a class selects, nil for all nodes; it may be about to be asked about many.
func (s *statics) selection(c *cluster.Class, snap *cluster.Snapshot, many bool) *chosen {
	if len(c.NodeSelector) == 0 && c.NodeAffinity == nil {
		return nil
	}
	out := s.chosen // a class is often asked about node by node
	if out == nil || out.class != c {
		out = &chosen{class: c}
		s.chosen = out
	}
	if many && out.in == nil && indexed(c) {
		if s.labels == nil {
			s.labels = newIndex(snap)
		}
		if s.labels.sound(c) || !out.parse() {
			out.in = s.labels.find(c)
		}
	}
	return out
}

// parse reads the class, and says whether its affinity is broken.
func (s *chosen) parse() bool {
	if s.read {
		return s.broken
	}
	s.read = true
	for k, v := range s.class.NodeSelector { // order: all must match
		s.labels = append(s.labels, label{k, v})
	}
	if terms := required(s.class.NodeAffinity); terms != nil {
		var err error
		s.affinity, err = nodeaffinity.NewNodeSelector(terms)
		s.broken = err != nil
	}
	return s.broken
}

// required is an affinity as far as it must be met; nil for none.
func required(a *v1.NodeAffinity) *v1.NodeSelector {
	if a == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution
}

func (s *chosen) matches(n *cluster.Node) bool {
	if s.in != nil {
		return s.in.has(n.ID)
	}
	if s.parse() {
		return false
	}
	for _, want := range s.labels {
		if have, ok := n.Labels[want.key]; !ok || have != want.value {
			return false
		}
	}
	if s.affinity == nil {
		return true
	}
	node := v1.Node{}
	node.Name, node.Labels = n.Name, n.Labels
	return s.affinity.Match(&node)
}

// nodeSet is a set of nodes, a bit each.
type nodeSet []uint64

func (b nodeSet) has(n cluster.NodeID) bool { return b[n>>6]&(1<<(n&63)) != 0 }
func (b nodeSet) add(nodes []cluster.NodeID) {
	for _, n := range nodes {
		b[n>>6] |= 1 << (n & 63)
	}
}

// index is the nodes by their labels, and by their name.
type index struct {
	snap  *cluster.Snapshot
	words int
	all   nodeSet
	room  nodeSet         // for keepIf
	valid map[string]bool // keys that labels may have
	names map[string]cluster.NodeID
	keys  map[string]*values
}

// values is the nodes that have a label, by its value.
type values struct {
	all     []cluster.NodeID
	nodes   map[string][]cluster.NodeID // nil until asked for
	numbers []numbered                  // those that are numbers, sorted; nil until asked for
}

type numbered struct {
	n     int64
	nodes []cluster.NodeID
}

// newIndex costs O(nodes × labels).
func newIndex(snap *cluster.Snapshot) *index {
	x := &index{snap: snap, words: (snap.MaxNodeID() + 63) / 64, names: map[string]cluster.NodeID{}, keys: map[string]*values{}, valid: map[string]bool{}}
	x.all, x.room = make(nodeSet, x.words), make(nodeSet, x.words)
	x.all.add(snap.NodeOrder)
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		x.names[n.Name] = id
		for k := range n.Labels { // order: each has its own place
			of := x.keys[k]
			if of == nil {
				of = &values{}
				x.keys[k] = of
			}
			of.all = append(of.all, id)
		}
	}
	return x
}

// indexed says whether the index can find the nodes that the class selects: of fields, it knows names.
func indexed(c *cluster.Class) bool {
	terms := required(c.NodeAffinity)
	if terms == nil {
		return true
	}
	for _, t := range terms.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key != nameField {
				return false
			}
		}
	}
	return true
}

const nameField = "metadata.name"

// sound says whether the class's affinity can be parsed for certain: thousands of values are read faster here than by the library,
// which is asked only where this says no.
func (x *index) sound(c *cluster.Class) bool {
	terms := required(c.NodeAffinity)
	if terms == nil {
		return true
	}
	for i := range terms.NodeSelectorTerms {
		t := &terms.NodeSelectorTerms[i]
		for k := range t.MatchExpressions {
			if !x.soundLabel(&t.MatchExpressions[k]) {
				return false
			}
		}
		for k := range t.MatchFields {
			r := &t.MatchFields[k]
			if r.Operator != v1.NodeSelectorOpIn && r.Operator != v1.NodeSelectorOpNotIn || len(r.Values) != 1 {
				return false
			}
		}
	}
	return true
}

func (x *index) soundLabel(r *v1.NodeSelectorRequirement) bool {
	ok, known := x.valid[r.Key]
	if !known {
		_, err := labels.NewRequirement(r.Key, selection.Exists, nil)
		ok = err == nil
		x.valid[r.Key] = ok
	}
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		return ok && len(r.Values) > 0 && !slices.ContainsFunc(r.Values, odd)
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		return ok && len(r.Values) == 0
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(r.Values) != 1 || odd(r.Values[0]) {
			return false
		}
		_, err := strconv.ParseInt(r.Values[0], 10, 64)
		return ok && err == nil
	}
	return false
}

// odd says whether a text may be no label's value: those are up to 63 letters and digits, with points and dashes between.
func odd(value string) bool {
	for i := range len(value) {
		switch b := value[i]; {
		case 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9':
		case (b == '-' || b == '_' || b == '.') && i > 0 && i < len(value)-1:
		default:
			return true
		}
	}
	return len(value) > 63
}

// find returns the nodes that a class selects whose affinity can be parsed: O(words of a set + nodes that match) for each
// requirement.
func (x *index) find(c *cluster.Class) nodeSet {
	out := slices.Clone(x.all)
	for k, v := range c.NodeSelector { // order: all must match
		x.keep(out, func(b nodeSet) { b.add(x.value(k, v)) })
	}
	terms := required(c.NodeAffinity)
	if terms == nil {
		return out
	}
	some, term := make(nodeSet, x.words), make(nodeSet, x.words)
	for _, t := range terms.NodeSelectorTerms {
		if len(t.MatchExpressions)+len(t.MatchFields) == 0 { // matches nothing
			continue
		}
		copy(term, out)
		for i := range t.MatchExpressions {
			r := &t.MatchExpressions[i]
			x.require(term, r, x.keys[r.Key])
		}
		for i := range t.MatchFields {
			r := &t.MatchFields[i]
			x.keepIf(term, r.Operator == v1.NodeSelectorOpIn, func(b nodeSet) {
				if id, ok := x.names[r.Values[0]]; ok {
					b.add([]cluster.NodeID{id})
				}
			})
		}
		for i := range some {
			some[i] |= term[i]
		}
	}
	return some
}

// require leaves in a set only nodes that satisfy a requirement about a label, whose values those are; nil if no node has it.
func (x *index) require(set nodeSet, r *v1.NodeSelectorRequirement, of *values) {
	has := func(b nodeSet) {
		if of != nil {
			b.add(of.all)
		}
	}
	one := func(b nodeSet) {
		for _, v := range r.Values {
			b.add(x.value(r.Key, v))
		}
	}
	switch r.Operator {
	case v1.NodeSelectorOpIn:
		x.keep(set, one)
	case v1.NodeSelectorOpNotIn:
		x.keepIf(set, false, one)
	case v1.NodeSelectorOpExists:
		x.keep(set, has)
	case v1.NodeSelectorOpDoesNotExist:
		x.keepIf(set, false, has)
	default: // Gt and Lt
		x.keep(set, func(b nodeSet) {
			bound, err := strconv.ParseInt(r.Values[0], 10, 64)
			if of == nil || err != nil {
				return
			}
			all := of.sorted(x.byValue(r.Key, of))
			at, _ := slices.BinarySearchFunc(all, bound, func(v numbered, n int64) int { return cmp.Compare(v.n, n) })
			if r.Operator == v1.NodeSelectorOpLt {
				all = all[:at]
			} else {
				for all = all[at:]; len(all) > 0 && all[0].n == bound; {
					all = all[1:]
				}
			}
			for i := range all {
				b.add(all[i].nodes)
			}
		})
	}
}

// value returns the nodes whose label has a value.
func (x *index) value(key, value string) []cluster.NodeID {
	of := x.keys[key]
	if of == nil {
		return nil
	}
	return x.byValue(key, of)[value]
}

// byValue tells the nodes that have a label apart, the first time that somebody asks: nodes have hundreds of labels that nobody does.
func (x *index) byValue(key string, of *values) map[string][]cluster.NodeID {
	if of.nodes == nil {
		of.nodes = map[string][]cluster.NodeID{}
		for _, id := range of.all {
			v := x.snap.Node(id).Labels[key]
			of.nodes[v] = append(of.nodes[v], id)
		}
	}
	return of.nodes
}

// keep leaves only nodes that a function adds; keepIf does, or leaves the others.
func (x *index) keep(set nodeSet, add func(nodeSet)) { x.keepIf(set, true, add) }

func (x *index) keepIf(set nodeSet, added bool, add func(nodeSet)) {
	b := x.room
	clear(b)
	add(b)
	for i := range set {
		if added {
			set[i] &= b[i]
		} else {
			set[i] &^= b[i]
		}
	}
}

// sorted returns the values that are numbers.
func (v *values) sorted(nodes map[string][]cluster.NodeID) []numbered {
	if v.numbers == nil {
		v.numbers = []numbered{}
		for text, nodes := range nodes { // order: sorted below
			if n, err := strconv.ParseInt(text, 10, 64); err == nil {
				v.numbers = append(v.numbers, numbered{n, nodes})
			}
		}
		slices.SortFunc(v.numbers, func(a, b numbered) int { return cmp.Compare(a.n, b.n) })
	}
	return v.numbers
}
