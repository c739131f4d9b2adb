//go:build lab

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaikeys "github.com/muster-scheduler/muster/api/kai/keys"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/install"
)

// agentShard is the scheduler that the suites divide the nodes with. It does not run: only its NodeShard is there.
const agentShard = "agent-scheduler"

// byLoad divides nodes by what is asked for of their CPU, as Volcano's example of sharding does; byNumber gives both schedulers so many, the agent's first: the node that takes no pods is the
// first by name.
const byLoad = `
schedulerConfigs:
- {name: agent-scheduler, type: agent, cpuUtilizationMin: 0.7, cpuUtilizationMax: 1.0, preferWarmupNodes: true, minNodes: 1, maxNodes: 100}
- {name: volcano, type: volcano, cpuUtilizationMin: 0.0, cpuUtilizationMax: 0.69, preferWarmupNodes: false, minNodes: 1, maxNodes: 100}
shardSyncPeriod: 1s
enableNodeEventTrigger: true
`

func byNumber(most int) string {
	return fmt.Sprintf(`
schedulerConfigs:
- {name: agent-scheduler, type: agent, policies: [{name: node-limit, arguments: {minNodes: 1, maxNodes: 1}}]}
- {name: volcano, type: volcano, policies: [{name: node-limit, arguments: {minNodes: 1, maxNodes: %d}}]}
shardSyncPeriod: 1s
enableNodeEventTrigger: true
`, most)
}

// shards has the scheduler mind NodeShards as the mode says; "" for one that does not look at them.
func (w *walk) shards(t *testing.T, mode string) {
	t.Helper()
	if mode == w.mode {
		return
	}
	w.mode = mode
	w.scheduler.kill()
	const flag = "--scheduler-sharding-mode="
	w.scheduler.args = slices.DeleteFunc(w.scheduler.args, func(a string) bool { return strings.HasPrefix(a, flag) })
	if mode != "" {
		w.scheduler.args = append(w.scheduler.args, flag+mode)
	}
	w.scheduler.start()
	w.scheduler.awaitReady(t)
}

// divide has the sharding controller, which is started for the first that asks, divide the nodes as a configuration says; "" for one that says nothing of the suites' schedulers. It returns when
// there are no NodeShards but those.
func (s *stage) divide(text string) {
	s.t.Helper()
	const name = "integration-sharding-configmap"
	names := []string{agentShard, vckeys.SchedulerName}
	if text == "" {
		text, names = "schedulerConfigs: [{name: nobody, policies: [{name: node-limit, arguments: {maxNodes: 0}}]}]\nshardSyncPeriod: 1s\n", []string{"nobody"}
	}
	if s.division == nil {
		s.division = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: name}, Data: map[string]string{vckeys.ShardingConfigKey: text}}
		s.create(s.t, s.division)
		home := metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: name}
		s.create(s.t, &rbacv1.Role{ObjectMeta: home, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"get", "list", "watch"}}}})
		s.create(s.t, &rbacv1.RoleBinding{
			ObjectMeta: home, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: kaikeys.Namespace, Name: install.Name(install.VolcanoControllers)}},
		})
		s.controllers.args = append(s.controllers.args, "--controllers=*", "--sharding-configmap="+name)
		s.again(s.t)
	} else {
		s.division.Data[vckeys.ShardingConfigKey] = text
		if err := s.client.Update(s.t.Context(), s.division); err != nil {
			s.t.Fatal(err)
		}
	}
	s.until(func() string {
		var all vcshard.NodeShardList
		if err := s.client.List(s.t.Context(), &all); err != nil {
			return err.Error()
		}
		var have []string
		for i := range all.Items {
			have = append(have, all.Items[i].Name)
		}
		if slices.Sort(have); !slices.Equal(have, names) {
			return fmt.Sprintf("there are the NodeShards %v, want %v", have, names)
		}
		return ""
	})
}

// shard waits until a NodeShard is as asked, and returns it.
func (s *stage) shard(name, what string, is func(*vcshard.NodeShard) bool) *vcshard.NodeShard {
	s.t.Helper()
	n := &vcshard.NodeShard{}
	s.until(func() string {
		*n = vcshard.NodeShard{}
		if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: name}, n); err != nil {
			return err.Error()
		}
		if !is(n) {
			return fmt.Sprintf("NodeShard %s is not %s: %v; %+v", name, what, n.Spec.NodesDesired, n.Status)
		}
		return ""
	})
	return n
}

