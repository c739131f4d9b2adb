package roles

import (
	"context"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

// told are writers of reasons and statuses, each of which is told all.
type told []scheduler.Statuses

// Restore implements scheduler.Statuses.
func (all told) Restore(ctx context.Context) error {
	for _, s := range all {
		if err := s.Restore(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Publish implements scheduler.Statuses: the earliest of the times at which one of them has more to say.
func (all told) Publish(snap *cluster.Snapshot, t *engine.Trace) (next time.Time) {
	for _, s := range all {
		if at := s.Publish(snap, t); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
