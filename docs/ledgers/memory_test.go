package ledgers_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestMemoryIsOnThePage: of everything that a Store knows beyond what objects say, the page on disruption says what a restart leaves of
// it. Whoever adds a field adds a row.
func TestMemoryIsOnThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(repositoryRoot(t), "docs", "concepts", "disruption.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(text), "## After a restart")
	page, _, _ = strings.Cut(page, "\n## ")
	rows := map[string]string{
		"Memory.Holds":      "room that is held",
		"Memory.Gangs":      "earlier evictions of the gang",
		"Memory.Held":       "since when a pod has held its room",
		"Memory.Moved":      "that a fair share has moved",
		"Memory.Answers":    "remembered answers",
		"Memory.Generation": "remembered answers", // how old they are
		"Memory.Charged":    "whom a pod is charged to",
		"Memory.Returning":  "that a pod that goes was evicted and is made anew",
		"Memory.Frozen":     "what gave a frozen pair away, and the freeze",
		"Memory.News":       "that the cluster has changed by itself",
		"Memory.Served":     "whose [turn]",
		"Memory.Gone":       "that it was we who evicted a pod",

		"GangHistory.Displaced":     "when pods of a gang were last evicted",
		"GangHistory.Since":         "for whom they were evicted",
		"GangHistory.Displacements": "for whom they were evicted",
		"GangHistory.Started":       "when it started",
		"GangHistory.Evicted":       "when pods of a gang were last evicted",
		"GangHistory.Stale":         "since when a gang is stale",
		"GangHistory.Admitted":      "that a gang was admitted",
		"GangMemory.LastStart":      "by a clock that has been set back since",
		"GangMemory.LastEviction":   "by a clock that has been set back since",

		"Memory.Postponed": "back-off of a pod whose bind failed",
	}
	fields := 0
	for _, of := range []reflect.Type{reflect.TypeFor[cluster.Memory](), reflect.TypeFor[cluster.GangMemory](), reflect.TypeFor[cluster.GangHistory]()} {
		for i := range of.NumField() {
			if f := of.Field(i); f.Anonymous || f.Type == reflect.TypeFor[cluster.Key]() {
				continue // its fields are looked at; whose it is
			}
			fields++
			name := of.Name() + "." + of.Field(i).Name
			if rows[name] == "" {
				t.Errorf("nothing is said of what becomes of %s", name)
			}
		}
	}
	if fields != len(rows) {
		t.Errorf("%d fields, %d rows", fields, len(rows))
	}
	for name, row := range rows { // order: each on its own
		found := false
		for line := range strings.Lines(page) {
			first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
			found = found || strings.HasPrefix(line, "|") && strings.Contains(first, row)
		}
		if !found {
			t.Errorf("%s: no row about %q", name, row)
		}
	}
}
