package crds_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
)

// schema is one node of an OpenAPI schema, as plain JSON data, so that no keyword can be overlooked.
type schema map[string]any

// child is a node's successor and the path element that leads to it: .name, [] or {}.
type child struct {
	step   string
	schema schema
}

// children lists a node's successors in a fixed order.
func (s schema) children() []child {
	var all []child
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			all = append(all, child{"." + name, properties[name].(map[string]any)})
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		all = append(all, child{"[]", items})
	}
	if values, ok := s["additionalProperties"].(map[string]any); ok {
		all = append(all, child{"{}", values})
	}
	return all
}

// definition is one CRD, typed and as data.
type definition struct {
	typed  apiextensions.CustomResourceDefinition
	schema schema
}

func parseDefinition(t *testing.T, name string, content []byte) definition {
	t.Helper()
	var d definition
	if err := yaml.UnmarshalStrict(content, &d.typed); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(d.typed.Spec.Versions) != 1 {
		t.Fatalf("%s: %d versions, want 1", name, len(d.typed.Spec.Versions))
	}
	raw, err := json.Marshal(d.typed.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if err := json.Unmarshal(raw, &d.schema); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return d
}

// ownDefinitions returns our CRDs by name.
func ownDefinitions(t *testing.T) map[string]definition {
	t.Helper()
	all := map[string]definition{}
	for _, file := range crds.All() {
		d := parseDefinition(t, file.Name, file.YAML)
		all[d.typed.Name] = d
	}
	return all
}

// kaiDefinitions returns KAI's CRDs by name, or none when the folder of compatibility data is not beside the checkout.
func kaiDefinitions(t *testing.T) map[string]definition {
	t.Helper()
	folder := sharedFolder(t, "compat/kai/crds")
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs in %s (%v)", folder, err)
	}
	all := map[string]definition{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		d := parseDefinition(t, filepath.Base(file), content)
		all[d.typed.Name] = d
	}
	return all
}

// sharedFolder finds a folder of the compatibility data, which lies beside the checkout. A test without it is
// skipped.
func sharedFolder(t *testing.T, name string) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 7 {
		folder := filepath.Join(at, "shared", filepath.FromSlash(name))
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return folder
		}
		at = filepath.Dir(at)
	}
	t.Skipf("compatibility data shared/%s is not beside this checkout: nothing to compare with", name)
	return ""
}
