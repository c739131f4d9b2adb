package dialecttest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Object is one YAML document of a golden file.
type Object struct {
	Kind string
	data []byte
}

// Into reads the document into a typed object. Unknown fields are errors, so that a misspelt test says so.
func (o Object) Into(t *testing.T, typed any) {
	t.Helper()
	if err := yaml.UnmarshalStrict(o.data, typed); err != nil {
		t.Fatalf("%s: %v\n%s", o.Kind, err, o.data)
	}
}

// Golden runs translate over the objects of every testdata/*.txtar of the calling package, and compares the text it
// returns with the file's want section.
func Golden(t *testing.T, translate func(t *testing.T, objects []Object) string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	update := updating()
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var objects []Object
			want := -1
			for i, f := range archive.Files {
				switch f.Name {
				case "objects":
					objects = append(objects, split(t, f.Data)...)
				case "want":
					want = i
				default:
					t.Fatalf("unknown section %q", f.Name)
				}
			}
			got := translate(t, objects)
			if update {
				if want < 0 {
					archive.Files = append(archive.Files, txtar.File{Name: "want"})
					want = len(archive.Files) - 1
				}
				archive.Files[want].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want < 0 {
				t.Fatalf("no want section; run with -update. Got:\n%s", got)
			}
			if diff := cmp.Diff(string(archive.Files[want].Data), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// updating reads the flag -update, which the calling test package declares.
func updating() bool {
	f := flag.Lookup("update")
	return f != nil && f.Value.String() == "true"
}

func split(t *testing.T, data []byte) []Object {
	t.Helper()
	var out []Object
	for _, doc := range bytes.Split(data, []byte("\n---\n")) {
		if len(bytes.TrimSpace(doc)) == 0 {
			continue
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &meta); err != nil {
			t.Fatal(err)
		}
		out = append(out, Object{Kind: meta.Kind, data: doc})
	}
	return out
}

// Text prints a value as YAML without its zero fields, under a heading. Phases are printed by name.
func Text(t *testing.T, heading string, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var plain any
	if err := json.Unmarshal(raw, &plain); err != nil {
		t.Fatal(err)
	}
	if st, ok := v.(cluster.PodState); ok {
		plain.(map[string]any)["Phase"] = st.Phase.String()
	}
	text, err := yaml.Marshal(prune(plain))
	if err != nil {
		t.Fatal(err)
	}
	return heading + "\n" + indent(string(text))
}

func indent(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString("  " + line)
	}
	return b.String()
}

// prune removes what is zero, at every depth; entries of lists stay.
func prune(v any) any {
	switch x := v.(type) {
	case map[string]any:
		for k, e := range x { // order: each entry on its own
			if e = prune(e); e == nil {
				delete(x, k)
			} else {
				x[k] = e
			}
		}
		if len(x) == 0 {
			return nil
		}
		return x
	case []any:
		if len(x) == 0 {
			return nil
		}
		for i := range x {
			if p := prune(x[i]); p != nil {
				x[i] = p
			} else if _, isMap := x[i].(map[string]any); isMap {
				x[i] = map[string]any{}
			}
		}
		return x
	case string:
		if x == "" {
			return nil
		}
	case bool:
		if !x {
			return nil
		}
	case float64:
		if x == 0 {
			return nil
		}
	}
	return v
}
