package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	vccrds "github.com/muster-scheduler/muster/api/volcano/crds"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/lab"
)

// The sides of a comparison.
const (
	sideMuster = "muster"
	sideKube   = "kube-scheduler"
	// sideAlone is Muster without the role ui, in a case that has it beside.
	sideAlone = "muster alone"
	// sideBare is nobody: this program gives the pods nodes, and of Volcano's Jobs makes what Muster would, as fast as the API server takes it.
	sideBare = "bare"
)

const (
	// labPatience is how long a lab of thousands of nodes may take to be there, bindPatience how long all pods may take to have a node.
	labPatience  = 10 * time.Minute
	bindPatience = 45 * time.Minute
	// restEvery is how often one looks whether all that trails is written; restPatience how long that may take.
	restEvery    = 3 * time.Second
	restPatience = 3 * time.Minute
)

// isMuster says whether a side is of Muster's.
func isMuster(side string) bool { return side == sideMuster || side == sideAlone }

// mark is what was at a moment.
type mark struct {
	at          time.Time
	revision    int64   // etcd's
	cpu, labCPU float64 // seconds so far
	controllers float64 // the same of Volcano's controllers
}

// trial is one run of a case, with one scheduler, on a fresh lab.
type trial struct {
	b    *bench
	c    *benchCase
	side string
	tag  string // tells its files from others'

	lab   *lab.Lab
	o     *observer
	sched *child
	// controllers are Volcano's, beside the scheduler; nil where its face is off.
	controllers *child
	// beside is the role ui, runs the scheduler's; nil but in a case that has the role beside.
	beside *child
	runs   *runSampler
	hands  func()                  // ends what bare does in reclaim; nil elsewhere
	stop   context.CancelCauseFunc // of the trial, when the scheduler ends by itself
	port   int                     // of its profiles; 0: none
	// besidePort is likewise of the role beside it, controllersPort of Volcano's controllers.
	besidePort, controllersPort int

	begin    mark
	profiled sync.WaitGroup
	requests map[string]float64 // at the beginning
	failed   error              // of the profiles, valid when profiled has been waited for
	mu       sync.Mutex         // of failed
}

// once runs a case with one scheduler and returns its figures.
func (b *bench) once(ctx context.Context, c *benchCase, side, tag string) (out map[string]float64, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(err, cause) {
			err = errors.Join(cause, err)
		}
	}()
	t := &trial{b: b, c: c, side: side, tag: tag, stop: stop}
	dir := filepath.Join(b.dir, tag)
	defer os.RemoveAll(dir) // a large lab's data are gigabytes
	o := lab.Options{Dir: dir, Binary: filepath.Join(b.bin, "muster-lab"), CRDs: crdDocuments()}
	if c.Scenario == "" {
		o.Fleet = lab.Fleet{Pools: []lab.Pool{{Name: "gpu", Prefix: "node-", Count: c.Nodes, GPUs: gpusPerNode, Pods: 256, Racks: c.Racks}}}
	}
	if c.volcano() {
		for _, f := range vccrds.All() {
			o.CRDs = append(o.CRDs, f.YAML)
		}
	}
	if c.Load == "vcjobs" {
		o.Fleet.Pools[0].GPUs, o.Fleet.Pools[0].CPU, o.Fleet.Pools[0].Memory = 0, "32", "128Gi"
	}
	if c.Load == "groups" {
		o.Fleet.Pools[0].GPUs, o.Fleet.Pools[0].CPU, o.Fleet.Pools[0].Memory, o.Fleet.Pools[0].Pods = 0, "4", "32Gi", 110
		o.FeatureGates, o.APIServerArgs = groupGates, []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"}
	}
	late := time.AfterFunc(labPatience, func() { stop(fmt.Errorf("the lab is not ready after %s", labPatience)) })
	t.lab, err = lab.Start(ctx, o)
	late.Stop()
	if err != nil {
		return nil, err
	}
	defer t.lab.Stop() //nolint:errcheck // the folder goes anyway
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	prefix := ""
	switch {
	case c.Scenario == "reclaim" || c.Load == "reclaim":
		prefix = takers
	case c.Load == "groups":
		prefix = "gang-"
	}
	first := t.mark
	if c.Prepared {
		first = nil
	}
	if t.o, err = watchPods(ctx, t.lab.Client(), prefix, first); err != nil {
		return nil, err
	}
	defer t.o.stop()
	defer func() {
		if t.hands != nil {
			t.hands()
		}
	}()
	defer func() {
		for _, c := range []*child{t.beside, t.sched, t.controllers} {
			if c != nil {
				c.end()
			}
		}
	}()
	loads := map[string]func(context.Context) (map[string]float64, error){"": t.drive, "churn": t.churn, "large": t.large, "racks": t.racks, "reclaim": t.reclaim, "groups": t.groups, "vcjobs": t.vcjobs}
	if side == sideBare && c.Load == "vcjobs" {
		return t.bare(ctx)
	}
	return loads[c.Load](ctx)
}

