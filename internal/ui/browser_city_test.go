//go:build browser

package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
	"github.com/muster-scheduler/muster/internal/sim"
)

// city is a simulated cluster of 500 nodes that lives on while it is looked at: gangs come, start, are evicted and end, and its scheduler serves each cycle to a Following, as a real one does.
type city struct {
	t      testing.TB
	world  *sim.Cluster
	stream *replay.Stream
	random *rand.Rand
	made   int
	live   atomic.Int64 // cycles since somebody may look

	outlook *see.Outlook

	mu    sync.Mutex
	works map[cluster.Key]see.Work
}

// cityNodes and cityPast are how large the city is, and how much of its life the journal has when it is first looked at.
const (
	cityNodes = 500
	cityPast  = 2 * time.Hour
	cityStep  = time.Minute
)

// cityQueues are its queues, each with its parent, its quota of GPUs, and its part of what is asked for.
var cityQueues = []struct {
	name, parent string
	quota        int64
	part         float64
}{
	{"company", "", 4000, 0},
	{"research", "company", 2000, 0},
	{"product", "company", 1500, 0},
	{"operations", "company", 500, 0},
	{"vision", "research", 800, 0.3},
	{"language", "research", 1200, 0.25},
	{"ranking", "product", 800, 0.2},
	{"speech", "product", 700, 0.1},
	{"nightly", "operations", 300, 0.1},
	{"notebooks", "operations", 200, 0.05},
}

// cityWork is what is sent: how its names begin, pods, GPUs of each pod, and how long it runs in the mean.
var cityWork = []struct {
	stem string
	pods int
	gpus int64
	took time.Duration
}{
	{"bert-pretrain", 8, 8, 3 * time.Hour},
	{"resnet-sweep", 4, 4, time.Hour},
	{"eval-suite", 1, 2, 20 * time.Minute},
	{"embed-index", 2, 8, 90 * time.Minute},
	{"tune-adapters", 1, 8, 2 * time.Hour},
	{"label-batch", 6, 1, 40 * time.Minute},
	{"distill", 16, 8, 4 * time.Hour},
	{"prep", 1, 1, 10 * time.Minute},
}

