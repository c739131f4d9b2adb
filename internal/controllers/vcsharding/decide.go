package vcsharding

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	shard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
)

// plan is what a look at all has written, in this order: who gives nodes up comes before who gets some.
type plan struct {
	remove []*shard.NodeShard
	change []change
	create []change
}

// change is the nodes that a NodeShard, by name, is to have.
type change struct {
	name  string
	shard *shard.NodeShard // nil for one that is to be made
	nodes []string
}

// moving is how long a node that another NodeShard gives up is waited for before it is looked at again.
const moving = time.Second

// step is the part of a node's CPU below which nodes are equally far from a range: those who are given a scheduler that has too few do not change with each pod.
const step = whole / 10

// decide says what is to be written, and when there is to be a look again.
func (b *book) decide(now time.Time) (p plan, again time.Time) {
	if b.config == nil {
		return p, time.Time{}
	}
	again = now.Add(b.config.period)
	holders := b.holders()
	want := b.divide(holders)
	for _, name := range slices.Sorted(maps.Keys(b.shards)) {
		if s := b.shards[name]; want[name] == nil && ours(s) && s.DeletionTimestamp == nil {
			p.remove = append(p.remove, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		have := b.shards[name]
		if have != nil && have.DeletionTimestamp != nil {
			again = now.Add(moving)
			continue
		}
		next := make([]string, 0, len(want[name]))
		for _, n := range want[name] {
			others := len(holders[n])
			if holders[n][name] {
				others--
			}
			if others > 0 && !(holders[n][name] && b.first(holders[n]) == name) {
				again = now.Add(moving) // it is given up first
				continue
			}
			next = append(next, n)
		}
		switch {
		case have == nil:
			p.create = append(p.create, change{name: name, nodes: next})
		case !slices.Equal(have.Spec.NodesDesired, next):
			p.change = append(p.change, change{name: name, shard: have, nodes: next})
		}
	}
	return p, again
}

// first is the first by name of NodeShards that have a node, those that are not ours to divide before all: while several have it, it stays there.
func (b *book) first(names map[string]bool) string {
	return slices.MinFunc(slices.Collect(maps.Keys(names)), func(x, y string) int {
		return cmp.Or(cmp.Compare(b.rank(x), b.rank(y)), cmp.Compare(x, y))
	})
}

func (b *book) rank(name string) int {
	if b.strange(name) {
		return 0
	}
	return 1
}

// strange says whether a NodeShard is one that the configuration does not name and that this controller did not make: its nodes are nobody else's.
func (b *book) strange(name string) bool {
	s := b.shards[name]
	return s != nil && !ours(s) && !slices.ContainsFunc(b.config.schedulers, func(c scheduler) bool { return c.name == name })
}

// ours says whether this controller made a NodeShard.
func ours(s *shard.NodeShard) bool { return s.Labels[keys.ShardSource] == keys.ShardSourceController }

// divide says which nodes each scheduler of the configuration should have, by name. First each, in the order of the configuration, gets the nodes of its range; then nodes that are
// of no range stay where they are; then who has too few gets others, those first that are nearly of its range.
func (b *book) divide(holders map[string]map[string]bool) map[string][]string {
	of := map[string]string{} // the scheduler of each node
	free := func(n string) bool { return of[n] == "" }
	names := slices.Sorted(maps.Keys(b.nodes))
	names = slices.DeleteFunc(names, func(n string) bool {
		for name := range holders[n] { // order: any
			if b.strange(name) {
				return true
			}
		}
		return false
	})
	used, has := map[string]int64{}, map[string]int{}
	for _, n := range names {
		used[n] = b.used(n)
	}
	give := func(s *scheduler, n string) {
		has[of[n]]--
		of[n] = s.name
		has[s.name]++
	}
	here := func(s *scheduler, n string) int { // 0 before 1
		if holders[n][s.name] {
			return 0
		}
		return 1
	}
	for i := range b.config.schedulers {
		s := &b.config.schedulers[i]
		fit := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !free(n) || s.distance(used[n]) > 0 })
		slices.SortStableFunc(fit, func(x, y string) int {
			return cmp.Or(cmp.Compare(s.worth(b.nodes[y]), s.worth(b.nodes[x])), cmp.Compare(here(s, x), here(s, y)))
		})
		for _, n := range fit[:min(len(fit), s.most)] {
			give(s, n)
		}
	}
	for i := range b.config.schedulers {
		s := &b.config.schedulers[i]
		for _, n := range names {
			if free(n) && here(s, n) == 0 && has[s.name] < s.most && !b.ranged(used[n]) {
				give(s, n)
			}
		}
	}
	least := map[string]int{}
	for i := range b.config.schedulers {
		least[b.config.schedulers[i].name] = b.config.schedulers[i].least
	}
	for i := range b.config.schedulers {
		s := &b.config.schedulers[i]
		if has[s.name] >= s.least {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return of[n] == s.name })
		taken := func(n string) int {
			if free(n) {
				return 0
			}
			return 1
		}
		slices.SortStableFunc(others, func(x, y string) int {
			return cmp.Or(cmp.Compare(taken(x), taken(y)), cmp.Compare(s.distance(used[x])/step, s.distance(used[y])/step))
		})
		for _, n := range others {
			if has[s.name] >= s.least {
				break
			}
			if free(n) || has[of[n]] > least[of[n]] {
				give(s, n)
			}
		}
	}
	out := map[string][]string{}
	for i := range b.config.schedulers {
		out[b.config.schedulers[i].name] = []string{}
	}
	for _, n := range names {
		if !free(n) {
			out[of[n]] = append(out[of[n]], n)
		}
	}
	return out
}

// ranged says whether any scheduler wants nodes of which so much is asked for.
func (b *book) ranged(used int64) bool {
	return slices.ContainsFunc(b.config.schedulers, func(s scheduler) bool { return s.distance(used) == 0 })
}

// distance is how far what is asked for of a node is from the scheduler's range.
func (s *scheduler) distance(used int64) int64 { return max(s.from-used, used-s.to, 0) }

// worth is what a node of its range is worth to a scheduler.
func (s *scheduler) worth(n node) int64 {
	if n.warm {
		return s.inRange + s.warm
	}
	return s.inRange
}
