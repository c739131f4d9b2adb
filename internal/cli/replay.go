package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/replay/kaizip"
)

// errOther ends a replay whose decision is not the one on record.
var errOther = errors.New("the decision is not the one on record")

// replayed is what a replay prints.
type replayed struct {
	File string `json:"file"`
	// Cluster is the one that the snapshot is of, by the UID of its namespace kube-system.
	Cluster string `json:"cluster,omitempty"`
	// At is the moment that the snapshot is of, Version the program that made it.
	At      time.Time     `json:"at"`
	Version string        `json:"version,omitempty"`
	Plans   []engine.Plan `json:"plans"`
	// Waiting are the gangs that were left without what they ask for, with the reason.
	Waiting []waitingGang `json:"waiting"`
	// Recorded says whether the file has a decision on record, Same whether it is this one, byte for byte.
	Recorded bool `json:"recorded"`
	Same     bool `json:"same"`
	// Notes are what the replay could not take into account.
	Notes []string `json:"notes,omitempty"`
}

// waitingGang is a gang that waits, and why.
type waitingGang struct {
	Gang   string `json:"gang"`
	Reason string `json:"reason"`
	Text   string `json:"text"`
}

func newReplayCase(d Deps) *cobra.Command {
	var output, cycle, namespace string
	var role remote
	o := app.ClientOptions{QPS: -1, UserAgent: "muster/" + d.Version}
	c := &cobra.Command{
		Use: "replay FILE", Short: "Decide again on a saved snapshot: ours, or KAI's archive", Args: cobra.MaximumNArgs(1),
		Long: "Decide again on what `muster snapshot save` saved, and print the plans and who is left waiting. Where the decision is on record,\n" +
			"it is compared byte for byte, and another one is an error. FILE may also be a snapshot archive of KAI's (/get-snapshot).\n\n" +
			"With --cycle and no FILE, the role ui (--ui) decides again on a cycle of its journal, and what the kubeconfig's user may read of it is printed.",
		Example: "  muster replay now.muster\n  muster replay snapshot.zip -o json\n  muster replay --cycle 4711 --ui https://muster-ui.example",
		RunE: func(c *cobra.Command, args []string) error {
			switch output {
			case "text", "json", "yaml":
			default:
				return fmt.Errorf("--output is %q; it must be text, json or yaml", output)
			}
			if (cycle != "") == (len(args) == 1) {
				return errors.New("give the FILE of a snapshot, or --cycle")
			}
			if cycle != "" {
				return role.replay(c, o, cycle, namespace, output)
			}
			k, notes, err := openCase(args[0])
			if err != nil {
				return err
			}
			out, err := k.Run(c.Context(), d.Registry(k.StorageCapacity))
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			r := &replayed{
				File: args[0], Cluster: replay.Cluster(k.Image.Store(cluster.Options{}).Snapshot(k.Image.Now)), At: k.Image.Now.Time().UTC(), Version: k.Version, Plans: out.Plans, Recorded: k.Decided, Same: out.Same, Notes: notes, Waiting: []waitingGang{},
			}
			if r.Plans == nil {
				r.Plans = []engine.Plan{}
			}
			for i := range out.Result.Trace.Gangs {
				g := &out.Result.Trace.Gangs[i]
				if g.Diagnosis != nil {
					r.Waiting = append(r.Waiting, waitingGang{g.Gang.String(), g.Diagnosis.Verdict.Reason.Key, g.Diagnosis.Verdict.String()})
				}
			}
			if err := form.Emit(c.OutOrStdout(), output, r, r.draw); err != nil {
				return err
			}
			if r.Recorded && !r.Same {
				hint := ""
				if k.Version != d.Version {
					hint = fmt.Sprintf(" (the file is of version %s, this is %s)", k.Version, d.Version)
				}
				return fmt.Errorf("%s: %w%s", args[0], errOther, hint)
			}
			return nil
		},
	}
	fs := c.Flags()
	fs.StringVarP(&output, "output", "o", "text", "text, json or yaml")
	fs.StringVar(&cycle, "cycle", "", "number of a cycle in the journal of the role ui, as muster decisions --since tells it")
	fs.StringVarP(&namespace, "namespace", "n", "", "with --cycle, the namespace whose gangs are told; empty: all")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "with --cycle, file that names the API server; empty: $KUBECONFIG or the user's default")
	fs.StringVar(&o.Context, "context", "", "with --cycle, context of the kubeconfig; empty: its current one")
	role.flags(c)
	return c
}

// openCase reads a file of either kind.
func openCase(name string) (*replay.Case, []string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	var k *replay.Case
	var notes []string
	if kaizip.Is(f) {
		k, notes, err = kaizip.Read(f, info.Size(), replay.DefaultLimits())
	} else {
		k, err = replay.Read(f, replay.DefaultLimits())
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return k, notes, nil
}

// draw is the report as text.
func (r *replayed) draw() string {
	var b strings.Builder
	fmt.Fprintf(&b, "snapshot of %s", r.At.Format(time.RFC3339Nano))
	if r.Cluster != "" {
		fmt.Fprintf(&b, ", cluster %s", r.Cluster)
	}
	b.WriteByte('\n')
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for i := range r.Plans {
		p := &r.Plans[i]
		for j := range p.Bundles {
			u := &p.Bundles[j]
			fmt.Fprintf(&b, "%s for %s\n", p.Action, u.Gang)
			for k := range u.Intents {
				in := &u.Intents[k]
				fmt.Fprintf(&b, "  %-8s %s/%s  %s", in.Verb, in.Namespace, in.Pod, in.Node)
				if in.To != "" {
					fmt.Fprintf(&b, " -> %s", in.To)
				}
				if len(in.Groups) > 0 {
					fmt.Fprintf(&b, "  shares %s", strings.Join(in.Groups, ", "))
				}
				b.WriteByte('\n')
			}
		}
	}
	if len(r.Plans) == 0 {
		b.WriteString("nothing was to be done\n")
	}
	for _, w := range r.Waiting {
		fmt.Fprintf(&b, "%s waits: %s\n", w.Gang, w.Text)
	}
	switch {
	case r.Recorded && r.Same:
		b.WriteString("the decision is the one on record, byte for byte\n")
	case r.Recorded:
		b.WriteString("the decision is NOT the one on record\n")
	default:
		b.WriteString("no decision is on record\n")
	}
	return b.String()
}
