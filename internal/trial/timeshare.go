package trial

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-scheduler/muster/internal/cli/form"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/sim"
	"github.com/muster-scheduler/muster/internal/sim/picture"
)

// timeShare is one call of `muster-lab sim timeshare`.
type timeShare struct {
	input, output, format, plot string
}

func newTimeShare() *cobra.Command {
	t := &timeShare{}
	c := &cobra.Command{
		Use:   "timeshare -i FILE",
		Short: "Let queues compete for long, and record who had what and when",
		Long: `Plays a file of KAI's time-based fair-share simulator on the real engine: nodes, queues and their jobs, cycle by cycle, while what queues
used lately moves their shares. It writes KAI's CSV (Time, QueueID, Allocation, FairShare) or JSON, and draws a plot. KAI's keys:

  Cycles 100, WindowSize 5, HalfLifePeriod 0 (cycles), KValue 1
  Nodes:  [{GPUs, Count}]
  Queues: [{Name, Parent, Priority 100, DeservedGPUs 0, Weight 1}]
  Jobs:   {QUEUE: {GPUs, NumPods, NumJobs}}      GPUs is per pod; a job is a gang of NumPods; it runs until it is evicted

Ours besides: step, how long a cycle is (10m; a minute if it is not said), duration instead of cycles (365d), WindowSize and
HalfLifePeriod as times, grace, seed; in a queue LimitGPUs; in a job MinPods, Duration, Start, Every, Random, Priority, and several jobs as
a list.`,
		Example: `  muster-lab sim timeshare -i simulation-config.yaml -o results.csv --plot shares.png
  printf 'nodes: [{gpus: 8}]\nqueues: [{name: a}, {name: b}]\njobs: {a: {gpus: 8, numJobs: 9}, b: {gpus: 8, numJobs: 9}}\n' |
    muster-lab sim timeshare -i - -o -`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return t.run(c) },
	}
	f := c.Flags()
	f.StringVarP(&t.input, "input", "i", "", "file to play, - for standard input")
	f.StringVarP(&t.output, "output", "o", "simulation_results.csv", "file to write, - for standard output")
	f.StringVar(&t.format, "format", "", "csv or json; empty: json for an output that ends in .json, else csv")
	f.Bool("enable-controller-logs", false, "KAI's; no controllers run here")
	f.Lookup("enable-controller-logs").Hidden = true
	f.StringVar(&t.plot, "plot", "", "also draw allocation and fair share over time: a file that ends in .png or .svg")
	return c
}

func (t *timeShare) run(c *cobra.Command) error {
	format := strings.ToLower(strings.TrimPrefix(filepath.Ext(t.plot), "."))
	if t.format == "" {
		t.format = "csv"
		if strings.EqualFold(filepath.Ext(t.output), ".json") {
			t.format = "json"
		}
	}
	switch {
	case t.input == "":
		return errors.New("name a file with --input (- for standard input)")
	case t.output == "":
		return errors.New("--output is empty; name a file, or - for standard output")
	case t.format != "csv" && t.format != "json":
		return fmt.Errorf("--format is %q; it must be csv or json", t.format)
	case t.plot != "" && format != "png" && format != "svg":
		return fmt.Errorf("--plot is %q; its name must end in .png or .svg", t.plot)
	}
	in, name, err := open(c, t.input)
	if err != nil {
		return err
	}
	defer in.Close()
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	config, err := sim.ParseConfig(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	series, err := play(ctx, c.ErrOrStderr(), config)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	write := series.WriteCSV
	if t.format == "json" {
		write = series.WriteJSON
	}
	if t.output == "-" {
		err = write(c.OutOrStdout())
	} else {
		err = toFile(t.output, write)
	}
	if err != nil {
		return fmt.Errorf("--output %s: %w", t.output, err)
	}
	if t.plot != "" {
		title := "Shares of queues over time"
		if t.input != "-" {
			title = strings.TrimSuffix(filepath.Base(t.input), filepath.Ext(t.input))
		}
		err := toFile(t.plot, func(w io.Writer) error { return picture.Shares(w, series, format, title) })
		if err != nil {
			return fmt.Errorf("--plot %s: %w", t.plot, err)
		}
	}
	fmt.Fprint(c.ErrOrStderr(), drawSeries(series))
	return nil
}

// play runs the simulation, with a progress bar on a terminal.
func play(ctx context.Context, log io.Writer, config *sim.Config) (*sim.Series, error) {
	var report func(done, of int)
	if f, ok := log.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		began := time.Now()
		report = func(done, of int) { fmt.Fprint(f, "\r", progress(done, of, time.Since(began)), "\033[K") }
		defer fmt.Fprint(f, "\r\033[K")
	}
	return sim.Timeshare(ctx, config, builtin.Registry(), report)
}

// progress draws a bar, and how long it will take.
func progress(done, of int, took time.Duration) string {
	const width = 40
	full := width * done / max(1, of)
	left := ""
	if done > 0 && done < of {
		left = fmt.Sprintf(", %s left", time.Duration(float64(took)*float64(of-done)/float64(done)).Round(time.Second))
	}
	return fmt.Sprintf("[%s%s] %d of %d cycles%s", strings.Repeat("#", full), strings.Repeat(".", width-full), done, of, left)
}

// toFile writes a file: whole, or not at all.
func toFile(name string, write func(io.Writer) error) error {
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

// drawSeries sums a simulation up.
func drawSeries(s *sim.Series) string {
	columns := []form.Column{
		{Title: "QUEUE"},
		{Title: "GPU-TIME", Right: true},
		{Title: "MEAN GPUS", Right: true},
		{Title: "MEAN FAIR SHARE", Right: true},
		{Title: "TURNS", Right: true},
	}
	whole := 0.0
	for i := range s.Queues {
		if s.Queues[i].Leaf {
			whole += sum(s.Queues[i].Allocation)
		}
	}
	var rows [][]string
	for i := range s.Queues {
		q := &s.Queues[i]
		if !q.Leaf {
			continue
		}
		turns, had := 0, false
		for _, x := range q.Allocation {
			if x > 0 && !had {
				turns++
			}
			had = x > 0
		}
		part := 0.0
		if whole > 0 {
			part = 100 * sum(q.Allocation) / whole
		}
		n := float64(max(1, len(q.Allocation))) * 1000
		rows = append(rows, []string{
			q.Name, fmt.Sprintf("%.1f %%", part), fmt.Sprintf("%.2f", sum(q.Allocation)/n), fmt.Sprintf("%.2f", sum(q.FairShare)/n), strconv.Itoa(turns),
		})
	}
	f := &s.Figures
	return form.Table(columns, rows) + fmt.Sprintf("%d cycles of %s, %d decided anew; %d pods placed, %d evicted (%d of them moved)\n",
		s.Cycles(), s.Step, f.Decisions, f.PlacedPods, f.EvictedPods, f.MovedPods)
}

func sum(values []int64) float64 {
	total := 0.0
	for _, x := range values {
		total += float64(x)
	}
	return total
}
