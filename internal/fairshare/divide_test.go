package fairshare_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

const (
	inf  = fairshare.Unlimited
	gpu  = 1000 // milli-GPU
	prio = 100
)

// q is a queue over one dimension, GPUs, with the fields that a case does not name at their usual values: top level,
// priority 100, no limit, weight 1, older than the queues after it.
type q struct {
	parent   string
	quota    int64
	limit    int64 // 0: unlimited
	none     bool  // limit 0
	request  int64
	weight   float64 // 0: 1
	noWeight bool
	usage    float64
	priority int32 // 0: 100
	created  int64
	id       string
	want     int64
}

func TestDivide(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		total  int64
		k      float64
		unit   int64 // 0: one GPU
		queues []q
	}{
		{
			name: "quota is capped by the request", total: 10 * gpu,
			// a is promised 4 and asks for 1; b is promised 4 and asks for 4. 5 stay free.
			queues: []q{
				{id: "a", quota: 4 * gpu, request: 1 * gpu, want: 1 * gpu},
				{id: "b", quota: 4 * gpu, request: 4 * gpu, want: 4 * gpu},
			},
		},
		{
			name: "quota is capped by the limit", total: 10 * gpu,
			queues: []q{{id: "a", quota: 4 * gpu, limit: 3 * gpu, request: 9 * gpu, want: 3 * gpu}},
		},
		{
			name: "quota comes before priority and may exceed the total", total: 4 * gpu,
			// 3 + 3 = 6 > 4: both promises stand, nothing is left over quota.
			queues: []q{
				{id: "a", priority: 900, quota: 3 * gpu, request: 9 * gpu, want: 3 * gpu},
				{id: "b", priority: 1, quota: 3 * gpu, request: 9 * gpu, want: 3 * gpu},
			},
		},
		{
			name: "unlimited quota is all there is, before anyone's over-quota", total: 8 * gpu,
			// a takes min(8, 6) = 6 as quota; b gets the other 2 over quota.
			queues: []q{
				{id: "a", quota: inf, request: 6 * gpu, want: 6 * gpu},
				{id: "b", request: 6 * gpu, want: 2 * gpu},
			},
		},
		{
			name: "unlimited quota leaves nothing when it asks for everything", total: 8 * gpu,
			queues: []q{
				{id: "a", quota: inf, request: 90 * gpu, want: 8 * gpu},
				{id: "b", request: 6 * gpu, want: 0},
				{id: "c", quota: 2 * gpu, request: 6 * gpu, want: 2 * gpu},
			},
		},
		{
			name: "over quota by weight", total: 10 * gpu,
			// 8 left after quotas, 3:1 -> 6 and 2.
			queues: []q{
				{id: "a", quota: 1 * gpu, weight: 3, request: 99 * gpu, want: 7 * gpu},
				{id: "b", quota: 1 * gpu, weight: 1, request: 99 * gpu, want: 3 * gpu},
			},
		},
		{
			name: "weights are relative and may be fractions", total: 9 * gpu,
			// 0.5 : 0.25 -> 6 and 3.
			queues: []q{
				{id: "a", weight: 0.5, request: 99 * gpu, want: 6 * gpu},
				{id: "b", weight: 0.25, request: 99 * gpu, want: 3 * gpu},
			},
		},
		{
			name: "the package comment's example", total: 11 * gpu,
			// Quota 4, 2, 0; 5 left. 2:1:1 -> 2.50, 1.25, 1.25: b needs 1 and has it; a +2, c +1; 1 left. 2:1 -> 0.67, 0.33: a +1.
			queues: []q{
				{id: "a", quota: 4 * gpu, weight: 2, request: 10 * gpu, want: 7 * gpu},
				{id: "b", quota: 2 * gpu, weight: 1, request: 3 * gpu, want: 3 * gpu},
				{id: "c", quota: 0, weight: 1, request: 10 * gpu, want: 1 * gpu},
			},
		},
		{
			name: "what a satisfied queue leaves is divided again, round after round", total: 20 * gpu,
			// 5 each: a takes 1, 4 left over; b, c, d have 5 each. Round 2: 4/3 = 1.33: b needs 1 more and takes it, c and d +1 each; 1 left.
			// Round 3: 0.5 each: floors 0; equal remainders, c is older: +1.
			queues: []q{
				{id: "a", created: 1, request: 1 * gpu, want: 1 * gpu},
				{id: "b", created: 2, request: 6 * gpu, want: 6 * gpu},
				{id: "c", created: 3, request: 99 * gpu, want: 7 * gpu},
				{id: "d", created: 4, request: 99 * gpu, want: 6 * gpu},
			},
		},
		{
			name: "a need that equals the share exactly is met, and starts no new round", total: 3 * gpu,
			// 1.5 each: a is satisfied; b gets floor 1 and its remainder .5, although it is older.
			queues: []q{
				{id: "b", created: 1, request: 9 * gpu, want: 1*gpu + 500},
				{id: "a", created: 2, request: 1*gpu + 500, want: 1*gpu + 500},
			},
		},
		{
			name: "a need that is the share without its fraction starts a new round", total: 5, unit: 1,
			// 1.67 each: a needs 1. b and c take 1 and share the other 2, before d's priority has its turn.
			queues: []q{
				{id: "a", priority: 200, request: 1, want: 1},
				{id: "b", priority: 200, request: 9, want: 2},
				{id: "c", priority: 200, request: 9, want: 2},
				{id: "d", priority: 100, request: 9, want: 0},
			},
		},
		{
			name: "only the last round's remainders count", total: 10, unit: 1,
			// 3:2:2 of 10: a 4.29, c 2.86; b needs 1 of 2.86. 3 left, 3:2: 1.80 and 1.20: the last one is a's, by .80 over .20.
			queues: []q{
				{id: "a", weight: 3, request: 99, want: 6},
				{id: "b", weight: 2, request: 1, want: 1},
				{id: "c", weight: 2, request: 99, want: 3},
			},
		},
		{
			name: "a higher priority divides first", total: 6 * gpu,
			// 200 takes its 4; 2 flow down: 1 and 1.
			queues: []q{
				{id: "a", priority: 100, request: 9 * gpu, want: 1 * gpu},
				{id: "b", priority: 200, request: 4 * gpu, want: 4 * gpu},
				{id: "c", priority: 100, request: 9 * gpu, want: 1 * gpu},
			},
		},
		{
			name: "a higher priority may take everything over quota", total: 6 * gpu,
			queues: []q{
				{id: "a", priority: 100, weight: 50, quota: 1 * gpu, request: 9 * gpu, want: 1 * gpu},
				{id: "b", priority: 200, weight: 1, request: 9 * gpu, want: 5 * gpu},
			},
		},
		{
			name: "the part of a unit that a high priority cannot split goes down", total: 3 * gpu,
			// 200: 1.5 each, floored to 1 and 1. The third GPU is whole for c.
			queues: []q{
				{id: "a", priority: 200, request: 9 * gpu, want: 1 * gpu},
				{id: "b", priority: 200, request: 9 * gpu, want: 1 * gpu},
				{id: "c", priority: 100, request: 9 * gpu, want: 1 * gpu},
			},
		},
		{
			name: "remainders: the larger fraction first", total: 5 * gpu,
			// 5 × 0.3, 0.3, 0.4 = 1.5, 1.5, 2.0; one left, a and b tie at .5 before c's 0; a is older.
			queues: []q{
				{id: "c", created: 1, weight: 4, request: 99 * gpu, want: 2 * gpu},
				{id: "b", created: 3, weight: 3, request: 99 * gpu, want: 1 * gpu},
				{id: "a", created: 2, weight: 3, request: 99 * gpu, want: 2 * gpu},
			},
		},
		{
			name: "remainders: the larger fraction beats age", total: 4 * gpu,
			// 4 × 0.6 = 2.4 and 4 × 0.4 = 1.6: floors 2 and 1, and the last GPU goes to b's .6 although a is older.
			queues: []q{
				{id: "a", created: 1, weight: 6, request: 99 * gpu, want: 2 * gpu},
				{id: "b", created: 2, weight: 4, request: 99 * gpu, want: 2 * gpu},
			},
		},
		{
			name: "remainders: equal fraction and age, the smaller UID", total: 3 * gpu,
			queues: []q{
				{id: "z", created: 1, request: 99 * gpu, want: 1 * gpu},
				{id: "a", created: 1, request: 99 * gpu, want: 2 * gpu},
			},
		},
		{
			name: "remainders: the higher priority before the larger fraction", total: 2*gpu + 900,
			// a, b: 1.45 each, floored to 1. 0.9 flows down: c .225, d .675, floored to 0. a, with .45, comes before d.
			queues: []q{
				{id: "a", priority: 200, created: 1, request: 99 * gpu, want: 1*gpu + 900},
				{id: "b", priority: 200, created: 2, request: 99 * gpu, want: 1 * gpu},
				{id: "c", priority: 100, weight: 1, request: 99 * gpu, want: 0},
				{id: "d", priority: 100, weight: 3, request: 99 * gpu, want: 0},
			},
		},
		{
			name: "remainders stop at what a queue needs, the rest goes on", total: 900,
			// 450 each, floored to 0. a needs 500 and gets 500 (a whole unit would be 1000), b the other 400.
			queues: []q{
				{id: "a", created: 1, request: 500, want: 500},
				{id: "b", created: 2, request: 500, want: 400},
			},
		},
		{
			name: "a fractional need is met exactly", total: 3 * gpu,
			// 1.5 each: a needs 0.25; then b may have 2.75: floor 2, remainder .75 (all that is left).
			queues: []q{
				{id: "a", request: 250, want: 250},
				{id: "b", request: 9 * gpu, want: 2*gpu + 750},
			},
		},
		{
			name: "weight 0 gets its quota and nothing over it, not even a remainder", total: 9 * gpu,
			queues: []q{
				{id: "a", noWeight: true, quota: 1 * gpu, request: 9 * gpu, want: 1 * gpu},
				{id: "b", request: 2 * gpu, want: 2 * gpu},
			},
		},
		{
			name: "all weights 0: nothing over quota, the lower priority is served", total: 9 * gpu,
			queues: []q{
				{id: "a", priority: 200, noWeight: true, request: 9 * gpu, want: 0},
				{id: "b", priority: 100, request: 9 * gpu, want: 9 * gpu},
			},
		},
		{
			name: "a limit caps over-quota and frees the rest for others", total: 10 * gpu,
			// 5 and 5: a may have 2; b gets the 3 as well.
			queues: []q{
				{id: "a", limit: 2 * gpu, request: 99 * gpu, want: 2 * gpu},
				{id: "b", request: 99 * gpu, want: 8 * gpu},
			},
		},
		{
			name: "limit 0 blocks", total: 10 * gpu,
			queues: []q{{id: "a", none: true, quota: 4 * gpu, request: 9 * gpu, want: 0}},
		},
		{
			name: "units of one milli", total: 1001, unit: 1,
			// 667.33 and 333.67: 667 and 333, one left, b has the larger fraction.
			queues: []q{
				{id: "a", weight: 2, request: 9999, want: 667},
				{id: "b", weight: 1, request: 9999, want: 334},
			},
		},
		{
			name: "history without a k-value does not count", total: 8 * gpu,
			queues: []q{
				{id: "a", usage: 0.9, request: 99 * gpu, want: 4 * gpu},
				{id: "b", usage: 0, request: 99 * gpu, want: 4 * gpu},
			},
		},
		{
			name: "k moves over-quota to who used less", total: 8 * gpu, k: 1,
			// a: 0.5 + (0.5 − 0.75) = 0.25; b: 0.5 + (0.5 − 0.25) = 0.75; 8 × 0.25 = 2, 8 × 0.75 = 6.
			queues: []q{
				{id: "a", usage: 0.75, request: 99 * gpu, want: 2 * gpu},
				{id: "b", usage: 0.25, request: 99 * gpu, want: 6 * gpu},
			},
		},
		{
			name: "k weighs history", total: 10 * gpu, k: 0.5,
			// a: 0.5 + 0.5 (0.5 − 0.7) = 0.4; b: 0.5 + 0.5 (0.5 − 0.3) = 0.6.
			queues: []q{
				{id: "a", usage: 0.7, request: 99 * gpu, want: 4 * gpu},
				{id: "b", usage: 0.3, request: 99 * gpu, want: 6 * gpu},
			},
		},
		{
			name: "a queue that used far too much waits", total: 8 * gpu, k: 1,
			// a: 0.5 + (0.5 − 1) = 0: all 8 are b's, who needs 3; then a is alone: n = 1, s = 1 + (1 − 1) = 1: the other 5.
			queues: []q{
				{id: "a", usage: 1, request: 99 * gpu, want: 5 * gpu},
				{id: "b", usage: 0, request: 3 * gpu, want: 3 * gpu},
			},
		},
		{
			name: "everyone used far too much: the priority is passed over", total: 8 * gpu, k: 4,
			// a, b: 0.5 + 4 (0.5 − 0.7) < 0. c has no history.
			queues: []q{
				{id: "a", priority: 200, usage: 0.7, request: 99 * gpu, want: 0},
				{id: "b", priority: 200, usage: 0.7, request: 99 * gpu, want: 0},
				{id: "c", priority: 100, request: 5 * gpu, want: 5 * gpu},
			},
		},
		{
			name: "children divide their parent's share, not the cluster", total: 12 * gpu,
			// x : y = 1 : 2 -> 4 and 8. Of x's 4: quota of a 1, then 1.5 each -> floor 1 and 1, remainder to a (older). y asks for its 8.
			queues: []q{
				{id: "x", request: 40 * gpu, want: 4 * gpu},
				{id: "y", weight: 2, request: 40 * gpu, want: 8 * gpu},
				{id: "a", parent: "x", created: 1, quota: 1 * gpu, request: 20 * gpu, want: 3 * gpu},
				{id: "b", parent: "x", created: 2, request: 20 * gpu, want: 1 * gpu},
				{id: "c", parent: "y", request: 40 * gpu, want: 8 * gpu},
			},
		},
		{
			name: "of those who used far too much, who used less has what others leave", total: 4 * gpu, k: 1,
			// s: a 0.2 + 0.2 − 0.9, a2 0.4 + 0.4 − 0.9, b 0.2 + 0.2 − 0.8, all below 0, so c has its 2 and nobody else a share; 2 are left for three.
			queues: []q{
				{id: "a", created: 1, request: 1 * gpu, usage: 0.9, want: 0},
				{id: "a2", created: 2, request: 1 * gpu, usage: 0.9, weight: 2, want: 1 * gpu}, // the same, for twice the weight
				{id: "b", created: 3, request: 1 * gpu, usage: 0.8, want: 1 * gpu},
				{id: "c", created: 4, request: 2 * gpu, usage: 0, want: 2 * gpu},
			},
		},
		{
			name: "children's quotas hold even if the parent got less", total: 2 * gpu,
			queues: []q{
				{id: "x", request: 8 * gpu, want: 2 * gpu},
				{id: "a", parent: "x", quota: 3 * gpu, request: 4 * gpu, want: 3 * gpu},
				{id: "b", parent: "x", quota: 0, request: 4 * gpu, want: 0},
			},
		},
		{
			name: "four levels", total: 16 * gpu,
			// 16 = x 8 + y 8; x's 8 at 3:1 = u 6 + v 2; u's 6 = 3 + 3, but l needs only 2, so m has 4, all for n.
			queues: []q{
				{id: "x", request: 99 * gpu, want: 8 * gpu},
				{id: "y", request: 99 * gpu, want: 8 * gpu},
				{id: "u", parent: "x", weight: 3, request: 50 * gpu, want: 6 * gpu},
				{id: "v", parent: "x", request: 49 * gpu, want: 2 * gpu},
				{id: "l", parent: "u", request: 2 * gpu, want: 2 * gpu},
				{id: "m", parent: "u", request: 48 * gpu, want: 4 * gpu},
				{id: "n", parent: "m", request: 48 * gpu, want: 4 * gpu},
			},
		},
		{
			name: "cycles and orphans get nothing, their neighbours everything", total: 4 * gpu,
			queues: []q{
				{id: "a", request: 9 * gpu, want: 4 * gpu},
				{id: "b", parent: "c", quota: 2 * gpu, request: 9 * gpu, want: 0},
				{id: "c", parent: "b", quota: 2 * gpu, request: 9 * gpu, want: 0},
				{id: "d", parent: "d", quota: 2 * gpu, request: 9 * gpu, want: 0},
				{id: "e", parent: "missing", quota: 2 * gpu, request: 9 * gpu, want: 0},
				{id: "f", parent: "e", quota: 2 * gpu, request: 9 * gpu, want: 0},
			},
		},
		{name: "no queues", total: 4 * gpu},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			unit := test.unit
			if unit == 0 {
				unit = gpu
			}
			in := &fairshare.Input{Total: []int64{test.total}, Unit: []int64{unit}, KValue: fairshare.Fixed(test.k)}
			index := map[string]int32{"": -1, "missing": 77}
			for i, c := range test.queues {
				index[c.id] = int32(i)
			}
			want := make([][]int64, len(test.queues))
			for i, c := range test.queues {
				want[i] = []int64{c.want}
				in.Queues = append(in.Queues, c.queue(index[c.parent]))
			}
			if diff := cmp.Diff(want, divide(in)); diff != "" {
				t.Errorf("fair shares (-want +got):\n%s", diff)
			}
		})
	}
}

