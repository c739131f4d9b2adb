package fairshare_test

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// cluster has 100 CPUs, 1000 bytes and 10 GPUs.
func cluster() *fairshare.Order {
	return &fairshare.Order{Total: []int64{100_000, 1000, 10_000}, Unit: []int64{1, 1, 1000}, Shared: []bool{true, true, true}, Core: 3}
}

// gpus is a vector of whole GPUs.
func gpus(n int64) []int64 { return []int64{0, 0, n * gpu} }

// team is a queue with a quota and fair share of 4 GPUs, unlimited CPU and memory, created at the given time.
func team(uid string, created int64, edit func(*fairshare.State)) *fairshare.State {
	s := &fairshare.State{
		Priority: prio, Created: created, UID: uid,
		Quota: []int64{inf, inf, 4 * gpu}, Limit: []int64{inf, inf, inf}, Fair: []int64{5000, 50, 4 * gpu},
		Allocated: []int64{0, 0, 0},
	}
	if edit != nil {
		edit(s)
	}
	return s
}

// Each case: the first queue is served before the second, by the named rule.
func TestDecide(t *testing.T) {
	t.Parallel()
	type side struct {
		queue        *fairshare.State
		job, victims []int64
	}
	set := func(edit func(*fairshare.State)) *fairshare.State { return team("z", 9, edit) }
	plain := func() *fairshare.State { return team("a", 1, nil) }
	holds := func(cpu, memory, g int64) func(*fairshare.State) {
		return func(s *fairshare.State) { s.Allocated = []int64{cpu, memory, g * gpu} }
	}
	for _, test := range []struct {
		name          string
		first, second side
		rule          fairshare.Rule
	}{
		{
			"both above fair share in CPU, memory and GPU: priority",
			side{queue: set(func(s *fairshare.State) { s.Priority = 900; s.Allocated = []int64{5001, 51, 9 * gpu} })},
			side{queue: team("a", 1, holds(5001, 51, 5))},
			fairshare.RulePriority,
		},
		{
			"above in all three goes last, above in two of three does not, whatever the priority",
			side{queue: set(holds(5001, 50, 9))},
			side{queue: team("a", 1, func(s *fairshare.State) { s.Priority = 900; s.Allocated = []int64{5001, 51, 5 * gpu} })},
			fairshare.RuleOverUtilised,
		},
		{
			"a next gang within quota beats priority",
			side{queue: set(holds(0, 0, 3)), job: gpus(1)},
			side{queue: team("a", 1, func(s *fairshare.State) { s.Priority = 900; s.Allocated = gpus(4) }), job: gpus(1)},
			fairshare.RuleQuota,
		},
		{
			"quota counts without the next gang if there is none",
			side{queue: set(holds(0, 0, 4))},
			side{queue: team("a", 1, holds(0, 0, 5))},
			fairshare.RuleQuota,
		},
		{
			"priority",
			side{queue: set(func(s *fairshare.State) { s.Priority = 101; s.Allocated = gpus(3) })},
			side{queue: plain()},
			fairshare.RulePriority,
		},
		{
			"something held of which there is no share goes last",
			side{queue: set(func(s *fairshare.State) { s.Quota[2] = 2 * gpu; s.Fair[2] = 2 * gpu; s.Allocated = gpus(9) })},
			side{queue: team("a", 1, func(s *fairshare.State) { s.Quota[2], s.Fair[2] = 0, 0; s.Allocated = []int64{0, 0, 1} })},
			fairshare.RuleNoShare,
		},
		{
			"smaller dominant share with the next gang: 3/4 before 4/4",
			side{queue: set(holds(0, 0, 2)), job: gpus(1)},
			side{queue: team("a", 1, holds(0, 0, 0)), job: gpus(4)},
			fairshare.RuleShareNext,
		},
		{
			"victims are thought away: (4-3)/4 before 2/4",
			side{queue: set(holds(0, 0, 4)), victims: gpus(3)},
			side{queue: team("a", 1, holds(0, 0, 2))},
			fairshare.RuleShareNext,
		},
		{
			"unlimited shares count against the cluster: 1/4 GPU before 30/100 CPU",
			side{queue: set(holds(0, 0, 1))},
			side{queue: team("a", 1, holds(30_000, 0, 0))},
			fairshare.RuleShareNext,
		},
		{
			"without a share, GPUs count a thousandfold each, like milli-CPUs",
			side{queue: set(func(s *fairshare.State) { s.Quota[2], s.Fair[2] = 0, 0; s.Allocated = gpus(1) })},
			side{queue: team("a", 1, func(s *fairshare.State) { s.Quota[0], s.Fair[0] = 0, 0; s.Allocated = []int64{2, 0, 0} })},
			fairshare.RuleShareNext,
		},
		{
			"equal with the next gang: smaller dominant share now, 1/4 before 2/4",
			side{queue: set(holds(0, 0, 1)), job: gpus(2)},
			side{queue: team("a", 1, holds(0, 0, 2)), job: gpus(1)},
			fairshare.RuleShareNow,
		},
		{
			"equal shares: smaller allocatable share, 1/2 before 2/4",
			side{queue: set(func(s *fairshare.State) { s.Quota[2], s.Fair[2] = 2*gpu, 2*gpu; s.Allocated = gpus(1) })},
			side{queue: team("a", 1, holds(0, 0, 2))},
			fairshare.RuleAllocatable,
		},
		{
			"a finite allocatable share is smaller than an unlimited one",
			side{queue: set(func(s *fairshare.State) { s.Limit[0] = math.MaxInt64 })},
			side{queue: plain()},
			fairshare.RuleAllocatable,
		},
		{
			"what queues do not share has no part in it: pod slots beyond any quota",
			side{queue: team("z", 1, func(s *fairshare.State) { s.Allocated = []int64{0, 0, 0, 500}; s.Quota = append(s.Quota, 1) })},
			side{queue: team("a", 2, nil)},
			fairshare.RuleAge,
		},
		{
			"age",
			side{queue: team("z", 1, nil)},
			side{queue: team("a", 2, nil)},
			fairshare.RuleAge,
		},
		{
			"UID",
			side{queue: team("a", 1, nil)},
			side{queue: team("b", 1, nil)},
			fairshare.RuleUID,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := cluster()
			first := o.Key(test.first.queue, test.first.job, test.first.victims)
			second := o.Key(test.second.queue, test.second.job, test.second.victims)
			if c, rule := fairshare.Decide(&first, &second); c >= 0 || rule != test.rule {
				t.Errorf("Decide(first, second) = %d by %v, want negative by %v", c, rule, test.rule)
			}
			if c, rule := fairshare.Decide(&second, &first); c <= 0 || rule != test.rule {
				t.Errorf("Decide(second, first) = %d by %v, want positive by %v", c, rule, test.rule)
			}
			if c, rule := fairshare.Decide(&first, &first); c != 0 || rule != fairshare.RuleSame {
				t.Errorf("Decide(first, first) = %d by %v, want 0 by nothing", c, rule)
			}
		})
	}
}

