package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestAbsent: where the cases do not lie beside the checkout, what plays them is skipped aloud, and CI says what was not checked.
func TestAbsent(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ci, err := filepath.Abs("../.ci/unchecked")
	if err != nil {
		t.Fatal(err)
	}
	say := func(name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(name), err)
		}
		return string(out)
	}
	for _, test := range []string{"TestAllRun", "TestAllocate", "TestDisruption", "TestPlacement", "TestClaims", "TestSlices", "TestZones"} {
		if out := say(self, "-test.v", "-test.run=^"+test+"$"); !strings.Contains(out, "--- SKIP: "+test) || !strings.Contains(out, "nothing to compare with") {
			t.Errorf("%s without its cases: %s", test, out)
		}
	}
	told := say(ci)
	for _, folder := range []string{
		"conformance", "compat/kai/crds", "compat/kai/examples",
		"compat/volcano/crds", "compat/volcano/examples", "compat/volcano/takeover", "compat/volcano/values-keys.txt",
	} {
		if !strings.Contains(told, "there is no shared/"+folder+" beside") {
			t.Errorf("CI does not say that shared/%s is not there: %s", folder, told)
		}
	}
}
