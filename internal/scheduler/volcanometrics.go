package scheduler

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/apply"
)

// volcanos are the metrics that Volcano's scheduler has and this one can tell, under Volcano's names: the latencies of whole runs, whoever's gangs they are about, and what is Volcano's of its gangs and
// queues. They are made of what a run leaves anyway: a run costs a step for each gang that waits and each queue, as those of KAI's do, and a scrape nothing. Used by the loop's goroutine. A nil one says nothing.
type volcanos struct {
	run, open, begun prometheus.Histogram
	plugins, actions *prometheus.HistogramVec

	attempts     prometheus.Counter
	victims      prometheus.Gauge
	transactions prometheus.Counter
	jobs         prometheus.Gauge
	tasks        *prometheus.GaugeVec

	amounts map[string]amountGauges // of queues, by what they say: allocated, request, deserved, capacity
	weight  *prometheus.GaugeVec

	waiting map[string]bool // jobs that have a series
	queues  map[string]bool // queues that have
}

// amountGauges are an amount of a queue by resource: CPU and memory by themselves, in thousandths and bytes, others by name, in thousandths as in Volcano, slots for pods whole.
type amountGauges struct{ cpu, memory, others *prometheus.GaugeVec }

// all are the series.
func (a *amountGauges) all() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{a.cpu, a.memory, a.others}
}

// ServeVolcano registers Volcano's metrics besides. It is called before the first run.
func (m *Metrics) ServeVolcano(r prometheus.Registerer) error {
	gauge := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: volcano.Face, Name: name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: volcano.Face, Name: name, Help: help})
	}
	latency := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Namespace: volcano.Face, Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(5, 2, 10)}
	}
	v := &volcanos{
		run:          prometheus.NewHistogram(latency("e2e_scheduling_latency_milliseconds", "Duration of runs that decided, from the snapshot to the last plan, in milliseconds.")),
		open:         prometheus.NewHistogram(latency("open_session_duration_milliseconds", "Time to lay a run over its snapshot, plugins included, in milliseconds.")),
		begun:        prometheus.NewHistogram(latency("e2e_job_scheduling_latency_milliseconds", "Time from the creation of a gang of Volcano's, which is known to the second, to the decision by which its first pods run, in milliseconds.")),
		plugins:      prometheus.NewHistogramVec(latency("plugin_scheduling_latency_milliseconds", "Time that a plugin took to open or close in a run, in milliseconds."), []string{"plugin", "OnSession"}),
		actions:      prometheus.NewHistogramVec(latency("action_scheduling_latency_milliseconds", "Duration of an action in a run, in milliseconds."), []string{"action"}),
		attempts:     counter("total_preemption_attempts", "Searches for somebody to displace or move, by all actions."),
		victims:      prometheus.NewGauge(gauge("pod_preemption_victims", "Pods of Volcano's that the last decision to evict took.")),
		transactions: counter("eviction_transactions_total", "Decisions to evict that took pods of Volcano's and were carried out."),
		jobs:         prometheus.NewGauge(gauge("unschedule_job_count", "Gangs of Volcano's that wait, after the last run.")),
		tasks:        prometheus.NewGaugeVec(gauge("unschedule_task_count", "Pods of a gang of Volcano's that have no node while it waits, after the last run."), []string{"job_id"}),
		weight:       prometheus.NewGaugeVec(gauge("queue_weight", "The weight of a queue."), []string{"queue_name"}),
		amounts:      map[string]amountGauges{}, waiting: map[string]bool{}, queues: map[string]bool{},
	}
	all := []prometheus.Collector{v.run, v.open, v.begun, v.plugins, v.actions, v.attempts, v.victims, v.transactions, v.jobs, v.tasks, v.weight}
	for name, what := range map[string]string{
		"allocated": "What a queue and those below it hold", "request": "What a queue and those below it ask for, what they hold included", "deserved": "What a queue deserves or is guaranteed, the larger", "capacity": "The capability of a queue; without bound there is no series",
	} { // order: each its own
		a := amountGauges{
			cpu:    prometheus.NewGaugeVec(gauge("queue_"+name+"_milli_cpu", what+": CPU, in thousandths."), []string{"queue_name"}),
			memory: prometheus.NewGaugeVec(gauge("queue_"+name+"_memory_bytes", what+": memory, in bytes."), []string{"queue_name"}),
			others: prometheus.NewGaugeVec(gauge("queue_"+name+"_scalar_resources", what+": other resources, in thousandths; pods whole."), []string{"queue_name", "resource"}),
		}
		v.amounts[name] = a
		all = append(all, a.cpu, a.memory, a.others)
	}
	if err := register(r, all...); err != nil {
		return err
	}
	m.volcano = v
	return nil
}

