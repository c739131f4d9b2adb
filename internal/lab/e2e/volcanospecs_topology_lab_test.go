//go:build lab

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/lab"
)

// Scheduler files of the specs of gangs that take.
const (
	gangPreemptFile = `
actions: "enqueue, allocate, gangpreempt, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: nodeorder
  - name: network-topology-aware
`
	gangReclaimFile = `
actions: "enqueue, allocate, gangreclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: predicates
  - name: capacity
  - name: nodeorder
  - name: network-topology-aware
`
)

// fake is the taint that only the pods of these specs tolerate.
const fake = "kwok.x-k8s.io/node"

// fleet gives the spec nodes of its own, node-0 and so on, of so many CPUs each, and HyperNodes above: s0 has the first two of them, s1 the next two,
// and so on; of four, s4 is above s0 and s1, s5 above s2 and s3, and s6 above all. Of two, s2 is above both.
func (s *stage) fleet(n int, cpu string) {
	s.t.Helper()
	taint := corev1.Taint{Key: fake, Value: "fake", Effect: corev1.TaintEffectNoSchedule}
	if err := s.lab.AddNodes(s.t.Context(), lab.Pool{Name: "node", Count: n, CPU: cpu, Memory: "8Gi", Taints: []corev1.Taint{taint}}); err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	s.t.Cleanup(func() {
		if err := s.lab.RemoveNodes(context.Background(), names...); err != nil {
			s.t.Error(err)
		}
	})
	next := 0
	hyper := func(tier int, kind vctopology.MemberType, members ...string) string {
		h := &vctopology.HyperNode{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", next)}, Spec: vctopology.HyperNodeSpec{Tier: tier}}
		next++
		for _, m := range members {
			h.Spec.Members = append(h.Spec.Members, vctopology.MemberSpec{Type: kind, Selector: vctopology.MemberSelector{ExactMatch: &vctopology.ExactMatch{Name: m}}})
		}
		s.create(s.t, h)
		return h.Name
	}
	var level []string
	for pair := range slices.Chunk(names, 2) {
		level = append(level, hyper(1, vctopology.MemberTypeNode, pair...))
	}
	for tier := 2; len(level) > 1; tier++ {
		var above []string
		for pair := range slices.Chunk(level, 2) {
			above = append(above, hyper(tier, vctopology.MemberTypeHyperNode, pair...))
		}
		level = above
	}
	for _, h := range []string{"s0", "s1"} {
		s.until(func() string {
			for _, is := range list(s.fixture, &vctopology.HyperNodeList{}).Items {
				if is.Name == h && is.Status.NodeCount == 2 {
					return ""
				}
			}
			return "HyperNode " + h + " does not count its nodes"
		})
	}
}

// hard and soft are requirements of the network.
func hard(tier int) *vcscheduling.NetworkTopologySpec {
	return &vcscheduling.NetworkTopologySpec{Mode: vcscheduling.HardNetworkTopologyMode, HighestTierAllowed: ptr.To(tier)}
}

func soft() *vcscheduling.NetworkTopologySpec {
	return &vcscheduling.NetworkTopologySpec{Mode: vcscheduling.SoftNetworkTopologyMode}
}

// there has a pod run on the nodes of the spec alone.
func there(nodes ...string) func(*corev1.PodTemplateSpec) {
	return func(t *corev1.PodTemplateSpec) {
		t.Spec.Tolerations = append(t.Spec.Tolerations, corev1.Toleration{Key: fake, Operator: corev1.TolerationOpExists})
		if len(nodes) == 0 {
			t.Spec.NodeSelector = map[string]string{lab.LabelPool: "node"}
			return
		}
		t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: nodes}}},
		}}}}
	}
}

// netted is a Job on the nodes of the spec, with a requirement of the network for all of it, and of its partitions if it has some.
func (s *stage) netted(name string, n, least int32, req corev1.ResourceList, whole *vcscheduling.NetworkTopologySpec, parts *vcbatch.PartitionPolicySpec, each *vcscheduling.NetworkTopologySpec) *vcbatch.Job {
	s.t.Helper()
	if parts != nil {
		parts.NetworkTopology = each
	}
	return s.start(asked{
		name: name, min: least, alter: func(j *vcbatch.Job) { j.Spec.NetworkTopology = whole },
		parts: []part{{name: "task", rep: n, min: least, req: req, partitions: parts, alter: there()}},
	})
}

