//go:build lab

package e2e

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// replicaSet has the stock scheduler place so many pods of a size.
func (s *stage) replicaSet(name string, n int32, req corev1.ResourceList) *appsv1.ReplicaSet {
	s.t.Helper()
	labels := map[string]string{"app": name}
	r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To[int64](1),
			Containers:                    []corev1.Container{{Name: name, Image: "nginx", Resources: corev1.ResourceRequirements{Requests: req}}},
		}},
	}}
	s.create(s.t, r)
	s.until(func() string {
		running := 0
		for _, p := range s.pods(s.ns) {
			if p.Labels["app"] == name && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		if running != int(n) {
			return fmt.Sprintf("%d of %d pods of ReplicaSet %s run", running, n, name)
		}
		return ""
	})
	return r
}

// onlyGroup waits until the namespace has one PodGroup, which is as asked.
func (s *stage) onlyGroup(what string, is func(*vcscheduling.PodGroup) bool) {
	s.t.Helper()
	s.until(func() string {
		all := list(s.fixture, &vcscheduling.PodGroupList{}, client.InNamespace(s.ns)).Items
		if len(all) != 1 || !is(&all[0]) {
			return fmt.Sprintf("there are %d PodGroups, want one, %s:%s", len(all), what, s.sayGroups(s.ns))
		}
		return ""
	})
}

