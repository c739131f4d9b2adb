package binder

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the numbers of the binder. The zero value counts nothing.
type metrics struct {
	actions *prometheus.CounterVec
	delay   prometheus.Histogram
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
	if err := errors.Join(registry.Register(m.actions), registry.Register(m.delay)); err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return m, nil
}

// count counts what came of one task.
func (m *metrics) count(t *task, out outcome, now time.Time) {
	if m.actions == nil {
		return
	}
	result := "waiting"
	switch {
	case out.fault != nil:
		result = "fault"
	case out.failure != nil:
		result = "failure"
	case out.done:
		result = "done"
	}
	m.actions.WithLabelValues(t.Verb.String(), result).Inc()
	if t.Verb == Bind && out.done {
		m.delay.Observe(now.Sub(t.request.CreationTimestamp.Time).Seconds())
	}
}