// took counts how long a stage took.
func (v *volcanos) took(stage engine.Stage, d time.Duration) {
	if v == nil {
		return
	}
	switch ms := milliseconds(d); stage.Kind {
	case engine.StageOpen:
		v.open.Observe(ms)
	case engine.StageAction:
		v.actions.WithLabelValues(stage.Name).Observe(ms)
	case engine.StageOpenPlugin:
		v.plugins.WithLabelValues(stage.Name, sessionOpen).Observe(ms)
	case engine.StageClosePlugin:
		v.plugins.WithLabelValues(stage.Name, sessionClose).Observe(ms)
	}
}

// starts counts a gang that is given room, if it had none before.
func (v *volcanos) starts(g *cluster.Gang, now time.Time) {
	if v != nil && g.Key.Face == volcano.Face && g.ActivePods == 0 {
		v.begun.Observe(max(0, milliseconds(now.Sub(g.Created.Time()))))
	}
}

// evicted counts what a bundle took of Volcano's gangs.
func (v *volcanos) evicted(o *apply.Outcome) {
	if v == nil {
		return
	}
	n := 0
	for i := range o.Bundle.Intents {
		if in := &o.Bundle.Intents[i]; in.Verb == engine.Evict && in.Gang.Face == volcano.Face && o.Evicted[in.UID] {
			n++
		}
	}
	if n > 0 {
		v.victims.Set(float64(n))
		v.transactions.Inc()
	}
}

// left shows what a run left.
func (v *volcanos) left(snap *cluster.Snapshot, r *engine.Result, took time.Duration) {
	if v == nil {
		return
	}
	v.run.Observe(milliseconds(took))
	for i := range r.Stats.Actions {
		v.attempts.Add(float64(r.Stats.Actions[i].Searches))
	}
	waiting := map[string]bool{}
	for i := range r.Trace.Gangs {
		t := &r.Trace.Gangs[i]
		if t.Diagnosis == nil || t.Gang.Face != volcano.Face {
			continue
		}
		id := t.Gang.Namespace + "/" + t.Gang.Name
		waiting[id] = true
		if g := snap.Gang(t.ID); g != nil {
			v.tasks.WithLabelValues(id).Set(float64(g.PendingPods))
		}
	}
	v.jobs.Set(float64(len(waiting)))
	for id := range v.waiting { // order: series, each its own
		if !waiting[id] {
			v.tasks.DeleteLabelValues(id)
		}
	}
	v.waiting = waiting
	v.share(snap, r.Trace.Queues)
}

// share shows what queues hold, ask for and may have.
func (v *volcanos) share(snap *cluster.Snapshot, all []engine.QueueTrace) {
	shown := map[string]bool{}
	for i := range all {
		t := &all[i]
		name, ok := strings.CutPrefix(t.Name, cluster.QueueName(volcano.Face, ""))
		if !ok {
			continue
		}
		shown[name] = true
		if q := snap.QueueByName(t.Name); q != nil {
			v.weight.WithLabelValues(name).Set(float64(q.Weight.At(cluster.CPU)) / 1000)
		}
		v.amount("allocated", name, snap.Dims, t.Allocated, 0)
		v.amount("request", name, snap.Dims, t.Requested, 0)
		v.amount("deserved", name, snap.Dims, t.Quota, 0)
		v.amount("capacity", name, snap.Dims, t.Limit, cluster.Unlimited)
	}
	for name := range v.queues { // order: series, each its own
		if shown[name] {
			continue
		}
		v.weight.DeleteLabelValues(name)
		for _, a := range v.amounts { // order: the same
			for _, series := range a.all() {
				series.DeletePartialMatch(prometheus.Labels{"queue_name": name})
			}
		}
	}
	v.queues = shown
}

// amount shows one amount of a queue, of which beyond is what it does not name. One without bound has no series.
func (v *volcanos) amount(what, queue string, dims cluster.Dims, of cluster.Resources, beyond int64) {
	a := v.amounts[what]
	set := func(series *prometheus.GaugeVec, x int64, factor float64, labels ...string) {
		if x == cluster.Unlimited {
			series.DeleteLabelValues(labels...)
			return
		}
		series.WithLabelValues(labels...).Set(float64(x) * factor)
	}
	for dim := range dims.Len() {
		x := beyond
		if dim < len(of) {
			x = of[dim]
		}
		switch dim {
		case cluster.CPU:
			set(a.cpu, x, 1, queue)
		case cluster.RAM:
			set(a.memory, x, 1, queue)
		case cluster.GPU:
			set(a.others, x, 1, queue, "nvidia.com/gpu") // it counts every vendor's, in thousandths
		case cluster.Slots:
			set(a.others, x, 1, queue, "pods")
		default:
			set(a.others, x, 1000, queue, dims.Name(dim))
		}
	}
}
