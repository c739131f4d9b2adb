package workload

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// FuzzGroup: whatever a workload of any kind and its pod say, the answer is a group or an error; minimums are not negative, and
// there are no more subgroups than are allowed.
func FuzzGroup(f *testing.F) {
	const pod = `{"metadata":{"namespace":"n","name":"p","uid":"u","labels":{"training.kubeflow.org/replica-type":"worker","training.kubeflow.org/replica-index":"-1"},"annotations":{"kai.scheduler/preemption-delay":"soon"}}}`
	for _, r := range Kinds() {
		f.Add([]byte(pod), []byte(`{"apiVersion":"`+r.Group+`/v1","kind":"`+r.Kind+`","metadata":{"name":"o","uid":"o","annotations":{"kai.scheduler/batch-min-member":"99999999999"}},"spec":{}}`))
		f.Add([]byte(pod), []byte(`{"apiVersion":"`+r.Group+`/v1","kind":"`+r.Kind+`","metadata":{"name":"o","uid":"o","labels":{"project":"x","priorityClassName":"y"},"annotations":{"kai.scheduler/segment-size":"1","kai.scheduler/topology-required-placement":"z"}},"spec":{"runPolicy":{"schedulingPolicy":{"minAvailable":-1}},"elasticPolicy":{"minReplicas":1.5},"pytorchReplicaSpecs":{"Worker":{"replicas":2147483647,"template":[]},"Master":null}}}`))
	}
	tab := table(f)
	settings := DefaultSettings()
	f.Fuzz(func(t *testing.T, podText, ownerText []byte) {
		p, owner := &corev1.Pod{}, &unstructured.Unstructured{}
		if json.Unmarshal(podText, p) != nil || json.Unmarshal(ownerText, &owner.Object) != nil || owner.Object == nil {
			return
		}
		if _, ok := owner.Object["metadata"].(map[string]any); !ok {
			return
		}
		g, err := tab.Group(p, []Object{FromMeta(owner.GroupVersionKind(), owner, owner.Object)}, &settings)
		if err != nil {
			return
		}
		spec := &g.PodGroup.Spec
		if spec.MinMember != nil && *spec.MinMember < 0 || spec.MinSubGroup != nil && *spec.MinSubGroup < 0 || len(spec.SubGroups) > MaxSegments+3 {
			t.Fatalf("minimums %v, %v, %d subgroups", spec.MinMember, spec.MinSubGroup, len(spec.SubGroups))
		}
		for _, s := range spec.SubGroups {
			if s.MinMember != nil && *s.MinMember < 0 || s.MinSubGroup != nil && *s.MinSubGroup < 0 {
				t.Fatalf("subgroup %+v", s)
			}
		}
		_, _ = g.Members.SubGroup(p)
		_ = UpdatePatch(g.PodGroup, g.PodGroup, settings.NodePoolLabel)
		_ = PodPatch(p, g.PodGroup.Name, "s")
	})
}

// FuzzKindDefaults: the ConfigMap of defaults per kind.
func FuzzKindDefaults(f *testing.F) {
	for _, seed := range []string{`[{"typeName":"Job","group":"batch","priorityName":"build","preemptibility":"never"}]`, `[{}]`, `{}`, `[`, ``} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		kinds, err := ParseKindDefaults(text)
		if err == nil {
			for name := range kinds {
				if name == "" {
					t.Fatal("defaults of nothing")
				}
			}
		}
		_, _ = yaml.Marshal(kinds)
	})
}
