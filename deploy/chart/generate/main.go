// Command generate writes what the chart has from elsewhere into it: the CRDs of api/crds, the operator's rules of internal/install,
// what Kubernetes may lack of internal/kube/served, and the alerts and dashboards of internal/monitoring. It is run in deploy/chart, by go generate.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/muster-scheduler/muster/deploy/chart"
)

func main() {
	generated, err := chart.Generated()
	for name, text := range generated { // order: each its own file
		path := filepath.Join("muster", name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, text, 0o644)
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

// removeOthers removes what is of nothing any more.
func removeOthers(generated map[string][]byte) error {
	for _, pattern := range chart.GeneratedOnly() {
		there, err := filepath.Glob(filepath.Join("muster", pattern))
		if err != nil {
			return err
		}
		for _, path := range there {
			name, err := filepath.Rel("muster", path)
			if err == nil && generated[filepath.ToSlash(name)] == nil {
				err = os.Remove(path)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
