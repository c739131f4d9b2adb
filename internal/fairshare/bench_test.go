package fairshare_test

import (
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/internal/fairshare"
)

// forest is a tree of three levels with about n queues over CPU, memory and GPU. Departments and divisions split in
// about the same proportion; weights, quotas and requests vary, and the cluster is too small for all requests.
func forest(n int, k int64) *fairshare.Input {
	in := &fairshare.Input{Total: []int64{int64(n) * 32_000, int64(n) << 37, int64(n) * 4 * gpu}, Unit: []int64{1, 1, 1000}, KValue: k}
	add := func(parent int32, i int) int32 {
		v := int64(i*7919%13 + 1) // spread, and the same every time
		in.Queues = append(in.Queues, fairshare.Queue{
			Parent: parent, Priority: prio + int32(v%3), Created: int64(i), UID: fmt.Sprintf("queue-%04d", i),
			Quota: []int64{0, inf, v % 4 * gpu}, Limit: []int64{inf, inf, inf},
			Request: []int64{v * 8000, v << 34, v * gpu}, Weight: []int64{v * fairshare.One, fairshare.One, v * fairshare.One},
			Usage: []int64{1000 * v, 2000 * v, 3000 * v},
		})
		return int32(len(in.Queues) - 1)
	}
	fan := 2
	for fan*fan*fan < n {
		fan++
	}
	for len(in.Queues) < n {
		top := add(-1, len(in.Queues))
		for range fan {
			middle := add(top, len(in.Queues))
			for leaf := 0; leaf < fan && len(in.Queues) < n; leaf++ {
				add(middle, len(in.Queues))
			}
			if len(in.Queues) >= n {
				break
			}
		}
	}
	for i := len(in.Queues) - 1; i >= 0; i-- { // parents come before their children here
		if p := in.Queues[i].Parent; p >= 0 {
			for dim, amount := range in.Queues[i].Request {
				in.Queues[p].Request[dim] += amount
			}
		}
	}
	return in
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	for _, k := range []int64{0, fairshare.One} {
		in := forest(200, k)
		var d fairshare.Divider
		d.Divide(in)
		if allocs := testing.AllocsPerRun(20, func() { d.Divide(in) }); allocs != 0 {
			t.Errorf("k=%d: Divide allocates %v times", k, allocs)
		}
	}
	o := cluster()
	a, b := team("a", 1, nil), team("b", 1, nil)
	chain := []*fairshare.State{a, b}
	request := gpus(1)
	if allocs := testing.AllocsPerRun(20, func() {
		l, r := o.Key(a, request, nil), o.Key(b, request, nil)
		fairshare.Compare(&l, &r)
		fairshare.OverLimit(chain, request)
		fairshare.OverQuota(chain, request, nil)
	}); allocs != 0 {
		t.Errorf("order and checks allocate %v times", allocs)
	}
}

func BenchmarkDivide(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		for _, k := range []int64{0, fairshare.One} {
			b.Run(fmt.Sprintf("queues=%d/k=%d", n, k/fairshare.One), func(b *testing.B) {
				in := forest(n, k)
				var d fairshare.Divider
				b.ReportAllocs()
				for b.Loop() {
					d.Divide(in)
				}
			})
		}
	}
}

func BenchmarkKeyAndCompare(b *testing.B) {
	o := cluster()
	l, r := team("a", 1, nil), team("b", 1, nil)
	request := gpus(1)
	b.ReportAllocs()
	for b.Loop() {
		x, y := o.Key(l, request, nil), o.Key(r, request, nil)
		fairshare.Compare(&x, &y)
	}
}
