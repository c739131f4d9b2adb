package install

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// pods are the pod templates of all workloads that a Config and the shard default lead to, by their containers' names, with what was
// warned of.
func pods(t *testing.T, notes map[string]string, spec kaiv1.ConfigSpec, args map[string]string) (map[string]*corev1.PodTemplateSpec, []Warning) {
	t.Helper()
	shard := kaiv1.SchedulingShard{ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: kaiv1.SchedulingShardSpec{Args: args}}
	env := testEnvironment()
	env.SchedulerFlags, env.Digests = nil, map[string]string{Program: "sha256:aa", NodeProgram: "sha256:bb"}
	objects, warnings, err := Render(&kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: notes}, Spec: spec}, []kaiv1.SchedulingShard{shard}, env)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*corev1.PodTemplateSpec{}
	for _, o := range objects {
		switch o := o.(type) {
		case *appsv1.Deployment:
			out[o.Spec.Template.Spec.Containers[0].Name] = &o.Spec.Template
		case *appsv1.DaemonSet:
			out[o.Spec.Template.Spec.Containers[0].Name] = &o.Spec.Template
		}
	}
	return out, warnings
}

// TestExtras: what the annotation says of a role reaches its pods, beside what all get and before what it leads to itself; what nobody can
// take is told, and hinders nothing else.
func TestExtras(t *testing.T) {
	t.Parallel()
	exporter := kaiv1.ConfigSpec{NUMAPlacementExporter: &kaiv1.NUMAPlacementExporter{Service: &kaiv1.Service{Enabled: ptr.To(true)}}}
	got, warnings := pods(t, map[string]string{AnnotationRoles: `{
		"all": {"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}, {"name": "GOGC", "value": "50"}], "podAnnotations": {"team": "x", "all": "y"}, "logLevel": "debug"},
		"scheduler": {"args": ["--detailed-fit-errors"], "podAnnotations": {"team": "z", "muster.dev/config-hash": "mine"}},
		"binder": {"args": ["--qps=7", "--leader-elect=false", "qps=8", "--metrics-bind-address=:1"], "env": [{"name": "A", "value": "3"}], "logLevel": "3"},
		"queue": {"logLevel": "loud"},
		"janitor": {}
	}`}, exporter, nil)
	if len(got) != 8 {
		t.Fatalf("%d workloads", len(got))
	}
	variable := func(role, name string) (out []string) {
		for _, v := range got[role].Spec.Containers[0].Env {
			if v.Name == name {
				out = append(out, v.Value)
			}
		}
		return out
	}
	for role, pod := range got {
		want := "2"
		if role == Binder {
			want = "3"
		}
		if a := variable(role, "A"); !slices.Equal(a, []string{want}) {
			t.Errorf("%s: A is %q, want %q once", role, a, want)
		}
		if pod.Annotations["all"] != "y" {
			t.Errorf("%s: annotations %v", role, pod.Annotations)
		}
	}
	if v := variable(Scheduler, "GOGC"); !slices.Equal(v, []string{"50"}) {
		t.Errorf("GOGC is %q: what is said replaces what the role has", v)
	}
	if a := got[Scheduler].Annotations; a["team"] != "z" || a[AnnotationConfig] == "mine" || a[AnnotationConfig] == "" {
		t.Errorf("annotations of the scheduler: %v", a)
	}
	for role, want := range map[string]string{
		Scheduler: "--v=1 --detailed-fit-errors", Binder: "--zap-log-level=3 --qps=7", PodGrouper: "--zap-log-level=debug", Exporter: "--zap-log-level=debug",
	} {
		if args := strings.Join(got[role].Spec.Containers[0].Args, " "); !strings.HasSuffix(args, " "+want) {
			t.Errorf("%s: %s, want %s at the end", role, args, want)
		}
	}
	if args := got[Queue].Spec.Containers[0].Args; slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--zap-log-level") }) {
		t.Errorf("the level loud has an effect: %q", args)
	}
	said := ""
	for _, w := range warnings {
		if w.Field != "metadata.annotations."+AnnotationRoles {
			t.Errorf("%s", w)
		}
		said += w.Rule + "\n"
	}
	for _, want := range []string{
		`names the role "janitor"`, `the argument "--leader-elect=false", which is left out: every replica elects`, `"--metrics-bind-address=:1", which is left out: Services`,
		`the argument "qps=8", which is left out: it is not of the form`, `of queue the level "loud"`,
	} {
		if !strings.Contains(said, want) {
			t.Errorf("nobody says %s; said is\n%s", want, said)
		}
	}
	if n := strings.Count(said, "\n"); n != 5 {
		t.Errorf("%d warnings:\n%s", n, said)
	}

	for text, want := range map[string]string{`{`: "has no effect", `{"binder": {"arguments": []}}`: `unknown field "arguments"`} {
		got, warnings := pods(t, map[string]string{AnnotationRoles: text}, kaiv1.ConfigSpec{}, nil)
		if len(warnings) != 1 || !strings.Contains(warnings[0].Rule, want) || len(got) != 7 {
			t.Errorf("%s: %v, %d workloads", text, warnings, len(got))
		}
	}
}

