package tdm

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a scheduler file, and Label the node label that names its zone; pods say by an annotation of that name that they are revocable.
const (
	Name  = "tdm"
	Label = "volcano.sh/revocable-zone"
)

// The arguments; that of a zone ends in its name.
const (
	ZoneArgument   = "tdm.revocable-zone."
	PeriodArgument = "tdm.evict.period"
)

// points are those of a node of a zone for who is revocable.
const points = 100 * policy.ScorePoint

// Factory declares the plugin.
var Factory = policy.Makes(build, ReasonZoneClosed, ReasonNotRevocable, ReasonMakesNoWay, ReasonMakesWay, ReasonGangBudget)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	zones, known, err := readZones(args)
	if err != nil {
		return nil, nil, err
	}
	every := time.Minute
	if text, said := args[PeriodArgument]; said {
		if every, err = time.ParseDuration(text); err != nil || every <= 0 {
			return nil, nil, fmt.Errorf("argument %q is %.40q; it must be a duration above 0, such as 1m", PeriodArgument, text)
		}
	}
	return func(v *policy.View) *instance {
		return &instance{view: v, zones: zones, every: every, taken: map[cluster.GangID]int64{}}
	}, args.Unknown(append(known, PeriodArgument)...), nil
}

type instance struct {
	view  *policy.View
	zones map[string]zone
	every time.Duration
	lent  *lent                    // nil until asked for
	taken map[cluster.GangID]int64 // how many pods of a gang go in this run
}

// lent are the nodes of zones, as bits by node ID: made once in a run, O(nodes).
type lent struct {
	all, shut []uint64
	allWhy    *policy.Verdict // of all that are refused to those that are not revocable, if it is one
	shutWhy   *policy.Verdict
	many      int // of all
	manyShut  int
	scores    []int64 // for who is revocable
}

func (i *instance) nodes() *lent {
	if i.lent != nil {
		return i.lent
	}
	snap := i.view.Snapshot()
	words := (snap.MaxNodeID() + 63) / 64
	l := &lent{all: make([]uint64, words), shut: make([]uint64, words), scores: make([]int64, snap.MaxNodeID())}
	one := func(why **policy.Verdict, v policy.Verdict, first bool) {
		if first {
			*why = &v
		} else if *why != nil && **why != v {
			*why = nil
		}
	}
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		if _, of := n.Labels[Label]; !of {
			continue
		}
		l.scores[id] = points
		l.all[id>>6] |= 1 << (id & 63)
		one(&l.allWhy, i.judge(false, n), l.many == 0)
		l.many++
		if v := i.judge(true, n); !v.Yes() {
			l.shut[id>>6] |= 1 << (id & 63)
			one(&l.shutWhy, v, l.manyShut == 0)
			l.manyShut++
		}
	}
	i.lent = l
	return l
}

// judge says whether pods that are revocable, or not, may use a node.
func (i *instance) judge(revocable bool, n *cluster.Node) policy.Verdict {
	name, of := n.Labels[Label]
	if !of {
		return policy.Verdict{}
	}
	z, known := i.zones[name]
	switch {
	case !known:
		return policy.Verdict{Code: policy.No, Reason: ReasonZoneClosed, Object: name, Detail: "at no time, as the scheduler file does not name it"}
	case !z.open(i.view.Snapshot().Now):
		return policy.Verdict{Code: policy.No, Reason: ReasonZoneClosed, Object: name, Detail: z.String()}
	case !revocable:
		return policy.Verdict{Code: policy.No, Reason: ReasonNotRevocable, Object: name, Detail: Label + `: "*"`}
	}
	return policy.Verdict{}
}

// Wants implements policy.NodeFilter.
func (i *instance) Wants(*cluster.Class) bool { return i.nodes().many > 0 }

// CheckNode implements policy.NodeFilter.
func (i *instance) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	return i.judge(p.Class.Revocable, n)
}

// CheckStay implements policy.NodeStay: who runs is not sent away for others by a zone that closes.
func (*instance) CheckStay(*cluster.Pod, *cluster.Node) bool { return true }

