// Package metrics is what the processes of muster-vm count of themselves, for Prometheus: calls with their errors and durations under names like the kubelet's, and
// what a process has at the moment. Each process counts for itself and tells it at its diagnostics socket; muster-vm up shows the pages of all its processes as one.
//
// A scenario. The kubelet asks for a sandbox: the runtime counts an operation RunPodSandbox, the network process an operation add. CNI's plugin fails: both count an error.
// Prometheus scrapes up: it sees both, told apart by the label process, and beside them that all three processes answer.
//
// No label is about a pod: how many series there are hangs on the program alone. docs/operations/vm-metrics.md has them all.
package metrics

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// Set is one process's metrics. All its methods may be called by many at once. A nil Set counts nothing.
type Set struct {
	prometheus.Gatherer
	to            prometheus.Registerer
	calls, errors *prometheus.CounterVec
	took          *prometheus.HistogramVec
}

// New makes the metrics of a process: those of Go and of the process itself, and its calls. Each has the label process.
func New(process string) *Set {
	r := prometheus.NewRegistry()
	s := &Set{
		Gatherer: r, to: prometheus.WrapRegistererWith(prometheus.Labels{"process": process}, r),
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_vm_operations_total", Help: "Calls that have ended, by what was asked.",
		}, []string{"operation_type"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_vm_operations_errors_total", Help: "Calls that have failed, by what was asked and gRPC's code.",
		}, []string{"operation_type", "code"}),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "muster_vm_operations_duration_seconds", Help: "How long calls took.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14), // as the kubelet's
		}, []string{"operation_type"}),
	}
	s.to.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s.calls, s.errors, s.took)
	return s
}

// Call counts a call that has ended. code is gRPC's word for its error, "" for none.
func (s *Set) Call(operation string, took time.Duration, code string) {
	if s == nil {
		return
	}
	s.calls.WithLabelValues(operation).Inc()
	if code != "" {
		s.errors.WithLabelValues(operation, code).Inc()
	}
	s.took.WithLabelValues(operation).Observe(took.Seconds())
}

// Counter makes a counter with one label, of which the values known beforehand are shown from the start, and gives what adds one.
func (s *Set) Counter(name, help, label string, values ...string) func(value string) {
	if s == nil {
		return func(string) {}
	}
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	for _, v := range values {
		c.WithLabelValues(v)
	}
	s.to.MustRegister(c)
	return func(value string) { c.WithLabelValues(value).Inc() }
}

// Gauge shows what read gives whenever the metrics are asked for, by the label's values; with label "" the one of "". What read leaves out is not shown. It must be quick,
// and many may call it at once.
func (s *Set) Gauge(name, help, label string, read func() map[string]float64) {
	if s == nil {
		return
	}
	var labels []string
	if label != "" {
		labels = []string{label}
	}
	s.to.MustRegister(gauge{prometheus.NewDesc(name, help, labels, nil), read})
}

type gauge struct {
	desc *prometheus.Desc
	read func() map[string]float64
}

// Describe is a prometheus.Collector's.
func (g gauge) Describe(to chan<- *prometheus.Desc) { to <- g.desc }

// Collect is a prometheus.Collector's.
func (g gauge) Collect(to chan<- prometheus.Metric) {
	for value, n := range g.read() { // order: series have none
		var values []string
		if value != "" {
			values = []string{value}
		}
		to <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, n, values...)
	}
}

// Source asks another process for its metrics.
type Source func(ctx context.Context) ([]*dto.MetricFamily, error)

// patience is how long a process may take to answer: less than a scraper waits.
const patience = 5 * time.Second

// Together is a page of what several processes count, by their names, and of muster_vm_process_up, which says of each whether it has answered: one that has not hinders no other.
func Together(of map[string]Source) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		type answer struct {
			process  string
			families []*dto.MetricFamily
			err      error
		}
		answers := make(chan answer, len(of))
		for process, ask := range of { // order: all at once
			go func() {
				families, err := ask(ctx)
				answers <- answer{process, families, err}
			}()
		}
		up := prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "muster_vm_process_up", Help: "Whether a process of muster-vm up has told its metrics just now.",
		}, []string{"process"})
		own := prometheus.NewRegistry()
		own.MustRegister(up)
		pages := map[string]prometheus.Gatherer{"": own}
		for range of {
			a := <-answers
			if a.err != nil {
				up.WithLabelValues(a.process).Set(0)
				continue
			}
			up.WithLabelValues(a.process).Set(1)
			pages[a.process] = prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) { return a.families, nil })
		}
		var all prometheus.Gatherers
		for _, process := range slices.Sorted(maps.Keys(pages)) {
			all = append(all, pages[process])
		}
		return all.Gather()
	})
}
