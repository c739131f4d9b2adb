package conformance

import (
	"strings"
	"testing"
)

// TestSlices runs the cases about slices of GPUs.
func TestSlices(t *testing.T) {
	dir := cases(t)
	for _, keep := range []bool{false, true} {
		r, err := Run(dir, Options{Tags: []string{"mig"}, KeepNominations: keep})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil {
			t.Fatal(err)
		}
		if !r.OK() || r.Passed < 22 {
			t.Errorf("keep nominations %v:\n%s", keep, b.String())
		} else {
			t.Logf("keep nominations %v: %s", keep, b.String())
		}
	}
}
