package roles

import (
	"slices"
	"testing"
)

// TestProcessors: a role in a process of its own is bounded, and all in one process are not.
func TestProcessors(t *testing.T) {
	t.Parallel()
	for _, role := range slices.Concat(Names(), Apart()) {
		want := 1
		if role == Admission || role == UI {
			want = 2
		}
		if got := processors([]string{role}); got != want {
			t.Errorf("%s: %d, want %d", role, got, want)
		}
	}
	if got := processors(Names()); got != 0 {
		t.Errorf("all: %d, want no bound", got)
	}
}

// TestCollects: who answers people by himself, and all in one process, hold their memory down; the other roles collect as the program has it.
func TestCollects(t *testing.T) {
	t.Parallel()
	for _, role := range slices.Concat(Names(), Apart()) {
		percent, floor := 0, uint64(0)
		if role == UI {
			percent, floor = 30, 48<<20
		}
		if p, f := collects([]string{role}); p != percent || f != floor {
			t.Errorf("%s: %d %% and %d bytes, want %d and %d", role, p, f, percent, floor)
		}
	}
	if p, f := collects(Names()); p != allGCPercent || f != 0 {
		t.Errorf("all: %d %% and %d bytes, want %d and 0", p, f, allGCPercent)
	}
}
