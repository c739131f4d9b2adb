package kubebatch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/internal/migrate"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func spec(image string, words ...string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, Args: words}}, Volumes: []corev1.Volume{
		{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "rules"}}}},
	}}
}

func deployment(name string, replicas, ready int32, of corev1.PodSpec) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(replicas), Template: corev1.PodTemplateSpec{Spec: of}},
		Status: appsv1.DeploymentStatus{Replicas: ready, ReadyReplicas: ready},
	}
}

func pod(name, owner string, phase corev1.PodPhase, of corev1.PodSpec) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: name}, Spec: of, Status: corev1.PodStatus{Phase: phase}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: owner, Name: "o"}}
	}
	return p
}

func lock(namespace, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-batch", Annotations: map[string]string{leaderNote: text}}}
}

func rules(text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "batch", Name: "rules"}, Data: map[string]string{"kube-batch.conf": text}}
}

func defaultQueue() *kbv1alpha2.Queue {
	return &kbv1alpha2.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
}

// check judges a cluster of these objects; calls may answer otherwise than the cluster.
func check(t *testing.T, calls interceptor.Funcs, objects ...client.Object) *migrate.Report {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kbv1alpha1.AddToScheme, kbv1alpha2.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Check(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(calls).Build(), noon)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestKubeBatchInTheWay: what stands in the way is found, by whom it is run and where its lock lies; and nothing is that does not.
func TestKubeBatchInTheWay(t *testing.T) {
	t.Parallel()
	const image = "docker.io/kubesigs/kube-batch:v0.5"
	const held = `{"holderIdentity": "a_b", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T11:59:50Z"}`
	file := spec(image, "--scheduler-conf", "/etc/c/kube-batch.conf", "--lock-object-namespace=locks", "--default-queue=work")
	for name, c := range map[string]struct {
		objects []client.Object
		want    []string // level, object and a part of the text of each finding
	}{
		"nothing":                         {[]client.Object{defaultQueue()}, nil},
		"it runs":                         {[]client.Object{defaultQueue(), deployment("kb", 1, 1, spec(image)), pod("kb-1", "ReplicaSet", corev1.PodRunning, spec(image))}, []string{"stop Deployment batch/kb: 1 of its pods are ready"}},
		"it is to run":                    {[]client.Object{defaultQueue(), deployment("kb", 1, 0, spec(image))}, []string{"see Deployment batch/kb: it may come back"}},
		"it was stopped":                  {[]client.Object{defaultQueue(), deployment("kb", 0, 0, spec(image)), pod("old", "", corev1.PodSucceeded, spec(image))}, nil},
		"its pod outlives its Deployment": {[]client.Object{defaultQueue(), deployment("kb", 0, 0, spec(image)), pod("kb-1", "ReplicaSet", corev1.PodRunning, spec(image))}, []string{"stop Pod batch/kb-1: 1 of its pods"}},
		"by a file, of a StatefulSet":     {[]client.Object{defaultQueue(), pod("kb-0", "StatefulSet", corev1.PodRunning, spec("registry.example/tools", "/usr/bin/kube-batch", "--v=3"))}, []string{"stop Pod batch/kb-0: 1 of its pods"}},
		"Muster, and a pod of a kube-batch": {[]client.Object{
			defaultQueue(),
			deployment("scheduler", 1, 1, spec("registry.example/muster:v1", "run", "scheduler", "--kube-batch-scheduler-name=kube-batch")),
			deployment("other", 1, 1, spec("registry.example/any", "run", "--scheduler-name", "kube-batch")),
		}, nil},
		"a lock": {[]client.Object{defaultQueue(), lock("kube-system", held)}, []string{`stop ConfigMap kube-system/kube-batch: "a_b" leads`}},
		"a lock of Endpoints, where a flag says": {[]client.Object{
			&kbv1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "work"}}, deployment("kb", 1, 0, file),
			&metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Endpoints"}, ObjectMeta: metav1.ObjectMeta{Namespace: "locks", Name: "kube-batch", Annotations: map[string]string{leaderNote: held}}},
		}, []string{"stop Endpoints locks/kube-batch: leads", "see Deployment batch/kb: come back"}},
		"a lock that has run out, and others that say nothing": {[]client.Object{
			defaultQueue(),
			lock("kube-system", strings.Replace(held, "11:59:50", "11:59:40", 1)), lock("default", "{"), lock("kube-batch", `{"holderIdentity": ""}`),
		}, nil},
		"no default queue":           {[]client.Object{pod("w", "", corev1.PodPending, corev1.PodSpec{SchedulerName: "kube-batch"})}, []string{"see Queue default: 1 pods name its scheduler"}},
		"the queue that a flag says": {[]client.Object{defaultQueue(), deployment("kb", 1, 0, file)}, []string{"see Deployment batch/kb: come back", "see Queue work: it is not there"}},
		"a file that is refused": {
			[]client.Object{defaultQueue(), deployment("kb", 1, 0, spec(image, "--scheduler-conf=/etc/c/kube-batch.conf")), rules("actions: frobnicate")},
			[]string{"see Deployment batch/kb: come back", "see ConfigMap batch/rules:kube-batch.conf: is refused"},
		},
		"a file with a word that there is not": {
			[]client.Object{defaultQueue(), deployment("kb", 1, 0, spec(image, "--scheduler-conf=/etc/c/kube-batch.conf")), rules("actions: allocate\ntiers:\n- plugins:\n  - name: magic\n")},
			[]string{"see Deployment batch/kb: come back", "differs ConfigMap batch/rules:kube-batch.conf: magic"},
		},
	} { // order: each by itself
		r := check(t, interceptor.Funcs{}, c.objects...)
		stops := false
		for i, f := range r.Findings {
			said := fmt.Sprintf("%s %s: %s", f.Level, f.About, f.Text)
			if i >= len(c.want) {
				t.Errorf("%s: %s", name, said)
				continue
			}
			head, part, _ := strings.Cut(c.want[i], ": ")
			if !strings.HasPrefix(said, head+": ") || !strings.Contains(f.Text, part) || f.Level != migrate.Differs && f.Next == "" {
				t.Errorf("%s: %s, want %s", name, said, c.want[i])
			}
			stops = stops || f.Level == migrate.Stop
		}
		if len(r.Findings) < len(c.want) || r.Stops() != stops || len(r.Findings) == 0 != (len(r.Clear) == 4) {
			t.Errorf("%s: %+v, want %v", name, r, c.want)
		}
	}
}

// TestKubeBatchUnread: kinds that are not served are told, what may not be read too, and any other error ends the check.
func TestKubeBatchUnread(t *testing.T) {
	t.Parallel()
	r := check(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, o ...client.ListOption) error {
		if _, old := into.(*kbv1alpha1.QueueList); old {
			return apierrors.NewNotFound(schema.GroupResource{}, "")
		}
		return c.List(ctx, into, o...)
	}}, defaultQueue())
	if len(r.Findings) != 1 || !strings.Contains(r.Findings[0].Text, "does not serve scheduling.incubator.k8s.io") {
		t.Errorf("%+v", r.Findings)
	}
	r = check(t, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, into client.ObjectList, o ...client.ListOption) error {
		if _, pods := into.(*corev1.PodList); pods {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil)
		}
		return c.List(ctx, into, o...)
	}}, defaultQueue())
	if !slices.ContainsFunc(r.Findings, func(f migrate.Finding) bool { return strings.Contains(f.Text, "it may not read all it has to") }) {
		t.Errorf("%+v", r.Findings)
	}
	broken := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewServiceUnavailable("broken")
	}}).Build()
	if _, err := Check(t.Context(), broken, noon); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("it ends with %v", err)
	}
}
