package kubelet

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/muster-scheduler/muster/internal/lab"
)

// TestCapacity: names, labels and units are kube-state-metrics', and a node that is gone has no capacity.
func TestCapacity(t *testing.T) {
	t.Parallel()
	p := New(fake.NewClientset(), Programs{})
	room := list("cpu", "64", "memory", "2Gi", "pods", "110", "nvidia.com/gpu", "8")
	node := func(name string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{lab.LabelPool: "x"}}, Status: corev1.NodeStatus{Capacity: room, Allocatable: list("cpu", "60")}}
	}
	seen, err := trimNode(node("n1"))
	if err != nil {
		t.Fatal(err)
	}
	p.seeNode(seen.(*corev1.Node))
	p.seeNode(node("n2"))
	p.loseNode(node("n2"))
	want := `
# HELP kube_node_status_capacity What a node has.
# TYPE kube_node_status_capacity gauge
kube_node_status_capacity{node="n1",resource="cpu",unit="core"} 64
kube_node_status_capacity{node="n1",resource="memory",unit="byte"} 2.147483648e+09
kube_node_status_capacity{node="n1",resource="nvidia_com_gpu",unit="integer"} 8
kube_node_status_capacity{node="n1",resource="pods",unit="integer"} 110
`
	if err := testutil.CollectAndCompare(p.Capacity(), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
