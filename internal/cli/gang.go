package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// GangReport is one gang as it stands. Field names are stable.
type GangReport struct {
	Namespace string        `json:"namespace"`
	Name      string        `json:"name"`
	Queue     string        `json:"queue"`
	Priority  int32         `json:"priority"`
	Phase     explain.Phase `json:"phase"`
	Pods      explain.Pods  `json:"pods"`
	// AgeSeconds is how long ago the gang was created.
	AgeSeconds int64 `json:"ageSeconds"`
	// Reason and Message say why it waits; "" when it does not, or when a run of the scheduler now would place it.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Next says that a run of the scheduler now would place some of its pods.
	Next bool `json:"next,omitempty"`
	// Word and Start are what the role ui says: why it waits in one word, and when it starts, as far as that is forecast.
	Word  explain.Word  `json:"word,omitempty"`
	Start *see.Expected `json:"start,omitempty"`

	rule string // Message without what the nodes say
}

func newGang(d Deps) *cobra.Command {
	c := &cobra.Command{Use: "gang", Short: "Look at gangs", Args: cobra.NoArgs, RunE: app.NeedsCommand}
	l := &looker{deps: d}
	var namespace, queue string
	var all, pending, finished bool
	list := &cobra.Command{
		Use: "list", Short: "List gangs: pods running, pending and needed, and why they wait", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var gangs []GangReport
			said := false
			if l.role.url != "" && !finished { // of those that have ended the role does not tell
				of := ""
				if !all {
					ns, err := l.namespace(namespace)
					if err != nil {
						return err
					}
					namespace, of = ns, ns
				}
				if err := form.Check(l.output); err != nil {
					return err
				}
				gangs, said = l.role.gangs(c, l.client, of)
			}
			if !said {
				v, err := l.look(c.Context())
				var no *Forbidden
				if errors.As(err, &no) && !all && queue == "" {
					return l.listNarrow(c, namespace, pending, no)
				}
				if err != nil {
					return err
				}
				if !all {
					if namespace, err = l.namespace(namespace); err != nil {
						return err
					}
				}
				if queue != "" && v.snap.QueueByName(queue) == nil {
					return fmt.Errorf("queue %q does not exist%s", queue, explain.Near(queue, v.queueNames()))
				}
				gangs = v.gangs()
			}
			gangs = slices.DeleteFunc(gangs, func(g GangReport) bool {
				done := g.Phase == explain.Finished || g.Phase == explain.Empty
				return !all && g.Namespace != namespace || queue != "" && g.Queue != queue || done && !finished ||
					pending && g.Phase != explain.Pending && g.Phase != explain.Partly
			})
			return form.Emit(c.OutOrStdout(), l.output, gangs, func() string {
				if len(gangs) == 0 && !all {
					return fmt.Sprintf("No gangs in namespace %s; -A lists those of all namespaces.\n", namespace)
				}
				return drawGangs(gangs, all)
			})
		},
	}
	l.flags(list)
	l.role.flags(list)
	watched(list)
	fs := list.Flags()
	fs.StringVarP(&namespace, "namespace", "n", "", "namespace; empty: the kubeconfig's")
	fs.BoolVarP(&all, "all-namespaces", "A", false, "gangs of all namespaces")
	fs.StringVar(&queue, "queue", "", "only gangs of this queue")
	fs.BoolVar(&pending, "pending", false, "only gangs with pods that wait")
	fs.BoolVar(&finished, "finished", false, "also gangs whose pods have ended, or that have none")
	c.AddCommand(list)
	return c
}

func (v *view) queueNames() []string {
	out := make([]string, 0, len(v.snap.QueueOrder))
	for _, id := range v.snap.QueueOrder {
		out = append(out, v.snap.Queue(id).Name)
	}
	return out
}

// gangs reports every gang, by namespace and name.
func (v *view) gangs() []GangReport {
	traces := make(map[cluster.Key]*engine.GangTrace, len(v.trace.Gangs))
	for i := range v.trace.Gangs {
		traces[v.trace.Gangs[i].Gang] = &v.trace.Gangs[i]
	}
	var out []GangReport
	v.snap.EachGang(func(g *cluster.Gang) {
		r := GangReport{Namespace: g.Key.Namespace, Name: g.Key.Name, Queue: g.Queue, Priority: g.Priority, AgeSeconds: int64(max(0, v.snap.Now.Sub(g.Created))) / 1e9}
		r.Phase, r.Pods = explain.Count(v.snap, g)
		if t := traces[g.Key]; t != nil {
			r.Next = t.Placed > 0
			if d := t.Diagnosis; d != nil {
				r.Reason, r.Message, r.rule = d.Verdict.Reason.Key, t.Message(), d.Verdict.String()+t.Hindrance()
				if unmet := explain.Unmet(v.snap, d.Pods); unmet != "" { // nobody who makes way could help it
					r.rule = unmet
				}
			}
		}
		out = append(out, r)
	})
	slices.SortFunc(out, func(a, b GangReport) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// drawGangs draws gangs as a table, with a column for the namespace when there may be several.
func drawGangs(gangs []GangReport, namespaces bool) string {
	if len(gangs) == 0 {
		return "No gangs.\n"
	}
	columns := []form.Column{
		{Title: "NAMESPACE"},
		{Title: "NAME"},
		{Title: "QUEUE"},
		{Title: "PRIO", Right: true},
		{Title: "RUN", Right: true},
		{Title: "PEND", Right: true},
		{Title: "MIN", Right: true},
		{Title: "AGE", Right: true},
		{Title: "REASON", Wrap: true},
	}
	foretold := slices.ContainsFunc(gangs, func(g GangReport) bool { return g.Start != nil })
	if foretold {
		columns = slices.Insert(columns, len(columns)-1, form.Column{Title: "STARTS (UTC)"})
	}
	rows := make([][]string, 0, len(gangs))
	for i := range gangs {
		g := &gangs[i]
		why := g.rule
		switch {
		case why != "":
		case g.Next:
			why = "starts with the next run"
		case g.Phase != explain.Running:
			why = string(g.Phase)
		}
		row := []string{
			g.Namespace, g.Name, g.Queue, strconv.Itoa(int(g.Priority)), strconv.Itoa(g.Pods.Running),
			strconv.Itoa(g.Pods.Pending + g.Pods.Gated), strconv.Itoa(g.Pods.Needed), age(g.AgeSeconds), why,
		}
		if foretold {
			starts := ""
			if g.Start != nil {
				starts = g.Start.Band
			}
			row = slices.Insert(row, len(row)-1, starts)
		}
		rows = append(rows, row)
	}
	if !namespaces {
		columns = columns[1:]
		for i := range rows {
			rows[i] = rows[i][1:]
		}
	}
	return form.Table(columns, rows)
}

// age prints seconds as people say them: 45s, 12m, 5h, 3d.
func age(seconds int64) string {
	d := time.Duration(seconds) * time.Second
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", seconds)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
