package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ErrFenced is the failure of a write that was not made, or was cut, because the process was not sure to hold its Lease. It is no
// answer of the API server: whoever writes tries again, as when there is no way to the API server.
var ErrFenced = errors.New("nothing is written: this process is not sure to hold its Lease")

// Fence lets a role write only while no other process can hold its Lease: for a window from the moment at which the last renewal
// that succeeded was asked for. A successor waits for as long as the Lease lasts after it has seen that renewal, which it cannot
// have seen earlier, so a window below that ends before the successor begins.
//
// The question is asked when a request is about to be sent, and once more when its body is handed to the connection, so that a
// process that was stopped, or slept with its machine, finds the fence closed before its first write. Requests that are under way
// when the window ends are cut. What stays possible is a request that the API server had in full by then.
//
// A fence is closed at first. It is safe for concurrent use.
type Fence struct {
	window time.Duration
	clock  func() moment

	mu     sync.Mutex
	open   bool   // there was a renewal, and nobody else has been seen since
	since  moment // when it was asked for
	flying map[*flight]struct{}
	timer  *time.Timer // ends the window
}

// flight is a write that is under way.
type flight struct{ cut context.CancelCauseFunc }

// moment is a time by two clocks: one that only goes forward but stands still while the machine sleeps, and one that goes on then but
// can be set.
type moment struct{ steady, wall time.Duration }

var start = time.Now()

func now() moment {
	t := time.Now()
	return moment{t.Sub(start), time.Duration(t.UnixNano())}
}

// until is how much time has passed since m, by the clock that saw more of it.
func (m moment) until(later moment) time.Duration {
	return max(later.steady-m.steady, later.wall-m.wall)
}

func newFence(window time.Duration) *Fence {
	return &Fence{window: window, clock: now, flying: map[*flight]struct{}{}}
}

// Check returns nil while the role may write, else ErrFenced.
func (f *Fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.check()
}

func (f *Fence) check() error {
	if !f.open || f.since.until(f.clock()) >= f.window {
		return ErrFenced
	}
	return nil
}

// renewed opens the fence for a window from the moment at which a renewal was asked for that has succeeded.
func (f *Fence) renewed(asked moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open, f.since = true, asked
	f.arm()
}

// arm has the window end in time. The caller holds the lock.
func (f *Fence) arm() {
	if f.timer != nil {
		f.timer.Stop()
	}
	f.timer = time.AfterFunc(max(0, f.window-f.since.until(f.clock())), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.check() != nil {
			f.land()
		}
	})
}

// shut closes the fence for good, or until the next renewal.
func (f *Fence) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = false
	if f.timer != nil {
		f.timer.Stop()
	}
	f.land()
}

// land cuts what is under way. The caller holds the lock.
func (f *Fence) land() {
	for w := range f.flying { // order: all of them
		w.cut(ErrFenced)
	}
	clear(f.flying)
}

// take lets a write begin.
func (f *Fence) take(cut context.CancelCauseFunc) (*flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.check(); err != nil {
		return nil, err
	}
	w := &flight{cut}
	f.flying[w] = struct{}{}
	return w, nil
}

// end notes that a write is over, and frees what it held.
func (f *Fence) end(w *flight) {
	f.mu.Lock()
	delete(f.flying, w)
	f.mu.Unlock()
	w.cut(nil)
}

// Guard returns a copy of the configuration whose clients write only while the fence is open. Reads pass. A write that it refuses,
// or cuts, fails with ErrFenced.
func (f *Fence) Guard(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if !writes(r) {
				return next.RoundTrip(r)
			}
			return f.send(next, r)
		})
	})
	return c
}

// writes says that a request may change something.
func writes(r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodOptions
}

func (f *Fence) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	ctx, cut := context.WithCancelCause(r.Context())
	w, err := f.take(cut)
	if err != nil {
		cut(nil)
		if r.Body != nil {
			_ = r.Body.Close() // as a transport does
		}
		return nil, err
	}
	r = r.WithContext(ctx)
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = fencedBody{r.Body, f}
	}
	if again := r.GetBody; again != nil {
		r.GetBody = func() (io.ReadCloser, error) {
			b, err := again()
			if err != nil || b == http.NoBody {
				return b, err
			}
			return fencedBody{b, f}, nil
		}
	}
	resp, err := next.RoundTrip(r)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrFenced) && !errors.Is(err, ErrFenced) {
			err = fmt.Errorf("%w (cut: %w)", cause, err)
		}
		f.end(w)
		return nil, err
	}
	resp.Body = &answerBody{ReadCloser: resp.Body, done: sync.OnceFunc(func() { f.end(w) })}
	return resp, nil
}

// fencedBody is a request's body that is not handed over behind a closed fence.
type fencedBody struct {
	io.ReadCloser
	fence *Fence
}

// Read hands over a part.
func (b fencedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if closed := b.fence.Check(); closed != nil {
		return 0, closed
	}
	return n, err
}

// answerBody is an answer, the end of which is the end of the write.
type answerBody struct {
	io.ReadCloser
	done func()
}

// Close ends the write.
func (b *answerBody) Close() error {
	defer b.done()
	return b.ReadCloser.Close()
}
