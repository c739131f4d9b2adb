package cluster

// DefaultSet is the name of the only pod set of a gang that declares none.
const DefaultSet = "default"

// MaxSets is the largest number of sets a gang may declare. A gang with more is not scheduled, and says so.
const MaxSets = 4096

// Set is one node of a gang's tree: an inner set of sets, or a leaf (pod set).
type Set struct {
	Name string
	// Parent is the index of the parent in Gang.Sets; None for the root, which is index 0.
	Parent int32
	// Children are indices in declaration order; empty for a leaf.
	Children []int32
	// Leaf says whether pods may belong to this set.
	Leaf bool
	// Min is, for a leaf, how many pods it needs; for an inner set, how many of its children must be satisfied.
	Min int32
}

// Gang is our model of a PodGroup: a tree of pod sets with minimums. It is immutable in a Snapshot.
type Gang struct {
	ID  GangID
	Key Key
	UID string
	// Queue is the leaf queue's name as the gang asks for it.
	Queue       string
	Priority    int32
	Preemptible bool
	Created     int64 // Unix nanoseconds
	// Sets is the tree; Sets[0] is the root. A gang with a broken tree has Sets of the root only and Invalid set.
	Sets []Set
	// Invalid says why the gang cannot be scheduled as it is written ("" when it can): one sentence for its owner.
	Invalid string
	// MarkUnschedulable: write PodScheduled=False on the pods that cannot be placed. Backoff: stop after the first
	// failed attempt until the gang changes.
	MarkUnschedulable bool
	Backoff           bool
	// GaveUp is set by the dialect when Backoff applies and a failed attempt has been recorded on the object.
	GaveUp bool
	// LastStart is when the gang last got its minimum, Unix nanoseconds; 0 for never.
	LastStart int64
	// Pods are the gang's pods, in no meaningful order.
	Pods []PodID
	// Counts of the gang's own pods, kept by the Store.
	PendingPods int32
	GatedPods   int32
	ActivePods  int32

	leaves     map[string]int32
	generation int64
	epoch      uint64
}

// LeafByName returns the index of the leaf called name, or None. "" and DefaultSet name the single default leaf.
func (g *Gang) LeafByName(name string) int32 {
	if name == "" {
		name = DefaultSet
	}
	if i, ok := g.leaves[name]; ok {
		return i
	}
	return None
}

// MinPods returns the smallest number of pods that satisfies the tree.
func (g *Gang) MinPods() int {
	if len(g.Sets) == 0 {
		return 0
	}
	return g.minPods(0)
}

func (g *Gang) minPods(i int32) int {
	s := &g.Sets[i]
	if s.Leaf {
		return int(s.Min)
	}
	mins := make([]int, 0, len(s.Children))
	for _, c := range s.Children {
		mins = append(mins, g.minPods(c))
	}
	total := 0
	for n := 0; n < int(s.Min) && n < len(mins); n++ { // the Min cheapest children
		best := n
		for j := n + 1; j < len(mins); j++ {
			if mins[j] < mins[best] {
				best = j
			}
		}
		mins[n], mins[best] = mins[best], mins[n]
		total += mins[n]
	}
	return total
}
