package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/see"
)

// QueueReport is one queue as it stands, as package see has it.
type QueueReport = see.QueueLine

func newQueue(d Deps) *cobra.Command {
	c := &cobra.Command{Use: "queue", Short: "Look at queues", Args: cobra.NoArgs, RunE: app.NeedsCommand}
	l := &looker{deps: d}
	var dim string
	list := &cobra.Command{
		Use: "list", Short: "List the queue tree with quota, limit, fair share and use", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := l.look(c.Context())
			var no *Forbidden
			if errors.As(err, &no) {
				return l.queuesNarrow(c, no)
			}
			if err != nil {
				return err
			}
			dims, err := v.pick(dim)
			if err != nil {
				return err
			}
			now, err := v.now(c.Context())
			if err != nil {
				return err
			}
			queues := see.QueueLines(v.snap, now)
			return form.Emit(c.OutOrStdout(), l.output, queues, func() string { return drawQueues(queues, dims) })
		},
	}
	l.flags(list)
	watched(list)
	list.Flags().StringVar(&dim, "resource", "", "resource to show in the table: gpu, cpu, memory, or another one's name; empty: gpu, or cpu where there are none")
	c.AddCommand(list)
	return c
}

// pick resolves --resource.
func (v *view) pick(name string) (string, error) {
	if name == "" {
		for _, id := range v.snap.NodeOrder {
			if v.snap.Node(id).Allocatable.At(cluster.GPU) > 0 {
				return "gpu", nil
			}
		}
		return "cpu", nil
	}
	if _, ok := v.snap.Dims.Index(name); !ok {
		var known []string
		for i := range v.snap.Dims.Len() {
			known = append(known, v.snap.Dims.Name(i))
		}
		return "", fmt.Errorf("--resource is %q; this cluster has %s", name, strings.Join(known, ", "))
	}
	return name, nil
}

// drawQueues draws one dimension of the queues as a tree.
func drawQueues(queues []QueueReport, dim string) string {
	if len(queues) == 0 {
		return "There are no queues: kubectl apply some (kind Queue, scheduling.run.ai/v2), or every gang waits for its own.\n"
	}
	columns := []form.Column{
		{Title: "QUEUE (" + dim + ")"},
		{Title: "QUOTA", Right: true},
		{Title: "LIMIT", Right: true},
		{Title: "FAIR SHARE", Right: true},
		{Title: "USED", Right: true},
		{Title: "REQUESTED", Right: true},
		{Title: "WAITING", Right: true},
		{Title: "", Wrap: true},
	}
	rows := make([][]string, 0, len(queues))
	or := func(m map[string]string, none string) string {
		if x, ok := m[dim]; ok && x != "unlimited" {
			return x
		} else if ok {
			return "-"
		}
		return none
	}
	for i := range queues {
		q := &queues[i]
		fair, waiting := or(q.FairShare, "0"), ""
		if q.Problem != "" {
			fair = "-"
		}
		if q.Waiting > 0 {
			waiting = fmt.Sprint(q.Waiting)
		}
		rows = append(rows, []string{
			strings.Repeat("  ", q.Depth) + q.Name, or(q.Quota, "0"), or(q.Limit, "-"), fair, or(q.Used, "0"),
			or(q.Requested, "0"), waiting, q.Problem,
		})
	}
	return form.Table(columns, rows)
}
