package crds_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/volcano/crds"
)

// TestDefinitionsAreVolcanos holds our CRDs against Volcano's: all that is not meant for people is the same, but for fields of pods that Kubernetes has got since, which
// a pod's template may say.
func TestDefinitionsAreVolcanos(t *testing.T) {
	t.Parallel()
	own := map[string]any{}
	for _, file := range crds.All() {
		own[file.Name] = parse(t, file.Name, file.YAML)
	}
	theirs := map[string]any{}
	for _, path := range glob(t, "compat/volcano/crds/*.yaml") {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		theirs[filepath.Base(path)] = parse(t, path, content)
	}
	if len(theirs) != 11 {
		t.Errorf("%d CRDs to compare with, want 11", len(theirs))
	}
	for _, d := range differences("", own, theirs) {
		if newer := strings.HasSuffix(d, " is none of Volcano's") && strings.Contains(d, ".template.properties.spec.properties."); !newer {
			t.Error(d)
		}
	}
}

func parse(t *testing.T, name string, content []byte) (tree any) {
	t.Helper()
	if err := yaml.Unmarshal(content, &tree); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return tree
}

// differences lists where two trees differ, by path. What is meant for people is overlooked: descriptions, the messages of rules, and the
// name of the tool that made the file.
func differences(path string, ours, theirs any) []string {
	their, ok := theirs.(map[string]any)
	if !ok {
		ourList, _ := ours.([]any)
		theirList, ok := theirs.([]any)
		if !ok || len(ourList) != len(theirList) {
			if cmp.Equal(ours, theirs) {
				return nil
			}
			return []string{fmt.Sprintf("%s is %v, Volcano's %v", path, ours, theirs)}
		}
		var all []string
		for i := range theirList {
			all = append(all, differences(fmt.Sprintf("%s[%d]", path, i), ourList[i], theirList[i])...)
		}
		return all
	}
	our, _ := ours.(map[string]any)
	names := map[string]bool{}
	for name := range our {
		names[name] = true
	}
	for name := range their {
		names[name] = true
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := path + "." + name
		o, have := our[name]
		th, want := their[name]
		_, text := th.(string)
		if !want {
			_, text = o.(string)
		}
		switch {
		case text && (name == "description" || name == "message" || name == "controller-gen.kubebuilder.io/version"):
		case !have:
			all = append(all, at+" is missing")
		case !want:
			all = append(all, at+" is none of Volcano's")
		default:
			all = append(all, differences(at, o, th)...)
		}
	}
	return all
}

// TestDifferencesNotice: each kind of difference is found, and named by its place; what people read is none.
func TestDifferencesNotice(t *testing.T) {
	t.Parallel()
	const base = `{"spec": {"names": ["a", "b"], "properties": {"x": {"type": "string", "description": "d"}, "description": {"type": "string"}}}}`
	for _, c := range []struct{ theirs, want string }{
		{base, ""},
		{strings.Replace(base, `"d"`, `"other words"`, 1), ""},
		{strings.Replace(base, `, "description": "d"`, "", 1), ""},
		{strings.Replace(base, `"type": "string", "description"`, `"type": "integer", "description"`, 1), ".spec.properties.x.type is string, Volcano's integer"},
		{strings.Replace(base, `"x": {`, `"x": {"default": 1, `, 1), ".spec.properties.x.default is missing"},
		{strings.Replace(base, `"type": "string", "description"`, `"description"`, 1), ".spec.properties.x.type is none of Volcano's"},
		{strings.Replace(base, `, "description": {"type": "string"}`, "", 1), ".spec.properties.description is none of Volcano's"},
		{strings.Replace(base, `"b"]`, `"c"]`, 1), ".spec.names[1] is b, Volcano's c"},
		{strings.Replace(base, `"a", `, ``, 1), ".spec.names is [a b], Volcano's [b]"},
	} {
		got := differences("", parse(t, "base", []byte(base)), parse(t, "theirs", []byte(c.theirs)))
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s:\ngot  %q\nwant %q", c.theirs, got, c.want)
		}
	}
}

// glob lists files of the compatibility data, which lies beside the checkout. A test without it is skipped.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 7 {
		if files, _ := filepath.Glob(filepath.Join(at, "shared", filepath.FromSlash(pattern))); len(files) > 0 {
			return files
		}
		at = filepath.Dir(at)
	}
	t.Skipf("compatibility data shared/%s is not beside this checkout: nothing to compare with", pattern)
	return nil
}
