package queue

import (
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
)

// metrics serves a queue's numbers under KAI's names. They are read from the aggregator at each scrape: nothing is spent on
// them in between, they are as fresh as the aggregator, and the series of a deleted queue end with it.
type metrics struct {
	mu         sync.Locker // guards aggregator
	aggregator *aggregator

	extra []mapped // after the three fixed labels

	info, deserved, quotaCPU, quotaMemory, gpus, cpu, memory *prometheus.Desc // KAI's
	asksGPUs, asksCPU, asksMemory, limitGPUs, condition      *prometheus.Desc // ours
}

// mapped is a label of the Queue object that becomes a label of its metrics.
type mapped struct{ object, metric, fallback string }

func newMetrics(mu sync.Locker, f *aggregator, namespace string, extra []mapped) *metrics {
	labels := []string{"queue_name", "queue_metadata_name", "queue_display_name"}
	for _, m := range extra {
		labels = append(labels, m.metric)
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	own := func(name, help string, more ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("muster", "", name), help, append(slices.Clone(labels), more...), nil)
	}
	return &metrics{
		asksGPUs:   own("queue_requested_gpus", "GPUs that the queue and the queues below it ask for, what they hold included, in devices."),
		asksCPU:    own("queue_requested_cpu_cores", "CPU that the queue and the queues below it ask for, what they hold included, in cores."),
		asksMemory: own("queue_requested_memory_bytes", "Memory that the queue and the queues below it ask for, what they hold included, in bytes."),
		limitGPUs:  own("queue_limit_gpus", "The queue's GPU limit in devices; -1 is without bound."),
		condition:  own("queue_condition", "Whether a condition of the queue is true (1) or not (0).", "condition"),
		mu:         mu, aggregator: f, extra: extra,
		info:        desc("queue_info", "A queue; always 1."),
		deserved:    desc("queue_deserved_gpus", "The queue's GPU quota in devices; -1 is without bound."),
		quotaCPU:    desc("queue_quota_cpu_cores", "The queue's CPU quota in cores; -1 is without bound."),
		quotaMemory: desc("queue_quota_memory_bytes", "The queue's memory quota in bytes; -1 is without bound."),
		gpus:        desc("queue_allocated_gpus", "GPUs that the queue and the queues below it hold, in devices."),
		cpu:         desc("queue_allocated_cpu_cores", "CPU that the queue and the queues below it hold, in cores."),
		memory:      desc("queue_allocated_memory_bytes", "Memory that the queue and the queues below it hold, in bytes."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.info, m.deserved, m.quotaCPU, m.quotaMemory, m.gpus, m.cpu, m.memory, m.asksGPUs, m.asksCPU, m.asksMemory, m.limitGPUs, m.condition,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	type row struct {
		labels   []string
		holdings []holding
		asks     [3]float64 // GPUs, cores, bytes
		limit    float64
		is       map[v2.QueueConditionType]bool
	}
	m.mu.Lock()
	rows := make([]row, 0, len(m.aggregator.nodes))
	for _, n := range m.aggregator.nodes {
		if n.exists {
			rows = append(rows, row{m.labels(n), n.holdings(), n.asks(), n.limitGPUs(), map[v2.QueueConditionType]bool{
				v2.QueueOrphan: n.orphan().Status == corev1.ConditionTrue, v2.QueueOverQuota: n.overQuota().Status == corev1.ConditionTrue,
			}})
		}
	}
	m.mu.Unlock() // before the sends, which wait for the scraper
	for _, r := range rows {
		send := func(d *prometheus.Desc, v float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, r.labels...)
		}
		gpu, cpu, memory := r.holdings[0], r.holdings[1], r.holdings[2]
		send(m.info, 1)
		send(m.deserved, gpu.quota)
		send(m.quotaCPU, cpu.quota)
		send(m.quotaMemory, memory.quota)
		send(m.gpus, rounded(gpu.allocated))
		send(m.cpu, rounded(cpu.allocated))
		send(m.memory, rounded(memory.allocated))
		send(m.asksGPUs, rounded(r.asks[0]))
		send(m.asksCPU, rounded(r.asks[1]))
		send(m.asksMemory, rounded(r.asks[2]))
		send(m.limitGPUs, r.limit)
		for name, is := range r.is { // order: each its own series
			v := 0.0
			if is {
				v = 1
			}
			ch <- prometheus.MustNewConstMetric(m.condition, prometheus.GaugeValue, v, append(slices.Clone(r.labels), string(name))...)
		}
	}
}

// asks is what the queue and everything below it asks for: GPUs, cores, bytes.
func (n *node) asks() [3]float64 {
	list := n.total.requested.List()
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return [3]float64{gpus(list), cpu.AsApproximateFloat64(), memory.AsApproximateFloat64()}
}

// limitGPUs is the queue's GPU limit; one that states no resources may have none.
func (n *node) limitGPUs() float64 {
	if n.spec.Resources == nil {
		return 0
	}
	return n.spec.Resources.GPU.Limit
}

func (m *metrics) labels(n *node) []string {
	values := append(make([]string, 0, 3+len(m.extra)), n.name, n.name, n.spec.DisplayName)
	for _, e := range m.extra {
		v, ok := n.labels[e.object]
		if !ok {
			v = e.fallback
		}
		values = append(values, v)
	}
	for i := range values {
		values[i] = strings.ToValidUTF8(values[i], "\uFFFD") // a fallback comes from a command line; other text would end the process
	}
	return values
}

// rounded is f to four decimals.
func rounded(f float64) float64 {
	if math.Abs(f) > 1e11 { // has no such decimals to lose, and f*1e4 must stay exact
		return f
	}
	return math.Round(f*1e4) / 1e4
}
