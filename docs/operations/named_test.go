package operations

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestMetricsNamed: a metric that any page names is one of metrics.md or vm-metrics.md, which tests compare with what is served. A name that ends in *
// or _ stands for all that begin so.
func TestMetricsNamed(t *testing.T) {
	t.Parallel()
	all, err := Metrics()
	if err != nil {
		t.Fatal(err)
	}
	machines, err := VMMetrics()
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, m := range append(all, machines...) {
		known = append(known, m.Name)
		if m.Type == "histogram" {
			known = append(known, m.Name+"_bucket", m.Name+"_sum", m.Name+"_count")
		}
	}
	listed := "\n" + strings.Join(known, "\n") + "\n"
	name := regexp.MustCompile("`((?:kai|muster)_[a-z0-9_]+)([*{`])")
	err = filepath.WalkDir("..", func(at string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(at) != ".md" {
			return err
		}
		data, err := os.ReadFile(at)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(data), "\n") {
			for _, m := range name.FindAllStringSubmatch(line, -1) {
				end := "\n"
				if m[2] == "*" || strings.HasSuffix(m[1], "_") {
					end = ""
				}
				if !strings.Contains(listed, "\n"+m[1]+end) {
					t.Errorf("%s:%d: names the metric %s, which nobody serves: metrics.md and vm-metrics.md list those that are", at, i+1, m[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
