// Command generate writes what the chart has from elsewhere into it: the CRDs of api/crds, and the operator's rules of
// internal/install. It is run in deploy/chart, by go generate.
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/muster-scheduler/muster/deploy/chart"
)

func main() {
	generated, err := chart.Generated()
	for name, text := range generated { // order: each its own file
		if err == nil {
			err = os.WriteFile(filepath.Join("muster", name), text, 0o644)
		}
	}
	if err == nil {
		err = removeOthers(generated)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate the chart:", err)
		os.Exit(1)
	}
}

// removeOthers removes the CRDs that are no more.
func removeOthers(generated map[string][]byte) error {
	return fs.WalkDir(os.DirFS("muster"), "crds", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || generated[path] != nil {
			return err
		}
		return os.Remove(filepath.Join("muster", path))
	})
}
