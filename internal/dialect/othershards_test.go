package dialect

import (
	"testing"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// TestNothingRemainsOfWhatIsGone: of other shards' objects that are gone nothing is remembered.
func TestNothingRemainsOfWhatIsGone(t *testing.T) {
	t.Parallel()
	d := NewTranslator(Options{Partition: kai.Partition{Key: kai.DefaultNodePoolKey, Value: "iron"}})
	g, n, p := &v2alpha2.PodGroup{}, node("n1"), pod("p")
	g.Namespace, g.Name, g.UID = "a", "g", "u-g"
	g.Labels, n.Labels = map[string]string{kai.DefaultNodePoolKey: "gold"}, map[string]string{kai.DefaultNodePoolKey: "gold"}
	apply := func(cluster.Event) {}
	for _, o := range []Object{g, p, n} {
		k, _ := KindOf(o)
		d.Take(k, KeyOf(o), o, apply)
	}
	if len(d.otherShards.gangs) != 1 || len(d.otherShards.members) != 1 || len(d.otherShards.nodes) != 1 {
		t.Fatalf("%d gangs, %d nodes and members of %d gangs are known of another shard", len(d.otherShards.gangs), len(d.otherShards.nodes), len(d.otherShards.members))
	}
	for _, o := range []Object{p, g, n} {
		k, _ := KindOf(o)
		d.Take(k, KeyOf(o), nil, apply)
	}
	if n := len(d.otherShards.gangs) + len(d.otherShards.nodes) + len(d.otherShards.members) + len(d.otherShards.moved) + len(d.dirty) + len(d.pods); n != 0 {
		t.Errorf("%d things are remembered of what is gone", n)
	}
}
