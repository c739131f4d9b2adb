package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Instance is one run of a plugin. The engine asks it which of the point interfaces it implements.
type Instance any

// QueueOrder orders two sibling queues: negative when l is served before r. next is what the best waiting gang below
// each would take. Shares in the session change only by placements, so an answer holds until the next one below either.
type QueueOrder interface {
	CompareQueues(l, r cluster.QueueID, lNext, rNext cluster.Resources) int
}

// GangOrder orders two gangs of one queue: negative when l is tried before r. It looks at nothing but the two: what others hold does not change its answer.
type GangOrder interface {
	CompareGangs(l, r *ledger.GangState) int
}

// SetOrder orders two sets under one parent of g: negative when l is filled before r. l and r are indices of g.Gang.Sets.
type SetOrder interface {
	CompareSets(g *ledger.GangState, l, r int32) int
}

// PodOrder orders two pods of one pod set: negative when l is placed before r.
type PodOrder interface {
	ComparePods(l, r *cluster.Pod) int
}

// QueueShares says what each queue is entitled to now, over the snapshot's dimensions; nil for a queue it knows nothing
// of. It must not change, and is kept when the run is over.
type QueueShares interface {
	FairShare(q cluster.QueueID) cluster.Resources
}

// What plugins say of a beneficiary (ReclaimGate, VictimQueueFilter, UnitCheck, QueueGate) they say for its queue's numbers, the queues
// above it and what is asked for: siblings that hold and may hold the same, and have given nobody room, are told the same but
// for their names.

// ReclaimGate says whether the queue of g may take request more from other queues at all. It is asked before victims are
// looked at, with the session as it stands.
type ReclaimGate interface {
	CheckReclaim(g *ledger.GangState, request cluster.Resources) Verdict
}

// VictimQueueFilter says whether anything may be taken from the gangs of a leaf queue for g, for this cause, with request what g
// asks for. A yes holds for the search for g; a no until something is taken from a queue that g's own queue meets further down
// than it meets this one.
type VictimQueueFilter interface {
	CheckVictimQueue(r EvictionCause, g *ledger.GangState, request cluster.Resources, leaf *ledger.QueueLedger) Verdict
}

// SiblingFilter is a VictimQueueFilter that looks at nothing but g, the two queues at which the ways of g's queue and the leaf part
// (siblings, and the queues above them), and what those hold: its answer is the same for all leaves below a queue that is not
// on g's way, so it is asked about one of them.
//
// Standing appends all that it looks at of such a queue itself, as the session stands: of siblings of one standing it says the
// same to everybody, but for what the verdict names and counts. There should be few that differ, however many queues there are.
type SiblingFilter interface {
	VictimQueueFilter
	Standing(key []byte, q cluster.QueueID) []byte
}

// VictimFilter says whether anything of v may be taken for g, for this cause, with request what g asks for. The answer
// holds for the search for g. It does not depend on g's priority, which the session compares itself, and of g's queue only on
// where its way from the top and that of v's part; what depends on how much has been taken already is UnitCheck's.
type VictimFilter interface {
	CheckVictim(r EvictionCause, g *ledger.GangState, request cluster.Resources, v *ledger.GangState) Verdict
}

// AnyBeneficiary is a VictimFilter that can tell of a gang that it has nothing against anybody's taking from it for this cause: it says
// true only where CheckVictim says yes whoever g is and whatever it asks for, until the gang is charged more or less.
type AnyBeneficiary interface {
	VictimFilter
	AnyBeneficiary(r EvictionCause, v *ledger.GangState) bool
}

// UnitCheck says whether one more unit may be taken for g, which asks for request. The session stands as after the units
// taken so far, u not among them. Taking more must not make a unit legal that was not, but for what is taken from a queue that
// g's own queue meets further down than it meets the unit's: then it is asked again. rule says what makes it legal, for the record; "" for no opinion.
type UnitCheck interface {
	CheckUnit(r EvictionCause, g *ledger.GangState, request cluster.Resources, u *ledger.VictimUnit) (rule string, v Verdict)
}

