// Command bench measures whole cases (cases.yaml) on a lab: `muster run all` as one process, the lab as another, and the
// load driver in shared/loadgen beside the checkout as a third. It prints the median and the worst of its runs against what
// each case should reach, and fails when a run did not end in the state it should. The case "installed" is measured by turns with
// Muster as the chart installs it and in one process, and is left out unless it is asked for.
//
// Arguments after the flags are the load driver's, besides those of the case: -nodes 20 -size 50 makes a case small.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/lab"
)

//go:embed cases.yaml
var casesYAML []byte

// benchCase is one row of cases.yaml.
type benchCase struct {
	Name     string   `json:"name"`
	About    string   `json:"about"`
	Scenario string   `json:"scenario"`
	Args     []string `json:"args,omitempty"`
	Prepared bool     `json:"prepared,omitempty"`
	// Layout is how the nodes nest, widest domains first: [4, 8, 2] is 4 zones of 8 racks of 2 nodes. Prefer is the level,
	// by its number from 1 on, that the Jobs prefer. Everything is submitted first; then Muster starts, all of it.
	Layout []int              `json:"layout,omitempty"`
	Prefer int                `json:"prefer,omitempty"`
	Reach  map[string]float64 `json:"reach"`
	// Installed: by turns as the chart installs Muster, and in one process on the same lab. Reach has a ratio of the two.
	Installed bool `json:"installed,omitempty"`
}

// bench is what cases are measured with.
type bench struct {
	dir     string   // everything that is written lies below it
	bin     string   // folder of the programs
	images  string   // folder of the images' archives
	loadgen string   // the load driver, built
	load    []string // further arguments of it
	runs    int
	json    bool
}

