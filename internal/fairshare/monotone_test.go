package fairshare_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// Among siblings of one priority, without history, giving a queue more of something never makes its share smaller, up
// to the one unit that remainders may move to someone else.
func TestDivideIsMonotone(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		more func(t *rapid.T, in *fairshare.Input, q *fairshare.Queue, dim int)
	}{
		{"weight", func(t *rapid.T, _ *fairshare.Input, q *fairshare.Queue, dim int) {
			q.Weight[dim] += fixedPoint(3).Draw(t, "more")
		}},
		{"request", func(t *rapid.T, _ *fairshare.Input, q *fairshare.Queue, dim int) {
			q.Request[dim] += amount(dim, 10).Draw(t, "more")
		}},
		{"quota", func(t *rapid.T, _ *fairshare.Input, q *fairshare.Queue, dim int) {
			q.Quota[dim] += amount(dim, 10).Draw(t, "more")
		}},
		{"total", func(t *rapid.T, in *fairshare.Input, _ *fairshare.Queue, dim int) {
			in.Total[dim] += amount(dim, 10).Draw(t, "more")
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := wellFormed(shape{flat: true}).Draw(t, "input")
				for i := range in.Queues {
					in.Queues[i].Priority = prio
					for dim := range in.Total {
						in.Queues[i].Quota[dim] = max(0, in.Queues[i].Quota[dim])
					}
				}
				before := divide(in)[0]
				for dim := range in.Total {
					test.more(t, in, &in.Queues[0], dim)
				}
				for dim, after := range divide(in)[0] {
					if after < before[dim]-in.Unit[dim] {
						t.Fatalf("dim %d: %d became %d", dim, before[dim], after)
					}
				}
			})
		})
	}
}