func schedulingBaseSpecs() []volcanoSpec {
	const suite = "schedulingbase"
	kubeJob := func(s *stage, n int32, command string) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "kube"}, Spec: batchv1.JobSpec{
			Parallelism: &n, Completions: &n,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{SchedulerName: vckeys.SchedulerName, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
				{Name: "main", Image: "busybox", Command: []string{"sh", "-c", command}, Resources: corev1.ResourceRequirements{Requests: oneCPU}},
			}}},
		}}
		s.create(s.t, j)
		return j
	}
	return []volcanoSpec{
		{suite: suite, name: "Job E2E Test Gang scheduling", quick: true, run: func(s *stage) {
			r := s.replicaSet("rs-1", slots/2+1, oneCPU)
			j := s.simple("gang", "", slots/2, slots/2, oneCPU)
			s.waits(j)
			s.remove(r)
			s.ready(j, slots/2)
			s.groupIs(j, vcscheduling.PodGroupRunning)
		}},
		{suite: suite, name: "Job E2E Test Gang scheduling: Full Occupied", run: func(s *stage) {
			first := s.simple("first", "", slots, slots, oneCPU)
			s.ready(first, slots)
			second := s.simple("second", "", slots, slots, oneCPU)
			s.waits(second)
			s.exactly(first, slots)
			s.remove(first)
			s.ready(second, slots)
		}},
		{suite: suite, name: "Job E2E Test Gang scheduling: Contains both best-effort pod and non-best-effort pod", quick: true, run: func(s *stage) {
			j := s.start(asked{name: "mixed", parts: []part{{name: "best-effort", rep: 1}, {name: "asks", rep: 1, req: oneCPU}}})
			s.ready(j, 2)
		}},
		{suite: suite, name: "Job E2E Test Schedule BestEffort Job", run: func(s *stage) {
			j := s.start(asked{name: "best-effort", parts: []part{{rep: 4}}})
			s.ready(j, 4)
		}},
		{suite: suite, name: "Job E2E Test Schedule Job (one task)", run: func(s *stage) {
			j := s.simple("one", "", slots/2, 2, oneCPU)
			s.ready(j, slots/2)
		}},
		{suite: suite, name: "Job E2E Test Schedule Multiple Jobs", run: func(s *stage) {
			var all []*vcbatch.Job
			for _, name := range []string{"a", "b", "c"} {
				all = append(all, s.simple(name, "", 5, 2, oneCPU))
			}
			for _, j := range all {
				s.ready(j, 2)
			}
		}},
		{suite: suite, name: "Job E2E Test Statement", run: func(s *stage) {
			first := s.simple("first", "", slots/2+1, slots/2+1, oneCPU)
			s.ready(first, slots/2+1)
			large := s.simple("large", "", slots/2, slots/2, oneCPU)
			s.waits(large)
			small := s.simple("small", "", 2, 2, oneCPU)
			s.ready(small, 2)
			s.waits(large)
		}},
		{suite: suite, name: "Job E2E Test PodGroup's Count change with Deployment's Request change", run: func(s *stage) {
			labels := map[string]string{"app": "d"}
			d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "d"}, Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
					SchedulerName: vckeys.SchedulerName, TerminationGracePeriodSeconds: ptr.To[int64](1),
					Containers: []corev1.Container{{Name: "main", Image: "nginx", Resources: corev1.ResourceRequirements{Requests: halfCPU}}},
				}},
			}}
			s.create(s.t, d)
			s.until(s.allRunning(s.ns, 2))
			s.onlyGroup("Running", func(g *vcscheduling.PodGroup) bool {
				return g.Status.Phase == vcscheduling.PodGroupRunning && g.Status.Running == 2
			})
			if err := s.client.Patch(s.t.Context(), d, client.RawPatch("application/json-patch+json", []byte(`[{"op": "replace", "path": "/spec/template/spec/containers/0/resources/requests/cpu", "value": "1"}]`))); err != nil {
				s.t.Fatal(err)
			}
			s.onlyGroup("of the new request", func(g *vcscheduling.PodGroup) bool {
				return g.Spec.MinResources.Cpu().MilliValue() == 1000 && g.Status.Phase == vcscheduling.PodGroupRunning
			})
			s.until(s.allRunning(s.ns, 2))
		}},
		{suite: suite, name: "Job E2E Test PodGroup's Phase with Deployment: Running", run: func(s *stage) {
			g := s.podGroup("bare", func(g *vcscheduling.PodGroup) { g.Spec.MinMember = 2 })
			s.member(g, "bare-0", "nginx", "", oneCPU, nil)
			s.podPends("bare-0")
			s.member(g, "bare-1", "nginx", "", oneCPU, nil)
			s.until(s.allRunning(s.ns, 2))
			s.onlyGroup("Running", func(g *vcscheduling.PodGroup) bool {
				return g.Status.Phase == vcscheduling.PodGroupRunning && g.Status.Running == 2
			})
		}},
		{suite: suite, name: "Job E2E Test PodGroup's Phase should be Completed when Job fails", run: func(s *stage) {
			kubeJobFails := kubeJob(s, 1, "exit 1")
			if err := s.client.Patch(s.t.Context(), kubeJobFails, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"backoffLimit": 0}}`))); err != nil {
				s.t.Fatal(err)
			}
			s.onlyGroup("Completed", func(g *vcscheduling.PodGroup) bool {
				return g.Status.Phase == vcscheduling.PodGroupCompleted && g.Status.Failed >= 1
			})
		}},
		{suite: suite, name: "Job E2E Test PodGroup's Phase should be Completed when Job fails (a Job of Volcano's)", run: func(s *stage) {
			j := s.start(asked{name: "fails", parts: []part{{rep: 2, image: "busybox", command: "exit 1", restart: corev1.RestartPolicyNever, req: oneCPU}}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Failed)
		}},
		{suite: suite, name: "Job E2E Test PodGroup's Phase with k8s Job in Completed", quick: true, run: func(s *stage) {
			kubeJob(s, 2, "sleep 2")
			s.onlyGroup("Running", func(g *vcscheduling.PodGroup) bool { return g.Status.Phase != vcscheduling.PodGroupPending })
			s.onlyGroup("Completed", func(g *vcscheduling.PodGroup) bool {
				return g.Status.Phase == vcscheduling.PodGroupCompleted && g.Status.Succeeded == 2
			})
		}},
		{suite: suite, name: "Job E2E Test Schedule v1.Job type using Volcano scheduler", run: func(s *stage) {
			j := kubeJob(s, 8, "sleep 1")
			s.until(func() string {
				o := &batchv1.Job{}
				if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(j), o); err != nil {
					return err.Error()
				}
				if o.Status.Succeeded != 8 {
					return fmt.Sprintf("the Job is %+v", o.Status)
				}
				return ""
			})
		}},
		{suite: suite, name: "SLA Test sla permits job to be inqueue", run: func(s *stage) {
			full := s.simple("full", "", slots, slots, oneCPU)
			s.ready(full, slots)
			j := s.build(asked{name: "sla", parts: []part{{rep: slots / 2, req: oneCPU}}})
			j.Annotations = map[string]string{"sla-waiting-time": "3s"}
			s.create(s.t, j)
			s.groupIs(j, vcscheduling.PodGroupInqueue)
			s.until(func() string {
				if n := s.of(j, func(*corev1.Pod) bool { return true }); n != slots/2 {
					return fmt.Sprintf("%d of its pods are made", n)
				}
				return ""
			})
			s.remove(full)
			s.ready(j, slots/2)
		}},
		{suite: suite, name: "SLA Test sla adjusts job order", run: func(s *stage) {
			full := s.simple("full", "", slots, slots, oneCPU)
			s.ready(full, slots)
			plain := s.simple("plain", "", slots, slots, oneCPU)
			s.waits(plain)
			j := s.build(asked{name: "sla", parts: []part{{rep: slots, req: oneCPU}}})
			j.Annotations = map[string]string{"sla-waiting-time": "2s"}
			s.create(s.t, j)
			s.groupIs(j, vcscheduling.PodGroupInqueue)
			s.remove(full)
			s.ready(j, slots)
			s.exactly(plain, 0)
		}},
		{suite: suite, name: "DRF Test drf works", run: func(s *stage) {
			small := s.start(asked{name: "small", min: 1, parts: []part{{rep: slots * 2, min: 1, req: halfCPU}}})
			memory := s.start(asked{name: "memory", min: 1, parts: []part{{rep: slots * 2, min: 1, req: amounts("cpu", "500m", "memory", "512Mi")}}})
			s.ready(small, 1)
			s.ready(memory, 1)
			s.until(func() string {
				if n := s.of(small, works) + s.of(memory, works); n != slots*2 {
					return fmt.Sprintf("%d pods run", n)
				}
				return ""
			})
		}},
	}
}

// jobSequenceSpecs are the specs of what Jobs do when something goes wrong, and of job plugins.
func jobSequenceSpecs() []volcanoSpec {
	const suite = "jobseq"
	policy := func(action, event string) []vcbatch.LifecyclePolicy {
		return []vcbatch.LifecyclePolicy{{Action: vcAction(action), Event: vcEvent(event)}}
	}
	const failsLater = "sleep 3; exit 1"
	// evicted has a Job whose pod is deleted, and what it goes through then.
	evicted := func(action string, atTask bool, phases ...vcbatch.JobPhase) func(*stage) {
		return func(s *stage) {
			a := asked{name: "evicted", parts: []part{{name: "success", rep: 2, req: halfCPU}, {name: "delete", rep: 2, req: halfCPU}}}
			if atTask {
				a.parts[1].policies = policy(action, "PodEvicted")
			} else {
				a.policies = policy(action, "PodEvicted")
			}
			j := s.start(a)
			s.goes(j, vcbatch.Pending, vcbatch.Running)
			s.ready(j, 4)
			s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "evicted-delete-0"}})
			s.goes(j, phases...)
		}
	}
	failed := func(name, action string, phases ...vcbatch.JobPhase) volcanoSpec {
		return volcanoSpec{suite: suite, name: name, run: func(s *stage) {
			j := s.start(asked{name: "failed", policies: policy(action, "PodFailed"), parts: []part{
				{name: "success", rep: 2, req: halfCPU}, {name: "fail", rep: 2, image: "busybox", command: failsLater, restart: corev1.RestartPolicyNever, req: halfCPU},
			}})
			s.goes(j, append([]vcbatch.JobPhase{vcbatch.Pending, vcbatch.Running}, phases...)...)
		}}
	}
	const title = "Job Error Handling "
	specs := []volcanoSpec{
		failed(title+"job level LifecyclePolicy, Event: PodFailed; Action: AbortJob", "AbortJob", vcbatch.Aborting, vcbatch.Aborted),
		failed(title+"job level LifecyclePolicy, Event: PodFailed; Action: TerminateJob", "TerminateJob", vcbatch.Terminating, vcbatch.Terminated),
		failed(title+"job level LifecyclePolicy, Event: PodFailed; Action: RestartJob", "RestartJob", vcbatch.Restarting, vcbatch.Pending, vcbatch.Running),
		{suite: suite, name: title + "job level LifecyclePolicy, Event: PodEvicted; Action: RestartJob", run: evicted("RestartJob", false, vcbatch.Restarting, vcbatch.Pending, vcbatch.Running)},
		{suite: suite, name: title + "job level LifecyclePolicy, Event: PodEvicted; Action: TerminateJob", quick: true, run: evicted("TerminateJob", false, vcbatch.Terminating, vcbatch.Terminated)},
		{suite: suite, name: title + "job level LifecyclePolicy, Event: PodEvicted; Action: AbortJob", run: evicted("AbortJob", false, vcbatch.Aborting, vcbatch.Aborted)},
		{suite: suite, name: title + "Task level LifecyclePolicy, Event: PodEvicted; Action: RestartJob", run: evicted("RestartJob", true, vcbatch.Restarting, vcbatch.Pending, vcbatch.Running)},
		{suite: suite, name: title + "Task level LifecyclePolicy, Event: PodEvicted; Action: TerminateJob", run: evicted("TerminateJob", true, vcbatch.Terminating, vcbatch.Terminated)},
		{suite: suite, name: title + "Task level LifecyclePolicy, Event: PodFailed; Action: RestartJob", quick: true, run: func(s *stage) {
			j := s.start(asked{name: "failed", parts: []part{
				{name: "success", rep: 2, req: halfCPU},
				{name: "fail", rep: 2, image: "busybox", command: failsLater, restart: corev1.RestartPolicyNever, req: halfCPU, policies: policy("RestartJob", "PodFailed")},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Restarting, vcbatch.Pending, vcbatch.Running)
		}},
		{suite: suite, name: title + "job level LifecyclePolicy, Event: PodFailed; Action: AbortJob and Task level lifecyclePolicy, Event : PodFailed; Action: RestartJob", run: func(s *stage) {
			j := s.start(asked{name: "failed", policies: policy("AbortJob", "PodFailed"), parts: []part{
				{name: "success", rep: 1, req: halfCPU},
				{name: "fail", rep: 1, image: "busybox", command: failsLater, restart: corev1.RestartPolicyNever, req: halfCPU, policies: policy("RestartJob", "PodFailed")},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Restarting, vcbatch.Pending, vcbatch.Running)
		}},
		{suite: suite, name: title + "job level LifecyclePolicy, error code: 3; Action: RestartJob", run: func(s *stage) {
			j := s.start(asked{name: "code", policies: []vcbatch.LifecyclePolicy{{Action: vcAction("RestartJob"), ExitCode: ptr.To[int32](3)}}, parts: []part{
				{name: "success", rep: 2, req: halfCPU}, {name: "fail", rep: 2, image: "busybox", command: "sleep 3; exit 3", restart: corev1.RestartPolicyNever, req: halfCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Restarting, vcbatch.Pending, vcbatch.Running)
		}},
		{suite: suite, name: title + "job level LifecyclePolicy, Event[]: PodEvicted, PodFailed; Action: TerminateJob", run: func(s *stage) {
			j := s.start(asked{name: "events", policies: []vcbatch.LifecyclePolicy{{Action: vcAction("TerminateJob"), Events: vcEvents("PodEvicted", "PodFailed", "Unknown")}}, parts: []part{
				{name: "success", rep: 2, req: halfCPU}, {name: "fail", rep: 2, image: "busybox", command: failsLater, restart: corev1.RestartPolicyNever, req: halfCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Terminating, vcbatch.Terminated)
		}},
		{suite: suite, name: title + "job level LifecyclePolicy, Event: TaskCompleted; Action: CompletedJob", run: func(s *stage) {
			j := s.start(asked{name: "completed", policies: policy("CompleteJob", "TaskCompleted"), parts: []part{
				{name: "completed", rep: 2, image: "busybox", command: "sleep 3", restart: corev1.RestartPolicyNever, req: halfCPU}, {name: "runs", rep: 2, req: halfCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Completing, vcbatch.Completed)
		}},
		{suite: suite, name: title + "Task level LifecyclePolicy, Event: TaskCompleted; Action: CompletedJob", run: func(s *stage) {
			j := s.start(asked{name: "completed", parts: []part{
				{name: "completed", rep: 2, image: "busybox", command: "sleep 3", restart: corev1.RestartPolicyNever, req: halfCPU, policies: policy("CompleteJob", "TaskCompleted")},
				{name: "runs", rep: 2, req: halfCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Completing, vcbatch.Completed)
		}},
		{suite: suite, name: title + "job level LifecyclePolicy, Event: PodFailed, Action: RestartPod; Event PodEvicted, Action: TerminateJob, Timeout: 5m", run: func(s *stage) {
			j := s.start(asked{name: "restarts", policies: []vcbatch.LifecyclePolicy{
				{Action: vcAction("RestartPod"), Event: vcEvent("PodFailed")}, {Action: vcAction("TerminateJob"), Event: vcEvent("PodEvicted"), Timeout: ptr.To(vcbatch.Duration("5m"))},
			}, parts: []part{
				{name: "success", rep: 2, req: halfCPU}, {name: "fail", rep: 1, image: "busybox", command: failsLater, restart: corev1.RestartPolicyNever, req: halfCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Restarting, vcbatch.Pending, vcbatch.Running)
			s.ready(j, 2)
		}},
		{suite: suite, name: title + "Job error handling: Restart job when job is unschedulable", run: func(s *stage) {
			j := s.start(asked{name: "unschedulable", policies: policy("RestartJob", "Unknown"), min: 4, parts: []part{{name: "t", rep: 4, req: oneCPU}}})
			s.goes(j, vcbatch.Pending, vcbatch.Running)
			s.loseNodes(j)
			s.goes(j, vcbatch.Restarting)
			s.nodesBack()
			s.goes(j, vcbatch.Running)
			s.ready(j, 4)
		}},
		{suite: suite, name: title + "Job error handling: Abort job when job is unschedulable", run: func(s *stage) {
			j := s.start(asked{name: "unschedulable", policies: policy("AbortJob", "Unknown"), min: 4, parts: []part{{name: "t", rep: 4, req: oneCPU}}})
			s.goes(j, vcbatch.Pending, vcbatch.Running)
			s.loseNodes(j)
			defer s.nodesBack()
			s.goes(j, vcbatch.Aborting, vcbatch.Aborted)
		}},
		{suite: suite, name: title + "Task Priority", quick: true, run: func(s *stage) {
			r := s.replicaSet("rs", slots-2, oneCPU)
			j := s.start(asked{name: "priorities", min: 1, parts: []part{
				{name: "worker", rep: slots, min: 1, req: oneCPU, priority: "worker-pri"}, {name: "master", rep: 2, min: 1, req: oneCPU, priority: "master-pri"},
			}})
			s.until(func() string {
				n := s.of(j, func(p *corev1.Pod) bool { return works(p) && p.Labels[vckeys.TaskSpec] == "master" })
				if n != 2 {
					return fmt.Sprintf("%d of 2 pods of the higher priority run", n)
				}
				return ""
			})
			s.exactly(j, 2)
			s.remove(r)
			s.ready(j, slots)
		}},
		{suite: suite, name: "Job E2E Test: Test Job Plugins Test SVC Plugin with Node Affinity", run: func(s *stage) { s.plugin(map[string][]string{"svc": {}}, "svc", true) }},
		{suite: suite, name: "Job E2E Test: Test Job Plugins Test SSh Plugin with Pod Affinity", run: func(s *stage) { s.plugin(map[string][]string{"ssh": {}}, "ssh", true) }},
		{suite: suite, name: "Job E2E Test: Test Job Plugins Test SVC Plugin with disableNetworkPolicy", run: func(s *stage) {
			s.plugin(map[string][]string{"svc": {"--disable-network-policy=true"}}, "svc", false)
		}},
		{suite: suite, name: "Queue E2E Test Queue Command Close And Open With State Check", run: func(s *stage) {
			s.queue("queue1", weight(1))
			s.vcctl(s.t, "queue", "operate", "-n", "queue1", "-a", "close")
			s.queueIs("queue1", "Closed", func(q *vcscheduling.Queue) bool { return q.Status.State == vcscheduling.QueueStateClosed })
			s.vcctl(s.t, "queue", "operate", "-n", "queue1", "-a", "open")
			s.queueIs("queue1", "Open", func(q *vcscheduling.Queue) bool { return q.Status.State == vcscheduling.QueueStateOpen })
			j := s.simple("holds", "queue1", 1, 1, oneCPU)
			s.ready(j, 1)
			s.vcctl(s.t, "queue", "operate", "-n", "queue1", "-a", "close")
			s.queueIs("queue1", "Closing", func(q *vcscheduling.Queue) bool { return q.Status.State == vcscheduling.QueueStateClosing })
			s.remove(j)
			s.queueIs("queue1", "Closed", func(q *vcscheduling.Queue) bool { return q.Status.State == vcscheduling.QueueStateClosed })
			s.vcctl(s.t, "queue", "operate", "-n", "queue1", "-a", "open")
			s.queueIs("queue1", "Open", func(q *vcscheduling.Queue) bool { return q.Status.State == vcscheduling.QueueStateOpen })
		}},
		{suite: suite, name: "Queue Job Status Transition Transform from inqueue to running should succeed", run: func(s *stage) {
			s.queue("status", weight(1))
			j := s.simple("j", "status", 2, 2, oneCPU)
			s.groupIs(j, vcscheduling.PodGroupRunning)
			s.says(j, "two run", func(is *vcbatch.JobStatus) bool { return is.State.Phase == vcbatch.Running && is.Running == 2 })
		}},
		{suite: suite, name: "Queue Job Status Transition Transform from running to pending should succeed", run: func(s *stage) {
			s.queue("status", weight(1))
			j := s.start(asked{name: "j", queue: "status", min: 2, parts: []part{{name: "t", rep: slots, min: slots, req: oneCPU}}, alter: func(j *vcbatch.Job) { j.Spec.MinAvailable = slots }})
			s.groupIs(j, vcscheduling.PodGroupRunning)
			s.goes(j, vcbatch.Pending, vcbatch.Running)
			// Nodes are closed, and all pods of the Job are deleted: none can come back.
			s.cordon(true)
			defer s.cordon(false)
			for _, p := range s.pods(s.ns) {
				s.remove(p.DeepCopy())
			}
			s.groupIs(j, vcscheduling.PodGroupPending)
			s.goes(j, vcbatch.Pending)
		}},
	}
	return specs
}

// cordon closes the workers, or opens them.
func (s *stage) cordon(on bool) {
	s.t.Helper()
	for i := range 4 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("worker-%d", i)}}
		if err := s.client.Patch(s.t.Context(), n, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec": {"unschedulable": %t}}`, on))); err != nil {
			s.t.Fatal(err)
		}
	}
}

