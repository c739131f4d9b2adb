package migrate

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fakeAPI plays a cluster: it lists what it has by type.
type fakeAPI struct {
	objects   []client.Object
	forbidden string // list type that may not be read
}

func (t fakeAPI) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	if t.forbidden != "" && strings.Contains(fmt.Sprintf("%T", into), t.forbidden) {
		return apierrors.NewForbidden(schema.GroupResource{Resource: t.forbidden}, "", nil)
	}
	var found []runtime.Object
	u, loose := into.(*unstructured.UnstructuredList)
	for _, o := range t.objects {
		if loose {
			x, ok := o.(*unstructured.Unstructured)
			if ok && x.GetKind()+"List" == u.GetKind() {
				u.Items = append(u.Items, *x)
			}
			continue
		}
		if reflect.TypeOf(o).String()+"List" == reflect.TypeOf(into).String() {
			found = append(found, o)
		}
	}
	if loose {
		return nil
	}
	return meta.SetList(into, found)
}

func (t fakeAPI) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range t.objects {
		if o.GetName() != key.Name || o.GetNamespace() != key.Namespace || reflect.TypeOf(o) != reflect.TypeOf(into) {
			continue
		}
		if u, ok := into.(*unstructured.Unstructured); ok && o.(*unstructured.Unstructured).GetKind() != u.GetKind() {
			continue
		}
		reflect.ValueOf(into).Elem().Set(reflect.ValueOf(o).Elem())
		return nil
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// sound is a cluster in which nothing stands in the way.
func sound(t *testing.T) []client.Object {
	t.Helper()
	var out []client.Object
	for _, text := range crds.Documents() {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &u.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	for _, name := range []string{"train", "build-preemptible", "build", "inference"} {
		out = append(out, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	return append(out, &queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: queuev2.QueueSpec{Resources: &queuev2.QueueResources{}}})
}

func deployment(namespace, name, image string, ready int32, args ...string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To(ready), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image, Args: args}}}}},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: ready, Replicas: ready},
	}
}

// TestComponent: which Deployments are KAI's.
func TestComponent(t *testing.T) {
	t.Parallel()
	managed := func(d *appsv1.Deployment) *appsv1.Deployment {
		d.Labels = map[string]string{"app.kubernetes.io/managed-by": "kai-operator"}
		return d
	}
	for i, c := range []struct {
		d    *appsv1.Deployment
		want string
	}{
		{deployment("kai-scheduler", "kai-scheduler-default", "ghcr.io/kai-scheduler/kai-scheduler/scheduler:v0.17.0", 1), "scheduler"},
		{deployment("elsewhere", "whatever", "registry.example:5000/kai-scheduler/binder@sha256:0123", 1), "binder"},
		{deployment("kai-scheduler", "pod-grouper", "registry.example/mirror/a:1", 1), "podgrouper"},
		{deployment("elsewhere", "pod-grouper", "registry.example/mirror/a:1", 1), ""},
		{managed(deployment("elsewhere", "queue-controller", "registry.example/mirror/a:1", 1)), "queue controller"},
		{managed(deployment("elsewhere", "kai-scheduler-b", "registry.example/mirror/a:1", 1)), "scheduler"},
		{deployment("elsewhere", "kai-scheduler-x", "registry.example/mirror/a", 1, "--scheduler-conf=/etc/c", "--scheduler-name", "kai-scheduler"), "scheduler"},
		{deployment("elsewhere", "my-scheduler", "registry.example/mirror/a", 1, "--scheduler-conf=/etc/c", "--scheduler-name=mine"), ""},
		{deployment("kai-scheduler", "muster-scheduler-default", "registry.example/muster:v1", 1, "run", "scheduler"), ""},
		{deployment("kai-scheduler", "admission", "registry.example/kai-scheduler/muster:v1", 1, "run", "admission"), ""},
		{deployment("kai-scheduler", "operator", "registry.example/other/operator:v1", 1), ""},
		{deployment("default", "scheduler", "registry.example/shop/scheduler", 1), ""},
	} {
		if got := component(c.d); got != c.want {
			t.Errorf("%d, %s: got %q, want %q", i, c.d.Name, got, c.want)
		}
	}
}