// within checks that a Job's pods are in one HyperNode of so many nodes, the nodes being in order.
func (s *stage) within(width int, jobs ...*vcbatch.Job) {
	s.t.Helper()
	for _, j := range jobs {
		domains := map[int]bool{}
		for name := range s.nodesOf(j) { // order: a set
			var i int
			if _, err := fmt.Sscanf(name, "node-%d", &i); err != nil {
				s.t.Fatal(err)
			}
			domains[i/width] = true
		}
		if len(domains) != 1 {
			s.t.Errorf("the pods of Job %s are in %d HyperNodes of %d nodes: %v", j.Name, len(domains), width, s.nodesOf(j))
		}
	}
}

// apart checks that each partition of a Job is in one HyperNode of two nodes.
func (s *stage) apart(j *vcbatch.Job) {
	s.t.Helper()
	of := map[string]map[string]bool{}
	for _, p := range s.pods(s.ns) {
		if p.Labels[vckeys.JobName] != j.Name || p.DeletionTimestamp != nil {
			continue
		}
		id := p.Labels[vckeys.PartitionID]
		if of[id] == nil {
			of[id] = map[string]bool{}
		}
		var i int
		if _, err := fmt.Sscanf(p.Spec.NodeName, "node-%d", &i); err == nil {
			of[id][fmt.Sprint(i/2)] = true
		}
	}
	for id, domains := range of { // order: each on its own
		if len(domains) > 1 {
			s.t.Errorf("partition %s is in HyperNodes %v", id, slices.Sorted(maps.Keys(domains)))
		}
	}
}

// fills puts a pod of so many CPUs on each of some nodes.
func (s *stage) fills(name string, cpu string, nodes ...string) *vcbatch.Job {
	s.t.Helper()
	var parts []part
	for i, n := range nodes {
		parts = append(parts, part{name: fmt.Sprintf("t%d", i), rep: 1, req: amounts("cpu", cpu), alter: there(n)})
	}
	j := s.start(asked{name: name, parts: parts})
	s.ready(j, len(nodes))
	return j
}

func numbered(from, to int) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("node-%d", i))
	}
	return out
}

