//go:build lab

package podgrouper

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kubetest"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/operator"
)

// onLab starts a lab with the role running in it.
type onLab struct {
	*testing.T
	client   client.Client
	role     *Controller
	registry *prometheus.Registry
}

func startOnLab(t *testing.T) *onLab {
	t.Helper()
	var docs [][]byte
	for _, f := range crds.All() {
		docs = append(docs, f.YAML)
	}
	l, err := lab.Start(t.Context(), lab.Options{CRDs: append(docs, operator.CRDs()...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := kubetest.Scheme()
	config := l.Config()
	config.QPS, config.Burst = 2000, 4000
	out := &onLab{T: t, registry: prometheus.NewRegistry()}
	if out.client, err = client.New(config, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	shared, err := cache.New(config, cache.Options{Scheme: s, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		t.Fatal(err)
	}
	out.role, err = New(Deps{
		Cache: shared, Client: out.client, Reader: out.client, Registry: out.registry,
		Event: func(obj client.Object, _, _, message string) { t.Logf("event: %s: %s", obj.GetName(), message) },
	}, DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- shared.Start(ctx) }()
	go func() { ended <- out.role.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	return out
}

// eventually waits for a condition for a minute.
func (l *onLab) eventually(what string, holds func() (bool, error)) {
	l.Helper()
	var last error
	err := wait.PollUntilContextTimeout(l.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		ok, err := holds()
		last = err
		return ok, nil
	})
	if err != nil {
		l.Fatalf("%s: not within a minute: %v", what, last)
	}
}

func (l *onLab) create(obj client.Object) {
	l.Helper()
	if err := l.client.Create(l.Context(), obj); err != nil {
		l.Fatal(err)
	}
}

func template(labels, annotations map[string]string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			SchedulerName: keys.SchedulerName, RestartPolicy: corev1.RestartPolicyAlways,
			Containers: []corev1.Container{{Name: "main", Image: "pause"}},
		},
	}
}

func labJob(name string, pods int32, annotations map[string]string) *batchv1.Job {
	t := template(nil, nil)
	t.Spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations},
		Spec:       batchv1.JobSpec{Parallelism: &pods, Completions: &pods, Template: t},
	}
}

// grouped waits until as many pods with the labels are in one group each, and returns the groups by name.
func (l *onLab) grouped(labels client.MatchingLabels, pods int) map[string]*v2alpha2.PodGroup {
	l.Helper()
	groups := map[string]*v2alpha2.PodGroup{}
	l.eventually(fmt.Sprintf("%d pods with %v in groups", pods, labels), func() (bool, error) {
		list := &corev1.PodList{}
		if err := l.client.List(l.Context(), list, client.InNamespace("default"), labels); err != nil {
			return false, err
		}
		in := 0
		for i := range list.Items {
			name := list.Items[i].Annotations[keys.PodGroupAnnotation]
			if name == "" {
				continue
			}
			in++
			if groups[name] == nil {
				g := &v2alpha2.PodGroup{}
				if err := l.client.Get(l.Context(), types.NamespacedName{Namespace: "default", Name: name}, g); err != nil {
					l.Fatalf("a pod names a group that cannot be read: %v", err)
				}
				groups[name] = g
			}
		}
		return in == pods, fmt.Errorf("%d are", in)
	})
	return groups
}

// TestLab runs the role against a real API server, with the pods that real controllers make.
func TestLab(t *testing.T) {
	l := startOnLab(t)
	ctx := t.Context()

	l.create(labJob("train", 20, map[string]string{keys.BatchMinMemberAnnotation: "20"}))
	job := client.MatchingLabels{"batch.kubernetes.io/job-name": "train"}
	groups := l.grouped(job, 20)
	if len(groups) != 1 {
		t.Fatalf("the Job's pods are in %d groups", len(groups))
	}
	var group *v2alpha2.PodGroup
	for _, group = range groups {
		if *group.Spec.MinMember != 20 || group.OwnerReferences[0].Kind != "Job" {
			t.Errorf("the Job's group: %+v", group)
		}
	}

	three := int32(3)
	web := map[string]string{"app": "web"}
	l.create(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: web}, Template: template(web, nil),
	}})
	if n := len(l.grouped(web, 3)); n != 3 {
		t.Errorf("the Deployment's pods are in %d groups", n)
	}
	db := map[string]string{"app": "db"}
	l.create(&appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &three, Selector: &metav1.LabelSelector{MatchLabels: db}, Template: template(db, nil),
		PodManagementPolicy: appsv1.ParallelPodManagement,
	}})
	if n := len(l.grouped(db, 3)); n != 1 {
		t.Errorf("the StatefulSet's pods are in %d groups", n)
	}

	torch := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {namespace: default, name: mnist, labels: {kai.scheduler/queue: research}}
