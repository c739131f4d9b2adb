package cli

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/ui"
)

// errNoRole says that a question takes the role ui.
var errNoRole = errors.New("the journal is kept by the role ui: say its address with --ui or $" + EnvUI)

// decisions prints what the role's journal has.
func (r *remote) decisions(c *cobra.Command, o app.ClientOptions, namespace, gang, since string, last int, output string) error {
	if r.url == "" {
		return errNoRole
	}
	if _, err := ui.Past(since); err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	q := url.Values{"since": {since}, "last": {strconv.Itoa(last)}}
	if namespace != "" {
		q.Set("namespace", namespace)
	}
	if gang != "" {
		q.Set("gang", gang)
	}
	l := &ui.DecisionList{}
	if err := r.ask(c.Context(), o, "/decisions?"+q.Encode(), l); err != nil {
		return err
	}
	return form.Emit(c.OutOrStdout(), output, l, func() string { return tellJournal(l) })
}

// tellJournal tells entries, the latest first.
func tellJournal(l *ui.DecisionList) string {
	var b strings.Builder
	fmt.Fprintf(&b, "since %s, times are UTC, the latest first\n", l.Since.UTC().Format(time.DateTime))
	for _, e := range l.Items {
		head := e.At.UTC().Format(time.DateTime)
		if e.Kind == journal.Cycle {
			head += fmt.Sprintf("  cycle %d", e.Number)
		}
		if e.Shard != "" {
			head += "  shard " + e.Shard
		}
		b.WriteString(head + "\n")
		if m := e.Missing; m != nil {
			fmt.Fprintf(&b, "  missing: %s", m.Why)
			if m.Count > 0 {
				fmt.Fprintf(&b, ", %d", m.Count)
			}
			if !m.Since.IsZero() {
				fmt.Fprintf(&b, ", since %s", m.Since.UTC().Format(time.DateTime))
			}
			b.WriteByte('\n')
		}
		for i := range e.Decisions {
			d := &e.Decisions[i]
			fmt.Fprintf(&b, "  %s for %s%s: %d bound, %d promised, %d evicted%s\n", d.Action, d.Gang, inQueue(d.Queue), d.Binds, d.Promises, d.Evicts, map[bool]string{true: "; it starts"}[d.Starts])
			if d.Cause != nil {
				for _, v := range d.Cause.Victims {
					fmt.Fprintf(&b, "    %s: %s%s gives %s, %s gpu%s\n", d.Cause.Cause, v.Gang, inQueue(v.Queue), podsOf(v.Pods), gpus(v.GPU), map[bool]string{true: ": " + v.Rule}[v.Rule != ""])
				}
			}
		}
		for _, w := range e.Reasons {
			if w.Reason == "" {
				fmt.Fprintf(&b, "  %s waits no more\n", w.Gang)
			} else {
				fmt.Fprintf(&b, "  %s waits: %s\n", w.Gang, w.Text)
			}
		}
		for _, s := range e.Starts {
			fmt.Fprintf(&b, "  %s has started; %d of %d forecasts held\n", s.Gang, s.Held, s.Of)
		}
	}
	if len(l.Items) == 0 {
		b.WriteString("nothing of that time is kept\n")
	}
	if l.More {
		b.WriteString("there are older ones: see --last\n")
	}
	return b.String()
}

func inQueue(q string) string {
	if q == "" {
		return ""
	}
	return " (queue " + q + ")"
}

// replay prints a cycle of the role's journal, decided on again there.
func (r *remote) replay(c *cobra.Command, o app.ClientOptions, cycle, namespace, output string) error {
	if r.url == "" {
		return errNoRole
	}
	if _, err := strconv.ParseUint(cycle, 10, 64); err != nil {
		return fmt.Errorf("--cycle %q: it must be a number, which `muster decisions --since` tells", cycle)
	}
	path := "/cycles/" + cycle
	if namespace != "" {
		path += "?namespace=" + url.QueryEscape(namespace)
	}
	out := &ui.Replay{}
	if err := r.ask(c.Context(), o, path, out); err != nil {
		return err
	}
	if err := form.Emit(c.OutOrStdout(), output, out, func() string { return tellReplay(out) }); err != nil {
		return err
	}
	if !out.Same {
		return fmt.Errorf("cycle %d: %w (it is of version %s)", out.Number, errOther, out.Version)
	}
	return nil
}

// tellReplay tells a cycle, step by step.
func tellReplay(r *ui.Replay) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cycle %d of %s\n", r.Number, r.Cycle.At.UTC().Format(time.RFC3339Nano))
	for i := range r.Steps {
		s := &r.Steps[i]
		fmt.Fprintf(&b, "%s for %s%s: %d bound, %d promised, %d evicted\n", s.Action, s.Gang, inQueue(s.Queue), s.Binds, s.Promises, s.Evicts)
		for _, p := range s.Pods {
			fmt.Fprintf(&b, "  %-8s %s/%s  %s%s\n", p.Verb, p.Namespace, p.Pod, p.Node, map[bool]string{true: " -> " + p.To}[p.To != ""])
		}
		if s.Cause != nil {
			for _, v := range s.Cause.Victims {
				fmt.Fprintf(&b, "  %s%s gives %s\n", v.Gang, inQueue(v.Queue), podsOf(v.Pods))
			}
		}
	}
	if len(r.Steps) == 0 {
		b.WriteString("nothing was to be done\n")
	}
	for _, w := range r.Waiting {
		fmt.Fprintf(&b, "%s waits: %s\n", w.Gang, w.Text)
	}
	if r.Others > 0 {
		fmt.Fprintf(&b, "%d more gangs waited\n", r.Others)
	}
	if r.Same {
		b.WriteString("the decision is the one on record, byte for byte\n")
	} else {
		b.WriteString("the decision is NOT the one on record\n")
	}
	return b.String()
}
