package dialect

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
)

// TestNodeShards: whatever happens to NodeShards and nodes, a node is in the shard if and only if the NodeShard as it is says so, and none is where sharding is off. Volcano's
// pods keep to it, or prefer it; others do neither.
func TestNodeShards(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		part := nodeshards.Sharding{Mode: rapid.SampledFrom([]nodeshards.Mode{"", nodeshards.None, nodeshards.Soft, nodeshards.Hard}).Draw(t, "mode"), Name: "mine"}
		s, tr := cluster.NewStore(cluster.Options{}), NewTranslator(Options{Volcano: []string{vckeys.SchedulerName}, Sharding: part})
		take := func(o Object, gone bool) {
			k, _ := KindOf(o)
			key := KeyOf(o)
			if gone {
				o = nil
			}
			tr.Take(k, key, o, func(e cluster.Event) { s.Apply(e) })
		}
		for _, name := range []string{vckeys.SchedulerName, kai.DefaultSchedulerName} {
			take(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u"}, Spec: v1.PodSpec{SchedulerName: name}}, false)
			var p *cluster.Pod
			s.Snapshot(cluster.UnixNano(1)).EachPod(func(x *cluster.Pod) { p = x })
			within, prefers := "", ""
			if name == vckeys.SchedulerName && part.Mode == nodeshards.Hard {
				within = part.Name
			}
			if name == vckeys.SchedulerName && part.Mode == nodeshards.Soft {
				prefers = part.Name
			}
			if p.Class.Within != within || p.Class.Prefers != prefers {
				t.Fatalf("%s: a pod of %s keeps to %q and prefers %q", part.Mode, name, p.Class.Within, p.Class.Prefers)
			}
			take(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}, true)
		}
		nodes, shards := map[string]bool{}, map[string]*vcshard.NodeShard{}
		some := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 4)
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			gone := rapid.Bool().Draw(t, "gone")
			if rapid.Bool().Draw(t, "node") {
				name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
				nodes[name] = !gone
				take(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, gone)
			} else {
				o := &vcshard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: rapid.SampledFrom([]string{"mine", "other"}).Draw(t, "name")}}
				o.Spec.NodesDesired, o.Status.NodesInUse = some.Draw(t, "desired"), some.Draw(t, "use")
				if shards[o.Name] = o; gone {
					delete(shards, o.Name)
				}
				take(o, gone)
			}
			want := ""
			for _, name := range []string{"a", "b", "c"} {
				if nodes[name] {
					want += fmt.Sprintf("%s %v ", name, part.On() && mine(shards, name))
				}
			}
			got, snap := "", s.Snapshot(cluster.UnixNano(1))
			for _, id := range snap.NodeOrder {
				got += fmt.Sprintf("%s %v ", snap.Node(id).Name, len(snap.Node(id).Sets) == 1 && snap.Node(id).In("mine"))
			}
			if got != want {
				t.Fatalf("in the shard are %s, want %s", got, want)
			}
			if told := strings.Contains(fmt.Sprint(tr.Problems()), "There is no such NodeShard"); told != (part.On() && shards["mine"] == nil) {
				t.Fatalf("told: %v", tr.Problems())
			}
		}
	})
}

// mine says, slowly, whether a node is that of the NodeShard mine.
func mine(shards map[string]*vcshard.NodeShard, node string) bool {
	has := func(all []string) bool { return strings.Contains(" "+strings.Join(all, " ")+" ", " "+node+" ") }
	own, other := shards["mine"], shards["other"]
	switch {
	case own == nil || !has(own.Spec.NodesDesired):
		return false
	case other == nil || !has(other.Status.NodesInUse):
		return true
	}
	return has(own.Status.NodesInUse) // both say so: mine is before other
}