func TestAllocatable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ quota, limit, fair, want int64 }{
		{quota: 4, limit: inf, fair: 6, want: 6},
		{quota: 4, limit: inf, fair: 2, want: 4}, // asks for little now, may still grow to its quota
		{quota: 4, limit: 5, fair: 6, want: 5},
		{quota: 9, limit: 5, fair: 6, want: 5},
		{quota: inf, limit: 5, fair: 2, want: 5},
		{quota: inf, limit: inf, fair: 2, want: inf},
		{quota: -5, limit: -5, fair: -5, want: 0},
	} {
		s := &fairshare.State{Quota: []int64{test.quota}, Limit: []int64{test.limit}, Fair: []int64{test.fair}}
		if got := s.Allocatable(0); got != test.want {
			t.Errorf("%+v: Allocatable = %d", test, got)
		}
		if got := s.Allocatable(1); got != 0 {
			t.Errorf("%+v: Allocatable of a dimension not named = %d, want 0", test, got)
		}
	}
}

// candidate is a queue with a next gang and victims.
type candidate struct {
	state        *fairshare.State
	job, victims []int64
}

// candidates draws siblings from few small numbers, so that ties are common on every rule.
func candidates(n int) *rapid.Generator[[]candidate] {
	return rapid.Custom(func(t *rapid.T) []candidate {
		small := rapid.SliceOfN(rapid.Int64Range(0, 3), 3, 3)
		bounds := rapid.SliceOfN(rapid.Int64Range(-1, 3), 3, 3)
		out := make([]candidate, n)
		for i := range out {
			out[i] = candidate{
				state: &fairshare.State{
					Priority: rapid.Int32Range(1, 2).Draw(t, "priority"), Created: rapid.Int64Range(0, 1).Draw(t, "created"), UID: fmt.Sprint(i),
					Quota: bounds.Draw(t, "quota"), Limit: bounds.Draw(t, "limit"), Fair: small.Draw(t, "fair"), Allocated: small.Draw(t, "allocated"),
				},
				job: small.Draw(t, "job"), victims: small.Draw(t, "victims"),
			}
		}
		return out
	})
}

