package kai

import (
	"fmt"
	"testing"

	"github.com/muster-scheduler/muster/api/scheduling/v2"
)

// TestLargeExtendedCopy: what does not fit into an annotation is not repeated there, and what is there stays.
func TestLargeExtendedCopy(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{1: true, 1000: true, 10_000: false} {
		spec := v2.QueueSpec{Resources: &v2.QueueResources{Extended: map[string]v2.QueueResource{}}}
		for i := range n {
			spec.Resources.Extended[fmt.Sprintf("example.com/r%d", i)] = v2.QueueResource{Quota: 1}
		}
		text, ok := ExtendedCopy(&spec)
		if ok != want || len(text) > maxExtendedCopy {
			t.Errorf("%d resources: %t, %d bytes", n, ok, len(text))
		}
	}
}
