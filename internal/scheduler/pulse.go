package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// pulse is what tells that the loop is alive, how far behind the cluster it is, and who waits. A quiet cluster has no runs;
// it does have looks.
type pulse struct {
	looks    prometheus.Counter
	lag      prometheus.Histogram
	events   prometheus.Counter
	snapshot prometheus.Gauge
	objects  *prometheus.GaugeVec
	runs     prometheus.Histogram
	waiting  *prometheus.GaugeVec

	shown   map[string]bool // queues with a series in waiting; of the loop's goroutine
	counted cluster.Instant // when objects were last counted, by the time of the snapshot
}

// nobody is the queue_name of gangs whose queue does not exist: what tenants write must not become series without bound.
const nobody = ""

func newPulse() *pulse {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "muster", Name: name, Help: help}
	}
	return &pulse{
		looks:  prometheus.NewCounter(prometheus.CounterOpts(opts("scheduler_looks_total", "Looks at the cluster, whether or not there was anything to decide; one in each --schedule-period at least."))),
		events: prometheus.NewCounter(prometheus.CounterOpts(opts("feed_events_total", "Changed objects taken in from the API server."))),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "muster", Name: "feed_lag_seconds", Help: "How long the oldest change had waited when it was taken in.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		snapshot: prometheus.NewGauge(prometheus.GaugeOpts(opts("scheduler_snapshot_seconds", "Time to take the snapshot of the last run."))),
		objects:  prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("scheduler_objects", "Objects in the snapshot of the last run, by kind: node, pod, gang, queue.")), []string{"kind"}),
		runs: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "muster", Name: "scheduler_run_seconds", Help: "Duration of runs, from the snapshot to the last plan.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 8),
		}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts(opts("queue_waiting_gangs", "Gangs that wait, by queue, after the last run; of queues that do not exist, together under an empty name.")), []string{"queue_name"}),
		shown:   map[string]bool{},
	}
}

func (p *pulse) collectors() []prometheus.Collector {
	return []prometheus.Collector{p.looks, p.events, p.lag, p.snapshot, p.objects, p.runs, p.waiting}
}

// Drained counts the objects of one drain of the feed, the oldest of which had waited so long.
func (m *Metrics) Drained(objects int, waited time.Duration) {
	m.pulse.events.Add(float64(objects))
	m.pulse.lag.Observe(waited.Seconds())
}

// took shows how long a snapshot took.
func (p *pulse) took(d time.Duration) { p.snapshot.Set(d.Seconds()) }

// run shows what a run looked at and what it left.
func (p *pulse) run(snap *cluster.Snapshot, t *engine.Trace, took time.Duration) {
	p.runs.Observe(took.Seconds())
	if snap.Now.Sub(p.counted) >= countGap || p.counted.IsZero() {
		p.counted = snap.Now
		p.count(snap)
	}

	waiting := make(map[string]int, len(p.shown))
	for _, id := range snap.QueueOrder {
		waiting[snap.Queue(id).Name] = 0
	}
	for i := range t.Gangs {
		if t.Gangs[i].Diagnosis == nil {
			continue
		}
		queue := nobody
		if g := snap.Gang(t.Gangs[i].ID); g != nil {
			if _, exists := waiting[g.Queue]; exists {
				queue = g.Queue
			}
		}
		waiting[queue]++
	}
	for name, n := range waiting { // order: gauges, each its own
		p.waiting.WithLabelValues(name).Set(float64(n))
		p.shown[name] = true
	}
	for name := range p.shown { // order: series, each its own
		if _, there := waiting[name]; !there {
			p.waiting.DeleteLabelValues(name)
			delete(p.shown, name)
		}
	}
}

// countGap is the shortest time between two counts: a run after a small change must not cost what the cluster's size costs.
const countGap = time.Second

func (p *pulse) count(snap *cluster.Snapshot) {
	pods, gangs := 0, 0
	snap.EachPod(func(*cluster.Pod) { pods++ })
	snap.EachGang(func(*cluster.Gang) { gangs++ })
	for kind, n := range map[string]int{"node": len(snap.NodeOrder), "queue": len(snap.QueueOrder), "pod": pods, "gang": gangs} { // order: gauges, each its own
		p.objects.WithLabelValues(kind).Set(float64(n))
	}
}