// hyperNodeSpecs are the specs of network topology: eight nodes of 8 CPUs.
func hyperNodeSpecs() []volcanoSpec {
	const suite = "hypernode"
	four := amounts("cpu", "4")
	on := func(s *stage, j *vcbatch.Job, want ...string) {
		s.t.Helper()
		if have := slices.Sorted(maps.Keys(s.nodesOf(j))); !slices.Equal(have, want) {
			s.t.Errorf("Job %s is on %v, want %v", j.Name, have, want)
		}
	}
	var specs []volcanoSpec
	add := func(name string, run func(*stage)) {
		specs = append(specs, volcanoSpec{suite: suite, name: name, quick: name == "Network Topology Tests Hard Mode Tests Case 1.3: Pods remain pending when no hypernode has sufficient resources", run: func(s *stage) {
			s.fleet(8, "8")
			run(s)
		}})
	}
	const simple = "Network Topology Tests "
	add(simple+"Hard Mode Tests Case 1.1: Schedule to one HyperNode when it has room", func(s *stage) {
		s.fills("filler", "6", "node-0", "node-1", "node-4", "node-5", "node-6", "node-7")
		j := s.netted("job", 4, 4, four, hard(1), nil, nil)
		s.ready(j, 4)
		on(s, j, "node-2", "node-3")
	})
	add(simple+"Hard Mode Tests Case 1.3: Pods remain pending when no hypernode has sufficient resources", func(s *stage) {
		s.fills("filler", "6", numbered(0, 7)...)
		j := s.netted("job", 4, 4, four, hard(1), nil, nil)
		s.waits(j)
	})
	add(simple+"Tier Tests Case 2.1: a gang of tier 2", func(s *stage) {
		j := s.netted("job", 8, 8, four, hard(2), nil, nil)
		s.ready(j, 8)
		s.within(4, j)
	})
	add(simple+"Tier Tests Case 2.2: pods are pending when tier 2 resources are insufficient", func(s *stage) {
		s.fills("filler", "6", "node-3", "node-7")
		j := s.netted("job", 8, 8, four, hard(2), nil, nil)
		s.waits(j)
	})
	add(simple+"Soft Mode Tests Case 3: a soft gang starts in any case", func(s *stage) {
		s.fills("filler", "4", numbered(0, 7)...)
		j := s.netted("job", 8, 8, four, soft(), nil, nil)
		s.ready(j, 8)
	})
	const task = "Network Topology Task Tests "
	const c4 = task + "Both the Job and PartitionPolicy network topology are hard mode tier 1 tests "
	add(c4+"Case 4.1: Schedule to node-2 and node-3 when resources are enough", func(s *stage) {
		s.fills("filler", "6", "node-0", "node-1", "node-4", "node-5", "node-6", "node-7")
		j := s.netted("job", 4, 4, four, hard(1), partitions(2, 2, 2), hard(1))
		s.ready(j, 4)
		on(s, j, "node-2", "node-3")
	})
	add(c4+"Case 4.2: Pods remain pending when no hypernode has sufficient resources", func(s *stage) {
		s.fills("filler", "6", numbered(0, 7)...)
		s.waits(s.netted("job", 4, 4, four, hard(1), partitions(2, 2, 2), hard(1)))
	})
	add(c4+"Case 4.3: Pods remain pending when hypernode has sufficient resources but does not meet the topological requirements", func(s *stage) {
		s.waits(s.netted("job", 8, 8, four, hard(1), partitions(2, 4, 2), hard(1)))
	})
	const c5 = task + "Job Hard Mode Tier 2 and PartitionPolicy Hard Mode Tier 1 Tests "
	add(c5+"Case 5.1: Schedule to node-2 and node-3 when resources are enough", func(s *stage) {
		s.fills("filler", "6", "node-0", "node-1", "node-4", "node-5", "node-6", "node-7")
		j := s.netted("job", 4, 4, four, hard(2), partitions(2, 2, 2), hard(1))
		s.ready(j, 4)
		on(s, j, "node-2", "node-3")
	})
	add(c5+"Case 5.2: Scheduling is performed in groups when resources are enough", func(s *stage) {
		j := s.netted("job", 8, 8, four, hard(2), partitions(2, 4, 2), hard(1))
		s.ready(j, 8)
		s.within(4, j)
		s.apart(j)
	})
	add(c5+"Case 5.3: pod of job will be rescheduled to same hypernode when be killed", func(s *stage) {
		s.anew(s.netted("job", 8, 8, four, hard(2), partitions(2, 4, 2), hard(1)), 8, "job-task-0")
	})
	add(c5+"Case 5.4: Schedule to s1 when s0's resources are insufficient and s1's score is higher", func(s *stage) {
		s.fills("filler", "6", "node-0", "node-1", "node-2")
		j := s.netted("job", 2, 2, four, hard(2), partitions(1, 2, 1), hard(1))
		s.ready(j, 2)
		on(s, j, "node-3")
	})
	const c6 = task + "Job Hard Mode Tier 2 and PartitionPolicy Soft Mode Tests "
	add(c6+"Case 6.1: Schedule to node-2 and node-3 when resources are enough", func(s *stage) {
		s.fills("filler", "6", "node-0", "node-1", "node-4", "node-5", "node-6", "node-7")
		j := s.netted("job", 4, 4, four, hard(2), partitions(2, 2, 2), soft())
		s.ready(j, 4)
		on(s, j, "node-2", "node-3")
	})
	add(c6+"Case 6.2: Scheduling is performed in groups when resources are enough", func(s *stage) {
		j := s.netted("job", 8, 8, four, hard(2), partitions(2, 4, 2), soft())
		s.ready(j, 8)
		s.within(4, j)
		s.apart(j)
	})
	add(c6+"Case 6.3: Pods remain pending when hypernode has sufficient resources but does not meet the topological requirements", func(s *stage) {
		s.waits(s.netted("job", 12, 12, four, hard(2), partitions(3, 4, 3), soft()))
	})
	const c7 = task + "Job Soft Mode Tier 2 and PartitionPolicy Hard Mode Tier 1 Tests "
	add(c7+"Case 7.1: Scheduling is performed in groups when resources are enough", func(s *stage) {
		j := s.netted("job", 16, 16, four, soft(), partitions(4, 4, 4), hard(1))
		s.ready(j, 16)
		s.apart(j)
	})
	add(c7+"Case 7.2: Pods remain pending when hypernode has sufficient resources but does not meet the topological requirements", func(s *stage) {
		s.waits(s.netted("job", 12, 12, four, soft(), partitions(2, 6, 2), hard(1)))
	})
	add(task+"No Job Affinity Only PartitionPolicy Hard Mode Tier 1 Tests Case 8.1: Scheduling is performed in groups when resources are enough", func(s *stage) {
		j := s.netted("job", 16, 16, four, nil, partitions(4, 4, 4), hard(1))
		s.ready(j, 16)
		s.apart(j)
	})
	const c9 = task + "Both the Job and PartitionPolicy network topology with minPartitions are hard mode tests "
	add(c9+"Case 9.1: Schedule to node-2 and node-3 when hypernode resources just meet the job's minAvailable requirement.", func(s *stage) {
		s.fills("filler", "6", "node-0", "node-1", "node-4", "node-5", "node-6", "node-7")
		j := s.netted("job", 6, 4, four, hard(1), partitions(3, 2, 2), hard(1))
		s.ready(j, 4)
		s.exactly(j, 4)
		on(s, j, "node-2", "node-3")
	})
	add(c9+"Case 9.3: Pods remain pending when hypernode resources meet minPartitions but do not meet the job's minAvailable.", func(s *stage) {
		j := s.build(asked{name: "job", min: 6, alter: func(j *vcbatch.Job) { j.Spec.NetworkTopology = hard(1) }, parts: []part{{name: "task", rep: 6, min: 4, req: four, partitions: partitions(3, 2, 2), alter: there()}}})
		j.Spec.Tasks[0].PartitionPolicy.NetworkTopology = hard(1)
		s.create(s.t, j)
		s.waits(j)
	})
	add(c9+"Case 9.4: Pods remain pending when hypernode resources meet the job's minAvailable but do not meet minPartitions.", func(s *stage) {
		j := s.build(asked{name: "job", min: 2, alter: func(j *vcbatch.Job) { j.Spec.NetworkTopology = hard(1) }, parts: []part{{name: "task", rep: 6, min: 6, req: four, partitions: partitions(3, 2, 3), alter: there()}}})
		j.Spec.Tasks[0].PartitionPolicy.NetworkTopology = hard(1)
		s.create(s.t, j)
		s.waits(j)
	})
	add(c9+"Case 9.5: pod of job will be rescheduled to same hypernode when be killed", func(s *stage) {
		s.anew(s.netted("job", 6, 4, amounts("cpu", "2"), hard(1), partitions(3, 2, 2), hard(1)), 6, "job-task-0")
	})
	add(c9+"Case 9.6: subJob of job will be rescheduled to same hypernode when be killed", func(s *stage) {
		s.anew(s.netted("job", 6, 4, amounts("cpu", "2"), hard(1), partitions(3, 2, 2), hard(1)), 6, "job-task-0", "job-task-1")
	})
	return specs
}

