package roles

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	volcano "github.com/muster-scheduler/muster/api/volcano/keys"
)

// TestVolcanoFlags: the flags of Volcano's program are taken with Volcano's defaults (fact sheet, 0), and reach the controllers.
func TestVolcanoFlags(t *testing.T) {
	t.Parallel()
	run := Command("v")
	c, _, err := run.Find([]string{VolcanoControllers})
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"scheduler-name": "[volcano]", "kube-api-qps": "50", "kube-api-burst": "100", "worker-threads": "3", "worker-threads-for-queue": "5",
		"worker-threads-for-gc": "1", "worker-threads-for-cronjob": "3", "worker-threads-for-podgroup": "5", "inherit-owner-annotations": "true", "group-name-after": "1m0s", "max-requeue-num": "15", "controllers": "[*,-sharding-controller]", "listen-address": ":8081",
		"healthz-address": ":11251", "namespace": "volcano-system",
	} {
		if f := c.Flags().Lookup(flag); f == nil || f.DefValue != want || f.Hidden {
			t.Errorf("--%s: %+v, want the default %q", flag, f, want)
		}
	}
	s := parse(t, VolcanoControllers, "--scheduler-name=mine", "--scheduler-name=other", "--worker-threads=7", "--max-requeue-num=-1", "--worker-threads-for-queue=8",
		"--worker-threads-for-gc=9", "--worker-threads-for-cronjob=6", "--kube-api-qps=11", "--kube-api-burst=12", "--enable-healthz", "--inherit-owner-annotations=false", "--group-name-after=0", "--worker-threads-for-podgroup=4", "--feature-gates=A=true")
	if g := s.groupController(); g.Workers != 4 || g.NameAfter != 0 || g.InheritAnnotations || !slices.Equal(g.SchedulerNames, []string{"mine", "other"}) {
		t.Errorf("%+v", g)
	}
	if o := s.jobController(); o.SchedulerName != "mine" || o.Workers != 7 || o.MaxRequeue != -1 || s.QueueWorkers != 8 || s.CollectorWorkers != 9 || s.CronWorkers != 6 || s.Client.QPS != 11 || s.Client.Burst != 12 {
		t.Errorf("%+v, %+v", o, s)
	}
}

// TestVolcanoCommandLine: the role takes what the chart's Deployment gives it.
func TestVolcanoCommandLine(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../deploy/chart/e2e/testdata/everything.golden")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "        - run\n        - "+VolcanoControllers+"\n")
	if !found {
		t.Fatal("the chart has no Deployment of it")
	}
	var args []string
	for line := range strings.Lines(rest) {
		arg, ok := strings.CutPrefix(strings.TrimSpace(line), "- --")
		if !ok {
			break
		}
		args = append(args, "--"+arg)
	}
	if s, err := tryParse(VolcanoControllers, args...); err != nil || len(args) < 4 || s.Namespace != "volcano" || !s.LeaderElect || len(s.Controllers) != 2 {
		t.Errorf("%q: %+v, %v", args, s, err)
	}
}

// TestControllersFlag: which controllers run follows --controllers, and what it says that makes no sense is told.
func TestControllersFlag(t *testing.T) {
	t.Parallel()
	const jobs, queues, gc, groups, crons, flows, templates, hypers, shards = jobController, queueController, gcController, pgController, cronController, flowController, templateController, hyperNodeController, shardingController
	without := func(names ...string) string {
		all := slices.Sorted(slices.Values([]string{jobs, queues, gc, groups, crons, flows, templates, hypers, shards}))
		return strings.Join(slices.DeleteFunc(all, func(name string) bool { return slices.Contains(names, name) }), " ")
	}
	for said, want := range map[string]string{
		"*":                                     without(),
		"*,-sharding-controller":                without(shards),
		"*,-gc-controller":                      without(gc),
		"-gc-controller,*":                      without(gc),
		"-pg-controller,*":                      without(groups),
		"*,-hyperNode-controller":               without(hypers),
		"*,-jobflow-controller":                 without(flows),
		"*,-jobtemplate-controller":             without(templates),
		"*,-cronjob-controller":                 without(crons),
		"+job-controller,gc-controller":         gc + " " + jobs,
		"queue-controller,+sharding-controller": queues + " " + shards,
		"":                                      "leaves none to run",
		"-job-controller":                       "leaves none to run",
		"+sharding-controller":                  shards,
		"-sharding-controller":                  "leaves none to run",
		"*,-job-controler":                      `"-job-controler": there is no controller of the name; known: cronjob-controller, `,
		"*,-gc-controller,+gc-controller":       "gc-controller is both to run and not to run",
	} {
		s := parse(t, VolcanoControllers, "--controllers="+said)
		on, err := s.controllers()
		if err != nil {
			if !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--controllers: ") {
				t.Errorf("%q: %v, want %q", said, err, want)
			}
			continue
		}
		if got := strings.Join(slices.Sorted(maps.Keys(on)), " "); got != want {
			t.Errorf("%q: %s, want %s", said, got, want)
		}
	}
}

