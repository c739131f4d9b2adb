package sim

import (
	"testing"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// TestInflation: the comparison of placements gives what docs/concepts/fragmentation.md shows, in small: descending the
// fragmentation leaves less unusable than spreading, and everything stays within the cluster.
func TestInflation(t *testing.T) {
	t.Parallel()
	x := Inflation{Nodes: 12, Mix: PublishedMix(), Until: 130, Seeds: []uint64{1, 2}}
	got := map[Placement]*Inflated{}
	for _, p := range Placements() {
		r, err := x.Run(t.Context(), p, builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		got[p] = r
		t.Logf("%-14s lost %.2f GPUs (%.2f to %.2f) of %d; first failure at %.0f %%; unusable at 50 %%: %.2f %%, at 90 %%: %.2f %%", p, r.Lost, r.Best, r.Worst, 8*x.Nodes, r.FirstFailure, r.Unusable[50], r.Unusable[90])
		for k, a := range r.Allocated {
			if a > 100.0001 || a+r.Unusable[k] > 100.0001 {
				t.Errorf("%s at %d %%: %.2f %% allocated, %.2f %% unusable", p, k, a, r.Unusable[k])
			}
		}
	}
	if f, s := got[PlaceFragmentation], got[PlaceSpread]; f.Unusable[80] >= s.Unusable[80] {
		t.Errorf("at 80 %% asked for, descending leaves %.2f %% unusable, spreading %.2f %%", f.Unusable[80], s.Unusable[80])
	}
}
