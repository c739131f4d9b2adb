package core

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	upstream "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/dialecttest"
)

var _ = flag.Bool("update", false, "rewrite the want sections of the golden files")

func TestGolden(t *testing.T) {
	t.Parallel()
	dialecttest.Golden(t, func(t *testing.T, objects []dialecttest.Object) string {
		var out strings.Builder
		for _, o := range objects {
			switch o.Kind {
			case "Node":
				var n v1.Node
				o.Into(t, &n)
				out.WriteString(dialecttest.Text(t, "node", Node(&n)))
			case "Pod":
				var p v1.Pod
				o.Into(t, &p)
				out.WriteString(dialecttest.Text(t, "pod", Pod(&p)))
			case "PodDisruptionBudget":
				var b policyv1.PodDisruptionBudget
				o.Into(t, &b)
				out.WriteString(dialecttest.Text(t, "budget", Budget(&b)))
			default:
				t.Fatalf("unknown kind %q", o.Kind)
			}
		}
		return out.String()
	})
}

// TestRequestsAreUpstreams draws pods of every shape and compares Requests with the rule upstream publishes. One thing is stricter: a
// status by which a resize is infeasible takes nothing off but CPU and memory, which alone can be resized. Whoever may write the
// status of a pod that runs would have its GPUs charged to nobody.
func TestRequestsAreUpstreams(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPod(t)
		list := upstream.PodRequests(p, upstream.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
		for name, q := range upstream.PodRequests(p, upstream.PodResourcesOptions{}) {
			if has := list[name]; name != v1.ResourceCPU && name != v1.ResourceMemory && has.Cmp(q) < 0 {
				list[name] = q
			}
		}
		if diff := cmp.Diff(Amounts(list), Amounts(RequestList(p))); diff != "" {
			t.Fatalf("list: -upstream +ours:\n%s", diff)
		}
		list[v1.ResourcePods] = resource.MustParse("1")
		if diff := cmp.Diff(Amounts(list), Requests(p)); diff != "" {
			t.Fatalf("-upstream +ours:\n%s", diff)
		}
	})
}

func drawPod(t *rapid.T) *v1.Pod {
	list := func(label string) v1.ResourceList {
		out := v1.ResourceList{}
		for _, name := range []v1.ResourceName{"cpu", "memory", "nvidia.com/gpu", "example.com/nic"} {
			if rapid.Bool().Draw(t, label+string(name)) {
				out[name] = *resource.NewQuantity(rapid.Int64Range(0, 5).Draw(t, label+"n"), resource.DecimalSI)
			}
		}
		return out
	}
	reported := func(asked v1.ResourceList) (*v1.ResourceRequirements, v1.ResourceList) {
		actual, allocated := list("actual"), list("allocated")
		if rapid.Bool().Draw(t, "settled") {
			actual, allocated = asked, asked
		}
		if rapid.Bool().Draw(t, "granted only") {
			return nil, allocated
		}
		return &v1.ResourceRequirements{Requests: actual}, allocated
	}
	p := &v1.Pod{}
	for i := range rapid.IntRange(1, 3).Draw(t, "containers") {
		name := fmt.Sprint("c", i)
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: list(name)}})
		if rapid.Bool().Draw(t, "status") {
			st := v1.ContainerStatus{Name: name}
			st.Resources, st.AllocatedResources = reported(p.Spec.Containers[i].Resources.Requests)
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, st)
		}
	}
	for i := range rapid.IntRange(0, 2).Draw(t, "inits") {
		c := v1.Container{Name: fmt.Sprint("i", i), Resources: v1.ResourceRequirements{Requests: list("init")}}
		if rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		if rapid.Bool().Draw(t, "init status") {
			st := v1.ContainerStatus{Name: c.Name}
			st.Resources, st.AllocatedResources = reported(c.Resources.Requests)
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, st)
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if rapid.Bool().Draw(t, "sums") {
		p.Status.Resources, p.Status.AllocatedResources = reported(p.Spec.Containers[0].Resources.Requests)
	}
	if rapid.Bool().Draw(t, "overhead") {
		p.Spec.Overhead = list("overhead")
	}
	if rapid.Bool().Draw(t, "podlevel") {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": *resource.NewQuantity(9, resource.DecimalSI)}}
	}
	if rapid.Bool().Draw(t, "infeasible") {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
	}
	return p
}

