package usage

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the keeper's. The first is KAI's.
type Metrics struct {
	latency  prometheus.Histogram
	failures *prometheus.CounterVec
	fetches  prometheus.Gauge
}

// NewMetrics registers the metrics; KAI's under a namespace ("kai" by default).
func NewMetrics(namespace string, r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: namespace, Name: "usage_query_latency_milliseconds",
			Help:    "Time to fetch the usage of all queues, in milliseconds.",
			Buckets: prometheus.ExponentialBuckets(5, 2, 10),
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "muster", Name: "usage_failures_total",
			Help: "Fetches of usage (step fetch) and samples of usage (step record) that failed.",
		}, []string{"step"}),
		fetches: prometheus.NewGauge(prometheus.GaugeOpts{
			Namespace: "muster", Name: "usage_last_fetch_timestamp_seconds",
			Help: "When the usage in force was fetched, in Unix seconds; 0 while there is none.",
		}),
	}
	for _, c := range []prometheus.Collector{m.latency, m.failures, m.fetches} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	m.failures.WithLabelValues("fetch")
	m.failures.WithLabelValues("record")
	return m, nil
}

func (m *Metrics) fetched(at time.Time, took time.Duration, err error) {
	m.latency.Observe(float64(took.Microseconds()) / 1000)
	if err != nil {
		m.failures.WithLabelValues("fetch").Inc()
		return
	}
	m.fetches.Set(float64(at.UnixMilli()) / 1000)
}

func (m *Metrics) recorded(err error) {
	if err != nil {
		m.failures.WithLabelValues("record").Inc()
	}
}
