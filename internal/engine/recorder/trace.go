package recorder

import (
	"fmt"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Trace says why, for every gang that waits and every gang something was decided for. It is the only source of events,
// conditions and explanations. Gangs that fail alike share one Diagnosis.
type Trace struct {
	// Gangs are in the order of their first outcome: those that could not be tried at all, then the others as they were
	// taken from the queues. A gang appears once, with its last outcome.
	Gangs []GangTrace `json:"gangs"`
	// Facts are what plugins returned at Close, by plugin name.
	Facts map[string]any `json:"facts,omitempty"`
	// Queues is every queue as the run left it, by name order.
	Queues []QueueTrace `json:"queues"`
	// Stale are the gangs that have pods and too few of them, by key, and those that recovered.
	Stale []StaleGang `json:"stale,omitempty"`
	// Lifted are the pods whose queues let them in: the gate that is their queue's may go. They are named again until it has gone.
	Lifted []Lift `json:"lifted,omitempty"`
	// Risks are the gangs whose pods hold room otherwise than their objects read, by key.
	Risks []Risk `json:"risks,omitempty"`
	// Fragmentation is how much of the GPUs that were free, before the run decided, cannot be used as things are.
	Fragmentation Fragmentation `json:"fragmentation"`
	// WakeAt is when a waiting verdict is worth another run; cluster.Forever for never.
	WakeAt cluster.Instant `json:"wakeAt"`
	// Truncated says that the run was aborted before it had considered everything.
	Truncated bool `json:"truncated,omitempty"`
}

// Lift names a pod whose queue lets it in.
type Lift struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
}

// StaleGang says since when a gang has had fewer pods than its minimum.
type StaleGang struct {
	Gang cluster.Key `json:"gang"`
	UID  string      `json:"uid"`
	// The zero Since says that the gang is whole again and its object still says otherwise.
	Since cluster.Instant `json:"since,omitzero"`
}

// Risk is a gang whose pods hold room otherwise than its object reads.
type Risk struct {
	Gang cluster.Key `json:"gang"`
	UID  string      `json:"uid"` // of its object
	Kind RiskKind    `json:"kind"`
	// Queue is the one that is charged, Pods are how many it is about.
	Queue string `json:"queue"`
	Pods  int    `json:"pods"`
}

// RiskKind says what is otherwise.
type RiskKind string

// The kinds of risks.
const (
	RiskUnknownSubgroup  RiskKind = "UnknownSubgroup"  // pods have room whose set is not in the tree: they go first
	RiskFixedOverQuota   RiskKind = "FixedOverQuota"   // non-preemptible by its own word, and part of what is too much
	RiskChargedElsewhere RiskKind = "ChargedElsewhere" // pods run that were bound for another queue than it names
)

// String prints the risk as one sentence for the gang's owner.
func (r Risk) String() string {
	switch r.Kind {
	case RiskUnknownSubgroup:
		return fmt.Sprintf("%d running pods are of no subgroup of it: they count for no minimum, and are the first to make way", r.Pods)
	case RiskFixedOverQuota:
		return fmt.Sprintf("it calls itself non-preemptible, and queue %s holds more for such work than its quota: its %d pods may have to make way all the same", r.Queue, r.Pods)
	}
	return fmt.Sprintf("%d pods run that were bound for queue %s: they stay charged to it until they end", r.Pods, r.Queue)
}

// GangTrace is the outcome for one gang.
type GangTrace struct {
	Gang      cluster.Key    `json:"gang"`
	UID       string         `json:"uid"`
	ID        cluster.GangID `json:"-"`
	Placed    int            `json:"placed,omitempty"`
	Nominated int            `json:"nominated,omitempty"`
	// Diagnosis is nil when every pending pod was placed.
	Diagnosis *Diagnosis `json:"diagnosis,omitempty"`
	// Tried is why the actions that disturb others did not help either, in their order.
	Tried []Attempt `json:"tried,omitempty"`
}

// Attempt is what one disruptive action had to say to a gang.
type Attempt struct {
	Action  string         `json:"action"`
	Verdict policy.Verdict `json:"verdict"`
	// Barred counts the gangs that could not be touched, by the rule that protects them, most frequent first.
	Barred []Barrier `json:"barred,omitempty"`
}

// Barrier is a rule that protects gangs. Where the queues, or the budgets, that protect what is theirs by one rule are more than
// 32, they are one Barrier, whose verdict names none of them and has no amounts.
type Barrier struct {
	Verdict policy.Verdict `json:"verdict"`
	Gangs   int            `json:"gangs"`
	// Named are the first of them, at most eight.
	Named []string `json:"named,omitempty"`
}

