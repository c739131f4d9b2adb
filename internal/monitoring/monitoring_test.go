package monitoring

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/muster-scheduler/muster/docs/operations"
)

var update = flag.Bool("update", false, "write deploy/observability anew")

const folder = "../../deploy/observability"

// TestFiles: the files are what the description says.
func TestFiles(t *testing.T) {
	t.Parallel()
	files := map[string]func() ([]byte, error){"alerts.yaml": RulesFile, "prometheusrule.yaml": PrometheusRule}
	for _, d := range Dashboards() {
		files[filepath.Join("dashboards", d.Name+".json")] = d.JSON
	}
	for name, text := range files {
		want, err := text()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what this package describes (%v): go test ./internal/monitoring -update", path, err)
		}
	}
	there, err := filepath.Glob(folder + "/dashboards/*")
	if err != nil || len(there) != len(Dashboards()) {
		t.Errorf("%q in dashboards, %v", there, err)
	}
}

// known are the metrics of the inventory, with their series' labels; histograms under the names of their series.
func known(t *testing.T) map[string][]string {
	t.Helper()
	rows, err := operations.Metrics()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{"process_resident_memory_bytes": nil, "process_cpu_seconds_total": nil}
	for _, m := range rows {
		if m.Type != "histogram" {
			out[m.Name] = m.Labels
			continue
		}
		out[m.Name+"_bucket"] = append(slices.Clone(m.Labels), "le")
		out[m.Name+"_sum"], out[m.Name+"_count"] = m.Labels, m.Labels
	}
	return out
}

// check says what is wrong with an expression: that it is no PromQL, or names a metric or a label that nobody serves.
func check(expr string, known map[string][]string) (wrong []string) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var served []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			if _, ok := known[s.Name]; !ok {
				wrong = append(wrong, "no metric is called "+s.Name)
			}
			served = append(served, known[s.Name]...)
			for _, m := range s.LabelMatchers {
				if m.Name != model.MetricNameLabel && !slices.Contains(known[s.Name], m.Name) {
					wrong = append(wrong, fmt.Sprintf("%s has no label %s", s.Name, m.Name))
				}
			}
		}
		return nil
	})
	served = append(served, "namespace", "job", "instance") // of scraping
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if a, ok := n.(*parser.AggregateExpr); ok {
			for _, l := range a.Grouping {
				if !slices.Contains(served, l) {
					wrong = append(wrong, "nothing in it has a label "+l)
				}
			}
		}
		return nil
	})
	return wrong
}

// TestQueries: every query of a panel and every alert is PromQL, about metrics and labels of the inventory.
func TestQueries(t *testing.T) {
	t.Parallel()
	all := known(t)
	for _, d := range Dashboards() {
		titles := map[string]bool{}
		places := d.Places()
		for i, p := range d.Panels {
			name := d.Name + ": " + p.Title
			if titles[p.Title] || p.Title == "" || p.Help == "" || p.Unit == "" || len(p.Queries) == 0 || (p.Kind == Table) != (p.By != "") {
				t.Errorf("%s: a panel needs a title of its own, a help text, a unit and a query, and only a table its rows' label", name)
			}
			titles[p.Title] = true
			if at := places[i]; at.X+at.Width > columns || at.Width <= 0 || at.Height <= 0 {
				t.Errorf("%s lies at %+v", name, at)
			}
			for _, q := range p.Queries {
				for _, wrong := range check(q.Text("5m"), all) {
					t.Errorf("%s: %s\n\t%s", name, wrong, q.Expr)
				}
				if q.Legend == "" || strings.Contains(q.Expr, "$queue") && !d.ByQueue {
					t.Errorf("%s: a query needs a legend, and a choice of queues to name one", name)
				}
			}
		}
	}
	for _, g := range Alerts() {
		for _, a := range g.Alerts {
			for _, wrong := range check(a.Expr, all) {
				t.Errorf("%s: %s\n\t%s", a.Name, wrong, a.Expr)
			}
		}
	}
	for expr, want := range map[string]string{ // a check that passes everything checks nothing
		`rate(`: "unclosed", `sum(kai_queue_inf)`: "no metric is called kai_queue_inf", `kai_queue_info{pod="x"}`: "kai_queue_info has no label pod",
		`sum by (reasons) (muster_gangs_waiting)`: "nothing in it has a label reasons",
	} {
		if got := strings.Join(check(expr, all), "; "); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", expr, got, want)
		}
	}
}

// TestPage: docs/operations/dashboards.md shows every dashboard and lists every alert.
func TestPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations/dashboards.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Dashboards() {
		if !bytes.Contains(text, []byte("]("+d.Name+".png)")) {
			t.Errorf("the page does not show %s", d.Name)
		}
	}
	for _, g := range Alerts() {
		for _, a := range g.Alerts {
			if !bytes.Contains(text, []byte("| `"+a.Name+"` | "+string(a.Severity)+" |")) {
				t.Errorf("the page does not list %s with severity %s", a.Name, a.Severity)
			}
		}
	}
	if n := bytes.Count(text, []byte("\n| `Muster")); n != len(stories())-1 {
		t.Errorf("the page lists %d alerts", n)
	}
}
