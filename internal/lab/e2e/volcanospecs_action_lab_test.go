//go:build lab

package e2e

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// Scheduler files of the specs of actions.
const (
	preemptFile = `
actions: "enqueue, allocate, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
`
	reclaimFile = `
actions: "enqueue, allocate, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
`
	capacityReclaimFile = `
actions: "enqueue, allocate, backfill, reclaim"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: capacity
  - name: nodeorder
`
	noEnqueueFile = `
actions: "allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
  - name: nodeorder
`
)

// weight is a queue of that weight.
func weight(n int32) vcscheduling.QueueSpec { return vcscheduling.QueueSpec{Weight: n} }

// kept is a queue from which nothing is taken.
func kept() vcscheduling.QueueSpec { return vcscheduling.QueueSpec{Reclaimable: ptr.To(false)} }

// elastic is a Job of a queue that starts with one pod and may have more.
func (s *stage) elastic(name, queue string, n int32) func() {
	s.t.Helper()
	j := s.simple(name, queue, n, 1, oneCPU)
	s.ready(j, int(n))
	return func() {
		s.t.Helper()
		s.exactly(j, int(n))
	}
}

func schedulingActionSpecs() []volcanoSpec {
	const suite = "schedulingaction"
	both := func(name, other string, run func(*stage)) []volcanoSpec {
		return []volcanoSpec{{suite: suite, name: name, run: run}, {suite: suite, name: name + " (" + other + ")", file: reclaimFile, run: run}}
	}
	specs := []volcanoSpec{
		{suite: suite, name: "Job E2E Test allocate work when resource is enough", quick: true, run: func(s *stage) {
			first := s.simple("first", "", slots/2, slots/2, oneCPU)
			s.ready(first, slots/2)
			second := s.simple("second", "", slots/2, slots/2, oneCPU)
			s.ready(second, slots/2)
			s.exactly(first, slots/2)
		}},
		{suite: suite, name: "Job E2E Test allocate don't work when resource is NOT enough", run: func(s *stage) {
			first := s.simple("first", "", slots-1, slots-1, oneCPU)
			s.ready(first, slots-1)
			second := s.simple("second", "", 2, 2, oneCPU)
			s.waits(second)
			s.exactly(first, slots-1)
		}},
		{suite: suite, name: "Job E2E Test allocate don't work when queue is overused", run: func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			first := s.simple("first", "q1", slots, 1, oneCPU)
			s.ready(first, slots)
			second := s.simple("second", "q2", slots, 1, oneCPU)
			s.ready(second, 1)
			third := s.simple("third", "q1", 1, 1, oneCPU)
			s.waits(third)
			s.exactly(second, 1)
		}},
		{suite: suite, name: "Job E2E Test allocate work when job has subgroups (partitionPolicy) but no network topology constraint", run: func(s *stage) {
			j := s.start(asked{name: "parts", parts: []part{{rep: 4, min: 4, req: oneCPU, partitions: partitions(2, 2, 2)}}})
			s.ready(j, 4)
		}},
		{suite: suite, name: "Job E2E Test schedule high priority job without preemption when resource is enough", file: preemptFile, run: func(s *stage) {
			low := s.start(asked{name: "low", priority: "worker-pri", parts: []part{{rep: slots / 2, min: 1, req: oneCPU}}})
			s.ready(low, slots/2)
			high := s.start(asked{name: "high", priority: "master-pri", parts: []part{{rep: slots / 2, req: oneCPU}}})
			s.ready(high, slots/2)
			s.exactly(low, slots/2)
		}},
		{suite: suite, name: "Job E2E Test preemption works when resource is NOT enough", file: preemptFile, quick: true, run: func(s *stage) {
			low := s.start(asked{name: "low", priority: "worker-pri", parts: []part{{rep: slots, min: 1, req: oneCPU}}})
			s.ready(low, slots)
			high := s.start(asked{name: "high", priority: "master-pri", parts: []part{{rep: slots / 2, req: oneCPU}}})
			s.ready(high, slots/2)
			s.exactly(low, slots/2)
		}},
		{suite: suite, name: "Job E2E Test preemption doesn't work when podgroup is pending due to insufficient resource", file: preemptFile, run: func(s *stage) {
			low := s.start(asked{name: "low", priority: "worker-pri", parts: []part{{rep: slots, min: slots, req: oneCPU}}})
			s.ready(low, slots)
			g := s.podGroup("high", func(g *vcscheduling.PodGroup) {
				g.Spec.PriorityClassName, g.Spec.MinMember, g.Spec.MinResources = "master-pri", 1, ptr.To(amounts("cpu", "1000", "memory", "1000Gi"))
			})
			s.member(g, "high-0", "nginx", "", oneCPU, nil)
			s.until(func() string {
				if now := s.groupNow("high"); now.Status.Phase != vcscheduling.PodGroupPending {
					return fmt.Sprintf("the PodGroup is %+v", now.Status)
				}
				return ""
			})
			s.podPends("high-0")
			s.exactly(low, slots)
		}},
		{suite: suite, name: "Job E2E Test preemption only works in the same queue", file: preemptFile, run: func(s *stage) {
			s.queue("q1-preemption", weight(1))
			s.queue("q2-preemption", weight(1))
			low := s.start(asked{name: "low", queue: "q1-preemption", priority: "worker-pri", parts: []part{{rep: slots, min: 1, req: oneCPU}}})
			s.ready(low, slots)
			high := s.start(asked{name: "high", queue: "q2-preemption", priority: "master-pri", parts: []part{{rep: slots / 2, min: 1, req: oneCPU}}})
			s.waits(high)
			s.exactly(low, slots)
		}},
		{suite: suite, name: "Job E2E Test preemption doesn't work when total resource of idle resource and victims is NOT enough", file: preemptFile, run: func(s *stage) {
			keep := s.start(asked{name: "keep", priority: "master-pri", parts: []part{{rep: slots - 4, req: oneCPU}}})
			s.ready(keep, slots-4)
			low := s.start(asked{name: "low", priority: "worker-pri", parts: []part{{rep: 4, min: 1, req: oneCPU}}})
			s.ready(low, 4)
			high := s.start(asked{name: "high", priority: "master-pri", parts: []part{{rep: 6, req: oneCPU}}})
			s.waits(high)
			s.exactly(low, 4)
			s.exactly(keep, slots-4)
		}},
		{suite: suite, name: "Job E2E Test multiple tasks of a job, preempted by its own of higher priority", file: preemptFile, run: func(s *stage) {
			filler := s.start(asked{name: "filler", priority: "master-pri", parts: []part{{rep: slots - 2, req: oneCPU}}})
			s.ready(filler, slots-2)
			j := s.start(asked{name: "one", min: 1, parts: []part{{name: "low", rep: 2, min: 0, req: oneCPU, priority: "worker-pri"}}})
			s.ready(j, 2)
		}},
		{suite: suite, name: "Enqueue E2E Test allocate work even not config enqueue action", file: noEnqueueFile, quick: true, run: func(s *stage) {
			j := s.simple("job", "", slots, slots, oneCPU)
			s.ready(j, slots)
			s.groupIs(j, vcscheduling.PodGroupRunning)
		}},
		{suite: suite, name: "Enqueue E2E Test Scheduling gated task will not consume inqueue resources", run: func(s *stage) {
			g := s.podGroup("gated", func(g *vcscheduling.PodGroup) {
				g.Spec.MinMember, g.Spec.MinResources = 1, ptr.To(amounts("cpu", "16"))
			})
			gate := []corev1.PodSchedulingGate{{Name: "example.com/hold"}}
			s.member(g, "gated-0", "nginx", "", amounts("cpu", "4"), func(p *corev1.Pod) { p.Spec.SchedulingGates = gate })
			s.until(func() string {
				if p := s.groupNow("gated").Status.Phase; p != vcscheduling.PodGroupInqueue {
					return "the gated PodGroup is " + string(p)
				}
				return ""
			})
			j := s.simple("job", "", 8, 8, oneCPU)
			s.ready(j, 8)
		}},
		{suite: suite, name: "Guarantee reserved resource E2E Test one queue reserve all cluster resource", run: func(s *stage) {
			all := amounts("cpu", "20", "memory", "80Gi")
			s.queue("reserves", vcscheduling.QueueSpec{Weight: 1, Guarantee: vcscheduling.Guarantee{Resource: all}, Deserved: all})
			s.queue("other", weight(1))
			j := s.simple("none", "other", 1, 1, oneCPU)
			s.waits(j)
			mine := s.simple("mine", "reserves", 1, 1, oneCPU)
			s.ready(mine, 1)
		}},
		{suite: suite, name: "Guarantee reserved resource E2E Test one queue reserve some cluster resource, so it  is NOT enough to create job", run: func(s *stage) {
			some := amounts("cpu", "12", "memory", "20Gi")
			s.queue("reserves", vcscheduling.QueueSpec{Weight: 1, Guarantee: vcscheduling.Guarantee{Resource: some}, Deserved: some})
			s.queue("other", weight(1))
			j := s.simple("none", "other", 12, 12, oneCPU)
			s.waits(j)
		}},
		{suite: suite, name: "Guarantee reserved resource E2E Test one queue reserve some cluster resource, still enough to create job", run: func(s *stage) {
			some := amounts("cpu", "2", "memory", "2Gi")
			s.queue("reserves", vcscheduling.QueueSpec{Weight: 1, Guarantee: vcscheduling.Guarantee{Resource: some}, Deserved: some})
			s.queue("other", weight(1))
			j := s.simple("some", "other", 8, 8, oneCPU)
			s.ready(j, 8)
		}},
		{suite: suite, name: "PodGroup terminating E2E Test PodGroup should stay Running while scheduled members are terminating single-Pod PodGroup", run: func(s *stage) { s.terminating(1) }},
		{suite: suite, name: "PodGroup terminating E2E Test PodGroup should stay Running while scheduled members are terminating multi-Pod PodGroup", run: func(s *stage) { s.terminating(3) }},
		{suite: suite, name: "Predicates E2E Test Hostport", run: func(s *stage) {
			j := s.start(asked{name: "ports", min: 4, parts: []part{{rep: 8, min: 4, req: halfCPU, alter: func(t *corev1.PodTemplateSpec) {
				t.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 28080, HostPort: 28080}}
			}}}})
			s.ready(j, 4)
			s.until(func() string {
				if n := s.of(j, func(p *corev1.Pod) bool {
					return !works(p) && podCondition(p, corev1.PodScheduled, corev1.ConditionFalse)
				}); n != 4 {
					return fmt.Sprintf("%d of 4 pods without a port say that they wait", n)
				}
				return ""
			})
			s.exactly(j, 4)
		}},
		{suite: suite, name: "Predicates E2E Test NodeAffinity", quick: true, run: func(s *stage) {
			j := s.start(asked{name: "affine", parts: []part{{rep: 1, req: oneCPU, alter: func(t *corev1.PodTemplateSpec) {
				t.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
					{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"worker-2"}}}},
				}}}}
			}}}})
			s.ready(j, 1)
			if n := s.of(j, func(p *corev1.Pod) bool { return p.Spec.NodeName == "worker-2" }); n != 1 {
				s.t.Error("the pod is not on worker-2")
			}
		}},
		{suite: suite, name: "Predicates E2E Test Pod Affinity", run: func(s *stage) {
			j := s.start(asked{name: "together", parts: []part{{rep: 3, req: oneCPU, alter: func(t *corev1.PodTemplateSpec) {
				t.Labels = map[string]string{"foo": "bar"}
				t.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: t.Labels}, TopologyKey: corev1.LabelHostname}}}}
			}}}})
			s.ready(j, 3)
			if n := len(s.nodesOf(j)); n != 1 {
				s.t.Errorf("pods that belong together are on %d nodes", n)
			}
		}},
		{suite: suite, name: "Predicates E2E Test Pod Anti-Affinity", run: func(s *stage) {
			j := s.start(asked{name: "apart", parts: []part{{rep: 2, req: oneCPU, alter: func(t *corev1.PodTemplateSpec) {
				t.Labels = map[string]string{"foo": "bar"}
				t.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: t.Labels}, TopologyKey: corev1.LabelHostname}}}}
			}}}})
			s.ready(j, 2)
			if n := len(s.nodesOf(j)); n != 2 {
				s.t.Errorf("pods that keep apart are on %d nodes", n)
			}
		}},
		{suite: suite, name: "Predicates E2E Test Taints", run: func(s *stage) {
			for i := range 4 {
				s.taint(fmt.Sprintf("worker-%d", i), true)
			}
			defer func() {
				for i := range 4 {
					s.taint(fmt.Sprintf("worker-%d", i), false)
				}
			}()
			j := s.simple("tainted", "", 1, 1, oneCPU)
			s.waits(j)
			s.taint("worker-1", false)
			s.ready(j, 1)
		}},
		{suite: suite, name: "Reclaim E2E Test Capacity Reclaim Case 11: Multi reclaimed queue", file: capacityReclaimFile, quick: true, run: func(s *stage) {
			of := func(n string) vcscheduling.QueueSpec {
				return vcscheduling.QueueSpec{Weight: 1, Deserved: amounts("cpu", n, "memory", "4Gi"), Reclaimable: ptr.To(true)}
			}
			s.queue("q1", of("4"))
			s.queue("q2", of("4"))
			s.queue("q3", of("4"))
			s.queue("q4", of("4"))
			a := s.simple("a", "q1", 5, 1, oneCPU)
			s.ready(a, 5)
			b := s.simple("b", "q2", 5, 1, oneCPU)
			s.ready(b, 5)
			c := s.simple("c", "q3", 6, 1, oneCPU)
			s.ready(c, 6)
			d := s.simple("d", "q4", 4, 4, oneCPU)
			s.ready(d, 4)
			s.exactly(a, 4)
			s.exactly(b, 4)
			s.exactly(c, 4)
		}},
	}
	for _, more := range [][]volcanoSpec{
		both("Reclaim E2E Test Reclaim Case 1: New queue with job created no reclaim when resource is enough", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			a, b := s.elastic("a", "q1", 4), s.elastic("b", "q2", 4)
			s.queue("q3", weight(1))
			c := s.elastic("c", "q3", 4)
			a()
			b()
			c()
		}),
		both("Reclaim E2E Test Reclaim Case 2: New queue with job created reclaims when resource is NOT enough", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			a := s.simple("a", "q1", slots/2, 1, oneCPU)
			b := s.simple("b", "q2", slots/2, 1, oneCPU)
			s.ready(a, slots/2)
			s.ready(b, slots/2)
			s.queue("q3", weight(1))
			c := s.simple("c", "q3", 3, 3, oneCPU)
			s.ready(c, 3)
		}),
		both("Reclaim E2E Test Reclaim Case 4: New queue with job created no reclaim when new queue is not created", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			a, b := s.elastic("a", "q1", slots/2), s.elastic("b", "q2", slots/2)
			if err := s.client.Create(s.t.Context(), s.build(asked{name: "c", queue: "q3", parts: []part{{rep: 1, req: oneCPU}}})); err == nil {
				s.t.Error("a Job of no queue is made")
			}
			a()
			b()
		}),
		both("Reclaim E2E Test Reclaim Case 5: New queue with job created no reclaim when job or task is low-priority", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			high := func(name, queue string) func() {
				j := s.start(asked{name: name, queue: queue, priority: "master-pri", parts: []part{{rep: slots / 2, req: oneCPU, priority: "master-pri"}}})
				s.ready(j, slots/2)
				return func() { s.exactly(j, slots/2) }
			}
			a, b := high("a", "q1"), high("b", "q2")
			s.queue("q3", weight(1))
			c := s.start(asked{name: "c", queue: "q3", priority: "worker-pri", parts: []part{{rep: slots / 2, req: oneCPU, priority: "worker-pri"}}})
			s.waits(c)
			a()
			b()
		}),
		both("Reclaim E2E Test Reclaim Case 6: New queue with job created no reclaim when overused", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			s.queue("q3", weight(1))
			c := s.simple("c", "q3", slots, 1, oneCPU) // it holds more than a third of the 20 CPUs, of which two others want all
			s.ready(c, slots)
			a := s.simple("a", "q1", slots, 1, oneCPU)
			s.ready(a, 1)
			b := s.simple("b", "q2", slots, 1, oneCPU)
			s.ready(b, 1)
			s.exactly(c, slots-2)
			s.waits(s.simple("d", "q3", 1, 1, oneCPU))
			s.exactly(a, 1)
			s.exactly(b, 1)
			s.exactly(c, slots-2)
		}),
		both("Reclaim E2E Test Reclaim Case 7:  New queue with job created no reclaim when job not satisfied with predicates", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			a, b := s.elastic("a", "q1", slots/2), s.elastic("b", "q2", slots/2)
			s.queue("q3", weight(1))
			c := s.start(asked{name: "c", queue: "q3", parts: []part{{rep: 1, req: oneCPU, alter: func(t *corev1.PodTemplateSpec) {
				t.Spec.NodeSelector = map[string]string{"nobody": "has"}
			}}}})
			s.waits(c)
			a()
			b()
		}),
		both("Reclaim E2E Test Reclaim Case 8: New queue with job created no reclaim when task resources less than reclaimable resource", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			a, b := s.elastic("a", "q1", slots/2), s.elastic("b", "q2", slots/2)
			s.queue("q3", weight(1))
			c := s.start(asked{name: "c", queue: "q3", parts: []part{{rep: 1, req: amounts("cpu", "8")}}})
			s.waits(c)
			a()
			b()
		}),
		both("Reclaim E2E Test Reclaim Case 9:  New queue with job created, all queues.spec.reclaimable is false, no reclaim", "without preempt", func(s *stage) {
			s.queue("q1", kept())
			s.queue("q2", kept())
			a, b := s.elastic("a", "q1", slots/2), s.elastic("b", "q2", slots/2)
			s.queue("q3", kept())
			c := s.simple("c", "q3", 2, 1, oneCPU)
			s.waits(c)
			a()
			b()
		}),
		both("Reclaim E2E Test Reclaim Case 10: Multi reclaimed queue", "without preempt", func(s *stage) {
			for _, q := range []string{"q1", "q2", "q3"} {
				s.queue(q, weight(1))
			}
			a := s.simple("a", "q1", 5, 1, oneCPU)
			b := s.simple("b", "q2", 5, 1, oneCPU)
			c := s.simple("c", "q3", 6, 1, oneCPU)
			s.ready(a, 5)
			s.ready(b, 5)
			s.ready(c, 6)
			s.queue("q4", weight(1))
			d := s.simple("d", "q4", 3, 3, oneCPU)
			s.ready(d, 3)
			if n := s.of(a, works) + s.of(b, works) + s.of(c, works); n < slots-3 {
				s.t.Errorf("%d pods are left of the 13 that there is room for", n)
			}
		}),
		both("Reclaim E2E Test reclaim after a queue's weight was raised", "without preempt", func(s *stage) {
			s.queue("q1", weight(1))
			s.queue("q2", weight(1))
			a := s.simple("a", "q1", slots, 1, oneCPU)
			s.ready(a, slots)
			b := s.simple("b", "q2", slots, 1, oneCPU)
			s.ready(b, 1)
			q := &vcscheduling.Queue{}
			if err := s.client.Get(s.t.Context(), client.ObjectKey{Name: "q2"}, q); err != nil {
				s.t.Fatal(err)
			}
			q.Spec.Weight = 3
			if err := s.client.Update(s.t.Context(), q); err != nil {
				s.t.Fatal(err)
			}
			c := s.simple("c", "q2", 2, 2, oneCPU)
			s.ready(c, 2)
		}),
	} {
		specs = append(specs, more...)
	}
	return specs
}