// VictimOrder orders two sibling queues to take from: negative when l gives before r. lUnit and rUnit are what each would
// give next; what was taken already is gone from the session's ledgers.
type VictimOrder interface {
	CompareVictimQueues(l, r cluster.QueueID, lUnit, rUnit cluster.Resources) int
}

// VictimTier says how reluctantly a unit is taken: all units of a lower tier come before those of a higher one. 0 is no
// reluctance, 1 that it breaks a promise made to its owner, named by the second result.
type VictimTier interface {
	Tier(u *ledger.VictimUnit) (tier int, broken string)
}

// QueueGate says whether the queue of g, and the queues above it, may take request more: once all that is leaving has gone, or
// now, beside it.
type QueueGate interface {
	CheckQueue(g *ledger.GangState, request cluster.Resources, now bool) Verdict
}

// FixedQuota says whether a queue's subtree would hold more for non-preemptible work than it may, had it freed so much of what
// it holds as the session stands.
type FixedQuota interface {
	OverFixed(q cluster.QueueID, freed cluster.Resources) bool
}

// Vote is what a plugin says of a gang that asks to be admitted.
type Vote int8

// The votes.
const (
	Abstain Vote = iota // others decide
	Permit              // no later tier is asked, unless somebody of this one or an earlier one rejects
	Reject              // it is not admitted
)

// AdmissionVote votes on a gang that asks to be admitted, for asks, what its minimum needs. What was admitted before, in this run too, is in
// View.Claimed. The verdict says why it is rejected; of another vote its WakeAt is when time alone changes it, 0 for never.
type AdmissionVote interface {
	VoteAdmission(g *ledger.GangState, asks cluster.Resources) (Vote, Verdict)
}

// The points below are those of a face's own plugins alone. They judge what gangs of the face may take from gangs of the face; see [Plugins.Judges].

// Preemptable votes on whether a pod may be taken for g, of the same queue, and of lower priority: Permit, Reject with why, or Abstain where it does not judge such a pod.
// The session stands as after those taken so far; taking more must not make a pod legal that was not.
type Preemptable interface {
	VotePreemptable(g *ledger.GangState, request cluster.Resources, c *Candidate) (Vote, Verdict)
}

// Reclaimable is Preemptable of pods of other queues.
type Reclaimable interface {
	VoteReclaimable(g *ledger.GangState, request cluster.Resources, c *Candidate) (Vote, Verdict)
}

// Bundled is a Preemptable or Reclaimable that votes otherwise where gangs are taken from in bundles: first what they can do without, of all of them, and then whole ones. It is for plugins
// that would keep gangs from being broken pod by pod.
type Bundled interface {
	VoteBundled(c *Candidate) (Vote, Verdict)
}

// Candidate is a pod that might be taken.
type Candidate struct {
	Gang *ledger.GangState
	Pod  *cluster.Pod
	// Before are the pods of the gang that go before it and that the session does not know of yet, and Freed is what their queue is charged for them.
	Before []*cluster.Pod
	Freed  cluster.Resources
}

// QueueTurn says whether anything may be given to, and taken for, gangs of a queue of the face at all, as the session stands.
type QueueTurn interface {
	CheckTurn(q *ledger.QueueLedger) Verdict
}

// Starving says whether g lacks so much that others may go for it.
type Starving interface {
	CheckStarving(g *ledger.GangState) Verdict
}

// LeafOrder orders two leaf queues of the face that have gangs which wait: negative when l is served before r. It says so of any two leaves of the face, wherever in the tree: one that
// goes by the tree looks at the two queues at which their ways part. Its answer changes with what is held below these two, and of nothing else, unless it is Entwined.
type LeafOrder interface {
	CompareLeaves(l, r *ledger.QueueLedger) int
}