func (c q) queue(parent int32) fairshare.Queue {
	out := fairshare.Queue{
		Parent: parent, Priority: c.priority, Created: c.created, UID: c.id,
		Quota: []int64{c.quota}, Limit: []int64{c.limit}, Request: []int64{c.request},
		Weight: []int64{fairshare.Fixed(c.weight)}, Usage: []int64{fairshare.Fixed(c.usage)},
	}
	if c.priority == 0 {
		out.Priority = prio
	}
	if c.limit == 0 && !c.none {
		out.Limit[0] = inf
	}
	if c.weight == 0 && !c.noWeight {
		out.Weight[0] = fairshare.One
	}
	return out
}

// Dimensions do not influence each other; what a slice does not reach is 0, but of a limit Unlimited; a dimension that is
// not shared is not divided.
func TestDivideDimensions(t *testing.T) {
	t.Parallel()
	one := []int64{fairshare.One, fairshare.One, fairshare.One}
	in := &fairshare.Input{
		Total:  []int64{4000, 8 << 30}, // no GPUs
		Unit:   []int64{1, 1, 1000},
		Shared: []bool{true, false, true},
		Queues: []fairshare.Queue{
			// Limit 0 in CPU and GPU; memory is not shared here.
			{Parent: -1, UID: "nil", Limit: []int64{0, inf, 0}, Request: []int64{4000, 1 << 30, 1000}, Weight: one},
			// 3 of 4 cores at 3:1. No limit named: no limit.
			{Parent: -1, UID: "a", Request: []int64{9000, 9 << 30, 2000}, Weight: []int64{3 * fairshare.One, fairshare.One}},
			// A quota of GPUs is a promise even if there are none.
			{Parent: -1, UID: "b", Quota: []int64{0, 0, 1000}, Limit: []int64{inf}, Request: []int64{9000, 9 << 30, 2000}, Weight: one},
		},
	}
	want := [][]int64{{0, 0, 0}, {3000, 0, 0}, {1000, 0, 1000}}
	if diff := cmp.Diff(want, divide(in)); diff != "" {
		t.Errorf("fair shares (-want +got):\n%s", diff)
	}
}