// terminating is a PodGroup of n pods that have been asked to end and do not yet: it stays Running.
func (s *stage) terminating(n int32) {
	g := s.podGroup("leaving", func(g *vcscheduling.PodGroup) { g.Spec.MinMember = n })
	for i := range n {
		s.member(g, fmt.Sprintf("leaving-%d", i), "busybox", "trap '' TERM; while :; do sleep 1; done", oneCPU, func(p *corev1.Pod) {
			p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
		})
	}
	is := func() string {
		if now := s.groupNow("leaving"); now.Status.Phase != vcscheduling.PodGroupRunning {
			return fmt.Sprintf("the PodGroup is %+v", now.Status)
		}
		return ""
	}
	s.until(s.allRunning(s.ns, int(n)))
	s.until(is)
	for i := range n {
		s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("leaving-%d", i)}})
	}
	defer func() {
		for _, p := range s.pods(s.ns) {
			if err := s.client.Delete(s.t.Context(), p.DeepCopy(), client.GracePeriodSeconds(1)); err != nil {
				s.t.Error(err)
			}
		}
	}()
	// Another gang comes and starts: cycles have been decided meanwhile.
	other := s.simple("other", "", 2, 2, oneCPU)
	s.ready(other, 2)
	s.groupIs(other, vcscheduling.PodGroupRunning)
	if text := is(); text != "" {
		s.t.Error(text)
	}
}

