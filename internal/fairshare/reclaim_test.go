package fairshare_test

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// policy is KAI Scheduler's: CPU, memory and GPU always count.
func policy() *fairshare.Reclaim {
	return &fairshare.Reclaim{Shared: []bool{true, true, true, false, true}, Core: 3, Multiplier: fairshare.One}
}

// holder is a queue of GPUs: quota, fair share, and what it holds. Of CPU and memory it may have what it likes.
func holder(uid string, quota, fair, held int64) *fairshare.State {
	return &fairshare.State{
		UID: uid, Quota: []int64{inf, inf, quota * gpu}, Limit: []int64{inf, inf, inf},
		Fair: []int64{1000, 1000, fair * gpu}, Allocated: []int64{0, 0, held * gpu}, NonPreemptible: []int64{0, 0, 0},
	}
}

func chain(queues ...*fairshare.State) []*fairshare.State { return queues }

func TestReclaimOverFairShare(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		edit    func(*fairshare.State)
		request []int64
		want    *fairshare.Excess
	}{
		{name: "up to the fair share", request: gpus(2)},
		{name: "beyond it", request: gpus(3), want: &fairshare.Excess{Dim: 2, Bound: 4 * gpu, Used: 2 * gpu, Asked: 3 * gpu}},
		{
			name: "CPU above fair share blocks although none is requested", request: gpus(1),
			edit: func(s *fairshare.State) { s.Allocated[0] = 1001 },
			want: &fairshare.Excess{Dim: 0, Bound: 1000, Used: 1001},
		},
		{
			name: "a further dimension above fair share blocks only who asks for it", request: gpus(1),
			edit: func(s *fairshare.State) { s.Fair = append(s.Fair, 0, 5); s.Allocated = append(s.Allocated, 0, 6) },
		},
		{
			name: "and then it does", request: []int64{0, 0, gpu, 0, 1},
			edit: func(s *fairshare.State) { s.Fair = append(s.Fair, 0, 5); s.Allocated = append(s.Allocated, 0, 6) },
			want: &fairshare.Excess{Dim: 4, Bound: 5, Used: 6, Asked: 1},
		},
		{name: "dimensions that queues do not share never count", request: []int64{0, 0, gpu, 7}},
		{
			name: "a sum beyond int64 is no wrap-around", request: []int64{0, 0, math.MaxInt64},
			want: &fairshare.Excess{Dim: 2, Bound: 4 * gpu, Used: 2 * gpu, Asked: math.MaxInt64},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			leaf := holder("leaf", 4, 4, 2)
			if test.edit != nil {
				test.edit(leaf)
			}
			// The parent is far above its own share: only the leaf counts.
			got, over := policy().OverFairShare(chain(leaf, holder("parent", 0, 0, 9)), test.request)
			if over != (test.want != nil) {
				t.Fatalf("OverFairShare = %+v, %v", got, over)
			}
			if test.want != nil {
				if diff := cmp.Diff(*test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
	if _, over := policy().OverFairShare(nil, gpus(1)); over {
		t.Error("no queue, yet over its share")
	}
}

func TestReclaimOverQuota(t *testing.T) {
	t.Parallel()
	leaf, parent := holder("leaf", 4, 9, 9), holder("parent", 6, 9, 9)
	leaf.NonPreemptible, parent.NonPreemptible = []int64{0, 0, 2 * gpu}, []int64{0, 0, 5 * gpu}
	r := policy()
	if e, over := r.OverQuota(chain(leaf, parent), gpus(1)); over {
		t.Errorf("1 GPU = %+v", e)
	}
	if e, over := r.OverQuota(chain(leaf, parent), gpus(2)); !over || e.Level != 1 || e.Have() != gpu {
		t.Errorf("2 GPUs = %+v, %v; want the parent's quota", e, over)
	}
	leaf.Quota[0], leaf.NonPreemptible[0] = 10, 11
	if e, over := r.OverQuota(chain(leaf, parent), gpus(1)); !over || e.Level != 0 || e.Dim != 0 {
		t.Errorf("CPU above quota = %+v, %v; it blocks although none is requested", e, over)
	}
}

func TestLevels(t *testing.T) {
	t.Parallel()
	root, a, b := holder("root", 0, 0, 0), holder("a", 0, 0, 0), holder("b", 0, 0, 0)
	a1, a2, b1 := holder("a1", 0, 0, 0), holder("a2", 0, 0, 0), holder("b1", 0, 0, 0)
	for _, test := range []struct {
		name        string
		left, right []*fairshare.State
		mine, their *fairshare.State
	}{
		{"siblings", chain(a1, a, root), chain(a2, a, root), a1, a2},
		{"cousins meet at their parents", chain(a1, a, root), chain(b1, b, root), a, b},
		{"different trees meet at the top", chain(a1, a), chain(b1, b), a, b},
		{"unequal depth", chain(a1, a, root), chain(b, root), a, b},
		{"one above the other", chain(a1, a, root), chain(a, root), a, a},
		{"the same", chain(a1, a), chain(a1, a), a1, a1},
		{"nothing", nil, chain(a1), nil, nil},
	} {
		if mine, their := fairshare.Levels(test.left, test.right); mine != test.mine || their != test.their {
			t.Errorf("%s: %v and %v", test.name, mine, their)
		}
		if their, mine := fairshare.Levels(test.right, test.left); mine != test.mine || their != test.their {
			t.Errorf("%s reversed: %v and %v", test.name, mine, their)
		}
	}
}

func TestFilterVictim(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name         string
		mine, theirs *fairshare.State
		request      []int64
		want         fairshare.RefusalRule
	}{
		{"mine beyond quota, theirs above fair share", holder("m", 1, 4, 1), holder("v", 2, 4, 5), gpus(1), fairshare.RefusedNone},
		{"mine beyond quota, theirs at fair share", holder("m", 1, 4, 1), holder("v", 2, 4, 4), gpus(1), fairshare.RefusedFairShare},
		{"a quota above the fair share counts", holder("m", 1, 4, 1), holder("v", 6, 4, 5), gpus(1), fairshare.RefusedFairShare},
		{"mine within quota, theirs above quota but below fair share", holder("m", 2, 4, 1), holder("v", 2, 4, 3), gpus(1), fairshare.RefusedNone},
		{"mine within quota, theirs at quota: left to the unit", holder("m", 2, 4, 1), holder("v", 2, 4, 2), gpus(1), fairshare.RefusedNone},
		{"mine within quota, theirs below quota", holder("m", 2, 4, 1), holder("v", 2, 4, 1), gpus(1), fairshare.RefusedQuota},
		{
			"mine beyond quota, theirs above fair share of CPU only, none requested", holder("m", 0, 4, 0),
			func() *fairshare.State {
				s := holder("v", 2, 4, 1)
				s.Quota[0], s.Allocated[0] = 10, 1001
				return s
			}(),
			gpus(1), fairshare.RefusedNone,
		},
		{
			"unlimited quota of theirs never counts", holder("m", 2, 4, 1),
			func() *fairshare.State { s := holder("v", 0, 4, 0); s.Quota[2] = inf; return s }(), gpus(1), fairshare.RefusedNone,
		},
		{
			"above quota in one requested dimension outweighs below in another", holder("m", 2, 4, 1),
			func() *fairshare.State {
				s := holder("v", 2, 4, 1)
				s.Quota[0], s.Allocated[0] = 10, 11
				return s
			}(),
			[]int64{1, 0, gpu},
			fairshare.RefusedNone,
		},
		{
			"a further dimension above fair share does not help who does not ask for it", holder("m", 0, 4, 0),
			func() *fairshare.State {
				s := holder("v", 2, 4, 1)
				s.Quota, s.Fair, s.Allocated = append(s.Quota, 0, 1), append(s.Fair, 0, 1), append(s.Allocated, 0, 3)
				return s
			}(),
			gpus(1), fairshare.RefusedFairShare,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, ok := policy().FilterVictim(chain(test.mine), chain(test.theirs), test.request)
			if got.Rule != test.want || ok != (test.want == fairshare.RefusedNone) {
				t.Errorf("FilterVictim = %+v, %v; want %v", got, ok, test.want)
			}
		})
	}
	same := holder("m", 0, 0, 9)
	if got, ok := policy().FilterVictim(chain(same), chain(same), gpus(1)); ok || got.Rule != fairshare.RefusedSameQueue {
		t.Errorf("same queue = %+v, %v", got, ok)
	}
}

func TestCheckUnit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name          string
		mine, theirs  *fairshare.State
		request, unit int64
		multiplier    int64
		right         fairshare.ReclaimRule
		refusal       fairshare.Refusal // without the queues
	}{
		{name: "above fair share", mine: holder("m", 0, 4, 0), theirs: holder("v", 0, 4, 5), request: 1, unit: 1, right: fairshare.ReclaimFairShare},
		{name: "the last unit may take it below", mine: holder("m", 0, 4, 0), theirs: holder("v", 0, 4, 5), request: 4, unit: 4, right: fairshare.ReclaimFairShare},
		{
			name: "at fair share", mine: holder("m", 0, 4, 0), theirs: holder("v", 0, 4, 4), request: 1, unit: 1,
			refusal: fairshare.Refusal{Rule: fairshare.RefusedFairShare, Dim: 2, Have: 4 * gpu, Bound: 4 * gpu},
		},
		{name: "quota against fair share: above its quota it gives", mine: holder("m", 2, 4, 0), theirs: holder("v", 1, 4, 2), request: 2, unit: 1, right: fairshare.ReclaimQuota},
		{
			name: "quota against quota: at its quota it does not", mine: holder("m", 2, 4, 0), theirs: holder("v", 2, 4, 2), request: 2, unit: 1,
			refusal: fairshare.Refusal{Rule: fairshare.RefusedQuota, Dim: 2, Have: 2 * gpu, Bound: 2 * gpu},
		},
		{
			name: "one more than quota is no longer guaranteed", mine: holder("m", 2, 4, 0), theirs: holder("v", 1, 4, 2), request: 3, unit: 1,
			refusal: fairshare.Refusal{Rule: fairshare.RefusedFairShare, Dim: 2, Have: 2 * gpu, Bound: 4 * gpu},
		},
		{
			name: "above its fair share it must stay less saturated: 6/4 against 6/4", mine: holder("m", 0, 4, 5), theirs: holder("v", 0, 4, 7), request: 1, unit: 1,
			refusal: fairshare.Refusal{Rule: fairshare.RefusedSaturation, Dim: 2, Have: 6 * gpu, Bound: 6 * gpu},
		},
		{name: "6/4 against 7/4", mine: holder("m", 0, 4, 5), theirs: holder("v", 0, 4, 8), request: 1, unit: 1, right: fairshare.ReclaimFairShare},
		{
			name: "6/4 × 1.2 against 7/4", mine: holder("m", 0, 4, 5), theirs: holder("v", 0, 4, 8), request: 1, unit: 1, multiplier: 1_200_000,
			refusal: fairshare.Refusal{Rule: fairshare.RefusedSaturation, Dim: 2, Have: 7 * gpu, Bound: 7200},
		},
		{name: "6/4 × 1.2 against 8/4", mine: holder("m", 0, 4, 5), theirs: holder("v", 0, 4, 9), request: 1, unit: 1, multiplier: 1_200_000, right: fairshare.ReclaimFairShare},
		{name: "a multiplier below one counts as one", mine: holder("m", 0, 4, 5), theirs: holder("v", 0, 4, 8), request: 1, unit: 1, multiplier: 1, right: fairshare.ReclaimFairShare},
		{
			name: "with no fair share at all every amount is too much", mine: holder("m", 0, 0, 0), theirs: holder("v", 0, 4, 9), request: 1, unit: 1,
			refusal: fairshare.Refusal{Rule: fairshare.RefusedSaturation, Dim: 2, Have: 8 * gpu, Bound: math.MaxInt64},
		},
		{name: "a queue with no fair share does not mind", mine: holder("m", 0, 0, 0), theirs: holder("v", 0, 0, 9), request: 1, unit: 1, right: fairshare.ReclaimFairShare},
		{name: "up to the fair share saturation does not matter", mine: holder("m", 0, 4, 3), theirs: holder("v", 0, 40, 41), request: 1, unit: 41, right: fairshare.ReclaimFairShare},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := policy()
			if test.multiplier != 0 {
				r.Multiplier = test.multiplier
			}
			top := holder("top", 0, 0, 99)
			rule, refusal := r.CheckUnit(chain(holder("leaf", 0, 0, 9), test.mine, top), chain(test.theirs, top), gpus(test.request), gpus(test.unit))
			if test.refusal.Rule != fairshare.RefusedNone {
				test.refusal.Reclaimer, test.refusal.Victim = test.mine, test.theirs
			}
			if diff := cmp.Diff(test.refusal, refusal); diff != "" || rule != test.right {
				t.Errorf("CheckUnit = %v, want %v; refusal (-want +got):\n%s", rule, test.right, diff)
			}
		})
	}
}

