package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// begin runs a pool until stop is called or the test ends.
func begin(t *testing.T, p *Pool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return stop
}

func words(s string) any { return s }

// TestRetries: the one way to try again. What may pass is tried after waits that double; an order is given up after its tries, or at once
// when trying again cannot help, and is told of once; what is told is never given up.
func TestRetries(t *testing.T) {
	t.Parallel()
	told := Kind{Name: "told", Workers: 1, First: time.Second}
	order := Kind{Name: "order", Workers: 1, First: orderFirst, Tries: orderTries}
	refused := errors.New("connection refused")
	moved := fmt.Errorf("it is gone: %w", ErrMoved)
	for name, c := range map[string]struct {
		kind  Kind
		fails int
		err   error // of the first fails tries; nil for a panic
		tries []int // when, in ms
		end   error
	}{
		"an order that is well":              {order, 0, refused, []int{0}, nil},
		"an order that fails twice":          {order, 2, refused, []int{0, 50, 150}, nil},
		"an order that fails for good":       {order, 99, refused, []int{0, 50, 150, 350, 750, 1550, 3150, 6350}, refused},
		"an order that is overtaken":         {order, 99, moved, []int{0}, ErrMoved},
		"an order with a defect":             {order, 99, nil, []int{0}, aside.ErrDefect},
		"what is told fails":                 {told, 9, refused, []int{0, 1000, 3000, 7000, 15000, 31000, 63000, 127000, 255000, 511000}, nil},
		"what is told fails for long":        {told, 10, refused, []int{0, 1000, 3000, 7000, 15000, 31000, 63000, 127000, 255000, 511000, 811000}, nil},
		"what is told is refused, then well": {told, 1, moved, []int{0, 1000}, nil},
		"what is told has a defect":          {told, 1, nil, []int{0, 1000}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				pool, start := NewPool(nil), time.Now()
				var tries []int
				var ends []error
				q := NewQueue(pool, c.kind, Job[string]{
					About: words,
					Try: func(context.Context, string) error {
						tries = append(tries, int(time.Since(start).Milliseconds()))
						switch {
						case len(tries) > c.fails:
							return nil
						case c.err == nil:
							panic("a defect")
						}
						return c.err
					},
					End: func(_ context.Context, _ string, err error) { ends = append(ends, err) },
				})
				begin(t, pool)
				q.Put(0, "x")
				<-time.After(time.Hour)
				synctest.Wait()
				if d := cmp.Diff(c.tries, tries); d != "" {
					t.Error(d)
				}
				if len(ends) != 1 || !errors.Is(ends[0], c.end) {
					t.Errorf("told %v, want %v", ends, c.end)
				}
			})
		})
	}
}

// TestOrdersComeAsTheyCame: as many at once as there are workers, in the order in which they came, one that failed before those that were
// never tried; when the context ends, no more are taken, and nobody is told of what that cut short.
func TestOrdersComeAsTheyCame(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pool := NewPool(nil)
		taken := make(chan string, 10)
		var failed atomic.Bool
		var ended atomic.Int32
		q := NewQueue(pool, Kind{Name: "order", Workers: 2, First: time.Second / 2, Tries: 3}, Job[string]{
			About: words,
			Try: func(ctx context.Context, o string) error {
				taken <- o
				if o == "a" && failed.CompareAndSwap(false, true) {
					return errors.New("not now")
				}
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
				return nil
			},
			End: func(context.Context, string, error) { ended.Add(1) },
		})
		q.Put(0, strings.Split("a b c d e f g", " ")...)
		stop := begin(t, pool)
		for second, want := range []string{"a b c", "a d", "e f"} {
			synctest.Wait()
			var got []string
			for len(taken) > 0 {
				got = append(got, <-taken)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("second %d: took %v, want %s", second, got, want)
			}
			if second < 2 {
				<-time.After(time.Second)
			}
		}
		stop()
		if len(taken) > 0 || ended.Load() != 4 {
			t.Errorf("%d orders were taken after the context had ended; %d ended, want 4", len(taken), ended.Load())
		}
	})
}

// TestReportsNeverDelayABind: while a burst of reasons meets an API server that answers none of them, binds are made at once; when it
// answers again, each reason is told.
func TestReportsNeverDelayABind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const gangs = 100
		objects := []client.Object{aPod("q")}
		verdicts := map[string]engine.Verdict{}
		for i := range gangs {
			name := fmt.Sprint("g", i)
			objects, verdicts[name] = append(objects, groupNamed(name)), noRoom(8000)
		}
		s, open := newServer(t, objects...), make(chan struct{})
		s.hold = func(ctx context.Context, call string) error {
			if strings.HasPrefix(call, "create") {
				return nil
			}
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		d := newDesk(t, s, StatusOptions{})
		for name := range verdicts { // order: each on its own
			d.store.Apply(gangOf(name, nil), podOf("p-"+name, name, cluster.Pending))
		}
		binds := NewBinds(d.pool, s.client, s.client, BindOptions{})
		begin(t, d.pool)
		d.say(verdicts)
		d.pass(2 * time.Second)
		if n := s.calls.Load(); n == 0 || n > int64(reasonWork.Workers) {
			t.Fatalf("%d reasons are on their way, want no more than workers", n)
		}
		binds.Submit(engine.Plan{Bundles: []engine.Bundle{bundle("b1", "q")}})
		synctest.Wait() // no time passes
		if len(s.requests()) != 1 {
			t.Error("the bind waits for reasons")
		}
		close(open)
		d.pass(time.Minute)
		for name := range verdicts { // order: each on its own
			if d.shows(name) == "" {
				t.Errorf("%s was never told", name)
			}
		}
	})
}
