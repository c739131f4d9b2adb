package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FuzzGroup: whatever stands in a workload's fields, annotations and labels, its pods get a group or an Invalid error, and
// the same twice.
func FuzzGroup(f *testing.F) {
	tab, err := NewTable(Kinds())
	if err != nil {
		f.Fatal(err)
	}
	rows := Kinds()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d golden files: %v", len(files), err)
	}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, u := range decode(f, section(txtar.Parse(text), "in").Data) {
			raw, err := json.Marshal(u.Object)
			if err != nil {
				f.Fatal(err)
			}
			for k := range rows {
				if rows[k].Kind == u.GetKind() {
					f.Add(k, raw, "worker", fmt.Sprint(i%3))
				}
			}
		}
	}
	f.Add(0, []byte(`{"spec":null}`), "", "-1")
	f.Fuzz(func(t *testing.T, row int, raw []byte, value, index string) {
		var content map[string]any
		if json.Unmarshal(raw, &content) != nil || content == nil {
			return
		}
		rule := &rows[((row%len(rows))+len(rows))%len(rows)]
		version := "v1"
		if len(rule.Versions) > 0 {
			version = rule.Versions[0]
		}
		owner := Object{
			GVK:       schema.GroupVersionKind{Group: rule.Group, Version: version, Kind: rule.Kind},
			Namespace: "team", Name: "w", UID: "u", Content: content,
			Labels: stringsAt(content, "metadata.labels"), Annotations: stringsAt(content, "metadata.annotations"),
		}
		owners := []Object{owner}
		if rule.Facts.Kind != "" && rule.Facts.Kind != rule.Kind {
			below := owner
			below.GVK, below.UID = rule.Facts.WithVersion(version), "below"
			owners = []Object{below, owner}
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: value, UID: "p", Annotations: owner.Annotations,
			Labels: map[string]string{
				kubeflowReplicaType: value, kubeflowReplicaIndex: index, rayGroup: value, jobSetReplicatedJob: value, jobSetJobIndex: index,
				lwsGroupIndex: index, lwsWorkerIndex: index, grovePodClique: value, sparkAppSelector: value, sparkAppName: value,
			},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: owner.GVK.GroupVersion().String(), Kind: owner.GVK.Kind, Name: "w", UID: "u"}},
		}}
		settings := DefaultSettings()
		if d, err := ParseDefinition(content); err == nil && d != nil {
			settings.Definition = func(schema.GroupVersionKind) *Definition { return d }
		} else if err != nil && !errors.As(err, new(*Invalid)) {
			t.Fatalf("error %v is no *Invalid", err)
		}
		if i := tab.Content(pod, owners, settings.Definition); i >= len(owners) {
			t.Fatalf("wants the content of owner %d of %d", i, len(owners))
		}
		tab.Part(pod)
		tab.Decisive(pod)
		var texts [2]string
		for i := range texts {
			g, err := tab.Group(pod, owners, &settings)
			if err != nil {
				if !errors.As(err, new(*Invalid)) {
					t.Fatalf("error %v is no *Invalid", err)
				}
				texts[i] = err.Error()
				continue
			}
			if len(g.PodGroup.Name) > maxName {
				t.Fatalf("a name of %d characters", len(g.PodGroup.Name))
			}
			part, err := g.Members.SubGroup(pod)
			if err != nil && !errors.As(err, new(*Invalid)) {
				t.Fatalf("error %v is no *Invalid", err)
			}
			group, err := json.Marshal(g.PodGroup)
			if err != nil {
				t.Fatal(err)
			}
			texts[i] = string(group) + part
		}
		if texts[0] != texts[1] {
			t.Fatalf("first\n%s\nthen\n%s", texts[0], texts[1])
		}
	})
}