// take is one unit of a victim.
type take struct {
	chain []*fairshare.State
	unit  []int64
}

// oracleReclaimable is KAI Scheduler's rule over a finished list of units, in rational numbers and by the plainest code
// that does: every unit is tested before it is subtracted, and saturation is looked at in the end, for every queue of
// the reclaimer's chain against each of its siblings that gave something.
func oracleReclaimable(r *fairshare.Reclaim, reclaimer []*fairshare.State, request []int64, takes []take) bool {
	left := map[*fairshare.State][]int64{}
	held := func(s *fairshare.State) []int64 {
		if left[s] == nil {
			left[s] = slices.Clone(s.Allocated)
		}
		return left[s]
	}
	asks := func(dim int) int64 { return amountOf(request, dim) }
	counts := func(dim int) bool { return r.Shared[dim] && (dim < r.Core || asks(dim) > 0) }
	sum := func(a, b int64) *big.Int { return new(big.Int).Add(big.NewInt(a), big.NewInt(b)) }
	gave := map[*fairshare.State][]bool{} // by queue: dimensions
	for _, v := range takes {
		mine, theirs := reclaimer[0], v.chain[0]
		for back := 1; back <= min(len(reclaimer), len(v.chain)); back++ {
			mine, theirs = reclaimer[len(reclaimer)-back], v.chain[len(v.chain)-back]
			if mine != theirs {
				break
			}
		}
		aboveShare, fits, aboveQuota := false, true, false
		for dim := range r.Shared {
			if !counts(dim) {
				continue
			}
			if share := theirs.Allocatable(dim); share != inf && held(theirs)[dim] > share {
				aboveShare = true
			}
			if mine.Quota[dim] != inf && sum(held(mine)[dim], asks(dim)).Cmp(big.NewInt(mine.Quota[dim])) > 0 {
				fits = false
			}
			if theirs.Quota[dim] != inf && held(theirs)[dim] > theirs.Quota[dim] {
				aboveQuota = true
			}
		}
		if mine == theirs || !aboveShare && !(fits && aboveQuota) {
			return false
		}
		for _, s := range v.chain {
			for dim, x := range v.unit {
				held(s)[dim] = max(0, held(s)[dim]-x)
			}
			if gave[s] == nil {
				gave[s] = make([]bool, len(r.Shared))
			}
			for dim, x := range v.unit {
				gave[s][dim] = gave[s][dim] || x > 0
			}
		}
	}
	for back := 1; back <= len(reclaimer); back++ {
		mine := reclaimer[len(reclaimer)-back]
		for _, v := range takes {
			if len(v.chain) < back || v.chain[len(v.chain)-back] == mine ||
				back > 1 && v.chain[len(v.chain)-back+1] != reclaimer[len(reclaimer)-back+1] {
				continue // no sibling
			}
			sibling := v.chain[len(v.chain)-back]
			for dim := range r.Shared {
				if !counts(dim) || asks(dim) == 0 && !gave[sibling][dim] || sibling.Fair[dim] == 0 {
					continue
				}
				after := new(big.Rat).SetInt(sum(held(mine)[dim], asks(dim)))
				if mine.Fair[dim] == 0 && after.Sign() > 0 {
					return false // infinitely saturated
				} else if mine.Fair[dim] == 0 {
					continue
				}
				ratio := after.Quo(after, big.NewRat(mine.Fair[dim], 1))
				if ratio.Cmp(big.NewRat(1, 1)) <= 0 {
					continue
				}
				ratio.Mul(ratio, big.NewRat(max(fairshare.One, r.Multiplier), fairshare.One))
				if ratio.Cmp(big.NewRat(held(sibling)[dim], sibling.Fair[dim])) >= 0 {
					return false
				}
			}
		}
	}
	return true
}

