package workload

import (
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestKindsHaveShapes: every row has at least three golden files that begin with its kind, or with the kind under which its
// pods are found there.
func TestKindsHaveShapes(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	count := func(prefix string) (n int) {
		for _, f := range files {
			if strings.HasPrefix(filepath.Base(f), prefix) {
				n++
			}
		}
		return n
	}
	for _, r := range Kinds() {
		name := strings.ToLower(r.Kind) + "-"
		switch {
		case r.Kind == "Service":
			name = "knative-"
		case r.Kind == "SparkApplication":
			name = "spark-"
		case r.Kind == "PodGang":
			name = "pod" // podgang-, podcliqueset- and podgangset-: all of them end there
		}
		if n := count(name); n < 3 {
			t.Errorf("%s has %d golden files %s*", r.Kind, n, name)
		}
	}
	if count("spark-") < 3 || count("karta-") < 3 {
		t.Errorf("%d shapes of Spark, %d of Karta", count("spark-"), count("karta-"))
	}
}

// TestAccesses: the permissions follow from the rows, each resource once.
func TestAccesses(t *testing.T) {
	t.Parallel()
	seen := map[schema.GroupResource]string{}
	for _, a := range Accesses(Kinds()) {
		gr := schema.GroupResource{Group: a.Group, Resource: a.Resource}
		if seen[gr] != "" {
			t.Errorf("%s is there twice", gr)
		}
		seen[gr] = strings.Join(a.Verbs, ",")
	}
	for gr, want := range map[schema.GroupResource]string{
		{Resource: "pods"}: "get,list,watch",
		{Group: "kubeflow.org", Resource: "pytorchjobs"}:                  "get,list,watch",
		{Group: "serving.knative.dev", Resource: "revisions"}:             "get,list,watch",
		{Group: "scheduler.grove.io", Resource: "podgangs"}:               "get,list,watch",
		{Group: "leaderworkerset.x-k8s.io", Resource: "leaderworkersets"}: "get,list,watch",
		{Group: "run.ai", Resource: "kartas"}:                             "get,list",
	} {
		if seen[gr] != want {
			t.Errorf("%s: %q, want %q", gr, seen[gr], want)
		}
	}
	for gr := range seen { // order: each is checked
		if strings.Contains(gr.Resource, "secret") || gr.Resource == "*" {
			t.Errorf("%s is not for the podgrouper", gr)
		}
	}
}

// TestKnativePerPod: an installation may make each pod of a Knative service a gang of its own.
func TestKnativePerPod(t *testing.T) {
	t.Parallel()
	for perPod, want := range map[bool]bool{false: false, true: true} {
		settings := DefaultSettings()
		settings.KnativePerPod = perPod
		g, err := table(t).Group(podFrom(t, decode(t, []byte("metadata: {name: p, namespace: team, uid: u-p}\nkind: Pod\napiVersion: v1\n"))[0]), []Object{
			{GVK: gvk("serving.knative.dev", "v1", "Revision"), Name: "r", UID: "u-r"},
			{GVK: gvk("serving.knative.dev", "v1", "Service"), Name: "s", UID: "u-s"},
		}, &settings)
		if err != nil || g.EachPod != want {
			t.Errorf("per pod %v: each pod %v, %v", perPod, g != nil && g.EachPod, err)
		}
	}
}

// TestQueries: the part of jq that definitions may use.
func TestQueries(t *testing.T) {
	t.Parallel()
	content := map[string]any{
		"a": map[string]any{"b": int64(2), "c": []any{int64(3), int64(4)}, "d.e": "x"},
		"l": []any{map[string]any{"n": int64(1)}, map[string]any{"n": int64(5), "m": int64(2)}},
	}
	for text, want := range map[string]string{
		`.a.b`: `[2]`, `.a["d.e"]`: `["x"]`, `.a.c[1]`: `[4]`, `.a.c[]`: `[3,4]`, `.l[].n`: `[1,5]`, `.a."d.e"`: `["x"]`,
		`.l | .[] | .n`: `[1,5]`, `.none // 7`: `[7]`, `.l[] | .n * (.m // 1)`: `[1,10]`, `.a | to_entries[] | .key`: `["b","c","d.e"]`,
		`.a.c | length`: `[2]`, `.none.deeper`: `[]`, `.a.c | add`: `[7]`, `. | .a.b + 1 - 1`: `[2]`, `.a.b[]?`: `[]`, `.a.c | first`: `[3]`,
		`"text"`: `["text"]`, `.a.b / 2`: `[1]`, `.none[].x`: `[]`,
	} {
		q, err := parseQuery(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got, err := q.values(content)
		if err != nil || shown(got) != want {
			t.Errorf("%s: %s, %v; want %s", text, shown(got), err, want)
		}
	}
	for _, text := range []string{"", ".a | input", "..", ".a[", `."a`, ".a)", "(.a", ".a.b.c.", "@base64", strings.Repeat("(", 100) + "." + strings.Repeat(")", 100), strings.Repeat(".a", 600)} {
		if _, err := parseQuery(text); err == nil {
			t.Errorf("%q is understood", text)
		}
	}
	for _, text := range []string{".a + 1", ".a.b / 0", ".a.b.c", ".a.b[]", `"x" * 2`} {
		q, err := parseQuery(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := q.values(content); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
	wide, err := parseQuery(strings.Repeat(".l[] | ", 0) + ".a.c[]" + strings.Repeat(" + .a.c[]", 20))
	if err != nil {
		t.Error(err)
		wide = &query{}
	}
	if _, err := wide.values(map[string]any{"a": map[string]any{"c": []any{int64(1), int64(2), int64(3)}}}); err == nil {
		t.Error("a query may give any number of values")
	}
}
