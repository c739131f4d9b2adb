package conformance

import (
	"strings"
	"testing"
)

// TestClaims plays the cases of devices by resource claim.
func TestClaims(t *testing.T) {
	dir := cases(t)
	for _, keep := range []bool{false, true} {
		r, err := Run(dir, Options{Tags: []string{"dra"}, KeepNominations: keep})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Print(&b); err != nil {
			t.Fatal(err)
		}
		if !r.OK() || r.Passed < 10 {
			t.Errorf("keep nominations %v:\n%s", keep, b.String())
		}
	}
}
