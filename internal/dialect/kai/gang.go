package kai

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Face is the name of this API family in cluster.Key.
const Face = cluster.PlainFace

// GangKey returns the key of the gang that the PodGroup of that namespace and name is.
func GangKey(namespace, name string) cluster.Key {
	return cluster.Key{Face: Face, Namespace: namespace, Name: name}
}

// Gang returns the event that makes the model know pg as it is. pool is the shard's name in scheduling conditions
// (Partition.Pool).
//
// A time that cannot be read counts as none, a negative preemption delay as none.
func Gang(pg *v2alpha2.PodGroup, priorities *Priorities, pool string) cluster.GangState {
	sets, problem := tree(&pg.Spec)
	g := cluster.GangState{
		Key: GangKey(pg.Namespace, pg.Name), UID: string(pg.UID), Generation: pg.Generation,
		Queue: queueName(pg.Spec.Queue), Priority: priorities.Of(pg.Spec.PriorityClassName), Created: core.Nanoseconds(&pg.CreationTimestamp),
		Sets: sets, MarkUnschedulable: pg.Spec.MarkUnschedulable == nil || *pg.Spec.MarkUnschedulable,
		Backoff:   pg.Spec.SchedulingBackoff != nil && *pg.Spec.SchedulingBackoff != v2alpha2.NoSchedulingBackoff,
		LastStart: timestamp(pg.Annotations[LastStartAnnotation]), LastEviction: timestamp(pg.Annotations[LastEvictionAnnotation]),
		StaleSince: timestamp(pg.Annotations[StaleSinceAnnotation]),
		StaleGrace: duration(pg.Spec.StalenessGracePeriod),
	}
	if d := pg.Spec.PreemptionDelay; d != nil {
		g.PreemptionDelay = max(0, d.Duration)
	}
	if problem != "" {
		g.Invalid = "PodGroup " + pg.Namespace + "/" + pg.Name + ": " + problem
	}
	g.Preemptible = priorities.Preemptible(pg.Spec.Preemptibility, pg.Spec.PriorityClassName)
	g.GaveUp = g.Backoff && marked(pg.Status.SchedulingConditions, pool)
	return g
}

// queueName is what the model calls the queue, or the topology, that a text names: the same, unless it would be another face's, for which a tenant may
// write no more than for one that there is not.
func queueName(said string) string {
	if face, _ := cluster.SplitQueue(said); face != "" {
		return cluster.QueueName(Face, said)
	}
	return said
}

// marked says whether the conditions record a failed attempt in pool. The pool of the objects without a label has
// two spellings.
func marked(conditions []v2alpha2.SchedulingCondition, pool string) bool {
	for i := range conditions {
		c := &conditions[i]
		if c.Type == v2alpha2.UnschedulableOnNodePool && c.Status != "False" && (c.NodePool == pool || c.NodePool == "" && pool == DefaultPool) {
			return true
		}
	}
	return false
}

// duration reads a duration in nanoseconds, which an object may leave out.
func duration(d *metav1.Duration) cluster.Maybe[time.Duration] {
	if d == nil {
		return cluster.Maybe[time.Duration]{}
	}
	return cluster.Maybe[time.Duration]{Set: true, Value: time.Duration(d.Nanoseconds())}
}

// timestamp reads an RFC 3339 time into Unix nanoseconds; 0 for anything else, and for times an int64 cannot hold.
func timestamp(s string) cluster.Instant {
	if s == "" {
		return cluster.Instant{}
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1970 || t.Year() > 2261 {
		return cluster.Instant{}
	}
	return cluster.InstantOf(t)
}
