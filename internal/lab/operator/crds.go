package operator

import (
	"embed"
	"fmt"
)

//go:embed crds/*.yaml
var crdFiles embed.FS

// CRDs returns the real CustomResourceDefinitions, as YAML, of the kinds of the Table that come with the lab; those
// of the others have to be brought along. See crds/README.md for where they are from.
func CRDs() [][]byte {
	entries, err := crdFiles.ReadDir("crds")
	if err != nil {
		panic(fmt.Sprintf("the embedded CRDs cannot be listed: %v", err))
	}
	var docs [][]byte
	for _, e := range entries {
		b, err := crdFiles.ReadFile("crds/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("the embedded CRD %s cannot be read: %v", e.Name(), err))
		}
		docs = append(docs, b)
	}
	return docs
}
