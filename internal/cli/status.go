package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// StatusReport is a cluster at a glance. Field names are stable.
type StatusReport struct {
	Nodes  NodeReport    `json:"nodes"`
	GPUs   Capacity      `json:"gpus"`
	Free   FreeReport    `json:"free"`
	Queues []QueueReport `json:"queues"`
	Gangs  []PhaseReport `json:"gangs"`
}

// NodeReport counts nodes. Problems are those that take no pods, by what is wrong with them.
type NodeReport struct {
	Total    int            `json:"total"`
	Ready    int            `json:"ready"`
	Problems map[string]int `json:"problems,omitempty"`
}

// Capacity is an amount of whole devices with up to three decimals; slices of GPUs count as in queues. Allocatable counts the
// nodes that take pods.
type Capacity struct {
	Used        string `json:"used"`
	Allocatable string `json:"allocatable"`
}

// FreeReport is what is free of the GPUs of nodes that take pods, parts of shared ones included, and how much of that the next
// pod could not use, on average over the kinds of work in the cluster. Amounts are GPUs with up to three decimals.
type FreeReport struct {
	GPUs     string `json:"gpus"`
	Unusable string `json:"unusable"`
	// Percent is the unusable part of what is free, rounded; 0 when nothing is free.
	Percent int `json:"percent"`
}

// PhaseReport counts the gangs of one phase and reason, and their pods.
type PhaseReport struct {
	Phase  explain.Phase `json:"phase"`
	Reason string        `json:"reason,omitempty"`
	Gangs  int           `json:"gangs"`
	// Running and Waiting count pods.
	Running int `json:"running"`
	Waiting int `json:"waiting"`
	// Example names one of the gangs, for explain.
	Example string `json:"example,omitempty"`
}

func newStatus(d Deps) *cobra.Command {
	l := &looker{deps: d}
	c := &cobra.Command{
		Use: "status", Short: "Show nodes, GPUs, queues, and gangs by phase and reason", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := l.look(c.Context())
			var no *Forbidden
			if errors.As(err, &no) {
				return l.queuesNarrow(c, no)
			}
			if err != nil {
				return err
			}
			dim, err := v.pick("")
			if err != nil {
				return err
			}
			now, err := v.now(c.Context())
			if err != nil {
				return err
			}
			s := v.status(now)
			return form.Emit(c.OutOrStdout(), l.output, s, func() string { return drawStatus(s, dim) })
		},
	}
	l.flags(c)
	return c
}

func (v *view) status(now *engine.Trace) StatusReport {
	s := StatusReport{Queues: see.QueueLines(v.snap, now)}
	var used, allocatable int64
	for _, id := range v.snap.NodeOrder {
		n := v.snap.Node(id)
		s.Nodes.Total++
		used += n.Used.At(cluster.GPU) + v.snap.Dims.SlicedGPUs(n.Used)
		if n.Problem == "" {
			s.Nodes.Ready++
			allocatable += n.Allocatable.At(cluster.GPU) + v.snap.Dims.SlicedGPUs(n.Allocatable)
			continue
		}
		if s.Nodes.Problems == nil {
			s.Nodes.Problems = map[string]int{}
		}
		s.Nodes.Problems[n.Problem]++
	}
	s.GPUs = Capacity{Used: v.snap.Dims.FormatOne(cluster.GPU, used), Allocatable: v.snap.Dims.FormatOne(cluster.GPU, allocatable)}
	f := now.Fragmentation
	s.Free = FreeReport{GPUs: v.snap.Dims.FormatOne(cluster.GPU, f.Free), Unusable: v.snap.Dims.FormatOne(cluster.GPU, f.Unusable)}
	if f.Free > 0 {
		s.Free.Percent = int((f.Unusable*100 + f.Free/2) / f.Free)
	}
	for _, g := range v.gangs() {
		i := slices.IndexFunc(s.Gangs, func(p PhaseReport) bool { return p.Phase == g.Phase && p.Reason == g.Reason })
		if i < 0 {
			i = len(s.Gangs)
			s.Gangs = append(s.Gangs, PhaseReport{Phase: g.Phase, Reason: g.Reason, Example: g.Namespace + "/" + g.Name})
		}
		s.Gangs[i].Gangs++
		s.Gangs[i].Running += g.Pods.Running
		s.Gangs[i].Waiting += g.Pods.Pending + g.Pods.Gated
	}
	rank := []explain.Phase{explain.Running, explain.Partly, explain.Pending, explain.Finished, explain.Empty}
	slices.SortFunc(s.Gangs, func(a, b PhaseReport) int {
		return cmp.Or(cmp.Compare(slices.Index(rank, a.Phase), slices.Index(rank, b.Phase)), cmp.Compare(b.Gangs, a.Gangs), cmp.Compare(a.Reason, b.Reason))
	})
	return s
}

func drawStatus(s StatusReport, dim string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "nodes  %d of %d take pods", s.Nodes.Ready, s.Nodes.Total)
	problems := make([]string, 0, len(s.Nodes.Problems))
	for p, n := range s.Nodes.Problems { // order: sorted below
		problems = append(problems, fmt.Sprintf("%d %s", n, p))
	}
	slices.Sort(problems)
	if len(problems) > 0 {
		fmt.Fprintf(&b, " (%s)", strings.Join(problems, ", "))
	}
	fmt.Fprintf(&b, "\nGPUs   %s of %s used; %s free, of which %s (%d%%) do not suit the work there is\n\n", s.GPUs.Used, s.GPUs.Allocatable, s.Free.GPUs, s.Free.Unusable, s.Free.Percent)
	b.WriteString(drawQueues(s.Queues, dim))
	b.WriteString("\n")
	if len(s.Gangs) == 0 {
		b.WriteString("no gangs\n")
		return b.String()
	}
	rows := make([][]string, 0, len(s.Gangs))
	for _, g := range s.Gangs {
		example := ""
		if g.Phase == explain.Pending || g.Phase == explain.Partly {
			example = g.Example
		}
		rows = append(rows, []string{strings.ToLower(string(g.Phase)), g.Reason, strconv.Itoa(g.Gangs), strconv.Itoa(g.Running), strconv.Itoa(g.Waiting), example})
	}
	b.WriteString(form.Table([]form.Column{
		{Title: "GANGS"},
		{Title: "REASON", Keep: true},
		{Title: "NUMBER", Right: true},
		{Title: "PODS RUN", Right: true},
		{Title: "PODS WAIT", Right: true},
		{Title: "SUCH AS"},
	}, rows))
	return b.String()
}
