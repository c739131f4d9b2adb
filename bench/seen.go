package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// sampleEvery is how often the scheduler's metrics are read where runs are measured. A run that takes longer is seen by itself.
const sampleEvery = 50 * time.Millisecond

// role makes the service account of the role ui, with its rights as an installation gives them, and starts the role. It follows the scheduler, keeps its journal and makes its forecasts; nobody asks it.
func (t *trial) role(ctx context.Context) (*child, error) {
	may := install.Rules(install.UI)
	path, err := t.lab.AddAccount(ctx, lab.Account{
		Namespace: home, Name: install.Name(install.UI), Cluster: may.Cluster, In: map[string][]rbacv1.PolicyRule{home: may.Home},
	})
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	args := []string{
		"run", install.UI, "--kubeconfig", path, "--metrics-bind-address", "0", "--health-probe-bind-address", "0",
		"--ui-listen-address", fmt.Sprintf("127.0.0.1:%d", port), "--journal-folder", t.journal(),
	}
	if t.b.profile != "" {
		if t.besidePort, err = freePort(); err != nil {
			return nil, err
		}
		args = append(args, "--enable-profiler", "--profiler-port", strconv.Itoa(t.besidePort))
	}
	return startChild("muster run "+install.UI, filepath.Join(t.lab.Dir(), "role.log"), filepath.Join(t.b.bin, "muster"), args...)
}

// startSeen starts the scheduler of a case that has the role ui beside it on one side, and measures its runs on both.
func (t *trial) startSeen(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	metrics := fmt.Sprintf("127.0.0.1:%d", port)
	args := []string{"--leader-elect", "--listen-address", metrics}
	if t.side == sideMuster {
		if port, err = freePort(); err != nil {
			return err
		}
		args = append(args, "--cycle-listen-address", fmt.Sprintf("127.0.0.1:%d", port))
	}
	if t.sched, err = t.b.muster(t.lab, "all", t.port, args...); err != nil {
		return err
	}
	if t.side == sideMuster {
		if t.beside, err = t.role(ctx); err != nil {
			return err
		}
	}
	t.runs = sampleRuns(ctx, func() (seconds, count float64, ok bool) {
		text, err := get(ctx, "http://"+metrics+"/metrics")
		if err != nil {
			return 0, 0, false
		}
		return runsOf(string(text))
	})
	return nil
}

// followed is an error if the role's journal has nothing of note: it would have cost nothing because it followed nobody.
func (t *trial) followed() error {
	const least = 10 << 10
	files, err := os.ReadDir(t.journal())
	if err != nil {
		return fmt.Errorf("the role's journal: %w", err)
	}
	bytes := int64(0)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			bytes += info.Size()
		}
	}
	if bytes < least {
		return fmt.Errorf("the role followed nobody: its journal has %d bytes, want %d", bytes, least)
	}
	return nil
}

func (t *trial) journal() string { return filepath.Join(t.lab.Dir(), "journal") }

// runSampler reads how many runs there were, and how long they took together, again and again.
type runSampler struct {
	stop context.CancelFunc
	done sync.WaitGroup
	runs []runSample // valid when done
}

// runSample are runs of which only the sum of their times is known: one of them, if it took long enough to be seen by itself.
type runSample struct{ each, count float64 }

func sampleRuns(ctx context.Context, read func() (seconds, count float64, ok bool)) *runSampler {
	s := &runSampler{}
	ctx, s.stop = context.WithCancel(ctx)
	s.done.Go(func() {
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		var seconds, count float64
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			now, n, ok := read()
			if ok && n > count {
				s.runs = append(s.runs, runSample{(now - seconds) / (n - count), n - count})
				seconds, count = now, n
			}
		}
	})
	return s
}

// end returns the mean of all runs, and the time that 99 of 100 took at most, in seconds.
func (s *runSampler) end() (mean, p99 float64) {
	s.stop()
	s.done.Wait()
	return spreadOfRuns(s.runs)
}

func spreadOfRuns(runs []runSample) (mean, p99 float64) {
	all, sum := 0.0, 0.0
	for _, r := range runs {
		all, sum = all+r.count, sum+r.each*r.count
	}
	if all == 0 {
		return 0, 0
	}
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b runSample) int { return cmp.Compare(a.each, b.each) })
	seen := 0.0
	for _, r := range sorted {
		if seen += r.count; seen >= 0.99*all {
			return sum / all, r.each
		}
	}
	return sum / all, sorted[len(sorted)-1].each
}

// runsOf reads from the scheduler's metrics for how many seconds it has run, and how often.
func runsOf(text string) (seconds, count float64, ok bool) {
	const name = "muster_scheduler_run_seconds_"
	found := 0
	for line := range strings.Lines(text) {
		for what, into := range map[string]*float64{"sum": &seconds, "count": &count} { // order: one line is one of them
			if value, is := strings.CutPrefix(line, name+what+" "); is {
				n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
				if err != nil {
					return 0, 0, false
				}
				*into, found = n, found+1
			}
		}
	}
	return seconds, count, found == 2
}

// get asks an address of this machine's.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", req.URL.Path, resp.Status)
	}
	return io.ReadAll(resp.Body)
}
