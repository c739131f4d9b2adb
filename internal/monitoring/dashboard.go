package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// Kind is how a panel shows its answers. The values are Grafana's names.
type Kind string

// The kinds of panels.
const (
	Lines Kind = "timeseries" // over time
	Stat  Kind = "stat"       // one number: the sum over series is the query's business
	Bars  Kind = "bargauge"   // one bar per series, now
	Table Kind = "table"      // one row per value of a label, one column per query, now
)

// Unit is what a value counts. The values are Grafana's names.
type Unit string

// The units.
const (
	Number       Unit = "short"
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
	Bytes        Unit = "bytes"
	Ratio        Unit = "percentunit" // 1 is all
	PerSecond    Unit = "ops"
)

// Dashboard is a page of panels.
type Dashboard struct {
	Name  string // of its file
	Title string
	Help  string // what question the page answers
	// ByQueue adds a choice of queues, which queries name as $queue.
	ByQueue bool
	Panels  []Panel
}

// Panel is one question and the way its answer is shown.
type Panel struct {
	Title   string
	Help    string // what to read in it, and when to worry
	Kind    Kind
	Unit    Unit
	Width   int // of 24
	Height  int // in Grafana's rows of 30 pixels
	Queries []Query
	// Calm says that nothing but zero is expected of a cluster in which nothing is wrong.
	Calm bool
	// By is the label that names a Table's rows.
	By string
}

// Query is PromQL with what Grafana fills in: $__rate_interval, and $queue on a page by queue.
type Query struct {
	Expr string
	// Legend names a series: text with {{label}} in it. In a Table it is the column's title.
	Legend string
}

// Text is the query as a Prometheus server takes it, over all queues, with rates over the window (such as "30s").
func (q Query) Text(window string) string {
	return strings.NewReplacer("$__rate_interval", window, "$queue", ".+").Replace(q.Expr)
}

// Place is where a panel is on its page, in units of the grid: 24 columns, and rows of 30 pixels.
type Place struct{ X, Y, Width, Height int }

// Places lays the panels out: from left to right, and below when there is no room. The panels of a line are of one height.
func (d *Dashboard) Places() []Place {
	out := make([]Place, len(d.Panels))
	x, y, height := 0, 0, 0
	for i := range d.Panels {
		p := &d.Panels[i]
		if x+p.Width > columns {
			x, y, height = 0, y+height, 0
		}
		out[i] = Place{x, y, p.Width, p.Height}
		x, height = x+p.Width, max(height, p.Height)
	}
	return out
}

const columns = 24

// JSON is the dashboard as Grafana imports it, for Grafana 10 and later.
func (d *Dashboard) JSON() ([]byte, error) {
	type object = map[string]any
	source := object{"type": "prometheus", "uid": "${datasource}"}
	variables := []object{{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}}
	if d.ByQueue {
		variables = append(variables, object{
			"name": "queue", "type": "query", "label": "Queue", "datasource": source, "query": "label_values(kai_queue_info, queue_name)",
			"multi": true, "includeAll": true, "allValue": ".+", "refresh": 2, "sort": 1, "current": object{"text": "All", "value": "$__all"},
		})
	}
	var panels []object
	places := d.Places()
	for i := range d.Panels {
		p := &d.Panels[i]
		var targets []object
		for k, q := range p.Queries {
			t := object{"refId": string(rune('A' + k)), "expr": q.Expr, "legendFormat": q.Legend, "datasource": source}
			if p.Kind != Lines {
				t["instant"], t["range"] = true, false
			}
			if p.Kind == Table {
				t["format"] = "table"
			}
			targets = append(targets, t)
		}
		panel := object{
			"id": i + 1, "type": p.Kind, "title": p.Title, "description": p.Help, "datasource": source, "targets": targets,
			"gridPos":     object{"x": places[i].X, "y": places[i].Y, "w": places[i].Width, "h": places[i].Height},
			"fieldConfig": object{"defaults": object{"unit": p.Unit, "min": 0}, "overrides": []object{}},
		}
		switch p.Kind {
		case Lines:
			panel["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
		case Stat, Bars:
			panel["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}}
		case Table:
			names := object{}
			for k, q := range p.Queries {
				names[fmt.Sprintf("Value #%c", 'A'+k)] = q.Legend
			}
			panel["transformations"] = []object{
				{"id": "merge", "options": object{}},
				{"id": "organize", "options": object{"excludeByName": object{"Time": true}, "renameByName": names}},
			}
		}
		panels = append(panels, panel)
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(object{
		"uid": "muster-" + d.Name, "title": d.Title, "description": d.Help, "tags": []string{"muster"}, "schemaVersion": 39, "version": 1,
		"editable": true, "timezone": "browser", "refresh": "10s", "time": object{"from": "now-1h", "to": "now"},
		"templating": object{"list": variables}, "panels": panels,
	})
	return out.Bytes(), err
}

// Dashboards are all pages.
func Dashboards() []Dashboard { return []Dashboard{queues(), scheduler(), pipeline()} }

// quantiles are the median and the 99th percentile of a histogram, over all that label sets have in common.
func quantiles(histogram string) []Query {
	expr := func(q string) string {
		return "histogram_quantile(" + q + ", sum by (le) (rate(" + histogram + "_bucket[$__rate_interval])))"
	}
	return []Query{{expr("0.5"), "median"}, {expr("0.99"), "99 %"}}
}

// one is a panel's only query.
func one(expr, legend string) []Query { return []Query{{expr, legend}} }
