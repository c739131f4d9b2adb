package judge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"

	"github.com/muster-scheduler/muster/internal/monitoring"
)

// Point is the value of a series from a moment on, until its next point.
type Point struct {
	At    time.Time
	Value float64
}

// Series is what is known of one series of a metric: its labels without the name, and its points, the oldest first.
type Series struct {
	Metric string
	Labels map[string]string
	Points []Point
}

// Known is what somebody knows who is no Prometheus server: some metrics, by deriving them from what he sees.
type Known struct {
	// Now is the moment of the question, up to which the last points hold.
	Now time.Time
	// From says of each metric that is known since when all of it is. One that is not in it is not known; its series do not count.
	From map[string]time.Time
	// Doubt says of metrics why what is not seen in them may be there all the same; none for "".
	Doubt  map[string]string
	Series []Series
}

// State is what there is to say of a rule.
type State string

// The states.
const (
	Firing       State = "firing"        // its expression has had an answer for as long as it says
	Pending      State = "pending"       // its expression has an answer, and has not had one for so long, or nobody knows
	Quiet        State = "quiet"         // its expression has no answer, of data that is whole
	NotEvaluated State = "not evaluated" // nobody can say here
)

// Verdict is a rule and what there is to say of it. Field names are stable.
type Verdict struct {
	Name     string              `json:"name"`
	Severity monitoring.Severity `json:"severity"`
	State    State               `json:"state"`
	// For is how long its expression has to have an answer, in Prometheus's notation, and Expr the expression.
	For  string `json:"for"`
	Expr string `json:"expr"`
	// Action is what to do once it fires.
	Action string `json:"action"`
	// Why says why it is not evaluated, or what is to be known besides.
	Why string `json:"why,omitempty"`
	// From is since when what it needs is known; zero for what is not evaluated.
	From time.Time `json:"from,omitzero"`
	// Instances are what it fires, or will, for.
	Instances []Instance `json:"instances,omitempty"`
}

// Instance is one answer of a rule's expression. Field names are stable.
type Instance struct {
	Summary string            `json:"summary"`
	Labels  map[string]string `json:"labels,omitempty"`
	Value   float64           `json:"value"`
	// Since is since when it has been there, as far as is known, to the minute.
	Since time.Time `json:"since"`
}

const (
	// step is the time between two looks at an expression, evaluateWithin the time for one rule, and maxSamples bounds the samples that one looks at.
	step, evaluateWithin, maxSamples = time.Minute, 5 * time.Second, 10_000_000
)

// Evaluate says of all rules what there is to say of them, by Prometheus' own engine over what is known. A rule that needs a metric that is not known is not evaluated, and says so; one that finds
// nothing in data of which there is doubt is not evaluated either. The error is ctx's, or of a rule that is no PromQL.
func Evaluate(ctx context.Context, k *Known) ([]Verdict, error) {
	e := promql.NewEngine(promql.EngineOpts{
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Reg: prometheus.NewRegistry(), MaxSamples: maxSamples, Timeout: evaluateWithin, Parser: parser.NewParser(parser.Options{}),
	})
	defer func() { _ = e.Close() }() // there is nothing to lose
	var out []Verdict
	for _, g := range monitoring.Alerts() {
		for _, a := range g.Alerts {
			v, err := k.evaluate(ctx, e, &a)
			if err != nil {
				return nil, fmt.Errorf("evaluate %s: %w", a.Name, err)
			}
			out = append(out, *v)
		}
	}
	return out, nil
}

// metrics are the names of the metrics of an expression, sorted.
func metrics(expr string) ([]string, error) {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	var out []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			out = append(out, s.Name)
		}
		return nil
	})
	slices.Sort(out)
	return slices.Compact(out), nil
}

func (k *Known) evaluate(ctx context.Context, e *promql.Engine, a *monitoring.Alert) (*Verdict, error) {
	v := &Verdict{Name: a.Name, Severity: a.Severity, State: NotEvaluated, For: a.For, Expr: a.Expr, Action: a.Action}
	names, err := metrics(a.Expr)
	if err != nil {
		return nil, err
	}
	var lacks []string
	for _, name := range names {
		if from, ok := k.From[name]; !ok {
			lacks = append(lacks, name)
		} else if from.After(v.From) {
			v.From = from.UTC()
		}
		if doubt := k.Doubt[name]; doubt != "" {
			v.Why = doubt
		}
	}
	if len(lacks) > 0 {
		v.From = time.Time{}
		v.Why = "not evaluated here: it takes " + strings.Join(lacks, ", ") + ", which only a Prometheus server knows"
		return v, nil
	}
	lasts, err := model.ParseDuration(a.For)
	if err != nil {
		return nil, err
	}
	begin := k.Now.Add(-time.Duration(lasts))
	q, err := e.NewRangeQuery(ctx, k, nil, a.Expr, begin, k.Now, step)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	matrix, err := q.Exec(ctx).Matrix()
	if ctx.Err() == nil && (errors.As(err, new(promql.ErrQueryTimeout)) || errors.As(err, new(promql.ErrTooManySamples))) {
		v.Why = "not evaluated here: there is too much of it"
		return v, nil
	}
	if err != nil {
		return nil, err
	}
	for _, s := range matrix {
		if i := answered(a, &s, k.Now); i != nil {
			v.Instances = append(v.Instances, *i)
		}
	}
	switch {
	case len(v.Instances) == 0 && v.Why == "":
		v.State = Quiet
	case len(v.Instances) == 0:
	case slices.ContainsFunc(v.Instances, func(i Instance) bool { return !i.Since.After(begin) }):
		v.State = Firing
	default:
		v.State = Pending
	}
	return v, nil
}

