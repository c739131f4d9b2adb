package engine

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Plugin is one policy, built once per profile. Open starts one run: the Instance it returns implements any of the
// extension points below and lives for that run only, so state cannot leak from one cycle into the next.
type Plugin interface {
	Open(v *View) Instance
}

// Instance is one run of a plugin. The engine asks it which of the point interfaces it implements.
type Instance any

// Point names an extension point, in configuration (what a mutation neutralises) and in errors.
type Point string

// The extension points and how the opinions of several plugins combine. Plugins are asked tier by tier, in the order of
// the profile.
//
//	point          interface    combination
//	queue-order    QueueOrder   first opinion that is not 0
//	gang-order     GangOrder    first opinion that is not 0, then age, then key
//	set-order      SetOrder     first opinion that is not 0, then name
//	pod-order      PodOrder     first opinion that is not 0, then age, then name as text
//	queue-shares   QueueShares  exclusive: two owners are a start-up error
//	queue-gate     QueueGate    all must agree; the first no is the verdict
//	pod-gate       PodGate      all must agree; the first no is the verdict
//	node-static    NodeStatic   all must agree; cached per class and node
//	node-filter    NodeFilter   all must agree; asked for each placement
//	node-score     NodeScore    sum
//	pod-bonus      PodBonus     sum
//	observer       Observer     told in order, undone in reverse order
//	close          Closer       all called, in order
const (
	PointQueueOrder  Point = "queue-order"
	PointGangOrder   Point = "gang-order"
	PointSetOrder    Point = "set-order"
	PointPodOrder    Point = "pod-order"
	PointQueueShares Point = "queue-shares"
	PointQueueGate   Point = "queue-gate"
	PointPodGate     Point = "pod-gate"
	PointNodeStatic  Point = "node-static"
	PointNodeFilter  Point = "node-filter"
	PointNodeScore   Point = "node-score"
	PointPodBonus    Point = "pod-bonus"
	PointObserver    Point = "observer"
	PointClose       Point = "close"
)

// Points lists every extension point.
func Points() []Point {
	return []Point{
		PointQueueOrder, PointGangOrder, PointSetOrder, PointPodOrder, PointQueueShares, PointQueueGate, PointPodGate,
		PointNodeStatic, PointNodeFilter, PointNodeScore, PointPodBonus, PointObserver, PointClose,
	}
}

// QueueOrder orders two sibling queues: negative when l is served before r. next is what the best waiting gang below
// each would take. Shares in the session change only by placements, so an answer holds until the next one below either.
type QueueOrder interface {
	CompareQueues(l, r cluster.QueueID, lNext, rNext cluster.Resources) int
}

// GangOrder orders two gangs of one queue: negative when l is tried before r.
type GangOrder interface {
	CompareGangs(l, r *GangState) int
}

// SetOrder orders two sets under one parent of g: negative when l is filled before r. l and r are indices of g.Gang.Sets.
type SetOrder interface {
	CompareSets(g *GangState, l, r int32) int
}

// PodOrder orders two pods of one pod set: negative when l is placed before r.
type PodOrder interface {
	ComparePods(l, r *cluster.Pod) int
}

// QueueShares says what each queue is entitled to now, over the snapshot's dimensions; nil for a queue it knows nothing
// of. It must not change during a run.
type QueueShares interface {
	FairShare(q cluster.QueueID) cluster.Resources
}

// QueueGate says whether the queue of g, and the queues above it, may take request more.
type QueueGate interface {
	CheckQueue(g *GangState, request cluster.Resources) Verdict
}

// PodGate says whether a pod of this class could run anywhere at all; it is asked once per class and run.
type PodGate interface {
	CheckPod(c *cluster.Class, namespace string) Verdict
}

// NodeStatic says whether pods of class c may run on n, looking at nothing but the two: answers are cached until the
// node's StaticGen changes.
type NodeStatic interface {
	CheckStatic(c *cluster.Class, n *cluster.Node) Verdict
}

// NodeFilter says whether p may run on n as things stand in the session. Wants says for which classes it needs to be
// asked at all; false for a class means every node passes.
type NodeFilter interface {
	Wants(c *cluster.Class) bool
	CheckNode(p *cluster.Pod, n *cluster.Node) Verdict
}

// NodeScore says how well a pod of class c sits on node n, in Points of a score: larger is better. It may look at the
// session's ledger of n only (and at what it computed at Open), because scores of untouched nodes are kept.
type NodeScore interface {
	ScoreNode(c *cluster.Class, n *cluster.Node) int64
}

// PodBonus adds to the score of single nodes for single pods: at most a few nodes per pod.
type PodBonus interface {
	Bonus(p *cluster.Pod) (node cluster.NodeID, score int64)
}

// Observer follows what statements do, to keep a ledger of its own. Undone is called for the same operation in exactly
// reverse order.
type Observer interface {
	Done(op Op)
	Undone(op Op)
}

// Closer is called after the last action. The facts it returns go into the Trace under the plugin's name.
type Closer interface {
	Close() any
}

// ScorePoint is the unit of scores: one point, in billionths, so that fractions of a point can order nodes.
const ScorePoint = int64(1_000_000_000)

// Arguments are a plugin's settings from the profile.
type Arguments map[string]string

// Factory builds a plugin; it refuses arguments it cannot read with an error naming the argument and the rule, and
// reports those it does not know by name.
type Factory func(args Arguments) (p Plugin, unknown []string, err error)

// Action is one step of a run: it pulls gangs, tries them in Statements, and keeps or discards them.
type Action interface {
	Run(s *Session)
}

// Unknown returns the arguments that are not among known, sorted.
func (a Arguments) Unknown(known ...string) []string {
	var out []string
	for name := range a { // order: sorted below
		if !slices.Contains(known, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// First orders by a yes: the one for which it holds goes first.
func First(l, r bool) int {
	switch {
	case l == r:
		return 0
	case l:
		return -1
	}
	return 1
}
