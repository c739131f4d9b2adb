package scheduler

import (
	"context"
	"time"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// NewStore returns an empty store for a scheduler with these options.
func NewStore(o Options) *cluster.Store {
	if o.StuckAfter == 0 {
		o.StuckAfter = 2 * time.Minute
	}
	return cluster.NewStore(cluster.Options{StuckAfter: o.StuckAfter, DefaultQueue: keys.DefaultQueue})
}

// Follow keeps store true to the cluster without deciding anything, until it is this process's turn or ctx ends: what a
// process does that stands by. A takeover then costs what has happened since the last event, not a list of the cluster. When
// it has returned, the store is the caller's.
func Follow(ctx context.Context, turn <-chan struct{}, feed Feed, store *cluster.Store) {
	for {
		select {
		case <-turn:
			return
		case <-ctx.Done():
			return
		case <-feed.Changed():
			feed.Drain(store)
		}
		select { // so that a burst is taken in together
		case <-time.After(followGap):
		case <-turn:
			return
		case <-ctx.Done():
			return
		}
	}
}

// followGap is the time between two drains of a process that stands by.
const followGap = 200 * time.Millisecond
