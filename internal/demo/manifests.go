package demo

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

//go:embed manifests/*.yaml
var manifests embed.FS

// sizes are the numbers of a story on a cluster of that many nodes; the manifests are templates over them.
type sizes struct {
	// Nodes of the cluster, and GPUs of each.
	Nodes, PerNode int
}

// eighth is what each team owns, in nodes.
func (s sizes) eighth() int { return s.Nodes / 8 }

// GPUs is how many GPUs n eighths of the cluster have.
func (s sizes) GPUs(n int) int { return n * s.eighth() * s.PerNode }

// Workers of a PyTorchJob that fills one team's quota together with its master.
func (s sizes) Workers() int { return s.eighth() - 1 }

// TooMany is a number of whole nodes that the cluster does not have.
func (s sizes) TooMany() int { return s.Nodes + 1 }

// Rest is how many nodes are left beside one such PyTorchJob.
func (s sizes) Rest() int { return s.Nodes - s.eighth() }

// Share is how many nodes are the fair share of team vision, in whole nodes, when all but one eighth is divided 3:1 beyond
// quotas of an eighth each: 1 + 3/4 of 5 eighths.
func (s sizes) Share() int { return 19 * s.eighth() / 4 }

// Eighths is how many GPUs n eighths of a node have.
func (s sizes) Eighths(n int) int { return n * s.PerNode / 8 }

// render fills in the manifest of a name, writes it into dir, where its reader finds it, and returns its objects.
func render(name, dir string, s sizes) ([]*unstructured.Unstructured, error) {
	t, err := template.ParseFS(manifests, "manifests/"+name+".yaml")
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", name, err)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, s); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", name, err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".yaml"), text.Bytes(), 0o644); err != nil {
		return nil, fmt.Errorf("manifest %s: %w", name, err)
	}
	var objects []*unstructured.Unstructured
	for i, doc := range bytes.Split(text.Bytes(), []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict(doc, &o.Object); err != nil {
			return nil, fmt.Errorf("manifest %s, object %d: %w", name, i, err)
		}
		if o.GetNamespace() == "" && namespaced(o.GetKind()) {
			o.SetNamespace(namespace)
		}
		objects = append(objects, o)
	}
	return objects, nil
}

// namespace is where the demo's work is.
const namespace = "default"

func namespaced(kind string) bool {
	return kind != "Queue" && kind != "PriorityClass" && kind != "Namespace"
}