// String prints "reclaim: no right to the room of 3 gangs: non-preemptible (ns/a, ns/b, ns/c)".
func (a Attempt) String() string {
	s := a.Action + ": " + a.Verdict.String()
	for _, b := range a.Barred {
		s += fmt.Sprintf("; %d not touched: %s (%s", b.Gangs, b.Verdict, strings.Join(b.Named, ", "))
		if b.Gangs > len(b.Named) {
			s += ", …"
		}
		s += ")"
	}
	return s
}

// Diagnosis is why a gang could not be placed.
type Diagnosis struct {
	// Verdict is the blocking rule with its numbers.
	Verdict policy.Verdict `json:"verdict"`
	// Class describes the pod that could not be placed, Nodes how many nodes there are, and Tally what each said.
	Class string `json:"class,omitempty"`
	// Pods is the class itself, for callers that want to know what its pods ask for; nil when the reason is no pod's.
	Pods  *cluster.Class `json:"-"`
	Nodes int            `json:"nodes,omitempty"`
	Tally policy.Tally   `json:"tally,omitempty"`
}

// Told is a diagnosis that is remembered: what the gang asked for, as a text, and what it was told.
type Told struct {
	Asks      string    `json:"asks"`
	Diagnosis Diagnosis `json:"diagnosis"`
}

// String prints the diagnosis in one line.
func (d *Diagnosis) String() string {
	if d == nil {
		return "ok"
	}
	s := d.Verdict.String()
	if len(d.Tally) > 0 {
		s += "; nodes: " + d.Tally.String()
	}
	return s
}

// Detailed is String with the names of the nodes, as far as they are known.
func (d *Diagnosis) Detailed() string {
	if d == nil || len(d.Tally) == 0 {
		return d.String()
	}
	return d.Verdict.String() + "; nodes: " + d.Tally.Detailed()
}

// Message is the one line that people are told, in conditions, events and explanations: the blocking rule, and, when
// that is room or all is asked for, what the nodes said.
func (d *Diagnosis) Message(all bool) string {
	if d != nil && !all && !d.Verdict.Reason.Room() {
		return d.Verdict.String()
	}
	return d.String()
}

// Message is the one line that people are told of a gang that waits: its diagnosis, and, when that is room, what keeps
// others from making way for it, if that says more.
func (g *GangTrace) Message() string { return g.Diagnosis.Message(false) + g.Hindrance() }

// Hindrance is "; " and why others do not make way for a gang that has no room, "" when there is no more to say than that
// there is none. Of several reasons it is the one that somebody could do something about: to wait, before a share, before a
// protection. It holds no number that changes with every pod that comes and goes elsewhere.
func (g *GangTrace) Hindrance() string {
	if g.Diagnosis == nil || !g.Diagnosis.Verdict.Reason.Room() {
		return ""
	}
	best, text := 0, ""
	for i := range g.Tried {
		a := &g.Tried[i]
		if weight, why := a.telling(); weight > best {
			best, text = weight, "; "+a.Action+": "+why
		}
	}
	return text
}

// telling says how much an attempt tells beyond "no room", 0 for nothing, and what.
func (a *Attempt) telling() (int, string) {
	switch v := a.Verdict; {
	case v.Code == policy.Wait:
		return 3, v.String()
	case v.Reason != nil && v.Reason.Hinders:
		return 2, v.String()
	case v.Reason == policy.ReasonVictimsTooFew && !v.Partial:
		return 1, "all that may be displaced would not make room enough"
	case v.Reason == policy.ReasonNoVictims && len(a.Barred) == 1:
		return 1, "there is nobody it may displace: " + a.Barred[0].Verdict.String()
	}
	return 0, ""
}

// QueueTrace is a queue after the run: what it and everything below it holds and may hold.
type QueueTrace struct {
	Name           string            `json:"name"`
	Parent         string            `json:"parent,omitempty"`
	Depth          int               `json:"depth"`
	Quota          cluster.Resources `json:"quota"`
	Limit          cluster.Resources `json:"limit"`
	FairShare      cluster.Resources `json:"fairShare"`
	Allocated      cluster.Resources `json:"allocated"`
	NonPreemptible cluster.Resources `json:"nonPreemptible"`
	Requested      cluster.Resources `json:"requested"`
	// Taken is what its limit counts, TakenNonPreemptible what its quota for non-preemptible work does: what is allocated, and
	// what pods that are leaving hold until they have gone.
	Taken               cluster.Resources `json:"taken"`
	TakenNonPreemptible cluster.Resources `json:"takenNonPreemptible"`
}

// Fragmentation is how much of the GPUs that are free cannot be used as things are. Amounts are milli-GPU.
type Fragmentation struct {
	// Free is what is free on nodes that take pods, parts of shared devices included.
	Free int64 `json:"free"`
	// Unusable is the part of it that the next pod could not use, on average over the work there is.
	Unusable int64 `json:"unusable"`
	// Kinds is how many kinds of work were looked at.
	Kinds int `json:"kinds"`
}
