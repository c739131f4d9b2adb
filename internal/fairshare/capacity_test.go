package fairshare_test

import (
	"math"
	"math/big"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

func TestOverLimitAndQuota(t *testing.T) {
	t.Parallel()
	leaf := &fairshare.State{
		Quota: []int64{1000, inf}, Limit: []int64{4000, inf}, Allocated: []int64{3000, 500}, NonPreemptible: []int64{500, 500},
	}
	root := &fairshare.State{
		Quota: []int64{inf, 600}, Limit: []int64{inf, 900}, Allocated: []int64{9000, 950}, NonPreemptible: []int64{9000, 550},
	}
	chain := []*fairshare.State{leaf, root}
	for _, test := range []struct {
		name    string
		request []int64
		limit   *fairshare.Excess // nil: within
		quota   *fairshare.Excess
		have    int64 // of limit
	}{
		{name: "nothing asked", request: []int64{0, 0}},
		{name: "exactly full, and above the root only where nothing is asked", request: []int64{1000}, quota: &fairshare.Excess{Dim: 0, Bound: 1000, Used: 500, Asked: 1000}},
		{name: "within both", request: []int64{500}},
		{
			name: "leaf limit", request: []int64{1001}, have: 1000,
			limit: &fairshare.Excess{Dim: 0, Bound: 4000, Used: 3000, Asked: 1001},
			quota: &fairshare.Excess{Dim: 0, Bound: 1000, Used: 500, Asked: 1001},
		},
		{
			name: "a root that is above its limit already takes nothing more", request: []int64{0, 1}, have: 0,
			limit: &fairshare.Excess{Level: 1, Dim: 1, Bound: 900, Used: 950, Asked: 1},
		},
		{
			name: "root quota", request: []int64{0, 51}, have: 0,
			limit: &fairshare.Excess{Level: 1, Dim: 1, Bound: 900, Used: 950, Asked: 51},
			quota: &fairshare.Excess{Level: 1, Dim: 1, Bound: 600, Used: 550, Asked: 51},
		},
		{
			name: "a sum beyond int64 is no wrap-around", request: []int64{math.MaxInt64}, have: 1000,
			limit: &fairshare.Excess{Dim: 0, Bound: 4000, Used: 3000, Asked: math.MaxInt64},
			quota: &fairshare.Excess{Dim: 0, Bound: 1000, Used: 500, Asked: math.MaxInt64},
		},
		{
			name: "a dimension that no queue names has quota 0 and no limit", request: []int64{0, 0, 1},
			quota: &fairshare.Excess{Dim: 2, Asked: 1},
		},
		{name: "a dimension that queues do not share has no quota", request: []int64{0, 0, 0, 1}},
		{name: "negative requests ask for nothing", request: []int64{-5, math.MinInt64}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			check := func(what string, want *fairshare.Excess, got fairshare.Excess, over bool) {
				if over != (want != nil) {
					t.Fatalf("%s = %+v, %v", what, got, over)
				}
				if want != nil {
					if diff := cmp.Diff(*want, got); diff != "" {
						t.Errorf("%s (-want +got):\n%s", what, diff)
					}
				}
			}
			limit, over := fairshare.OverLimit(chain, test.request)
			check("OverLimit", test.limit, limit, over)
			if limit.Have() != test.have {
				t.Errorf("Have = %d, want %d", limit.Have(), test.have)
			}
			quota, over := fairshare.OverQuota(chain, test.request, []bool{true, true, true, false})
			check("OverQuota", test.quota, quota, over)
		})
	}
	if _, over := fairshare.OverLimit(nil, []int64{1}); over {
		t.Error("no queue, yet over its limit")
	}
}

// The check is allocated + request > limit in numbers without end, over every queue and dimension.
func TestOverLimitEqualsOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Int64Range(-2, 4), rapid.Int64(), rapid.SampledFrom([]int64{math.MaxInt64, math.MinInt64}))
		vector := rapid.SliceOfN(number, 0, 3)
		var chain []*fairshare.State
		for range rapid.IntRange(0, 3).Draw(t, "levels") {
			chain = append(chain, &fairshare.State{
				Quota: vector.Draw(t, "quota"), Limit: vector.Draw(t, "limit"),
				Allocated: vector.Draw(t, "allocated"), NonPreemptible: vector.Draw(t, "non-preemptible"),
				Holding: vector.Draw(t, "holding"), HoldingNonPreemptible: vector.Draw(t, "holding non-preemptible"),
			})
		}
		request := vector.Draw(t, "request")
		oracle := func(bounds, used func(*fairshare.State) []int64, unbounded bool) bool {
			for _, s := range chain {
				for dim := range request {
					if b := bounds(s); request[dim] <= 0 || dim < len(b) && b[dim] == inf || dim >= len(b) && unbounded {
						continue
					}
					sum := new(big.Int).Add(big.NewInt(amountOf(used(s), dim)), big.NewInt(request[dim]))
					if sum.Cmp(big.NewInt(amountOf(bounds(s), dim))) > 0 {
						return true
					}
				}
			}
			return false
		}
		_, limit := fairshare.OverLimit(chain, request)
		_, quota := fairshare.OverQuota(chain, request, nil)
		wantLimit := oracle(func(s *fairshare.State) []int64 { return s.Limit }, func(s *fairshare.State) []int64 { return s.Allocated }, true)
		wantQuota := oracle(func(s *fairshare.State) []int64 { return s.Quota }, func(s *fairshare.State) []int64 { return s.NonPreemptible }, false)
		if limit != wantLimit || quota != wantQuota {
			t.Fatalf("over limit %v, quota %v; want %v, %v", limit, quota, wantLimit, wantQuota)
		}
		_, limit = fairshare.OverLimitNow(chain, request)
		_, quota = fairshare.OverQuotaNow(chain, request, nil)
		wantLimit = oracle(func(s *fairshare.State) []int64 { return s.Limit }, func(s *fairshare.State) []int64 { return s.Holding }, true)
		wantQuota = oracle(func(s *fairshare.State) []int64 { return s.Quota }, func(s *fairshare.State) []int64 { return s.HoldingNonPreemptible }, false)
		if limit != wantLimit || quota != wantQuota {
			t.Fatalf("now over limit %v, quota %v; want %v, %v", limit, quota, wantLimit, wantQuota)
		}
	})
}

// What does not go counts besides what is allocated, for limits and for quotas.
func TestStuckCounts(t *testing.T) {
	t.Parallel()
	s := &fairshare.State{
		Quota: []int64{8}, Limit: []int64{16}, Allocated: []int64{4}, NonPreemptible: []int64{2},
		Stuck: []int64{8}, StuckNonPreemptible: []int64{3},
	}
	for request, want := range map[int64][2]bool{3: {false, false}, 4: {false, true}, 5: {true, true}} { // order: independent
		_, limit := fairshare.OverLimit([]*fairshare.State{s}, []int64{request})
		_, quota := fairshare.OverQuota([]*fairshare.State{s}, []int64{request}, nil)
		if got := [2]bool{limit, quota}; got != want {
			t.Errorf("request %d: over limit and quota %v, want %v", request, got, want)
		}
	}
}
