package admission

import (
	"encoding/json"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// all are rules with everything switched on.
func all() *Rules {
	return &Rules{SchedulerNames: []string{"kai-scheduler", "muster"}, GPUSharing: true, MemoryLimits: true, GuardDevices: true, RuntimeClass: "nvidia"}
}

// sharing are rules that only allow GPUs to be shared.
func sharing() *Rules {
	return &Rules{SchedulerNames: []string{"kai-scheduler"}, GPUSharing: true, RuntimeClass: "nvidia"}
}

// pod reads a manifest; one of our schedulers and a container are filled in if it has none.
func pod(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	if p.Spec.SchedulerName == "" {
		p.Spec.SchedulerName = "kai-scheduler"
	}
	if p.Spec.Containers == nil {
		p.Spec.Containers = []corev1.Container{{Name: "main"}}
	}
	return p
}

// patched applies operations as the API server does: to the pod's JSON.
func patched(t testing.TB, p *corev1.Pod, ops []Operation) *corev1.Pod {
	t.Helper()
	if len(ops) == 0 {
		return p.DeepCopy()
	}
	body, err := json.Marshal(ops)
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatch.DecodePatch(body)
	if err != nil {
		t.Fatal(err)
	}
	before, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	after, err := patch.Apply(before)
	if err != nil {
		t.Fatalf("the patch does not apply: %v\n%s\n%s", err, body, before)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(after, out); err != nil {
		t.Fatal(err)
	}
	return out
}
