package numa

import (
	"math/bits"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// hint is what a kubelet's resource manager offers for one resource: zones that have enough together.
type hint struct {
	mask      uint64
	preferred bool
}

// kubelet decides as the topology manager does, by brute force: every resource offers all combinations of zones with
// enough of it free, those as narrow as an empty node would need being preferred; every choice of one offer per resource
// is merged; the best merged one counts, and must be preferred. It returns the zones, or false for a pod that is refused.
func kubelet(policy cluster.ZonePolicy, alloc, free [][]int64, want []int64) (uint64, bool) {
	n := len(alloc)
	sum := func(m [][]int64, mask uint64, r int) int64 {
		x := int64(0)
		for z := range n {
			if mask&(1<<z) != 0 {
				x += max(0, m[z][r])
			}
		}
		return x
	}
	merged := []hint{{1<<n - 1, true}}
	first := true
	for r, x := range want {
		if x == 0 || sum(alloc, 1<<n-1, r) == 0 { // nothing asked, or a resource that no manager aligns
			continue
		}
		narrow := n + 1
		var offers []hint
		for mask := uint64(1); mask < 1<<n; mask++ {
			if sum(alloc, mask, r) >= x {
				narrow = min(narrow, bits.OnesCount64(mask))
			}
			if sum(free, mask, r) >= x {
				offers = append(offers, hint{mask: mask})
			}
		}
		for i := range offers {
			offers[i].preferred = bits.OnesCount64(offers[i].mask) == narrow
		}
		var next []hint
		for _, m := range merged {
			for _, o := range offers {
				if policy == cluster.ZonesSingle && (!o.preferred || bits.OnesCount64(o.mask) != 1) {
					continue
				}
				equal := first || m.mask == o.mask
				next = append(next, hint{m.mask & o.mask, m.preferred && o.preferred && equal})
			}
		}
		merged, first = next, false
	}
	best, found := uint64(0), false
	for _, m := range merged {
		if !m.preferred || m.mask == 0 {
			continue
		}
		a, b := bits.OnesCount64(m.mask), bits.OnesCount64(best)
		if !found || a < b || a == b && m.mask < best {
			best, found = m.mask, true
		}
	}
	return best, found
}

// TestAlignAgreesWithKubelet holds the choice of zones for one group against brute force.
func TestAlignAgreesWithKubelet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, width := rapid.IntRange(1, 5).Draw(t, "zones"), rapid.IntRange(1, 3).Draw(t, "resources")
		policy := rapid.SampledFrom([]cluster.ZonePolicy{cluster.ZonesSingle, cluster.ZonesRestricted}).Draw(t, "policy")
		s := shape{policy: policy, names: make([]string, n), alloc: newMatrix(n, width)}
		free := newMatrix(n, width)
		alloc2, free2, want2 := make([][]int64, n), make([][]int64, n), make([]int64, width)
		for r := range width {
			s.local, s.dims = append(s.local, int32(r)), append(s.dims, r)
		}
		for z := range n {
			alloc2[z], free2[z] = make([]int64, width), make([]int64, width)
			for r := range width {
				a := rapid.Int64Range(0, 4).Draw(t, "allocatable")
				f := rapid.Int64Range(-1, a).Draw(t, "free")
				s.alloc.add(z, r, a)
				free.add(z, r, f)
				alloc2[z][r], free2[z][r] = a, f
			}
		}
		var want []amount
		for r := range width {
			x := rapid.Int64Range(0, 9).Draw(t, "want")
			total := int64(0)
			for z := range n {
				total += alloc2[z][r]
			}
			want2[r] = x
			if total == 0 {
				s.local[r] = -1
			}
			if x > 0 {
				want = append(want, amount{r, x})
			}
		}
		mask, admitted := kubelet(policy, alloc2, free2, want2)
		taken, v := s.place([]group{{want: want}}, free)
		if (v == fits) != admitted {
			t.Fatalf("policy %s: the kubelet admits: %v; verdict %d\nallocatable %v\nfree %v\nwant %v", policy, admitted, v, alloc2, free2, want2)
		}
		if v != fits {
			return
		}
		for r, x := range want2 {
			sum := int64(0)
			for z := range n {
				got := taken.at(z, r)
				if got < 0 || got > max(0, free2[z][r]) || got > 0 && mask&(1<<z) == 0 {
					t.Fatalf("takes %d of resource %d in zone %d, free %v, the kubelet chooses %b", got, r, z, free2, mask)
				}
				sum += got
			}
			if s.local[r] >= 0 && sum != x {
				t.Fatalf("takes %d of resource %d, want %d", sum, r, x)
			}
		}
	})
}

