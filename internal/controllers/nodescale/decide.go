package nodescale

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
)

const (
	// coolFor is how long nothing is asked for under constraints for which room came.
	coolFor = time.Minute

	// coolMost bounds that when room comes again and again.
	coolMost = 5 * time.Minute

	// mostAsks bounds the scaling pods there are at a time.
	mostAsks = 1000
)

// demand is a pod that shares GPUs and waits for a node.
type demand struct {
	pod types.NamespacedName
	// devices is how many different devices it needs, of one node; portion how much of each.
	devices int64
	portion cluster.Portion
	// shape names its constraints: pods of one shape can use the same nodes.
	shape string
}

// ask is a scaling pod.
type ask struct {
	name   string // in the scaling namespace
	uid    types.UID
	source types.NamespacedName
	// devices is how many whole GPUs it requests; shape is its source's when it was made, "" if nobody says.
	devices int64
	shape   string
	created time.Time // to the second
	// ended says that it ran; going that it is being deleted.
	ended, going bool
}

// standing is how a pod that shares GPUs is doing.
type standing uint8

const (
	absent  standing = iota // it does not exist, has ended, or is not ours
	blocked                 // it waits for something that no node brings
	waiting                 // it waits for a node
	placed                  // it has a node, or one is promised
)

// Why a scaling pod is removed, as the metric says it.
const (
	whyEnded   = "ended"   // a node came, and it ran there
	whyPlaced  = "placed"  // its pod has found room
	whyGone    = "gone"    // its pod does not exist any more
	whyBlocked = "blocked" // a node would not help its pod
	whyChanged = "changed" // its pod asks for something else now, or another scaling pod stands for it
	whyShared  = "shared"  // there are as many as there may be, and another namespace had fewer
)

// removal is a scaling pod that is to go.
type removal struct {
	ask ask
	why string
}

// decision is what one look at the state leads to.
type decision struct {
	create []demand // for each of which a scaling pod is to be made, of as many GPUs as it needs devices
	remove []removal
	// again is when another look is worthwhile even without an event; zero for never.
	again time.Time
	// left is how many waiting pods nothing is asked for, because of mostAsks or because it is too soon.
	left int
}

// cooling is since when, and until when, nothing is asked for under one shape.
type cooling struct{ since, until time.Time }

// cooldowns are the shapes for which room came lately.
type cooldowns map[string]cooling

// begin notes that room came for a shape.
func (c cooldowns) begin(shape string, now time.Time) {
	k, cools := c[shape]
	if !cools || !now.Before(k.until) {
		if cools && k.until.Equal(k.since.Add(coolMost)) {
			return // it was the longest there is: now they are asked for, before another begins
		}
		k.since = now
	}
	k.until = now.Add(coolFor)
	if last := k.since.Add(coolMost); k.until.After(last) {
		k.until = last
	}
	c[shape] = k
}

// until is when something may be asked for again under the shape; zero for now.
func (c cooldowns) until(shape string, now time.Time) time.Time {
	k, cools := c[shape]
	if !cools || now.Before(k.until) {
		return k.until
	}
	delete(c, shape)
	return time.Time{}
}

// decide compares the scaling pods that exist with those that should. look says how a pod is doing. It changes cool. Cost:
// the waiting pods, each times the scaling pods of its shape at most.
func decide(demands []demand, asks []ask, look func(types.NamespacedName) standing, cool cooldowns, now time.Time) decision {
	var d decision
	wants := make(map[types.NamespacedName]*demand, len(demands))
	for i := range demands {
		wants[demands[i].pod] = &demands[i]
	}
	asks = inOrder(asks, wants)
	groups := map[string][]*group{}
	stands := map[types.NamespacedName]bool{}
	var held holdings
	going := 0
	for _, a := range asks {
		if a.going {
			continue
		}
		if why := verdict(&a, wants[a.source], look, stands[a.source]); why != "" {
			going++
			d.remove = append(d.remove, removal{a, why})
			if (why == whyEnded || why == whyPlaced) && a.shape != "" {
				cool.begin(a.shape, now)
			}
			continue
		}
		stands[a.source] = true
		want := wants[a.source]
		g := newGroup(a.devices)
		g.take(want)
		groups[want.shape] = append(groups[want.shape], g)
		held.add(holding{want: want, group: g, ask: &a})
	}
	for _, want := range packingOrder(demands) {
		if stands[want.pod] {
			continue
		}
		if slices.ContainsFunc(groups[want.shape], func(g *group) bool { return g.take(want) }) {
			continue
		}
		if at := cool.until(want.shape, now); !at.IsZero() {
			d.left++
			if d.again.IsZero() || at.Before(d.again) {
				d.again = at
			}
			continue
		}
		if going+len(held.all) >= mostAsks {
			d.left++
			gives, ok := held.give(want.pod.Namespace)
			if !ok {
				continue
			}
			if gives.ask != nil {
				d.remove = append(d.remove, removal{*gives.ask, whyShared})
			}
		}
		g := newGroup(want.devices)
		g.take(want)
		groups[want.shape] = append(groups[want.shape], g)
		held.add(holding{want: want, group: g})
	}
	for i := range held.all {
		if held.all[i].ask == nil {
			d.create = append(d.create, *held.all[i].want)
		}
	}
	for shape := range cool { // order: each on its own; what is over is forgotten
		cool.until(shape, now)
	}
	return d
}

