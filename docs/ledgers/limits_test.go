package ledgers_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLimits holds the table of docs/operations/limits.md against the tree: each row names tests that there are.
func TestLimits(t *testing.T) {
	t.Parallel()
	root := repositoryRoot(t)
	text, err := os.ReadFile(filepath.Join(root, "docs", "operations", "limits.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, named, rows := testFunctions(t, root), regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`"), 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "what" {
			continue
		}
		rows++
		found := named.FindAllStringSubmatch(cells[4], -1)
		if len(found) == 0 {
			t.Errorf("%s: no test", strings.TrimSpace(cells[1]))
		}
		for _, name := range found {
			if !tests[name[1]] {
				t.Errorf("%s: there is no %s", strings.TrimSpace(cells[1]), name[1])
			}
		}
	}
	if rows < 15 {
		t.Errorf("only %d rows are understood", rows)
	}
}