// TestShardsOwnLevelCounts: what a shard says of itself counts before what is said of all schedulers.
func TestShardsOwnLevelCounts(t *testing.T) {
	t.Parallel()
	got, _ := pods(t, map[string]string{AnnotationRoles: `{"scheduler": {"logLevel": "5"}}`}, kaiv1.ConfigSpec{}, map[string]string{"v": "2", "qps": "9"})
	args := got[Scheduler].Spec.Containers[0].Args
	if !slices.Contains(args, "--v=2") || slices.Contains(args, "--v=5") || !slices.Contains(args, "--qps=9") || slices.Contains(args, "--qps=-1") {
		t.Errorf("%q", args)
	}
}

// TestNobodyIsSlowedByDefault: no role limits its own calls, and none has a limit of CPU, unless Config says so.
func TestNobodyIsSlowedByDefault(t *testing.T) {
	t.Parallel()
	got, _ := pods(t, nil, kaiv1.ConfigSpec{}, nil)
	for role, pod := range got {
		c := pod.Spec.Containers[0]
		if limit, ok := c.Resources.Limits[corev1.ResourceCPU]; ok || !slices.Contains(c.Args, "--qps=-1") {
			t.Errorf("%s: limit of CPU %s, arguments %q", role, limit.String(), c.Args)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: %+v", role, c.Resources)
		}
	}
	list := func(cpu string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	got, _ = pods(t, nil, kaiv1.ConfigSpec{
		Binder: &kaiv1.Binder{Service: &kaiv1.Service{
			K8sClientConfig: &kaiv1.K8sClientConfig{QPS: ptr.To(20), Burst: ptr.To(100)}, Resources: &kaiv1.Resources{Limits: list("10m")},
		}},
		QueueController: &kaiv1.QueueController{Service: &kaiv1.Service{K8sClientConfig: &kaiv1.K8sClientConfig{Burst: ptr.To(100)}, Resources: &kaiv1.Resources{Requests: list("2")}}},
	}, nil)
	b, q := got[Binder].Spec.Containers[0], got[Queue].Spec.Containers[0]
	if !slices.Contains(b.Args, "--qps=20") || !slices.Contains(b.Args, "--burst=100") || slices.Contains(b.Args, "--qps=-1") || slices.Contains(q.Args, "--qps=-1") {
		t.Errorf("%q, %q", b.Args, q.Args)
	}
	if r := b.Resources; r.Limits.Cpu().String() != "10m" || r.Requests.Cpu().String() != "10m" {
		t.Errorf("a limit below the usual request lowers that: %+v", r)
	}
	if r := q.Resources; r.Requests.Cpu().String() != "2" || !r.Limits.Cpu().IsZero() {
		t.Errorf("%+v", r)
	}
}

// TestAdmissionIsTwo: pods wait for its answer, so that there are two of it on different nodes with a budget, unless Config says
// otherwise.
func TestAdmissionIsTwo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		global, own *int32
		want        int32
		budgets     int
	}{{nil, nil, 2, 1}, {ptr.To[int32](1), nil, 2, 1}, {ptr.To[int32](3), nil, 3, 1}, {ptr.To[int32](3), ptr.To[int32](1), 1, 0}} {
		objects, _, err := Render(&kaiv1.Config{Spec: kaiv1.ConfigSpec{Global: &kaiv1.GlobalConfig{ReplicaCount: c.global}, Admission: &kaiv1.Admission{Replicas: c.own}}}, nil, testEnvironment())
		if err != nil {
			t.Fatal(err)
		}
		budgets := 0
		for _, o := range objects {
			switch o := o.(type) {
			case *policyv1.PodDisruptionBudget:
				budgets++
			case *appsv1.Deployment:
				spread := o.Spec.Template.Spec.TopologySpreadConstraints
				if (len(spread) == 2) != (*o.Spec.Replicas > 1) {
					t.Errorf("%s, %d replicas: %v", o.Name, *o.Spec.Replicas, spread)
				}
				if o.Name == Name(Admission) && *o.Spec.Replicas != c.want {
					t.Errorf("%+v: %d replicas", c, *o.Spec.Replicas)
				}
			}
		}
		if budgets != c.budgets {
			t.Errorf("%+v: %d budgets", c, budgets)
		}
	}
}

