package cluster

import (
	"fmt"
	"slices"
	"strings"
)

// DefaultSet is the name of the only pod set of a gang that declares none.
const DefaultSet = "default"

// MaxSets is the largest number of sets a gang may declare. A gang with more is not scheduled, and says so.
const MaxSets = 4096

// Set is one node of a gang's tree: an inner set of sets, or a leaf (pod set).
type Set struct {
	Name string
	// Parent is the index of the parent in Gang.Sets; None for the root, which is index 0.
	Parent int32
	// Leaf says whether pods may belong to this set.
	Leaf bool
	// Rest says that a leaf takes the pods that ask for a set which the tree has not. At most one leaf of a tree does; without one such pods
	// are of no set.
	Rest bool
	// Whole says that the set gives all of its pods or none, where the gang could do with some of them. Of the root GangState.Whole says it.
	Whole bool `json:",omitempty"`
	// Children are indices in declaration order; empty for a leaf.
	Children []int32
	// Min is, for a leaf, how many pods it needs; for an inner set, how many of its children must be satisfied.
	Min int32
	// Pods is, for an inner set, how many pods of the leaves below it it needs in all, besides what each child needs; 0 for no more than
	// that.
	Pods int32
	// Near is what the pods of the set, and of all sets below it, must or should have in common.
	Near Constraint
	// UID is that of the object that a leaf is by itself, "" for one of the gang's own.
	UID string `json:",omitempty"`
}

// Gang is our model of a PodGroup: a tree of pod sets with minimums. It is immutable in a Snapshot.
type Gang struct {
	// What every session reads of every gang comes first: it is one line of the processor's cache.

	ID GangID
	// Counts of the gang's own pods, kept by the Store.
	PendingPods int32
	GatedPods   int32
	ActivePods  int32
	StrayPods   int32 // the part of ActivePods whose set is not in the tree

	least int32 // MinPods, computed once
	rest  int32 // the leaf for pods of other sets, or None

	// Pods are the gang's pods, in no meaningful order.
	Pods []PodID

	epoch uint64

	GangState
	GangHistory
	// Former and FormerUID are, of a remnant, the gang that its pods were bound for, "" if that is gone. It may be another shard's now.
	Former    Key
	FormerUID string

	asks   Resources        // of Asks
	leaves map[string]int32 // by name, of a tree of more sets than are looked through
	near   string           // see Shape
	aside  string           // why it is not scheduled although its object is in order; see Store.SetAside
	formed bool             // of a remnant: LastStart was taken from its former gang, once; later it only turns 0, when that gang is gone
}

// GangHistory is what a Store knows of a gang by itself. Times are.
type GangHistory struct {
	// Displaced is when pods of it were last evicted by us, or as its object says by who led before us; Since when it last lost
	// room by anything else; 0 for never as far as is known. Displacements are the latest evictions that the Store remembers,
	// oldest first, at most MaxDisplacements.
	Displaced, Since Instant
	Displacements    []Displacement
	// Started, Evicted and Stale are what its object will say later of LastStart, LastEviction and StaleSince.
	Started, Evicted Instant
	Stale            Maybe[Instant]
	// Admitted says that it was admitted and has not started since, where gangs have to be.
	Admitted bool
}

// empty says that there is nothing to be remembered.
func (h *GangHistory) empty() bool {
	return h.Displaced.IsZero() && h.Since.IsZero() && h.Started.IsZero() && h.Evicted.IsZero() && !h.Stale.Set && !h.Admitted
}

// Displacement is an eviction of pods of a gang by us: when, and for whom.
type Displacement struct {
	At Instant
	By Key
}

// MaxDisplacements is how many of a gang's evictions are remembered.
const MaxDisplacements = 8

// Maybe is a value that may not be stated.
type Maybe[V any] struct {
	Set   bool
	Value V
}

// LeafByName returns the index of the leaf called name, else of the one for the rest, or None. "" and DefaultSet name the single default leaf.
func (g *Gang) LeafByName(name string) int32 {
	if name == "" {
		name = DefaultSet
	}
	if g.leaves != nil {
		if i, ok := g.leaves[name]; ok {
			return i
		}
		return g.rest
	}
	for i := len(g.Sets) - 1; i >= 0; i-- {
		if s := &g.Sets[i]; s.Leaf && s.Name == name {
			return int32(i)
		}
	}
	return g.rest
}

// fewSets is how many sets are looked through for a name: a map for each of thousands of gangs takes more memory than their trees.
const fewSets = 8

// Minimum is what its minimum asks for as its object says, over the dimensions, and whether that says so. It must not be written to.
func (g *Gang) Minimum() (r Resources, said bool) { return g.asks, g.Asks != nil }

// Shape describes the tree with its constraints; "" for a gang without constraints. Gangs of one shape whose sets have
// pods of the same kinds in the same number can be placed alike.
func (g *Gang) Shape() string { return g.near }

func shape(sets []Set) string {
	if !slices.ContainsFunc(sets, func(s Set) bool { return s.Near != Constraint{} }) {
		return ""
	}
	var b strings.Builder
	for i := range sets {
		s := &sets[i]
		fmt.Fprintf(&b, "%d %d %d", s.Parent, s.Min, s.Pods)
		if c := s.Near; c != (Constraint{}) {
			fmt.Fprintf(&b, " %q %q %q", c.Topology, c.Required, c.Preferred)
		}
		b.WriteByte(';')
	}
	return b.String()
}

// Need returns how many of the living members of a leaf are its minimum now, when alive of them run or may run and finished
// have ended well. Those that have finished count as having existed: the rest starts again without them. But where the
// living are enough by themselves, as in a first start and when work is run anew under the name of the gang, they start
// together.
func (s *Set) Need(alive, finished int32) int32 { return missing(s.Min, alive, finished) }

// NeedPods is Need of an inner set's Pods: alive and finished are of all leaves below it together.
func (s *Set) NeedPods(alive, finished int32) int32 { return missing(s.Pods, alive, finished) }

func missing(least, alive, finished int32) int32 {
	if alive >= least {
		return least
	}
	return max(0, least-finished)
}

// MinPods returns the smallest number of pods that satisfies the tree.
func (g *Gang) MinPods() int {
	if len(g.Sets) == 0 {
		return 0
	}
	return g.minPods(0)
}

// MinPodsOf returns the smallest number of pods that satisfies set i of the tree.
func (g *Gang) MinPodsOf(i int32) int { return g.minPods(i) }

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
	return max(total, int(s.Pods))
}
