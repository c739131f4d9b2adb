package nodescores

import (
	"fmt"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// BinpackFactory declares binpack: of the resources that a pod asks for and that have a weight, the mean of what part of the node would be used, by weight, times 100, times
// binpack.weight (1; 0 for no opinion). A node of which more would be used than it has gets 0. cpu and memory have the weights binpack.cpu and binpack.memory (1 each), and
// those that binpack.resources lists, separated by commas, binpack.resources.NAME (1).
var BinpackFactory = policy.Makes(buildBinpack)

// weighed is a resource with its weight.
type weighed struct {
	name   string
	weight int64
}

func buildBinpack(args policy.Arguments) (func(*policy.View) *packing, []string, error) {
	known := []string{"binpack.weight", "binpack.cpu", "binpack.memory", "binpack.resources"}
	all, err := weight(args, "binpack.weight", 1)
	if err != nil {
		return nil, nil, err
	}
	names := map[string]string{"cpu": "binpack.cpu", "memory": "binpack.memory"}
	order := []string{"cpu", "memory"}
	for name := range strings.SplitSeq(args["binpack.resources"], ",") {
		if name = strings.TrimSpace(name); name == "" || names[name] != "" {
			continue
		}
		if len(order) >= mostResources {
			return nil, nil, fmt.Errorf("argument %q names more than %d resources", "binpack.resources", mostResources)
		}
		names[name] = "binpack.resources." + name
		order, known = append(order, name), append(known, names[name])
	}
	var of []weighed
	for _, name := range order {
		w, err := weight(args, names[name], 1)
		if err != nil {
			return nil, nil, err
		}
		of = append(of, weighed{name, w})
	}
	return func(v *policy.View) *packing {
		if all == 0 {
			return nil
		}
		b := &packing{view: v, weight: all}
		for _, r := range of {
			if dim, ok := policy.Dimension(v.Snapshot().Dims, r.name); ok && r.weight > 0 {
				b.of = append(b.of, dimWeight{dim: dim, weight: r.weight})
			}
		}
		return b
	}, args.Unknown(known...), nil
}

// mostResources bounds how many resources a plugin looks at, for each node.
const mostResources = 32

// dimWeight is how much a dimension counts: by the part of it that would be used, or that would be left.
type dimWeight struct {
	dim    int
	weight int64
	least  bool
}

// mean is the weighted mean over what the class asks for, from 0 to whole; 0 where the node has less of something than would be used.
func mean(view *policy.View, c *cluster.Class, n *cluster.Node, over []dimWeight) int64 {
	sum, weights := int64(0), int64(0)
	for _, r := range over {
		if c.Requests.At(r.dim) <= 0 {
			continue
		}
		used, of, short := use(view, c, n, r.dim)
		if short {
			return 0
		}
		if r.least {
			used = of - used
		}
		sum += r.weight * part(whole, used, of)
		weights += r.weight
	}
	if weights == 0 {
		return 0
	}
	return sum / weights
}

type packing struct {
	view   *policy.View
	weight int64
	of     []dimWeight
}

// ScoreNode implements policy.NodeScore.
func (b *packing) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	return b.weight * mean(b.view, c, n, b.of)
}
