package scheduler

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/apply"
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
	used          map[int]*prometheus.GaugeVec // by dimension
	runs          prometheus.Counter
	considered    prometheus.Counter
	waiting       *prometheus.GaugeVec
	failedBundles prometheus.Counter
	aside         prometheus.Counter
	heldBack      prometheus.Counter
	overcommitted prometheus.Gauge
	freeGPUs      prometheus.Gauge
	unusableGPUs  prometheus.Gauge
	stages        *stages
	evictions     *prometheus.CounterVec
	evictedPods   *prometheus.CounterVec
	evictedGPUs   *prometheus.CounterVec
	frozen        prometheus.Counter
	pool          string
	givers        map[string]bool // UIDs of gangs with series of their own
	forgetAt      int             // at how many of them those that are gone are looked for
	pulse         *pulse
	volcano       *volcanos // nil where Volcano's face is off

	shares  map[string]string // queues with a fair share shown, and their display names; of the loop's goroutine
	reasons map[string]bool
}

// NewMetrics registers the metrics under a namespace ("kai" by default). pool is the shard's name.
func NewMetrics(namespace, pool string, r prometheus.Registerer) (*Metrics, error) {
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
		bound:   latency("task_bind_latency_milliseconds", "Time from the decision where a pod runs to its BindRequest, or its Binding if it has none, in milliseconds."),
		scheduled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "podgroups_scheduled_by_action",
			Help: "Gangs given room, by action.",
		}, []string{"action"}),
		fairGPU:    prometheus.NewGaugeVec(kai("queue_fair_share_gpu", "Fair share of GPUs."), queue),
		fairCPU:    prometheus.NewGaugeVec(kai("queue_fair_share_cpu_cores", "Fair share of CPU cores."), queue),
		fairMemory: prometheus.NewGaugeVec(kai("queue_fair_share_memory_gb", "Fair share of memory in 10^9 bytes."), queue),
		used: map[int]*prometheus.GaugeVec{
			cluster.GPU: prometheus.NewGaugeVec(kai("queue_gpu_usage", "GPUs the queue used lately, decayed, as a part of the cluster: 1 is all of it. Only with a history of usage."), queue),
			cluster.CPU: prometheus.NewGaugeVec(kai("queue_cpu_usage", "CPU the queue used lately, decayed, as a part of the cluster: 1 is all of it. Only with a history of usage."), queue),
			cluster.RAM: prometheus.NewGaugeVec(kai("queue_memory_usage", "Memory the queue used lately, decayed, as a part of the cluster: 1 is all of it. Only with a history of usage."), queue),
		},
		runs:          prometheus.NewCounter(own("scheduler_runs_total", "Runs of the engine.")),
		considered:    prometheus.NewCounter(own("scheduler_gangs_considered_total", "Gangs tried, over all runs.")),
		failedBundles: prometheus.NewCounter(own("scheduler_failed_bundles_total", "Bundles that could not be written and were decided anew.")),
		aside:         prometheus.NewCounter(own("gangs_set_aside_total", "Gangs that are not tried any more because trying them ended in a defect of the scheduler.")),
		heldBack:      prometheus.NewCounter(own("scheduler_held_back_seconds_total", "Time that cycles which were due waited because too many decisions were still to be written.")),
		waiting:       prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "muster", Name: "gangs_waiting", Help: "Gangs that wait, by reason, after the last run."}, []string{"reason"}),
		overcommitted: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "muster", Name: "overcommitted_nodes", Help: "Nodes on which more is used than there is, after the last run."}),
		freeGPUs:      prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "muster", Name: "gpus_free", Help: "GPUs that are free on nodes that take pods, free parts of shared ones included, before the last run."}),
		unusableGPUs:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "muster", Name: "gpus_unusable", Help: "The part of muster_gpus_free that the next pod could not use, on average over the kinds of work in the cluster: the expected fragmentation."}),
		evictions:     prometheus.NewCounterVec(own("evictions_total", "Pods evicted, by the right they were evicted by; moved ones included."), []string{"right"}),
		evictedPods: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "pod_group_evicted_pods_total", Help: "Pods evicted, by their gang.",
		}, []string{"podgroup", "namespace", "uid", "nodepool", "action"}),
		evictedGPUs: prometheus.NewCounterVec(own("disruption_gpus_total", "GPUs of pods that were evicted (evicted), of those among them that have room elsewhere (moved), and of pods that this made room for (placed), by right."), []string{"right", "fate"}),
		frozen:      prometheus.NewCounter(own("frozen_pairs_total", "Pairs of gangs of which one was evicted for the other again and again, and is left alone for a while.")),
		pool:        pool, givers: map[string]bool{}, forgetAt: forgetGivers,
		shares: map[string]string{}, reasons: map[string]bool{}, pulse: newPulse(),
	}
	for _, right := range []engine.EvictionCause{engine.Consolidation, engine.Reclaim, engine.Preempt, engine.Repair, engine.Shuffle} {
		m.evictions.WithLabelValues(string(right)) // from 0 on, or the first eviction of all would be no increase
		for _, fate := range []string{"evicted", "moved", "placed"} {
			m.evictedGPUs.WithLabelValues(string(right), fate)
		}
	}
	err := register(r, append(m.pulse.collectors(),
		m.latency, m.decided, m.bound, m.scheduled, m.fairGPU, m.fairCPU, m.fairMemory, m.runs, m.considered, m.waiting, m.failedBundles, m.aside, m.heldBack, m.overcommitted, m.freeGPUs, m.unusableGPUs,
		m.used[cluster.GPU], m.used[cluster.CPU], m.used[cluster.RAM], m.evictions, m.evictedPods, m.evictedGPUs, m.frozen,
	)...)
	if err != nil {
		return nil, err
	}
	m.stages, err = newStages(namespace, r)
	return m, err
}

