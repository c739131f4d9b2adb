package kubelet

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/lab"
)

func list(kv ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(kv); i += 2 {
		l[corev1.ResourceName(kv[i])] = resource.MustParse(kv[i+1])
	}
	return l
}

func TestLacks(t *testing.T) {
	t.Parallel()
	n := &node{allocatable: amountsOf(list("cpu", "4", "memory", "8Gi", "pods", "2", "nvidia.com/gpu", "8")), used: amounts{}}
	for _, c := range []struct {
		why      string
		requests corev1.ResourceList
		want     string
	}{
		{"all of it fits", list("cpu", "4", "memory", "8Gi", "nvidia.com/gpu", "8"), ""},
		{"CPU comes first", list("cpu", "5", "memory", "9Gi"), "OutOfcpu"},
		{"a milli-CPU too much", list("cpu", "4001m"), "OutOfcpu"},
		{"a byte too much", list("memory", "8589934593"), "OutOfmemory"},
		{"GPUs", list("nvidia.com/gpu", "9"), "OutOfnvidia.com/gpu"},
		{"a resource that the node does not have", list("rdma/hca", "1"), "OutOfrdma/hca"},
		{"none of a resource that the node does not have", list("rdma/hca", "0"), ""},
	} {
		got := ""
		if s, lacking := n.lacks(amountsOf(c.requests)); lacking {
			got = s.reason()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.why, got, c.want)
		}
	}
	n.take(amounts{"pods": 2})
	if s, lacking := n.lacks(requestsOf(&corev1.Pod{})); !lacking || s.reason() != "OutOfpods" {
		t.Errorf("a third pod on a node for two: %+v %v", s, lacking)
	}
}

// A kubelet counts the largest init container against the sum of the others.
func TestRequestsOf(t *testing.T) {
	t.Parallel()
	with := func(kv ...string) corev1.Container {
		return corev1.Container{Resources: corev1.ResourceRequirements{Requests: list(kv...)}}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{with("cpu", "3")},
		Containers:     []corev1.Container{with("cpu", "1"), with("cpu", "500m", "nvidia.com/gpu", "2")},
		Overhead:       list("cpu", "100m"),
	}}
	trimmed, err := trimPod(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{pod, trimmed.(*corev1.Pod)} {
		got := requestsOf(p)
		if got["cpu"] != 3100 || got["nvidia.com/gpu"] != 2 || got["pods"] != 1 {
			t.Errorf("requests are %v", got)
		}
	}
}

// Whatever is taken and given back, nothing is lost and what was admitted never exceeds the node.
func TestLedgerConserves(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := &node{allocatable: amounts{"cpu": 1000, "nvidia.com/gpu": 8, "pods": 5}, used: amounts{}}
		var held []amounts
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "give back") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				n.giveBack(held[i])
				held = append(held[:i], held[i+1:]...)
			} else {
				req := amounts{"cpu": rapid.Int64Range(0, 1100).Draw(t, "cpu"), "nvidia.com/gpu": rapid.Int64Range(0, 9).Draw(t, "gpu"), "pods": 1}
				if _, lacking := n.lacks(req); !lacking {
					n.take(req)
					held = append(held, req)
				}
			}
			for name, room := range n.allocatable {
				sum := int64(0)
				for _, h := range held {
					sum += h[name]
				}
				if sum != n.used[name] || sum > room {
					t.Fatalf("%s: %d held, %d counted, %d room", name, sum, n.used[name], room)
				}
			}
		}
	})
}

func TestWishes(t *testing.T) {
	t.Parallel()
	of := func(kv ...string) wishes {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
		for i := 0; i < len(kv); i += 2 {
			p.Annotations[kv[i]] = kv[i+1]
		}
		return wishesOf(p)
	}
	if got, want := of(), (wishes{runFor: forever, exitCode: 1}); got != want {
		t.Errorf("no annotations: %+v, want %+v", got, want)
	}
	got := of(lab.AnnotationRunFor, "2s", lab.AnnotationStopAfter, "never", lab.AnnotationOutcome, "fail", lab.AnnotationExitCode, "3")
	if want := (wishes{runFor: 2 * time.Second, stopAfter: forever, fail: true, exitCode: 3}); got != want {
		t.Errorf("all annotations: %+v, want %+v", got, want)
	}
	for _, key := range []string{lab.AnnotationRunFor, lab.AnnotationStartAfter, lab.AnnotationStopAfter, lab.AnnotationOutcome, lab.AnnotationExitCode} {
		if got := of(key, "-nonsense"); got.bad != key {
			t.Errorf("%s: a bad value is noted as %q", key, got.bad)
		}
	}
}

func TestDies(t *testing.T) {
	t.Parallel()
	seen := time.Unix(1000, 0)
	ten := int64(10)
	for _, c := range []struct {
		stage  stage
		stop   time.Duration
		after  time.Duration
		killed bool
	}{
		{admitted, forever, 0, false}, // nothing runs that could refuse
		{running, 0, 0, false},
		{running, 3 * time.Second, 3 * time.Second, false},
		{running, 10 * time.Second, 10 * time.Second, false},
		{running, 11 * time.Second, 10 * time.Second, true},
		{running, forever, 10 * time.Second, true},
	} {
		q := pod{obj: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: &ten}}, stage: c.stage, deleted: seen, wishes: wishes{stopAfter: c.stop}}
		at, killed := q.dies()
		if at.Sub(seen) != c.after || killed != c.killed {
			t.Errorf("stage %d, stop-after %s: dies after %s, killed %v; want %s, %v", c.stage, c.stop, at.Sub(seen), killed, c.after, c.killed)
		}
	}
}

// TestDevicesByClaim: an extended resource that a claim gives is not the node's to count.
func TestDevicesByClaim(t *testing.T) {
	t.Parallel()
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("2"), "rdma/hca": resource.MustParse("1")},
	}}}}}
	p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "c", RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "r"}},
	}
	if got := requestsOf(p); got["example.com/gpu"] != 0 || got["rdma/hca"] != 1 {
		t.Errorf("%v", got)
	}
}
