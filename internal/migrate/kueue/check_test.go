package kueue

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kai/keys"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/migrate"
)

// fakeAPI plays a cluster: it serves the versions of Kueue's kinds that it is told, and has the objects.
type fakeAPI struct {
	served    []string // VERSION/KIND
	objects   []client.Object
	forbidden string // list type or kind that may not be read
}

func (t fakeAPI) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	u, loose := into.(*unstructured.UnstructuredList)
	if !loose {
		if t.forbidden != "" && strings.Contains(reflect.TypeOf(into).String(), t.forbidden) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: t.forbidden}, "", nil)
		}
		var found []runtime.Object
		for _, o := range t.objects {
			if reflect.TypeOf(o).String()+"List" == reflect.TypeOf(into).String() {
				found = append(found, o)
			}
		}
		return meta.SetList(into, found)
	}
	gvk := u.GroupVersionKind()
	if gvk.Kind+"" == t.forbidden+"List" {
		return apierrors.NewForbidden(schema.GroupResource{Resource: t.forbidden}, "", nil)
	}
	if gvk.Group == Group && !slices.Contains(t.served, gvk.Version+"/"+strings.TrimSuffix(gvk.Kind, "List")) {
		return &meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}}
	}
	for _, o := range t.objects {
		if x, ok := o.(*unstructured.Unstructured); ok && x.GetKind()+"List" == gvk.Kind {
			u.Items = append(u.Items, *x.DeepCopy())
		}
	}
	return nil
}

func (t fakeAPI) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	for _, o := range t.objects {
		if x, ok := o.(*unstructured.Unstructured); ok && x.GetName() == key.Name && x.GetNamespace() == key.Namespace && x.GetKind() == into.GetObjectKind().GroupVersionKind().Kind {
			x.DeepCopyInto(into.(*unstructured.Unstructured))
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// installed are a cluster's objects: two queues, and Kueue's controller with so many ready pods.
func installed(t *testing.T, ready int32, config string) fakeAPI {
	t.Helper()
	api := fakeAPI{served: []string{"v1beta1/ClusterQueue", "v1beta1/LocalQueue", "v1beta1/ResourceFlavor", "v1beta1/WorkloadPriorityClass", "v1alpha1/Cohort", "v1beta1/Workload"}}
	for _, text := range []string{
		`{apiVersion: kueue.x-k8s.io/v1beta1, kind: ClusterQueue, metadata: {name: q}, spec: {cohort: c, namespaceSelector: {}, preemption: {reclaimWithinCohort: Any, withinClusterQueue: LowerPriority},
			resourceGroups: [{coveredResources: [cpu, memory], flavors: [{name: f, resources: [{name: cpu, nominalQuota: "4"}, {name: memory, nominalQuota: 8Gi}]}]}]}}`,
		`{apiVersion: kueue.x-k8s.io/v1alpha1, kind: Cohort, metadata: {name: c}}`,
		`{apiVersion: kueue.x-k8s.io/v1beta1, kind: LocalQueue, metadata: {namespace: team-n, name: l}, spec: {clusterQueue: q}}`,
		`{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: f}}`,
		`{apiVersion: kueue.x-k8s.io/v1beta1, kind: Workload, metadata: {namespace: team-n, name: w, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: j}, {apiVersion: example.com/v1, kind: Strange, name: s}]}}`,
	} {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "\t", " ")), &u.Object); err != nil {
			t.Fatal(err)
		}
		api.objects = append(api.objects, u)
	}
	if config != "" {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{configKey: config}}}
		u.SetNamespace(configNamespace)
		u.SetName(configName)
		api.objects = append(api.objects, u)
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "kueue-system", Name: "kueue-controller-manager"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "registry.k8s.io/kueue/kueue:v0.15.0"}}
	d.Status.ReadyReplicas = ready
	hook := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-mutating-webhook-configuration"}, Webhooks: []admissionregistrationv1.MutatingWebhook{{}}}
	api.objects = append(api.objects, d, hook)
	return api
}

func found(r *migrate.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s %s: %s -> %s\n", f.Level, f.About, f.Text, f.Next)
	}
	for _, text := range r.Clear {
		fmt.Fprintf(&b, "clear: %s\n", text)
	}
	return b.String()
}

