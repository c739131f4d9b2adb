package ui

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/kubetest"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/sim"
)

// roleOf is the variable by which the benchmark has a process of its own be the role: where the scheduler serves its cycles, its certificate, a folder for the journal, and the time between forecasts.
const roleOf = "MUSTER_BENCH_ROLE"

// TestRoleProcess is no test: it is the role, in a process of its own, for BenchmarkRole. It answers at the address that it prints, until its input ends.
func TestRoleProcess(t *testing.T) {
	t.Parallel()
	at := strings.Fields(os.Getenv(roleOf))
	if len(at) != 4 {
		t.Skip("it is a part of BenchmarkRole")
	}
	every, err := time.ParseDuration(at[3])
	if err != nil {
		t.Fatal(err)
	}
	app.CollectAt(GCPercent, GCFloor) // as muster has it for this role
	groups[sim.Key("").Face] = []string{groupWork}
	j, err := journal.Open(journal.Options{Folder: at[2]})
	if err != nil {
		t.Fatal(err)
	}
	f := &Following{
		Shards: func(context.Context) ([]string, error) { return []string{""}, nil },
		Find: func(context.Context, string) (cycles.Place, error) {
			return cycles.Place{URL: at[0], Fingerprint: at[1]}, nil
		},
		Token: func() (string, error) { return "t", nil }, Registry: func(bool) engine.Registry { return builtin.Registry() }, Log: logr.Discard(), Journal: j,
		ForecastEvery: every,
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = f.Run(ctx) })
	all.Go(func() {
		_ = New(f, usual(), logr.Discard(), nil).Keeping(j, f.Outlook).Judging(f.Known).Serve(ctx, l, nil)
	})
	fmt.Printf("role http://%s\n", l.Addr())
	_, _ = bufio.NewReader(os.Stdin).ReadString(0)
	cancel()
	all.Wait()
	_ = j.Close()
}

// BenchmarkRole is what the role costs beside a scheduler of 500 nodes that are full, for whose GPUs 2,000 gangs of 50 shapes wait and where gangs come and end with a cycle each second: how long it takes until one who asks why a gang waits has the
// answer (median, and 99th percentile), how old the cycles are that answers are of (the oldest), and the most memory that the role's process, which is of its own, has had (MiB), its journal among it. Its copy of PodGroups' metadata is not in it.
func BenchmarkRole(b *testing.B) {
	beside(b, roleCity{nodes: 500, runs: 500, gpus: 8, waits: 2000})
}

// BenchmarkRoleForecasts is the same with a forecast every ten seconds: one is made all the time, where by default it is every ten minutes.
func BenchmarkRoleForecasts(b *testing.B) {
	beside(b, roleCity{nodes: 500, runs: 500, gpus: 8, waits: 2000, forecasts: 10 * time.Second})
}

// BenchmarkRoleLarge is the same beside 5,000 nodes with 50,000 pods: 20,000 that run, and those of 10,000 gangs that wait.
func BenchmarkRoleLarge(b *testing.B) {
	beside(b, roleCity{nodes: 5000, runs: 20_000, gpus: 2, waits: 10_000})
}

// roleCity is a cluster of so many nodes of eight GPUs, of pods that run, of so many GPUs each, and of gangs that wait; and the time between two forecasts, 0 for the usual one.
type roleCity struct {
	nodes, runs, gpus, waits int
	forecasts                time.Duration
}

func beside(b *testing.B, city roleCity) {
	if testing.Short() {
		b.Skip("it takes half a minute")
	}
	w, stream, send, step, waits := city.build(b)
	server, err := cycles.NewServer(stream, everybody{})
	if err != nil {
		b.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	all.Go(func() { _ = server.Run(ctx, l) })
	all.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case at := <-tick.C:
				send("comes", 1, 1, time.Minute)
				if w.Now().Time().Before(at) {
					step(at)
				}
			}
		}
	})
	role := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestRoleProcess$", "-test.v")
	role.Env = append(os.Environ(), fmt.Sprintf("%s=https://%s %s %s %s", roleOf, l.Addr(), server.Fingerprint(), b.TempDir(), cmp.Or(city.forecasts, 10*time.Minute)))
	in, err := role.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := role.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := role.Start(); err != nil {
		b.Fatal(err)
	}
	address := ""
	lines := bufio.NewScanner(out)
	for address == "" && lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), "role http"); ok {
			address = "http" + at
		}
	}
	ask := func(name string) *see.Explanation {
		r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, address+API+"/namespaces/sim/gangs/"+name, nil)
		if err != nil {
			b.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer ada")
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		defer w.Body.Close()
		e := &see.Explanation{}
		if w.StatusCode != http.StatusOK || json.NewDecoder(w.Body).Decode(e) != nil {
			return nil
		}
		return e
	}
	var took []time.Duration
	oldest := 0.0
	pause := time.NewTicker(50 * time.Millisecond) // 20 questions a second: several looks' worth of cycles come
	defer pause.Stop()
	for guard := time.After(3 * time.Minute); ask(waits[city.waits-1]) == nil; { // until it follows
		select {
		case <-pause.C:
		case <-guard:
			b.Fatal("the role does not answer")
		}
	}
	for i := 0; b.Loop(); i++ {
		at := time.Now()
		if e := ask(waits[(i*37+1500)%city.waits]); e != nil {
			took = append(took, time.Since(at))
			oldest = max(oldest, e.Cycle.AgeSeconds)
		}
		<-pause.C
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", role.Process.Pid))
	if err != nil {
		b.Skip("no /proc here")
	}
	for line := range bytes.Lines(status) {
		if text, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			n, _ := strconv.Atoi(string(bytes.Fields(text)[0]))
			b.ReportMetric(float64(n)/1024, "MiB")
		}
	}
	_ = in.Close()
	cancel()
	_ = role.Wait()
	all.Wait()
	slices.Sort(took)
	b.ReportMetric(0, "ns/op") // the pauses between questions
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
	b.ReportMetric(oldest, "s-oldest")
	b.ReportMetric(float64(len(took)), "answers")
}

