package ledgers_test

import (
	"path/filepath"
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
	checkDifferences(t, all, testFunctions(t, repositoryRoot(t)))
}

// TestKubeBatchsLedger: the same of kube-batch, where scenarios show it too.
func TestKubeBatchsLedger(t *testing.T) {
	t.Parallel()
	all, err := ledgers.KubeBatch()
	if err != nil {
		t.Fatal(err)
	}
	shown := testFunctions(t, repositoryRoot(t))
	files, err := filepath.Glob(filepath.Join(repositoryRoot(t), "scenarios", "kubebatch-*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		shown[strings.TrimSuffix(filepath.Base(file), ".txtar")] = true
	}
	checkDifferences(t, all, shown)
}

func checkDifferences(t *testing.T, all map[string][]ledgers.VolcanoRow, tests map[string]bool) {
	t.Helper()
	if len(all) == 0 {
		t.Error("there are no rows")
	}
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
					t.Errorf("%s: %q: nothing is called %s", part, r.What, name)
				}
			}
		}
	}
}