// Entwined is a LeafOrder whose answer about two queues may change with what any other of the face holds. All leaves of the face are then put in order anew after each change:
// O(leaves · log).
type Entwined interface {
	LeafOrder
	Entwined() bool
}

// DomainScore says how well the pods of a set sit in a domain of a topology: larger is better. Of the domains of a level that have room for a set that must be, or would rather be, together
// those of the largest score come first, of equal ones those in which the set has most pods. It is asked for each of them, as the session stands.
type DomainScore interface {
	ScoreDomain(q *SetQuery, t *cluster.Topology, d cluster.DomainID) int64
}

// VictimSource names pods that are not to stay on their nodes, though nobody waits for their room.
type VictimSource interface {
	// Victims are those pods, which run, in the order in which they should go. It is asked once in a run, as the session stands then; pods of other faces are left out.
	Victims() []*cluster.Pod
	// Leaves says whether they go also where there is no other node for them. Otherwise nobody goes who has none.
	Leaves() bool
	// Every is how long after pods of the face last went for such a reason these may; above 0.
	Every() time.Duration
	// Why says for which reason a unit with one of them is to go, as the session stands, in words that complete "because"; "" if it is to stay. Of a unit that is Moved all pods are
	// among Victims.
	Why(u *ledger.VictimUnit) string
	// MayGo says whether the successor of a pod that goes may be on a node that takes it, as the session stands without the pod.
	MayGo(p *cluster.Pod, n *cluster.Node) bool
}

// VictimKeeper says whether a unit that a VictimSource of the face names stays all the same.
type VictimKeeper interface {
	Keeps(u *ledger.VictimUnit) bool
}

// PodGate says whether a pod of this class could run anywhere at all; it is asked once per class and run.
type PodGate interface {
	CheckPod(c *cluster.Class, namespace string) Verdict
}

// NodeStatic says which of some nodes pods of class c may not run on, looking at nothing but class and node, neither at how much of
// something the pods ask for nor at what they say of other pods: answers are cached, by Class.Site, until the node's StaticGen
// changes. It sets no[i] to why not nodes[i], and leaves alone what is set. Verdicts that are equal should be the same one, which
// belongs to the plugin; the engine writes the plugin's name into it.
type NodeStatic interface {
	CheckStatic(c *cluster.Class, nodes []*cluster.Node, no []*Verdict)
}

// NodeFilter says whether p may run on n as things stand in the session. Wants says for which classes it needs to be
// asked at all; false for a class means every node passes.
type NodeFilter interface {
	Wants(c *cluster.Class) bool
	CheckNode(p *cluster.Pod, n *cluster.Node) Verdict
}

// Unanimous is a NodeFilter that may know, without being asked about each node, that all of them refuse p as things stand in the
// session. Nobody then returns a text that names what CheckNode says of every node: pods of whom it is the same are told the same
// of each. It is "" if some node may take p, or it is not known. It is asked for the classes that Wants names.
type Unanimous interface {
	NodeFilter
	Nobody(p *cluster.Pod) string
}

// NodeRefusals is a NodeFilter that knows beforehand, without being asked about each, nodes that it refuses. Refuses returns them
// for p as things stand, as bits by node ID, and why, if that is the same for all. CheckNode says no of every one of them, for that
// reason, and may say no of others too. It is asked for the classes that Wants names; what it returns is valid until anything changes,
// and belongs to the plugin.
//
// RefusesAll says that it refuses p every node, and would if any pods that are there went, or went elsewhere: only somebody new could
// change that, who is not like p.
type NodeRefusals interface {
	NodeFilter
	Refuses(p *cluster.Pod) (nodes []uint64, why *Verdict)
	RefusesAll(p *cluster.Pod) bool
}

// NodeStay is a NodeFilter of parts of a node, such as NUMA zones, of which a pod that is new there may get others than one had that
// was evicted from n: CheckStay says whether just those are still there, so that p may stay after all. It is asked instead of
// CheckNode then; who stays in what somebody else was given would leave that one waiting for ever.
type NodeStay interface {
	NodeFilter
	CheckStay(p *cluster.Pod, n *cluster.Node) bool
}

