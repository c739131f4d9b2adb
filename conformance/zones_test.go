package conformance

import (
	"strings"
	"testing"
)

// TestZones plays every case in which nodes tell of their NUMA zones.
func TestZones(t *testing.T) {
	dir := cases(t)
	for _, keep := range []bool{false, true} {
		r, err := Run(dir, Options{Tags: []string{"numa"}, KeepNominations: keep})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil {
			t.Fatal(err)
		}
		if !r.OK() || r.Total != 9 || r.Passed != 9 {
			t.Errorf("keep nominations %v:\n%s", keep, b.String())
		}
	}
}
