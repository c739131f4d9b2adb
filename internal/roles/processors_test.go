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

// TestGCPercent: who answers people by himself, and all in one process, hold their memory down; the other roles collect as Go has it.
func TestGCPercent(t *testing.T) {
	t.Parallel()
	for _, role := range slices.Concat(Names(), Apart()) {
		want := 0
		if role == UI {
			want = uiGCPercent
		}
		if got := gcPercent([]string{role}); got != want {
			t.Errorf("%s: %d, want %d", role, got, want)
		}
	}
	if got := gcPercent(Names()); got != allGCPercent {
		t.Errorf("all: %d, want %d", got, allGCPercent)
	}
}
