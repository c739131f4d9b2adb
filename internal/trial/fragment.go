package trial

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/sim"
	"github.com/muster-scheduler/muster/internal/sim/picture"
)

// newFragmentation returns `muster-lab sim fragmentation`.
func newFragmentation() *cobra.Command {
	var output, into, mix string
	x := sim.Inflation{}
	var seeds int
	c := &cobra.Command{
		Use:   "fragmentation",
		Short: "Compare how placements fill a cluster: binpack, spread, and descending the expected fragmentation",
		Long: `Pods come one after another to an empty cluster of nodes with eight GPUs and 96 CPUs, and stay, until they ask for more than it has. The
same pods come in the same order whatever the placement; nobody is evicted or moved. Printed are means over the seeds.`,
		Example: `  muster-lab sim fragmentation --plot fragmentation.png
  muster-lab sim fragmentation --mix multi --nodes 50 -o json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := form.Check(output); err != nil {
				return err
			}
			switch mix {
			case "published":
				x.Mix = sim.PublishedMix()
			case "multi":
				x.Mix = sim.MultiMix()
			default:
				return fmt.Errorf("--mix is %q; it must be published or multi", mix)
			}
			switch {
			case x.Nodes < 1 || x.Nodes > 10_000:
				return fmt.Errorf("--nodes is %d; it must be 1 to 10000", x.Nodes)
			case seeds < 1 || seeds > 1000:
				return fmt.Errorf("--seeds is %d; it must be 1 to 1000", seeds)
			case x.Until < 100 || x.Until > 300:
				return fmt.Errorf("--until is %d; it must be 100 to 300", x.Until)
			}
			for s := range seeds {
				x.Seeds = append(x.Seeds, uint64(s+1))
			}
			var results []*sim.Inflated
			for _, p := range sim.Placements() {
				r, err := x.Run(c.Context(), p, builtin.Registry())
				if err != nil {
					return err
				}
				results = append(results, r)
			}
			if into != "" {
				if err := writePlot(into, fmt.Sprintf("%d GPUs, mix %q, means of %d sequences", 8*x.Nodes, mix, seeds), results); err != nil {
					return err
				}
			}
			return form.Emit(c.OutOrStdout(), output, results, func() string { return drawInflations(8*x.Nodes, results) })
		},
	}
	f := c.Flags()
	f.StringVar(&mix, "mix", "published", "what comes: published (13 % of pods without GPU, 38 % with a part of one, 48 % with one, 1 % with several) or multi (20 % with several)")
	f.IntVar(&x.Nodes, "nodes", 100, "nodes of eight GPUs")
	f.IntVar(&seeds, "seeds", 10, "sequences of pods")
	f.IntVar(&x.Until, "until", 130, "what the pods ask for in the end, in percent of the cluster's GPUs")
	f.StringVar(&into, "plot", "", "file for the curves (PNG)")
	f.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}

func writePlot(name, title string, results []*sim.Inflated) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	if err := picture.Inflations(f, title, results); err != nil {
		f.Close() //nolint:errcheck // the first error says more
		return err
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}

func drawInflations(gpus int, results []*sim.Inflated) string {
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }
	rows := make([][]string, 0, len(results))
	for _, r := range results {
		rows = append(rows, []string{
			string(r.Placement), number(float64(gpus) - r.Lost), number(r.Lost), number(r.Best) + " – " + number(r.Worst), number(r.FirstFailure),
			number(r.Unusable[25]), number(r.Unusable[50]), number(r.Unusable[75]), number(r.Unusable[95]),
		})
	}
	return form.Table([]form.Column{
		{Title: "PLACEMENT", Keep: true},
		{Title: "GPUS ALLOCATED", Right: true},
		{Title: "NOT", Right: true},
		{Title: "BEST – WORST", Right: true},
		{Title: "FIRST WAITS AT %", Right: true},
		{Title: "UNUSABLE AT 25 %", Right: true},
		{Title: "50 %", Right: true},
		{Title: "75 %", Right: true},
		{Title: "95 %", Right: true},
	}, rows)
}
