//go:build lab

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

func vcAction(a string) vcbus.Action { return vcbus.Action(a) }

func vcEvent(e string) vcbus.Event { return vcbus.Event(e) }

func vcEvents(all ...string) (out []vcbus.Event) {
	for _, e := range all {
		out = append(out, vcbus.Event(e))
	}
	return out
}

func networkPolicy() client.Object { return &networkingv1.NetworkPolicy{} }

// partitions is a policy of so many partitions of a size, of which so many start together.
func partitions(total, size, least int32) *vcbatch.PartitionPolicySpec {
	return &vcbatch.PartitionPolicySpec{TotalPartitions: total, PartitionSize: size, MinPartitions: least}
}

func jobSpecs() []volcanoSpec {
	const suite = "jobp"
	scaled := func(s *stage, j *vcbatch.Job, n int32) {
		s.t.Helper()
		if err := s.update(j, func(j *vcbatch.Job) {
			j.Spec.MinAvailable, j.Spec.Tasks[0].Replicas, j.Spec.Tasks[0].MinAvailable = n, n, &n
		}); err != nil {
			s.t.Fatal(err)
		}
		s.exactly(j, int(n))
		if n > 0 {
			s.says(j, "all run", func(is *vcbatch.JobStatus) bool { return is.Running == n && is.State.Phase == vcbatch.Running })
		}
	}
	svc := map[string][]string{"svc": {}}
	specs := []volcanoSpec{
		{suite: suite, name: "Dynamic Job scale up and down Scale up", quick: true, run: func(s *stage) {
			j := s.start(asked{name: "scale", plugins: svc, parts: []part{{name: "default", rep: 2, req: halfCPU}}})
			s.ready(j, 2)
			scaled(s, j, 4)
			s.hosts(j, 4)
		}},
		{suite: suite, name: "Dynamic Job scale up and down Scale down", run: func(s *stage) {
			j := s.start(asked{name: "scale", plugins: svc, parts: []part{{name: "default", rep: 2, req: halfCPU}}})
			s.ready(j, 2)
			scaled(s, j, 1)
			s.hosts(j, 1)
		}},
		{suite: suite, name: "Dynamic Job scale up and down Scale down to zero and scale up", quick: true, run: func(s *stage) {
			j := s.start(asked{name: "scale", plugins: svc, parts: []part{{name: "default", rep: 2, req: halfCPU}}})
			s.ready(j, 2)
			scaled(s, j, 0)
			s.hosts(j, 0)
			scaled(s, j, 2)
			s.hosts(j, 2)
		}},
		{suite: suite, name: "Job E2E Test: Test Admission service Allow to create pod when podgroup is Pending", run: func(s *stage) {
			g := s.podGroup("pending", func(g *vcscheduling.PodGroup) {
				g.Spec.MinMember, g.Spec.MinResources = 1, ptr.To(amounts("cpu", "10000", "memory", "10000Gi"))
			})
			s.member(g, "pod", "nginx", "", oneCPU, nil)
			s.podPends("pod")
			if p := s.groupNow("pending").Status.Phase; p != vcscheduling.PodGroupPending {
				s.t.Errorf("the PodGroup is %s", p)
			}
		}},
		{suite: suite, name: "Job E2E Test: Test Admission service Create default-scheduler pod", run: func(s *stage) {
			s.member(nil, "pod", "nginx", "", oneCPU, func(p *corev1.Pod) { p.Spec.SchedulerName = "" })
			s.until(s.allRunning(s.ns, 1))
		}},
		{suite: suite, name: "Job E2E Test: Test Admission service Create volcano-scheduler pod", quick: true, run: func(s *stage) {
			s.member(nil, "pod", "nginx", "", oneCPU, nil)
			s.until(s.allRunning(s.ns, 1))
			s.onlyGroup("Running", func(g *vcscheduling.PodGroup) bool {
				return g.Status.Phase == vcscheduling.PodGroupRunning && g.Status.Running == 1
			})
		}},
		{suite: suite, name: "Job E2E Test: Test Admission service Can't create volcano pod when podgroup is Pending", run: func(s *stage) {
			j := s.simple("toolarge", "", 2, 2, amounts("cpu", "1000"))
			s.waits(j)
			s.groupIs(j, vcscheduling.PodGroupPending)
			if n := len(s.pods(s.ns)); n > 0 {
				s.t.Errorf("%d pods are made", n)
			}
		}},
		{suite: suite, name: "Job E2E Test: Test Job PVCs Generate PodGroup and valid minResource when creating job", run: func(s *stage) {
			both := amounts("cpu", "1000m", "memory", "1000Mi")
			j := s.start(asked{name: "valid", parts: []part{{name: "t1", rep: 1, req: both}, {name: "t2", rep: 1, req: both}}})
			s.until(func() string {
				g := s.group(j)
				if g == nil || g.Spec.MinResources == nil || g.Spec.MinResources.Cpu().MilliValue() != 2000 || g.Spec.MinResources.Memory().Value() != 2000<<20 {
					return "the PodGroup does not ask for the sum:" + s.sayGroups(s.ns)
				}
				return ""
			})
			if g := s.group(j); g.Spec.MinMember != 2 || g.Spec.MinTaskMember["t1"] != 1 || g.Spec.MinTaskMember["t2"] != 1 {
				s.t.Errorf("the PodGroup is %+v", g.Spec)
			}
			s.groupIs(j, vcscheduling.PodGroupRunning)
		}},
		{suite: suite, name: "Job E2E Test: Test Job PVCs use exisisting PVC in job", run: func(s *stage) {
			s.create(s.t, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", "1Gi")},
			}})
			j := s.start(asked{name: "claims", parts: []part{{rep: 1, req: oneCPU}}, alter: func(j *vcbatch.Job) {
				j.Spec.Volumes = []vcbatch.VolumeSpec{{MountPath: "/mountpath", VolumeClaimName: "claim"}}
			}})
			s.says(j, "the claim is known", func(is *vcbatch.JobStatus) bool { _, ok := is.ControlledResources["volume-pvc-claim"]; return ok })
			s.waits(j)
		}},
		{suite: suite, name: "Job Life Cycle Delete job that is pending state", run: func(s *stage) {
			j := s.simple("pending", "", 2, 2, amounts("cpu", "10000"))
			s.goes(j, vcbatch.Pending)
			s.groupIs(j, vcscheduling.PodGroupPending)
			s.remove(j)
			s.gone(j)
		}},
		{suite: suite, name: "Job Life Cycle Delete job that is Running state", run: func(s *stage) {
			j := s.simple("running", "", 2, 2, oneCPU)
			s.goes(j, vcbatch.Pending, vcbatch.Running)
			s.remove(j)
			s.gone(j)
		}},
		{suite: suite, name: "Job Life Cycle Delete job that is Completed state", run: func(s *stage) {
			j := s.start(asked{name: "completed", parts: []part{{rep: 2, image: "busybox", command: "sleep 1", restart: corev1.RestartPolicyNever, req: oneCPU}}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Completed)
			s.remove(j)
			s.gone(j)
		}},
		{suite: suite, name: "Job Life Cycle Delete job that is Failed job", run: func(s *stage) {
			j := s.start(asked{name: "failed", parts: []part{{rep: 2, image: "busybox", command: "sleep 1; exit 1", restart: corev1.RestartPolicyNever, req: oneCPU}}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Failed)
			s.remove(j)
			s.gone(j)
		}},
		{suite: suite, name: "Job Life Cycle Delete job that is terminated job", run: func(s *stage) {
			j := s.start(asked{name: "terminated", policies: []vcbatch.LifecyclePolicy{{Action: vcAction("TerminateJob"), Event: vcEvent("PodFailed")}}, parts: []part{
				{rep: 2, image: "busybox", command: "sleep 2; exit 1", restart: corev1.RestartPolicyNever, req: oneCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Terminating, vcbatch.Terminated)
			s.remove(j)
			s.gone(j)
		}},
		{suite: suite, name: "Job Life Cycle Checking Event Generation for job", run: func(s *stage) {
			j := s.start(asked{name: "tells", policies: []vcbatch.LifecyclePolicy{{Action: vcAction("TerminateJob"), Event: vcEvent("PodFailed")}}, parts: []part{
				{name: "t", rep: 2, image: "busybox", command: "sleep 2; exit 1", restart: corev1.RestartPolicyNever, req: oneCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Terminating, vcbatch.Terminated)
			s.event("Job", j.Name, "ExecuteAction", "TerminateJob")
		}},
		{suite: suite, name: "Job Life Cycle Checking Unschedulable Event Generation for job", run: func(s *stage) {
			full := s.simple("full", "", slots, slots, oneCPU)
			s.ready(full, slots)
			j := s.simple("unschedulable", "", 2, 2, oneCPU)
			s.waits(j)
			s.event("PodGroup", j.Name, "Unschedulable", "2/2 tasks in gang unschedulable")
			s.event("Job", j.Name, "PodGroupPending", "unschedulable")
		}},
		{suite: suite, name: "Job Life Cycle Unschedulable Event Generation for job (its PodGroup not admitted)", run: func(s *stage) {
			j := s.simple("unschedulable", "", 2, 2, amounts("cpu", "1000"))
			s.waits(j)
			s.event("PodGroup", j.Name, "Unschedulable", "tasks in gang unschedulable")
			s.event("Job", j.Name, "PodGroupPending", "unschedulable")
		}},
		{suite: suite, name: "PG E2E Test: Test PG controller Create volcano rc, pg controller process", run: func(s *stage) {
			rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "rc1"}, Spec: corev1.ReplicationControllerSpec{
				Replicas: ptr.To[int32](2), Selector: map[string]string{"app": "rc1"},
				Template: &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "rc1"}}, Spec: corev1.PodSpec{
					SchedulerName: vckeys.SchedulerName, Containers: []corev1.Container{{Name: "main", Image: "nginx"}}, TerminationGracePeriodSeconds: ptr.To[int64](1),
				}},
			}}
			s.create(s.t, rc)
			s.until(s.allRunning(s.ns, 2))
			s.onlyGroup("of the ReplicationController", func(g *vcscheduling.PodGroup) bool {
				return len(g.OwnerReferences) == 1 && g.OwnerReferences[0].Kind == "ReplicationController" && g.Name == "podgroup-"+string(rc.UID)
			})
		}},
		{suite: suite, name: "Test job restart Retain failed pod on last Retry", run: func(s *stage) {
			j := s.start(asked{name: "retain", policies: []vcbatch.LifecyclePolicy{{Action: vcAction("RestartJob"), Event: vcEvent("PodFailed")}}, parts: []part{
				{name: "running", rep: 1, req: halfCPU}, {name: "fail", rep: 1, image: "busybox", command: "sleep 1; exit 1", restart: corev1.RestartPolicyNever, req: halfCPU},
			}})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Restarting, vcbatch.Failed)
			s.until(func() string {
				if n := s.of(j, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed }); n != 1 {
					return fmt.Sprintf("%d pods that failed are kept", n)
				}
				return ""
			})
		}},
		{suite: suite, name: "Test job min success", run: func(s *stage) {
			j := s.start(asked{name: "success", min: 2, parts: []part{
				{name: "ends", rep: 2, image: "busybox", command: "sleep 2", restart: corev1.RestartPolicyNever, req: halfCPU}, {name: "runs", rep: 1, req: halfCPU},
			}, alter: func(j *vcbatch.Job) { j.Spec.MinSuccess = ptr.To[int32](2) }})
			s.goes(j, vcbatch.Pending, vcbatch.Running, vcbatch.Completed)
		}},
		{suite: suite, name: "Job E2E Test: Test Admission service job validate check: create job with non-leaf queue", run: func(s *stage) {
			s.queue("above", weight(1))
			s.queue("below", vcscheduling.QueueSpec{Weight: 1, Parent: "above"})
			j := s.build(asked{name: "denied", queue: "above", parts: []part{{rep: 1, req: halfCPU}}})
			if err := s.client.Create(s.t.Context(), j); err == nil || !strings.Contains(err.Error(), "spec.queue") {
				s.t.Errorf("a Job in a queue with a queue below it: %v", err)
			}
			s.ready(s.simple("taken", "below", 1, 1, halfCPU), 1)
		}},
		{suite: suite, name: "Job E2E Test: Test Admission service queue check: open queue can be deleted", run: func(s *stage) {
			s.queue("deleted", weight(1))
			s.remove(&vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "deleted"}})
		}},
	}
	deny := func(name, want string, change func(*vcbatch.Job)) {
		specs = append(specs, volcanoSpec{suite: suite, name: "Job E2E Test: Test Admission service " + name, run: func(s *stage) {
			j := s.build(asked{name: "denied", parts: []part{{name: "t", rep: 2, req: halfCPU}, {name: "u", rep: 2, req: halfCPU}}})
			change(j)
			err := s.client.Create(s.t.Context(), j)
			if err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
				s.t.Errorf("it is answered with %v, want %q", err, want)
			}
		}})
	}
	both := func(a, b vcbatch.LifecyclePolicy) func(*vcbatch.Job) {
		return func(j *vcbatch.Job) { j.Spec.Policies = []vcbatch.LifecyclePolicy{a, b} }
	}
	p := func(action, event string) vcbatch.LifecyclePolicy {
		return vcbatch.LifecyclePolicy{Action: vcAction(action), Event: vcEvent(event)}
	}
	deny("job validate check: both any event and other events exist when create", "policies", both(p("AbortJob", "*"), p("RestartJob", "PodFailed")))
	deny("job validate check: duplicate job policy event when create", "Duplicate", both(p("AbortJob", "PodFailed"), p("RestartJob", "PodFailed")))
	deny("job validate check: duplicate task name check when create", "Duplicate", func(j *vcbatch.Job) { j.Spec.Tasks[1].Name = "t" })
	deny("job validate check: duplicate mount volume when create", "Duplicate", func(j *vcbatch.Job) {
		claim := &corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", "1Gi")}}
		j.Spec.Volumes = []vcbatch.VolumeSpec{{MountPath: "/var", VolumeClaim: claim}, {MountPath: "/var", VolumeClaim: claim}}
	})
	deny("job validate check: illegal maxRetry when create", "maxRetry", func(j *vcbatch.Job) { j.Spec.MaxRetry = -1 })
	deny("job validate check: illegal replicas when create", "replicas", func(j *vcbatch.Job) { j.Spec.Tasks[0].Replicas = -1 })
	deny("job validate check: illegal task name when create", "name", func(j *vcbatch.Job) { j.Spec.Tasks[0].Name = "Task-1" })
	deny("job validate check: illegal ttl when create", "ttlSecondsAfterFinished", func(j *vcbatch.Job) { j.Spec.TTLSecondsAfterFinished = ptr.To[int32](-1) })
	deny("job validate check: invalid action when create", "action", func(j *vcbatch.Job) { j.Spec.Policies = []vcbatch.LifecyclePolicy{p("someFakeAction", "PodFailed")} })
	deny("job validate check: invalid policy event when create", "event", func(j *vcbatch.Job) { j.Spec.Policies = []vcbatch.LifecyclePolicy{p("AbortJob", "someFakeEvent")} })
	deny("job validate check: invalid queue when create", "queue", func(j *vcbatch.Job) { j.Spec.Queue = "jobqueue" })
	deny("job validate check: create job with root queue", "root", func(j *vcbatch.Job) { j.Spec.Queue = "root" })
	deny("job validate check: minAvailable larger than replicas when create", "minAvailable", func(j *vcbatch.Job) { j.Spec.MinAvailable = 5 })
	deny("job validate check: no task spec when create", "tasks", func(j *vcbatch.Job) { j.Spec.Tasks, j.Spec.MinAvailable = []vcbatch.TaskSpec{}, 0 })
	deny("job validate check: policy event and exit code both nil when create", "policies", func(j *vcbatch.Job) { j.Spec.Policies = []vcbatch.LifecyclePolicy{{Action: vcAction("AbortJob")}} })
	deny("job validate check: zero exitCode when create", "exitCode", func(j *vcbatch.Job) {
		j.Spec.Policies = []vcbatch.LifecyclePolicy{{Action: vcAction("AbortJob"), ExitCode: ptr.To[int32](0)}}
	})
	deny("job validate check: create job with privileged container", "", func(j *vcbatch.Job) {
		j.Spec.Tasks[0].Template.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	})
	deny("Invalid CPU unit", "cpu", func(j *vcbatch.Job) {
		j.Spec.Tasks[0].Template.Spec.Containers[0].Resources.Requests = amounts("cpu", "-1")
	})
	return specs
}

