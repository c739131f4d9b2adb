package workload

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what the code gives into the golden files")

func table(t testing.TB) *Table {
	t.Helper()
	out, err := NewTable(Kinds())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// decode splits YAML documents and decodes each as the API server would send it.
func decode(t testing.TB, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for i, doc := range bytes.Split(append([]byte("\n"), text...), []byte("\n---\n")) {
		raw, err := yaml.YAMLToJSON(doc)
		if err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
		if string(raw) == "null" {
			continue
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			t.Fatalf("document %d: %v", i, err)
		}
		out = append(out, u)
	}
	return out
}

func podFrom(t testing.TB, u *unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// outcome renders what happens to each pod: its PodGroup the first time that one appears, the patch, warnings, errors.
func outcome(t testing.TB, objects []*unstructured.Unstructured, settings *Settings) string {
	t.Helper()
	byUID := map[types.UID]*unstructured.Unstructured{}
	definitions := map[schema.GroupVersionKind]*Definition{}
	for _, u := range objects {
		byUID[u.GetUID()] = u
		if u.GetKind() != DefinitionKind.Kind {
			continue
		}
		d, err := ParseDefinition(u.Object)
		if err != nil {
			return fmt.Sprintf("error: %s\n", err)
		}
		definitions[d.Kind] = d
	}
	settings.Definition = func(kind schema.GroupVersionKind) *Definition { return definitions[kind] }
	// Pods come one by one: each sees itself and those before it.
	var there []*corev1.Pod
	settings.Peers = func(namespace string, matches labels.Selector) (out []*corev1.Pod) {
		for _, p := range there {
			if p.Namespace == namespace && matches.Matches(labels.Set(p.Labels)) {
				out = append(out, p)
			}
		}
		return out
	}
	var out strings.Builder
	shown := map[string]string{}
	for _, u := range objects {
		if u.GetKind() != "Pod" {
			continue
		}
		pod := podFrom(t, u)
		var owners []Object
		for refs := pod.OwnerReferences; len(refs) > 0; {
			o := byUID[refs[0].UID]
			if o == nil || len(owners) > 8 {
				t.Fatalf("no object has UID %q", refs[0].UID)
			}
			owners = append(owners, FromMeta(o.GroupVersionKind(), o, nil))
			refs = o.GetOwnerReferences()
		}
		there = append(there, pod)
		fmt.Fprintf(&out, "# pod %s\n", pod.Name)
		g, err := groupOf(t, pod, owners, objects, settings)
		if err != nil {
			if !errors.As(err, new(*Invalid)) {
				t.Errorf("error %v is no *Invalid", err)
			}
			fmt.Fprintf(&out, "error: %s\n", err)
			continue
		}
		for _, w := range g.Warnings {
			fmt.Fprintf(&out, "warning: %s\n", w)
		}
		if g.EachPod {
			fmt.Fprintln(&out, "group: of this pod alone")
		}
		raw, err := yaml.Marshal(struct {
			Metadata any `json:"metadata"`
			Spec     any `json:"spec"`
		}{g.PodGroup.ObjectMeta, g.PodGroup.Spec})
		if err != nil {
			t.Fatal(err)
		}
		if text := string(raw); shown[g.PodGroup.Name] != text {
			shown[g.PodGroup.Name] = text
			out.WriteString(text)
		}
		subgroup, err := g.Members.SubGroup(pod)
		if err != nil {
			fmt.Fprintf(&out, "error: %s\n", err)
			continue
		}
		fmt.Fprintf(&out, "patch: %s\n", PodPatch(pod, g.PodGroup.Name, subgroup))
		if existing := g.PodGroup.DeepCopy(); UpdatePatch(existing, g.PodGroup, settings.NodePoolLabel) != nil {
			t.Errorf("group %s asks to be changed although it is as wanted", existing.Name)
		}
	}
	return out.String()
}

// groupOf does what the role does: it adds the object that the pod names, and reads whole what has to be.
func groupOf(t testing.TB, pod *corev1.Pod, owners []Object, objects []*unstructured.Unstructured, settings *Settings) (*Grouping, error) {
	t.Helper()
	tab := table(t)
	kind, name, ok, err := tab.Named(pod, owners)
	if err != nil {
		return nil, err
	}
	if ok {
		for _, u := range objects {
			if u.GroupVersionKind() == kind && u.GetName() == name {
				owners = append(owners, FromMeta(kind, u, nil))
			}
		}
	}
	if i := tab.Content(pod, owners, settings.Definition); i >= 0 {
		for _, u := range objects {
			if u.GetUID() == owners[i].UID {
				owners[i].Content = u.Object
			}
		}
	}
	return tab.Group(pod, owners, settings)
}

func settingsFrom(t *testing.T, text []byte) *Settings {
	t.Helper()
	var in struct {
		PriorityClasses []string `json:"priorityClasses"`
		Kinds           string   `json:"kinds"`
		KnativePerPod   bool     `json:"knativePerPod"`
	}
	if err := yaml.UnmarshalStrict(text, &in); err != nil {
		t.Fatal(err)
	}
	s := DefaultSettings()
	s.KnativePerPod = in.KnativePerPod
	if in.PriorityClasses != nil {
		s.PriorityClassExists = func(name string) bool { return slices.Contains(in.PriorityClasses, name) }
	}
	if in.Kinds != "" {
		var err error
		if s.Kinds, err = ParseKindDefaults(in.Kinds); err != nil {
			t.Fatal(err)
		}
	}
	return &s
}

func section(a *txtar.Archive, name string) *txtar.File {
	for i := range a.Files {
		if a.Files[i].Name == name {
			return &a.Files[i]
		}
	}
	return &txtar.File{}
}

// TestGolden compares, for owners and pods as their controllers make them, the groups and patches with those on file.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 30 {
		t.Fatalf("found %d golden files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := outcome(t, decode(t, section(a, "in").Data), settingsFrom(t, section(a, "settings").Data))
			want := section(a, "want")
			if *update {
				want.Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if d := cmp.Diff(string(want.Data), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}