// naiveBefore is the queue order in rational numbers, straight from its eight steps; 0 where KAI Scheduler's order does
// not decide by a value of each queue: incomparable allocatable shares, and equal ages.
func naiveBefore(o *fairshare.Order, l, r candidate) int {
	type facts struct {
		over, within, hopeless bool
		next, now              *big.Rat
	}
	look := func(c candidate) facts {
		f := facts{over: true, within: true, next: new(big.Rat), now: new(big.Rat)}
		for dim := range o.Total {
			used, wanted := c.state.Allocated[dim], c.state.Allocated[dim]+c.job[dim]
			f.over = f.over && c.state.Fair[dim] < used
			f.within = f.within && (c.state.Quota[dim] == inf || wanted <= c.state.Quota[dim])
			allocatable := c.state.Allocatable(dim)
			f.hopeless = f.hopeless || wanted > 0 && allocatable == 0
			ratio := func(amount int64) *big.Rat {
				divisor := allocatable
				if divisor == inf {
					divisor = o.Total[dim]
				}
				if divisor == 0 {
					return big.NewRat(1000*max(0, amount), o.Unit[dim])
				}
				return big.NewRat(max(0, amount), divisor)
			}
			if x := ratio(wanted - c.victims[dim]); x.Cmp(f.next) > 0 {
				f.next = x
			}
			if x := ratio(used); x.Cmp(f.now) > 0 {
				f.now = x
			}
		}
		return f
	}
	sooner := func(yes bool) int {
		if yes {
			return -1
		}
		return 1
	}
	a, b := look(l), look(r)
	switch {
	case a.over != b.over:
		return sooner(b.over)
	case a.within != b.within:
		return sooner(a.within)
	case l.state.Priority != r.state.Priority:
		return sooner(l.state.Priority > r.state.Priority)
	case a.hopeless != b.hopeless:
		return sooner(b.hopeless)
	case a.next.Cmp(b.next) != 0:
		return a.next.Cmp(b.next)
	case a.now.Cmp(b.now) != 0:
		return a.now.Cmp(b.now)
	}
	less, more := false, false
	for dim := range o.Total {
		x, y := l.state.Allocatable(dim), r.state.Allocatable(dim)
		less = less || x != y && x != inf && (y == inf || x < y)
		more = more || x != y && y != inf && (x == inf || y < x)
	}
	switch {
	case less && more:
		return 0
	case less || more:
		return sooner(less)
	case l.state.Created != r.state.Created:
		return sooner(l.state.Created < r.state.Created)
	}
	return 0
}

func TestCompareEqualsTheEightSteps(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &fairshare.Order{Total: rapid.SliceOfN(rapid.Int64Range(0, 6), 3, 3).Draw(t, "total"), Unit: []int64{1, 1, 2}, Core: 3}
		pair := candidates(2).Draw(t, "pair")
		a := o.Key(pair[0].state, pair[0].job, pair[0].victims)
		b := o.Key(pair[1].state, pair[1].job, pair[1].victims)
		if want := naiveBefore(o, pair[0], pair[1]); want != 0 && fairshare.Compare(&a, &b) != want {
			got, rule := fairshare.Decide(&a, &b)
			t.Fatalf("Compare = %d by %v, want %d", got, rule, want)
		}
	})
}

func TestCompareIsAStrictTotalOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		o := &fairshare.Order{Total: []int64{4, 4, 4}, Unit: []int64{1, 1, 2}, Core: 3}
		three := candidates(3).Draw(t, "three")
		var keys [3]fairshare.Key
		for i, c := range three {
			keys[i] = o.Key(c.state, c.job, c.victims)
		}
		less := func(i, j int) bool { return fairshare.Compare(&keys[i], &keys[j]) < 0 }
		for i := range keys {
			for j := range keys {
				if i != j && less(i, j) == less(j, i) {
					t.Fatalf("queues %d and %d: before each other %v both ways", i, j, less(i, j))
				}
			}
		}
		if less(0, 1) && less(1, 2) && less(2, 0) || less(1, 0) && less(2, 1) && less(0, 2) {
			t.Fatal("three queues beat each other in a circle")
		}
	})
}

// Numbers near the ends of int64, and vectors of any length, neither panic nor turn the order round.
func TestCompareSurvivesAnyInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{0, 1, inf, math.MaxInt64, math.MinInt64}))
		vector := rapid.SliceOfN(number, 0, 4)
		o := &fairshare.Order{Total: vector.Draw(t, "total"), Unit: vector.Draw(t, "unit"), Core: rapid.IntRange(-1, 5).Draw(t, "core")}
		var keys [3]fairshare.Key
		for i := range keys {
			s := &fairshare.State{
				UID: fmt.Sprint(i), Quota: vector.Draw(t, "quota"), Limit: vector.Draw(t, "limit"),
				Fair: vector.Draw(t, "fair"), Allocated: vector.Draw(t, "allocated"),
			}
			keys[i] = o.Key(s, vector.Draw(t, "job"), vector.Draw(t, "victims"))
		}
		for i := range keys {
			for j := range keys {
				if c := fairshare.Compare(&keys[i], &keys[j]); c != -fairshare.Compare(&keys[j], &keys[i]) || (c == 0) != (i == j) {
					t.Fatalf("Compare(%d, %d) = %d is not antisymmetric", i, j, c)
				}
			}
		}
		if fairshare.Compare(&keys[0], &keys[1]) < 0 && fairshare.Compare(&keys[1], &keys[2]) < 0 && fairshare.Compare(&keys[2], &keys[0]) < 0 {
			t.Fatal("circle")
		}
	})
}