// owns says that a NodeShard has these nodes, in use.
func owns(nodes ...string) func(*vcshard.NodeShard) bool {
	return func(n *vcshard.NodeShard) bool {
		return slices.Equal(n.Spec.NodesDesired, nodes) && slices.Equal(n.Status.NodesInUse, nodes) && len(n.Status.NodesToAdd)+len(n.Status.NodesToRemove) == 0
	}
}

// outside counts the pods of a Job that are on other nodes than these.
func (s *stage) outside(j *vcbatch.Job, nodes ...string) int {
	return s.of(j, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" && !slices.Contains(nodes, p.Spec.NodeName) })
}

func shardingSpecs() []volcanoSpec {
	// one has the scheduler own worker-0 alone.
	one := func(s *stage) {
		s.divide(byNumber(1))
		s.shard(vckeys.SchedulerName, "worker-0", owns("worker-0"))
	}
	specs := []volcanoSpec{}
	scheduling := func(name, mode string, run func(*stage)) {
		specs = append(specs, volcanoSpec{suite: "schedulersharding", name: "Volcano Scheduler Sharding E2E Test " + name, sharding: mode, run: run})
	}
	scheduling("Sharding Infrastructure Both NodeShards should be accessible", "none", func(s *stage) {
		s.divide(byLoad)
		for _, name := range []string{agentShard, vckeys.SchedulerName} {
			s.shard(name, "there", func(*vcshard.NodeShard) bool { return true })
		}
	})
	scheduling("Sharding Infrastructure Volcano NodeShard should exist with nodes assigned", "none", func(s *stage) {
		s.divide(byLoad)
		s.shard(vckeys.SchedulerName, "given nodes", func(n *vcshard.NodeShard) bool { return len(n.Spec.NodesDesired) > 0 })
	})
	scheduling("None Mode should not force placement onto the shard node", "none", func(s *stage) {
		s.divide(byNumber(1))
		s.shard(vckeys.SchedulerName, "worker-0", func(n *vcshard.NodeShard) bool { return slices.Equal(n.Spec.NodesDesired, []string{"worker-0"}) })
		j := s.simple("anywhere", "", 8, 8, oneCPU)
		s.ready(j, 8)
		if s.outside(j, "worker-0") == 0 {
			s.t.Error("all pods are on the shard's node")
		}
	})
	scheduling("Soft Mode should prefer the shard node when shard and outside nodes are both feasible", "soft", func(s *stage) {
		one(s)
		j := s.simple("preferring", "", 3, 3, oneCPU)
		s.ready(j, 3)
		if n := s.outside(j, "worker-0"); n > 0 {
			s.t.Errorf("%d pods are outside the shard", n)
		}
	})
	scheduling("Soft Mode should fall back outside the shard when in-shard resources are exhausted", "soft", func(s *stage) {
		one(s)
		first := s.simple("first", "", 4, 4, oneCPU)
		s.ready(first, 4)
		second := s.simple("second", "", 2, 2, oneCPU)
		s.ready(second, 2)
		if in, out := s.outside(first, "worker-0"), s.outside(second, "worker-0"); in > 0 || out != 2 {
			s.t.Errorf("%d pods of the first and %d of the second are outside the shard", in, out)
		}
	})
	scheduling("Hard Mode should keep a job on the shard's nodes", "hard", func(s *stage) {
		one(s)
		j := s.simple("held", "", 4, 4, oneCPU)
		s.ready(j, 4)
		if n := s.outside(j, "worker-0"); n > 0 {
			s.t.Errorf("%d pods are outside the shard", n)
		}
	})
	scheduling("Hard Mode should keep a second job pending when in-shard resources are exhausted", "hard", func(s *stage) {
		one(s)
		first := s.simple("first", "", 4, 4, oneCPU)
		s.ready(first, 4)
		s.waits(s.simple("second", "", 1, 1, oneCPU))
		if n := s.outside(first, "worker-0"); n > 0 {
			s.t.Errorf("%d pods of the first are outside the shard", n)
		}
	})
	scheduling("Shard State Consistency Shard state should remain consistent during job execution", "hard", func(s *stage) {
		s.divide(byNumber(2))
		both := []string{"worker-0", "worker-1"}
		s.shard(vckeys.SchedulerName, "the first two workers", owns(both...))
		j := s.start(asked{name: "going", parts: []part{{rep: 6, image: "busybox", command: "sleep 3", restart: corev1.RestartPolicyNever, req: oneCPU}}})
		s.goes(j, vcbatch.Pending, vcbatch.Running)
		s.shard(vckeys.SchedulerName, "the first two workers", owns(both...))
		s.goes(j, vcbatch.Completed)
		s.shard(vckeys.SchedulerName, "the first two workers", owns(both...))
		if n := s.outside(j, both...); n > 0 {
			s.t.Errorf("%d pods are outside the shard", n)
		}
	})
	scheduling("Shard State Consistency should refresh scheduler shard membership after NodeShard spec changes", "hard", func(s *stage) {
		s.divide("") // the NodeShard is of who makes it
		mine := &vcshard.NodeShard{ObjectMeta: metav1.ObjectMeta{Name: vckeys.SchedulerName}, Spec: vcshard.NodeShardSpec{NodesDesired: []string{"worker-1"}}}
		s.create(s.t, mine)
		defer s.remove(mine)
		s.shard(mine.Name, "worker-1", owns("worker-1"))
		before := s.simple("before", "", 2, 2, oneCPU)
		s.ready(before, 2)
		s.shard(mine.Name, "worker-1", owns("worker-1"))
		was := mine.DeepCopy()
		mine.Spec.NodesDesired = []string{"worker-3"}
		if err := s.client.Patch(s.t.Context(), mine, client.MergeFrom(was)); err != nil {
			s.t.Fatal(err)
		}
		s.shard(mine.Name, "worker-3", owns("worker-3"))
		after := s.simple("after", "", 2, 2, oneCPU)
		s.ready(after, 2)
		if n, m := s.outside(before, "worker-1"), s.outside(after, "worker-3"); n+m > 0 {
			s.t.Errorf("%d pods are outside the shard before, %d after", n, m)
		}
	})
	controller := func(name string, run func(*stage)) {
		specs = append(specs, volcanoSpec{suite: "shardingcontroller", name: "ShardingController E2E Test " + name, sharding: "none", run: run})
	}
	controller("Shard Creation should create NodeShards matching the ConfigMap configuration", func(s *stage) {
		s.divide(byLoad)
		for _, name := range []string{agentShard, vckeys.SchedulerName} {
			s.shard(name, "given at least a node", func(n *vcshard.NodeShard) bool { return len(n.Spec.NodesDesired) > 0 })
		}
	})
	controller("Mutual Exclusivity no node should appear in multiple shards simultaneously", func(s *stage) {
		for _, text := range []string{byLoad, byNumber(2), byLoad} {
			s.divide(text)
			seen := map[string]string{}
			for _, name := range []string{agentShard, vckeys.SchedulerName} {
				for _, node := range s.shard(name, "given a node", func(n *vcshard.NodeShard) bool { return len(n.Spec.NodesDesired) > 0 }).Spec.NodesDesired {
					if seen[node] != "" {
						s.t.Errorf("%s is in %s and in %s", node, seen[node], name)
					}
					seen[node] = name
				}
			}
		}
	})
	controller("CPU-Based Node Assignment and Reassignment node should move from low-util shard to high-util shard when load increases, and back when load is removed", func(s *stage) {
		s.divide(byLoad)
		const node = "worker-2"
		has := func(n *vcshard.NodeShard) bool { return slices.Contains(n.Spec.NodesDesired, node) }
		s.shard(vckeys.SchedulerName, "with "+node, has)
		load := plainPod(s.ns, "load", nil)
		load.Spec.SchedulerName, load.Spec.NodeName = "default-scheduler", node
		load.Spec.Containers[0].Resources.Requests = amounts("cpu", "3500m")
		s.create(s.t, load)
		s.shard(agentShard, "with "+node, has)
		s.shard(vckeys.SchedulerName, "without "+node, func(n *vcshard.NodeShard) bool { return !has(n) })
		s.remove(load)
		s.shard(vckeys.SchedulerName, "with "+node, has)
		s.shard(agentShard, "without "+node, func(n *vcshard.NodeShard) bool { return !has(n) })
	})
	controller("ConfigMap Update changes to sharding ConfigMap should be reflected in shard parameters", func(s *stage) {
		for _, most := range []int{1, 3, 2} {
			s.divide(byNumber(most))
			s.shard(vckeys.SchedulerName, fmt.Sprintf("of %d nodes", most), func(n *vcshard.NodeShard) bool { return len(n.Spec.NodesDesired) == most })
		}
	})
	return specs
}
