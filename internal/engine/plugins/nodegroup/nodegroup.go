// Package nodegroup is Volcano's plugin of that name: queues say on which groups of nodes their work runs. A node is in the group that its label names. The rules are those of
// Volcano's documentation.
package nodegroup

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a scheduler file, and Label the node label that names its group.
const (
	Name  = "nodegroup"
	Label = "volcano.sh/nodegroup-name"
)

// The arguments, each true or false. HierarchyArgument is the switch of the file: a queue that says nothing has the groups of the nearest queue above it that does.
const (
	StrictArgument    = "strict"               // true unless said: for who says nothing of groups there is no node that is in one, and nodes in none are for nobody
	OrderArgument     = "enablePreferredOrder" // false unless said: of the preferred groups the first counts most
	HierarchyArgument = "enableHierarchy"
)

// The points of a node for a queue, by what the queue says of its group; they add up.
const (
	required  = 100 * policy.ScorePoint
	preferred = 50 * policy.ScorePoint // by order: times (n−i)/n for the i-th of n, cut to the unit below
	avoided   = -1 * policy.ScorePoint
)

// Factory declares it. A queue with groups may use a node whose group it requires, prefers, or would rather not have, and does not refuse. Of the others strict decides.
var Factory = policy.Makes(build, ReasonInNoGroup, ReasonNotForQueue)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	strict, err := truth(args, StrictArgument, true)
	if err != nil {
		return nil, nil, err
	}
	ordered, err := truth(args, OrderArgument, false)
	if err != nil {
		return nil, nil, err
	}
	tree, err := truth(args, HierarchyArgument, false)
	if err != nil {
		return nil, nil, err
	}
	return func(v *policy.View) *instance {
		return &instance{view: v, strict: strict, ordered: ordered, tree: tree, of: map[cluster.QueueID]*opinion{}}
	}, args.Unknown(StrictArgument, OrderArgument, HierarchyArgument), nil
}

// truth reads a switch.
func truth(args policy.Arguments, name string, otherwise bool) (bool, error) {
	text, said := args[name]
	if !said {
		return otherwise, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("argument %q is %.40q; it must be true or false", name, text)
	}
	return on, nil
}

type instance struct {
	view                  *policy.View
	strict, ordered, tree bool

	of   map[cluster.QueueID]*opinion
	list []*opinion // by kind, which counts from 1
}

// opinion is what a queue's groups make of the nodes: made when its first pod is asked about, in O(nodes · groups).
type opinion struct {
	groups *cluster.NodeGroups
	name   string // of the queue
	kind   int
	scores []int64  // by node ID
	no     []uint64 // the nodes that are refused, as bits by node ID
	many   int      // how many these are
	why    *policy.Verdict
}

// opinion returns that of a pod's queue; nil for a pod without one, which has no say of nodes.
func (i *instance) opinion(p *cluster.Pod) *opinion {
	q := i.view.QueueOf(p)
	if q == nil {
		return nil
	}
	if o := i.of[q.ID]; o != nil {
		return o
	}
	snap := i.view.Snapshot()
	o := &opinion{groups: i.groups(q), name: q.Display, kind: len(i.list) + 1, scores: make([]int64, snap.MaxNodeID()), no: make([]uint64, (snap.MaxNodeID()+63)/64)}
	alike := true
	for _, id := range snap.NodeOrder {
		v := i.judge(o, snap.Node(id))
		if o.scores[id] = i.score(o.groups, snap.Node(id)); v.Yes() {
			continue
		}
		o.no[id>>6] |= 1 << (id & 63)
		if o.many++; o.why == nil {
			o.why = &v
		} else if *o.why != v {
			alike = false
		}
	}
	if !alike {
		o.why = nil
	}
	i.of[q.ID], i.list = o, append(i.list, o)
	return o
}

// groups are those of a queue, or, by hierarchy, of the nearest above that says any; nil for none.
func (i *instance) groups(q *ledger.QueueLedger) *cluster.NodeGroups {
	for ; q != nil; q = q.Parent {
		if q.NodeGroups != nil || !i.tree {
			return q.NodeGroups
		}
	}
	return nil
}

// judge says whether a queue's work may run on a node.
func (i *instance) judge(o *opinion, n *cluster.Node) policy.Verdict {
	group, in := n.Labels[Label]
	switch g := o.groups; {
	case !in && i.strict:
		return policy.Verdict{Code: policy.No, Reason: ReasonInNoGroup, Object: Label}
	case !in, g == nil && !i.strict:
		return policy.Verdict{}
	case g != nil && !slices.Contains(g.Refused, group) && (slices.Contains(g.Required, group) || slices.Contains(g.Preferred, group) || slices.Contains(g.Avoided, group)):
		return policy.Verdict{}
	}
	return policy.Verdict{Code: policy.No, Reason: ReasonNotForQueue, Object: group, Detail: o.name}
}

// score is what a node counts for a queue.
func (i *instance) score(g *cluster.NodeGroups, n *cluster.Node) (points int64) {
	group, in := n.Labels[Label]
	if g == nil || !in {
		return 0
	}
	if slices.Contains(g.Required, group) {
		points += required
	}
	if at := slices.Index(g.Preferred, group); at >= 0 && i.ordered {
		points += preferred * int64(len(g.Preferred)-at) / int64(len(g.Preferred))
	} else if at >= 0 {
		points += preferred
	}
	if slices.Contains(g.Avoided, group) {
		points += avoided
	}
	return points
}

// Wants implements policy.NodeFilter.
func (i *instance) Wants(*cluster.Class) bool { return true }

// CheckNode implements policy.NodeFilter.
func (i *instance) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	if o := i.opinion(p); o != nil && o.no[n.ID>>6]&(1<<(n.ID&63)) != 0 {
		return i.judge(o, n)
	}
	return policy.Verdict{}
}

// Refuses implements policy.NodeRefusals.
func (i *instance) Refuses(p *cluster.Pod) ([]uint64, *policy.Verdict) {
	if o := i.opinion(p); o != nil {
		return o.no, o.why
	}
	return nil, nil
}

// RefusesAll implements policy.NodeRefusals: who goes changes no label.
func (i *instance) RefusesAll(p *cluster.Pod) bool {
	o := i.opinion(p)
	return o != nil && o.many == len(i.view.Snapshot().NodeOrder)
}

// Kind implements policy.CompanyScore: pods of a queue are of one.
func (i *instance) Kind(p *cluster.Pod) int {
	if o := i.opinion(p); o != nil {
		return o.kind
	}
	return 0
}

// Company implements policy.CompanyScore; nothing changes within a run.
func (i *instance) Company(kind int) ([]int64, []cluster.NodeID) { return i.list[kind-1].scores, nil }
