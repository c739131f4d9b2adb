package ledgers_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/docs/ledgers"
)

var update = flag.Bool("update", false, "write the tables of differences into the pages")

// listPage has all of the list; other pages show areas of it.
const listPage = "../operations/differences.md"

var differenceTable = regexp.MustCompile(`(?s)<!-- differences: ([a-z-]+) -->\n(.*?)<!-- end -->`)

// TestDifferences: what the pages say of differences is the list, every area of it is on its page, and every row has a reason and
// scenarios that exist.
func TestDifferences(t *testing.T) {
	t.Parallel()
	all, err := ledgers.Differences()
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{}
	for _, area := range slices.Sorted(maps.Keys(all)) {
		for _, d := range all[area] {
			if d.What == "" || d.Why == "" || said[d.What] || strings.ContainsAny(d.What+d.Why, "\n|") {
				t.Errorf("%s: must say what and why, once, in a line without |: %q, %q", area, d.What, d.Why)
			}
			said[d.What] = true
			for _, scenario := range d.Shown {
				if found, err := filepath.Glob("../../scenarios/" + scenario + ".txtar"); err != nil || len(found) == 0 {
					if found, err = filepath.Glob("../../scenarios/*/" + scenario + ".txtar"); err != nil || len(found) == 0 {
						t.Errorf("%s: there is no scenario %s", area, scenario)
					}
				}
			}
		}
	}
	pages, err := filepath.Glob("../*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		have, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		var shown []string
		want := differenceTable.ReplaceAllStringFunc(string(have), func(s string) string {
			area := differenceTable.FindStringSubmatch(s)[1]
			shown = append(shown, area)
			if all[area] == nil {
				t.Errorf("%s: there is no area %s", page, area)
			}
			return "<!-- differences: " + area + " -->\n" + differencesOf(all[area]) + "<!-- end -->"
		})
		if slices.Sort(shown); page == listPage && !slices.Equal(shown, slices.Sorted(maps.Keys(all))) {
			t.Errorf("%s shows %v of %v", page, shown, slices.Sorted(maps.Keys(all)))
		}
		if *update {
			if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if d := cmp.Diff(want, string(have)); d != "" {
			t.Errorf("%s is not as the list has it; run with -update: %s", page, d)
		}
	}
}

func differencesOf(rows []ledgers.Difference) string {
	out := "| difference | why |\n|---|---|\n"
	for _, d := range rows {
		why := d.Why
		if len(d.Shown) > 0 {
			why += " (`" + strings.Join(d.Shown, "`, `") + "`)"
		}
		out += "| " + d.What + " | " + why + " |\n"
	}
	return out
}