// TestVolcanoEndpoints: health and metrics are served where Volcano's flags say, and a port that is taken is told by the flag's name.
func TestVolcanoEndpoints(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	metrics, probes := fmt.Sprintf("127.0.0.1:%d", freePort(t)), fmt.Sprintf("127.0.0.1:%d", freePort(t))
	launch(t, VolcanoControllers, "--kubeconfig="+server.kubeconfig(), "--listen-address="+metrics, "--healthz-address="+probes)
	server.await("batch.volcano.sh/v1alpha1/jobs")
	for _, address := range []string{metrics, probes} {
		for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/readyz": 500} {
			if status, body := get(t, "http://"+address+path); status != want {
				t.Errorf("%s%s: %d %s", address, path, status, body)
			}
		}
	}
	for _, flag := range []string{"listen-address", volcanoProbeFlag} {
		args := []string{"--kubeconfig=" + newPlane(t, true).kubeconfig(), "--listen-address=0", "--healthz-address=0", "--" + flag + "=" + metrics}
		p, err := newProcess(roleNames(VolcanoControllers), parse(t, VolcanoControllers, args...), "v", logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.run(t.Context()); err == nil || !strings.Contains(err.Error(), "--"+flag+":") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestVolcanoLeads: the role has the Lease of Volcano's program, in Volcano's namespace wherever it runs, and begins when it holds it.
func TestVolcanoLeads(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, namespace string }{{"", "volcano-system"}, {"--namespace=elsewhere", "elsewhere"}} {
		server := newPlane(t, true)
		server.refuse = true
		args := []string{"--kubeconfig=" + server.kubeconfig(), "--listen-address=0", "--healthz-address=0", "--leader-elect"}
		if c.flag != "" {
			args = append(args, c.flag)
		}
		launch(t, VolcanoControllers, args...)
		server.await("namespaces/" + c.namespace + "/leases/vc-controller-manager")
		server.mu.Lock()
		if len(server.writes) > 0 {
			t.Errorf("it wrote without its Lease: %q", server.writes)
		}
		server.mu.Unlock()
	}
}

// TestVolcanoKinds: without Volcano's kinds the role says what to install, and needs none of KAI's; with them no other role asks for one of
// them.
func TestVolcanoKinds(t *testing.T) {
	t.Parallel()
	bare := newPlane(t, true)
	for gv := range bare.groups {
		if strings.HasSuffix(gv.Group, "volcano.sh") {
			delete(bare.groups, gv)
		}
	}
	quietly := []string{"--listen-address=0", "--healthz-address=0"}
	p, err := newProcess(roleNames(VolcanoControllers), parse(t, VolcanoControllers, append(quietly, "--kubeconfig="+bare.kubeconfig())...), "v", logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	err = p.run(t.Context())
	for _, want := range []string{"Job (batch.volcano.sh/v1alpha1)", "PodGroup (scheduling.volcano.sh/v1beta1)", "Queue", "Command", "api/volcano/crds"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	alone := newPlane(t, true)
	for gv := range alone.groups {
		if strings.HasSuffix(gv.Group, "run.ai") || strings.HasPrefix(gv.Group, "kai.") {
			delete(alone.groups, gv)
		}
	}
	launch(t, VolcanoControllers, append(quietly, "--kubeconfig="+alone.kubeconfig())...)
	alone.await("batch.volcano.sh/v1alpha1/jobs")

	both := newPlane(t, true)
	_, _, stop := launch(t, All, quiet(All, "--kubeconfig="+both.kubeconfig())...)
	both.await(begins(All))
	if err := stop(); err != nil {
		t.Error(err)
	}
	if both.asked("volcano.sh") {
		t.Error("a role of KAI's face asked for Volcano's kinds")
	}
}

// TestVolcanoTrim: of a pod the cache keeps what the controllers read; of Jobs, all.
func TestVolcanoTrim(t *testing.T) {
	t.Parallel()
	var o cache.Options
	(&Settings{SchedulerNames: []string{"volcano"}}).trimVolcano(&o)
	var trim func(any) (any, error)
	for kind, of := range o.ByObject { // order: there is one of pods
		if _, ok := kind.(*corev1.Pod); ok {
			trim = of.Transform
		}
	}
	ended := metav1.Now()
	room := corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", ManagedFields: []metav1.ManagedFieldsEntry{{}}, OwnerReferences: []metav1.OwnerReference{{Name: "j"}},
			Annotations: map[string]string{volcano.TaskSpec: "t", "mine": strings.Repeat("x", 1000)}, Labels: map[string]string{volcano.PartitionID: "1", "app": "x"},
		},
		Spec: corev1.PodSpec{NodeName: "n", SchedulerName: "volcano", PriorityClassName: "high", Containers: []corev1.Container{{Name: "c", Args: []string{"x"}, Resources: room}}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.0.0.1", HostIP: "10.0.0.2", Message: "x", ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", Image: "i", RestartCount: 2, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "x", FinishedAt: ended}},
		}}},
	}
	before := pod.DeepCopy()
	got, err := trim(pod)
	if err != nil {
		t.Fatal(err)
	}
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "a", Name: "p", UID: "u", ResourceVersion: "7", OwnerReferences: []metav1.OwnerReference{{Name: "j"}},
			Annotations: map[string]string{volcano.TaskSpec: "t"}, Labels: map[string]string{volcano.PartitionID: "1"},
		},
		Spec: corev1.PodSpec{NodeName: "n", SchedulerName: "volcano", PriorityClassName: "high", Containers: []corev1.Container{{Name: "c", Resources: room}}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.0.0.1", ContainerStatuses: []corev1.ContainerStatus{{
			Name: "c", RestartCount: 2, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, FinishedAt: ended}},
		}}},
	}
	if d := cmp.Diff(client.Object(want), got); d != "" {
		t.Errorf("kept (-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, pod); d != "" {
		t.Errorf("the object itself was changed, which others may read:\n%s", d)
	}
	foreign := pod.DeepCopy()
	foreign.Spec.SchedulerName, foreign.Status = "other", corev1.PodStatus{}
	if got, err := trim(foreign); err != nil || len(got.(*corev1.Pod).Spec.Containers) > 0 {
		t.Errorf("of another scheduler's pod: %+v, %v", got, err)
	}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{volcano.GroupMinMember: "2", "mine": "x"}, Labels: map[string]string{"app": "x"}},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3), ServiceName: "x"}, Status: appsv1.StatefulSetStatus{Replicas: 3, UpdateRevision: "r"},
	}
	kept := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "s", Annotations: map[string]string{volcano.GroupMinMember: "2"}, Labels: map[string]string{}},
		Spec:       appsv1.StatefulSetSpec{Replicas: ptr.To[int32](3)}, Status: appsv1.StatefulSetStatus{UpdateRevision: "r"},
	}
	if got, err := trim(set); err != nil || cmp.Diff(any(kept), got) != "" {
		t.Errorf("of a StatefulSet: %s, %v", cmp.Diff(any(kept), got), err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"rack": "1"}, Annotations: map[string]string{"mine": "x"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24"}, Status: corev1.NodeStatus{Phase: corev1.NodeRunning},
	}
	keptNode := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "u", ResourceVersion: "7", Labels: map[string]string{"rack": "1"}}}
	if got, err := trim(node); err != nil || cmp.Diff(any(keptNode), got) != "" {
		t.Errorf("of a node: %s, %v", cmp.Diff(any(keptNode), got), err)
	}
}
