package solver

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestKindNames: whoever joins a kind, leaves it, or is left out, the gangs that are named are the first of those that remain.
func TestKindNames(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		var all []*branch
		for i := range 40 + r.IntN(80) {
			h := &heads{}
			for range r.IntN(named + 1) {
				h.names = append(h.names, fmt.Sprintf("g%04d-%d", r.IntN(10_000), i))
			}
			slices.Sort(h.names)
			h.count = len(h.names)
			all = append(all, &branch{at: i, below: h})
		}
		o := &brood{byKey: map[string]*kind{}}
		for _, b := range all {
			o.add(b, []byte("a"))
		}
		k := o.kinds[0]
		for step := range 400 {
			b := all[r.IntN(len(all))]
			_, in := k.find(b)
			switch {
			case in && r.IntN(3) > 0:
				k.remove(b)
				o.add(b, []byte("b"))
			case !in && r.IntN(3) > 0:
				o.byKey["b"].remove(b)
				o.add(b, []byte("a"))
			}
			but := all[r.IntN(len(all))]
			var want []string
			gangs := 0
			for _, x := range k.of {
				gangs += x.below.count
				if x != but {
					want = append(want, x.below.names...)
				}
			}
			slices.Sort(want)
			want = want[:min(named, len(want))]
			if got := k.but(but); !slices.Equal(got, want) || k.gangs != gangs || !slices.IsSortedFunc(k.of, bySiblings) {
				t.Fatalf("seed %d, step %d: named %v of %d gangs, want %v of %d", seed, step, got, k.gangs, want, gangs)
			}
		}
	}
}