// hosts waits until the ConfigMap of the plugin svc names so many hosts.
func (s *stage) hosts(j *vcbatch.Job, n int) {
	s.t.Helper()
	s.until(func() string {
		m := &corev1.ConfigMap{}
		if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: j.Name + "-svc"}, m); err != nil {
			return err.Error()
		}
		if have := len(strings.Fields(m.Data["default.host"])); have != n {
			return fmt.Sprintf("%d hosts are named in %q, want %d", have, m.Data["default.host"], n)
		}
		return ""
	})
}

// otherSpecs are those of vcctl, of CronJobs, of many objects at once, and of scheduling gates.
func otherSpecs() []volcanoSpec {
	help := func(name string, args ...string) volcanoSpec {
		return volcanoSpec{suite: "vcctl", name: "Test Help option of vcctl cli " + name, run: func(s *stage) {
			cmd := exec.CommandContext(s.t.Context(), os.Getenv(binaryEnv), args...)
			cmd.Args[0] = "vcctl"
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Usage:") {
				s.t.Errorf("%v; it says\n%s", err, out)
			}
		}}
	}
	cron := func(s *stage, name, schedule, command string, change func(*vcbatch.CronJobSpec)) *vcbatch.CronJob {
		j := s.build(asked{parts: []part{{name: "t", rep: 1, image: "busybox", command: command, restart: corev1.RestartPolicyNever}}})
		c := &vcbatch.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}, Spec: vcbatch.CronJobSpec{Schedule: schedule, JobTemplate: vcbatch.JobTemplateSpec{Spec: j.Spec}}}
		change(&c.Spec)
		s.create(s.t, c)
		return c
	}
	cronNow := func(s *stage, c *vcbatch.CronJob) *vcbatch.CronJob {
		o := &vcbatch.CronJob{}
		if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(c), o); err != nil {
			s.t.Fatal(err)
		}
		return o
	}
	// kept waits until a CronJob that keeps one Job that ended so has kept a later one than the first.
	kept := func(s *stage, c *vcbatch.CronJob, as vcbatch.JobPhase) {
		ended := func() (names []string) {
			for _, j := range list(s.fixture, &vcbatch.JobList{}, client.InNamespace(s.ns)).Items {
				if j.Status.State.Phase == as {
					names = append(names, j.Name)
				}
			}
			return names
		}
		first := ""
		s.minute(func() string {
			if all := ended(); len(all) > 0 {
				first = all[0]
				return ""
			}
			return fmt.Sprintf("no Job of CronJob %s is %s", c.Name, as)
		})
		s.minute(func() string {
			if all := ended(); len(all) != 1 || all[0] == first {
				return fmt.Sprintf("of CronJob %s are %s: %v; one is to be kept, and not %s", c.Name, as, all, first)
			}
			return ""
		})
	}
	many := func(s *stage, n int, kind client.ObjectList, make func(int) client.Object) []client.Object {
		var all []client.Object
		for i := range n {
			o := make(i)
			s.create(s.t, o)
			all = append(all, o)
		}
		if err := s.client.List(s.t.Context(), kind); err != nil {
			s.t.Fatal(err)
		}
		if have := meta.LenList(kind); have < n {
			s.t.Errorf("%d of %d are listed", have, n)
		}
		return all
	}
	queues := func(s *stage) []client.Object {
		all := many(s, 50, &vcscheduling.QueueList{}, func(i int) client.Object {
			return &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("stress-%d", i)}, Spec: weight(1)}
		})
		for _, q := range all {
			s.queueIs(q.GetName(), "Open", func(q *vcscheduling.Queue) bool { return q.Status.State == vcscheduling.QueueStateOpen })
		}
		return all
	}
	groups := func(s *stage) []client.Object {
		return many(s, 50, &vcscheduling.PodGroupList{}, func(i int) client.Object {
			return &vcscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("stress-%d", i)}, Spec: vcscheduling.PodGroupSpec{MinMember: 1}}
		})
	}
	const gates = "Scheduling Gates E2E Test "
	return []volcanoSpec{
		help("Command: vcctl --help", "--help"),
		help("Command: vcctl job --help", "job", "--help"),
		help("Command: vcctl job list --help", "job", "list", "--help"),
		help("vcctl job resume -n {$JobName} --help", "job", "resume", "-n", "j", "--help"),
		help("vcctl job run --help", "job", "run", "--help"),
		{suite: "vcctl", name: "Job E2E Test: Test Job Command Suspend running job&Resume aborted job", quick: true, run: func(s *stage) {
			j := s.simple("held", "", 1, 1, oneCPU)
			s.goes(j, vcbatch.Pending, vcbatch.Running)
			s.vcctl(s.t, "job", "suspend", "-N", j.Name, "-n", s.ns)
			s.goes(j, vcbatch.Aborting, vcbatch.Aborted)
			s.vcctl(s.t, "job", "resume", "-N", j.Name, "-n", s.ns)
			s.goes(j, vcbatch.Restarting, vcbatch.Pending, vcbatch.Running)
		}},
		{suite: "vcctl", name: "Job E2E Test: Test Job Command Suspend pending job", run: func(s *stage) {
			j := s.simple("held", "", slots*2, slots*2, oneCPU)
			s.goes(j, vcbatch.Pending)
			s.groupIs(j, vcscheduling.PodGroupPending)
			s.vcctl(s.t, "job", "suspend", "-N", j.Name, "-n", s.ns)
			s.goes(j, vcbatch.Aborting, vcbatch.Aborted)
		}},
		{suite: "vcctl", name: "Job E2E Test: Test Job Command List running jobs", run: func(s *stage) {
			s.ready(s.simple("listed", "", 1, 1, oneCPU), 1)
			if out := s.vcctl(s.t, "job", "list", "-n", s.ns); !strings.Contains(out, "listed") {
				s.t.Errorf("it says\n%s", out)
			}
		}},
		{suite: "cronjob", name: "CronJob E2E Test Create and schedule basic cronjob", run: func(s *stage) {
			c := cron(s, "basic", "* * * * *", "sleep 1", func(*vcbatch.CronJobSpec) {})
			s.minute(func() string {
				if cronNow(s, c).Status.LastScheduleTime == nil {
					return "the CronJob has made no Job"
				}
				return ""
			})
			s.minute(func() string {
				if cronNow(s, c).Status.LastSuccessfulTime == nil {
					return "no Job of the CronJob has ended well"
				}
				return ""
			})
		}},
		{suite: "cronjob", name: "CronJob E2E Test CronJob with suspend functionality", run: func(s *stage) {
			c := cron(s, "suspended", "* * * * *", "sleep 1", func(c *vcbatch.CronJobSpec) { c.Suspend = ptr.To(true) })
			other := cron(s, "other", "* * * * *", "sleep 1", func(*vcbatch.CronJobSpec) {})
			s.minute(func() string {
				if cronNow(s, other).Status.LastScheduleTime == nil {
					return "the CronJob has made no Job"
				}
				return ""
			})
			if now := cronNow(s, c); now.Status.LastScheduleTime != nil || len(now.Status.Active) > 0 {
				s.t.Errorf("a CronJob that is suspended has made a Job: %+v", now.Status)
			}
		}},
		{suite: "cronjob", name: "CronJob E2E Test CronJob with replace concurrency", run: func(s *stage) {
			c := cron(s, "replaced", "* * * * *", "sleep 300", func(c *vcbatch.CronJobSpec) { c.ConcurrencyPolicy = vcbatch.ReplaceConcurrent })
			first := ""
			s.minute(func() string {
				if now := cronNow(s, c); len(now.Status.Active) == 1 {
					first = now.Status.Active[0].Name
					return ""
				}
				return "the CronJob has no Job"
			})
			s.minute(func() string {
				if now := cronNow(s, c); len(now.Status.Active) != 1 || now.Status.Active[0].Name == first {
					return fmt.Sprintf("the Job is not replaced: %+v", now.Status)
				}
				return ""
			})
		}},
		{suite: "cronjob", name: "CronJob E2E Test remove finished job from cronjob active", run: func(s *stage) {
			c := cron(s, "finished", "* * * * *", "sleep 3", func(*vcbatch.CronJobSpec) {})
			s.minute(func() string {
				if len(cronNow(s, c).Status.Active) != 1 {
					return "the CronJob has no Job"
				}
				return ""
			})
			s.minute(func() string {
				if len(cronNow(s, c).Status.Active) != 0 {
					return "the Job is not over"
				}
				return ""
			})
		}},
		{suite: "cronjob", name: "CronJob E2E Test delete finished and suc jobs with limit", run: func(s *stage) {
			kept(s, cron(s, "limited", "* * * * *", "exit 0", func(c *vcbatch.CronJobSpec) { c.SuccessfulJobsHistoryLimit = ptr.To[int32](1) }), vcbatch.Completed)
		}},
		{suite: "cronjob", name: "CronJob E2E Test delete finished and fail jobs with limit", run: func(s *stage) {
			kept(s, cron(s, "limited", "* * * * *", "exit 1", func(c *vcbatch.CronJobSpec) { c.FailedJobsHistoryLimit = ptr.To[int32](1) }), vcbatch.Failed)
		}},
		{suite: "cronjob", name: "CronJob E2E Test many miss schedule", run: func(s *stage) {
			c := cron(s, "missed", "* * * * *", "sleep 1", func(c *vcbatch.CronJobSpec) { c.Suspend = ptr.To(true) })
			was := c.DeepCopy()
			c.Status.LastScheduleTime = &metav1.Time{Time: time.Now().Add(-4 * time.Hour)}
			if err := s.client.Status().Patch(s.t.Context(), c, client.MergeFrom(was)); err != nil {
				s.t.Fatal(err)
			}
			was = c.DeepCopy()
			c.Spec.Suspend = ptr.To(false)
			if err := s.client.Patch(s.t.Context(), c, client.MergeFrom(was)); err != nil {
				s.t.Fatal(err)
			}
			s.event("CronJob", c.Name, "TooManyMissedTimes", "have been due since")
			s.minute(func() string {
				if at := cronNow(s, c).Status.LastScheduleTime; at == nil || time.Since(at.Time) > time.Hour {
					return "the latest of the times that were missed has made no Job"
				}
				return ""
			})
		}},
		{suite: "stress", name: "[Stress] Queue Test [Sequential] with specific number of stress should create multiple queues successfully", run: func(s *stage) { s.remove(queues(s)...) }},
		{suite: "stress", name: "[Stress] Queue Test [Sequential] with specific number of stress should delete multiple queues successfully", run: func(s *stage) {
			s.remove(queues(s)...)
			s.until(func() string {
				for _, q := range list(s.fixture, &vcscheduling.QueueList{}).Items {
					if strings.HasPrefix(q.Name, "stress-") {
						return "queue " + q.Name + " is left"
					}
				}
				return ""
			})
		}},
		{suite: "stress", name: "[Stress] Pod Group Test [Sequential] with specific number of stress should delete multiple pod groups successfully", run: func(s *stage) {
			s.remove(groups(s)...)
			s.until(func() string {
				if n := len(list(s.fixture, &vcscheduling.PodGroupList{}, client.InNamespace(s.ns)).Items); n > 0 {
					return fmt.Sprintf("%d PodGroups are left", n)
				}
				return ""
			})
		}},
		{suite: "schedulinggates", name: gates + "Multiple scheduling gates: scheduler skips until only Volcano gate remains, then removes it", run: func(s *stage) {
			const foreign = "example.com/hold"
			s.member(nil, "gated", "nginx", "", oneCPU, func(p *corev1.Pod) {
				p.Annotations = map[string]string{vckeys.QueueAllocationGate: "true"}
				p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: foreign}, {Name: vckeys.QueueAllocationGate}}
			})
			other := s.simple("other", "", 1, 1, oneCPU)
			s.ready(other, 1)
			p := &corev1.Pod{}
			if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: s.ns, Name: "gated"}, p); err != nil {
				s.t.Fatal(err)
			}
			if len(p.Spec.SchedulingGates) != 2 {
				s.t.Errorf("the gates are %v", p.Spec.SchedulingGates)
			}
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: vckeys.QueueAllocationGate}}
			if err := s.client.Update(s.t.Context(), p); err != nil {
				s.t.Fatal(err)
			}
			s.until(s.allRunning(s.ns, 2))
		}},
	}
}

// minute waits for what comes at the next full minute.
func (s *stage) minute(lacking func() string) {
	s.t.Helper()
	s.must(s.t, guard, lacking)
}