// build makes the cluster, with a scheduler whose cycles the stream has. send submits a gang, step lives on, and waits are the names of the gangs that wait.
func (city roleCity) build(b *testing.B) (w *sim.Cluster, stream *replay.Stream, send func(name string, pods int, gpus int64, took time.Duration), step func(time.Time), waits []string) {
	b.Helper()
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		b.Fatal(err)
	}
	stream = replay.NewStream("v1", profile.BuiltIn(), false)
	w = sim.NewCluster(sim.Options{Engine: e, Start: time.Now(), Check: func(snap *cluster.Snapshot, plans []engine.Plan, _ *engine.Trace) error {
		stream.Decided(snap, plans)
		return nil
	}})
	random := rand.New(rand.NewPCG(1, 2))
	made := 0
	send = func(name string, pods int, gpus int64, took time.Duration) {
		made++
		if err := w.Submit(sim.Gang{Name: fmt.Sprintf("%s-%d", name, made), Queue: string(rune('a' + made%4)), Pods: pods, Requests: sim.Room(gpus*1000, 1000, 1<<30, 1), Priority: 50, Duration: took}); err != nil {
			b.Error(err)
		}
	}
	for i := range city.nodes {
		if err := w.AddNode(sim.Node{Name: fmt.Sprintf("node-%04d", i), Allocatable: sim.Room(8000, 128_000, 1<<40, 250)}); err != nil {
			b.Fatal(err)
		}
	}
	for _, q := range []string{"a", "b", "c", "d"} {
		w.Store.Apply(cluster.QueueState{Name: q, UID: q, Priority: 100, Created: w.Now(), Weight: []cluster.Quantity{{Name: "gpu", Value: 1000}}, Quota: []cluster.Quantity{
			{Name: "gpu", Value: int64(2000 * city.nodes)}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited},
		}})
	}
	for range city.runs {
		send("runs", 1, int64(city.gpus), time.Duration(random.ExpFloat64()*float64(15*time.Minute)))
	}
	step = func(to time.Time) {
		err := w.Advance(cluster.InstantOf(to))
		if err == nil {
			_, err = w.Decide(b.Context())
		}
		if err != nil && b.Context().Err() == nil {
			b.Error(err)
		}
	}
	step(w.Now().Time().Add(time.Second))
	for i := range city.waits {
		shape := i % 50
		send("waits", 1+shape%5, int64(1+shape/5%8), 10*time.Minute)
		waits = append(waits, fmt.Sprintf("waits-%d", made))
	}
	step(w.Now().Time().Add(time.Second))
	return w, stream, send, step, waits
}

// BenchmarkKept is what the role keeps of a cluster in which 50 pods for each 20 that run wait, in bytes for each pod: what a follower and the journal's have of the cycle, what a cycle that was decided on again adds, and what
// explanations of all shapes add to that. Nothing of it is timed, and it does not depend on the machine.
func BenchmarkKept(b *testing.B) {
	city := roleCity{nodes: 500, runs: 2000, gpus: 2, waits: 1000}
	var line []byte
	var gangs []string
	func() {
		_, stream, _, _, waits := city.build(b)
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		_ = stream.Follow(ctx, func(text []byte) error {
			line = bytes.Clone(text)
			cancel()
			return nil
		})
		gangs = waits
	}()
	pods := 0.0
	for b.Loop() {
		began := kubetest.Held()
		entry, err := replay.ReadEntry(line)
		if err != nil {
			b.Fatal(err)
		}
		var client, journals replay.Follower
		for _, f := range []*replay.Follower{&client, &journals} {
			if _, err := f.Add(entry); err != nil {
				b.Fatal(err)
			}
		}
		followed := kubetest.Held()
		c := &see.Cycle{Case: client.Case(), Registry: builtin.Registry()}
		run, err := c.Look(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		looked := kubetest.Held()
		for _, name := range gangs[:50] {
			if _, err := see.Explain(b.Context(), c, sim.Key(name)); err != nil {
				b.Fatal(err)
			}
		}
		explained := kubetest.Held()
		pods = float64(run.Snapshot().MaxPodID())
		b.ReportMetric((followed-began)/pods, "B/pod-followed")
		b.ReportMetric((looked-followed)/pods, "B/pod-looked")
		b.ReportMetric((explained-looked)/pods, "B/pod-explained")
		runtime.KeepAlive(c)
		runtime.KeepAlive(&client)
		runtime.KeepAlive(&journals)
	}
	b.ReportMetric(0, "ns/op")
}
