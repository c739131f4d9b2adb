package install

import (
	"slices"
	"testing"

	kinds "github.com/muster-scheduler/muster/internal/dialect/workload"
)

// TestWorkloadsCanBeRead: the podgrouper may read whatever owners the table of kinds leads to.
func TestWorkloadsCanBeRead(t *testing.T) {
	t.Parallel()
	for _, a := range kinds.Accesses(kinds.Kinds()) {
		if a.Group == "" && a.Resource == "pods" {
			continue // its own subject, granted apart
		}
		for _, verb := range a.Verbs {
			granted := false
			for _, r := range workloads() {
				granted = granted || slices.Contains(r.APIGroups, a.Group) && slices.Contains(r.Resources, a.Resource) && slices.Contains(r.Verbs, verb)
			}
			if !granted {
				t.Errorf("%s of %s.%s is not granted", verb, a.Resource, a.Group)
			}
		}
	}
}
