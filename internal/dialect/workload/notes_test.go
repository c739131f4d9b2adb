package workload

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

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

// TestNotesSayWhetherAllIsKept: whoever is told that all is kept has what would be kept.
func TestNotesSayWhetherAllIsKept(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := map[string]string{}
		for range rapid.IntRange(0, 8).Draw(t, "annotations") {
			key := rapid.SampledFrom([]string{
				"a", "b", "c", "d", keys.MIGResourcePrefix + "1g", keys.MIGResourcePrefix + "2g", keys.MIGResourcePrefix + "3g", keys.MIGResourcePrefix + "4g", keys.MIGResourcePrefix + "5g",
				keys.User, keys.PodGroupAnnotation, corev1.LastAppliedConfigAnnotation,
			}).Draw(t, "key")
			all[key] = strings.Repeat("x", rapid.SampledFrom([]int{0, 1, 40, mostOfNote - 30, mostOfNote, mostOfNote + 1}).Draw(t, "length"))
		}
		others := rapid.SampledFrom([]int{0, 1, 42, 2 * mostOfNote, OtherNotes}).Draw(t, "others")
		before, want := maps.Clone(all), cut(all, others)
		kept, less := Notes(all, others)
		if !maps.Equal(kept, want) || less == maps.Equal(all, want) || !maps.Equal(all, before) {
			t.Errorf("kept %d of %d, less %v, want %d", len(kept), len(all), less, len(want))
		}
	})
}
