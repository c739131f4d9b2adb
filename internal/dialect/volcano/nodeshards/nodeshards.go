// Package nodeshards says which nodes are a scheduler's by Volcano's NodeShards, and what of that its own NodeShard tells others. It is pure: objects in, names out.
//
// Of each node that a NodeShard desires its scheduler makes use at once, unless another NodeShard says that it is in use there: then it is to be added, once the other has given it
// up. If both say so, as after a race, the first by name has it. A node that is desired no more is used no more; its NodeShard calls it in use, and to be removed, for as long as
// what was decided before may take to show.
package nodeshards

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
)

// Mode is what a NodeShard means for a scheduler's pods.
type Mode string

// The modes, as Volcano calls them.
const (
	// None: nothing.
	None Mode = "none"
	// Soft: they are placed on its nodes first.
	Soft Mode = "soft"
	// Hard: they are placed on no others.
	Hard Mode = "hard"
)

// Sharding is a scheduler's part in it. The zero value has none.
type Sharding struct {
	Mode Mode
	// Name is that of its NodeShard.
	Name string
}

// On says whether there is a NodeShard that means something.
func (s Sharding) On() bool { return s.Mode == Soft || s.Mode == Hard }

// Check says what is wrong with a mode and a name.
func (s Sharding) Check() error {
	switch {
	case s.Mode != "" && s.Mode != None && !s.On():
		return fmt.Errorf("the mode %q must be one of %s, %s, %s", s.Mode, None, Soft, Hard)
	case s.On() && s.Name == "":
		return fmt.Errorf("the mode %s needs the name of a NodeShard", s.Mode)
	}
	return nil
}

// Settle is for how long a node that is desired no more is in use and to be removed: what was decided before is bound then.
const Settle = 5 * time.Second

// Book is what is known of NodeShards. New makes one; it is not safe for concurrent use.
type Book struct {
	// Shards are the NodeShards, by name.
	Shards map[string]*shard.NodeShard
}

// New returns a book without NodeShards.
func New() *Book { return &Book{Shards: map[string]*shard.NodeShard{}} }

// Seen takes in a NodeShard, and says whether another scheduler may have other nodes by it.
func (b *Book) Seen(s *shard.NodeShard, gone bool) bool {
	old := b.Shards[s.Name]
	if gone {
		delete(b.Shards, s.Name)
		return old != nil
	}
	b.Shards[s.Name] = s
	return old == nil || old.UID != s.UID || !slices.Equal(old.Spec.NodesDesired, s.Spec.NodesDesired) || !slices.Equal(old.Status.NodesInUse, s.Status.NodesInUse)
}

// Use returns, by name, the nodes that the scheduler of a NodeShard makes use of, and those that it waits for because they are in use by another; nothing if there is no such
// NodeShard. Whether there are nodes of the names it does not say. Cost: the names in all NodeShards.
func (b *Book) Use(name string) (use, awaited []string) {
	own := b.Shards[name]
	if own == nil {
		return nil, nil
	}
	mine, taken := map[string]bool{}, map[string]bool{}
	for _, n := range own.Status.NodesInUse {
		mine[n] = true
	}
	for other, s := range b.Shards { // order: a set
		if other == name {
			continue
		}
		for _, n := range s.Status.NodesInUse {
			if !mine[n] || other < name {
				taken[n] = true
			}
		}
	}
	for _, n := range slices.Compact(slices.Sorted(slices.Values(own.Spec.NodesDesired))) {
		if taken[n] {
			awaited = append(awaited, n)
		} else {
			use = append(use, n)
		}
	}
	return use, awaited
}

// Status returns the status that a NodeShard is to have, nil if it has it, and when it is to be looked at again though nothing changes; zero for never. there says whether there
// is a node of a name.
func (b *Book) Status(name string, there func(node string) bool, now time.Time) (next *shard.NodeShardStatus, again time.Time) {
	own := b.Shards[name]
	if own == nil {
		return nil, time.Time{}
	}
	use, awaited := b.Use(name)
	absent := func(n string) bool { return !there(n) }
	use, awaited = slices.DeleteFunc(use, absent), slices.DeleteFunc(awaited, absent)
	desired := map[string]bool{}
	for _, n := range own.Spec.NodesDesired {
		desired[n] = true
	}
	st := own.Status
	var leaving []string
	for _, n := range slices.Compact(slices.Sorted(slices.Values(st.NodesInUse))) {
		if !desired[n] && there(n) {
			leaving = append(leaving, n)
		}
	}
	stamp := metav1.NewTime(now.Truncate(time.Second))
	switch told := st.LastUpdateTime.Time; {
	case len(leaving) == 0:
	case !slices.Equal(leaving, st.NodesToRemove):
		again = stamp.Add(Settle)
	case told.Add(Settle).After(now) && !told.After(now): // what others change meanwhile begins no new time
		stamp, again = st.LastUpdateTime, told.Add(Settle)
	default:
		leaving = nil
	}
	want := shard.NodeShardStatus{LastUpdateTime: stamp, NodesInUse: slices.Sorted(slices.Values(slices.Concat(use, leaving))), NodesToRemove: leaving, NodesToAdd: awaited}
	if slices.Equal(want.NodesInUse, st.NodesInUse) && slices.Equal(want.NodesToRemove, st.NodesToRemove) && slices.Equal(want.NodesToAdd, st.NodesToAdd) {
		return nil, again
	}
	return &want, again
}