// TestLowest counts through all combinations in order.
func TestLowest(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		for width := 1; width <= n; width++ {
			var want, got []uint64
			for m := uint64(1); m < 1<<n; m++ {
				if bits.OnesCount64(m) == width {
					want = append(want, m)
				}
			}
			budget := maxMasks
			if _, v := lowest(n, width, &budget, func(m uint64) bool { got = append(got, m); return false }); v != short {
				t.Fatalf("verdict %d", v)
			}
			if len(got) != len(want) {
				t.Fatalf("%d of %d: %b, want %b", width, n, got, want)
			}
			for i := range want {
				if got[i] != want[i] {
					t.Fatalf("%d of %d: %b, want %b", width, n, got, want)
				}
			}
		}
	}
	budget := maxMasks
	if _, v := lowest(64, 32, &budget, func(uint64) bool { return false }); v != unknown {
		t.Errorf("verdict %d for more combinations than are looked at, want unknown", v)
	}
	budget = maxMasks
	if m, v := lowest(64, 64, &budget, func(uint64) bool { return true }); v != fits || m != 1<<64-1 {
		t.Errorf("all of 64 zones: %b, %d", m, v)
	}
}

func one(res int, x int64) []amount { return []amount{{res, x}} }

// TestPlace: containers one after another and beside one another.
func TestPlace(t *testing.T) {
	t.Parallel()
	node := func(policy cluster.ZonePolicy, sizes ...int64) (*shape, matrix) {
		s := &shape{policy: policy, names: make([]string, len(sizes)), local: []int32{0}, dims: []int{0}, alloc: newMatrix(len(sizes), 1)}
		for z, x := range sizes {
			s.alloc.add(z, 0, x)
		}
		return s, s.alloc.clone()
	}
	for _, c := range []struct {
		about  string
		policy cluster.ZonePolicy
		sizes  []int64
		groups []group
		want   []int64
		v      verdict
	}{
		{"app containers run together, each in a zone of its own", cluster.ZonesSingle, []int64{4, 4}, []group{{want: one(0, 3)}, {want: one(0, 3)}}, []int64{3, 3}, fits},
		{"a third has no zone left", cluster.ZonesSingle, []int64{4, 4}, []group{{want: one(0, 3)}, {want: one(0, 3)}, {want: one(0, 2)}}, nil, short},
		{"init containers run one after another", cluster.ZonesSingle, []int64{4, 4}, []group{{role: cluster.Before, want: one(0, 4)}, {role: cluster.Before, want: one(0, 3)}, {want: one(0, 1)}}, []int64{4, 0}, fits},
		{"sidecars stay beside what starts later", cluster.ZonesSingle, []int64{4, 4}, []group{{role: cluster.Sidecar, want: one(0, 2)}, {role: cluster.Before, want: one(0, 3)}, {want: one(0, 2)}}, []int64{4, 3}, fits},
		{"larger than any zone", cluster.ZonesSingle, []int64{4, 4}, []group{{want: one(0, 5)}}, nil, never},
		{"two zones where an empty node would need two", cluster.ZonesRestricted, []int64{4, 4}, []group{{want: one(0, 6)}}, []int64{4, 2}, fits},
		{"larger than the node", cluster.ZonesRestricted, []int64{4, 4}, []group{{want: one(0, 9)}}, nil, never},
		{"as much as there is", cluster.ZonesBestEffort, []int64{4, 4}, []group{{want: one(0, 9)}}, []int64{4, 4}, short},
		{"narrowest first", cluster.ZonesBestEffort, []int64{2, 4}, []group{{want: one(0, 3)}}, []int64{0, 3}, fits},
		{"a resource that no zone has", cluster.ZonesSingle, []int64{4, 4}, []group{{want: one(7, 9)}}, []int64{0, 0}, fits},
	} {
		s, free := node(c.policy, c.sizes...)
		got, v := s.place(c.groups, free)
		if v != c.v {
			t.Errorf("%s: verdict %d, want %d", c.about, v, c.v)
		}
		for z, x := range c.want {
			if got.at(z, 0) != x {
				t.Errorf("%s: %v, want %v", c.about, got.v, c.want)
				break
			}
		}
	}
	if g := whole([]group{{role: cluster.Before, want: one(0, 5)}, {role: cluster.Sidecar, want: one(0, 1)}, {role: cluster.Before, want: one(0, 3)}, {want: one(0, 2)}, {want: one(1, 1)}}); g.want[0].x != 5 || g.want[1].x != 1 {
		t.Errorf("as one: %v", g.want)
	}
}
