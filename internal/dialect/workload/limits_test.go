package workload

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestManySegments: a workload is cut into so many segments and no more.
func TestManySegments(t *testing.T) {
	t.Parallel()
	settings := DefaultSettings()
	for replicas, want := range map[int64]string{MaxSegments: "", MaxSegments + 1: "at most 10000 segments, cuts them into 10001", 2147483647: "at most 10000 segments"} {
		job := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
			"metadata": map[string]any{"name": "j", "uid": "j", "annotations": map[string]any{"kai.scheduler/segment-size": "1"}},
			"spec":     map[string]any{"pytorchReplicaSpecs": map[string]any{"Worker": map[string]any{"replicas": replicas}}},
		}}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "p", Labels: map[string]string{"training.kubeflow.org/replica-type": "worker"}, Annotations: map[string]string{"kai.scheduler/segment-size": "1"}}}
		_, err := table(t).Group(p, []Object{FromMeta(job.GroupVersionKind(), job, job.Object)}, &settings)
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d replicas: %v", replicas, err)
		}
	}
}
