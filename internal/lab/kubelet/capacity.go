package kubelet

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

// Capacity serves what each played node has under the name and the labels of kube-state-metrics, which no lab runs:
// kube_node_status_capacity{node, resource, unit}, CPU in cores, memory and storage in bytes.
type Capacity struct {
	player *Player
	desc   *prometheus.Desc
}

// Capacity returns the collector of the player's nodes.
func (p *Player) Capacity() *Capacity {
	return &Capacity{player: p, desc: prometheus.NewDesc("kube_node_status_capacity", "What a node has.", []string{"node", "resource", "unit"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *Capacity) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *Capacity) Collect(ch chan<- prometheus.Metric) {
	var out []prometheus.Metric
	c.player.mu.Lock()
	for name, n := range c.player.nodes {
		for resource, amount := range n.capacity {
			value, unit := float64(amount), "integer"
			switch resource {
			case corev1.ResourceCPU:
				value, unit = value/1000, "core"
			case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
				unit = "byte"
			}
			out = append(out, prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value, name, metricWord(string(resource)), unit))
		}
	}
	c.player.mu.Unlock() // before the sends, which wait for the scraper
	for _, m := range out {
		ch <- m
	}
}

// metricWord writes a resource's name as kube-state-metrics does: nvidia.com/gpu is nvidia_com_gpu.
func metricWord(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, name)
}