// The documented reading of bad numbers.
func TestDivideBadInput(t *testing.T) {
	t.Parallel()
	good := func() fairshare.Queue {
		return fairshare.Queue{
			Parent: -1, UID: "a", Quota: []int64{1000}, Limit: []int64{inf}, Request: []int64{9000},
			Weight: []int64{fairshare.One}, Usage: []int64{0},
		}
	}
	for _, test := range []struct {
		name string
		edit func(*fairshare.Input, *fairshare.Queue)
		want int64
	}{
		{"good", func(*fairshare.Input, *fairshare.Queue) {}, 5000},
		{"negative total is 0", func(in *fairshare.Input, _ *fairshare.Queue) { in.Total[0] = -7 }, 1000},
		{"unlimited total is 0", func(in *fairshare.Input, _ *fairshare.Queue) { in.Total[0] = inf }, 1000},
		{"unit 0 is 1", func(in *fairshare.Input, _ *fairshare.Queue) { in.Total[0], in.Unit[0] = 5001, 0 }, 5001},
		{"negative k is 0", func(in *fairshare.Input, _ *fairshare.Queue) { in.KValue = -5 }, 5000},
		{"huge k is capped", func(in *fairshare.Input, _ *fairshare.Queue) { in.KValue = math.MaxInt64 }, 5000},
		{"negative quota is 0", func(_ *fairshare.Input, q *fairshare.Queue) { q.Quota[0] = -2; q.Weight = nil }, 0},
		{"negative limit is 0", func(_ *fairshare.Input, q *fairshare.Queue) { q.Limit[0] = math.MinInt64 }, 0},
		{"negative request is 0", func(_ *fairshare.Input, q *fairshare.Queue) { q.Request[0] = -1 }, 0},
		{"huge request", func(_ *fairshare.Input, q *fairshare.Queue) { q.Request[0] = math.MaxInt64 }, 5000},
		{"huge quota", func(_ *fairshare.Input, q *fairshare.Queue) { q.Quota[0] = math.MaxInt64 }, 9000},
		{"negative weight is 0", func(_ *fairshare.Input, q *fairshare.Queue) { q.Weight[0] = -fairshare.One }, 1000},
		{"huge weight is capped", func(_ *fairshare.Input, q *fairshare.Queue) { q.Weight[0] = math.MaxInt64 }, 5000},
		{"negative usage is 0", func(in *fairshare.Input, q *fairshare.Queue) { in.KValue, q.Usage[0] = fairshare.One, math.MinInt64 }, 5000},
		{"huge usage is capped", func(in *fairshare.Input, q *fairshare.Queue) { in.KValue, q.Usage[0] = fairshare.One, math.MaxInt64 }, 1000},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			queue := good()
			in := &fairshare.Input{Total: []int64{5000}, Unit: []int64{1000}}
			test.edit(in, &queue)
			in.Queues = []fairshare.Queue{queue}
			if got := divide(in)[0][0]; got != test.want {
				t.Errorf("fair share %d, want %d", got, test.want)
			}
		})
	}
}

