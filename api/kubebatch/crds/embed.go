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
