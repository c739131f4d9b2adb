package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestFollow: who stands by knows what happens soon after, decides nothing, and hands over when its turn comes or it is
// stopped, in the midst of a burst too.
func TestFollow(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := &fixture{t: t, start: time.Now(), changed: make(chan struct{}, 1)}
			store := NewStore(Options{})
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			turn, over := make(chan struct{}), make(chan struct{})
			go func() { defer close(over); Follow(ctx, turn, w, store) }()
			for _, name := range []string{"n1", "n2"} {
				w.mu.Lock()
				w.events = append(w.events, cluster.NodeState{Name: name, UID: name})
				w.mu.Unlock()
				w.changed <- struct{}{}
				time.Sleep(followGap)
				synctest.Wait()
			}
			if store.Snapshot(cluster.Instant{}).NodeByName("n2") == nil {
				t.Error("a change was not followed")
			}
			if w.drains > 2 {
				t.Errorf("%d drains for two changes", w.drains)
			}
			w.changed <- struct{}{}
			synctest.Wait() // it waits for more of the burst
			if asked {
				close(turn)
			} else {
				stop()
			}
			synctest.Wait()
			select {
			case <-over:
			default:
				t.Error("it goes on")
			}
		})
	}
}
