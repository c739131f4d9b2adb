// Package budgets is the policy of PodDisruptionBudgets: work whose eviction would violate one is taken last, and not at
// all where its queue, or a queue above it, says that budgets block (Queue.BudgetsBlock).
//
// A budget is violated by a unit when more running pods that it means would go, with the unit, than it allows disruptions
// now (status.disruptionsAllowed), those counted that this run takes already and those that an earlier run decided to
// take and the API server does not show yet. Pods that do not run yet are no disruption, as for the API server. A pod that
// several budgets mean counts for each of them.
//
// The rule is monotone: what more is taken only uses budgets up.
package budgets

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "disruptionbudgets"

// Factory declares the plugin. Argument "mode" is "order", the default, or "ignore": budgets neither order nor block.
var Factory = policy.Makes(build)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	const arg = "mode"
	switch mode := args[arg]; mode {
	case "", "order":
		return plugin{}.open, args.Unknown(arg), nil
	case "ignore":
		return plugin{off: true}.open, args.Unknown(arg), nil
	default:
		return nil, nil, fmt.Errorf("argument %q is %q; it must be order or ignore", arg, mode)
	}
}

type plugin struct{ off bool }

// open opens the plugin for a run. Without budgets the instance has no points, and costs nothing.
func (p plugin) open(v *policy.View) *instance {
	if p.off || len(v.Snapshot().Objects(cluster.PodDisruptionBudgets)) == 0 {
		return nil
	}
	return &instance{view: v, of: map[cluster.PodID][]*budget{}, blocks: map[cluster.QueueID]bool{}}
}

// instance is the budgets of one run and what is left of them. It is built when the first pod goes or is asked about.
type instance struct {
	view *policy.View
	// The budgets by namespace and by one label that a pod must have to be meant; nil until built. Those that demand no
	// label of a certain value are under the label "".
	index  map[label][]*budget
	of     map[cluster.PodID][]*budget // whom the budgets mean
	blocks map[cluster.QueueID]bool    // whether budgets block for a leaf queue
}

// label is a label in a namespace.
type label struct{ namespace, key, value string }

// budget is one PodDisruptionBudget.
type budget struct {
	key      string // "namespace/name"
	selector labels.Selector
	left     int32 // disruptions it allows still; negative once it is violated
	asked    int32 // of the unit that is looked at; 0 in between
}

// build reads the budgets: O(budgets), and a look at each pod for the evictions that do not show yet.
func (i *instance) build() {
	snap := i.view.Snapshot()
	objects := snap.Objects(cluster.PodDisruptionBudgets)
	i.index = make(map[label][]*budget, len(objects))
	for key, o := range objects { // order: who is named is chosen by name
		o, ok := o.(*policyv1.PodDisruptionBudget)
		if !ok {
			continue
		}
		// No selector means nobody, an empty one everybody. One that cannot be parsed cannot be stored either.
		selector, err := metav1.LabelSelectorAsSelector(o.Spec.Selector)
		if err != nil || o.Spec.Selector == nil {
			continue
		}
		at := label{namespace: o.Namespace}
		for k, v := range o.Spec.Selector.MatchLabels { // order: the smallest
			if at.key == "" || k < at.key {
				at.key, at.value = k, v
			}
		}
		i.index[at] = append(i.index[at], &budget{key: key, selector: selector, left: o.Status.DisruptionsAllowed})
	}
	snap.EachPod(func(p *cluster.Pod) {
		if p.Evicting() {
			for _, b := range i.matching(p) {
				b.left--
			}
		}
	})
}

// budgets returns those that mean a pod that runs, in no meaningful order.
func (i *instance) budgets(p *cluster.Pod) []*budget {
	if i.index == nil {
		i.build()
	}
	if p.Phase != cluster.Running {
		return nil
	}
	return i.matching(p)
}

func (i *instance) matching(p *cluster.Pod) []*budget {
	out, known := i.of[p.ID]
	if known {
		return out
	}
	try := func(at label) {
		for _, b := range i.index[at] {
			if b.selector.Matches(labels.Set(p.Labels)) {
				out = append(out, b)
			}
		}
	}
	try(label{namespace: p.Namespace})
	for k, v := range p.Labels { // order: who is named is chosen by name
		try(label{p.Namespace, k, v})
	}
	i.of[p.ID] = out
	return out
}

// violated returns the first budget, by name, that the unit's eviction would violate; nil for none.
func (i *instance) violated(u *ledger.VictimUnit) *budget {
	var first *budget
	for _, p := range u.Pods {
		for _, b := range i.budgets(p) {
			if b.asked++; b.asked > b.left && (first == nil || b.key < first.key) {
				first = b
			}
		}
	}
	for _, p := range u.Pods {
		for _, b := range i.budgets(p) {
			b.asked = 0
		}
	}
	return first
}

// Tier implements policy.VictimTier.
func (i *instance) Tier(u *ledger.VictimUnit) (int, string) {
	if b := i.violated(u); b != nil {
		return 1, b.key
	}
	return 0, ""
}

// CheckUnit implements policy.UnitCheck.
func (i *instance) CheckUnit(_ policy.EvictionCause, _ *ledger.GangState, _ cluster.Resources, u *ledger.VictimUnit) (string, policy.Verdict) {
	if !i.blocked(u.Gang.Leaf) {
		return "", policy.Verdict{}
	}
	b := i.violated(u)
	if b == nil {
		return "", policy.Verdict{}
	}
	return "", policy.Verdict{Code: policy.No, Reason: policy.ReasonBudget, Object: b.key, Need: int64(len(u.Pods)), Have: max(0, int64(b.left))}
}

// blocked says whether budgets block for the work of a leaf queue.
func (i *instance) blocked(leaf *ledger.QueueLedger) bool {
	if leaf == nil {
		return false
	}
	out, known := i.blocks[leaf.ID]
	if !known {
		for q := leaf; q != nil && !out; q = q.Parent {
			out = q.BudgetsBlock
		}
		i.blocks[leaf.ID] = out
	}
	return out
}

// Done implements policy.Observer: who goes uses budgets up, who is spared gives back. A pod that gets room elsewhere has
// been disrupted all the same.
func (i *instance) Done(op ledger.Op) { i.move(op, 1) }

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) { i.move(op, -1) }

func (i *instance) move(op ledger.Op, by int32) {
	switch op.Verb {
	case ledger.Evict:
		by = -by
	case ledger.Spare:
	default:
		return
	}
	for _, b := range i.budgets(op.Pod) {
		b.left += by
	}
}