// The largest factors at once, and weights without a common divisor: parts are scaled down together, so the shares are
// those of the oracle but for a trifle.
func TestDivideLargestFactors(t *testing.T) {
	t.Parallel()
	const total = 1_000_000_000
	in := &fairshare.Input{Total: []int64{total}, Unit: []int64{1}, KValue: fairshare.MaxFactor}
	for i, weight := range []int64{fairshare.MaxWeight, fairshare.MaxWeight - 1, fairshare.MaxWeight/2 + 1, 1} {
		in.Queues = append(in.Queues, fairshare.Queue{
			Parent: -1, UID: string(rune('a' + i)), Quota: []int64{0}, Limit: []int64{inf}, Request: []int64{math.MaxInt64},
			Weight: []int64{weight}, Usage: []int64{int64(i) * fairshare.One / 10},
		})
	}
	sum := int64(0)
	for i, want := range oracle(in) {
		got := divide(in)[i]
		if diff := got[0] - want[0]; diff < -1 || diff > 1 {
			t.Errorf("queue %d: %d, oracle %d", i, got[0], want[0])
		}
		sum += got[0]
	}
	if sum != total {
		t.Errorf("%d of %d divided", sum, total)
	}
}

func TestFixed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in   float64
		want int64
	}{
		{0, 0},
		{1, fairshare.One},
		{2.5, 2_500_000},
		{1.0 / 3, 333_333},
		{1e-12, 1},
		{-1, 0},
		{math.NaN(), 0},
		{math.Inf(1), fairshare.MaxWeight},
		{math.Inf(-1), 0},
		{1e300, fairshare.MaxWeight},
		{math.MaxFloat64, fairshare.MaxWeight},
		{math.Copysign(0, -1), 0},
		{math.SmallestNonzeroFloat64, 1},
	} {
		if got := fairshare.Fixed(test.in); got != test.want {
			t.Errorf("Fixed(%v) = %d, want %d", test.in, got, test.want)
		}
	}
}
