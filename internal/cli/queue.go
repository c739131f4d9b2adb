package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// QueueReport is one queue as it stands. Amounts are of the queue and everything below it, by dimension, in the notation of
// Kubernetes (whole CPUs and GPUs, memory in binary units); "unlimited" where nothing bounds. A dimension that is not named is 0,
// and for limits unlimited. Field names are stable.
type QueueReport struct {
	Name     string `json:"name"`
	Parent   string `json:"parent,omitempty"`
	Depth    int    `json:"depth"`
	Priority int32  `json:"priority"`
	// Problem says why the queue has no place in the tree, "" when it has one. Such a queue has no shares, and its gangs wait.
	Problem        string            `json:"problem,omitempty"`
	Quota          map[string]string `json:"quota"`
	Limit          map[string]string `json:"limit"`
	FairShare      map[string]string `json:"fairShare"`
	Used           map[string]string `json:"used"`
	NonPreemptible map[string]string `json:"nonPreemptible"`
	Requested      map[string]string `json:"requested"`
	// Gangs of the queue itself that are waiting, wholly or in part.
	Waiting int `json:"waiting"`
}

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
			queues := v.queues(now)
			return form.Emit(c.OutOrStdout(), l.output, queues, func() string { return drawQueues(queues, dims) })
		},
	}
	l.flags(list)
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

// amounts names the dimensions of r. Those that are zero are left out, or for limits those that are unlimited.
func (v *view) amounts(r cluster.Resources, none int64) map[string]string {
	out := map[string]string{}
	for i, x := range r {
		if x != none && i != cluster.Slots {
			out[v.snap.Dims.Name(i)] = v.snap.Dims.FormatOne(i, x)
		}
	}
	return out
}

// queues reports every queue as a run without actions has it: the tree, parents before children, then those without a place in it.
func (v *view) queues(now *engine.Trace) []QueueReport {
	waiting := map[string]int{}
	for g := range v.snap.PendingGangs() {
		waiting[g.Queue]++
	}
	out := make([]QueueReport, 0, len(v.snap.QueueOrder))
	for i := range now.Queues {
		q := &now.Queues[i]
		out = append(out, QueueReport{
			Name: q.Name, Parent: q.Parent, Depth: q.Depth, Priority: v.snap.QueueByName(q.Name).Priority,
			Quota: v.amounts(q.Quota, 0), Limit: v.amounts(q.Limit, cluster.Unlimited), FairShare: v.amounts(q.FairShare, 0), Used: v.amounts(q.Allocated, 0),
			NonPreemptible: v.amounts(q.NonPreemptible, 0), Requested: v.amounts(q.Requested, 0), Waiting: waiting[q.Name],
		})
	}
	for _, id := range v.snap.QueueOrder {
		q := v.snap.Queue(id)
		if slices.ContainsFunc(now.Queues, func(t engine.QueueTrace) bool { return t.Name == q.Name }) {
			continue
		}
		problem := fmt.Sprintf("its parents form a cycle (parent %s)", q.Parent)
		for at, steps := q, 0; at != nil && steps <= len(v.snap.QueueOrder); steps++ {
			next := v.snap.QueueByName(at.Parent)
			if next == nil {
				problem = fmt.Sprintf("parent queue %q does not exist", at.Parent)
			}
			at = next
		}
		out = append(out, QueueReport{
			Name: q.Name, Parent: q.Parent, Priority: q.Priority, Problem: problem, Quota: v.amounts(q.Quota, 0),
			Limit: v.amounts(q.Limit, cluster.Unlimited), FairShare: map[string]string{}, Used: v.amounts(q.Allocated, 0),
			NonPreemptible: v.amounts(q.AllocatedNonPreemptible, 0), Requested: v.amounts(q.Requested, 0), Waiting: waiting[q.Name],
		})
	}
	return out
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