// Refuses implements policy.NodeRefusals.
func (i *instance) Refuses(p *cluster.Pod) ([]uint64, *policy.Verdict) {
	if l := i.nodes(); !p.Class.Revocable {
		return l.all, l.allWhy
	}
	return i.lent.shut, i.lent.shutWhy
}

// RefusesAll implements policy.NodeRefusals: who goes opens no zone.
func (i *instance) RefusesAll(p *cluster.Pod) bool {
	l, all := i.nodes(), len(i.view.Snapshot().NodeOrder)
	return l.many == all && !p.Class.Revocable || l.manyShut == all
}

// Kind implements policy.CompanyScore: all revocable pods are of one.
func (i *instance) Kind(p *cluster.Pod) int {
	if i.nodes().many > 0 && p.Class.Revocable {
		return 1
	}
	return 0
}

// Company implements policy.CompanyScore; nothing changes within a run.
func (i *instance) Company(int) ([]int64, []cluster.NodeID) { return i.nodes().scores, nil }

// CompareGangs implements policy.GangOrder: those that make way for others come last.
func (*instance) CompareGangs(l, r *ledger.GangState) int { return policy.First(!l.Yields, !r.Yields) }

// CheckStarving implements policy.Starving: it is asked about gangs that have pods to place.
func (*instance) CheckStarving(g *ledger.GangState) policy.Verdict {
	if g.Yields {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonNotStarving, Detail: "it makes way for others itself"}
	}
	return policy.Verdict{}
}

// VotePreemptable implements policy.Preemptable.
func (i *instance) VotePreemptable(g *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	no := func(r *policy.Reason) (policy.Vote, policy.Verdict) {
		return policy.Reject, policy.Verdict{Code: policy.No, Reason: r, Object: c.Gang.Key.String()}
	}
	switch {
	case g.Yields:
		return no(ReasonMakesWay)
	case !c.Gang.Yields:
		return no(ReasonMakesNoWay)
	case i.taken[c.Gang.ID]+int64(len(c.Before)) >= i.mayGive(c.Gang):
		return no(ReasonGangBudget)
	}
	return policy.Permit, policy.Verdict{}
}

// VoteBundled implements policy.Bundled: it has no say there.
func (*instance) VoteBundled(*policy.Candidate) (policy.Vote, policy.Verdict) {
	return policy.Abstain, policy.Verdict{}
}

// mayGive is how many pods of a gang may be taken in a run, by its budget.
func (i *instance) mayGive(g *ledger.GangState) int64 {
	if g.Budget == nil {
		return 1
	}
	has, runs := int64(0), int64(0)
	for _, id := range g.Pods {
		switch p := i.view.Snapshot().Pod(id); {
		case p.Ours && p.Phase.Active():
			has, runs = has+1, runs+1
		case p.Ours && p.Phase.Alive():
			has++
		}
	}
	n := int64(g.Budget.Number)
	if g.Budget.Percent {
		n = (n*has + 99) / 100
	}
	if g.Budget.Left {
		n = runs - n
	}
	return n
}

// Done implements policy.Observer.
func (i *instance) Done(op ledger.Op) { i.counted(op, 1) }

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) { i.counted(op, -1) }

func (i *instance) counted(op ledger.Op, by int64) {
	switch op.Verb {
	case ledger.Evict:
		i.taken[op.Pod.Gang] += by
	case ledger.Spare:
		i.taken[op.Pod.Gang] -= by
	}
}

// NextChange implements policy.Timetable: when the next zone opens or closes that a node is of.
func (i *instance) NextChange() cluster.Instant {
	next, snap := cluster.Forever, i.view.Snapshot()
	var seen []string
	for _, id := range snap.NodeOrder {
		name, of := snap.Node(id).Labels[Label]
		if z, known := i.zones[name]; of && known && !slices.Contains(seen, name) {
			seen, next = append(seen, name), cluster.Earliest(next, z.next(snap.Now))
		}
	}
	return next
}
