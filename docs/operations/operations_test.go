package operations

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/kube/served"
)

var update = flag.Bool("update", false, "write the table of what versions of Kubernetes lack into install.md")

// TestKubernetesVersions: install.md says of each version of Kubernetes what it lacks as the program does.
func TestKubernetesVersions(t *testing.T) {
	t.Parallel()
	const page, begin, end = "install.md", "<!-- kubernetes: lacking -->\n", "<!-- end -->"
	var table strings.Builder
	head, line := "| what |", "|---|"
	for minor := served.Oldest; minor <= served.Newest; minor++ {
		head, line = head+" "+served.Minor(minor)+" |", line+"---|"
	}
	table.WriteString(head + " for | without it |\n" + line + "---|---|\n")
	for _, n := range served.Needs() {
		row := "| `" + string(n.Name) + "` |"
		for minor := served.Oldest; minor <= served.Newest; minor++ {
			switch {
			case n.Since == 0:
				row += " installed |"
			case n.Has(minor):
				row += " yes |"
			default:
				row += " **no** |"
			}
		}
		who := strings.Join(n.Roles, ", ")
		if n.Plugin != "" {
			who += ", with plugin `" + n.Plugin + "`"
		}
		table.WriteString(row + " " + who + " | " + n.Lost + " |\n")
	}
	have, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(have), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s: no table between %q and %q", page, begin, end)
	}
	want := before + begin + table.String() + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if d := cmp.Diff(want, string(have)); d != "" {
		t.Errorf("%s is not as internal/kube/served has it; run with -update: %s", page, d)
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	const page = "text\n\n| name | type | labels | what |\n|---|---|---|---|\n| `a` | histogram (5·2ⁿ) | `x`, `y` (`one`, `two`) | words; only with a history of usage |\n" +
		"| `b` | gauge | queue labels | |\n\n| term | meaning |\n|---|---|\n| `c` | no metric |\n"
	got, err := parse("metrics.md", page)
	if err != nil {
		t.Fatal(err)
	}
	want := []Metric{
		{Name: "a", Type: "histogram", Labels: []string{"x", "y"}, Condition: "only with a history of usage"},
		{Name: "b", Type: "gauge", Labels: []string{"queue_name", "queue_metadata_name", "queue_display_name"}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []struct{ from, to, want string }{
		{"| gauge |", "| dial |", "metrics.md:6: the type must be counter, gauge or histogram"},
		{"`b`", "`a`", "metrics.md:6: the metric is listed twice"},
		{"`b`", "b", "metrics.md:6: the name must be `quoted`"},
		{"queue labels | |", "queue labels |", "metrics.md:6: a table of metrics needs"},
		{"| type |", "| kind |", "metrics.md:5: a table of metrics needs"},
	} {
		if _, err := parse("metrics.md", strings.Replace(page, bad.from, bad.to, 1)); err == nil || !strings.HasPrefix(err.Error(), bad.want) {
			t.Errorf("%s for %s: %v, want %s", bad.to, bad.from, err, bad.want)
		}
	}
	if all, err := Metrics(); err != nil || len(all) < 50 {
		t.Errorf("the page itself: %d metrics, %v", len(all), err)
	}
}
