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
