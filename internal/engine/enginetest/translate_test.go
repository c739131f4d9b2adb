package enginetest

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// These are about what scenarios once read otherwise than the scheduler does, when they had a translator of their own.

func played(t *testing.T, text string) (*Engine, []Turn) {
	t.Helper()
	sc, err := Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewEngine(&sc.Options, Mutation{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	turns, err := sc.Play(b)
	if err != nil {
		t.Fatal(err)
	}
	return b, turns
}

// TestClaimedGPUsAreGPUs: under restricted nodes, a pod that gets its GPU by claim goes to a GPU worker.
func TestClaimedGPUsAreGPUs(t *testing.T) {
	t.Parallel()
	_, turns := played(t, `about
-- options --
restrict-gpu gpu-worker
restrict-cpu cpu-worker
-- cluster --
deviceclass gpu driver=gpu.example.com
node cpus cpu=4 label=cpu-worker=
node gpus cpu=4 label=gpu-worker=
slice on-cpus node=cpus devices=1
slice on-gpus node=gpus devices=1
queue root quota=unlimited
queue root/research quota=4
claimtemplate single class=gpu
gang g queue=research pods=1 claimtemplate=single
-- run --
cycle
-- want --
`)
	if got := turns[0].Got; !strings.Contains(got, "g[0] on gpus") {
		t.Errorf("decided:\n%s", got)
	}
}

// TestWhatGoesToAnotherShard: a node that changes its shard is no longer the old one's, nor are the pods of other shards anybody's.
func TestWhatGoesToAnotherShard(t *testing.T) {
	t.Parallel()
	b, turns := played(t, `about
-- shards --
shard a
shard b
-- cluster --
node n gpu=1 pool=a
node m gpu=1 pool=b
queue {shard}-root quota=unlimited pool={shard}
queue {shard}-root/{shard}-q quota=1 pool={shard}
gang {shard}/g queue={shard}-q gpu=1 pool={shard}
gang {shard}/runs queue={shard}-q gpu=1 pool={shard}
-- run --
cycle
-- want --
-- run --
node n gpu=1 pool=b
cycle
-- want --
`)
	if got := turns[0].Got; !strings.Contains(got, "a/g[0] on n") || !strings.Contains(got, "b/g[0] on m") {
		t.Errorf("before:\n%s", got)
	}
	if got := turns[1].Got; strings.Contains(got, "a/g[0] on n") {
		t.Errorf("the node has gone to shard b:\n%s", got)
	}
	for _, shard := range b.shards {
		shard.store.Snapshot(cluster.Instant{}).EachPod(func(p *cluster.Pod) {
			if p.Namespace != shard.pool {
				t.Errorf("shard %s knows pod %s/%s", shard.pool, p.Namespace, p.Name)
			}
		})
	}
}

// TestConditionsOfAShard: of the conditions of a gang those count that the shard's own scheduler wrote.
func TestConditionsOfAShard(t *testing.T) {
	t.Parallel()
	b, _ := played(t, "about\n-- shards --\nshard a\nshard b\n-- cluster --\nqueue q quota=unlimited pool=a\n")
	for _, pool := range []string{"a", "b"} {
		pg := &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g", Labels: map[string]string{kai.DefaultNodePoolKey: "a"}}}
		pg.Spec.Queue, pg.Spec.SchedulingBackoff = "q", ptr.To(v2alpha2.SingleSchedulingBackoff)
		pg.Status.SchedulingConditions = []v2alpha2.SchedulingCondition{{Type: v2alpha2.UnschedulableOnNodePool, NodePool: pool, Status: v1.ConditionTrue}}
		if err := b.Apply(pg); err != nil {
			t.Fatal(err)
		}
		st := b.store.Snapshot(cluster.Instant{}).GangByKey(kai.GangKey("default", "g")).GangState
		if st.GaveUp != (pool == "a") {
			t.Errorf("a condition of shard %s counts in shard a: %v", pool, st.GaveUp)
		}
	}
}
