package nodescores

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"math/bits"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// argumentReserve is the argument of resource-strategy-fit that keeps CPU and memory for who asks for what is scarce.
const argumentReserve = "proportional"

// reserve is what the argument says: of each resource that resources lists, how many CPUs, and how much memory in units of 1,000,000,000 bytes, go with one.
type reserve struct {
	Enable      bool                   `json:"enable"`
	Resources   string                 `json:"resources"`
	Proportions map[string]json.Number `json:"resourceProportion"` // NAME.cpu, NAME.memory
}

// ratio is what goes with one of a scarce resource, in millionths.
type ratio struct {
	name        string
	cpu, memory int64
}

// mostRatio bounds a proportion: beyond it nothing of a node is left for others.
const mostRatio = 1000

func (r *reserve) read() (out []ratio, err error) {
	if !r.Enable {
		return nil, nil
	}
	known := map[string]bool{}
	for name := range strings.SplitSeq(r.Resources, ",") {
		name = strings.TrimSpace(name)
		if name == "" || known[name+".cpu"] {
			continue
		}
		one := ratio{name: name}
		for suffix, into := range map[string]*int64{".cpu": &one.cpu, ".memory": &one.memory} { // order: each its own
			known[name+suffix] = true
			text := r.Proportions[name+suffix].String()
			if text == "" {
				continue
			}
			n, ok := new(big.Rat).SetString(text)
			if !ok || len(text) > 32 || n.Sign() < 0 || n.Cmp(big.NewRat(mostRatio, 1)) > 0 {
				return nil, fmt.Errorf("argument %q: resourceProportion of %.60q is %.40q; it must be a number from 0 to %d", argumentReserve, name+suffix, text, mostRatio)
			}
			n.Mul(n, big.NewRat(million, 1))
			*into = new(big.Int).Quo(n.Num(), n.Denom()).Int64()
		}
		if out = append(out, one); len(out) > mostResources {
			return nil, fmt.Errorf("argument %q names more than %d resources", argumentReserve, mostResources)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Proportions)) {
		if !known[name] {
			return nil, fmt.Errorf("argument %q: resourceProportion of %.60q is of none of its resources; it must be one of them with .cpu or .memory behind it", argumentReserve, name)
		}
	}
	return out, nil
}

// kept is a scarce resource of the run.
type kept struct {
	name        string
	dim         int
	unit        int64 // of one in the model
	cpu, memory int64
}

// Wants implements policy.NodeFilter: it is about pods that ask for nothing that is scarce.
func (f *fit) Wants(c *cluster.Class) bool {
	return len(f.kept) > 0 && !slices.ContainsFunc(f.kept, func(k kept) bool { return c.Requests.At(k.dim) > 0 })
}

// CheckNode implements policy.NodeFilter: a pod may not leave less CPU, or memory, than what goes with the scarce resources that are free. Free is what will be once what is
// leaving has gone.
func (f *fit) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	free := f.view.Later(n.ID)
	for _, k := range f.kept {
		scarce := max(0, free.At(k.dim))
		for _, one := range [...]struct {
			dim   int
			ratio int64
			unit  int64 // of one, in the model
		}{{cluster.CPU, k.cpu, 1000}, {cluster.RAM, k.memory, 1_000_000_000}} {
			asked := p.Class.Requests.At(one.dim)
			if one.ratio == 0 || asked <= 0 {
				continue
			}
			if left := free.At(one.dim) - asked; left < proportion(scarce, one.ratio, one.unit, k.unit) {
				return policy.Verdict{Code: policy.No, Reason: ReasonReserved, Object: k.name, Dim: f.view.Snapshot().Dims.Name(one.dim)}
			}
		}
	}
	return policy.Verdict{}
}

// proportion is scarce/unit times a ratio in millionths, in units of one, cut to the unit below; it stops at cluster.MaxSum. ratio*one is within an int64.
func proportion(scarce, ratio, one, unit int64) int64 {
	hi, lo := bits.Mul64(uint64(scarce), uint64(ratio*one))
	by := uint64(unit * million)
	if hi >= by {
		return cluster.MaxSum
	}
	q, _ := bits.Div64(hi, lo, by)
	return int64(min(q, uint64(cluster.MaxSum)))
}