// Bound counts a BindRequest, or the Binding of a pod without one, that was written so long after its decision. Safe for concurrent use.
func (m *Metrics) Bound(after time.Duration) { m.bound.Observe(milliseconds(after)) }

// evicted counts what a bundle took and gave.
func (m *Metrics) evicted(o *apply.Outcome) {
	m.volcano.evicted(o)
	right := string(o.Bundle.Eviction.Cause)
	uids := make(map[cluster.Key]string, len(o.Bundle.Eviction.Victims))
	for i := range o.Bundle.Eviction.Victims {
		uids[o.Bundle.Eviction.Victims[i].Gang] = o.Bundle.Eviction.Victims[i].UID
	}
	gpus := func(fate string, milli int64) { m.evictedGPUs.WithLabelValues(right, fate).Add(float64(milli) / 1000) }
	for i := range o.Bundle.Intents {
		in := &o.Bundle.Intents[i]
		switch {
		case in.Verb == engine.Evict && o.Evicted[in.UID]:
			m.evictions.WithLabelValues(right).Inc()
			m.evictedPods.WithLabelValues(in.Gang.Name, in.Gang.Namespace, uids[in.Gang], m.pool, o.Action).Inc()
			m.givers[uids[in.Gang]] = true
			gpus("evicted", in.GPU)
			if in.To != "" {
				gpus("moved", in.GPU)
			}
		case in.Verb == engine.Nominate && o.Err == nil:
			gpus("placed", in.GPU)
		}
	}
}

// forget drops the series of gangs that are gone, now and then: they are one per gang.
func (m *Metrics) forget(snap *cluster.Snapshot) {
	if len(m.givers) < m.forgetAt {
		return
	}
	there := make(map[string]bool, len(m.givers))
	snap.EachGang(func(g *cluster.Gang) {
		if m.givers[g.UID] {
			there[g.UID] = true
		}
	})
	for uid := range m.givers { // order: series, each its own
		if !there[uid] {
			m.evictedPods.DeletePartialMatch(prometheus.Labels{"uid": uid})
		}
	}
	m.givers, m.forgetAt = there, 2*len(there)+forgetGivers
}

