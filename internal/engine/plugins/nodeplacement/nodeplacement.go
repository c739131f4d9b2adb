// Package nodeplacement packs pods onto few nodes, or spreads them over many, by the resource that matters to them: GPUs
// for pods that ask for some, CPU for the others.
package nodeplacement

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "nodeplacement"

// Strategies.
const (
	Binpack = "binpack" // the node with the least left, first
	Spread  = "spread"  // the node with the largest part left, first
)

// points is the score of the best node (KAI: 9 for binpack, 1 for spread).
const (
	packPoints   = 9 * policy.ScorePoint
	spreadPoints = 1 * policy.ScorePoint
)

// Factory declares the plugin. Arguments "gpu" and "cpu" take a strategy each; the default is binpack.
var Factory = policy.Makes(build)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	p := plugin{}
	for _, a := range []struct {
		name   string
		spread *bool
	}{{"gpu", &p.gpuSpread}, {"cpu", &p.cpuSpread}} {
		switch v := args[a.name]; v {
		case "", Binpack:
		case Spread:
			*a.spread = true
		default:
			return nil, nil, fmt.Errorf("argument %q is %q; it must be %q or %q", a.name, v, Binpack, Spread)
		}
	}
	return p.open, args.Unknown("gpu", "cpu"), nil
}

type plugin struct{ gpuSpread, cpuSpread bool }

type instance struct {
	plugin
	view *policy.View
	most [cluster.GPU + 1]int64 // the largest allocatable of any node, per dimension
}

// open opens the plugin for a run. KAI scales binpack between the fullest and the emptiest candidate of each decision;
// here the scale is the largest node of the snapshot, which orders nodes alike and lets scores be kept.
func (p plugin) open(v *policy.View) *instance {
	i := &instance{plugin: p, view: v}
	snap := v.Snapshot()
	for _, id := range snap.NodeOrder {
		a := snap.Node(id).Allocatable
		i.most[cluster.CPU] = max(i.most[cluster.CPU], a.At(cluster.CPU))
		i.most[cluster.GPU] = max(i.most[cluster.GPU], a.At(cluster.GPU))
	}
	return i
}

// ScoreNode implements policy.NodeScore.
func (i *instance) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	dim, spread := cluster.GPU, i.gpuSpread
	if c.CPUOnly() {
		dim, spread = cluster.CPU, i.cpuSpread
	}
	most, total := i.most[dim], n.Allocatable.At(dim)
	if most <= 0 || total <= 0 {
		return 0
	}
	free := max(0, i.view.Later(n.ID).At(dim))
	if spread {
		return fraction(spreadPoints, min(free, total), total)
	}
	return packPoints - fraction(packPoints, min(free, most), most)
}

// fraction returns points × part/whole, exact to one billionth of a point; 0 ≤ part ≤ whole.
func fraction(points, part, whole int64) int64 {
	for whole > 1<<29 { // keep the product inside an int64; only byte-sized numbers are ever this large
		part, whole = part>>1, whole>>1
	}
	return points * part / whole
}
