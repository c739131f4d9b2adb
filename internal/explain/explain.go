package explain

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Explanation is why a gang waits and what would change it. Field names are stable: they are what -o json and -o yaml print.
type Explanation struct {
	Namespace string `json:"namespace"`
	Gang      string `json:"gang"`
	// Workload is what the gang was made for, as its owner calls it ("Job train"); "" where nobody said.
	Workload string `json:"workload,omitempty"`
	Queue    string `json:"queue"`
	Priority int32  `json:"priority"`
	Phase    Phase  `json:"phase"`
	Pods     Pods   `json:"pods"`
	// Word says it in one word; "" when nothing waits.
	Word Word `json:"word,omitempty"`
	// Selector says which labels its pods ask for that no node has, "" for none.
	Selector string `json:"selector,omitempty"`
	// Reason is the key of the blocking rule, "" when none blocks; Message is the line that conditions and events carry.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Verdict is the blocking rule with its numbers; of those about nodes, Class is what the pod without a place asks for, Nodes how
	// many nodes there are, and Tally what they answered.
	Verdict *engine.Verdict `json:"verdict,omitempty"`
	Class   string          `json:"class,omitempty"`
	Nodes   int             `json:"nodes,omitempty"`
	Tally   []Answer        `json:"tally,omitempty"`
	// Tried is why making others give way did not help either, action by action.
	Tried []Attempt `json:"tried,omitempty"`
	// Displaces is what the next run of the scheduler takes from others for the gang, nil for nothing.
	Displaces *Displaced `json:"displaces,omitempty"`
	// Turn is the gang's place in the order of service, when it got as far as being served.
	Turn *Turn `json:"turn,omitempty"`
	// Next is how many of its pods a run of the scheduler now gives room to; Reason and Message are then about the rest.
	Next int `json:"next,omitempty"`
	// Remedies would let the gang start, each by itself: the submitter's own first. Empty when none are known, or none is needed.
	Remedies []Remedy `json:"remedies,omitempty"`
	// Unknown says that the gang is blocked and no change is known that would let it start.
	Unknown bool `json:"unknown,omitempty"`
	// Beyond is then the rule that nothing known lifts, when it is not the one above but one behind it.
	Beyond string `json:"beyond,omitempty"`

	key    cluster.Key
	proven bool // whether Prove has been asked
}

// Word is what there is to say first.
type Word string

// The words. A gang for which nothing waits has none.
const (
	Starting Word = "starting" // the next run of the scheduler gives it room, or room that it was given is being released
	InLine   Word = "in line"  // it could start by itself; gangs served before it take what it needs
	Blocked  Word = "blocked"  // it could not start even were it next; it may when others end, or when somebody changes something
	Never    Word = "never"    // it would not start in an empty cluster either: somebody has to change something
)

// By says who can make a change.
type By string

// Who can.
const (
	Submitter    By = "submitter"     // whoever owns the gang
	QueueOwner   By = "queue owner"   // whoever owns its queue, or one above
	ClusterAdmin By = "cluster admin" // whoever owns nodes and the top of the queues
)

// order of who is asked first.
var order = [...]By{Submitter, QueueOwner, ClusterAdmin}

// By says who can make the change.
func (c *Change) By() By {
	switch c.Kind {
	case AddRoom, Uncordon, RepairNode, RemoveTaint, LabelNode, AddToShard, CreateQueue:
		return ClusterAdmin
	case RaiseLimit, RaiseQuota, FixParent:
		return QueueOwner
	}
	return Submitter
}

// Remedy is a set of changes with which the gang starts: all of them together, and no part of any can go.
type Remedy struct {
	// By is who has the rights for all of them.
	By      By        `json:"by"`
	Changes []*Change `json:"changes"`
	// First says that it was proven in a copy of the cluster in which nobody else waits: were the gang next. InLine says that it was
	// proven with everybody waiting: the gang starts at its place. No part of what is proven can go.
	First  bool `json:"first"`
	InLine bool `json:"inLine"`
	// Cost is what the scheduler would take from others then, nil for nothing.
	Cost *Displaced `json:"cost,omitempty"`
}

func newRemedy(changes []*Change, o *outcome, key cluster.Key) Remedy {
	r := Remedy{By: Submitter, Changes: changes, Cost: displacedBy(o, key)}
	for _, c := range changes {
		c.describe(o.snap.Dims)
		if slices.Index(order[:], c.By()) > slices.Index(order[:], r.By) {
			r.By = c.By()
		}
	}
	return r
}

// Pods counts a gang's pods. Needed is the smallest number that satisfies the gang.
type Pods struct {
	Running int `json:"running"`
	Pending int `json:"pending"`
	Gated   int `json:"gated,omitempty"`
	// Finished ended well; they count towards the minimum, see docs/concepts/gangs.md.
	Finished int `json:"finished,omitempty"`
	Needed   int `json:"needed"`
}

// Answer is what a number of nodes said.
type Answer struct {
	Nodes   int    `json:"nodes"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Turn is a place in the order in which gangs are served.
type Turn struct {
	// Position is 1 for the gang that is served first; Of is how many were served.
	Position int `json:"position"`
	Of       int `json:"of"`
	// Ahead is how many of those before it were given room.
	Ahead int `json:"ahead"`
}

// Phase is where a gang stands as a whole.
type Phase string

// The phases of a gang.
const (
	Empty    Phase = "Empty"    // it has no pods of ours
	Pending  Phase = "Pending"  // none of its pods has room
	Partly   Phase = "Partly"   // some of its pods have room, others wait
	Running  Phase = "Running"  // every pod has room
	Finished Phase = "Finished" // every pod has ended or is ending
)

// Count returns where a gang stands and how many of its pods do what.
func Count(snap *cluster.Snapshot, g *cluster.Gang) (Phase, Pods) {
	n := Pods{Running: int(g.ActivePods), Pending: int(g.PendingPods), Gated: int(g.GatedPods), Needed: g.MinPods()}
	for _, id := range g.Pods {
		if snap.Pod(id).Finished() {
			n.Finished++
		}
	}
	switch waiting := n.Pending + n.Gated; {
	case n.Running > 0 && waiting > 0:
		return Partly, n
	case n.Running > 0:
		return Running, n
	case waiting > 0:
		return Pending, n
	}
	for _, id := range g.Pods {
		if snap.Pod(id).Ours {
			return Finished, n
		}
	}
	return Empty, n
}

// say takes the reason from a run.
func (e *Explanation) say(o *outcome) {
	if o.gang == nil || o.gang.Diagnosis == nil {
		return
	}
	d := o.gang.Diagnosis
	v := d.Verdict
	e.Reason, e.Message, e.Verdict, e.Class, e.Nodes = v.Reason.Key, o.gang.Message(), &v, d.Class, d.Nodes
	e.Tally = e.Tally[:0]
	for _, c := range d.Tally {
		e.Tally = append(e.Tally, Answer{Nodes: c.Nodes, Reason: c.Verdict.Reason.Key, Message: c.Verdict.String()})
	}
}

// turn finds the gang's place among those that were served.
func (e *Explanation) turn(o *outcome) {
	t := Turn{}
	for i := range o.trace.Gangs {
		g := &o.trace.Gangs[i]
		if g.Diagnosis != nil && g.Placed+g.Nominated == 0 && g.Diagnosis.Verdict.Reason.Untried {
			continue
		}
		t.Of++
		if g == o.gang {
			t.Position = t.Of
		} else if t.Position == 0 && g.Placed+g.Nominated > 0 {
			t.Ahead++
		}
	}
	if t.Position > 0 {
		e.Turn = &t
	}
}
