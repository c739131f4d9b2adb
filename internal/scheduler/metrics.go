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
	decided       prometheus.Histogram
	bound         prometheus.Histogram
	scheduled     *prometheus.CounterVec
	fairGPU       *prometheus.GaugeVec
	fairCPU       *prometheus.GaugeVec
	fairMemory    *prometheus.GaugeVec
	runs          prometheus.Counter
	considered    prometheus.Counter
	waiting       *prometheus.GaugeVec
	failedBundles prometheus.Counter
	overcommitted prometheus.Gauge

	shares  map[string]string // queues with a fair share shown, and their display names; of the loop's goroutine
	reasons map[engine.Reason]bool
}

// NewMetrics registers the metrics under a namespace ("kai" by default).
func NewMetrics(namespace string, r prometheus.Registerer) (*Metrics, error) {
	queue := []string{"queue_name", "queue_metadata_name", "queue_display_name"}
	kai := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
	}
	own := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "muster", Name: name, Help: help}
	}
	latency := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(5, 2, 10)})
	}
	m := &Metrics{
		latency: prometheus.NewGauge(kai("e2e_scheduling_latency_milliseconds", "Duration of the last run that decided, from its snapshot to its last plan, in milliseconds.")),
		decided: latency("task_scheduling_latency_milliseconds", "Time from the creation of a pod, which is known to the second, to the decision where it runs, in milliseconds."),
		bound:   latency("task_bind_latency_milliseconds", "Time from the decision where a pod runs to its BindRequest, in milliseconds."),
		scheduled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "podgroups_scheduled_by_action",
			Help: "Gangs given room, by action.",
		}, []string{"action"}),
		fairGPU:       prometheus.NewGaugeVec(kai("queue_fair_share_gpu", "Fair share of GPUs."), queue),
		fairCPU:       prometheus.NewGaugeVec(kai("queue_fair_share_cpu_cores", "Fair share of CPU cores."), queue),
		fairMemory:    prometheus.NewGaugeVec(kai("queue_fair_share_memory_gb", "Fair share of memory in 10^9 bytes."), queue),
		runs:          prometheus.NewCounter(own("scheduler_runs_total", "Runs of the engine.")),
		considered:    prometheus.NewCounter(own("scheduler_gangs_considered_total", "Gangs tried, over all runs.")),
		failedBundles: prometheus.NewCounter(own("scheduler_failed_bundles_total", "Bundles that could not be written and were decided anew.")),
		waiting:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "muster", Name: "gangs_waiting", Help: "Gangs that wait, by reason, after the last run."}, []string{"reason"}),
		overcommitted: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "muster", Name: "overcommitted_nodes", Help: "Nodes on which more is used than there is, after the last run."}),
		shares:        map[string]string{}, reasons: map[engine.Reason]bool{},
	}
	for _, c := range []prometheus.Collector{m.latency, m.decided, m.bound, m.scheduled, m.fairGPU, m.fairCPU, m.fairMemory, m.runs, m.considered, m.waiting, m.failedBundles, m.overcommitted} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// Bound counts a BindRequest that was written so long after its decision. Safe for concurrent use.
func (m *Metrics) Bound(after time.Duration) { m.bound.Observe(milliseconds(after)) }

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// plan counts what a plan gives room to.
func (m *Metrics) plan(p *engine.Plan, snap *cluster.Snapshot, now time.Time) {
	for i := range p.Bundles {
		b := &p.Bundles[i]
		binds := make(map[string]bool, len(b.Intents))
		for j := range b.Intents {
			if b.Intents[j].Verb == engine.Bind {
				binds[b.Intents[j].UID] = true
			}
		}
		if len(binds) == 0 {
			continue
		}
		m.scheduled.WithLabelValues(p.Action).Inc()
		g := snap.GangByKey(b.Gang)
		if g == nil {
			continue
		}
		for _, id := range g.Pods {
			if pod := snap.Pod(id); binds[pod.UID] {
				m.decided.Observe(max(0, milliseconds(now.Sub(time.Unix(0, pod.Created)))))
			}
		}
	}
}

// run shows what a run left. Called by the loop's goroutine.
func (m *Metrics) run(snap *cluster.Snapshot, r *engine.Result, took time.Duration) {
	m.runs.Inc()
	m.considered.Add(float64(r.Stats.Considered))
	m.latency.Set(milliseconds(took))

	waiting := map[engine.Reason]int{}
	for i := range r.Trace.Gangs {
		if d := r.Trace.Gangs[i].Diagnosis; d != nil {
			waiting[d.Verdict.Reason]++
			m.reasons[d.Verdict.Reason] = true
		}
	}
	for reason := range m.reasons { // order: gauges, each its own; a reason once seen stays, at 0
		m.waiting.WithLabelValues(string(reason)).Set(float64(waiting[reason]))
	}

	shown := map[string]string{}
	for i := range r.Trace.Queues {
		q := &r.Trace.Queues[i]
		if q.FairShare == nil {
			continue
		}
		display := q.Name
		if o := snap.QueueByName(q.Name); o != nil && o.Display != "" {
			display = o.Display
		}
		shown[q.Name] = display
		m.fairGPU.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.GPU)) / 1000)
		m.fairCPU.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.CPU)) / 1000)
		m.fairMemory.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.RAM)) / 1e9)
	}
	for name, display := range m.shares { // order: series, each its own
		if shown[name] != display {
			for _, v := range []*prometheus.GaugeVec{m.fairGPU, m.fairCPU, m.fairMemory} {
				v.DeleteLabelValues(name, name, display)
			}
		}
	}
	m.shares = shown
}