// anew deletes pods of a Job of n pods that runs, and waits until they run anew, in the HyperNode where they were.
func (s *stage) anew(j *vcbatch.Job, n int, names ...string) {
	s.t.Helper()
	s.ready(j, n)
	s.groupIs(j, vcscheduling.PodGroupRunning)
	was := map[string]corev1.Pod{}
	for _, p := range s.pods(s.ns) {
		was[p.Name] = p
	}
	for _, name := range names {
		s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}})
	}
	domain := func(p corev1.Pod) (i int) {
		if _, err := fmt.Sscanf(p.Spec.NodeName, "node-%d", &i); err != nil {
			return -1
		}
		return i / 2
	}
	s.until(func() string {
		found := 0
		for _, p := range s.pods(s.ns) {
			if slices.Contains(names, p.Name) && p.UID != was[p.Name].UID && works(&p) {
				found++
			}
		}
		if found != len(names) {
			return fmt.Sprintf("%d of %d pods run anew", found, len(names))
		}
		return ""
	})
	for _, p := range s.pods(s.ns) {
		if slices.Contains(names, p.Name) && domain(p) != domain(was[p.Name]) {
			s.t.Errorf("pod %s was on %s, and is on %s", p.Name, was[p.Name].Spec.NodeName, p.Spec.NodeName)
		}
	}
}

