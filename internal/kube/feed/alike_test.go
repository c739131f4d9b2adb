package feed

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// jobPod is a pod as the Job controller and admission make it, bound, as decoded: nothing in it is of another.
func jobPod(tb testing.TB, job string) *v1.Pod {
	tb.Helper()
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "load", Name: job + "-x", UID: "9a856556-ad5b-46be-9234-46b95d7b8d12", Finalizers: []string{"batch.kubernetes.io/job-tracking"},
			Labels: map[string]string{
				"batch.kubernetes.io/controller-uid": "u-" + job, "batch.kubernetes.io/job-name": job, "job-name": job, keys.QueueLabel: "train",
			},
			Annotations:     map[string]string{keys.OwnGangAnnotation: "{}", keys.DecidedAnnotation: "2026-11-27T02:11:39.125879275Z"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job, UID: "u-" + "9a856556-ad5b-46be-9234-46b95d7b8d12", Controller: ptr.To(true)}},
		},
		Spec: v1.PodSpec{
			SchedulerName: kai.DefaultSchedulerName, NodeName: "node-1", RestartPolicy: "Never", DNSPolicy: "ClusterFirst", ServiceAccountName: "default",
			Containers: []v1.Container{{Name: "main", Image: "sim", Resources: v1.ResourceRequirements{
				Limits:   v1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")},
				Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), "nvidia.com/gpu": resource.MustParse("1")},
			}}},
			Tolerations: []v1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(300))},
			},
			Volumes: []v1.Volume{{Name: "kube-api-access-" + job, VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				{DownwardAPI: &v1.DownwardAPIProjection{}},
			}}}}},
		},
		Status: v1.PodStatus{
			Phase: v1.PodRunning, QOSClass: v1.PodQOSBurstable,
			Conditions: []v1.PodCondition{
				{Type: v1.PodReady, Status: v1.ConditionTrue},
				{Type: v1.ContainersReady, Status: v1.ConditionTrue},
				{Type: v1.PodInitialized, Status: v1.ConditionTrue},
				{Type: v1.PodScheduled, Status: v1.ConditionTrue},
			},
			ContainerStatuses: []v1.ContainerStatus{{Name: "main", Image: "sim", ImageID: "sim", Ready: true}},
		},
	}
	data, err := p.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	out := &v1.Pod{}
	if err := out.Unmarshal(data); err != nil {
		tb.Fatal(err)
	}
	return out
}

// jobOf is what is cached of a pod's Job, before it is trimmed: its labels tell it from others, its annotations do not.
func jobOf(p *v1.Pod) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: p.Labels["job-name"], Labels: map[string]string{keys.QueueLabel: "train", "job": p.Labels["job-name"]},
		Annotations: map[string]string{keys.BatchMinMemberAnnotation: "1", "team": "vision"},
	}}
}

// TestAlike: what objects of few shapes say is not changed, neither when it is shared nor later by others that share; equal lists are one, and a
// second look writes nothing.
func TestAlike(t *testing.T) {
	t.Parallel()
	once := newAlike()
	random := rand.New(rand.NewPCG(1, 2))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	var pods, copies []*v1.Pod
	for i := range 3000 {
		p := jobPod(t, fmt.Sprint("job-", i%50))
		p.Spec.Containers[0].Resources.Requests["memory"] = resource.MustParse(one("1Gi", "1073741824", "1024Mi", "0.5", "1e3"))
		if random.IntN(2) == 0 {
			delete(p.Spec.Containers[0].Resources.Requests, "cpu")
		}
		for _, name := range []v1.ResourceName{"a", "b"} {
			if random.IntN(3) == 0 {
				p.Spec.Containers[0].Resources.Limits[name] = resource.MustParse(fmt.Sprint(random.IntN(400)))
			}
		}
		p.Spec.Tolerations[0].TolerationSeconds = []*int64{nil, ptr.To(int64(5)), ptr.To(int64(300))}[random.IntN(3)]
		p.Spec.Tolerations = p.Spec.Tolerations[:random.IntN(3)]
		p.Labels[one("a", "b", "c")] = one("", "x", "y", p.Name, "job-1", fmt.Sprint(random.IntN(3000)))
		p.Annotations[one("a", "b", "c")] = one("", "x", "y", fmt.Sprint(random.IntN(3000)))
		pods, copies = append(pods, p), append(copies, p.DeepCopy())
		once.metadata(p)
		once.pod(p)
	}
	for i := range pods {
		if diff := cmp.Diff(copies[i], pods[i]); diff != "" {
			t.Fatalf("pod %d: -before +after:\n%s", i, diff)
		}
	}
	at := func(v any) uintptr { return reflect.ValueOf(v).Pointer() }
	shared, still, noted, hundred := 0, 0, 0, 100
	for range hundred { // a slot may be another's too, by a seed that is drawn: in a few of a hundred
		once = newAlike()
		p, q := jobPod(t, "p"), jobPod(t, "q")
		for _, p := range []*v1.Pod{p, q} {
			once.metadata(p)
			once.pod(p)
		}
		owners := [2]*metav1.PartialObjectMetadata{jobOf(p), jobOf(q)}
		for _, o := range owners {
			once.metadata(o)
		}
		if at(owners[0].Annotations) == at(owners[1].Annotations) && at(owners[0].Labels) != at(owners[1].Labels) {
			noted++
		}
		c, d := p.Spec.Containers[0].Resources, q.Spec.Containers[0].Resources
		if at(c.Requests) == at(c.Limits) {
			t.Error("lists that are not equal are one")
		}
		if at(c.Requests) == at(d.Requests) && at(c.Limits) == at(d.Limits) && at(p.Spec.Tolerations) == at(q.Spec.Tolerations) && same(p.Namespace, q.Namespace) {
			shared++
		}
		labels, notes := at(p.Labels), at(p.Annotations)
		once.metadata(p)
		once.pod(p)
		if labels == at(p.Labels) && notes == at(p.Annotations) {
			still++
		}
	}
	if shared < hundred/2 {
		t.Errorf("of %d times two pods of one shape had lists of their own in all but %d", hundred, shared)
	}
	if noted < hundred/2 {
		t.Errorf("of %d times two Jobs of one shape had annotations of their own in all but %d", hundred, noted)
	}
	if still < hundred/2 {
		t.Errorf("of %d times a second look wrote in all but %d", hundred, still)
	}
}

// BenchmarkCachedPod says what the cache holds of one of many pods of Jobs of one shape, in bytes.
func BenchmarkCachedPod(b *testing.B) {
	once, reads := newAlike(), Reads{SchedulerNames: []string{kai.DefaultSchedulerName}, Notes: true}
	var before, after runtime.MemStats
	pods := make([]any, b.N)
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range pods {
		var err error
		if pods[i], err = trimPod(jobPod(b, fmt.Sprint(i)), reads, 0, once); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(b.N), "held-bytes/pod")
	runtime.KeepAlive(pods)
}
