package operations

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	const page = "text\n\n| name | type | labels | what |\n|---|---|---|---|\n| `a` | histogram (5·2ⁿ) | `x`, `y` (`one`, `two`) | words; only with a history of usage |\n" +
		"| `b` | gauge | queue labels | |\n\n| term | meaning |\n|---|---|\n| `c` | no metric |\n"
	got, err := parse(page)
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
		if _, err := parse(strings.Replace(page, bad.from, bad.to, 1)); err == nil || !strings.HasPrefix(err.Error(), bad.want) {
			t.Errorf("%s for %s: %v, want %s", bad.to, bad.from, err, bad.want)
		}
	}
	if all, err := Metrics(); err != nil || len(all) < 50 {
		t.Errorf("the page itself: %d metrics, %v", len(all), err)
	}
}