spec:
  pytorchReplicaSpecs:
    Master: {replicas: 1, template: {spec: {schedulerName: kai-scheduler, containers: [{name: pytorch, image: pause}]}}}
    Worker: {replicas: 3, template: {spec: {schedulerName: kai-scheduler, containers: [{name: pytorch, image: pause}]}}}
`), &torch.Object); err != nil {
		t.Fatal(err)
	}
	l.create(torch)
	// These pods beside those of a lab that plays the operator, so that the test needs none.
	for i, role := range []string{"master", "worker", "worker"} {
		made := template(map[string]string{"gang": "mnist", "training.kubeflow.org/replica-type": role}, nil)
		owner := *ref("kubeflow.org/v1", "PyTorchJob", "mnist")
		owner.UID = torch.GetUID()
		made.OwnerReferences = []metav1.OwnerReference{owner}
		made.Namespace, made.Name = "default", fmt.Sprintf("extra-%d", i)
		l.create(&corev1.Pod{ObjectMeta: made.ObjectMeta, Spec: made.Spec})
	}
	for name, g := range l.grouped(client.MatchingLabels{"gang": "mnist"}, 3) {
		if *g.Spec.MinMember != 4 || len(g.Spec.SubGroups) != 2 || g.Spec.Queue != "research" {
			t.Errorf("group %s: %+v", name, g.Spec)
		}
	}

	read := func() (*v2alpha2.PodGroup, error) {
		g := &v2alpha2.PodGroup{}
		return g, l.client.Get(ctx, client.ObjectKeyFromObject(group), g)
	}
	// An edit of the Job reaches its group by the Job's watch.
	if err := l.client.Patch(ctx, labJob("train", 20, nil), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"kai.scheduler/batch-min-member":"7"}}}`))); err != nil {
		t.Fatal(err)
	}
	l.eventually("the new minimum", func() (bool, error) {
		g, err := read()
		return err == nil && *g.Spec.MinMember == 7, err
	})
	// A group that someone deletes comes back.
	if err := l.client.Delete(ctx, group.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	l.eventually("the group again", func() (bool, error) {
		g, err := read()
		return err == nil && g.UID != group.UID, err
	})
	// A patch for another pod of the name is refused, and is no error.
	pods := &corev1.PodList{}
	if err := l.client.List(ctx, pods, client.InNamespace("default"), job); err != nil {
		t.Fatal(err)
	}
	target := metadataOf(corev1.SchemeGroupVersion.WithKind("Pod"), &pods.Items[0])
	err := l.role.grouper.patch(ctx, target, []byte(`{"metadata":{"uid":"another","annotations":{"pod-group-name":"stolen"}}}`))
	if !errors.Is(err, errChanged) {
		t.Errorf("a patch with another UID: %v", err)
	}
}

// TestLabFill counts what the role costs for many one-pod Jobs.
func TestLabFill(t *testing.T) {
	l := startOnLab(t)
	const jobs = 500
	var before, after syscall.Rusage
	for i := range jobs {
		job := labJob(fmt.Sprintf("j%d", i), 1, nil)
		job.Spec.Template.Labels = map[string]string{"fill": "yes"}
		suspended := true
		job.Spec.Suspend = &suspended
		l.create(job)
	}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		err := l.client.Patch(t.Context(), labJob(fmt.Sprintf("j%d", i), 1, nil), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))
		if err != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	cpu := func(u syscall.Rusage) time.Duration { return time.Duration(u.Utime.Nano() + u.Stime.Nano()) }
	start := time.Now()
	l.eventually("all pods grouped", func() (bool, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v2alpha2.GroupVersion.WithKind("PodGroupList"))
		if err := l.client.List(t.Context(), list, client.Limit(1)); err != nil {
			return false, err
		}
		have := len(list.Items)
		if list.RemainingItemCount != nil {
			have += int(*list.RemainingItemCount)
		}
		return have == jobs, fmt.Errorf("%d groups", have)
	})
	l.grouped(client.MatchingLabels{"fill": "yes"}, jobs)
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d Jobs: %v after the last was released; CPU of the role and of this test's own calls: %v per pod",
		jobs, time.Since(start).Round(time.Millisecond), (cpu(after)-cpu(before))/jobs)
	families, err := l.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			t.Logf("%s %v = %v", f.GetName(), m.GetLabel(), m.GetCounter().GetValue())
		}
	}
	if got := len(l.role.grouper.memory.all()); got != jobs {
		t.Errorf("%d gangs are remembered", got)
	}
}
