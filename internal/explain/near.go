package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/spelling"
)

// Near is the end of a sentence about a name that is nobody's: up to three names of among that were perhaps meant, else how many there are; "" where there are none.
// O(names).
func Near(name string, among []string) string {
	type candidate struct {
		name     string
		distance int
	}
	var found []candidate
	for _, c := range among {
		d := spelling.Distance(name, c)
		if strings.Contains(c, name) {
			d = 0
		}
		if d <= max(2, len(name)/3) {
			found = append(found, candidate{c, d})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	names := make([]string, 0, 3)
	for _, c := range found[:min(3, len(found))] {
		names = append(names, c.name)
	}
	if len(names) == 0 {
		if len(among) == 0 {
			return ""
		}
		return fmt.Sprintf(" (there are %d others)", len(among))
	}
	return "; did you mean " + strings.Join(names, ", ") + "?"
}