// NodeReady says whether what lets p run on n, which passed the filters, is there now, and not only once something that
// is being released has gone. It is asked for the classes that its Wants, as of NodeFilter, names.
type NodeReady interface {
	Wants(c *cluster.Class) bool
	CheckReady(p *cluster.Pod, n *cluster.Node) Verdict
}

// Kind is how many pods of one class are to be placed.
type Kind struct {
	Class *cluster.Class
	Count int
}

// NodeSets narrows where the pods of a set of a gang, and of all sets below it, may go together. It returns the candidates
// within q.Within, best first; the engine takes the first of them in which everything below the set finds a place. A set
// below is asked within the candidate its parent was given. The first result is nil when the set may go anywhere within;
// without any candidate the verdict says why, and must not be a yes.
//
// Candidates are judged by counting, see [NodeRange]: a candidate that cannot hold each kind for itself must be left out,
// and one that might hold them must not.
//
// CheckNear says whether a constraint can be understood, whatever room there is; it must be cheap. NodeSets says no to one that
// cannot. LeftOut says which nodes a constraint leaves out whatever room they have, and why: that is told beside what is lacking where
// pods may go.
type NodeSets interface {
	NodeSets(q *SetQuery) ([]NodeSet, Verdict)
	CheckNear(c cluster.Constraint) Verdict
	LeftOut(c cluster.Constraint, n *cluster.Node) Verdict
}

// SetQuery asks where a set may go.
type SetQuery struct {
	Gang   *ledger.GangState
	Set    int32              // index of Gang.Sets
	Near   cluster.Constraint // what keeps the set together
	Pods   []Kind             // what is to be placed below it
	Within NodeRange
}

// NodeRange is nodes that pods may go to: all, or those of a domain.
type NodeRange interface {
	// Places returns how many pods of the class fit into each domain of the topology within the range, by domain, each pod
	// for itself. The slice is the engine's own: it is valid until the next operation and must not be written to.
	Places(t *cluster.Topology, c *cluster.Class) []int
	// Top returns the narrowest domain of the topology in which all of the range that belongs to the topology is known to
	// be: the root, unless the range is a domain of it.
	Top(t *cluster.Topology) cluster.DomainID
}

