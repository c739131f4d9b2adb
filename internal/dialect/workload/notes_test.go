package workload

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// TestNotesAreNotInherited: what a workload says of its start is not the scheduler's word, and does not reach the PodGroup.
func TestNotesAreNotInherited(t *testing.T) {
	t.Parallel()
	notes := []string{keys.StaleSinceAnnotation, keys.LastStartAnnotation, keys.LastEvictionAnnotation}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", Annotations: map[string]string{"mine": "x"}}}
	for _, key := range notes {
		pod.Annotations[key] = "2030-01-01T00:00:00Z"
	}
	settings := DefaultSettings()
	g, err := table(t).Group(pod, nil, &settings)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range notes {
		if v, ok := g.PodGroup.Annotations[key]; ok {
			t.Errorf("annotation %s: %q", key, v)
		}
	}
	if g.PodGroup.Annotations["mine"] != "x" {
		t.Error("other annotations are the workload's to give")
	}
}
