package tasktopology

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// The strengths of what two pods of a gang have for each other: below 0 they would rather be on different nodes.
const (
	selfApart    = -4
	twoTogether  = 3
	selfTogether = 2
	twoApart     = -1
)

// mostPods is how many pods of a gang are put in buckets, and mostBuckets in how many of them at most: those behind are in none.
const (
	mostPods    = 1024
	mostBuckets = 128
)

// roles are what a gang says of its pods by name.
type roles struct {
	at    map[string]int // index, by name
	names []string
	// between says how strong what pods of two roles have for each other is.
	between [][]int64
	// order is where the gang's own order has the role; those that it does not name are behind.
	order []int
	// all is how many pods there are of a role that have a node or wait.
	all []int64
	// own is the strongest that a role has for itself or any other, whichever way.
	own []int64
}

// read makes roles of what a gang says.
func read(c *cluster.Company) *roles {
	r := &roles{at: map[string]int{}}
	add := func(name string) int {
		i, known := r.at[name]
		if !known {
			i = len(r.names)
			r.at[name], r.names = i, append(r.names, name)
		}
		return i
	}
	for _, name := range c.Order {
		add(name)
	}
	for _, group := range slices.Concat(c.Together, c.Apart) {
		for _, name := range group {
			add(name)
		}
	}
	n := len(r.names)
	r.between, r.order, r.all, r.own = make([][]int64, n), make([]int, n), make([]int64, n), make([]int64, n)
	for i := range n {
		r.between[i], r.order[i] = make([]int64, n), len(c.Order)
	}
	for i, name := range c.Order {
		r.order[r.at[name]] = i
	}
	say := func(a, b int, strength int64) {
		if magnitude(strength) > magnitude(r.between[a][b]) {
			r.between[a][b], r.between[b][a] = strength, strength
		}
		r.own[a], r.own[b] = max(r.own[a], magnitude(strength)), max(r.own[b], magnitude(strength))
	}
	groups := func(of [][]string, self, two int64) {
		for _, group := range of {
			for i, a := range group {
				for _, b := range group[i+1:] {
					say(r.at[a], r.at[b], two)
				}
				if len(group) == 1 {
					say(r.at[a], r.at[a], self)
				}
			}
		}
	}
	groups(c.Together, selfTogether, twoTogether)
	groups(c.Apart, selfApart, twoApart)
	return r
}

func magnitude(x int64) int64 { return max(x, -x) }

// of is the role of a pod; -1 for one of which nothing is said.
func (r *roles) of(p *cluster.Pod) int {
	if i, known := r.at[p.PodState.SetName]; known {
		return i
	}
	return -1
}

// compare orders roles by the strongest that they have for any, then those of fewer pods first, as others gather around them, then by the gang's order, and by name.
func (r *roles) compare(a, b int) int {
	return cmp.Or(cmp.Compare(r.own[b], r.own[a]), cmp.Compare(r.all[a], r.all[b]), cmp.Compare(r.order[a], r.order[b]), cmp.Compare(r.names[a], r.names[b]))
}

// bucket is pods that should be on one node.
type bucket struct {
	pods  []*cluster.Pod
	roles []int64 // how many pods of each role
	node  string  // where those of them are that had a node when the cycle began; "" for nowhere
}

// pull is how strong what the pods of a bucket have for one of a role is, in all.
func (b *bucket) pull(r *roles, role int) (sum int64) {
	for of, n := range b.roles {
		sum += n * r.between[role][of]
	}
	return sum
}

func (b *bucket) add(r *roles, p *cluster.Pod, role int) {
	if b.roles == nil {
		b.roles = make([]int64, len(r.names))
	}
	b.pods = append(b.pods, p)
	b.roles[role]++
}

// fill puts pods in buckets. Those that have a node are in one with the others there. The rest go, by role and by name, each to the bucket whose pods pull it most, if any
// does: of those that pull it alike, to the one with the fewest pods, of these to the first; and otherwise to one of its own.
func fill(r *roles, placed, waiting []*cluster.Pod) []*bucket {
	var out []*bucket
	slices.SortFunc(placed, func(a, b *cluster.Pod) int {
		return cmp.Or(strings.Compare(a.NodeName, b.NodeName), r.comparePods(a, b))
	})
	for _, p := range placed {
		if len(out) == 0 || out[len(out)-1].node != p.NodeName {
			if len(out) == mostBuckets {
				break
			}
			out = append(out, &bucket{node: p.NodeName})
		}
		out[len(out)-1].add(r, p, r.of(p))
	}
	slices.SortFunc(waiting, r.comparePods)
	for _, p := range waiting[:min(len(waiting), mostPods)] {
		role, most := r.of(p), int64(0)
		var best *bucket
		for _, b := range out {
			if pull := b.pull(r, role); pull > most || best != nil && pull == most && len(b.pods) < len(best.pods) {
				best, most = b, pull
			}
		}
		if best == nil {
			if len(out) == mostBuckets {
				continue
			}
			best = &bucket{}
			out = append(out, best)
		}
		best.add(r, p, role)
	}
	return out
}

// comparePods orders pods by role, then the number at the end of the name, and name.
func (r *roles) comparePods(a, b *cluster.Pod) int {
	return cmp.Or(r.compare(r.of(a), r.of(b)), cmp.Compare(number(a.Name), number(b.Name)), strings.Compare(a.Name, b.Name))
}

// number is the number at the end of a name; of one without, more than any.
func number(name string) uint64 {
	n, err := strconv.ParseUint(name[len(strings.TrimRight(name, "0123456789")):], 10, 63)
	if err != nil {
		return 1 << 63
	}
	return n
}