// gangSpecs are the specs of gangs that take from gangs: four nodes of 4 CPUs, two HyperNodes of two nodes, and one above both.
func gangSpecs() []volcanoSpec {
	const suite = "gangevict"
	var specs []volcanoSpec
	gang := func(s *stage, name, queue, priority string, n, least int32, whole *vcscheduling.NetworkTopologySpec, change func(*vcbatch.Job)) *vcbatch.Job {
		s.t.Helper()
		return s.start(asked{name: name, queue: queue, priority: priority, min: least, parts: []part{{name: "w", rep: n, min: least, req: oneCPU, alter: there()}}, alter: func(j *vcbatch.Job) {
			j.Spec.NetworkTopology = whole
			if change != nil {
				change(j)
			}
		}})
	}
	add := func(file, name string, run func(*stage)) {
		specs = append(specs, volcanoSpec{suite: suite, name: name, file: file, quick: name == "GangPreempt E2E Test GP-1: safe-bundle preemption evicts surplus tasks, victim gang survives", run: func(s *stage) {
			s.fleet(4, "4")
			run(s)
		}})
	}
	preempt := func(name string, run func(*stage)) { add(gangPreemptFile, "GangPreempt E2E Test "+name, run) }
	reclaim := func(name string, run func(*stage)) { add(gangReclaimFile, "GangReclaim E2E Test "+name, run) }
	low, high := "worker-pri", "master-pri"
	preempt("GP-1: safe-bundle preemption evicts surplus tasks, victim gang survives", func(s *stage) {
		victim := gang(s, "victim", "", low, 16, 8, nil, nil)
		s.ready(victim, 16)
		p := gang(s, "preemptor", "", high, 4, 4, nil, nil)
		s.ready(p, 4)
		s.exactly(victim, 12)
	})
	preempt("GP-2: safe bundles harvested across multiple gangs, zero gangs broken", func(s *stage) {
		a, b := gang(s, "a", "", low, 8, 6, nil, nil), gang(s, "b", "", low, 8, 6, nil, nil)
		s.ready(a, 8)
		s.ready(b, 8)
		p := gang(s, "preemptor", "", high, 4, 4, nil, nil)
		s.ready(p, 4)
		s.exactly(a, 6)
		s.exactly(b, 6)
	})
	preempt("GP-3: whole-bundle eviction breaks exactly one gang when no surplus exists", func(s *stage) {
		a, b := gang(s, "a", "", low, 8, 8, nil, nil), gang(s, "b", "", low, 8, 8, nil, nil)
		s.ready(a, 8)
		s.ready(b, 8)
		p := gang(s, "preemptor", "", high, 8, 8, nil, nil)
		s.ready(p, 8)
		s.until(func() string {
			if x, y := s.of(a, works), s.of(b, works); min(x, y) != 0 || max(x, y) != 8 {
				return fmt.Sprintf("%d and %d pods are left of the two gangs", x, y)
			}
			return ""
		})
	})
	preempt("GP-4: whole-bundle eviction breaks both gangs for large preemptor", func(s *stage) {
		a, b := gang(s, "a", "", low, 8, 8, nil, nil), gang(s, "b", "", low, 8, 8, nil, nil)
		s.ready(a, 8)
		s.ready(b, 8)
		p := gang(s, "preemptor", "", high, 16, 16, nil, nil)
		s.ready(p, 16)
		s.exactly(a, 0)
		s.exactly(b, 0)
	})
	preempt("GP-7: equal-priority gang is not preempted", func(s *stage) {
		a := gang(s, "a", "", high, 16, 8, nil, nil)
		s.ready(a, 16)
		s.waits(gang(s, "preemptor", "", high, 4, 4, nil, nil))
		s.exactly(a, 16)
	})
	preempt("GP-8: medium-priority preemptor cannot evict high-priority victims", func(s *stage) {
		a := gang(s, "a", "", high, 16, 8, nil, nil)
		s.ready(a, 16)
		s.waits(gang(s, "preemptor", "", low, 4, 4, nil, nil))
		s.exactly(a, 16)
	})
	preempt("with network topology constraints GP-T1: hard tier-1 preemption places preemptor within one domain", func(s *stage) {
		a := gang(s, "a", "", low, 16, 1, nil, nil)
		s.ready(a, 16)
		p := gang(s, "preemptor", "", high, 8, 8, hard(1), nil)
		s.ready(p, 8)
		s.within(2, p)
	})
	preempt("with network topology constraints GP-T2: hard tier-1 preemption is blocked when a domain is too small", func(s *stage) {
		a := gang(s, "a", "", low, 16, 1, nil, nil)
		s.ready(a, 16)
		s.waits(gang(s, "preemptor", "", high, 9, 9, hard(1), nil))
		s.exactly(a, 16)
	})
	preempt("with network topology constraints GP-T3: hard tier-2 preemption succeeds at wider domain", func(s *stage) {
		a := gang(s, "a", "", low, 16, 1, nil, nil)
		s.ready(a, 16)
		p := gang(s, "preemptor", "", high, 12, 12, hard(2), nil)
		s.ready(p, 12)
	})
	preempt("with sub-group policy GP-S1: sub-group group-slack caps safe, gang preserved", func(s *stage) {
		a := gang(s, "a", "", low, 16, 8, nil, func(j *vcbatch.Job) { j.Spec.Tasks[0].PartitionPolicy = partitions(4, 4, 2) })
		s.ready(a, 16)
		p := gang(s, "preemptor", "", high, 4, 4, nil, nil)
		s.ready(p, 4)
		s.until(func() string {
			if n := s.of(a, works); n < 8 {
				return fmt.Sprintf("%d pods are left", n)
			}
			return ""
		})
	})
	with := func(deserved string, guarantee string, reclaimable bool) vcscheduling.QueueSpec {
		q := vcscheduling.QueueSpec{Weight: 1, Deserved: amounts("cpu", deserved, "memory", "4Gi"), Reclaimable: &reclaimable}
		if guarantee != "" {
			q.Guarantee.Resource = amounts("cpu", guarantee)
		}
		return q
	}
	reclaims := func(name string, victim, least, taker int32, topology *vcscheduling.NetworkTopologySpec, deserved string, done func(*stage, *vcbatch.Job, *vcbatch.Job)) {
		reclaim(name, func(s *stage) {
			s.queue("victims", with("4", "", true))
			s.queue("takers", with(deserved, "", true))
			v := gang(s, "victim", "victims", "", victim, least, nil, nil)
			s.ready(v, int(victim))
			done(s, v, gang(s, "reclaimer", "takers", "", taker, taker, topology, nil))
		})
	}
	reclaims("GR-1: safe-bundle reclaim evicts surplus, victim gang survives", 16, 8, 4, nil, "8", func(s *stage, v, r *vcbatch.Job) {
		s.ready(r, 4)
		s.exactly(v, 12)
	})
	reclaim("GR-2: whole-bundle reclaim breaks exactly one gang when no surplus exists", func(s *stage) {
		s.queue("victims", with("4", "", true))
		s.queue("takers", with("8", "", true))
		a, b := gang(s, "a", "victims", "", 8, 8, nil, nil), gang(s, "b", "victims", "", 8, 8, nil, nil)
		s.ready(a, 8)
		s.ready(b, 8)
		r := gang(s, "reclaimer", "takers", "", 8, 8, nil, nil)
		s.ready(r, 8)
		if x, y := s.of(a, works), s.of(b, works); min(x, y) != 0 || max(x, y) != 8 {
			s.t.Errorf("%d and %d pods are left of the two gangs", x, y)
		}
	})
	reclaims("GR-3: basic gang reclaim from overusing queue", 16, 1, 8, nil, "8", func(s *stage, v, r *vcbatch.Job) {
		s.ready(r, 8)
		s.exactly(v, 8)
	})
	reclaim("GR-4: no reclaim from queues within their deserved", func(s *stage) {
		s.queue("victims", with("16", "", true))
		s.queue("takers", with("4", "", true))
		v := gang(s, "victim", "victims", "", 16, 1, nil, nil)
		s.ready(v, 16)
		s.waits(gang(s, "reclaimer", "takers", "", 4, 4, nil, nil))
		s.exactly(v, 16)
	})
	reclaim("GR-5: no reclaim from a queue that is not reclaimable", func(s *stage) {
		s.queue("victims", with("4", "", false))
		s.queue("takers", with("4", "", true))
		v := gang(s, "victim", "victims", "", 16, 1, nil, nil)
		s.ready(v, 16)
		s.waits(gang(s, "reclaimer", "takers", "", 4, 4, nil, nil))
		s.exactly(v, 16)
	})
	reclaim("GR-6: reclaim stops at guarantee boundary", func(s *stage) {
		s.queue("victims", vcscheduling.QueueSpec{Weight: 1, Deserved: amounts("cpu", "12"), Guarantee: vcscheduling.Guarantee{Resource: amounts("cpu", "12")}, Reclaimable: ptr.To(true)})
		s.queue("takers", with("8", "", true))
		v := gang(s, "victim", "victims", "", 16, 1, nil, nil)
		s.ready(v, 16)
		r := gang(s, "reclaimer", "takers", "", 4, 4, nil, nil)
		s.ready(r, 4)
		s.exactly(v, 12)
		s.waits(gang(s, "second", "takers", "", 4, 4, nil, nil))
		s.exactly(v, 12)
	})
	reclaims("with network topology constraints GR-T1: hard tier-1 reclaim places reclaimer within one domain", 16, 1, 8, hard(1), "8", func(s *stage, _, r *vcbatch.Job) {
		s.ready(r, 8)
		s.within(2, r)
	})
	reclaims("with network topology constraints GR-T2: hard tier-1 reclaim blocked when domain is too small", 16, 1, 9, hard(1), "12", func(s *stage, v, r *vcbatch.Job) {
		s.waits(r)
		s.exactly(v, 16)
	})
	reclaims("with network topology constraints GR-T3: hard tier-2 reclaim succeeds at wider domain", 16, 1, 10, hard(2), "12", func(s *stage, _, r *vcbatch.Job) { s.ready(r, 10) })
	reclaims("with network topology constraints GR-T4: hard tier-2 constraint places reclaimer in tier-1 domain when sufficient", 16, 1, 4, hard(2), "8", func(s *stage, _, r *vcbatch.Job) {
		s.ready(r, 4)
		s.within(2, r)
	})
	reclaim("with per-role minimums GR-R1: per-role surplus gate keeps role-tight tasks safe", func(s *stage) {
		s.queue("victims", with("4", "", true))
		s.queue("takers", with("8", "", true))
		v := s.start(asked{name: "victim", queue: "victims", parts: []part{
			{name: "tight", rep: 8, min: 8, req: oneCPU, alter: there()}, {name: "loose", rep: 8, min: 2, req: oneCPU, alter: there()},
		}})
		s.ready(v, 16)
		r := gang(s, "reclaimer", "takers", "", 4, 4, nil, nil)
		s.ready(r, 4)
		s.exactly(v, 12)
		if n := s.of(v, func(p *corev1.Pod) bool { return works(p) && p.Labels[vckeys.TaskSpec] == "tight" }); n != 8 {
			s.t.Errorf("%d of the 8 pods are left whose task can do without none", n)
		}
	})
	reclaim("with sub-group policy GR-S1: sub-group group-slack caps safe, gang preserved", func(s *stage) {
		s.queue("victims", with("4", "", true))
		s.queue("takers", with("8", "", true))
		v := gang(s, "victim", "victims", "", 16, 8, nil, func(j *vcbatch.Job) { j.Spec.Tasks[0].PartitionPolicy = partitions(4, 4, 2) })
		s.ready(v, 16)
		r := gang(s, "reclaimer", "takers", "", 4, 4, nil, nil)
		s.ready(r, 4)
		if n := s.of(v, works); n < 8 {
			s.t.Errorf("%d pods are left", n)
		}
	})
	return specs
}
