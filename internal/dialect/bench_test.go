package dialect

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

func node(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{"cpu": resource.MustParse("8"), "pods": resource.MustParse("110"), "nvidia.com/gpu": resource.MustParse("8")},
			Conditions:  []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

// pod is one of gang g that waits for a GPU.
func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("u-" + name), CreationTimestamp: metav1.NewTime(time.Unix(1, 0)), Annotations: map[string]string{kai.PodGroupAnnotation: "g"}},
		Spec: v1.PodSpec{SchedulerName: kai.DefaultSchedulerName, Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")},
		}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
}

// BenchmarkPodEvent is what one pod event costs the owner of the store: translate, intern, apply.
func BenchmarkPodEvent(b *testing.B) {
	t, store := NewTranslator(Options{}), cluster.NewStore(cluster.Options{})
	apply := func(e cluster.Event) { store.Apply(e) }
	n := node("n1")
	t.Take(Nodes, KeyOf(n), n, apply)
	pending, running := pod("p"), pod("p")
	running.Spec.NodeName, running.Status.Phase = "n1", v1.PodRunning
	key := KeyOf(pending)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%2 == 0 {
			t.read(Pods, key, pending, apply)
		} else {
			t.read(Pods, key, running, apply)
		}
	}
}

// BenchmarkLonePods is what is kept of 4,000 pods that are gangs by themselves, in translator and store, and what is made and thrown away when one comes,
// is told what it is, and is bound.
func BenchmarkLonePods(b *testing.B) {
	const n = 4000
	var steps [3][]*v1.Pod
	for i := range n {
		p := pod(fmt.Sprintf("fill-%d", i))
		p.UID = types.UID(fmt.Sprintf("5d5c9f7e-0a2b-4c3d-8e9f-%012d", i))
		p.Annotations = map[string]string{}
		steps[0] = append(steps[0], p)
		p = p.DeepCopy()
		p.Annotations[keys.OwnGangAnnotation] = kai.WriteOwnGang(p, &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "pg-fill-" + string(p.UID)}, Spec: v2alpha2.PodGroupSpec{Queue: "q"}}, "")
		steps[1] = append(steps[1], p)
		p = p.DeepCopy()
		p.Spec.NodeName = "n1"
		steps[2] = append(steps[2], p)
	}
	b.ReportAllocs()
	for b.Loop() {
		before := kubetest.Held()
		t, store := NewTranslator(Options{}), cluster.NewStore(cluster.Options{})
		apply := func(e cluster.Event) { store.Apply(e) }
		for _, pods := range steps {
			for _, p := range pods {
				t.Take(Pods, KeyOf(p), p, apply)
			}
		}
		b.ReportMetric((kubetest.Held()-before)/n, "held-B/pod")
		runtime.KeepAlive(t)
		runtime.KeepAlive(store)
	}
}
