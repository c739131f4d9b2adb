package recorder

import (
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestExpires: where time alone changes what plugins say, nothing is remembered beyond that, and there is a run then; where not, it is as it was asked.
func TestExpires(t *testing.T) {
	t.Parallel()
	now := cluster.UnixNano(1_000_000_000)
	snap := cluster.NewStore(cluster.Options{}).Snapshot(now)
	for _, c := range []struct{ expires, until, wake, want time.Duration }{
		{0, 10, 20, 10}, {0, 20, 10, 10}, {5, 10, 20, 5}, {15, 10, 20, 10}, {30, 10, 20, 10},
	} {
		rec := New(snap, 0, nil, new([]int32))
		if c.expires > 0 {
			rec.Expires(now.Add(c.expires))
		}
		rec.RememberAnswer("q", now.Add(c.until), now.Add(c.wake), "no")
		if a, ok := rec.RememberedAnswer("q"); !ok || a.Until != now.Add(c.want) {
			t.Errorf("%+v: remembered until %v", c, a.Until)
		}
		want := cluster.Forever
		if c.expires > 0 {
			want = now.Add(c.expires)
		}
		if rec.wakeAt != want {
			t.Errorf("%+v: the next run is at %v", c, rec.wakeAt)
		}
	}
}
