package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/cycles"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/journal"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/see"
)

// everybody may read cycles.
type everybody struct{}

func (everybody) Caller(*http.Request) (authenticationv1.UserInfo, error) {
	return authenticationv1.UserInfo{Username: "ui"}, nil
}

func (everybody) Path(context.Context, authenticationv1.UserInfo, string, string) error { return nil }

// scheduler serves cycles: each call of decide is one; with other plans than it came to, if told to lie.
func scheduler(t *testing.T) (place cycles.Place, decide func(lie bool)) {
	t.Helper()
	stream := replay.NewStream("v1", profile.BuiltIn(), false)
	server, err := cycles.NewServer(stream, everybody{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	store, n := cluster.NewStore(cluster.Options{}), int64(0)
	store.Apply(
		cluster.NodeState{Name: "n", Allocatable: []cluster.Quantity{{Name: "gpu", Value: 64000}, {Name: "pods", Value: 110}}},
		cluster.QueueState{Name: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: -1}}},
	)
	driver := engine.NewDriver(e, store)
	return cycles.Place{URL: "https://" + l.Addr().String(), Fingerprint: server.Fingerprint()}, func(lie bool) {
		n++
		key := cluster.Key{Face: "kai", Namespace: "team", Name: fmt.Sprint("g", n)}
		store.Apply(
			cluster.GangState{Key: key, UID: key.Name, Queue: "q", Sets: cluster.FlatTree(1)},
			cluster.PodState{UID: key.Name, Namespace: "team", Name: key.Name, Gang: key, Ours: true, Requests: []cluster.Quantity{{Name: "gpu", Value: 1000}}},
		)
		snap, plans, _ := driver.Cycle(t.Context(), cluster.UnixNano(n))
		if lie {
			plans = nil
		}
		stream.Decided(snap, plans)
	}
}

// TestFollowing: the latest cycle of each shard is there, decided again; one that comes to other plans is not the scheduler's view, and is counted; one that cannot be decided on here is an error that
// says so. A shard that there is not is refused, and one that tells nothing has no cycle.
func TestFollowing(t *testing.T) {
	t.Parallel()
	place, decide := scheduler(t)
	follow := func(registry engine.Registry) (*Following, func()) {
		m, err := NewMetrics(prometheus.NewRegistry())
		if err != nil {
			t.Fatal(err)
		}
		f := &Following{
			Shards: func(context.Context) ([]string, error) { return []string{"", "gold"}, nil },
			Find: func(_ context.Context, shard string) (cycles.Place, error) {
				if shard != "" {
					return cycles.Place{}, errors.New("no scheduler leads")
				}
				return place, nil
			},
			Token: func() (string, error) { return "t", nil }, Registry: func(bool) engine.Registry { return registry }, Log: logr.Discard(), Metrics: m,
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		return f, func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	until := func(what string, so func() bool) {
		t.Helper()
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for limit := time.After(20 * time.Second); !so(); {
			select {
			case <-tick.C:
			case <-limit:
				t.Fatalf("it does not come to be so: %s", what)
			}
		}
	}
	f, stop := follow(builtin.Registry())
	until("both shards are followed", func() bool { return len(f.Names()) == 2 })
	if _, _, err := f.Look(t.Context(), ""); !errors.Is(err, ErrNoCycle) {
		t.Errorf("before the first cycle: %v", err)
	}
	var no *see.Refusal
	if _, _, err := f.Look(t.Context(), "silver"); !errors.As(err, &no) || !no.Missing {
		t.Errorf("no such shard: %v", err)
	}
	is := func(own bool, at int64) func() bool {
		return func() bool {
			c, note, err := f.Look(t.Context(), "")
			return err == nil && note == "" && c.Own() == own && c.Case.Image.Now == cluster.UnixNano(at)
		}
	}
	decide(false)
	until("the scheduler's own view", is(true, 1))
	decide(true)
	until("another view than the scheduler's", is(false, 2))
	decide(false)
	until("the scheduler's own view again", is(true, 3))
	if _, _, err := f.Look(t.Context(), "gold"); !errors.Is(err, ErrNoCycle) {
		t.Errorf("a shard that tells nothing: %v", err)
	}
	stop()
	for outcome, want := range map[string]float64{"same": 2, "other": 1, "failed": 0} {
		if got := testutil.ToFloat64(f.Metrics.cycles.WithLabelValues(outcome)); got != want {
			t.Errorf("%s: %v, want %v", outcome, got, want)
		}
	}
	f, stop = follow(engine.Registry{})
	defer stop()
	until("a version that knows less", func() bool { _, _, err := f.Look(t.Context(), ""); return errors.Is(err, ErrUndecided) })
	if got := testutil.ToFloat64(f.Metrics.cycles.WithLabelValues("failed")); got < 1 {
		t.Error("it is not counted")
	}
}

// TestDecidedOnce: a cycle that the journal looks at and somebody asks about is decided on again once, and both have the same.
func TestDecidedOnce(t *testing.T) {
	t.Parallel()
	place, decide := scheduler(t)
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(journal.Options{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	f := &Following{
		Shards: func(context.Context) ([]string, error) { return []string{""}, nil },
		Find:   func(context.Context, string) (cycles.Place, error) { return place, nil },
		Token:  func() (string, error) { return "t", nil }, Registry: func(bool) engine.Registry { return builtin.Registry() }, Log: logr.Discard(), Metrics: m, Journal: j,
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	decide(false)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(3 * time.Minute)
	for kept, seen := false, false; !kept || !seen; {
		if err := j.Each(t.Context(), time.Time{}, func(e *journal.Entry) bool { // it is written after it was looked at
			kept = kept || e.Kind == journal.Cycle
			return !kept
		}); err != nil {
			t.Fatal(err)
		}
		_, _, err := f.Look(t.Context(), "")
		seen = err == nil
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("kept %v; seen %v: %v", kept, seen, err)
		}
	}
	cancel()
	if err := errors.Join(<-done, j.Close()); err != nil {
		t.Error(err)
	}
	if got := testutil.ToFloat64(m.cycles.WithLabelValues("same")); got != 1 {
		t.Errorf("one cycle was decided on %v times", got)
	}
}

// TestPatience: where looks are short, answers are of a look that is a second old at most; where they are long, nobody waits for the next if it is begun in time.
func TestPatience(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration][2]time.Duration{
		0: {aging, fresh}, 100 * time.Millisecond: {aging, fresh}, fresh / 2: {aging, fresh}, 3 * time.Second: {1500 * time.Millisecond, 6 * time.Second},
	} { // order: each on its own
		soon, late := patience(took)
		if soon != want[0] || late != want[1] || soon+took > late && late > fresh {
			t.Errorf("a look took %s: the next begins after %s and is waited for after %s", took, soon, late)
		}
	}
}
