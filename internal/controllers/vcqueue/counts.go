package vcqueue

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// counts are how many PodGroups a queue has, and Volcano's metrics of its queue controller: how many are in which phase. They move with each PodGroup, and a scrape costs nothing. Guarded by the
// loop's lock.
type counts struct {
	by     map[scheduling.PodGroupPhase]*prometheus.GaugeVec
	groups map[types.NamespacedName]counted
	queues map[string]int // PodGroups that name it: without any it has no series
}

// counted is where a PodGroup counts.
type counted struct {
	queue string
	phase scheduling.PodGroupPhase
}

// countNames are the phases that PodGroups are counted by, as metrics and the status of queues call them.
var countNames = map[scheduling.PodGroupPhase]string{
	scheduling.PodGroupPending: "pending", scheduling.PodGroupInqueue: "inqueue", scheduling.PodGroupRunning: "running", scheduling.PodGroupUnknown: "unknown", scheduling.PodGroupCompleted: "completed",
}

// countedAs is where a PodGroup counts. One whose phase nobody has said is pending.
func countedAs(g *scheduling.PodGroup) counted {
	if countNames[g.Status.Phase] == "" {
		return counted{g.Spec.Queue, scheduling.PodGroupPending}
	}
	return counted{g.Spec.Queue, g.Status.Phase}
}

// newCounts registers the metrics; nil for nowhere.
func newCounts(r prometheus.Registerer) (*counts, error) {
	c := &counts{by: map[scheduling.PodGroupPhase]*prometheus.GaugeVec{}, groups: map[types.NamespacedName]counted{}, queues: map[string]int{}}
	for phase, name := range countNames { // order: each its own
		c.by[phase] = prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "volcano", Name: "queue_pod_group_" + name + "_count", Help: fmt.Sprintf("PodGroups of a queue that are %s.", phase),
		}, []string{"queue_name"})
		if r == nil {
			continue
		}
		if err := r.Register(c.by[phase]); err != nil {
			return nil, fmt.Errorf("queue controller: register metrics: %w", err)
		}
	}
	return c, nil
}

// seen takes in a PodGroup, and returns the queues that have more or fewer than before.
func (c *counts) seen(g *scheduling.PodGroup, gone bool) (due []string) {
	k := client.ObjectKeyFromObject(g)
	now := countedAs(g)
	was, had := c.groups[k]
	if had && !gone && was == now {
		return nil
	}
	stays := had && !gone && was.queue == now.queue
	if had && !stays {
		due = append(due, was.queue)
	}
	if !gone && !stays {
		due = append(due, now.queue)
	}
	if !gone {
		c.groups[k] = now
		if c.queues[now.queue]++; c.queues[now.queue] == 1 {
			for _, series := range c.by { // order: each its own
				series.WithLabelValues(now.queue).Set(0)
			}
		}
		c.by[now.phase].WithLabelValues(now.queue).Inc()
	}
	if !had {
		return due
	}
	if gone {
		delete(c.groups, k)
	}
	c.by[was.phase].WithLabelValues(was.queue).Dec()
	if c.queues[was.queue]--; c.queues[was.queue] == 0 {
		delete(c.queues, was.queue)
		for _, series := range c.by { // order: the same
			series.DeleteLabelValues(was.queue)
		}
	}
	return due
}
