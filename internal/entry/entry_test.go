package entry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/entry"
)

// TestEntry: what is there stays; what is not is made, once.
func TestEntry(t *testing.T) {
	t.Parallel()
	counts := map[string]*int{}
	for range 2 {
		*entry.Of(counts, "a")++
	}
	*entry.Or(counts, "b", func() *int { return new(7) })++
	*entry.Or(counts, "b", func() *int { t.Error("made twice"); return nil })++
	if len(counts) != 2 || *counts["a"] != 2 || *counts["b"] != 9 {
		t.Errorf("a %d, b %d", *counts["a"], *counts["b"])
	}
	sets := map[string]map[int]bool{}
	entry.Put(sets, "a", 1, true)
	entry.Put(sets, "a", 2, false)
	entry.Put(sets, "b", 1, true)
	if d := cmp.Diff(map[string]map[int]bool{"a": {1: true, 2: false}, "b": {1: true}}, sets); d != "" {
		t.Error(d)
	}
}