// loseNodes closes the workers and deletes a pod of a Job: its gang lacks a member that cannot come back.
func (s *stage) loseNodes(j *vcbatch.Job) {
	s.t.Helper()
	s.ready(j, 4)
	s.groupIs(j, vcscheduling.PodGroupRunning)
	s.cordon(true)
	s.remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: j.Name + "-t-0"}})
}

func (s *stage) nodesBack() {
	s.t.Helper()
	s.cordon(false)
}

// plugin runs a Job with a job plugin, and looks at what it made.
func (s *stage) plugin(plugins map[string][]string, name string, closed bool) {
	s.t.Helper()
	j := s.start(asked{name: "plugged", plugins: plugins, parts: []part{{name: "task1", rep: 1, req: halfCPU, alter: func(t *corev1.PodTemplateSpec) {
		t.Labels = map[string]string{"foo": "foo"}
		t.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{MatchLabels: t.Labels}, TopologyKey: corev1.LabelHostname}}}}
	}}, {name: "task2", rep: 1, req: halfCPU}}})
	s.ready(j, 2)
	if v := s.now(j).Status.ControlledResources["plugin-"+name]; v != name {
		s.t.Errorf("controlledResources says %q of %s", v, name)
	}
	var volume, object string
	switch name {
	case "svc":
		volume, object = "plugged-svc", "plugged-svc"
		if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: object}, &corev1.ConfigMap{}); err != nil {
			s.t.Error(err)
		}
		err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: j.Name}, networkPolicy())
		if closed != (err == nil) {
			s.t.Errorf("the NetworkPolicy: %v", err)
		}
	case "ssh":
		volume, object = "plugged-ssh", "plugged-ssh"
		if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: object}, &corev1.Secret{}); err != nil {
			s.t.Error(err)
		}
	}
	for _, p := range s.pods(s.ns) {
		if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume }) {
			s.t.Errorf("pod %s has no volume %s", p.Name, volume)
		}
	}
}
