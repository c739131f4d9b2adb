package scenario

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/engine/enginetest"
)

// TestLatest: of two objects of one kind and name only the later is made, in its own place; others keep theirs.
func TestLatest(t *testing.T) {
	t.Parallel()
	pod := func(namespace, name, node string) enginetest.Object {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.PodSpec{NodeName: node}}
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	got := latest([]enginetest.Object{pod("x", "a", "first"), node, pod("y", "a", ""), pod("x", "a", "second")})
	want := []enginetest.Object{node, pod("y", "a", ""), pod("x", "a", "second")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-) and got (+):\n%s", diff)
	}
}