// dispute is a random tree of queues with a reclaimer and victims, as chains.
type dispute struct {
	reclaim   *fairshare.Reclaim
	reclaimer []*fairshare.State
	request   []int64
	takes     []take
}

// drawDispute draws queues of up to three levels. flat: all of one parent.
func drawDispute(t *rapid.T, flat bool) dispute {
	const dims = 5
	number := func(most int64) *rapid.Generator[int64] { return rapid.Int64Range(0, most) }
	big := rapid.SampledFrom([]int64{1, 1, 1, 1 << 40, 1 << 58}).Draw(t, "scale")
	f := dispute{reclaim: &fairshare.Reclaim{
		Shared: []bool{true, true, rapid.Bool().Draw(t, "shared"), true, true}, Core: rapid.IntRange(0, 3).Draw(t, "core"),
		Multiplier: rapid.SampledFrom([]int64{0, fairshare.One, 1_250_000, 1_333_333, 3 * fairshare.One}).Draw(t, "multiplier"),
	}}
	vector := func(most int64, label string) []int64 {
		out := make([]int64, dims)
		for dim := range out {
			out[dim] = number(most).Draw(t, label) * big
		}
		return out
	}
	bound := func(most int64, label string) []int64 {
		out := vector(most, label)
		for dim := range out {
			if rapid.IntRange(0, 3).Draw(t, "unlimited") == 0 {
				out[dim] = inf
			}
		}
		return out
	}
	state := func() *fairshare.State {
		return &fairshare.State{
			Quota: bound(6, "quota"), Limit: bound(12, "limit"), Fair: vector(8, "fair"), Allocated: vector(10, "allocated"),
		}
	}
	chains := [][]*fairshare.State{}
	var grow func(above []*fairshare.State, depth int)
	grow = func(above []*fairshare.State, depth int) {
		here := append([]*fairshare.State{state()}, above...)
		children := 0
		if depth < 2 && !flat {
			children = rapid.IntRange(0, 3).Draw(t, "children")
		}
		if children == 0 {
			chains = append(chains, here)
			return
		}
		for range children {
			grow(here, depth+1)
		}
	}
	for range rapid.IntRange(2, 3).Draw(t, "tops") {
		grow(nil, 0)
	}
	f.reclaimer = chains[rapid.IntRange(0, len(chains)-1).Draw(t, "reclaimer")]
	f.request = vector(3, "request")[:rapid.IntRange(0, dims).Draw(t, "asked")]
	for range rapid.IntRange(1, 5).Draw(t, "units") {
		victim := chains[rapid.IntRange(0, len(chains)-1).Draw(t, "victim")]
		f.takes = append(f.takes, take{victim, vector(2, "unit")})
	}
	return f
}

