package see

import (
	"context"
	"fmt"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// QueueLine is one queue as it stands. Amounts are of the queue and everything below it, by dimension, in the notation of
// Kubernetes (whole CPUs and GPUs, memory in binary units); "unlimited" where nothing bounds. A dimension that is not named is 0,
// and for limits unlimited. Field names are stable.
type QueueLine struct {
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

// QueueList is the queues of a cycle: the tree, parents before children.
type QueueList struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Cycle      Origin      `json:"cycle"`
	Items      []QueueLine `json:"items"`
	// Hidden is how many more there are, which the viewer may not see.
	Hidden int `json:"hidden,omitempty"`
}

// Queues lists the queues of a cycle as they stand. It costs a run of the engine without actions.
func Queues(ctx context.Context, c *Cycle) (_ *QueueList, err error) {
	run, err := c.Look(ctx)
	if err != nil {
		return nil, err
	}
	defer caught("list queues", &err)
	idle := c.Case.Profile
	idle.Actions = nil
	e, err := engine.New(idle, c.Registry)
	if err != nil {
		return nil, err
	}
	now := e.Run(ctx, run.Snapshot(), func(engine.Plan) {}).Trace
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	return &QueueList{APIVersion: APIVersion, Kind: "QueueList", Cycle: c.origin(), Items: QueueLines(run.Snapshot(), &now)}, nil
}

// Of returns those queues of the list that gangs name for which include is true, and what is above these; the others are counted.
func (l *QueueList) Of(c *Cycle, include func(cluster.Key) bool) *QueueList {
	parent, own := map[string]string{}, map[string]bool{}
	for i := range l.Items {
		parent[l.Items[i].Name] = l.Items[i].Parent
	}
	for _, e := range c.Case.Image.Events {
		if g, ok := e.(cluster.GangState); ok && include(g.Key) {
			for q, steps := g.Queue, 0; q != "" && steps <= len(parent); q, steps = parent[q], steps+1 {
				own[q] = true
			}
		}
	}
	out := *l
	out.Items = []QueueLine{}
	for i := range l.Items {
		if q := &l.Items[i]; own[q.Name] {
			out.Items = append(out.Items, *q)
		} else {
			out.Hidden++
		}
	}
	return &out
}

// amounts names the dimensions of r. Those that are zero are left out, or for limits those that are unlimited.
func amounts(dims cluster.Dims, r cluster.Resources, none int64) map[string]string {
	out := map[string]string{}
	for i, x := range r {
		if x != none && i != cluster.Slots {
			out[dims.Name(i)] = dims.FormatOne(i, x)
		}
	}
	return out
}

// QueueLines reports every queue as a run without actions has it: the tree, parents before children, then those without a place in it.
func QueueLines(snap *cluster.Snapshot, now *engine.Trace) []QueueLine {
	waiting := map[string]int{}
	for g := range snap.PendingGangs() {
		waiting[g.Queue]++
	}
	out := make([]QueueLine, 0, len(snap.QueueOrder))
	for i := range now.Queues {
		q := &now.Queues[i]
		out = append(out, QueueLine{
			Name: q.Name, Parent: q.Parent, Depth: q.Depth, Priority: snap.QueueByName(q.Name).Priority,
			Quota: amounts(snap.Dims, q.Quota, 0), Limit: amounts(snap.Dims, q.Limit, cluster.Unlimited), FairShare: amounts(snap.Dims, q.FairShare, 0), Used: amounts(snap.Dims, q.Allocated, 0),
			NonPreemptible: amounts(snap.Dims, q.NonPreemptible, 0), Requested: amounts(snap.Dims, q.Requested, 0), Waiting: waiting[q.Name],
		})
	}
	for _, id := range snap.QueueOrder {
		q := snap.Queue(id)
		if slices.ContainsFunc(now.Queues, func(t engine.QueueTrace) bool { return t.Name == q.Name }) {
			continue
		}
		problem := fmt.Sprintf("its parents form a cycle (parent %s)", q.Parent)
		for at, steps := q, 0; at != nil && steps <= len(snap.QueueOrder); steps++ {
			next := snap.QueueByName(at.Parent)
			if next == nil {
				problem = fmt.Sprintf("parent queue %q does not exist", at.Parent)
			}
			at = next
		}
		out = append(out, QueueLine{
			Name: q.Name, Parent: q.Parent, Priority: q.Priority, Problem: problem, Quota: amounts(snap.Dims, q.Quota, 0),
			Limit: amounts(snap.Dims, q.Limit, cluster.Unlimited), FairShare: map[string]string{}, Used: amounts(snap.Dims, q.Allocated, 0),
			NonPreemptible: amounts(snap.Dims, q.AllocatedNonPreemptible, 0), Requested: amounts(snap.Dims, q.Requested, 0), Waiting: waiting[q.Name],
		})
	}
	return out
}
