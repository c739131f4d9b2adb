// Package fragmentation places pods that use GPUs where they leave the fewest that the work there is could not use: it
// descends the expected fragmentation of Fragmentation Gradient Descent (Weng et al., USENIX ATC 2023).
//
// It scores a node by how much less of its free GPUs would be unusable after the placement than before, on average over the
// kinds of work in the cluster (policy.Mix); and the devices of a node likewise, so that a part of a GPU goes where the rest
// stays useful. It is opt-in, and takes the place of the plugins that pack or spread parts of GPUs: gpusharingorder, gpupack,
// gpuspread. Nodes where a pod fits at once still come before those where it would wait.
package fragmentation

import (
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "fragmentation"

// perGPU is the score of one whole GPU that is no longer unusable, most what it is at most: below nodeavailability, above
// packing.
const (
	perGPU = 100 * policy.ScorePoint
	most   = 900 * policy.ScorePoint
)

// millionths of a GPU is the unit of the measure.
const millionths = 1_000_000

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(open)

type instance struct {
	view *policy.View
	mix  policy.Mix
	// scores are those of nodes that are alike, by class and state: an empty cluster has one of them.
	scores map[string]int64
	key    []byte
}

// open opens the plugin for a run.
func open(v *policy.View) *instance {
	return &instance{view: v, scores: map[string]int64{}, mix: policy.NewMix(v.Snapshot())}
}

// ScoreNode implements policy.NodeScore: what the best choice of devices makes of the node. Pods without GPUs count, too: the
// CPU they take may be what GPUs beside it need.
func (i *instance) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	if n.Allocatable.At(cluster.GPU) <= 0 {
		return 0
	}
	f := i.view.FreeLater(n.ID)
	slices.Sort(f.Parts)
	key := i.state(c, &f)
	if s, ok := i.scores[string(key)]; ok {
		return s
	}
	before := i.mix.Expected(&f)
	after := f
	after.Room = f.Room.Clone()
	after.Room.Sub(c.Requests)
	var taken []int // of Parts: no pod takes of one device twice
	for range c.Share.Devices {
		taken = i.takePart(&after, c.Share.Takes(f.Units), taken)
	}
	s := points(before - i.mix.Expected(&after))
	i.scores[string(key)] = s
	return s
}

// takePart takes a part of the device, none of those taken already, that this leaves the least unusable on.
func (i *instance) takePart(f *policy.FreeGPUs, takes cluster.DeviceUnits, taken []int) []int {
	best, least := -2, int64(0)
	try := func(at int) {
		g := i.with(f, at, takes)
		if x := i.mix.Expected(&g); best == -2 || x < least {
			best, least = at, x
		}
	}
	for at, p := range f.Parts {
		if p >= takes && (at == 0 || p != f.Parts[at-1] || slices.Contains(taken, at-1)) && !slices.Contains(taken, at) {
			try(at)
		}
	}
	if f.Room.At(cluster.GPU) >= cluster.Whole && takes <= f.Units {
		try(-1)
	}
	if best == -2 {
		return taken
	}
	*f = i.with(f, best, takes)
	if best == -1 {
		best = len(f.Parts) - 1
	}
	return append(taken, best)
}

// with returns what is free after a part of a device was taken: of the shared one at an index of Parts, or of a whole one for
// -1.
func (i *instance) with(f *policy.FreeGPUs, at int, takes cluster.DeviceUnits) policy.FreeGPUs {
	g := policy.FreeGPUs{Room: f.Room, Parts: slices.Clone(f.Parts), Units: f.Units}
	if at >= 0 {
		g.Parts[at] -= takes
	} else {
		g.Room = f.Room.Clone()
		g.Room[cluster.GPU] -= cluster.Whole
		g.Parts = append(g.Parts, f.Units-takes)
	}
	return g
}

// ScoreDevice implements policy.DeviceOrder.
func (i *instance) ScoreDevice(c *cluster.Class, n *cluster.Node, used, capacity cluster.DeviceUnits) int64 {
	f := i.view.FreeLater(n.ID)
	takes := c.Share.Takes(capacity)
	before := i.mix.Expected(&f)
	at := -1
	if used > 0 {
		if at = slices.Index(f.Parts, capacity-used); at < 0 {
			return 0
		}
	} else if f.Room.At(cluster.GPU) < cluster.Whole {
		return 0
	}
	f.Room = f.Room.Clone()
	f.Room.Sub(c.Requests)
	after := i.with(&f, at, takes)
	return points(before - i.mix.Expected(&after))
}

// points turns millionths of a GPU that are no longer unusable into a score.
func points(x int64) int64 {
	return max(-most, min(most, x*(perGPU/millionths)))
}

// state describes a class and what is free on a node, as far as the score depends on it.
func (i *instance) state(c *cluster.Class, f *policy.FreeGPUs) []byte {
	b := strconv.AppendUint(i.key[:0], c.ID, 36)
	b = appendAmounts(b, f.Room)
	b = appendAmounts(b, f.Parts)
	b = appendAmounts(b, []cluster.DeviceUnits{f.Units})
	i.key = b
	return b
}

func appendAmounts[T ~int64](b []byte, list []T) []byte {
	b = append(b, ';')
	for _, x := range list {
		b = strconv.AppendInt(b, int64(x), 36)
		b = append(b, ',')
	}
	return b
}
