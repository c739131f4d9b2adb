package kai

import (
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Node returns the event that makes the model know n as it is. Where nodes are restricted, one that carries neither label of workers takes
// no pods, whatever they ask for, so that nobody has a share of it.
func (r *Roles) Node(n *v1.Node) cluster.NodeState {
	st := core.Node(n)
	if st.Problem == "" && r.restricted() && !labelled(n, r.RestrictGPU) && !labelled(n, r.RestrictCPU) {
		st.Problem = cluster.NoWorkerLabel
	}
	st.Slicing = r.slicing(n, st.Allocatable)
	return st
}

// slicing reads how the node's GPUs are cut. The label of MIG workers decides whether they are; where it is absent, or no
// truth value, slices that are offered by name tell. That the device plugin is set up for a strategy says nothing yet: it
// labels nodes whose GPUs are whole, too.
func (r *Roles) slicing(n *v1.Node, allocatable []cluster.Quantity) cluster.Slicing {
	key := r.MIGWorker
	if key == "" {
		key = keys.MIGWorkerNodeLabel
	}
	cut, err := strconv.ParseBool(n.Labels[key])
	if err != nil {
		cut = sliced(allocatable) > 0
	}
	switch strategy := n.Labels[keys.MIGStrategyNodeLabel]; {
	case !cut:
		return cluster.Unsliced
	case strategy == "single":
		return cluster.SlicedSingle
	case strategy == "mixed":
		return cluster.SlicedMixed
	}
	return cluster.SlicedAnyhow
}

// sliced returns how much the slices among the quantities count as in queues, in milli-GPU.
func sliced(qs []cluster.Quantity) int64 {
	sum := int64(0)
	for _, q := range qs {
		if g := cluster.SliceGPUs(q.Name); g > 0 {
			sum = cluster.Clamp(sum + min(q.Value, cluster.MaxQuantity/10_000)*g*cluster.Whole)
		}
	}
	return sum
}

// takeSlices completes st with the slices of GPUs that p takes: its queue is charged the GPUs they count as. Those that p asks
// for by annotation are taken, too, wherever it is already: of pods of ours, since no other scheduler has given any.
func takeSlices(st *cluster.PodState, p *v1.Pod) {
	if name, _ := legacySlices(p); name != "" && st.Ours {
		st.Spec.LegacySlices = true
		for _, q := range legacyAmounts(p) {
			if !slices.ContainsFunc(st.Requests, func(r cluster.Quantity) bool { return r.Name == q.Name }) {
				st.Requests = append(st.Requests, q)
			}
		}
	}
	core.Charge(st, sliced(st.Requests))
}

// legacySlices returns the first annotation, by name, with which p asks for slices of GPUs, and its value; "" for none.
func legacySlices(p *v1.Pod) (name, value string) {
	for k := range p.Annotations { // order: minimum
		if strings.HasPrefix(k, MIGPrefix) && (name == "" || k < name) {
			name = k
		}
	}
	return name, p.Annotations[name]
}

// legacyAmounts reads the annotations with which p asks for slices, by name; what is no positive number is none.
func legacyAmounts(p *v1.Pod) []cluster.Quantity {
	var out []cluster.Quantity
	for k, v := range p.Annotations { // order: sorted below
		if !strings.HasPrefix(k, MIGPrefix) {
			continue
		}
		if x, err := strconv.ParseInt(v, 10, 64); err == nil && x > 0 {
			out = append(out, cluster.Quantity{Name: k, Value: cluster.Clamp(x)})
		}
	}
	slices.SortFunc(out, func(a, b cluster.Quantity) int { return strings.Compare(a.Name, b.Name) })
	return out
}
