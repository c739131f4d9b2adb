package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Text is the explanation for people, in lines of at most so many columns where names allow it.
func (e *Explanation) Text(width int) string {
	var b strings.Builder
	line := func(format string, args ...any) { wrap(&b, width, fmt.Sprintf(format, args...)) }
	queue := e.Queue
	if queue == "" {
		queue = "none"
	}
	ended := ""
	if e.Pods.Finished > 0 && e.Phase != Finished {
		ended = fmt.Sprintf(", %d ended well", e.Pods.Finished)
	}
	who := fmt.Sprintf("gang %s/%s", e.Namespace, e.Gang)
	if e.Workload != "" {
		who = fmt.Sprintf("%s (%s)", e.Workload, who)
	}
	word := strings.ToLower(string(e.Phase))
	if e.Word != "" {
		word = string(e.Word)
	}
	line("%s: %s; room for %d of %d pods%s, %d needed to start; queue %s, priority %d", who, word,
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
	case e.Verdict == nil: // somebody else says it
		line("why: %s [%s]", e.Message, e.Reason)
	default:
		line("why: %s [%s]", e.Verdict, e.Reason) // the tally below is the rest of Message
	}
	if e.Selector != "" {
		line("it %s", e.Selector)
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
	if len(e.Tried) > 0 && e.Word != InLine && e.Word != Starting {
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
	case e.Word == InLine:
		line("what would change it: only its turn. By itself it could start; gangs served before it take what it needs")
	case e.Word == Starting:
	case e.Beyond != "":
		line("what would change it: no change is known that would let it start. Were that lifted, this would remain: %s", e.Beyond)
	case e.Unknown:
		line("what would change it: no change is known that would let it start")
	}
	for i := range e.Remedies {
		r := &e.Remedies[i]
		start := "what would change it"
		switch {
		case !r.InLine && e.proven:
			start = "were it next, but not at its turn"
		case i > 0 || e.Word == InLine:
			start = "or instead"
		}
		mixed := slices.ContainsFunc(r.Changes, func(c *Change) bool { return c.By() != r.By })
		if len(r.Changes) > 1 {
			start += ", all of this together"
		}
		if !mixed {
			start += fmt.Sprintf(" (%s)", r.By)
		}
		line("%s:", start)
		for _, c := range r.Changes {
			if mixed {
				line("  - %s (%s)", c.Text, c.By())
			} else {
				line("  - %s", c.Text)
			}
		}
		if r.Cost != nil {
			line("    others would have to go for it: %s", r.Cost)
		}
	}
	return b.String()
}

// Reread is an explanation that came as JSON, made fit for Text: reasons that were read have lost their words, and Message has them. proven says that its remedies were tried with
// everybody waiting.
func (e *Explanation) Reread(proven bool) *Explanation {
	out := *e
	out.Verdict, out.proven = nil, proven
	return &out
}

// wrap writes a line, broken at words after width columns.
func wrap(b *strings.Builder, width int, s string) {
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