// taken asks CheckUnit for one unit after another and keeps the ledger, until a refusal; it returns how many passed.
func (f *dispute) taken() int {
	for n, v := range f.takes {
		if rule, _ := f.reclaim.CheckUnit(f.reclaimer, v.chain, f.request, v.unit); rule == fairshare.ReclaimNone {
			return n
		}
		for _, s := range v.chain {
			s.Allocated = slices.Clone(s.Allocated)
			for dim, x := range v.unit {
				s.Allocated[dim] = max(0, s.Allocated[dim]-x)
			}
		}
	}
	return len(f.takes)
}

// One by one is the same as KAI's rule over the whole set and each of its prefixes, whatever the tree.
func TestCheckUnitEqualsOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawDispute(t, false)
		want := 0
		for want < len(f.takes) && oracleReclaimable(f.reclaim, f.reclaimer, f.request, f.takes[:want+1]) {
			want++
		}
		if got := f.taken(); got != want {
			t.Fatalf("%d units passed, the oracle takes %d", got, want)
		}
	})
}

// Where no victim sits below the reclaimer's own queue at a level, prefixes need no look: one by one is the same as
// KAI's rule over the set as a whole.
func TestCheckUnitEqualsOracleOfTheSet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawDispute(t, true)
		want := oracleReclaimable(f.reclaim, f.reclaimer, f.request, f.takes)
		if got := f.taken() == len(f.takes); got != want {
			t.Fatalf("one by one %v, the set %v", got, want)
		}
	})
}

