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

// With history, priorities and several levels: a queue's own weight and quota never count against it, and its own usage
// never for it, up to the unit that remainders move. Usage is a part of the cluster, so that of siblings adds up to One
// at most; beyond that the formula may find that everybody used too much, and nobody gets anything.
func TestDivideIsMonotoneWithHistory(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		more func(t *rapid.T, q *fairshare.Queue, dim int, unused int64)
		sign int64
	}{
		{"weight", func(t *rapid.T, q *fairshare.Queue, dim int, _ int64) { q.Weight[dim] += fixedPoint(3).Draw(t, "more") }, 1},
		{"quota", func(t *rapid.T, q *fairshare.Queue, dim int, _ int64) {
			if q.Quota[dim] != fairshare.Unlimited {
				q.Quota[dim] += amount(dim, 10).Draw(t, "more")
			}
		}, 1},
		{"usage", func(t *rapid.T, q *fairshare.Queue, dim int, unused int64) {
			q.Usage[dim] += min(unused, fixedPoint(1).Draw(t, "more"))
		}, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				in := wellFormed(shape{history: true}).Draw(t, "input")
				who := rapid.IntRange(0, len(in.Queues)-1).Draw(t, "queue")
				unused := make([]int64, len(in.Total))
				for dim := range in.Total {
					unused[dim] = fairshare.One
					for i := range in.Queues {
						if q := &in.Queues[i]; q.Parent == in.Queues[who].Parent {
							q.Usage[dim] = min(q.Usage[dim], unused[dim])
							unused[dim] -= q.Usage[dim]
						}
					}
				}
				before := divide(in)[who]
				for dim := range in.Total {
					test.more(t, &in.Queues[who], dim, unused[dim])
				}
				for dim, after := range divide(in)[who] {
					if (after-before[dim])*test.sign < -in.Unit[dim] {
						t.Fatalf("queue %d dim %d: %d became %d", who, dim, before[dim], after)
					}
				}
			})
		})
	}
}