// TestDigests: pods name our images by their digests, where the environment says them; a Config's own image has none of ours.
func TestDigests(t *testing.T) {
	t.Parallel()
	got, _ := pods(t, nil, kaiv1.ConfigSpec{
		NUMAPlacementExporter: &kaiv1.NUMAPlacementExporter{Service: &kaiv1.Service{Enabled: ptr.To(true)}},
		QueueController:       &kaiv1.QueueController{Service: &kaiv1.Service{Image: &kaiv1.Image{Tag: ptr.To("v2")}}},
	}, nil)
	for role, want := range map[string]string{
		Scheduler: "registry.example/muster/muster:v1@sha256:aa", Exporter: "registry.example/muster/muster-node:v1@sha256:bb", Queue: "registry.example/muster/muster:v2",
	} {
		if image := got[role].Spec.Containers[0].Image; image != want {
			t.Errorf("%s: %s, want %s", role, image, want)
		}
	}
	if args := got[Binder].Spec.Containers[0].Args; !slices.Contains(args, "--resource-reservation-pod-image=registry.example/muster/muster-node:v1@sha256:bb") {
		t.Errorf("%q", args)
	}
}

// TestOpenShiftChoosesUsers: no pod that the installation leads to names a user, but for the agent that reads the kubelet's socket.
func TestOpenShiftChoosesUsers(t *testing.T) {
	t.Parallel()
	got, _ := pods(t, nil, kaiv1.ConfigSpec{Global: &kaiv1.GlobalConfig{Openshift: ptr.To(true)}}, nil)
	if len(got) != 7 {
		t.Errorf("%d workloads", len(got))
	}
	for role, pod := range got {
		if c := pod.Spec.Containers[0]; pod.Spec.SecurityContext != nil || c.SecurityContext != nil {
			t.Errorf("%s: %+v, %+v", role, pod.Spec.SecurityContext, c.SecurityContext)
		}
	}
	for _, arg := range got[Binder].Spec.Containers[0].Args {
		if context, ok := strings.CutPrefix(arg, "--resource-reservation-container-security-context="); ok && (strings.Contains(context, "runAsUser") || !strings.Contains(context, "runAsNonRoot")) {
			t.Errorf("reservation pods: %s", context)
		}
	}
}