// What the filter rejects, no unit check would have taken as the first unit.
func TestFilterVictimRejectsOnlyTheHopeless(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawDispute(t, false)
		v := f.takes[0]
		refusal, ok := f.reclaim.FilterVictim(f.reclaimer, v.chain, f.request)
		rule, _ := f.reclaim.CheckUnit(f.reclaimer, v.chain, f.request, v.unit)
		if ok || rule == fairshare.ReclaimNone {
			return
		}
		// KAI's filter looks at requested dimensions only, its validator at all three: above the share of one that is
		// not requested, and below quota in those that are, a queue is not asked.
		if refusal.Rule != fairshare.RefusedQuota {
			t.Fatalf("rejected as %+v, but a unit would go by %v", refusal, rule)
		}
	})
}

// A unit check never turns from no to yes because more was taken from the same victim's queue.
func TestCheckUnitTakingMakesItHarder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := drawDispute(t, true)
		v := f.takes[0]
		before, _ := f.reclaim.CheckUnit(f.reclaimer, v.chain, f.request, v.unit)
		for _, s := range v.chain {
			s.Allocated = slices.Clone(s.Allocated)
			for dim, x := range v.unit {
				s.Allocated[dim] = max(0, s.Allocated[dim]-x)
			}
		}
		if after, _ := f.reclaim.CheckUnit(f.reclaimer, v.chain, f.request, v.unit); before == fairshare.ReclaimNone && after != before {
			t.Fatalf("no before, %v after", after)
		}
	})
}

