package explain

import (
	"slices"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// TestQueuesOfItsFace: a gang is sent to no queue of another face, however much room that has, and however alike the names are.
func TestQueuesOfItsFace(t *testing.T) {
	t.Parallel()
	queue := func(name, parent string, limit int64) engine.QueueTrace {
		var q engine.QueueTrace
		q.Name, q.Parent = name, parent
		q.Limit = cluster.Resources{0, 0, limit}
		return q
	}
	trace := &engine.Trace{Queues: []engine.QueueTrace{
		queue("team", "", 1000), queue("volcano:root", "", 9000), queue("volcano:small", "volcano:root", 2000), queue("volcano:large", "volcano:root", 8000),
	}}
	if got := leaves(trace, ""); !slices.Equal(got, []string{"team"}) {
		t.Errorf("KAI's: %v", got)
	}
	if got := leaves(trace, "volcano"); !slices.Equal(got, []string{"volcano:large", "volcano:small"}) {
		t.Errorf("Volcano's: %v", got)
	}
	if kai, volcanos := bestLeaf(trace, "", ""), bestLeaf(trace, "", "volcano"); kai != "team" || volcanos != "volcano:large" {
		t.Errorf("the best are %q and %q", kai, volcanos)
	}
}