func TestPodPhase(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Unix(1000, 0))
	for _, c := range []struct {
		phase   v1.PodPhase
		node    string
		gates   int
		deleted bool
		want    cluster.Phase
	}{
		{phase: "", want: cluster.Pending},
		{phase: v1.PodPending, want: cluster.Pending},
		{phase: v1.PodPending, gates: 1, want: cluster.Gated},
		{phase: v1.PodPending, node: "n", want: cluster.Bound},
		{phase: v1.PodPending, node: "n", deleted: true, want: cluster.Releasing},
		{phase: v1.PodPending, deleted: true, want: cluster.Failed},
		{phase: v1.PodPending, gates: 1, deleted: true, want: cluster.Failed},
		{phase: v1.PodRunning, node: "n", want: cluster.Running},
		{phase: v1.PodRunning, node: "n", deleted: true, want: cluster.Releasing},
		{phase: v1.PodSucceeded, node: "n", want: cluster.Succeeded},
		{phase: v1.PodSucceeded, node: "n", deleted: true, want: cluster.Succeeded},
		{phase: v1.PodFailed, node: "n", want: cluster.Failed},
		{phase: v1.PodUnknown, want: cluster.Unknown},
		{phase: v1.PodUnknown, node: "n", want: cluster.Bound},
	} {
		p := &v1.Pod{Spec: v1.PodSpec{NodeName: c.node, SchedulingGates: make([]v1.PodSchedulingGate, c.gates)}, Status: v1.PodStatus{Phase: c.phase}}
		if c.deleted {
			p.DeletionTimestamp = &now
		}
		if got := PodPhase(p); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
	}
}

// TestReturning: of what goes, that which was evicted and has a controller comes back.
func TestReturning(t *testing.T) {
	t.Parallel()
	now := metav1.NewTime(time.Unix(1000, 0))
	for _, c := range []struct{ owned, deleted, disrupted, want bool }{
		{owned: true, deleted: true, disrupted: true, want: true},
		{owned: true, deleted: true},     // its owner wants fewer
		{owned: true, disrupted: true},   // only said so
		{deleted: true, disrupted: true}, // gone for good
	} {
		p := &v1.Pod{Spec: v1.PodSpec{NodeName: "n"}, Status: v1.PodStatus{Phase: v1.PodRunning}}
		if c.owned {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", Controller: ptr.To(true)}}
		}
		if c.deleted {
			p.DeletionTimestamp = &now
		}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionFalse}}
		if c.disrupted {
			p.Status.Conditions[0].Status = v1.ConditionTrue
		}
		if got := Pod(p).Returning; got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// TestAmountsStayInRange draws quantities as users write them, absurd ones included.
func TestAmountsStayInRange(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"0", "-1", "-9E", "1", "1500m", "1u", "9223372036854775807", "9E", "8Ei", "1e30", "999999999999999999999999999999", "123456789012345678901234567890m"} {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []v1.ResourceName{"cpu", "memory", "pods", NvidiaGPU, AMDGPU, "example.com/nic"} {
			for _, a := range Amounts(v1.ResourceList{name: q}) {
				if a.Value <= 0 || a.Value > cluster.MaxQuantity {
					t.Errorf("%s of %s became %d", text, name, a.Value)
				}
			}
			if q.Sign() > 0 && len(Amounts(v1.ResourceList{name: q})) == 0 {
				t.Errorf("%s of %s was lost", text, name)
			}
		}
	}
}

func FuzzAmounts(f *testing.F) {
	for _, s := range []string{"1", "100m", "9E", "-5", "1e300", "0.0000001"} {
		f.Add(s, "cpu")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return
		}
		for _, a := range Amounts(v1.ResourceList{v1.ResourceName(name): q}) {
			if a.Value <= 0 || a.Value > cluster.MaxQuantity {
				t.Fatalf("%q became %d", text, a.Value)
			}
		}
	})
}

func FuzzGPUMemory(f *testing.F) {
	for _, s := range []string{"81559", "85520809984", "-1", "x", "9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, label string) {
		if got := GPUMemoryMiB(label); got < 0 || got > cluster.MaxQuantity {
			t.Fatalf("%q became %d", label, got)
		}
	})
}

// workerPod is a pod as a Job makes them, as the API server returns it.
func workerPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "train-0-abcde", Namespace: "research", UID: "0e3b7693-1516-4bfd-bc8f-ab8ed3831fd4",
			Labels:      map[string]string{"job-name": "train", "batch.kubernetes.io/job-name": "train", "kai.scheduler/queue": "vision"},
			Annotations: map[string]string{"pod-group-name": "pg-train"}, CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
		},
		Spec: v1.PodSpec{
			SchedulerName: "kai-scheduler",
			Containers: []v1.Container{{Name: "main", Image: "busybox", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi"), NvidiaGPU: resource.MustParse("1")},
			}}},
			Volumes: []v1.Volume{{Name: "kube-api-access-x", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
			}}}}},
			Tolerations: []v1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(300))},
				{Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: ptr.To(int64(300))},
			},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

func BenchmarkPod(b *testing.B) {
	p := workerPod()
	b.ReportAllocs()
	for b.Loop() {
		_ = Pod(p)
	}
}

func BenchmarkPodRunning(b *testing.B) {
	p := workerPod()
	p.Spec.NodeName, p.Status.Phase = "n1", v1.PodRunning
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", Resources: &p.Spec.Containers[0].Resources, AllocatedResources: p.Spec.Containers[0].Resources.Requests}}
	b.ReportAllocs()
	for b.Loop() {
		_ = Pod(p)
	}
}
