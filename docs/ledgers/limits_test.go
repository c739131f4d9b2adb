package ledgers_test

import (
	"os"
	"path/filepath"
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
	tests, rows := testFunctions(t, root), 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 || strings.HasPrefix(cells[1], "---") || strings.TrimSpace(cells[1]) == "what" {
			continue
		}
		rows++
		proven(t, tests, cells[1], cells[4])
	}
	if rows < 15 {
		t.Errorf("only %d rows are understood", rows)
	}
}
