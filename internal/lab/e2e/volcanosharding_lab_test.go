//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
)

// TestVolcanoSharding: under the rights of an installation the sharding controller divides the nodes as its ConfigMap says, and goes on when that changes and when it was killed; the
// scheduler, with hard sharding, says in its NodeShard what it has in use, and places Volcano's Jobs there alone. One that has no room there waits, and starts on a node that comes.
func TestVolcanoSharding(t *testing.T) {
	const ns = "sharded"
	conf := func(others int) map[string]string {
		return map[string]string{vckeys.ShardingConfigKey: fmt.Sprintf(`
schedulerConfigs:
- {name: other, policies: [{name: node-limit, arguments: {maxNodes: %d}}]}
- {name: volcano}
shardSyncPeriod: 1s
`, others)}
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: vckeys.ShardingConfig}, Data: conf(2)}
	b := newFacesFixture(t, func(b *volcanoFixture) []string {
		b.watch(t, &vcshard.NodeShard{})
		b.create(t, m)
		b.controllers.args = append(b.controllers.args, "--controllers=*")
		b.again(t)
		return []string{"--scheduler-sharding-mode=hard"}
	})
	inUse := func(want ...string) func() string {
		return func() string {
			s := &vcshard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: vckeys.SchedulerName}}
			if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(s), s); err != nil {
				return err.Error()
			}
			if !slices.Equal(s.Spec.NodesDesired, want) || !slices.Equal(s.Status.NodesInUse, want) || len(s.Status.NodesToAdd)+len(s.Status.NodesToRemove) > 0 {
				return fmt.Sprintf("the NodeShard is %+v, %+v", s.Spec, s.Status)
			}
			return ""
		}
	}
	on := func(name string, want ...string) {
		t.Helper()
		var nodes []string
		for i := range b.pods(ns) {
			if p := &b.pods(ns)[i]; p.Labels[vckeys.JobName] == name && !slices.Contains(nodes, p.Spec.NodeName) {
				nodes = append(nodes, p.Spec.NodeName)
			}
		}
		if slices.Sort(nodes); !slices.Equal(nodes, want) {
			t.Errorf("Job %s runs on %v, want %v", name, nodes, want)
		}
	}
	b.namespace(t, ns)
	b.must(t, guard, inUse("n-2", "n-3"))
	b.create(t, gpuJob(ns, "first", 16, ""))
	b.must(t, guard, b.phase(ns, "first", vcbatch.Running, 16, 0))
	on("first", "n-2", "n-3")
	b.create(t, gpuJob(ns, "second", 4, ""))
	b.must(t, guard, b.groupWaits(ns, "second", vcscheduling.PodGroupInqueue, vcscheduling.NotEnoughResourcesReason, "GangNoRoom"))

	b.again(t)
	m.Data = conf(1)
	if err := b.client.Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	b.must(t, guard, b.phase(ns, "second", vcbatch.Running, 4, 0))
	on("second", "n-1")
	b.must(t, guard, inUse("n-1", "n-2", "n-3"))
}