// podGroup makes a PodGroup.
func (s *stage) podGroup(name string, change func(*vcscheduling.PodGroup)) *vcscheduling.PodGroup {
	s.t.Helper()
	g := &vcscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: vcscheduling.PodGroupSpec{MinMember: 1, Queue: vckeys.DefaultQueue}}
	if change != nil {
		change(g)
	}
	s.create(s.t, g)
	return g
}

// groupNow is a PodGroup as the API server has it.
func (s *stage) groupNow(name string) *vcscheduling.PodGroup {
	s.t.Helper()
	g := &vcscheduling.PodGroup{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: name}, g); err != nil {
		s.t.Fatal(err)
	}
	return g
}

// member makes a pod of a PodGroup; of none, if that is nil.
func (s *stage) member(g *vcscheduling.PodGroup, name, image, command string, req corev1.ResourceList, change func(*corev1.Pod)) {
	s.t.Helper()
	c := corev1.Container{Name: "main", Image: image, Resources: corev1.ResourceRequirements{Requests: req}}
	if command != "" {
		c.Command = []string{"sh", "-c", command}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name},
		Spec:       corev1.PodSpec{SchedulerName: vckeys.SchedulerName, Containers: []corev1.Container{c}, RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: ptr.To[int64](1)},
	}
	if g != nil {
		p.Annotations = map[string]string{vckeys.GroupName: g.Name}
	}
	if change != nil {
		change(p)
	}
	s.create(s.t, p)
}

