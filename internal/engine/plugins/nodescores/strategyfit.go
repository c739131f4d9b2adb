package nodescores

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// StrategyFitFactory declares resource-strategy-fit. Of the resources that a pod asks for and that the argument resources names, the mean by weight of what part of the node
// would be used (MostAllocated) or left (LeastAllocated), times 100, times resourceStrategyFitWeight (10). A node of which more would be used than it has gets 0 of that. A name
// that ends with / or * stands for all resources that begin with what is before the *; the longest that fits counts.
//
// With sra.enable a node gets besides 100 times sra.weight, less the part of it that the scarce resources which it has are by weight of all that sra.resources names.
//
// With proportional.enable a pod that asks for none of what proportional.resources names may not leave less CPU or memory on a node than goes with those that are free there.
var StrategyFitFactory = policy.Makes(buildStrategyFit, ReasonReserved)

// The arguments of resource-strategy-fit.
const (
	argumentFitWeight = "resourceStrategyFitWeight"
	argumentFit       = "resources"
	argumentScarce    = "sra"
)

// strategy is how a resource is looked at.
type strategy struct {
	Type   string `json:"type"`
	Weight int64  `json:"weight"`
}

// The strategies.
const (
	mostAllocated  = "MostAllocated"
	leastAllocated = "LeastAllocated"
)

// scarcity says which resources are scarce.
type scarcity struct {
	Enable    bool             `json:"enable"`
	Resources string           `json:"resources"`
	Weight    int64            `json:"weight"`
	Weights   map[string]int64 `json:"resourceWeight"`
}

func buildStrategyFit(args policy.Arguments) (func(*policy.View) *fit, []string, error) {
	all, err := weight(args, argumentFitWeight, 10)
	if err != nil {
		return nil, nil, err
	}
	by := map[string]strategy{}
	if err := object(args, argumentFit, &by); err != nil {
		return nil, nil, err
	}
	if len(by) > mostResources {
		return nil, nil, fmt.Errorf("argument %q names more than %d resources", argumentFit, mostResources)
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		s := by[name]
		if s.Type != mostAllocated && s.Type != leastAllocated {
			return nil, nil, fmt.Errorf("argument %q: the type of %.60q is %.40q; it must be %s or %s", argumentFit, name, s.Type, mostAllocated, leastAllocated)
		}
		if s.Weight < 0 || s.Weight > MostWeight {
			return nil, nil, fmt.Errorf("argument %q: the weight of %.60q is %d; it must be from 0 to %d", argumentFit, name, s.Weight, MostWeight)
		}
	}
	scarce := scarcity{}
	if err := object(args, argumentScarce, &scarce); err != nil {
		return nil, nil, err
	}
	of, sum, err := scarce.read()
	if err != nil {
		return nil, nil, err
	}
	proportions := reserve{}
	if err := object(args, argumentReserve, &proportions); err != nil {
		return nil, nil, err
	}
	ratios, err := proportions.read()
	if err != nil {
		return nil, nil, err
	}
	return func(v *policy.View) *fit {
		f := &fit{view: v, weight: all}
		dims := v.Snapshot().Dims
		for dim := range dims.Len() {
			if s, ok := strategyOf(by, dims, dim); ok && s.Weight > 0 {
				f.of = append(f.of, dimWeight{dim, s.Weight, s.Type == leastAllocated})
			}
		}
		for _, r := range of {
			if dim, ok := policy.Dimension(dims, r.name); ok {
				f.scarce = append(f.scarce, dimWeight{dim: dim, weight: r.weight})
			}
		}
		f.scarceWeight, f.scarceSum = scarce.Weight, sum
		for _, r := range ratios {
			if dim, ok := policy.Dimension(dims, r.name); ok {
				f.kept = append(f.kept, kept{r.name, dim, unitOf(dim), r.cpu, r.memory})
			}
		}
		return f
	}, args.Unknown(argumentFitWeight, argumentFit, argumentScarce, argumentReserve), nil
}

// object reads an argument that has fields, as JSON.
func object(args policy.Arguments, name string, into any) error {
	text, said := args[name]
	if !said {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("argument %q cannot be read: %.200s", name, err.Error())
	}
	return nil
}

// read returns the scarce resources with their weights (1 unless said), and the sum of these; none if they do not count.
func (s *scarcity) read() (of []weighed, sum int64, err error) {
	if !s.Enable {
		return nil, 0, nil
	}
	if s.Weight < 0 || s.Weight > MostWeight {
		return nil, 0, fmt.Errorf("argument %q: weight is %d; it must be from 0 to %d", argumentScarce, s.Weight, MostWeight)
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(s.Resources, ",") {
		if name = strings.TrimSpace(name); name == "" || seen[name] {
			continue
		}
		seen[name] = true
		w, said := s.Weights[name]
		if !said {
			w = 1
		}
		if w < 0 || w > MostWeight || len(of) >= mostResources {
			return nil, 0, fmt.Errorf("argument %q: the weight of %.60q is %d; it must be from 0 to %d, and there are at most %d resources", argumentScarce, name, w, MostWeight, mostResources)
		}
		of, sum = append(of, weighed{name, w}), sum+w
	}
	return of, sum, nil
}

// strategyOf is the strategy of a dimension.
func strategyOf(by map[string]strategy, dims cluster.Dims, dim int) (s strategy, ok bool) {
	name, longest := dims.Name(dim), -1
	switch dim {
	case cluster.GPU:
		name = "nvidia.com/gpu"
	case cluster.Slots:
		return s, false
	}
	if s, ok := by[name]; ok {
		return s, true
	}
	for _, key := range slices.Sorted(maps.Keys(by)) {
		before, star := strings.CutSuffix(key, "*")
		if (star || strings.HasSuffix(key, "/")) && strings.HasPrefix(name, before) && len(before) > longest {
			s, ok, longest = by[key], true, len(before)
		}
	}
	return s, ok
}

// unitOf is one of a resource, in the model.
func unitOf(dim int) int64 {
	if dim == cluster.GPU {
		return cluster.Whole
	}
	return 1
}

type fit struct {
	view   *policy.View
	weight int64
	of     []dimWeight

	scarce                  []dimWeight
	scarceWeight, scarceSum int64

	kept []kept
}

// ScoreNode implements policy.NodeScore.
func (f *fit) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	return f.weight*mean(f.view, c, n, f.of) + f.avoids(n)
}

// avoids is the part of the scarce resources.
func (f *fit) avoids(n *cluster.Node) int64 {
	if f.scarceSum == 0 {
		return 0
	}
	has := int64(0)
	for _, r := range f.scarce {
		if n.Allocatable.At(r.dim) > 0 {
			has += r.weight
		}
	}
	return f.scarceWeight * part(whole, f.scarceSum-has, f.scarceSum)
}
