package trial

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/climb"
	"github.com/muster-scheduler/muster/internal/climb/genome"
)

// NewClimb returns `muster-lab climb`: the search for the slowest scheduling cycle.
func NewClimb() *cobra.Command {
	c := &cobra.Command{
		Use: "climb", Short: "Search for the cluster whose scheduling cycle is slowest, and measure clusters that were found", Args: cobra.NoArgs,
		RunE: app.NeedsCommand,
	}
	c.AddCommand(newClimbSearch(), newClimbMeasure(), newClimbRunner())
	return c
}

func newClimbRunner() *cobra.Command {
	return &cobra.Command{
		Use: "runner", Short: "Measure the clusters that come on standard input, a line of JSON each", Args: cobra.NoArgs, Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			return climb.Serve(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
}

// runnerFlag is the program that measures.
func runnerFlag(c *cobra.Command) func() (*climb.Runner, error) {
	var command string
	c.Flags().StringVar(&command, "runner", "", "program that measures, with its arguments, for another tree than this one")
	return func() (*climb.Runner, error) {
		if words := strings.Fields(command); len(words) > 0 {
			return &climb.Runner{Command: words}, nil
		}
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("--runner: %w", err)
		}
		return &climb.Runner{Command: []string{self, "climb", "runner"}}, nil
	}
}

func newClimbSearch() *cobra.Command {
	var output, keep string
	o := climb.Options{Limits: climb.DefaultLimits(), Now: time.Now}
	c := &cobra.Command{
		Use:   "search [FILE...]",
		Short: "Climb from random clusters, or those of files, to the slowest cycle",
		Long: `A cluster is changed a little, and the change stays if the slowest of a few scheduling cycles takes more processor time. Where nothing
gets slower any more, the cluster is made as small as it can be while it stays as slow, and kept; then the next climb begins. Lines of progress
go to standard error: seconds, clusters measured, and what happened.`,
		Example: `  muster-lab climb search --for 1h --keep found
  muster-lab climb search --for 5m --seed 7 -o json`,
	}
	runner := runnerFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := form.Check(output); err != nil {
			return err
		}
		for _, f := range []struct {
			flag     string
			n, least int
		}{
			{"nodes", o.Limits.Nodes, genome.MostGroups},
			{"queues", o.Limits.Queues, genome.MostGroups},
			{"gangs", o.Limits.Gangs, genome.MostGroups},
			{"pods", o.Limits.Pods, genome.MostGroups},
			{"cycles", o.Cycles, 1},
			{"runs", o.Runs, 1},
			{"patience", o.Patience, 1},
		} {
			if f.n < f.least || f.n > 1_000_000 {
				return fmt.Errorf("--%s is %d; it must be %d to 1000000", f.flag, f.n, f.least)
			}
		}
		if o.For <= 0 || o.Limit <= 0 {
			return fmt.Errorf("--for and --limit are %s and %s; both must be above 0", o.For, o.Limit)
		}
		var err error
		for _, name := range args {
			f, err := climb.ReadCase(name)
			if err != nil {
				return err
			}
			o.Start = append(o.Start, f.Genome)
		}
		r, err := runner()
		if err != nil {
			return err
		}
		defer r.Close()
		o.Measure = r.Measure
		o.Say = func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) } //nolint:errcheck // progress
		report, err := climb.Climb(c.Context(), o)
		if err != nil {
			return err
		}
		if keep != "" {
			for i := range report.Found {
				if err := climb.WriteCase(keep, &report.Found[i]); err != nil {
					return err
				}
			}
		}
		return form.Emit(c.OutOrStdout(), output, &report, func() string { return drawClimb(&report) })
	}
	f := c.Flags()
	f.Uint64Var(&o.Seed, "seed", 1, "what is drawn depends on it")
	f.DurationVar(&o.For, "for", 10*time.Minute, "how long to climb")
	f.IntVar(&o.Limits.Nodes, "nodes", o.Limits.Nodes, "most nodes of a cluster")
	f.IntVar(&o.Limits.Queues, "queues", o.Limits.Queues, "most queues")
	f.IntVar(&o.Limits.Gangs, "gangs", o.Limits.Gangs, "most gangs")
	f.IntVar(&o.Limits.Pods, "pods", o.Limits.Pods, "most pods")
	f.IntVar(&o.Cycles, "cycles", 3, "cycles of a run; the slowest counts")
	f.IntVar(&o.Runs, "runs", 3, "runs of a cluster that seems slower; the median counts")
	f.DurationVar(&o.Limit, "limit", 30*time.Second, "how long the cycles of a run may take")
	f.IntVar(&o.Patience, "patience", 60, "changes in a row without gain that end a climb")
	f.StringSliceVar(&o.Stages, "stages", []string{"open", "allocate", "consolidation", "reclaim", "preempt", "close"}, "stages of a cycle of which a climb may be to make one slow, in place of the cycle")
	f.DurationVar(&o.Above, "above", 150*time.Millisecond, "the processor time of a cycle that is worth keeping")
	f.DurationVar(&o.Enough, "enough", 0, "the processor time of a cycle that ends a climb: what was found is then made small; 0 for none")
	f.StringVar(&keep, "keep", "", "folder for what was found, a file each")
	f.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}

