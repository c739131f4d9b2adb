package binder

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// metrics are the numbers of the binder. The zero value counts nothing.
type metrics struct {
	actions *prometheus.CounterVec
	delay   prometheus.Histogram
	run     atomic.Pointer[run] // that is at work, nil for none
}

// newMetrics registers the metrics, unless there is no registry.
func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	if registry == nil {
		return &metrics{}, nil
	}
	m := &metrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_binder_actions_total",
			Help: "Actions of the binder by kind and by what came of them: done, waiting, fault (says nothing about the request, repeated) or failure.",
		}, []string{"action", "outcome"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "muster_binder_bind_delay_seconds",
			Help:    "Time from the creation of a BindRequest, which is known to the second, to the Binding of its pod.",
			Buckets: []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300},
		}),
	}
	for _, v := range []Verb{Prepare, Bind, Report, Retract, Drop, Discard} {
		for _, o := range outcomes() {
			m.actions.WithLabelValues(v.String(), o) // from 0 on, or the first one of all would be no increase
		}
	}
	if err := errors.Join(registry.Register(m.actions), registry.Register(m.delay), registry.Register(requests{m})); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// count counts what came of one task.
func (m *metrics) count(t *task, out outcome, now time.Time) {
	if m.actions == nil {
		return
	}
	result := outWaiting
	switch {
	case out.fault != nil:
		result = outFault
	case out.failure != nil:
		result = outFailure
	case out.done:
		result = outDone
	}
	m.actions.WithLabelValues(t.Verb.String(), result).Inc()
	if t.Verb == Bind && out.done {
		m.delay.Observe(now.Sub(t.request.CreationTimestamp.Time).Seconds())
	}
}

// What comes of actions, as the metric says it.
const (
	outDone    = "done"
	outWaiting = "waiting"
	outFault   = "fault"
	outFailure = "failure"
)

func outcomes() []string { return []string{outDone, outWaiting, outFault, outFailure} }

// requests counts the BindRequests there are when somebody asks. Who does not lead knows of none, and shows no series.
type requests struct{ *metrics }

func (requests) desc() *prometheus.Desc {
	return prometheus.NewDesc("muster_bindrequests", "BindRequests there are, by phase: Pending, Succeeded, Failed.", []string{"phase"}, nil)
}

// Describe implements prometheus.Collector.
func (r requests) Describe(ch chan<- *prometheus.Desc) { ch <- r.desc() }

// Collect implements prometheus.Collector.
func (r requests) Collect(ch chan<- prometheus.Metric) {
	at := r.run.Load()
	if at == nil {
		return
	}
	at.steps.Lock()
	phases := at.book.phases()
	at.steps.Unlock()
	for phase, n := range phases { // order: a scraper sorts
		ch <- prometheus.MustNewConstMetric(r.desc(), prometheus.GaugeValue, float64(n), string(phase))
	}
}

// phases counts the requests by phase. Each phase there is has an entry; one that nobody knows counts as pending.
func (k *book) phases() map[schedulingv1alpha2.BindRequestPhase]int {
	n := map[schedulingv1alpha2.BindRequestPhase]int{
		schedulingv1alpha2.BindRequestPending: 0, schedulingv1alpha2.BindRequestSucceeded: 0, schedulingv1alpha2.BindRequestFailed: 0,
	}
	for _, m := range k.members { // order: a count
		phase := m.Request.Status.Phase
		if _, known := n[phase]; !known {
			phase = schedulingv1alpha2.BindRequestPending
		}
		n[phase]++
	}
	return n
}