func main() {
	only := flag.String("case", "", "only this case")
	var b bench
	flag.IntVar(&b.runs, "runs", 5, "runs of each case")
	flag.StringVar(&b.bin, "bin", "bin", "folder of muster and muster-lab (make build), and for the case installed of realnode and helm-install (make bench-installed)")
	flag.StringVar(&b.images, "images", filepath.Join("dist", "node"), "folder of the images' archives, for the case installed")
	driver := flag.String("loadgen", "../shared/loadgen", "source of the load driver")
	output := flag.String("o", "table", "table or json, for the case installed")
	flag.Parse()
	b.load, b.json = flag.Args(), *output == "json"
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case b.runs < 1:
		err = fmt.Errorf("-runs %d: there has to be one", b.runs)
	case *output != "table" && *output != "json":
		err = fmt.Errorf("-o %s: it is table or json", *output)
	default:
		err = b.all(ctx, *only, *driver)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// all measures all cases, or only one, by its name.
func (b *bench) all(ctx context.Context, only, driver string) (err error) {
	var file struct {
		Cases []benchCase `json:"cases"`
	}
	if err := yaml.UnmarshalStrict(casesYAML, &file); err != nil {
		return fmt.Errorf("cases.yaml: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "muster-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if _, err := os.Stat(driver); err != nil {
		return fmt.Errorf("the load driver is not there (%w); these cases need it beside the checkout", err)
	}
	b.loadgen = filepath.Join(b.dir, "loadgen")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.loadgen, ".")
	build.Dir = driver
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the load driver: %w\n%s", err, out)
	}
	found := false
	for _, c := range file.Cases {
		if only != "" && c.Name != only || only == "" && c.Installed {
			continue
		}
		found = true
		if c.Installed {
			if err := b.compare(ctx, &c); err != nil {
				return fmt.Errorf("%s: %w", c.Name, err)
			}
			continue
		}
		fmt.Printf("%s: %s\n", c.Name, c.About)
		all := map[string][]float64{}
		for i := range b.runs {
			got, err := b.once(ctx, &c, filepath.Join(b.dir, fmt.Sprintf("%s-%d", c.Name, i)))
			if err != nil {
				return fmt.Errorf("%s, run %d: %w", c.Name, i+1, err)
			}
			fmt.Printf("  run %d: all bound after %.1f s, first after %.2f s; muster %.1f CPU-s, %.0f MB; lab %.1f CPU-s\n", i+1,
				got["all_bound_s"], got["first_bound_s"], got["cpu_s_muster"], got["rss_mb_muster"], got["cpu_s_lab"])
			for k, v := range got {
				all[k] = append(all[k], v)
			}
		}
		for _, k := range slices.Sorted(maps.Keys(c.Reach)) {
			v := all[k]
			slices.Sort(v)
			verdict := "reached"
			if v[len(v)/2] > c.Reach[k] {
				verdict = "NOT reached"
			}
			fmt.Printf("  %-14s median %.1f, worst %.1f, reach %.1f: %s\n", k, v[len(v)/2], v[len(v)-1], c.Reach[k], verdict)
		}
	}
	if !found {
		return fmt.Errorf("no case %q", only)
	}
	return nil
}

// muster starts one role of Muster, or all of them, as a process of this machine.
func (b *bench) muster(l *lab.Lab, role string) (*exec.Cmd, error) {
	cmd := exec.Command(filepath.Join(b.bin, "muster"), "run", role, "--kubeconfig", l.Kubeconfig(), "--qps", "3000", "--burst", "6000")
	if role == "all" {
		cmd.Args = append(cmd.Args, "--listen-address", "0", "--health-probe-bind-address", "0")
	} else {
		cmd.Args = append(cmd.Args, "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	}
	log, err := os.Create(filepath.Join(l.Dir(), role+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, cmd.Start()
}

// once runs a case on a fresh lab and returns the numbers of the driver's report.
func (b *bench) once(ctx context.Context, c *benchCase, dir string) (map[string]float64, error) {
	l, err := lab.Start(ctx, lab.Options{Dir: dir, Binary: filepath.Join(b.bin, "muster-lab"), CRDs: crdDocuments()})
	if err != nil {
		return nil, err
	}
	defer l.Stop() //nolint:errcheck // the folder goes anyway
	err = priorityClass(ctx, l)
	if err != nil {
		return nil, err
	}
	args := append([]string{"-kubeconfig", l.Kubeconfig(), "-scenario", c.Scenario}, c.Args...)
	if !c.Prepared && c.Layout == nil {
		m, err := b.muster(l, "all")
		if err != nil {
			return nil, err
		}
		defer end(m)
		return b.drive(ctx, append(args, pids(l, map[string]int{"muster": m.Process.Pid})...), nil)
	}
	var grouper, m *exec.Cmd
	if c.Layout == nil {
		if grouper, err = b.muster(l, "podgrouper"); err != nil {
			return nil, err
		}
	}
	defer func() {
		if m != nil {
			end(m)
		}
	}()
	resume := filepath.Join(dir, "resume")
	return b.drive(ctx, append(args, append(pids(l, nil), "-resume", resume)...), func() error {
		if c.Layout != nil {
			if err := layOut(ctx, l, c); err != nil {
				return err
			}
		} else {
			if err := grouped(ctx, l); err != nil {
				return err
			}
			end(grouper)
		}
		var err error
		if m, err = b.muster(l, "all"); err != nil {
			return err
		}
		return os.WriteFile(resume, nil, 0o600)
	})
}

// pids has the driver say what the lab and the given processes cost, by their names.
func pids(l *lab.Lab, more map[string]int) []string {
	list := "lab=" + strconv.Itoa(l.State().PID)
	for name, pid := range more { // order: the driver's own
		list += "," + name + "=" + strconv.Itoa(pid)
	}
	return []string{"-pids", list}
}

func end(c *exec.Cmd) {
	_ = c.Process.Signal(syscall.SIGTERM)
	_ = c.Wait()
}

// drive runs the load driver; submitted is called when everything has been submitted and the driver waits.
func (b *bench) drive(ctx context.Context, args []string, submitted func() error) (map[string]float64, error) {
	cmd := exec.CommandContext(ctx, b.loadgen, append(args, b.load...)...)
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
			return nil, err
		}
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("the load driver: %w\n%s%s", err, text.String(), errs.String())
	}
	body := text.String()
	var report map[string]any
	if err := json.Unmarshal([]byte(body[strings.Index(body, "{"):]), &report); err != nil {
		return nil, fmt.Errorf("the load driver's report: %w\n%s", err, body)
	}
	// In the reclaim case only the second queue's pods, half of the cluster, are to be bound: the driver says whether they are.
	if whole := !strings.Contains(body, `"scenario": "reclaim"`); report["ok"] != true || whole && report["bound"] != report["pods"] {
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
