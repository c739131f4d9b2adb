package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// ErrHung is the failure of a process whose work does not get on.
var ErrHung = errors.New("hangs")

// DefaultHungAfter is far beyond what any turn takes.
const DefaultHungAfter = 2 * time.Minute

// Watchdog notices work that hangs: a turn of a loop, or a worker's piece of work, that has taken longer than its limit. What waits
// for others, such as for the API server's answers, does not count; whoever waits says so. It is safe for concurrent use, and a nil
// one notices nothing.
type Watchdog struct {
	limit time.Duration

	mu   sync.Mutex
	open map[*Work]struct{}
}

// NewWatchdog returns one with a limit; 0 or less is none.
func NewWatchdog(limit time.Duration) *Watchdog {
	if limit <= 0 {
		return nil
	}
	return &Watchdog{limit: limit, open: map[*Work]struct{}{}}
}

// Work is something that has to get on. A nil one need not.
type Work struct {
	dog   *Watchdog
	what  string
	since time.Time // zero while it waits for others
}

// Begin notes that a piece of work begins, called what in words for the operator. It counts until End.
func (d *Watchdog) Begin(what string) *Work {
	if d == nil {
		return nil
	}
	w := &Work{dog: d, what: what, since: time.Now()}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[w] = struct{}{}
	return w
}

// During notes that a piece of work begins, and by done that it is done. Requests that are made in the context it returns, by clients
// of a configuration that went through Waiting, are time in which the work waits.
func (d *Watchdog) During(ctx context.Context, what string) (during context.Context, done func()) {
	w := d.Begin(what)
	if w == nil {
		return ctx, w.End
	}
	return context.WithValue(ctx, workKey{}, w), w.End
}

type workKey struct{}

// Waiting returns a copy of the configuration whose clients say of the work they do their requests for that it waits for others while a
// request is under way; how long that may be is for others to bound.
func Waiting(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			w, _ := r.Context().Value(workKey{}).(*Work)
			w.Wait()
			defer w.Turn()
			return next.RoundTrip(r)
		})
	})
	return c
}

// Turn notes that the work got on: it counts anew.
func (w *Work) Turn() { w.set(time.Now()) }

// Wait notes that the work waits for others, and does not count until the next Turn.
func (w *Work) Wait() { w.set(time.Time{}) }

func (w *Work) set(since time.Time) {
	if w == nil {
		return
	}
	w.dog.mu.Lock()
	defer w.dog.mu.Unlock()
	w.since = since
}

// End notes that the work is done.
func (w *Work) End() {
	if w == nil {
		return
	}
	w.dog.mu.Lock()
	defer w.dog.mu.Unlock()
	delete(w.dog.open, w)
}

// Alive returns an error of ErrHung that names the work that has hung longest; nil when none does.
func (d *Watchdog) Alive() error {
	if d == nil {
		return nil
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	var worst *Work
	for w := range d.open { // order: the oldest, and by name among equals
		if w.since.IsZero() || now.Sub(w.since) <= d.limit {
			continue
		}
		if worst == nil || w.since.Before(worst.since) || w.since.Equal(worst.since) && w.what < worst.what {
			worst = w
		}
	}
	if worst == nil {
		return nil
	}
	return fmt.Errorf("%s %w: it has not got on for %s", worst.what, ErrHung, now.Sub(worst.since).Round(time.Second))
}

// Check is Alive for a Server.
func (d *Watchdog) Check(context.Context) error { return d.Alive() }
