package queue

import (
	"math"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// metrics serves a queue's numbers under KAI's names. They are read from the fold at each scrape: nothing is spent on
// them in between, they are as fresh as the fold, and the series of a deleted queue end with it.
type metrics struct {
	mu   sync.Locker // guards fold
	fold *fold

	extra []mapped // after the three fixed labels

	info, deserved, quotaCPU, quotaMemory, gpus, cpu, memory *prometheus.Desc
	wantsGPUs, wantsCPU, wantsMemory                         *prometheus.Desc
}

// mapped is a label of the Queue object that becomes a label of its metrics.
type mapped struct{ object, metric, fallback string }

func newMetrics(mu sync.Locker, f *fold, namespace string, extra []mapped) *metrics {
	labels := []string{"queue_name", "queue_metadata_name", "queue_display_name"}
	for _, m := range extra {
		labels = append(labels, m.metric)
	}
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, labels, nil)
	}
	own := func(name, help string) *prometheus.Desc { return prometheus.NewDesc("muster_"+name, help, labels, nil) }
	return &metrics{
		mu: mu, fold: f, extra: extra,
		info:        desc("queue_info", "A queue; always 1."),
		deserved:    desc("queue_deserved_gpus", "The queue's GPU quota in devices; -1 is without bound."),
		quotaCPU:    desc("queue_quota_cpu_cores", "The queue's CPU quota in cores; -1 is without bound."),
		quotaMemory: desc("queue_quota_memory_bytes", "The queue's memory quota in bytes; -1 is without bound."),
		gpus:        desc("queue_allocated_gpus", "GPUs that the queue and the queues below it hold, in devices."),
		cpu:         desc("queue_allocated_cpu_cores", "CPU that the queue and the queues below it hold, in cores."),
		memory:      desc("queue_allocated_memory_bytes", "Memory that the queue and the queues below it hold, in bytes."),
		wantsGPUs:   own("queue_requested_gpus", "GPUs that the work of the queue and the queues below it asks for, held ones included, in devices."),
		wantsCPU:    own("queue_requested_cpu_cores", "CPU that the work of the queue and the queues below it asks for, held CPU included, in cores."),
		wantsMemory: own("queue_requested_memory_bytes", "Memory that the work of the queue and the queues below it asks for, held memory included, in bytes."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.info, m.deserved, m.quotaCPU, m.quotaMemory, m.gpus, m.cpu, m.memory, m.wantsGPUs, m.wantsCPU, m.wantsMemory} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	type row struct {
		labels           []string
		holdings         []holding
		gpu, cpu, memory float64 // requested
	}
	m.mu.Lock()
	rows := make([]row, 0, len(m.fold.nodes))
	for _, n := range m.fold.nodes {
		if n.exists {
			asked := n.total.requested.List()
			amount := func(name corev1.ResourceName) float64 { q := asked[name]; return q.AsApproximateFloat64() }
			rows = append(rows, row{m.labels(n), n.holdings(), gpus(asked), amount(corev1.ResourceCPU), amount(corev1.ResourceMemory)})
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
		send(m.wantsGPUs, rounded(r.gpu))
		send(m.wantsCPU, rounded(r.cpu))
		send(m.wantsMemory, rounded(r.memory))
	}
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
