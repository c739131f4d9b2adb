package usage

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// answers is a source that answers what it is told to, and notes when it was asked.
type answers struct {
	mu    sync.Mutex
	say   func(ctx context.Context) (Shares, error)
	asked []time.Duration
	began time.Time
}

func (a *answers) Fetch(ctx context.Context, now time.Time) (Shares, error) {
	a.mu.Lock()
	a.asked = append(a.asked, now.Sub(a.began))
	say := a.say
	a.mu.Unlock()
	return say(ctx)
}

func (a *answers) set(s Shares, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say = func(context.Context) (Shares, error) { return s, err }
}

// records is a history that notes.
type records struct {
	mu  sync.Mutex
	at  []time.Time
	s   []Sample
	err error
}

func (r *records) Record(_ context.Context, at time.Time, s Sample) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at, r.s = append(r.at, at), append(r.s, s)
	return r.err
}

// kept is a keeper at work in fake time.
type kept struct {
	*Keeper
	source  *answers
	history *records
	store   *cluster.Store
	lines   []string
	metrics *Metrics
}

// keep runs a keeper with a configuration in a bubble of fake time, and the test's story in it.
func keep(t *testing.T, params string, first func(*answers), story func(*kept)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := Parse([]byte(`{"usageParams":{` + params + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		m, err := NewMetrics("kai", prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		k := &kept{source: &answers{began: time.Now()}, history: &records{}, store: cluster.NewStore(cluster.Options{}), metrics: m}
		for _, q := range []string{"a", "b"} {
			k.store.Apply(cluster.QueueState{Name: q, UID: q})
		}
		first(k.source)
		k.Keeper = NewKeeper(c, k.source, k.history, m)
		log := funcr.New(func(_, args string) { k.lines = append(k.lines, args) }, funcr.Options{})
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), log))
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		story(k)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// after lets fake time pass.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func gpus(a, b int64) Shares { return Shares{"a": {"gpu": a}, "b": {"gpu": b}} }

// TestKeeperTellsNews: usage reaches the queues of the store, and its generation grows only if a value is another.
func TestKeeperTellsNews(t *testing.T) {
	t.Parallel()
	keep(t, "", func(a *answers) { a.set(gpus(700_000, 100_000), nil) }, func(k *kept) {
		after(time.Millisecond)
		<-k.Changed()
		if !k.Settled() || k.Drain(k.store) != 1 {
			t.Error("the first answer is not there at once")
		}
		snap := k.store.Snapshot(cluster.Instant{})
		if got := snap.QueueByName("a").Usage.At(cluster.GPU); got != 700_000 {
			t.Errorf("queue a has usage %d", got)
		}
		for range 3 {
			after(time.Minute)
			if k.Drain(k.store) != 0 || k.store.Generation() != snap.Generation {
				t.Error("the same answer is news")
			}
		}
		select {
		case <-k.Changed():
			t.Error("woken for nothing")
		default:
		}
		k.source.set(gpus(700_001, 100_000), nil)
		after(time.Minute)
		<-k.Changed()
		if k.Drain(k.store) != 1 || k.store.Generation() == snap.Generation {
			t.Error("another answer is no news")
		}
		if got, want := k.source.asked, []time.Duration{0, time.Minute, 2 * time.Minute, 3 * time.Minute, 4 * time.Minute}; !slices.Equal(got, want) {
			t.Errorf("asked after %v, want %v", got, want)
		}
	})
}

// TestKeeperKeeps: what was known stays in force when the source fails, however long; that it is stale is said once.
func TestKeeperKeeps(t *testing.T) {
	t.Parallel()
	keep(t, `"stalenessPeriod":"3m"`, func(a *answers) { a.set(gpus(700_000, 0), nil) }, func(k *kept) {
		after(time.Millisecond)
		k.Drain(k.store)
		k.source.set(nil, errors.New("no route to host"))
		after(time.Hour)
		if n := k.Drain(k.store); n != 0 || k.store.Snapshot(cluster.Instant{}).QueueByName("a").Usage.At(cluster.GPU) != 700_000 {
			t.Error("usage was forgotten")
		}
		warned := 0
		for _, line := range k.lines {
			if strings.Contains(line, "WARNING") {
				warned++
			}
		}
		if warned != 1 {
			t.Errorf("warned %d times: %v", warned, k.lines)
		}
		if got := testutil.ToFloat64(k.metrics.failures.WithLabelValues("fetch")); got != 60 {
			t.Errorf("%v failures counted, want 60", got)
		}
		k.source.set(gpus(1, 1), nil)
		after(time.Minute)
		if k.Drain(k.store) != 1 || !strings.Contains(k.lines[len(k.lines)-1], "fresh again") {
			t.Errorf("not fresh again: %v", k.lines)
		}
	})
}

// TestKeeperWaits: scheduling may begin with the first answer, or after the wait.
func TestKeeperWaits(t *testing.T) {
	t.Parallel()
	fails := func(a *answers) { a.set(nil, errors.New("not up yet")) }
	keep(t, `"waitTimeout":"20s"`, fails, func(k *kept) {
		after(19 * time.Second)
		if k.Settled() {
			t.Error("settled too early")
		}
		after(2 * time.Second)
		if !k.Settled() {
			t.Error("waits too long")
		}
		<-k.Changed()
		if k.Drain(k.store) != 0 {
			t.Error("news of nothing")
		}
		if got, want := k.source.asked, []time.Duration{0, time.Second, 3 * time.Second, 7 * time.Second, 15 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("asked after %v, want %v", got, want)
		}
	})
	keep(t, `"waitTimeout":"20s"`, fails, func(k *kept) {
		after(5 * time.Second)
		k.source.set(gpus(1, 2), nil)
		after(3 * time.Second)
		if !k.Settled() || k.Drain(k.store) != 1 {
			t.Error("the first answer is late")
		}
	})
	keep(t, `"waitTimeout":"0s"`, fails, func(k *kept) {
		after(time.Millisecond)
		if !k.Settled() {
			t.Error("waits although it must not")
		}
	})
}

// TestKeeperEnds: a fetch that hangs ends with the context, and whoever waits is let go.
func TestKeeperEnds(t *testing.T) {
	t.Parallel()
	keep(t, "", func(a *answers) {
		a.say = func(ctx context.Context) (Shares, error) { <-ctx.Done(); return nil, ctx.Err() }
	}, func(k *kept) { after(10 * time.Second) })
}

// TestKeeperRecords: what the loop saw last is written down at multiples of the resolution, whether or not it has
// looked since; before its first look, nothing is.
func TestKeeperRecords(t *testing.T) {
	t.Parallel()
	keep(t, `"windowSize":"1h","extraParams":{"queryResolution":"30s"}`, func(a *answers) { a.set(Shares{}, nil) }, func(k *kept) {
		after(time.Minute)
		if len(k.history.at) != 0 {
			t.Error("recorded before anything was seen")
		}
		k.store.Apply(cluster.NodeState{Name: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 8000}}})
		k.store.Apply(cluster.QueueState{Name: "child", UID: "child", Parent: "a"})
		k.store.Apply(cluster.GangState{Key: cluster.Key{Namespace: "x", Name: "g"}, UID: "g", Queue: "child", Sets: []cluster.Set{{Parent: cluster.None, Leaf: true, Min: 1}}})
		k.store.Apply(cluster.PodState{
			UID: "p", Namespace: "x", Name: "p", Gang: cluster.Key{Namespace: "x", Name: "g"}, Ours: true, Phase: cluster.Running, NodeName: "n",
			Requests: []cluster.Quantity{{Name: "gpu", Value: 3000}},
		})
		k.Observe(k.store.Snapshot(cluster.Instant{}))
		after(95 * time.Second)
		if len(k.history.at) != 3 {
			t.Fatalf("%d samples in 95 s at a resolution of 30 s", len(k.history.at))
		}
		for i, at := range k.history.at {
			if at.UnixNano()%int64(30*time.Second) != 0 {
				t.Errorf("sample at %s", at)
			}
			s := k.history.s[i]
			got := []int64{s.Had.At(cluster.GPU), s.Held["child"].At(cluster.GPU), s.Held["a"].At(cluster.GPU), s.Held["b"].At(cluster.GPU)}
			if want := []int64{8000, 3000, 3000, 0}; !slices.Equal(got, want) {
				t.Errorf("had, and held by child, a, b: %v, want %v", got, want)
			}
		}
		k.history.mu.Lock()
		k.history.err = errors.New("disk full")
		k.history.mu.Unlock()
		lines := len(k.lines)
		after(5 * time.Minute)
		if got := len(k.lines) - lines; got != 1 {
			t.Errorf("a full disk is worth %d lines, want 1: %v", got, k.lines[lines:])
		}
	})
}

// TestMeasureCircle: queues whose parents form a circle cost no endless walk.
func TestMeasureCircle(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore(cluster.Options{})
	store.Apply(cluster.QueueState{Name: "a", UID: "a", Parent: "b"})
	store.Apply(cluster.QueueState{Name: "b", UID: "b", Parent: "a"})
	store.Apply(cluster.QueueState{Name: "c", UID: "c", Parent: "nobody"})
	if s := Measure(store.Snapshot(cluster.Instant{})); len(s.Held) != 3 {
		t.Errorf("%v", s.Held)
	}
}
