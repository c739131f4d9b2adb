package nodescale

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the role's numbers.
type metrics struct {
	pods, waiting, left prometheus.Gauge
	created             prometheus.Counter
	removed             *prometheus.CounterVec
}

// newMetrics registers the metrics, unless there is no registry.
func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		pods:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_scaling_pods", Help: "Scaling pods at the last look."}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_scaling_waiting_pods", Help: "Pods that share GPUs and wait for a node, at the last look."}),
		left:    prometheus.NewGauge(prometheus.GaugeOpts{Name: "muster_scaling_deferred_pods", Help: "The part of these that nothing is asked for yet: room came a moment ago, or there are as many scaling pods as there may be."}),
		created: prometheus.NewCounter(prometheus.CounterOpts{Name: "muster_scaling_pods_created_total", Help: "Scaling pods created."}),
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_scaling_pods_removed_total", Help: "Scaling pods removed, by why: ended, placed, gone, blocked, changed or shared.",
		}, []string{"why"}),
	}
	if registry == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.pods, m.waiting, m.left, m.created, m.removed} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) looked(waiting, pods, left int) {
	m.waiting.Set(float64(waiting))
	m.pods.Set(float64(pods))
	m.left.Set(float64(left))
}
