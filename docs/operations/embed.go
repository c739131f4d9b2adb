package operations

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed metrics.md
var metricsPage string

//go:embed vm-metrics.md
var vmMetricsPage string

//go:embed volcano.md
var volcanoPage string

// Metric is one row of metrics.md, vm-metrics.md or volcano.md.
type Metric struct {
	Name string
	// Type is counter, gauge or histogram.
	Type string
	// Labels are in the order of the page. Those that a flag adds are not among them.
	Labels []string
	// Condition says that the metric is served only in some configurations: the words "only with …" of its row; "" for always.
	Condition string
}

// Metrics returns the rows of metrics.md, of all its tables, in their order. A table whose first column is "name" must have the columns
// type and labels; a row that cannot be understood is an error that shows it.
func Metrics() ([]Metric, error) { return parse("metrics.md", metricsPage) }

// VMMetrics returns those of vm-metrics.md, which muster-vm serves.
func VMMetrics() ([]Metric, error) { return parse("vm-metrics.md", vmMetricsPage) }

// VolcanoMetrics returns those of volcano.md, which are served besides where Volcano's face is on.
func VolcanoMetrics() ([]Metric, error) { return parse("volcano.md", volcanoPage) }

func parse(name, page string) ([]Metric, error) {
	word := regexp.MustCompile("`([^`]+)`")
	inBrackets := regexp.MustCompile(`\([^)]*\)`)
	only := regexp.MustCompile(`only with [^;.|]+`)
	var out []Metric
	var header []string
	for n, line := range strings.Split(page, "\n") {
		if !strings.HasPrefix(line, "|") {
			header = nil
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if header == nil {
			header = cells
			continue
		}
		if header[0] != "name" || strings.HasPrefix(cells[0], "-") {
			continue
		}
		wrong := func(what string) error { return fmt.Errorf("%s:%d: %s: %s", name, n+1, what, line) }
		kinds, labels := slices.Index(header, "type"), slices.Index(header, "labels")
		if kinds < 0 || labels < 0 || len(cells) != len(header) {
			return nil, wrong("a table of metrics needs the columns name, type and labels, and every row all of them")
		}
		called := word.FindStringSubmatch(cells[0])
		if called == nil {
			return nil, wrong("the name must be `quoted`")
		}
		m := Metric{Name: called[1], Condition: strings.TrimSpace(only.FindString(line))}
		m.Type, _, _ = strings.Cut(cells[kinds], " ")
		if !slices.Contains([]string{"counter", "gauge", "histogram"}, m.Type) {
			return nil, wrong("the type must be counter, gauge or histogram")
		}
		text := inBrackets.ReplaceAllString(cells[labels], "")
		if strings.Contains(text, "queue labels") {
			m.Labels = []string{"queue_name", "queue_metadata_name", "queue_display_name"}
		}
		for _, l := range word.FindAllStringSubmatch(text, -1) {
			m.Labels = append(m.Labels, l[1])
		}
		if slices.ContainsFunc(out, func(o Metric) bool { return o.Name == m.Name }) {
			return nil, wrong("the metric is listed twice")
		}
		out = append(out, m)
	}
	return out, nil
}
