package podgrouper

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// counts are the role's metrics, besides those of the write kit.
type counts struct {
	creates    prometheus.Counter
	ownerReads *prometheus.CounterVec
	warnings   prometheus.Counter
}

func newCounts(registry prometheus.Registerer) (*counts, error) {
	c := &counts{
		creates: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_podgrouper_creates_total",
			Help: "PodGroups that were sent to the API server for creation.",
		}),
		ownerReads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "muster_podgrouper_owner_reads_total",
			Help: "Owners read, by where from: watch or request.",
		}, []string{"source"}),
		warnings: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_podgrouper_warnings_total",
			Help: "Warning events about pods and workloads that could not be grouped as written.",
		}),
	}
	if registry == nil {
		return c, nil
	}
	for _, m := range []prometheus.Collector{c.creates, c.ownerReads, c.warnings} {
		if err := registry.Register(m); err != nil {
			return nil, fmt.Errorf("register the podgrouper's metrics: %w", err)
		}
	}
	return c, nil
}
