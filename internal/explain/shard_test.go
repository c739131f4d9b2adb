package explain

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// TestShard: a gang that keeps to a shard is told which node to add to it where one has room, and else for room in it.
func TestShard(t *testing.T) {
	t.Parallel()
	prof, err := profile.ForShard(profile.Shard{})
	if err != nil {
		t.Fatal(err)
	}
	newEngine := func() (*engine.Engine, error) { return engine.New(prof, builtin.Registry()) }
	keeps := func(_ *cluster.GangState, p *cluster.PodState) { p.Spec.Within = "volcano" }
	for want, gpus := range map[string]int{"add node n1 to shard volcano": 8, "add or free room for 1 pod of cpu=1 memory=1Gi gpu=9 in shard volcano": 9} { // order: each on its own
		e, err := gangOf(t.Context(), scene(gang("ours", 1, gpus, keeps)...), newEngine, key("ours"))
		if err != nil {
			t.Fatal(err)
		}
		if text := e.Text(200); !strings.Contains(text, want) || gpus == 8 && !strings.Contains(text, "1  the node is not in shard volcano") {
			t.Errorf("want %q:\n%s", want, text)
		}
	}
}
