package ledgers_test

import (
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/docs/ledgers"
)

// TestVolcano: every difference from Volcano has a reason, and the tests that show it exist.
func TestVolcano(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Volcano()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("there are no rows")
	}
	tests := testFunctions(t, repositoryRoot(t))
	for part, rows := range all { // order: each by itself
		for _, r := range rows {
			if len(strings.Fields(r.What)) < 5 || len(strings.Fields(r.Why)) < 3 {
				t.Errorf("%s: %q, because %q: that says too little", part, r.What, r.Why)
			}
			if len(r.Shown) == 0 && !r.Planned {
				t.Errorf("%s: %q: nothing shows it", part, r.What)
			}
			for _, name := range r.Shown {
				if !tests[name] {
					t.Errorf("%s: %q: there is no Go test %s", part, r.What, name)
				}
			}
		}
	}
}
