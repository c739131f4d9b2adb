package podaffinity

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// pair is a label.
type pair struct{ key, value string }

// label returns a label that every pod has which the selector means; false when there is no such one.
func label(s *metav1.LabelSelector) (pair, bool) {
	var out []pair
	if s == nil {
		return pair{}, false
	}
	for k, v := range s.MatchLabels { // order: the first by name is taken
		out = append(out, pair{k, v})
	}
	for _, e := range s.MatchExpressions {
		if e.Operator == metav1.LabelSelectorOpIn && len(e.Values) == 1 {
			out = append(out, pair{e.Key, e.Values[0]})
		}
	}
	if len(out) == 0 {
		return pair{}, false
	}
	return slices.MinFunc(out, func(a, b pair) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.value, b.value)) }), true
}

// mention is one term of a voice, by its place: the preferred ones come first.
type mention struct{ voice, term int }

// index finds the pods that a term means, and the terms that mean a pod, without a look at all of them: most selectors name
// a label with its value.
type index struct {
	terms   map[pair][]mention  // by the label they name
	vague   []mention           // that name none
	with    map[pair][]change   // who came and went with a label that some term names
	of      map[uint64][]change // who came and went of a class that is a voice
	all     []change            // everybody who came and went, where some term names no label
	logged  int                 // how much of the log is in it
	started bool
}

// name puts the voices' terms into the index.
func (x *index) name(order []*voice) {
	x.terms, x.with, x.of = map[pair][]mention{}, map[pair][]change{}, map[uint64][]change{}
	for n, v := range order {
		x.of[v.class.ID] = nil
		for t := range len(v.prefers) + len(v.asks) {
			if p := v.term(t); p.named {
				x.terms[p.label] = append(x.terms[p.label], mention{n, t})
			} else {
				x.vague = append(x.vague, mention{n, t})
			}
		}
	}
}

// about returns the terms that may mean a pod with these labels, in the order of the voices.
func (x *index) about(labels map[string]string) []mention {
	out := slices.Clone(x.vague)
	for k, v := range labels { // order: sorted below
		out = append(out, x.terms[pair{k, v}]...)
	}
	slices.SortFunc(out, func(a, b mention) int { return cmp.Or(cmp.Compare(a.voice, b.voice), cmp.Compare(a.term, b.term)) })
	return out
}

// follow takes in who is there, once, and what has happened since.
func (x *index) follow(snap *cluster.Snapshot, log []change) {
	if !x.started {
		x.started = true
		for _, id := range snap.NodeOrder {
			for _, pid := range snap.Node(id).Pods {
				x.add(change{snap.Pod(pid), id, 1})
			}
		}
	}
	for ; x.logged < len(log); x.logged++ {
		x.add(log[x.logged])
	}
}

func (x *index) add(c change) {
	if _, voice := x.of[c.pod.Class.ID]; voice {
		x.of[c.pod.Class.ID] = append(x.of[c.pod.Class.ID], c)
	}
	if len(x.vague) > 0 {
		x.all = append(x.all, c)
	}
	for k, v := range c.pod.Labels { // order: each on its own
		if p := (pair{k, v}); x.terms[p] != nil {
			x.with[p] = append(x.with[p], c)
		}
	}
}

// meant returns who may be meant by a term.
func (x *index) meant(t *term) []change {
	if t.named {
		return x.with[t.label]
	}
	return x.all
}