// NodeSet is a domain that a set may go to. Domain None stands for all of where it was asked for, whether or not it
// belongs to the topology. Gather is the level of whose domains its pods should use as few as possible; None for no such
// wish.
type NodeSet struct {
	Topology *cluster.Topology
	Domain   cluster.DomainID
	Gather   int
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

// CompanyScore says how well a pod sits on a node because of the pods that are near it, in Points of a score: larger is
// better, and it counts with what NodeScore says. Unlike that, it changes at nodes where nothing has happened.
type CompanyScore interface {
	// Kind says whose company a pod is: pods of one class and kind have the same scores. 0 for a pod that has none.
	Kind(p *cluster.Pod) int
	// Company returns the scores of a kind as the session stands, by node ID, and all nodes at which they have changed
	// since the kind was first named, in order. Both belong to the plugin.
	Company(kind int) (scores []int64, changed []cluster.NodeID)
}

// SoleCompany is a CompanyScore that, among a face's own, may stand for that of all faces, which has no say of the face's pods then.
type SoleCompany interface {
	CompanyScore
	Sole() bool
}

// DeviceOrder says how well a pod of class c that shares devices sits on one of the devices of n: larger is better. used is
// what is held of the device, 0 for one that nobody is on yet, of capacity in all.
type DeviceOrder interface {
	ScoreDevice(c *cluster.Class, n *cluster.Node, used, capacity cluster.DeviceUnits) int64
}

// Observer follows what statements do, to keep a ledger of its own. Undone is called for the same operation in exactly
// reverse order.
//
// An operation lets a pod come (Op.Gives is 1) or go (-1).
type Observer interface {
	Done(op ledger.Op)
	Undone(op ledger.Op)
}

// Promises follows the promises of room that bind others (View.EachHold): each is opened when it is the turn of whom it was
// made to, and shut again when that comes to nothing.
type Promises interface {
	Turned(h *cluster.Hold, open bool)
}

// Detailer says what the plugin chose for a pod besides the node. It is called once for each operation that binds, nominates or
// moves a pod, when its statement is settled; the session stands as after the statement.
type Detailer interface {
	Detail(op ledger.Op, to *Detail)
}

// Detail is what plugins choose for a pod besides the node.
type Detail struct {
	// Claims are the devices that its resource claims get; those that had theirs are not among them.
	Claims []cluster.ClaimAllocation
	// Zones are what it is expected to take from which NUMA zones of the node; nil when nobody says.
	Zones []cluster.ZoneShare
}

// Timetable is of a plugin that says otherwise at certain times, such as when a window of the day opens, whatever else happens: NextChange is the next of these, cluster.Forever for
// never. No answer is remembered beyond it, and there is a run then.
type Timetable interface {
	NextChange() cluster.Instant
}

// Closer is called after the last action. The facts it returns go into the Trace under the plugin's name.
type Closer interface {
	Close() any
}

// EvictionCause is what pods are evicted for.
type EvictionCause string

// The causes. What each may take is the table in docs/concepts/disruption.md.
const (
	Consolidation EvictionCause = "consolidation" // to move pods elsewhere, so that scattered room comes together
	Reclaim       EvictionCause = "reclaim"       // to take back, from a queue above its share, what is one's own
	Preempt       EvictionCause = "preempt"       // to make way for higher priority in the same queue
	Repair        EvictionCause = "repair"        // to release what a fault left of a gang
	Shuffle       EvictionCause = "shuffle"       // to leave a node on which pods are not to stay, see VictimSource
)

// Own says that nobody is evicted for another: the gang that gives is whom the decision is about.
func (c EvictionCause) Own() bool { return c == Repair || c == Shuffle }

// ScorePoint is the unit of scores: one point, in billionths, so that fractions of a point can order nodes.
const ScorePoint = int64(1_000_000_000)

// Arguments are a plugin's settings from the profile.
type Arguments map[string]string

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

// Whole reads an argument that is a whole number from 0 to most; otherwise is what it is where it is not said. The error names argument and rule.
func (a Arguments) Whole(name string, otherwise, most int64) (int64, error) {
	text, said := a[name]
	if !said {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("argument %q is %.40q; it must be a whole number from 0 to %d", name, text, most)
	}
	return n, nil
}

// Dimension is that of a resource as Volcano's files name it.
func Dimension(dims cluster.Dims, name string) (int, bool) {
	if name == "nvidia.com/gpu" {
		return cluster.GPU, true
	}
	return dims.Index(name)
}

// Tolerates says whether one of the tolerations covers the taint, by kube-scheduler's rule: the effect is the same or none is said, likewise
// the key, none only with Exists, and the value is the same, but with Exists. An operator this code does not know tolerates nothing.
func Tolerates(by []v1.Toleration, taint *v1.Taint) bool {
	for k := range by {
		t := &by[k]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		switch t.Operator {
		case v1.TolerationOpExists:
			return true
		case "", v1.TolerationOpEqual:
			if t.Key != "" && t.Value == taint.Value {
				return true
			}
		}
	}
	return false
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

// Bounds are the least and the largest of the values of some nodes, which values has by their numbers; 0 of none. O(nodes).
func Bounds(nodes []cluster.NodeID, values []int64) (low, top int64) {
	for i, n := range nodes {
		if i == 0 {
			low, top = values[n], values[n]
		}
		low, top = min(low, values[n]), max(top, values[n])
	}
	return low, top
}
