// Package monitoringtest asks a Prometheus server the queries of dashboards' panels, and draws the answers as pictures for the pages.
// Grafana is not needed for either: it would ask the same.
package monitoringtest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/muster-scheduler/muster/internal/monitoring"
)

// Span is what is asked about.
type Span struct {
	From, To time.Time
	Step     time.Duration // between two values
	Window   string        // of rates, in Prometheus's notation
}

// Series is an answer: values at times, in order. Values that are no numbers are left out.
type Series struct {
	Name   string // by the query's legend
	Labels map[string]string
	At     []time.Time
	Values []float64
}

// Last is the latest value.
func (s *Series) Last() float64 { return s.Values[len(s.Values)-1] }

// Ask asks a server all queries of a panel. The result has the answers of each query, series ordered by name; series without a single
// number are left out.
func Ask(ctx context.Context, server string, p *monitoring.Panel, s Span) ([][]Series, error) {
	client, err := api.NewClient(api.Config{Address: server})
	if err != nil {
		return nil, err
	}
	out := make([][]Series, len(p.Queries))
	for i, q := range p.Queries {
		value, _, err := v1.NewAPI(client).QueryRange(ctx, q.Text(s.Window), v1.Range{Start: s.From, End: s.To, Step: s.Step})
		if err != nil {
			return nil, fmt.Errorf("panel %q: %s: %w", p.Title, q.Text(s.Window), err)
		}
		matrix, ok := value.(model.Matrix)
		if !ok {
			return nil, fmt.Errorf("panel %q: %s: the answer is a %T", p.Title, q.Text(s.Window), value)
		}
		for _, stream := range matrix {
			one := Series{Labels: map[string]string{}}
			for name, v := range stream.Metric {
				one.Labels[string(name)] = string(v)
			}
			one.Name = legend(q.Legend, one.Labels)
			for _, pair := range stream.Values {
				if v := float64(pair.Value); !math.IsNaN(v) && !math.IsInf(v, 0) {
					one.At, one.Values = append(one.At, pair.Timestamp.Time()), append(one.Values, v)
				}
			}
			if len(one.Values) > 0 {
				out[i] = append(out[i], one)
			}
		}
		slices.SortFunc(out[i], func(a, b Series) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out, nil
}

// Lacking says what a panel's answers lack to be worth a panel; "" for nothing. Each query must have an answer, and, unless the panel
// is calm, one that was not always zero.
func Lacking(p *monitoring.Panel, answers [][]Series) string {
	for i, q := range p.Queries {
		if len(answers[i]) == 0 {
			return fmt.Sprintf("panel %q is empty: no answer to %s", p.Title, q.Expr)
		}
		if !p.Calm && !slices.ContainsFunc(answers[i], func(s Series) bool {
			return slices.ContainsFunc(s.Values, func(v float64) bool { return v != 0 })
		}) {
			return fmt.Sprintf("panel %q shows nothing but zero: %s", p.Title, q.Expr)
		}
	}
	return ""
}

// legend fills labels in.
func legend(text string, labels map[string]string) string {
	return regexp.MustCompile(`{{\s*(\w+)\s*}}`).ReplaceAllStringFunc(text, func(found string) string {
		return labels[regexp.MustCompile(`\w+`).FindString(found)]
	})
}
