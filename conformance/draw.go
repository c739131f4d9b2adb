package conformance

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/engine"
)

// Draw pictures the case's cluster: nodes with a letter per GPU held, queues, and gangs with the letters.
func (c *Case) Draw() string {
	var b strings.Builder
	for i := range c.Given.Nodes {
		n := &c.Given.Nodes[i]
		bar := ""
		for k := range c.Given.Gangs {
			g := &c.Given.Gangs[k]
			for j := range g.Pods {
				if p := &g.Pods[j]; p.Node == n.Name {
					bar += strings.Repeat(letter(k), int((g.gpus(p)+999)/1000))
				}
			}
		}
		if free := int(n.GPUs) - len(bar); free > 0 {
			bar += strings.Repeat(".", free)
		}
		fmt.Fprintf(&b, "node %s  [%s] cpu=%dm\n", n.Name, bar, n.CPUMilli)
	}
	for i := range c.Given.Queues {
		q := &c.Given.Queues[i]
		name := q.Name
		if q.Parent != "" {
			name = q.Parent + "/" + name
		}
		fmt.Fprintf(&b, "queue %s  gpu quota=%s limit=%s weight=%g", name, q.GPU.Quota, q.GPU.Limit, q.GPU.Weight)
		if !q.CPU.Quota.Unlimited || !q.CPU.Limit.Unlimited {
			fmt.Fprintf(&b, "  cpu quota=%s limit=%s", q.CPU.Quota, q.CPU.Limit)
		}
		if q.Priority != nil {
			fmt.Fprintf(&b, "  priority=%d", *q.Priority)
		}
		b.WriteString("\n")
	}
	for k := range c.Given.Gangs {
		g := &c.Given.Gangs[k]
		fmt.Fprintf(&b, "%s gang %s  queue=%s priority=%d age=%ds", letter(k), g.Name, g.Queue, g.Priority, g.AgeSeconds)
		if g.Preemptibility != "" {
			b.WriteString(" " + g.Preemptibility)
		}
		b.WriteString("  tree=" + g.Tree.text() + "\n")
		for j := range g.Pods {
			p := &g.Pods[j]
			fmt.Fprintf(&b, "    %s %s", p.Name, p.Status)
			if p.Node != "" {
				b.WriteString(" on " + p.Node)
			}
			if p.Subgroup != "" {
				b.WriteString(" set=" + p.Subgroup)
			}
			fmt.Fprintf(&b, " gpu=%g", float64(g.gpus(p))/1000)
			if g.PerPod != nil {
				fmt.Fprintf(&b, " cpu=%dm", g.PerPod.CPUMilli)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// String prints the number or the word.
func (a Amount) String() string {
	if a.Unlimited {
		return "unlimited"
	}
	return fmt.Sprint(a.Value)
}

func (t *Tree) text() string {
	if len(t.Members) == 0 {
		least := int32(0)
		if t.MinMember != nil {
			least = *t.MinMember
		}
		return fmt.Sprintf("%s≥%d", t.Name, least)
	}
	parts := make([]string, len(t.Members))
	for i := range t.Members {
		parts[i] = t.Members[i].text()
	}
	s := t.Name + "(" + strings.Join(parts, " ") + ")"
	if t.MinSubGroup != nil {
		s += fmt.Sprintf("≥%d", *t.MinSubGroup)
	}
	return s
}

func letter(i int) string { return string(rune('A' + i%26)) }

// decided lists whom the run evicted, and what the last cycle did for each gang that waits or got something.
func (w *caseRun) decided() []string {
	out := slices.Clone(w.told)
	for i := range w.trace.Gangs {
		t := &w.trace.Gangs[i]
		out = append(out, fmt.Sprintf("%s: placed %d, nominated %d, %s", t.Gang, t.Placed, t.Nominated, t.Diagnosis))
		for _, a := range t.Tried {
			out = append(out, "  "+a.String())
		}
	}
	return out
}

// told describes an eviction in one line.
func told(round int, b *engine.Bundle, in *engine.Intent) string {
	line := fmt.Sprintf("round %d: %s evicted from %s", round, in.Pod, in.Node)
	if in.To != "" {
		line += ", moved to " + in.To
	}
	if b.Eviction != nil {
		line += fmt.Sprintf(", %s for %s", b.Eviction.Cause, b.Gang)
	}
	return line
}

// Print writes the report for people; its last lines are the counts.
func (r *Report) Print(out io.Writer) error {
	var b strings.Builder
	for i := range r.Failures {
		f := &r.Failures[i]
		fmt.Fprintf(&b, "FAIL %s\n", f.ID)
		if f.Error != "" {
			fmt.Fprintf(&b, "  cannot be run: %s\n\n", f.Error)
			continue
		}
		b.WriteString(indent("given", f.Given))
		var want, got strings.Builder
		for _, m := range f.Mismatches {
			fmt.Fprintf(&want, "%s  %s\n", m.What, m.Expected)
			fmt.Fprintf(&got, "%s  %s\n", m.What, m.Got)
		}
		b.WriteString(indent("expected", want.String()) + indent("got", got.String()))
		if len(f.Decided) > 0 {
			b.WriteString(indent("decided", strings.Join(f.Decided, "\n")+"\n"))
		}
		b.WriteString("\n")
	}
	for i := range r.Accepted {
		fmt.Fprintf(&b, "LEDGER %s: %s\n", r.Accepted[i].ID, r.Accepted[i].Why)
	}
	for _, e := range r.LedgerErrors {
		fmt.Fprintf(&b, "LEDGER ERROR %s\n", e)
	}
	fmt.Fprintf(&b, "passed %d of %d\nledgered %d\n", r.Passed, r.Total, r.Ledgered)
	_, err := io.WriteString(out, b.String())
	return err
}

func indent(title, text string) string {
	return "  " + title + "\n    " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n    ") + "\n"
}
