package crds

import (
	"embed"
	"fmt"
)

//go:embed *.yaml
var files embed.FS

// File is one CustomResourceDefinition.
type File struct {
	// Name is the file's name, GROUP_PLURAL.yaml.
	Name string

	// YAML is one document of apiextensions.k8s.io/v1. The slice is the caller's own.
	YAML []byte
}

// All returns every CustomResourceDefinition, sorted by file name.
func All() []File {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(fmt.Sprintf("embedded CRDs cannot be listed: %v", err))
	}
	all := make([]File, 0, len(entries))
	for _, entry := range entries {
		content, err := files.ReadFile(entry.Name())
		if err != nil {
			panic(fmt.Sprintf("embedded CRD %s cannot be read: %v", entry.Name(), err))
		}
		all = append(all, File{Name: entry.Name(), YAML: content})
	}
	return all
}

// Documents returns what All returns without the names, for installers that want YAML documents.
func Documents() [][]byte {
	all := All()
	documents := make([][]byte, len(all))
	for i, file := range all {
		documents[i] = file.YAML
	}
	return documents
}

// YAML returns the CustomResourceDefinition of one resource, for instance scheduling.run.ai and queues. The error says
// that there is none.
func YAML(group, plural string) ([]byte, error) {
	content, err := files.ReadFile(group + "_" + plural + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("no CustomResourceDefinition for %s.%s: %w", plural, group, err)
	}
	return content, nil
}
