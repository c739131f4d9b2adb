package usage

import (
	"maps"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Sample is what the cluster had and what its queues held at one moment, in base units.
type Sample struct {
	// Had is what all nodes offer to pods.
	Had cluster.Resources
	// Held is what each queue's gangs hold, those of the queues below it included, by name.
	Held map[string]cluster.Resources
}

// Measure takes a sample. Its cost is linear in nodes, and in queues times the depth of their tree.
func Measure(snap *cluster.Snapshot) Sample {
	s := Sample{Held: make(map[string]cluster.Resources, len(snap.QueueOrder))}
	for _, id := range snap.NodeOrder {
		s.Had.Add(snap.Node(id).Allocatable)
	}
	for _, id := range snap.QueueOrder {
		q := snap.Queue(id)
		// A queue whose parents form a circle counts for each of them once or more; it gets nothing anyway.
		for up, depth := q, 0; up != nil && depth < len(snap.QueueOrder); depth++ {
			held := s.Held[up.Name]
			held.Add(q.Allocated)
			s.Held[up.Name] = held
			if up.Parent == "" {
				break
			}
			up = snap.QueueByName(up.Parent)
		}
	}
	return s
}

// Event is what the scheduler's state is told: dimensions by name.
func (s Shares) Event() cluster.UsageState {
	out := cluster.UsageState{Queues: make(map[string][]cluster.Quantity, len(s))}
	for queue, parts := range s { // order: each queue its own entry
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			out.Queues[queue] = append(out.Queues[queue], cluster.Quantity{Name: name, Value: parts[name]})
		}
	}
	return out
}
