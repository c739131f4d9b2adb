package engine

import (
	"github.com/muster-scheduler/muster/internal/cluster"
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
	// WakeAt is when a waiting verdict is worth another run, Unix nanoseconds; cluster.Forever for never.
	WakeAt int64 `json:"wakeAt"`
	// Truncated says that the run was aborted before it had considered everything.
	Truncated bool `json:"truncated,omitempty"`
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
}

// Diagnosis is why a gang could not be placed.
type Diagnosis struct {
	// Verdict is the blocking rule with its numbers.
	Verdict Verdict `json:"verdict"`
	// Class describes the pod that could not be placed, Nodes how many nodes there are, and Tally what each said.
	Class string `json:"class,omitempty"`
	// Pods is the class itself, for callers that want to know what its pods ask for; nil when the reason is no pod's.
	Pods  *cluster.Class `json:"-"`
	Nodes int            `json:"nodes,omitempty"`
	Tally Tally          `json:"tally,omitempty"`
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
	if d != nil && !all && d.Verdict.Reason != ReasonGangNoRoom {
		return d.Verdict.String()
	}
	return d.String()
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
}