// forgetGivers is how many gangs that are gone may have series.
const forgetGivers = 1000

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// gangsOf are the gangs that a plan is about, whose pods it takes too, in the store's latest snapshot.
func gangsOf(p *engine.Plan, store *cluster.Store, snap *cluster.Snapshot) map[cluster.Key]*cluster.Gang {
	out := make(map[cluster.Key]*cluster.Gang, len(p.Bundles))
	add := func(k cluster.Key) {
		if id, ok := store.GangID(k); ok {
			out[k] = snap.Gang(id)
		}
	}
	for i := range p.Bundles {
		b := &p.Bundles[i]
		add(b.Gang)
		for j := 0; b.Eviction != nil && j < len(b.Eviction.Victims); j++ {
			add(b.Eviction.Victims[j].Gang)
		}
	}
	return out
}

// plan counts what a plan gives room to.
func (m *Metrics) plan(p *engine.Plan, snap *cluster.Snapshot, gangs map[cluster.Key]*cluster.Gang, now time.Time) {
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
		g := gangs[b.Gang]
		if g == nil {
			continue
		}
		m.volcano.starts(g, now)
		for _, id := range g.Pods {
			if pod := snap.Pod(id); binds[pod.UID] {
				m.decided.Observe(max(0, milliseconds(now.Sub(pod.Created.Time()))))
			}
		}
	}
}

// run shows what a run left. Called by the loop's goroutine.
func (m *Metrics) run(snap *cluster.Snapshot, r *engine.Result, took time.Duration) {
	m.runs.Inc()
	m.pulse.run(snap, &r.Trace, took)
	m.forget(snap)
	m.volcano.left(snap, r, took)
	m.considered.Add(float64(r.Stats.Considered))
	m.stages.did(&r.Stats, &r.Trace)
	m.latency.Set(milliseconds(took))
	m.freeGPUs.Set(float64(r.Trace.Fragmentation.Free) / 1000)
	m.unusableGPUs.Set(float64(r.Trace.Fragmentation.Unusable) / 1000)

	waiting := map[string]int{}
	for i := range r.Trace.Gangs {
		if d := r.Trace.Gangs[i].Diagnosis; d != nil {
			waiting[d.Verdict.Reason.Key]++
			m.reasons[d.Verdict.Reason.Key] = true
		}
	}
	for reason := range m.reasons { // order: gauges, each its own; a reason once seen stays, at 0
		m.waiting.WithLabelValues(reason).Set(float64(waiting[reason]))
	}

	shown := map[string]string{}
	for i := range r.Trace.Queues {
		q := &r.Trace.Queues[i]
		if q.FairShare == nil {
			continue
		}
		display := q.Name
		o := snap.QueueByName(q.Name)
		if o != nil && o.Display != "" {
			display = o.Display
		}
		shown[q.Name] = display
		m.fairGPU.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.GPU)) / 1000)
		m.fairCPU.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.CPU)) / 1000)
		m.fairMemory.WithLabelValues(q.Name, q.Name, display).Set(float64(q.FairShare.At(cluster.RAM)) / 1e9)
		for dim, gauge := range m.used { // order: gauges, each its own
			if o != nil && o.Usage != nil {
				gauge.WithLabelValues(q.Name, q.Name, display).Set(float64(o.Usage.At(dim)) / 1e6)
			} else {
				gauge.DeleteLabelValues(q.Name, q.Name, display)
			}
		}
	}
	for name, display := range m.shares { // order: series, each its own
		if shown[name] != display {
			for _, v := range []*prometheus.GaugeVec{m.fairGPU, m.fairCPU, m.fairMemory, m.used[cluster.GPU], m.used[cluster.CPU], m.used[cluster.RAM]} {
				v.DeleteLabelValues(name, name, display)
			}
		}
	}
	m.shares = shown
}
