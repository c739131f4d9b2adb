// Package starter is what a person's lab begins with, so that there is something to do in it: a tree of queues, priority classes, and
// manifests of work to try. Labs of tests begin without.
package starter

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var files embed.FS

// Sizes are what queues and examples are made for.
type Sizes struct {
	// Nodes is how many nodes the lab has, PerNode how many GPUs the largest of them has, and GPUs how many all have.
	Nodes, PerNode, GPUs int
}

// Half is half of the GPUs, rounded down.
func (s Sizes) Half() int { return s.GPUs / 2 }

// TooMany is a number of whole nodes that the lab does not have.
func (s Sizes) TooMany() int { return s.Nodes + 1 }

// Examples are the names of the manifests that Write writes.
func Examples() []string { return []string{"train.yaml", "resnet.yaml", "large.yaml"} }

// Objects returns the queues, priority classes, and the control plane's namespace. None of them is in a namespace.
func Objects(s Sizes) ([]*unstructured.Unstructured, error) {
	text, err := render("starter.yaml", s)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, doc := range bytes.Split(text, []byte("\n---\n")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(doc, &o.Object); err != nil {
			return nil, fmt.Errorf("what the lab begins with: %w", err)
		}
		out = append(out, o)
	}
	return out, nil
}

// Write writes the examples into a folder, which it makes, in the place of those that are there.
func Write(dir string, s Sizes) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the examples: %w", err)
	}
	for _, name := range Examples() {
		text, err := render(name, s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("write the examples: %w", err)
		}
	}
	return nil
}

func render(name string, s Sizes) ([]byte, error) {
	t, err := template.ParseFS(files, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var text bytes.Buffer
	if err := t.Execute(&text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return text.Bytes(), nil
}