// answered is what a series of a rule's answers comes to; nil for one that is over.
func answered(a *monitoring.Alert, s *promql.Series, now time.Time) *Instance {
	at := now.UnixMilli()
	i := len(s.Floats) - 1
	if i < 0 || s.Floats[i].T != at {
		return nil
	}
	last := s.Floats[i].F
	for i > 0 && s.Floats[i-1].T == at-step.Milliseconds() {
		i, at = i-1, at-step.Milliseconds()
	}
	of := s.Metric.Map()
	delete(of, model.MetricNameLabel)
	return &Instance{Summary: summary(a.Summary, of, last), Labels: of, Value: last, Since: time.UnixMilli(at).UTC()}
}

var placeholder = regexp.MustCompile(`{{ *\$(labels\.(\w+)|value)[^}]*}}`)

// summary fills a summary in.
func summary(text string, of map[string]string, value float64) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		if m := placeholder.FindStringSubmatch(p); m[2] != "" {
			return of[m[2]]
		}
		return strconv.FormatFloat(value, 'g', 4, 64)
	})
}

// Querier implements storage.Queryable: what the engine reads series through.
func (k *Known) Querier(from, to int64) (storage.Querier, error) { return &querier{k, from, to}, nil }

type querier struct {
	known    *Known
	from, to int64
}

// Select returns the series that match, with a sample for each minute back from now.
func (q *querier) Select(_ context.Context, _ bool, hints *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	from, to := q.from, q.to
	if hints != nil {
		from, to = max(from, hints.Start), min(to, hints.End)
	}
	out := &seriesSet{at: -1}
	for i := range q.known.Series {
		s := &q.known.Series[i]
		b := labels.NewScratchBuilder(len(s.Labels) + 1)
		b.Add(model.MetricNameLabel, s.Metric)
		for name, value := range s.Labels { // order: sorted below
			b.Add(name, value)
		}
		b.Sort()
		of := b.Labels()
		if _, known := q.known.From[s.Metric]; known && !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(of.Get(m.Name)) }) {
			out.list = append(out.list, storage.NewListSeries(of, s.samples(from, min(to, q.known.Now.UnixMilli()), q.known.Now)))
		}
	}
	slices.SortFunc(out.list, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return out
}

// samples are a sample for each minute back from now, in milliseconds from a time to a time.
func (s *Series) samples(from, to int64, now time.Time) (out []chunks.Sample) {
	const every = int64(step / time.Millisecond)
	first := now.UnixMilli() - (now.UnixMilli()-from)/every*every
	k := -1
	for at := first; at <= to; at += every {
		for k+1 < len(s.Points) && s.Points[k+1].At.UnixMilli() <= at {
			k++
		}
		if k >= 0 {
			out = append(out, sample{at, s.Points[k].Value})
		}
	}
	return out
}

// LabelValues implements storage.LabelQuerier; no function of the language that is switched on asks for it.
func (*querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// LabelNames is as LabelValues.
func (*querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, errors.ErrUnsupported
}

// Close implements storage.LabelQuerier.
func (*querier) Close() error { return nil }

// seriesSet is what a selection found.
type seriesSet struct {
	list []storage.Series
	at   int
}

// Next implements storage.SeriesSet.
func (s *seriesSet) Next() bool { s.at++; return s.at < len(s.list) }

// At implements storage.SeriesSet.
func (s *seriesSet) At() storage.Series { return s.list[s.at] }

// Err implements storage.SeriesSet.
func (*seriesSet) Err() error { return nil }

// Warnings implements storage.SeriesSet.
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// sample is a number at a time in milliseconds.
type sample struct {
	at    int64
	value float64
}

// T implements chunks.Sample, and so do all that follow.
func (s sample) T() int64 { return s.at }

// ST is when a counter began, which is not said.
func (sample) ST() int64 { return 0 }

// F is the value.
func (s sample) F() float64 { return s.value }

// H is none.
func (sample) H() *histogram.Histogram { return nil }

// FH is none.
func (sample) FH() *histogram.FloatHistogram { return nil }

// Type says that it is a number.
func (sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// Copy is itself.
func (s sample) Copy() chunks.Sample { return s }
