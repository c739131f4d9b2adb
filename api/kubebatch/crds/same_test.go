package crds_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	extv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/kubebatch/crds"
)

// kept are the fields that kube-batch's definitions do not name, and that an API server which took them kept all the same.
var kept = []string{
	"spec.capability", "spec.capability[]", "status.conditions", "status.conditions[].lastTransitionTime", "status.conditions[].message", "status.conditions[].reason",
	"status.conditions[].status", "status.conditions[].transitionID", "status.conditions[].type", "status.phase",
}

// TestDefinitionsAreKubeBatchs holds our CRDs against kube-batch's own (testdata): names, scope, version and subresources are the same, and so are type and format of every field; what is
// said besides is what kube-batch writes and reads without its definitions naming it. The API server takes a group of this name only with a word of approval.
func TestDefinitionsAreKubeBatchs(t *testing.T) {
	t.Parallel()
	ours := map[string]*extv1.CustomResourceDefinition{}
	for _, f := range crds.All() {
		o := &extv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(f.YAML, o); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		ours[o.Name] = o
		if _, approved := o.Annotations[extv1beta1.KubeAPIApprovedAnnotation]; approved != strings.HasSuffix(o.Spec.Group, ".k8s.io") {
			t.Errorf("%s: approved %v", o.Name, approved)
		}
	}
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) != len(ours) {
		t.Errorf("%d definitions, and %d to compare with: %v", len(ours), len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		theirs := &extv1beta1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, theirs); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		o := ours[theirs.Name]
		if o == nil {
			t.Errorf("%s is missing", theirs.Name)
			continue
		}
		n, v := &o.Spec.Names, &o.Spec.Versions[0]
		if o.Spec.Group != theirs.Spec.Group || n.Kind != theirs.Spec.Names.Kind || n.Plural != theirs.Spec.Names.Plural || string(o.Spec.Scope) != string(theirs.Spec.Scope) ||
			len(o.Spec.Versions) != 1 || v.Name != theirs.Spec.Version || !v.Served || !v.Storage || v.Subresources == nil || v.Subresources.Status == nil || theirs.Spec.Subresources.Status == nil {
			t.Errorf("%s: ours is of %s/%s, %s %s, theirs of %s/%s, %s %s", o.Name, o.Spec.Group, v.Name, n.Kind, o.Spec.Scope, theirs.Spec.Group, theirs.Spec.Version, theirs.Spec.Names.Kind, theirs.Spec.Scope)
		}
		is, want := map[string]string{}, map[string]string{}
		fields(generic(t, v.Schema.OpenAPIV3Schema), "", is)
		fields(generic(t, theirs.Spec.Validation.OpenAPIV3Schema), "", want)
		maps.DeleteFunc(is, func(field, _ string) bool { return slices.Contains(kept, field) })
		if d := cmp.Diff(want, is); d != "" {
			t.Errorf("%s (-theirs +ours):\n%s", o.Name, d)
		}
	}
}

func generic(t *testing.T, schema any) (out map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(schema)
	if err == nil {
		err = yaml.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fields collects type and format of every field below a schema, by path.
func fields(schema map[string]any, at string, out map[string]string) {
	if at != "" {
		kind, _ := schema["type"].(string)
		format, _ := schema["format"].(string)
		out[at] = strings.TrimSpace(kind + " " + format)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, below := range properties { // order: the result is a map
		fields(below.(map[string]any), strings.TrimPrefix(at+"."+name, "."), out)
	}
	for _, many := range []string{"items", "additionalProperties"} {
		if below, ok := schema[many].(map[string]any); ok {
			fields(below, at+"[]", out)
		}
	}
	delete(out, "status.conditions[]")
}
