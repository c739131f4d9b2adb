package served

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

const (
	// again is the time between two looks at an API server: an upgrade is noticed as late.
	again = time.Minute
	// absentRetry is the time between two tries in Await.
	absentRetry = 30 * time.Second
)

// Watcher knows what an API server has, from the first look on, and tells the log of it. Its methods may be called from several
// goroutines.
type Watcher struct {
	discovery Discovery
	roles     []string
	uses      func(plugin string) bool

	last atomic.Pointer[Server] // nil before the first look that succeeded
}

// NewWatcher returns a watcher for a process with these roles, whose scheduler has the plugins for which uses is true (nil: all). It asks
// nothing before First or Run.
func NewWatcher(d Discovery, roles []string, uses func(plugin string) bool) *Watcher {
	return &Watcher{discovery: d, roles: roles, uses: uses}
}

// Has says whether the server has what is called so, as of the last look. Before the first one everything is taken to be there.
func (w *Watcher) Has(name Name) bool {
	s := w.last.Load()
	return s == nil || s.Has(name)
}

// First looks, so that Has is true when the roles begin, and tells the log: a line about the server, and one about each thing that the
// process misses, with what is lost. That the server does not tell is a line, too, and Run looks again.
func (w *Watcher) First(ctx context.Context) { w.look(logr.FromContextOrDiscard(ctx)) }

// Run looks again every minute until ctx ends, and returns nil then. It tells what has come and what is gone.
func (w *Watcher) Run(ctx context.Context) error {
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		w.look(logr.FromContextOrDiscard(ctx))
	}
}

func (w *Watcher) look(log logr.Logger) {
	now, err := Look(w.discovery)
	was := w.last.Load()
	if err != nil {
		if was == nil {
			log.Info("what the API server has is not known; all is taken to be there until it says", "error", err.Error())
		}
		return // later, that it is away is told by whoever needs it
	}
	w.last.Store(&now)
	if was != nil && was.Version == now.Version && was.Minor == now.Minor && slices.Equal(was.Missing, now.Missing) {
		return
	}
	var before []Need
	if was != nil {
		before = was.Lacking(w.roles, w.uses)
	}
	lacking := now.Lacking(w.roles, w.uses)
	log.Info("the API server says what it is", "kubernetes", now.String())
	for i := range before {
		if now.Has(before[i].Name) {
			log.Info("the API server has what it lacked", "found", before[i].Name)
		}
	}
	for i := range lacking {
		if !slices.ContainsFunc(before, func(n Need) bool { return n.Name == lacking[i].Name }) {
			log.Info("the API server lacks what is used where it is", "lacking", lacking[i].Name, "effect", lacking[i].Lost)
		}
	}
}

// Await calls try every half minute, the first time after that, until it succeeds or ctx ends: for what begins when the API server
// serves a kind that it does not serve yet.
func Await(ctx context.Context, try func() error) {
	ticker := time.NewTicker(absentRetry)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if try() == nil {
			return
		}
	}
}
