package votes

import (
	"cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// DRF is the name of the plugin by which the gang goes first that holds the smallest part of the cluster.
const DRF = "drf"

// DRFFactory declares it. The share of a gang is the largest part that it holds of anything the nodes have. The smaller one goes first; a pod may be taken by preemption if its gang's share
// without it, and without those before it, is no less than that of the gang that it is taken for with what that asks for, or a millionth less.
//
// With the argument enableHierarchy queues are ordered by their tree of shares; see [tree].
var DRFFactory = policy.Makes(func(args policy.Arguments) (func(*policy.View) *drfLaw, []string, error) {
	hierarchy := args[HierarchyArgument] == "true"
	return func(v *policy.View) *drfLaw {
		return &drfLaw{view: v, all: whole(v.Snapshot()), held: make([]holding, v.Snapshot().MaxGangID()), hierarchy: hierarchy}
	}, args.Unknown(HierarchyArgument), nil
}, ReasonLargerShare)

// nearShare is how much larger a share may be that counts as equal.
const nearShare = wholeShare / 1_000_000

type drfLaw struct {
	view      *policy.View
	all       cluster.Resources
	held      []holding // by gang
	hierarchy bool      // queues are ordered by tree
	tree      tree
}

// holding is what a gang holds as the session stands, and its share.
type holding struct {
	of    cluster.Resources
	share int64
	known bool
}

// holding returns what a gang holds: O(its pods) when it is asked for first.
func (l *drfLaw) holding(gang *cluster.Gang) *holding {
	h := &l.held[gang.ID]
	if h.known {
		return h
	}
	h.known = true
	if gang.ActivePods > 0 {
		for _, id := range gang.Pods {
			if p := l.view.Snapshot().Pod(id); p.Ours && p.Phase.Active() {
				h.of.AddCapped(p.Charge)
			}
		}
		h.share = l.share(h.of)
	}
	return h
}

func (l *drfLaw) share(of cluster.Resources) int64 { return dominant(of, l.all.At) }

// CompareGangs implements policy.GangOrder.
func (l *drfLaw) CompareGangs(a, b *ledger.GangState) int {
	return cmp.Compare(l.holding(a.Gang).share, l.holding(b.Gang).share)
}

// Done implements policy.Observer.
func (l *drfLaw) Done(op ledger.Op) { l.moved(op, op.Gives()) }

// Undone implements policy.Observer.
func (l *drfLaw) Undone(op ledger.Op) { l.moved(op, -op.Gives()) }

// moved follows an operation. Before a gang is asked for first nothing of it has moved: who is moved is asked for here, with what it held by the snapshot.
func (l *drfLaw) moved(op ledger.Op, gives int) {
	gang := l.view.Snapshot().Gang(op.Pod.Gang)
	if gang == nil || gives == 0 {
		return
	}
	h := l.holding(gang)
	if charge := op.Pod.Class.ChargeOn(l.view.Snapshot().Node(op.Node)); gives > 0 {
		h.of.Add(charge)
	} else {
		h.of.Sub(charge)
	}
	h.share = l.share(h.of)
}

// VotePreemptable implements policy.Preemptable.
func (l *drfLaw) VotePreemptable(g *ledger.GangState, request cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	with := l.holding(g.Gang).of.Clone()
	with.AddCapped(request)
	left := l.holding(c.Gang.Gang).of.Clone()
	left.Sub(c.Freed)
	left.Sub(c.Pod.Charge)
	if l.share(with)-l.share(left) > nearShare {
		return reject(policy.Verdict{Reason: ReasonLargerShare, Object: c.Gang.Key.String()})
	}
	return policy.Permit, policy.Verdict{}
}

// VoteBundled implements policy.Bundled: it has no say of bundles.
func (*drfLaw) VoteBundled(*policy.Candidate) (policy.Vote, policy.Verdict) {
	return policy.Abstain, policy.Verdict{}
}