func newClimbMeasure() *cobra.Command {
	var output, profile string
	a := climb.Ask{}
	c := &cobra.Command{
		Use:     "measure FILE...",
		Short:   "Measure clusters that were found",
		Example: "  muster-lab climb measure internal/climb/testdata/cases/*.json",
		Args:    cobra.MinimumNArgs(1),
	}
	runner := runnerFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := form.Check(output); err != nil {
			return err
		}
		r, err := runner()
		if err != nil {
			return err
		}
		defer r.Close()
		var report climb.Report
		for _, file := range args {
			f, err := climb.ReadCase(file)
			if err != nil {
				return err
			}
			a.Genome, a.Profile = f.Genome, ""
			if profile != "" {
				a.Profile = filepath.Join(profile, strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))+".pprof")
			}
			if f.Measured, err = r.Measure(c.Context(), a); err != nil {
				return err
			}
			if f.Measured.Error != "" {
				return fmt.Errorf("%s: %s", file, f.Measured.Error)
			}
			f.Size = f.Genome.Size()
			report.Found = append(report.Found, f)
		}
		return form.Emit(c.OutOrStdout(), output, report.Found, func() string { return drawFound(report.Found) })
	}
	f := c.Flags()
	f.IntVar(&a.Cycles, "cycles", 3, "cycles of a run; the slowest counts")
	f.IntVar(&a.Runs, "runs", 5, "runs; the median counts")
	f.DurationVar(&a.Limit, "limit", 2*time.Minute, "how long the cycles of a run may take")
	f.StringVar(&profile, "profile", "", "folder for a processor profile of each")
	f.StringVarP(&output, "output", "o", "table", "table, json or yaml")
	return c
}

func drawClimb(r *climb.Report) string {
	out := fmt.Sprintf("seed %d, %s: %d climbs, %d clusters, slowest cycle %s\n", r.Seed, r.Took.Round(time.Second), r.Climbs, r.Tried, seconds(r.Slowest.CPU))
	for _, f := range r.Failed {
		first, _, _ := strings.Cut(f.Error, "\n")
		text, err := json.Marshal(&f.Genome)
		if err != nil {
			text = []byte(err.Error())
		}
		out += fmt.Sprintf("failed: %s: %s\n", first, text)
	}
	return out + drawFound(r.Found)
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

func drawFound(found []climb.Found) string {
	rows := make([][]string, 0, len(found))
	for i := range found {
		f := &found[i]
		nodes, queues, gangs, pods := objects(&f.Genome)
		cut := ""
		if f.Measured.Cut {
			cut = "yes"
		}
		rows = append(rows, []string{
			f.Name, seconds(f.Measured.CPU), seconds(f.Measured.Wall), cut, strconv.Itoa(f.Measured.Steps),
			strconv.Itoa(nodes), strconv.Itoa(queues), strconv.Itoa(gangs), strconv.Itoa(pods),
		})
	}
	return form.Table([]form.Column{
		{Title: "FOUND"},
		{Title: "CPU S", Right: true},
		{Title: "WALL S", Right: true},
		{Title: "CUT", Right: true},
		{Title: "STEPS", Right: true},
		{Title: "NODES", Right: true},
		{Title: "QUEUES", Right: true},
		{Title: "GANGS", Right: true},
		{Title: "PODS", Right: true},
	}, rows)
}

// objects counts those of the cluster that a genome lays.
func objects(g *genome.Genome) (nodes, queues, gangs, pods int) {
	w := g.Lay()
	for i := range w.Gangs {
		pods += len(w.Gangs[i].Pods)
	}
	return len(w.Nodes), len(w.Queues), len(w.Gangs), pods
}