// newCity makes one, and lets it live until now.
func newCity(t testing.TB, j *journal.Journal, clock *atomic.Pointer[time.Time]) *city {
	t.Helper()
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	c := &city{t: t, stream: replay.NewStream("v1", profile.BuiltIn(), false), random: rand.New(rand.NewPCG(7, 11)), works: map[cluster.Key]see.Work{}}
	c.world = sim.NewCluster(sim.Options{
		Engine: e, Start: time.Now().Add(-cityPast).Truncate(time.Second), Cycle: time.Second, Grace: 20 * time.Second,
		Check: func(snap *cluster.Snapshot, plans []engine.Plan, _ *engine.Trace) error {
			c.stream.Decided(snap, plans)
			return nil
		},
	})
	for i := range cityNodes {
		n := sim.Node{Name: fmt.Sprintf("rack-%02d-node-%02d", i/20+1, i%20+1), Labels: map[string]string{"rack": fmt.Sprint(i/20 + 1), "gpu": "h100"}, Allocatable: sim.Room(8000, 128_000, 2<<40, 110)}
		if err := c.world.AddNode(n); err != nil {
			t.Fatal(err)
		}
		if i%97 == 50 { // somebody looks after it
			c.world.Store.Apply(cluster.NodeState{Name: n.Name, UID: n.Name, Labels: n.Labels, Allocatable: n.Allocatable, Problem: "Unschedulable"})
		}
	}
	for _, q := range cityQueues {
		unlimited := func(gpus int64) []cluster.Quantity {
			return []cluster.Quantity{{Name: "gpu", Value: gpus}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}
		}
		s := cluster.QueueState{Name: q.name, UID: q.name, Parent: q.parent, Priority: 100, Created: c.world.Now(), Quota: unlimited(q.quota * 1000), Weight: []cluster.Quantity{{Name: "gpu", Value: q.quota}}}
		if q.name == "notebooks" {
			s.Limit = unlimited(400_000)
		}
		c.world.Store.Apply(s)
	}
	for free := int64(4600); free > 0; { // it is full, and more waits
		free -= c.send(time.Duration(c.random.ExpFloat64() * float64(time.Hour)))
	}
	c.submit(sim.Gang{Name: "wide-pods-1", Queue: "vision", Pods: 2, Requests: sim.Room(9000, 8000, 64<<30, 1), Priority: 50}, see.Work{Kind: "Job", Stem: "wide-pods"})
	c.submit(sim.Gang{Name: "urgent-serving-1", Queue: "notebooks", Pods: 60, Requests: sim.Room(8000, 8000, 64<<30, 1), Priority: 100, Fixed: true}, see.Work{Kind: "PyTorchJob", Stem: "urgent-serving"})
	ctx, cancel := context.WithCancel(t.Context())
	lines, told := make(chan []byte), make(chan error, 1)
	go func() {
		told <- c.stream.Follow(ctx, func(text []byte) error {
			select {
			case lines <- text:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	k := &journal.Keeper{Journal: j, Rest: -1, Log: logr.Discard(), Decide: func(ctx context.Context, k *replay.Case, id string) (*see.Cycle, error) {
		out := &see.Cycle{Cluster: id, Case: k, Registry: builtin.Registry()}
		_, err := out.Look(ctx)
		return out, err
	}}
	for end := c.world.Now().Add(cityPast); c.world.Now().Before(end); {
		c.step(c.world.Now().Add(cityStep), 25)
		at := c.world.Now().Time()
		clock.Store(&at)
		for still := true; still; { // a busy machine has the stream say in between that it is there
			select {
			case line := <-lines:
				k.Take(ctx, line)
				still = bytes.Contains(line, []byte(`"kind":"still"`))
			case err := <-told:
				t.Fatal(err)
			}
		}
	}
	cancel()
	if err := <-told; err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	clock.Store(nil)
	return c
}

func (c *city) submit(g sim.Gang, w see.Work) {
	c.mu.Lock()
	c.works[sim.Key(g.Name)] = w
	c.mu.Unlock()
	if err := c.world.Submit(g); err != nil {
		c.t.Error(err)
	}
}

// send sends a gang that has run for so long, and returns how many GPUs it wants.
func (c *city) send(ran time.Duration) int64 {
	part, queue := c.random.Float64(), "vision"
	for _, q := range cityQueues {
		if part -= q.part; q.part > 0 && part < 0 {
			queue = q.name
			break
		}
	}
	w := cityWork[c.random.IntN(len(cityWork))]
	c.made++
	g := sim.Gang{
		Name: fmt.Sprintf("%s-%d", w.stem, c.made), Queue: queue, Pods: w.pods, Requests: sim.Room(w.gpus*1000, 4000, 32<<30, 1), Priority: 50,
		Duration: max(time.Minute, time.Duration(c.random.ExpFloat64()*float64(w.took))),
	}
	if queue == "notebooks" { // several share a GPU
		g.Pods, g.Requests, g.Share = 1, sim.Room(0, 2000, 8<<30, 1), cluster.Share{Devices: 1, Portion: cluster.WholePortion / 2}
	}
	if c.random.IntN(5) == 0 {
		g.Priority, g.Fixed = 75, true
	}
	kind := []string{"Job", "PyTorchJob", "JobSet"}[c.random.IntN(3)]
	c.submit(g, see.Work{Kind: kind, Stem: w.stem, Expected: w.took})
	return int64(w.pods) * w.gpus
}

// step lets time pass until then, has about so many GPUs' worth of work come, and has the scheduler decide.
func (c *city) step(to cluster.Instant, gpus int64) {
	for gpus = int64(c.random.IntN(int(2*gpus + 1))); gpus > 0; {
		gpus -= c.send(0)
	}
	if err := c.world.Advance(to); err != nil {
		c.t.Error(err)
		return
	}
	if _, err := c.world.Decide(c.t.Context()); err != nil && c.t.Context().Err() == nil {
		c.t.Error(err)
	}
}

// serve has a role answer about the city, at an address, while the city lives. Everything has ended when the test has.
func (c *city) serve(j *journal.Journal, who Reviewer) (address string) {
	t := c.t
	server, err := cycles.NewServer(c.stream, everybody{})
	if err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	feed, front := listen(), listen()
	f := &Following{
		Shards: func(context.Context) ([]string, error) { return []string{""}, nil },
		Find: func(context.Context, string) (cycles.Place, error) {
			return cycles.Place{URL: "https://" + feed.Addr().String(), Fingerprint: server.Fingerprint()}, nil
		},
		Token: func() (string, error) { return "t", nil }, Registry: func(bool) engine.Registry { return builtin.Registry() }, Log: logr.Discard(), Journal: j,
		Works: func(context.Context) (map[cluster.Key]see.Work, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			out := make(map[cluster.Key]see.Work, len(c.works))
			for k, w := range c.works { // order: into a map
				out[k] = w
			}
			return out, nil
		},
	}
	c.outlook = c.forecast()
	config, _, err := Certificates("", "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() { cancel(); all.Wait() })
	run := func(what func(context.Context) error) {
		all.Go(func() {
			if err := what(ctx); err != nil && ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		})
	}
	a := New(f, who, logr.Discard(), nil).Keeping(j, func(string) *see.Outlook { return c.outlook }).Judging(f.Known)
	run(func(ctx context.Context) error { return server.Run(ctx, feed) })
	run(f.Run)
	run(func(ctx context.Context) error { return a.Serve(ctx, front, config) })
	run(c.lives)
	return "https://" + front.Addr().String()
}

// lives goes on as fast as the clock does.
func (c *city) lives(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case at := <-tick.C:
			if to := cluster.InstantOf(at); c.world.Now().Before(to) {
				c.step(to, 2)
				c.live.Add(1)
			}
		}
	}
}

// forecast is when those that wait now start.
func (c *city) forecast() *see.Outlook {
	c.t.Helper()
	k := see.NewCycle(c.world.Store.Snapshot(c.world.Now()), profile.BuiltIn(), builtin.Registry())
	k.Works = c.works
	h := &see.History{}
	if err := h.Learn(k); err != nil {
		c.t.Fatal(err)
	}
	o, err := see.Forecast(c.t.Context(), k, h, see.Draws{N: 4, Seed: 1, Cycle: 5 * time.Minute})
	if err != nil {
		c.t.Fatal(err)
	}
	return o
}

// latest is the gang that is expected to start last, of those that are expected to: it waits as long as anybody looks.
func (c *city) latest() string {
	var last *see.GangOutlook
	for i := range c.outlook.Gangs {
		if g := &c.outlook.Gangs[i]; g.Word == see.Between && !g.P90.IsZero() && (last == nil || g.P10.After(last.P10)) {
			last = g
		}
	}
	if last == nil {
		c.t.Fatal("nobody is expected to start")
	}
	return last.Gang.Name
}
