package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Metrics are the scheduler's; names and meanings are KAI's where it has one.
type Metrics struct {
	latency       prometheus.Gauge
	scheduled     *prometheus.CounterVec
	fairGPU       *prometheus.GaugeVec
	fairCPU       *prometheus.GaugeVec
	fairMemory    *prometheus.GaugeVec
	runs          prometheus.Counter
	considered    prometheus.Counter
	waiting       *prometheus.GaugeVec
	failedBundles prometheus.Counter
	overcommitted prometheus.Gauge
}

// NewMetrics registers the metrics under a namespace ("kai" by default).
func NewMetrics(namespace string, r prometheus.Registerer) (*Metrics, error) {
	queue := []string{"queue_name", "queue_metadata_name", "queue_display_name"}
	m := &Metrics{
		latency: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: "e2e_scheduling_latency_milliseconds",
			Help: "Duration of the last run that decided, snapshot to last plan, in milliseconds."}),
		scheduled: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: "podgroups_scheduled_by_action",
			Help: "Gangs given room, by action."}, []string{"action"}),
		fairGPU:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "queue_fair_share_gpu", Help: "Fair share of GPUs."}, queue),
		fairCPU:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "queue_fair_share_cpu_cores", Help: "Fair share of CPU cores."}, queue),
		fairMemory:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: "queue_fair_share_memory_gb", Help: "Fair share of memory in 10^9 bytes."}, queue),
		runs:          prometheus.NewCounter(prometheus.CounterOpts{Namespace: "muster", Name: "scheduler_runs_total", Help: "Runs of the engine."}),
		considered:    prometheus.NewCounter(prometheus.CounterOpts{Namespace: "muster", Name: "scheduler_gangs_considered_total", Help: "Gangs tried, over all runs."}),
		waiting:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "muster", Name: "gangs_waiting", Help: "Gangs that wait, by reason, after the last run."}, []string{"reason"}),
		failedBundles: prometheus.NewCounter(prometheus.CounterOpts{Namespace: "muster", Name: "scheduler_failed_bundles_total", Help: "Bundles that could not be written and were decided anew."}),
		overcommitted: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "muster", Name: "overcommitted_nodes", Help: "Nodes on which more is used than there is, after the last run."}),
	}
	for _, c := range []prometheus.Collector{m.overcommitted, m.latency, m.scheduled, m.fairGPU, m.fairCPU, m.fairMemory, m.runs, m.considered, m.waiting, m.failedBundles} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) plan(p *engine.Plan) {
	m.scheduled.WithLabelValues(p.Action).Add(float64(len(p.Bundles)))
}

func (m *Metrics) run(snap *cluster.Snapshot, r *engine.Result, took time.Duration) {
	m.runs.Inc()
	m.considered.Add(float64(r.Stats.Considered))
	m.latency.Set(float64(took.Microseconds()) / 1000)
	waiting := map[engine.Reason]int{}
	for i := range r.Trace.Gangs {
		if d := r.Trace.Gangs[i].Diagnosis; d != nil {
			waiting[d.Verdict.Reason]++
		}
	}
	m.waiting.Reset()
	for reason, n := range waiting { // order: gauges
		m.waiting.WithLabelValues(string(reason)).Set(float64(n))
	}
	for i := range r.Trace.Queues {
		q := &r.Trace.Queues[i]
		if q.FairShare == nil {
			continue
		}
		display := q.Name
		if o := snap.QueueByName(q.Name); o != nil && o.Display != "" {
			display = o.Display
		}
		m.fairGPU.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.GPU)) / 1000)
		m.fairCPU.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.CPU)) / 1000)
		m.fairMemory.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.RAM)) / 1e9)
	}
}
