package cluster

import (
	"fmt"
	"testing"
)

// TestLeafByName: a leaf is found by its name in trees of any number of sets, the last of two that have the same; else the one for the rest, if there is one. Inner sets are none.
func TestLeafByName(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, fewSets - 2, fewSets - 1, fewSets, 3 * fewSets} { // leaves; the root, and one for the rest
		for _, rest := range []bool{false, true} {
			sets := []Set{{Name: "root", Parent: None, Min: 1}}
			for i := range n {
				sets = append(sets, Set{Name: fmt.Sprint("leaf-", i), Parent: 0, Leaf: true, Min: 1})
			}
			sets = append(sets, Set{Name: "leaf-0", Parent: 0, Leaf: true, Min: 1, Rest: rest})
			for i := range sets[1:] {
				sets[0].Children = append(sets[0].Children, int32(i+1))
			}
			s := NewStore(Options{})
			key := Key{Face: "kai", Namespace: "n", Name: "g"}
			s.Apply(GangState{Key: key, UID: "u", Sets: sets})
			g := s.Snapshot(UnixNano(1)).GangByKey(key)
			other := int32(None)
			if rest {
				other = int32(n + 1)
			}
			for name, want := range map[string]int32{"leaf-0": int32(n + 1), "root": other, "x": other, "": other} { // order: each on its own
				if got := g.LeafByName(name); got != want {
					t.Errorf("%d leaves, rest %v: %q is %d, want %d", n, rest, name, got, want)
				}
			}
			if got := g.LeafByName(fmt.Sprint("leaf-", n-1)); n > 1 && got != int32(n) {
				t.Errorf("%d leaves: the last but one is %d, want %d", n, got, n)
			}
		}
	}
}
