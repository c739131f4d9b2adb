package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/see"
)

// Losers is the error of a what-if that was asked to fail when gangs lose room: a pipeline tells it from trouble by the exit status.
type Losers struct{ Gangs int }

func (l *Losers) Error() string { return fmt.Sprintf("%d gangs would lose room", l.Gangs) }

// ExitCode is the exit status of the program.
func (l *Losers) ExitCode() int { return 2 }

// thought is what flags say that somebody would do.
type thought struct {
	quota, limit, weight, priority []string
	nodes, like                    string
	cordon, gangs                  []string
}

func newWhatIf(d Deps) *cobra.Command {
	l := &looker{deps: d}
	var t thought
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
			changes, err := t.changes(v.snap)
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
	fs.StringArrayVar(&t.quota, "quota", nil, "`quota` to set, as QUEUE:RESOURCE=AMOUNT, such as vision:gpu=32 or vision:gpu=unlimited; may be repeated")
	fs.StringArrayVar(&t.limit, "limit", nil, "`limit` to set, as QUEUE:RESOURCE=AMOUNT; may be repeated")
	fs.StringArrayVar(&t.weight, "weight", nil, "`weight` over quota to set, as QUEUE:RESOURCE=NUMBER; may be repeated")
	fs.StringArrayVar(&t.priority, "priority", nil, "`priority` of a queue to set, as QUEUE=NUMBER; may be repeated")
	fs.StringVar(&t.nodes, "add-nodes", "", "how many nodes are added that are like --like")
	fs.StringVar(&t.like, "like", "", "node that --add-nodes copies")
	fs.StringSliceVar(&t.cordon, "cordon", nil, "nodes that take no more pods")
	fs.StringSliceVar(&t.gangs, "delete", nil, "gangs that are deleted, each as NAMESPACE/NAME")
	fs.IntVar(&cycles, "cycles", 1, fmt.Sprintf("how many decisions are looked at, at most %d; fewer when the cluster is at rest before", see.MaxCycles))
	fs.BoolVar(&fail, "fail-on-loss", false, "exit with 2 when gangs would lose room")
	return c
}

// changes reads the flags. What they name and is not there is refused by see.WhatIf.
func (t *thought) changes(snap *cluster.Snapshot) ([]*explain.Change, error) {
	var out []*explain.Change
	for _, f := range []struct {
		name   string
		kind   explain.Kind
		values []string
	}{{"quota", explain.SetQuota, t.quota}, {"limit", explain.SetLimit, t.limit}, {"weight", explain.SetWeight, t.weight}} {
		for _, text := range f.values {
			c, err := ofQueue(snap.Dims, f.kind, text)
			if err != nil {
				return nil, fmt.Errorf("--%s %q: %w", f.name, text, err)
			}
			out = append(out, c)
		}
	}
	for _, text := range t.priority {
		queue, number, ok := strings.Cut(text, "=")
		n, err := strconv.ParseInt(number, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("--priority %q: it must be QUEUE=NUMBER, such as vision=200", text)
		}
		out = append(out, explain.OfQueue(explain.SetPriority, queue, "", n))
	}
	switch {
	case (t.nodes == "") != (t.like == ""):
		return nil, errors.New("--add-nodes and --like go together: how many, and like which node")
	case t.nodes != "":
		n, err := strconv.Atoi(t.nodes)
		if err != nil {
			return nil, fmt.Errorf("--add-nodes %q: it must be a number", t.nodes)
		}
		out = append(out, explain.MoreNodes(t.like, n))
	}
	if len(t.cordon) > 0 {
		out = append(out, explain.CordonNodes(t.cordon...))
	}
	for _, g := range t.gangs {
		namespace, name, ok := strings.Cut(g, "/")
		if !ok {
			return nil, fmt.Errorf("--delete %q: it must be NAMESPACE/NAME", g)
		}
		out = append(out, explain.WithoutGang(kai.GangKey(namespace, name)))
	}
	if len(out) == 0 {
		return nil, errors.New("nothing would be changed: add --quota, --limit, --weight, --priority, --add-nodes, --cordon or --delete")
	}
	return out, nil
}

// ofQueue reads QUEUE:RESOURCE=AMOUNT.
func ofQueue(dims cluster.Dims, kind explain.Kind, text string) (*explain.Change, error) {
	queue, rest, ok := strings.Cut(text, ":")
	dim, amount, there := strings.Cut(rest, "=")
	if !ok || !there || queue == "" {
		return nil, errors.New("it must be QUEUE:RESOURCE=AMOUNT, such as vision:gpu=32")
	}
	d, known := dims.Index(dim)
	if !known {
		return nil, fmt.Errorf("%q is no resource that this cluster has", dim)
	}
	if amount == "unlimited" && kind != explain.SetWeight {
		return explain.OfQueue(kind, queue, dim, cluster.Unlimited), nil
	}
	q, err := resource.ParseQuantity(amount)
	if err != nil || q.Sign() < 0 {
		return nil, fmt.Errorf("%q is no amount: a number that is not negative, in the notation of Kubernetes", amount)
	}
	if q.CmpInt64(math.MaxInt64/1000) > 0 {
		return nil, fmt.Errorf("%q is more than there can be", amount)
	}
	if kind == explain.SetWeight || d == cluster.CPU || d == cluster.GPU {
		return explain.OfQueue(kind, queue, dim, min(q.MilliValue(), cluster.MaxQuantity)), nil
	}
	return explain.OfQueue(kind, queue, dim, min(q.Value(), cluster.MaxQuantity)), nil
}
