package predicates

import (
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// statics is what is known, for a run, of what nodes say. Where a thousand classes are new, no two of which say the same, each of
// them is asked about every node: so taints are told apart by number, nodes are found by their labels, and equal answers are one.
type statics struct {
	problems map[string]*policy.Verdict
	slicing  map[cluster.Slicing]*policy.Verdict
	sets     map[string]*policy.Verdict

	selector, memory, restricted *policy.Verdict

	taints *taints // numbered; nil until many nodes are asked about
	words  map[v1.Taint]*policy.Verdict

	labels *index // nil until asked for
	chosen *chosen
}

func (s *statics) open() {
	no := func(r *policy.Reason) *policy.Verdict { return &policy.Verdict{Code: policy.No, Reason: r} }
	*s = statics{
		problems: map[string]*policy.Verdict{}, slicing: map[cluster.Slicing]*policy.Verdict{}, sets: map[string]*policy.Verdict{},
		selector: no(ReasonNodeSelector), memory: no(ReasonNoDeviceMemory), restricted: no(ReasonRestrictedNode),
		words: map[v1.Taint]*policy.Verdict{},
	}
}

// CheckStatic implements policy.NodeStatic.
func (i *instance) CheckStatic(c *cluster.Class, nodes []*cluster.Node, no []*policy.Verdict) {
	s := &i.statics
	snap, many := i.view.Snapshot(), len(nodes) >= manyNodes
	if many {
		s.tolerate(c, snap)
	}
	selects := s.selection(c, snap, many)
	for k, n := range nodes {
		if no[k] != nil {
			continue
		}
		if n.Problem != "" {
			no[k] = one(s.problems, n.Problem, func() policy.Verdict {
				return policy.Verdict{Code: policy.No, Reason: ReasonNodeNotReady, Object: n.Problem}
			})
			continue
		}
		if len(n.Taints) > 0 {
			no[k] = s.untolerated(c, n, many)
		}
		switch {
		case no[k] != nil:
		case selects != nil && !selects.matches(n):
			no[k] = s.selector
		case c.Share.MemoryMiB > 0 && c.Share.Portion == 0 && n.GPUMemoryMiB == 0 && n.Allocatable.At(cluster.GPU) > 0:
			no[k] = s.memory
		case len(c.RestrictTo) > 0 && !hasAny(n.Labels, c.RestrictTo):
			no[k] = s.restricted
		case !n.In(c.Within):
			no[k] = one(s.sets, c.Within, func() policy.Verdict {
				return policy.Verdict{Code: policy.No, Reason: ReasonNotInSet, Object: c.Within}
			})
		case !i.servesSlicing(c, n):
			no[k] = one(s.slicing, n.Slicing, func() policy.Verdict {
				return policy.Verdict{Code: policy.No, Reason: ReasonSlicing, Object: n.Slicing.String()}
			})
		}
	}
}

// one returns the verdict about an object, which is made once.
func one[K comparable](all map[K]*policy.Verdict, about K, say func() policy.Verdict) *policy.Verdict {
	v := all[about]
	if v == nil {
		said := say()
		v = &said
		all[about] = v
	}
	return v
}

// untolerated says which taint of a node, the first of them, keeps pods of a class away; nil for none.
func (s *statics) untolerated(c *cluster.Class, n *cluster.Node, many bool) *policy.Verdict {
	if many {
		return s.taints.untolerated(n.ID, s.refusal)
	}
	for k := range n.Taints {
		if t := &n.Taints[k]; t.Effect != v1.TaintEffectPreferNoSchedule && !policy.Tolerates(c.Tolerations, t) {
			return s.refusal(*t)
		}
	}
	return nil
}

// refusal is what is said for a taint that is not tolerated.
func (s *statics) refusal(t v1.Taint) *policy.Verdict {
	t.TimeAdded = nil
	return one(s.words, t, func() policy.Verdict {
		return policy.Verdict{Code: policy.No, Reason: ReasonTaint, Object: t.ToString()}
	})
}
