package volcano

import (
	"fmt"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// groupLimits is an annotation of queues of which Muster has no constant, since nothing reads it.
const groupLimits = "volcano.sh/nodegroup-resource-limits"

// ofQueues are the differences that are seen from queues, and from what is in them.
func ofQueues() []difference {
	queues := func(text string, is func(*scheduling.Queue) bool) func(*Objects, *found) {
		return func(o *Objects, f *found) {
			for i := range o.Queues {
				if q := &o.Queues[i]; is(q) {
					f.add(text, "Queue", "", q.Name)
				}
			}
		}
	}
	return []difference{
		{row: "queue-broken", next: "mend the queue, or move the gangs to another", find: brokenQueues},
		{row: "queues-founded", find: func(o *Objects, f *found) {
			known := o.queueNames()
			for _, name := range []string{keys.RootQueue, keys.DefaultQueue} {
				if !known[name] && len(o.Queues)+len(o.Groups) > 0 {
					f.add("", "Queue", "", name)
				}
			}
		}},
		{row: "queue-fifo", find: queues("", func(q *scheduling.Queue) bool { return q.Spec.DequeueStrategy == scheduling.DequeueStrategyFIFO })},
		{row: "queue-extras", find: queues("", func(q *scheduling.Queue) bool {
			return len(q.Spec.ExtendClusters) > 0 || q.Annotations[groupLimits] != ""
		})},
		{row: "queue-reservation", find: queues("", func(q *scheduling.Queue) bool {
			return len(q.Status.Reservation.Nodes)+len(q.Status.Reservation.Resource) > 0
		})},
	}
}

func (o *Objects) queueNames() map[string]bool {
	known := map[string]bool{}
	for i := range o.Queues {
		known[o.Queues[i].Name] = true
	}
	return known
}

// brokenQueues finds gangs whose queue takes none: it is not there, has queues below it, or hangs on one that is not there.
func brokenQueues(o *Objects, f *found) {
	known, above := o.queueNames(), map[string]bool{}
	parent := map[string]string{}
	for i := range o.Queues {
		q := &o.Queues[i]
		if p := q.Spec.Parent; p != "" {
			parent[q.Name], above[p] = p, true
		}
	}
	for i := range o.Groups {
		g := &o.Groups[i]
		name := g.Spec.Queue
		if name == "" {
			name = keys.DefaultQueue
		}
		why := ""
		switch {
		case !known[name] && (name == keys.DefaultQueue || name == keys.RootQueue): // which is made
		case !known[name]:
			why = fmt.Sprintf("queue %s is not there", brief(name))
		case above[name] || name == keys.RootQueue:
			why = fmt.Sprintf("queue %s has queues below it", brief(name))
		}
		for at, steps := name, 0; why == "" && parent[at] != "" && steps <= len(parent); at, steps = parent[at], steps+1 {
			if p := parent[at]; !known[p] && p != keys.RootQueue {
				why = fmt.Sprintf("queue %s hangs on %s, which is not there", brief(at), brief(p))
			} else if steps == len(parent) {
				why = fmt.Sprintf("queue %s hangs on itself", brief(name))
			}
		}
		if why != "" {
			f.add(why+", and its gangs wait; others go on, which in Volcano's plugin capacity they do not", "PodGroup", g.Namespace, g.Name)
		}
	}
}
