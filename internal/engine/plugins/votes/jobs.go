package votes

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// The names of the plugins that look at gangs and pods alone.
const (
	Gang        = "gang"
	Priority    = "priority"
	Conformance = "conformance"
)

// GangFactory, PriorityFactory and ConformanceFactory declare them; they take any arguments.
//
// By gang a pod may be taken while its gang has more pods than its minimum, of those that hold room or have ended well, and others go only for what a gang lacks of its minimum. By
// priority a pod may be taken by preemption if its gang's priority is lower, and others go for whatever a gang lacks; gangs and pods of higher priority go first. By gang those go first that lack something of their
// minimum. By conformance no pod may be taken of the namespace
// kube-system, or of a gang with one of the two classes that Kubernetes has for what a cluster cannot do without.
var (
	GangFactory = policy.Makes(func(policy.Arguments) (func(*policy.View) *gangLaw, []string, error) {
		return func(v *policy.View) *gangLaw { return &gangLaw{view: v} }, nil, nil
	}, ReasonAtMinimum)
	PriorityFactory    = anyArguments(priorityLaw{})
	ConformanceFactory = anyArguments(conformanceLaw{}, ReasonSystem)
)

func anyArguments[T any](law T, reasons ...*policy.Reason) policy.Factory {
	return policy.Makes(func(policy.Arguments) (func(*policy.View) T, []string, error) {
		return func(*policy.View) T { return law }, nil, nil
	}, reasons...)
}

func reject(v policy.Verdict) (policy.Vote, policy.Verdict) {
	v.Code = policy.No
	return policy.Reject, v
}

type gangLaw struct {
	view    *policy.View
	trifles []int8 // by gang: whether pods of it waited that ask for nothing, 1 for no and 2 for yes; 0 for not known
}

func (*gangLaw) vote(c *policy.Candidate) (policy.Vote, policy.Verdict) {
	if ready, _ := c.Gang.CountReady(); ready-len(c.Before) <= c.Gang.MinPods() {
		return reject(policy.Verdict{Reason: ReasonAtMinimum, Object: c.Gang.Key.String()})
	}
	return policy.Permit, policy.Verdict{}
}

// VotePreemptable implements policy.Preemptable.
func (l *gangLaw) VotePreemptable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}

// VoteReclaimable implements policy.Reclaimable.
func (l *gangLaw) VoteReclaimable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}

// VoteBundled implements policy.Bundled: a gang gives what it can do without first, and the rest in one piece.
func (*gangLaw) VoteBundled(*policy.Candidate) (policy.Vote, policy.Verdict) {
	return policy.Permit, policy.Verdict{}
}

// CheckStarving implements policy.Starving.
func (*gangLaw) CheckStarving(g *ledger.GangState) policy.Verdict {
	if ready, waiting := g.CountReady(); ready+waiting >= g.MinPods() {
		return policy.Verdict{Code: policy.No, Reason: policy.ReasonNotStarving, Detail: "it has its minimum"}
	}
	return policy.Verdict{}
}

type priorityLaw struct{}

// VotePreemptable implements policy.Preemptable.
func (priorityLaw) VotePreemptable(g *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	if c.Gang.Priority >= g.Priority {
		return reject(policy.Verdict{Reason: policy.ReasonHigherPriority, Object: c.Gang.Key.String()})
	}
	return policy.Permit, policy.Verdict{}
}

// CheckStarving implements policy.Starving: it is asked about gangs that have pods to place.
func (priorityLaw) CheckStarving(*ledger.GangState) policy.Verdict { return policy.Verdict{} }

type conformanceLaw struct{}

// What a cluster cannot do without: its namespace, and above what priority there are but the classes system-cluster-critical and system-node-critical.
const (
	systemNamespace = "kube-system"
	mostOfUsers     = 1_000_000_000
)

func (conformanceLaw) vote(c *policy.Candidate) (policy.Vote, policy.Verdict) {
	if c.Pod.Namespace == systemNamespace || c.Gang.Priority > mostOfUsers {
		return reject(policy.Verdict{Reason: ReasonSystem, Object: c.Gang.Key.String()})
	}
	return policy.Permit, policy.Verdict{}
}

// VotePreemptable implements policy.Preemptable.
func (l conformanceLaw) VotePreemptable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}

// VoteReclaimable implements policy.Reclaimable.
func (l conformanceLaw) VoteReclaimable(_ *ledger.GangState, _ cluster.Resources, c *policy.Candidate) (policy.Vote, policy.Verdict) {
	return l.vote(c)
}