func TestCheckUnitSurvivesAnyInput(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-3, 3), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64, inf}))
		vector := rapid.SliceOfN(number, 0, 3)
		chain := func() []*fairshare.State {
			var out []*fairshare.State
			for range rapid.IntRange(0, 2).Draw(t, "levels") {
				out = append(out, &fairshare.State{
					Quota: vector.Draw(t, "quota"), Limit: vector.Draw(t, "limit"), Fair: vector.Draw(t, "fair"),
					Allocated: vector.Draw(t, "allocated"), NonPreemptible: vector.Draw(t, "non-preemptible"),
				})
			}
			return out
		}
		r := &fairshare.Reclaim{Core: rapid.IntRange(-1, 5).Draw(t, "core"), Multiplier: number.Draw(t, "multiplier")}
		mine, theirs, request, unit := chain(), chain(), vector.Draw(t, "request"), vector.Draw(t, "unit")
		r.OverFairShare(mine, request)
		r.OverQuota(mine, request)
		r.FilterVictim(mine, theirs, request)
		if rule, refusal := r.CheckUnit(mine, theirs, request, unit); (rule == fairshare.ReclaimNone) == (refusal.Rule == fairshare.RefusedNone) {
			t.Fatalf("right %v and refusal %+v", rule, refusal)
		}
	})
}

func TestCheckUnitAllocatesNothing(t *testing.T) {
	r, top := policy(), holder("top", 0, 0, 99)
	mine, theirs := chain(holder("m", 0, 4, 5), top), chain(holder("v", 0, 4, 8), top)
	request, unit := gpus(1), gpus(1)
	if n := testing.AllocsPerRun(100, func() {
		r.FilterVictim(mine, theirs, request)
		r.CheckUnit(mine, theirs, request, unit)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheckUnit(b *testing.B) {
	r, top := policy(), holder("top", 0, 0, 99)
	mine, theirs := chain(holder("m", 0, 4, 5), holder("p", 0, 4, 5), top), chain(holder("v", 0, 4, 8), holder("q", 0, 4, 8), top)
	request, unit := gpus(1), gpus(1)
	for b.Loop() {
		r.CheckUnit(mine, theirs, request, unit)
	}
}

func TestReclaimRulesAndRefusalsHaveNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for rule := fairshare.ReclaimNone; rule <= fairshare.ReclaimQuota; rule++ {
		seen[rule.String()] = true
	}
	for rule := fairshare.RefusedNone; rule <= fairshare.RefusedSaturation; rule++ {
		seen[rule.String()] = true
	}
	if len(seen) != 8 || seen["unknown rule"] {
		t.Errorf("names are %v", seen)
	}
}

// Siblings of one standing are told the same, whoever asks for what: that somebody may take something from them, or the rule by
// which nobody may.
func TestStanding(t *testing.T) {
	t.Parallel()
	alike := 0
	rapid.Check(t, func(t *rapid.T) {
		f := drawDispute(t, true)
		known := map[string]fairshare.RefusalRule{}
		for range 40 {
			few := func(label string, from ...int64) []int64 {
				return []int64{rapid.SampledFrom(from).Draw(t, label), rapid.SampledFrom(from).Draw(t, label)}
			}
			s := &fairshare.State{Quota: few("quota", 0, 2, 4, inf), Limit: few("limit", 2, inf, inf), Fair: few("fair", 0, 3), Allocated: few("held", 0, 2, 3, 5)}
			refusal, ok := f.reclaim.FilterVictim(f.reclaimer, []*fairshare.State{s}, f.request)
			if ok != (refusal.Rule == fairshare.RefusedNone) {
				t.Fatalf("%v and %v", ok, refusal)
			}
			key := string(f.reclaim.Standing(nil, s, len(f.request)))
			if rule, met := known[key]; !met {
				known[key] = refusal.Rule
			} else if alike++; rule != refusal.Rule {
				t.Fatalf("standing %q is told %v, and %v", key, rule, refusal.Rule)
			}
		}
	})
	if alike == 0 {
		t.Error("no two were alike")
	}
}
