package ledgers_test

import (
	"os"
	"path/filepath"
	"regexp"
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

// TestBetter: each row of the page's table of what is better than in Volcano is shown by scenarios or tests that exist.
func TestBetter(t *testing.T) {
	t.Parallel()
	root := repositoryRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations", "volcano.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Where it is better\n")
	section, _, _ = strings.Cut(section, "\n## ")
	tests, rows := testFunctions(t, root), 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, " |")
		if len(cells) != 6 || !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| Volcano |") {
			continue
		}
		rows++
		shown := 0
		for _, name := range regexp.MustCompile("`[^`]+`").FindAllString(cells[3]+cells[4], -1) {
			name = strings.Trim(name, "`")
			if _, err := os.Stat(filepath.Join(root, "scenarios", name+".txtar")); err != nil && !tests[name] {
				t.Errorf("%s: there is no scenario and no Go test %s", cells[0], name)
			}
			shown++
		}
		if shown == 0 {
			t.Errorf("%s: nothing shows it", cells[0])
		}
		if !regexp.MustCompile(`^( [0-9]+(, [0-9]+)*)?$`).MatchString(cells[2]) {
			t.Errorf("%s: issues are %q", cells[0], cells[2])
		}
	}
	if rows < 16 {
		t.Errorf("%d rows are read", rows)
	}
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
