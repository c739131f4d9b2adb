package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Explanation is why a gang waits and what would change it. Field names are stable: they are what -o json and -o yaml print.
type Explanation struct {
	Namespace string `json:"namespace"`
	Gang      string `json:"gang"`
	Queue     string `json:"queue"`
	Priority  int32  `json:"priority"`
	Phase     Phase  `json:"phase"`
	Pods      Pods   `json:"pods"`
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
	// Startable says that nothing but its turn, or the next run of the scheduler, keeps the gang from starting.
	Startable bool `json:"startable,omitempty"`
	// Next is how many of its pods a run of the scheduler now gives room to; Reason and Message are then about the rest.
	Next int `json:"next,omitempty"`
	// Changes would let the gang start, all of them together; each part of each is needed. Empty when none are known.
	Changes []*Change `json:"changes,omitempty"`
	// Or are other changes that would do just as well: for work that may not be preempted and is over quota, that it may be;
	// or what makes others give way, by time, priority or quota.
	Or []*Change `json:"or,omitempty"`
	// Unknown says that the gang is blocked and no change is known that would let it start.
	Unknown bool `json:"unknown,omitempty"`
	// Beyond is then the rule that nothing known lifts, when it is not the one above but one behind it.
	Beyond string `json:"beyond,omitempty"`
	// Text is all of this for people, in lines of at most 100 columns where names allow it.
	Text string `json:"-"`
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

// thorough is what the searches of one action may cost while the gang is looked at among others, in steps: some forty runs of the
// scheduler, after which a gang is told that it is not its turn yet. Alone, it is the first to be asked about, and the first
// question of a run is answered whatever it costs.
const thorough = 1_000_000

// Gang explains one gang of a snapshot. newEngine builds the engine that decides; it is called twice, because an engine
// keeps caches for one store. The error is newEngine's, or says that the gang does not exist, or that ctx ended.
//
// It costs two runs over the snapshot, a copy of it, and then a run with this gang alone for each thing that is tried:
// some dozens as a rule.
func Gang(ctx context.Context, snap *cluster.Snapshot, newEngine func() (*engine.Engine, error), key cluster.Key) (*Explanation, error) {
	g := snap.GangByKey(key)
	if g == nil {
		return nil, fmt.Errorf("there is no gang %s", key)
	}
	all, err := newEngine()
	if err != nil {
		return nil, err
	}
	alone, err := newEngine()
	if err != nil {
		return nil, err
	}
	all.SearchSteps = thorough
	e := &Explanation{Namespace: key.Namespace, Gang: key.Name, Queue: g.Queue, Priority: g.Priority}
	e.Phase, e.Pods = Count(snap, g)
	if e.Pods.Pending+e.Pods.Gated > 0 {
		now := run(ctx, all, snap, key)
		e.say(&now)
		e.turn(&now)
		if now.placed() {
			e.Next = now.gang.Placed
			e.Displaces = displaced(&now, key)
		} else {
			e.Tried = tried(&now)
		}
		w := newWorld(ctx, snap, alone, key)
		by := w.try(nil)
		if by.placed() {
			e.Startable = true
		} else {
			changes, last, ok := w.search(nil)
			e.Unknown = !ok
			e.Changes = changes
			if d := last.diagnosis(); !ok && d != nil && d.Verdict != by.verdict() {
				e.Beyond = d.Message(true)
			}
			if ok && slices.ContainsFunc(changes, func(c *Change) bool { return c.Kind == RaiseQuota }) {
				if or, _, ok := w.search(w.one(Change{Kind: MakePreemptible})); ok && len(or) < len(changes) {
					e.Or = or
				}
			}
			if len(e.Or) == 0 && by.gang != nil {
				e.Or = w.instead(&by)
			}
			if !ok && len(e.Or) > 0 {
				e.Changes, e.Or, e.Unknown, e.Beyond = e.Or, nil, false, ""
			}
			for _, c := range slices.Concat(e.Changes, e.Or) {
				c.describe(by.snap.Dims)
			}
			if e.Reason == "" || now.placed() { // with others around it would start, alone not: say what it says alone
				e.say(&by)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("explain gang %s: %w", key, err)
	}
	e.Text = e.text()
	return e, nil
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

// text puts the explanation into lines.
func (e *Explanation) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { wrap(&b, fmt.Sprintf(format, args...)) }
	queue := e.Queue
	if queue == "" {
		queue = "none"
	}
	ended := ""
	if e.Pods.Finished > 0 && e.Phase != Finished {
		ended = fmt.Sprintf(", %d ended well", e.Pods.Finished)
	}
	line("gang %s/%s: %s; room for %d of %d pods%s, %d needed to start; queue %s, priority %d", e.Namespace, e.Gang, strings.ToLower(string(e.Phase)),
		e.Pods.Running, e.Pods.Running+e.Pods.Pending+e.Pods.Gated, ended, e.Pods.Needed, queue, e.Priority)
	switch {
	case e.Pods.Pending+e.Pods.Gated == 0:
		line("nothing waits: %s", map[Phase]string{Running: "every pod has room", Finished: "its pods have ended", Empty: "no pod of ours belongs to it"}[e.Phase])
		return b.String()
	case e.Next > 0:
		line("why: nothing blocks it; the next run of the scheduler gives room to %s. If it stays like this, see whether the scheduler runs", some(e.Next, "pod", "pods"))
		if e.Message != "" {
			line("the rest: %s [%s]", e.Verdict, e.Reason)
		}
	case e.Message == "":
		line("why: nothing blocks it")
	default:
		line("why: %s [%s]", e.Verdict, e.Reason) // the tally below is the rest of Message
	}
	if e.Nodes > 0 {
		line("a pod of %s finds, on %s:", e.Class, some(e.Nodes, "node", "nodes"))
		rest := e.Nodes
		for _, a := range e.Tally {
			line("%6d  %s", a.Nodes, a.Message)
			rest -= a.Nodes
		}
		if rest > 0 {
			line("%6d  room for some of the pods", rest)
		}
	}
	if len(e.Tried) > 0 && !e.Startable {
		line("others do not make way for it:")
		for i := range e.Tried {
			t := &e.Tried[i]
			line("        %s: %s [%s]", t.Action, t.Message, t.Reason)
			for _, b := range t.Barred {
				line("%6d  not touched: %s", b.Gangs, b.Message)
			}
		}
	}
	if t := e.Turn; t != nil {
		line("turn: %d of %d; of those ahead, %s room", t.Position, t.Of, some(t.Ahead, "gets", "get"))
	}
	switch {
	case e.Displaces != nil:
		line("what would change it: nothing to do; the next run of the scheduler makes others give way: %s. It starts when they have gone", e.Displaces)
	case e.Reason == policy.ReasonReleasing.Key:
		line("what would change it: nothing to do; it starts when the pods that are being deleted have gone")
	case e.Startable && e.Message != "" && e.Next == 0:
		line("what would change it: only its turn. By itself it could start; gangs served before it take what it needs")
	case e.Startable:
	case e.Beyond != "":
		line("what would change it: no change is known that would let it start. Were that lifted, this would remain: %s", e.Beyond)
	case e.Unknown:
		line("what would change it: no change is known that would let it start")
	case len(e.Changes) == 1:
		line("what would change it:")
	default:
		line("what would change it, all of this together:")
	}
	for _, c := range e.Changes {
		line("  - %s", c.Text)
	}
	if len(e.Or) > 0 {
		line("or instead%s:", map[bool]string{true: ", all of this together"}[len(e.Or) > 1])
	}
	for _, c := range e.Or {
		line("  - %s", c.Text)
	}
	return b.String()
}

// wrap writes a line, broken at words after 100 columns.
func wrap(b *strings.Builder, s string) {
	const width = 100
	indent := len(s) - len(strings.TrimLeft(s, " -0123456789"))
	for len(s) > width {
		cut := strings.LastIndex(s[:width+1], " ")
		if cut <= indent+2 {
			break
		}
		b.WriteString(s[:cut])
		b.WriteString("\n")
		s = strings.Repeat(" ", indent+2) + s[cut+1:]
	}
	b.WriteString(s)
	b.WriteString("\n")
}