// holding is a scaling pod that stays or is to be made.
type holding struct {
	want  *demand
	group *group
	ask   *ask // nil if it is to be made
}

// holdings are all of them, and how many each namespace has.
type holdings struct {
	all []holding
	of  map[string]int
}

func (h *holdings) add(x holding) {
	if h.of == nil {
		h.of = map[string]int{}
	}
	h.all = append(h.all, x)
	h.of[x.want.pod.Namespace]++
}

// give takes the last scaling pod from the namespace that has most of them, for another that still has no more than that one then;
// ok says whether there is such a namespace. So the scaling pods there may be are divided among those who wait, and one tenant's
// demand does not hide another's.
func (h *holdings) give(to string) (x holding, ok bool) {
	from := to
	for namespace, n := range h.of { // order: the most, of equals the first by name
		if n > h.of[from] || n == h.of[from] && namespace < from {
			from = namespace
		}
	}
	if h.of[from] <= h.of[to]+1 {
		return x, false
	}
	for i := len(h.all) - 1; ; i-- {
		if x = h.all[i]; x.want.pod.Namespace == from {
			h.all = slices.Delete(h.all, i, i+1)
			break
		}
	}
	h.of[from]--
	x.group.free = nil // nobody is packed onto it any more
	return x, true
}

// verdict says why a scaling pod has to go, "" if it stays. double says that another one stands for its pod.
func verdict(a *ask, want *demand, look func(types.NamespacedName) standing, double bool) string {
	if a.ended {
		return whyEnded
	}
	switch look(a.source) {
	case absent:
		return whyGone
	case blocked:
		return whyBlocked
	case placed:
		return whyPlaced
	}
	if want == nil || double || want.devices != a.devices || a.shape != "" && want.shape != a.shape {
		return whyChanged
	}
	return ""
}

// inOrder sorts scaling pods as they were asked for, so that the next look packs the waiting pods as the last one did: the
// oldest first, and of those made at once, the one of the pod that comes first in packing.
func inOrder(asks []ask, wants map[types.NamespacedName]*demand) []ask {
	asks = slices.Clone(asks)
	slices.SortFunc(asks, func(a, b ask) int {
		if c := a.created.Compare(b.created); c != 0 {
			return c
		}
		switch l, r := wants[a.source], wants[b.source]; {
		case l == r: // of one pod, or of pods that do not wait: they go anyway
			return strings.Compare(a.name, b.name)
		case l == nil:
			return -1
		case r == nil:
			return 1
		default:
			return packed(l, r)
		}
	})
	return asks
}

// packingOrder is large pods first: who needs many devices, then who needs much of them, then by name.
func packingOrder(demands []demand) []*demand {
	out := make([]*demand, len(demands))
	for i := range demands {
		out[i] = &demands[i]
	}
	slices.SortFunc(out, packed)
	return out
}

func packed(a, b *demand) int {
	return cmp.Or(cmp.Compare(b.devices, a.devices), cmp.Compare(b.portion, a.portion),
		strings.Compare(a.pod.Namespace, b.pod.Namespace), strings.Compare(a.pod.Name, b.pod.Name))
}

// group is the devices of one scaling pod: how much of each is left.
type group struct{ free []cluster.Portion }

func newGroup(devices int64) *group {
	g := &group{free: make([]cluster.Portion, devices)}
	for i := range g.free {
		g.free[i] = cluster.WholePortion
	}
	return g
}

// take gives a pod its devices, if there are so many with room; otherwise nothing changes.
func (g *group) take(d *demand) bool {
	fits := int64(0)
	for _, free := range g.free {
		if free >= d.portion {
			fits++
		}
	}
	if fits < d.devices {
		return false
	}
	left := d.devices
	for i := range g.free {
		if left > 0 && g.free[i] >= d.portion {
			g.free[i] -= d.portion
			left--
		}
	}
	return true
}