func checked(t *testing.T, api fakeAPI) (*migrate.Report, string) {
	t.Helper()
	r, err := Check(t.Context(), api, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r, found(r)
}

// TestCheckRuns: Kueue may run beside Muster; what it holds, what it does not, and what will differ is said.
func TestCheckRuns(t *testing.T) {
	t.Parallel()
	api := installed(t, 1, "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {frameworks: [batch/job, pod, kubeflow.org/paddlejob], externalFrameworks: [Foo.v1.example.org]}\n")
	both := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "j", Labels: map[string]string{QueueLabel: "l"}, Annotations: map[string]string{minParallelism: "2"}}}
	both.Spec.Suspend = ptr.To(true)
	both.Spec.Template.Spec.SchedulerName = keys.SchedulerName
	gated := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", Labels: map[string]string{podGroupLabel: "g"}}}
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Group + "/admission"}}
	lone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "both", Labels: map[string]string{QueueLabel: "l", podGroupLabel: "h"}}}
	lone.Spec.SchedulerName, lone.Spec.SchedulingGroup = keys.SchedulerName, &corev1.PodSchedulingGroup{PodGroupName: ptr.To("h")}
	api.objects = append(api.objects, both, gated, lone)
	r, text := checked(t, api)
	if r.Stops() {
		t.Error("it stops")
	}
	for _, want := range []string{
		"see Deployment kueue-system/kueue-controller-manager: Kueue runs",
		"differs Jobs: 1 are suspended in a queue of Kueue's: a gated pod and a suspended Job hold nothing in Muster, and start whole",
		"differs Pods: 1 wait behind a gate",
		"see Jobs: 1 are both Kueue's and Muster's",
		"see Pods: 1 are both Kueue's and Muster's",
		"differs Jobs: 1 may be admitted with fewer pods",
		"differs Pods: 1 are in groups of Kueue's",
		"differs workloads of the kind kubeflow.org/paddlejob",
		"differs workloads of the kind example.com/strange",
		"differs workloads of the kind example.org/foo",
		"see Queues: 2 of 2 are not there yet",
		"differs Cohort c: what quotas leave over",
		"clear: no webhook of Kueue's is left behind",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "batch/job") || strings.Contains(text, "kind pod") {
		t.Errorf("a kind that Muster knows:\n%s", text)
	}
}

// TestCheckStops: what stands in the way.
func TestCheckStops(t *testing.T) {
	t.Parallel()
	loop := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kueue.x-k8s.io/v1alpha1", "kind": "Cohort", "metadata": map[string]any{"name": "o"}, "spec": map[string]any{"parent": "o"}}}
	refusing := installed(t, 1, "")
	refusing.objects = append(refusing.objects, loop)
	stopped := installed(t, 0, "")
	for _, o := range stopped.objects {
		if d, ok := o.(*appsv1.Deployment); ok {
			d.Spec.Replicas = ptr.To[int32](0)
		}
	}
	if _, text := checked(t, stopped); strings.Contains(text, "Deployment") && !strings.Contains(text, "clear: no Deployment of Kueue's") {
		t.Errorf("Kueue was stopped on purpose:\n%s", text)
	}
	for name, c := range map[string]struct {
		api  fakeAPI
		want string
	}{
		"stopped":       {stopped, "stop MutatingWebhookConfiguration kueue-mutating-webhook-configuration"},
		"webhooks":      {installed(t, 0, ""), "stop MutatingWebhookConfiguration kueue-mutating-webhook-configuration: it is Kueue's, and none of Kueue's pods is ready"},
		"unlabelled":    {installed(t, 1, "apiVersion: config.kueue.x-k8s.io/v1beta1\nmanageJobsWithoutQueueName: true\n"), "stop Kueue's configuration: manageJobsWithoutQueueName"},
		"loop":          {refusing, "stop Cohort o: spec.parentName: the cohorts form a loop: o → o"},
		"not compared":  {refusing, "see Queues: they were not compared"},
		"configuration": {installed(t, 1, "apiVersion: config.kueue.x-k8s.io/v1beta1\nresources: 7\n"), "stop ConfigMap kueue-system/kueue-manager-config"},
	} {
		if r, text := checked(t, c.api); !r.Stops() || !strings.Contains(text, c.want) {
			t.Errorf("%s: it does not say %q:\n%s", name, c.want, text)
		}
	}
}

// TestCheckServed: what the API server does not have is said, and what may not be read is a finding; Queues that are there as they are to be
// are none.
func TestCheckServed(t *testing.T) {
	t.Parallel()
	_, text := checked(t, fakeAPI{})
	for _, kind := range Kinds() {
		if !strings.Contains(text, "differs Kueue's "+kind+": the API server does not have it") {
			t.Errorf("%s is missing, and it does not say so:\n%s", kind, text)
		}
	}
	api := installed(t, 1, "")
	in, absent, err := Look(t.Context(), api)
	if err != nil || len(in.ClusterQueues) != 1 || len(in.Cohorts) != 1 || len(absent) != 1 || !strings.HasPrefix(absent[0], "configuration") {
		t.Errorf("%+v %v %v", in, absent, err)
	}
	for _, q := range Translate(in, Options{}).Queues {
		api.objects = append(api.objects, &q)
	}
	if _, text := checked(t, api); !strings.Contains(text, "clear: no Queue that is there is another") {
		t.Error(text)
	}
	api.objects = append(api.objects[:len(api.objects)-1], &queuev2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})
	if _, text := checked(t, api); !strings.Contains(text, "see Queue q: it is there, and is not what Kueue's objects come to") {
		t.Error(text)
	}
	for _, what := range []string{"ClusterQueue", "Workload", "DeploymentList", "PodList", "QueueList", "MutatingWebhookConfigurationList"} {
		api.forbidden = what
		if _, text := checked(t, api); !strings.Contains(text, "see this check: it may not read all it has to") {
			t.Errorf("%s: %s", what, text)
		}
	}
}
