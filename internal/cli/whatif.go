package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/see"
)

// Losers is the error of a what-if that was asked to fail when gangs lose room: a pipeline tells it from trouble by the exit status.
type Losers struct{ Gangs int }

func (l *Losers) Error() string { return fmt.Sprintf("%d gangs would lose room", l.Gangs) }

// ExitCode is the exit status of the program.
func (l *Losers) ExitCode() int { return 2 }

func newWhatIf(d Deps) *cobra.Command {
	l := &looker{deps: d}
	var t see.Thought
	nodes := ""
	var cycles int
	var fail bool
	c := &cobra.Command{
		Use: "what-if", Short: "Say what the scheduler would do if something were changed: who starts, who loses room, shares before and after", Args: cobra.NoArgs,
		Long: "Say what the scheduler would do if something were changed, compared with what it does without: who gets room, who loses it, how many\n" +
			"pods are evicted, and what queues hold and are owed. It is tried in a copy of the cluster, with the scheduler's own code; nothing is\n" +
			"written. One decision is looked at, or with --cycles more, until the cluster is at rest. Nothing ends by itself meanwhile.\n\n" +
			"Exit status: 0 an answer was printed, 1 there is none (the message says why), 2 with --fail-on-loss: gangs would lose room.",
		Example: "  muster what-if --quota vision:gpu=32 --cycles 50\n  muster what-if --add-nodes 4 --like node-7\n  muster what-if --cordon node-7 --fail-on-loss",
		RunE: func(c *cobra.Command, _ []string) error {
			v, err := l.look(c.Context())
			if err != nil {
				return err
			}
			if nodes != "" {
				if t.AddNodes, err = strconv.Atoi(nodes); err != nil || t.AddNodes == 0 {
					return fmt.Errorf("--add-nodes %q: it must be a number", nodes)
				}
			}
			changes, err := t.Changes(v.snap)
			if err != nil {
				return err
			}
			o, err := see.WhatIf(c.Context(), v.cycle, changes, see.Horizon{Cycles: cycles})
			if err != nil {
				return err
			}
			o.Cycle.Aged(time.Now())
			if err := form.Emit(c.OutOrStdout(), l.output, o, o.Text); err != nil {
				return err
			}
			if fail && len(o.Loses) > 0 {
				return &Losers{Gangs: len(o.Loses)}
			}
			return nil
		},
	}
	l.flags(c)
	fs := c.Flags()
	fs.StringArrayVar(&t.Quota, "quota", nil, "`quota` to set, as QUEUE:RESOURCE=AMOUNT, such as vision:gpu=32 or vision:gpu=unlimited; may be repeated")
	fs.StringArrayVar(&t.Limit, "limit", nil, "`limit` to set, as QUEUE:RESOURCE=AMOUNT; may be repeated")
	fs.StringArrayVar(&t.Weight, "weight", nil, "`weight` over quota to set, as QUEUE:RESOURCE=NUMBER; may be repeated")
	fs.StringArrayVar(&t.Priority, "priority", nil, "`priority` of a queue to set, as QUEUE=NUMBER; may be repeated")
	fs.StringVar(&nodes, "add-nodes", "", "how many nodes are added that are like --like")
	fs.StringVar(&t.Like, "like", "", "node that --add-nodes copies")
	fs.StringSliceVar(&t.Cordon, "cordon", nil, "nodes that take no more pods")
	fs.StringSliceVar(&t.Delete, "delete", nil, "gangs that are deleted, each as NAMESPACE/NAME")
	fs.IntVar(&cycles, "cycles", 1, fmt.Sprintf("how many decisions are looked at, at most %d; fewer when the cluster is at rest before", see.MaxCycles))
	fs.BoolVar(&fail, "fail-on-loss", false, "exit with 2 when gangs would lose room")
	return c
}