// TestCheck: each thing that stands in the way, or is to be seen to, is found, with its level and what to do; and nothing else is.
func TestCheck(t *testing.T) {
	t.Parallel()
	held := func(name string, ago time.Duration) *coordinationv1.Lease {
		at := metav1.NewMicroTime(noon.Add(-ago))
		return &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kai-scheduler", Name: name},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: ptr.To("pod_1"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &at},
		}
	}
	hook := func(service string) *admissionregistrationv1.ValidatingWebhookConfiguration {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "validating-kai-admission"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{ClientConfig: admissionregistrationv1.WebhookClientConfig{
				Service: &admissionregistrationv1.ServiceReference{Namespace: "kai-scheduler", Name: service},
			}}},
		}
	}
	service := func(app string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kai-scheduler", Name: "admission"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": app}}}
	}
	shard := &unstructured.Unstructured{Object: map[string]any{
		"kind": "SchedulingShard", "metadata": map[string]any{"name": "default"}, "spec": map[string]any{"scenarioSearchBudgets": map[string]any{"maxJobSearchDuration": "1m"}},
	}}
	for _, c := range []struct {
		name string
		more []client.Object
		drop string // kinds of the sound cluster that are missing
		want []string
	}{
		{"nothing", nil, "", nil},
		{"KAI runs", []client.Object{deployment("kai-scheduler", "kai-scheduler-default", "r/kai-scheduler/scheduler:v0.17.0", 1), deployment("kai-scheduler", "kai-operator", "r/kai-scheduler/operator", 1)}, "", []string{
			"stop Deployment kai-scheduler/kai-scheduler-default: KAI's scheduler runs: 1 of its pods are ready [kubectl -n kai-scheduler scale deployment kai-operator --replicas=0 && kubectl -n kai-scheduler scale deployment kai-scheduler-default --replicas=0]",
			"stop Deployment kai-scheduler/kai-operator: KAI's operator runs: 1 of its pods are ready",
		}},
		{"KAI is stopped", []client.Object{deployment("kai-scheduler", "kai-scheduler-default", "r/kai-scheduler/scheduler", 0)}, "", nil},
		{"Muster runs", []client.Object{deployment("kai-scheduler", "muster-binder", "r/muster:v1", 1, "run", "binder")}, "", nil},
		{"leader", []client.Object{held("2ad35f9c.kai.scheduler", 10*time.Second), held("kai-scheduler-pool", time.Second), held("other", 0)}, "", []string{"stop Lease kai-scheduler/2ad35f9c.kai.scheduler: pod_1 leads as binder", "stop Lease kai-scheduler/kai-scheduler-pool: pod_1 leads as scheduler"}},
		{"former leader", []client.Object{held("2ad35f9c.kai.scheduler", 16*time.Second)}, "", nil},
		{"no definitions", nil, "CustomResourceDefinition", []string{"see CustomResourceDefinition configs.kai.scheduler: it is not installed"}},
		{"dead webhook", []client.Object{hook("admission")}, "", []string{"stop ValidatingWebhookConfiguration validating-kai-admission: it calls Service kai-scheduler/admission, which is gone"}},
		{"KAI's webhook", []client.Object{hook("admission"), service("admission")}, "", []string{"see ValidatingWebhookConfiguration validating-kai-admission: it calls KAI's Service"}},
		{"our webhook", []client.Object{hook("admission"), service("muster-admission")}, "", nil},
		{"no classes", nil, "PriorityClass", []string{"see PriorityClasses: train, build-preemptible, build, inference are missing"}},
		{"no queues", nil, "Queue", []string{"see Queues: there is none"}},
		{"broken queues", []client.Object{&queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: queuev2.QueueSpec{ParentQueue: "ghost"}}, &v2alpha2.PodGroup{Spec: v2alpha2.PodGroupSpec{Queue: "lost"}}}, "", []string{
			"see Queue x: spec.resources is not set", "see Queue x: its parent ghost does not exist", `see PodGroups: 1 are in queue "lost"`,
		}},
		{"ledger", []client.Object{shard}, "", []string{"differs SchedulingShard spec.scenarioSearchBudgets"}},
		{"fractions", []client.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: map[string]string{keys.GPUFractionAnnotation: "0.5"}}}}, "", []string{"differs decisions (single/allocate-fractional-gpu-011)", "differs gpu-sharing: Reservation pod lost: ", "differs KAI: "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			objects := slices.Clone(c.more)
			for _, o := range sound(t) {
				if kind := strings.TrimPrefix(fmt.Sprintf("%T %s", o, o.GetObjectKind().GroupVersionKind().Kind), "*"); c.drop == "" || !strings.HasSuffix(strings.TrimSpace(kind), c.drop) {
					objects = append(objects, o)
				}
			}
			r, err := Check(t.Context(), fakeAPI{objects: objects}, noon)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range r.Findings {
				got = append(got, fmt.Sprintf("%s %s: %s [%s]", f.Level, f.About, f.Text, f.Next))
			}
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, want) || strings.HasPrefix(s, want) }) {
					t.Errorf("not found: %s\nin\n%s", want, strings.Join(got, "\n"))
				}
			}
			stops := slices.ContainsFunc(c.want, func(s string) bool { return strings.HasPrefix(s, "stop ") })
			if r.Stops() != stops {
				t.Errorf("stands in the way: %v, want %v:\n%s", r.Stops(), stops, strings.Join(got, "\n"))
			}
			if see := slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Level != Differs }); see != slices.ContainsFunc(c.want, func(s string) bool { return !strings.HasPrefix(s, "differs") }) {
				t.Errorf("found besides: %s", strings.Join(got, "\n"))
			}
		})
	}
}

// TestForbidden: what may not be read is told, for then nobody knows.
func TestForbidden(t *testing.T) {
	t.Parallel()
	r, err := Check(t.Context(), fakeAPI{objects: sound(t), forbidden: "DeploymentList"}, noon)
	if err != nil || len(r.Findings) == 0 || !slices.ContainsFunc(r.Findings, func(f Finding) bool { return strings.Contains(f.Text, "may not read") }) || slices.Contains(r.Clear, "no Deployment of KAI's runs") {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestOlderDefinitions: a definition of another version of KAI is compared field by field.
func TestOlderDefinitions(t *testing.T) {
	t.Parallel()
	objects := sound(t)
	for _, o := range objects {
		u, ok := o.(*unstructured.Unstructured)
		if !ok || u.GetName() != "queues.scheduling.run.ai" {
			continue
		}
		list, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		v := list[len(list)-1].(map[string]any)
		unstructured.RemoveNestedField(v, "schema", "openAPIV3Schema", "properties", "spec", "properties", "preemptMinRuntime")
		if err := unstructured.SetNestedField(v, map[string]any{"type": "string"}, "schema", "openAPIV3Schema", "properties", "spec", "properties", "colour"); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(u.Object, list, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Check(t.Context(), fakeAPI{objects: objects}, noon)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%+v", r.Findings)
	if !strings.Contains(text, "does not know preemptMinRuntime") || !strings.Contains(text, "knows colour, which Muster does not") || r.Stops() {
		t.Error(text)
	}
}
