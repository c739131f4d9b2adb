package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/dialect/submit"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// Losers is the error of a what-if that was asked to fail when gangs lose room: a pipeline tells it from trouble by the exit status.
type Losers struct{ Gangs int }

func (l *Losers) Error() string { return fmt.Sprintf("%d gangs would lose room", l.Gangs) }

// ExitCode is the exit status of the program.
func (l *Losers) ExitCode() int { return 2 }

// Waiters is the error of a what-if with manifests of which not all gangs start: a pipeline tells by the exit status whether waiting helps.
type Waiters struct{ Waiting, Never int }

func (w *Waiters) Error() string {
	if w.Never > 0 {
		return fmt.Sprintf("%d gangs would never start as they are", w.Never)
	}
	return fmt.Sprintf("%d gangs would wait", w.Waiting)
}

// ExitCode is the exit status of the program.
func (w *Waiters) ExitCode() int {
	if w.Never > 0 {
		return 4
	}
	return 3
}

// BadManifests is the error of manifests of which no answer can be made.
type BadManifests struct{ error }

func (b *BadManifests) Unwrap() error { return b.error }

// ExitCode is the exit status of the program.
func (b *BadManifests) ExitCode() int { return 5 }

// readSubmitted reads files, "-" for in, as one text of documents.
func readSubmitted(files []string, in io.Reader) ([]byte, error) {
	var all bytes.Buffer
	for _, name := range files {
		r := in
		if name != "-" {
			f, err := os.Open(name)
			if err != nil {
				return nil, &BadManifests{fmt.Errorf("--filename: %w", err)}
			}
			defer f.Close()
			r = f
		}
		all.WriteString("\n---\n")
		if _, err := io.Copy(&all, io.LimitReader(r, submit.MaxBytes+1-int64(all.Len()))); err != nil {
			return nil, &BadManifests{fmt.Errorf("--filename %s: %w", name, err)}
		}
	}
	return all.Bytes(), nil
}

// submitted is the change that manifests are, in a cluster.
func (l *looker) submitted(v *view, text []byte, namespace string) (*explain.Change, error) {
	ns, err := l.namespace(namespace)
	if err != nil {
		return nil, err
	}
	s, err := submit.Read(text, v.snap, submit.Options{Namespace: ns, SchedulerNames: l.schedulerNames, Partition: l.partition})
	if err != nil {
		return nil, &BadManifests{err}
	}
	return explain.NewGangs(s.Gangs, s.Pods, s.Events), nil
}

// ending is what to end with, of gangs that were submitted; nil where all start.
func ending(list []see.SubmittedGang) error {
	w := &Waiters{}
	for i := range list {
		switch list[i].Word {
		case explain.Starting:
		case explain.Never:
			w.Never++
		default:
			w.Waiting++
		}
	}
	if w.Waiting+w.Never == 0 {
		return nil
	}
	return w
}

func newWhatIf(d Deps) *cobra.Command {
	l := &looker{deps: d}
	var t see.Thought
	nodes, namespace := "", ""
	var files []string
	var cycles int
	var fail bool
	c := &cobra.Command{
		Use: "what-if", Short: "Say what the scheduler would do if something were changed: who starts, who loses room, shares before and after", Args: cobra.NoArgs,
		Long: "Say what the scheduler would do if something were changed, compared with what it does without: who gets room, who loses it, how many\n" +
			"pods are evicted, and what queues hold and are owed. It is tried in a copy of the cluster, with the scheduler's own code; nothing is\n" +
			"written. One decision is looked at, or with --cycles more, until the cluster is at rest. Nothing ends by itself meanwhile.\n\n" +
			"With -f, manifests are submitted too, as they would be applied: Pod, Job, PyTorchJob, JobSet, PodGroup.\n\n" +
			"Exit status: 0 an answer was printed, and all that -f submits starts within the decisions that were looked at; 1 there is no answer (the message\n" +
			"says why); 2 with --fail-on-loss: gangs would lose room; 3 something that -f submits would wait; 4 something that -f submits would never start\n" +
			"as it is; 5 the manifests cannot be read or are not simulated. Of several the largest counts.",
		Example: "  muster what-if --quota vision:gpu=32 --cycles 50\n  muster what-if --add-nodes 4 --like node-7\n  muster what-if --cordon node-7 --fail-on-loss\n  muster what-if -f job.yaml -n team --cycles 20",
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := readSubmitted(files, c.InOrStdin()) // before the cluster is asked
			if err != nil {
				return err
			}
			v, err := l.look(c.Context())
			if err != nil {
				return err
			}
			if len(files) > 0 {
				if t.Submit, err = l.submitted(v, text, namespace); err != nil {
					return err
				}
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
			if err := ending(o.Submitted); err != nil {
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
	fs.StringArrayVarP(&files, "filename", "f", nil, "`file` of manifests to submit, - for standard input; may be repeated, at most 10 MiB in all")
	fs.StringVarP(&namespace, "namespace", "n", "", "namespace of manifests that name none; empty: the kubeconfig's")
	fs.IntVar(&cycles, "cycles", 1, fmt.Sprintf("how many decisions are looked at, at most %d; fewer when the cluster is at rest before", see.MaxCycles))
	fs.BoolVar(&fail, "fail-on-loss", false, "exit with 2 when gangs would lose room")
	return c
}
