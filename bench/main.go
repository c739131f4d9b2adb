// Command bench measures whole cases (cases.yaml) on a lab: `muster run all` as one process and, by turns with it, a stock kube-scheduler as
// one, each time on a fresh lab of the same make, which is another process; and the load driver in shared/loadgen beside the checkout. It watches
// the pods by itself, and prints the median and the worst of its rounds against what each case should reach. It fails when a round did not end
// in the state it should. The case "installed" is measured by turns with Muster as the chart installs it and in one process; it and what takes
// long are left out unless asked for. docs/operations/scale.md says what the figures are.
//
// Arguments after the flags are the load driver's, for the case installed.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-scheduler/muster/internal/lab"
)

// bench is what cases are measured with.
type bench struct {
	dir     string   // everything that is written lies below it
	bin     string   // folder of the programs
	images  string   // folder of the images' archives
	loadgen string   // the load driver, built
	load    []string // further arguments of it
	rounds  int
	json    bool
	profile string // folder; "" for none
}

// wish is what one was asked for besides.
type wish struct {
	only, side, driver, results string
	rounds                      int
	scale                       float64
}

func main() {
	// What this program starts dies with it, by a signal of the kernel's that comes when the thread that started it ends: this one starts
	// them all, and lasts.
	runtime.LockOSThread()
	klog.LogToStderr(false) // what clients say of requests that were cut is in the errors
	klog.SetOutput(io.Discard)
	log.SetLogger(logr.Discard())
	var b bench
	var w wish
	flag.StringVar(&w.only, "case", "", "only these cases, with commas between them")
	flag.StringVar(&w.side, "side", "", "only muster, or only kube-scheduler")
	flag.IntVar(&w.rounds, "rounds", 0, "rounds of each case; 0 for as many as the case has")
	flag.Float64Var(&w.scale, "scale", 1, "part of the case's nodes and pods, to try the machinery: 0.02")
	flag.StringVar(&w.results, "results", "", "file of results to write the figures to (bench/results.yaml)")
	flag.StringVar(&b.profile, "profile", "", "folder to write profiles of Muster and the lab to, and what was asked of the API server; costs time")
	flag.StringVar(&b.bin, "bin", "bin", "folder of muster and muster-lab (make build), and for the case installed of realnode and helm-install (make bench-installed)")
	flag.StringVar(&b.images, "images", filepath.Join("dist", "node"), "folder of the images' archives, for the case installed")
	flag.StringVar(&w.driver, "loadgen", "../shared/loadgen", "source of the load driver")
	output := flag.String("o", "table", "table or json, for the case installed")
	flag.Parse()
	b.load, b.json = flag.Args(), *output == "json"
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := w.check(&b)
	if *output != "table" && *output != "json" {
		err = fmt.Errorf("-o %s: it is table or json", *output)
	}
	if err == nil {
		err = b.all(ctx, &w)
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// check refuses what does not go together: results are of whole cases, both sides, and nothing beside them.
func (w *wish) check(b *bench) error {
	switch {
	case w.rounds < 0:
		return fmt.Errorf("-rounds %d: must not be negative", w.rounds)
	case !(w.scale > 0 && w.scale <= 1):
		return fmt.Errorf("-scale %v: must be above 0, and 1 at most", w.scale)
	case !slices.Contains([]string{"", sideMuster, sideKube, sideAlone, sideBare}, w.side):
		return fmt.Errorf("-side %s: it is %s or %s", w.side, sideMuster, sideKube)
	case w.results != "" && (w.scale != 1 || w.side != "" || b.profile != ""):
		return errors.New("-results: what is written there has the size, and the sides, of the case, and no profiles were taken: leave out -scale, -side and -profile")
	case len(b.load) > 0 && w.only != "installed":
		return errors.New("arguments of the load driver are for -case installed")
	}
	return nil
}

// all measures the cases that were asked for.
func (b *bench) all(ctx context.Context, w *wish) (err error) {
	cases, err := readCases(casesYAML)
	if err != nil {
		return err
	}
	if cases, err = choose(cases, w.only); err != nil {
		return err
	}
	kept, origin := []result(nil), result{}
	if w.results != "" {
		if kept, err = readResults(w.results); err != nil {
			return err
		}
		if origin, err = originOf(); err != nil {
			return err
		}
	}
	if b.profile != "" {
		if err := os.MkdirAll(b.profile, 0o755); err != nil {
			return err
		}
	}
	if b.dir, err = os.MkdirTemp("", "muster-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if slices.ContainsFunc(cases, func(c benchCase) bool { return c.Scenario != "" }) {
		if err := b.buildDriver(ctx, w.driver); err != nil {
			return err
		}
	}
	for i := range cases {
		c := cases[i].scaled(w.scale)
		b.rounds = c.Rounds
		if w.rounds > 0 {
			b.rounds = w.rounds
		}
		if c.Installed {
			if err := b.compare(ctx, &c); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			continue
		}
		got, err := b.measure(ctx, &c, w.side)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		r := origin
		r.Case, r.Rounds, r.Command, r.Sides = c.Name, b.rounds, "go run ./bench -case "+c.Name+" -rounds "+strconv.Itoa(b.rounds), got
		fmt.Printf("%s: %s; %d rounds, median (worst)\n", c.Name, c.About, b.rounds)
		if w.scale != 1 {
			fmt.Printf("at %v of its size, which says nothing of the case: %d nodes, %d pods\n", w.scale, c.Nodes, c.pods())
		}
		fmt.Println(r.table(&c))
		if w.results != "" {
			kept = replaced(kept, r)
			if err := writeResults(w.results, kept); err != nil {
				return err
			}
		}
	}
	return nil
}

// choose are the cases of these names, with commas between them, in the order of the file; without names those that are quick.
func choose(cases []benchCase, only string) (out []benchCase, err error) {
	names := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	for _, c := range cases {
		if k := slices.Index(names, c.Name); k >= 0 {
			names = slices.Delete(names, k, k+1)
			out = append(out, c)
		} else if only == "" && !c.Installed && !c.Long {
			out = append(out, c)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("there is no case %s", strings.Join(names, ", "))
	}
	return out, nil
}

// buildDriver builds the load driver.
func (b *bench) buildDriver(ctx context.Context, source string) error {
	if _, err := os.Stat(source); err != nil {
		return fmt.Errorf("the load driver is not there (%w); these cases need it beside the checkout", err)
	}
	b.loadgen = filepath.Join(b.dir, "loadgen")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.loadgen, ".")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the load driver: %w\n%s", err, out)
	}
	return nil
}

// say tells how far it is.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) }

// measure runs a case by turns on its sides, or on one of them, and returns the spreads of the figures. The side that begins takes turns, too.
func (b *bench) measure(ctx context.Context, c *benchCase, only string) (map[string]map[string]spread, error) {
	all := map[string]map[string][]float64{}
	for i := range b.rounds {
		sides := slices.Clone(c.Sides)
		if i%2 == 1 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if only != "" && side != only {
				continue
			}
			began := time.Now()
			got, err := b.once(ctx, c, side, fmt.Sprintf("%s-%s-%d", c.Name, side, i+1))
			if err != nil {
				return nil, fmt.Errorf("%s, round %d: %w", side, i+1, err)
			}
			var words []string
			for _, f := range figureRows {
				if v, ok := got[f.key]; ok {
					words = append(words, fmt.Sprintf("%s "+f.format, f.key, v))
				}
			}
			say("%s, %s, round %d (%s): %s", c.Name, side, i+1, time.Since(began).Round(time.Second), strings.Join(words, ", "))
			if all[side] == nil {
				all[side] = map[string][]float64{}
			}
			for k, v := range got { // order: into a map
				all[side][k] = append(all[side][k], v)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("it has the sides %s alone", strings.Join(c.Sides, ", "))
	}
	out := map[string]map[string]spread{}
	for side, figures := range all { // order: into a map
		out[side] = map[string]spread{}
		for k, v := range figures { // order: into a map
			out[side][k] = spreadOf(k, v)
		}
	}
	return out, nil
}

// pids has the driver say what the lab and the given processes cost, by their names.
func pids(l *lab.Lab, more map[string]int) []string {
	list := "lab=" + strconv.Itoa(l.State().PID)
	for name, pid := range more { // order: the driver's own
		list += "," + name + "=" + strconv.Itoa(pid)
	}
	return []string{"-pids", list}
}

// drive runs the load driver; submitted is called when everything has been submitted and the driver waits.
func (b *bench) drive(ctx context.Context, args []string, submitted func() error) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, b.loadgen, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var text strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := out.Read(buf)
		text.Write(buf[:n])
		if submitted != nil && strings.Contains(text.String(), "submitted; waiting") {
			if err := submitted(); err != nil {
				_ = cmd.Process.Kill()
				return nil, errors.Join(err, cmd.Wait())
			}
			submitted = nil
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			_ = cmd.Process.Kill()
			return nil, errors.Join(err, cmd.Wait())
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the load driver: %w\n%s%s", err, text.String(), errs.String())
	}
	body := text.String()
	var report map[string]any
	if err := json.Unmarshal([]byte(body[max(0, strings.Index(body, "{")):]), &report); err != nil {
		return nil, fmt.Errorf("the load driver's report: %w\n%s", err, body)
	}
	// In the reclaim case only the second queue's pods, half of the cluster, are to be bound: the driver says whether they are.
	if whole := report["scenario"] != "reclaim"; report["ok"] != true || whole && report["bound"] != report["pods"] {
		return nil, fmt.Errorf("not everything was bound: %s", body)
	}
	got := map[string]float64{}
	for k, v := range report {
		if f, ok := v.(float64); ok {
			got[k] = f
		}
	}
	return got, nil
}

// poll is how often what cannot be watched simply is looked at.
const poll = 200 * time.Millisecond