// podPends waits until a pod says that it is not scheduled.
func (s *stage) podPends(name string) {
	s.t.Helper()
	s.until(func() string {
		for _, p := range s.pods(s.ns) {
			if p.Name == name && p.Spec.NodeName == "" && podCondition(&p, corev1.PodScheduled, corev1.ConditionFalse) {
				return ""
			}
		}
		return "pod " + name + " does not say that it waits"
	})
}

func podCondition(p *corev1.Pod, kind corev1.PodConditionType, status corev1.ConditionStatus) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == status
		}
	}
	return false
}

// nodesOf is how many pods of a Job are on each node.
func (s *stage) nodesOf(all ...client.Object) map[string]int {
	nodes := map[string]int{}
	for _, p := range s.pods(s.ns) {
		for _, j := range all {
			if p.Labels[vckeys.JobName] == j.GetName() && p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				nodes[p.Spec.NodeName]++
			}
		}
	}
	return nodes
}

// taint puts a taint on a node that nobody tolerates, or takes all off.
func (s *stage) taint(node string, on bool) {
	s.t.Helper()
	text := `{"spec": {"taints": null}}`
	if on {
		text = `{"spec": {"taints": [{"key": "test-taint-key", "value": "test", "effect": "NoSchedule"}]}}`
	}
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}
	if err := s.client.Patch(s.t.Context(), n, client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
		s.t.Fatal(err)
	}
}