// prepare makes the namespaces, and waits until pods can be made in them, and the objects that Muster's installations have.
func (t *trial) prepare(ctx context.Context) error {
	names := []string{space, others}
	if t.c.volcano() {
		names = append(names, vckeys.Namespace)
	}
	for _, name := range names {
		if err := namespace(ctx, t.lab, name); err != nil {
			return err
		}
		err := await(ctx, "pods can be made in namespace "+name, func() (string, error) {
			_, err := t.lab.Client().CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return "its ServiceAccount is not there", nil
			}
			return "", err
		})
		if err != nil {
			return err
		}
	}
	return installation(ctx, t.lab)
}

// start starts the scheduler.
func (t *trial) start(ctx context.Context) (err error) {
	if isMuster(t.side) {
		if t.b.profile != "" {
			if t.port, err = freePort(); err != nil {
				return err
			}
		}
		switch {
		case t.c.Seen:
			err = t.startSeen(ctx)
		case t.c.volcano():
			if t.b.profile != "" {
				if t.controllersPort, err = freePort(); err != nil {
					return err
				}
			}
			if t.controllers, err = t.b.muster(t.lab, volcanoControllers, t.controllersPort); err != nil {
				return err
			}
			t.sched, err = t.b.muster(t.lab, "all", t.port, "--volcano-scheduler-name", vckeys.SchedulerName)
		default:
			t.sched, err = t.b.muster(t.lab, "all", t.port)
		}
	} else {
		gates := ""
		if t.c.Load == "groups" {
			gates = groupGates
		}
		t.sched, err = t.b.kubeScheduler(t.lab, gates)
	}
	if err != nil {
		t.sched = nil
		return err
	}
	for _, c := range []*child{t.sched, t.controllers} {
		if c == nil {
			continue
		}
		go func() {
			<-c.done
			if !c.wanted.Load() {
				t.stop(c.ended())
			}
		}()
	}
	return nil
}

// startMarked starts the scheduler of a case in which all pods are there already: that is the beginning.
func (t *trial) startMarked(ctx context.Context) error {
	before, err := t.revision(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	if err := t.start(ctx); err != nil {
		return err
	}
	t.mark(at, before)
	return nil
}

// mark is the beginning of what is measured.
func (t *trial) mark(at time.Time, before int64) {
	t.begin = mark{at: at, revision: before, labCPU: cpuOf(t.lab.State().PID)}
	if t.sched != nil {
		t.begin.cpu = cpuOf(t.sched.pid())
	}
	if t.controllers != nil {
		t.begin.controllers = cpuOf(t.controllers.pid())
	}
	if t.b.profile != "" {
		t.profile()
	}
}

// revision is etcd's.
func (t *trial) revision(ctx context.Context) (int64, error) {
	list, err := t.lab.Client().CoreV1().Namespaces().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	n, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read etcd's revision: %w", err)
	}
	return n, nil
}

// rest waits until nothing is written any more but for Leases, and returns etcd's revision then.
func (t *trial) rest(ctx context.Context) (int64, error) {
	most := int64(3 + t.c.Nodes/150) // Leases of API servers and played nodes, each renewed within ten minutes
	if t.c.Seen {
		most += 20 * int64(restEvery/time.Second) // by the Leases of Muster's roles
	}
	began := time.Now()
	last, err := t.revision(ctx)
	for quiet := 0; err == nil && quiet < 2; {
		select {
		case <-time.After(restEvery):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		var now int64
		if now, err = t.revision(ctx); err != nil {
			break
		}
		if quiet++; now-last > most {
			quiet = 0
		}
		if quiet == 0 && time.Since(began) > restPatience {
			return 0, fmt.Errorf("wait until all that trails is written: there were %d writes in the last %s after %s, want at most %d", now-last, restEvery, restPatience, most)
		}
		last = now
	}
	return last, err
}

// finish is called when all has been bound, and measures once all that trails is written.
func (t *trial) finish(ctx context.Context) (map[string]float64, error) {
	took, since := cpuOf(t.lab.State().PID)-t.begin.labCPU, time.Since(t.begin.at)
	if t.sched != nil {
		took += cpuOf(t.sched.pid()) - t.begin.cpu
	}
	if t.controllers != nil {
		took += cpuOf(t.controllers.pid()) - t.begin.controllers
	}
	end, err := t.rest(ctx)
	if err != nil {
		return nil, err
	}
	pods, n := t.o.seen()
	out, err := measure(pods, t.begin.at)
	if err != nil {
		return nil, err
	}
	if t.sched != nil {
		out["cpu_s"] = cpuOf(t.sched.pid()) - t.begin.cpu
		out["rss_mib"] = memoryOf(t.sched.pid(), "VmHWM")
	}
	out["busy_pct"] = 100 * took / since.Seconds() / float64(runtime.NumCPU())
	out["revisions_per_pod"] = float64(end-t.begin.revision-int64(n.ran)) / float64(n.made)
	out["lab_cpu_s"] = cpuOf(t.lab.State().PID) - t.begin.labCPU
	if t.runs != nil {
		delete(out, "revisions_per_pod") // Leases are in it
		mean, p99 := t.runs.end()
		out["run_mean_ms"], out["run_p99_ms"] = 1000*mean, 1000*p99
	}
	if t.beside != nil {
		if err := errors.Join(t.beside.ended(), t.followed()); err != nil {
			return nil, err
		}
		out["beside_cpu_s"] = cpuOf(t.beside.pid())
	}
	if t.controllers != nil {
		out["cpu_s"] += cpuOf(t.controllers.pid()) - t.begin.controllers
		out["rss_mib"] += memoryOf(t.controllers.pid(), "VmHWM")
	}
	if t.b.profile != "" {
		return out, t.endProfile(ctx)
	}
	return out, nil
}

// profile begins with the profiles of the processor, and counts the requests so far.
func (t *trial) profile() {
	ctx := context.Background() // it ends after profileSeconds, or with the processes
	note := func(err error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.failed = errors.Join(t.failed, err)
	}
	for name, get := range t.getters(ctx) { // order: side by side
		t.profiled.Go(func() {
			var err error
			for range 50 { // who has just been started does not answer yet
				if err = t.keep(name+"-cpu.pprof", get, "/debug/pprof/profile?seconds="+strconv.Itoa(profileSeconds)); err == nil {
					return
				}
				time.Sleep(poll)
			}
			note(err)
		})
	}
	t.profiled.Go(func() {
		var err error
		t.requests, err = t.served(ctx)
		note(err)
	})
}

// endProfile adds the profiles of memory, and what was asked of the API server meanwhile.
func (t *trial) endProfile(ctx context.Context) error {
	t.profiled.Wait()
	if t.failed != nil {
		return t.failed
	}
	for name, get := range t.getters(ctx) { // order: each a file of its own
		if err := t.keep(name+"-heap.pprof", get, "/debug/pprof/heap"); err != nil {
			return err
		}
	}
	now, err := t.served(ctx)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if n := now[k] - t.requests[k]; n != 0 {
			fmt.Fprintf(&b, "%8.0f %s\n", n, k)
		}
	}
	return os.WriteFile(filepath.Join(t.b.profile, t.tag+"-requests.txt"), []byte(b.String()), 0o644)
}

// served is how many requests the lab's API server has served so far, by verb and resource.
func (t *trial) served(ctx context.Context) (map[string]float64, error) {
	text, err := t.lab.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("count the requests: %w", err)
	}
	return requestsOf(string(text)), nil
}

// requestsOf reads them from the API server's metrics.
func requestsOf(text string) map[string]float64 {
	out := map[string]float64{}
	for line := range strings.Lines(text) {
		labels, ok := strings.CutPrefix(line, "apiserver_request_total{")
		if !ok {
			continue
		}
		label := func(name string) string {
			_, rest, _ := strings.Cut(","+labels, ","+name+`="`)
			value, _, _ := strings.Cut(rest, `"`)
			return value
		}
		what := label("verb") + " " + label("resource")
		if sub := label("subresource"); sub != "" {
			what += "/" + sub
		}
		f := strings.Fields(line)
		n, err := strconv.ParseFloat(f[len(f)-1], 64)
		if err != nil {
			continue
		}
		out[what] += n
	}
	return out
}

// drive runs the load driver.
func (t *trial) drive(ctx context.Context) (map[string]float64, error) {
	c := t.c
	args := append([]string{"-kubeconfig", t.lab.Kubeconfig()}, c.driverArgs(t.side)...)
	var submitted func() error
	var helper *child
	defer func() {
		if helper != nil {
			helper.end()
		}
	}()
	switch {
	case !c.Prepared:
		if err := t.start(ctx); err != nil {
			return nil, err
		}
	default:
		resume := filepath.Join(t.lab.Dir(), "resume")
		args = append(args, "-resume", resume)
		if c.Layout == nil && isMuster(t.side) {
			var err error
			if helper, err = t.b.muster(t.lab, "podgrouper", 0); err != nil {
				return nil, err
			}
		}
		submitted = func() error {
			if c.Layout != nil {
				if err := layOut(ctx, t.lab, c); err != nil {
					return err
				}
			}
			err := t.o.wait(ctx, "all pods are made", bindPatience, helper, func(n counts) bool { return n.made >= c.pods() })
			if err == nil && helper != nil {
				err = await(ctx, "every pod is in a gang", func() (string, error) { return grouped(ctx, t.lab) })
				helper.end()
				helper = nil
			}
			if err == nil {
				err = t.startMarked(ctx)
			}
			if err != nil {
				return err
			}
			return os.WriteFile(resume, nil, 0o600)
		}
	}
	report, err := t.b.drive(ctx, args, submitted)
	if err != nil {
		return nil, err
	}
	if err := t.o.wait(ctx, "the observer sees what the load driver saw", time.Minute, t.sched, func(n counts) bool { return n.bound >= c.pods() }); err != nil {
		return nil, err
	}
	out, err := t.finish(ctx)
	if err == nil {
		out["driver_s"] = report["all_bound_s"]
	}
	return out, err
}
