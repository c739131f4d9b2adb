package core

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// The resource names under which device plugins offer whole GPUs. Both count in the model's dimension "gpu".
const (
	NvidiaGPU v1.ResourceName = "nvidia.com/gpu"
	AMDGPU    v1.ResourceName = "amd.com/gpu"
)

// milliPerGPU is one whole device in the model's unit.
const milliPerGPU = 1000

// Amounts returns a resource list in the model's units: cpu and gpu in thousandths, everything else in whole units
// rounded up. Zero and negative amounts are left out, those beyond cluster.MaxQuantity are cut to it. The order is cpu,
// memory, gpu, pods, then by name.
func Amounts(list v1.ResourceList) []cluster.Quantity {
	var t tally
	t.add(list)
	return t.quantities(make([]cluster.Quantity, 0, usual+len(t.rest)))
}

// Dimension returns the name of the model's dimension in which a resource counts.
func Dimension(name v1.ResourceName) string {
	if name == NvidiaGPU || name == AMDGPU {
		return "gpu"
	}
	return string(name)
}

// tally sums resource lists. The dimensions that nearly every list has are fields; the others are few.
type tally struct {
	cpu, memory, gpu, pods int64
	rest                   []cluster.Quantity
}

func (t *tally) add(list v1.ResourceList) {
	for name, q := range list {
		switch name {
		case v1.ResourceCPU:
			t.cpu = cluster.Clamp(t.cpu + thousandths(&q))
		case v1.ResourceMemory:
			t.memory = cluster.Clamp(t.memory + whole(&q))
		case v1.ResourcePods:
			t.pods = cluster.Clamp(t.pods + whole(&q))
		case NvidiaGPU:
			t.gpu = cluster.Clamp(t.gpu + devices(&q))
		case AMDGPU:
			t.gpu = cluster.Clamp(t.gpu + devices(&q))
			t.addRest(string(name), whole(&q))
		default:
			if strings.HasPrefix(string(name), v1.ResourceAttachableVolumesPrefix) {
				continue // a count that upstream's own volume rules keep
			}
			t.addRest(string(name), whole(&q))
		}
	}
}

func (t *tally) addRest(name string, x int64) {
	if x == 0 {
		return
	}
	for i := range t.rest {
		if t.rest[i].Name == name {
			t.rest[i].Value = cluster.Clamp(t.rest[i].Value + x)
			return
		}
	}
	t.rest = append(t.rest, cluster.Quantity{Name: name, Value: x})
}

// usual is how many dimensions have fields in a tally.
const usual = 4

// quantities appends what is not zero to out.
func (t *tally) quantities(out []cluster.Quantity) []cluster.Quantity {
	if t.cpu != 0 {
		out = append(out, cluster.Quantity{Name: "cpu", Value: t.cpu})
	}
	if t.memory != 0 {
		out = append(out, cluster.Quantity{Name: "memory", Value: t.memory})
	}
	if t.gpu != 0 {
		out = append(out, cluster.Quantity{Name: "gpu", Value: t.gpu})
	}
	if t.pods != 0 {
		out = append(out, cluster.Quantity{Name: "pods", Value: t.pods})
	}
	if len(t.rest) > 1 {
		slices.SortFunc(t.rest, func(a, b cluster.Quantity) int { return strings.Compare(a.Name, b.Name) })
	}
	return append(out, t.rest...)
}

// whole returns q rounded up to a whole number within [0, MaxQuantity]. The comparison comes first because the
// conversion of a quantity that does not fit an int64 is not defined.
func whole(q *resource.Quantity) int64 {
	if q.CmpInt64(cluster.MaxQuantity) >= 0 {
		return cluster.MaxQuantity
	}
	return cluster.Clamp(q.Value())
}

// thousandths returns q×1000 rounded up, within [0, MaxQuantity].
func thousandths(q *resource.Quantity) int64 {
	if q.CmpInt64(cluster.MaxQuantity/1000) >= 0 {
		return cluster.MaxQuantity
	}
	return cluster.Clamp(q.MilliValue())
}

// devices returns a number of devices in milli-GPU, within [0, MaxQuantity].
func devices(q *resource.Quantity) int64 {
	return cluster.Clamp(min(whole(q), cluster.MaxQuantity/milliPerGPU) * milliPerGPU)
}

// Brief cuts a user's text to a length fit for a sentence.
func Brief(s string) string {
	const most = 32
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// Charge adds to what the pod's queue is charged for it, in milli-GPU, over what it requests of its node.
func Charge(st *cluster.PodState, gpu int64) {
	if gpu == 0 {
		return
	}
	if st.Charge == nil {
		st.Charge = slices.Clone(st.Requests)
	}
	for i := range st.Charge {
		if st.Charge[i].Name == "gpu" {
			st.Charge[i].Value = cluster.Clamp(st.Charge[i].Value + gpu)
			return
		}
	}
	st.Charge = append(st.Charge, cluster.Quantity{Name: "gpu", Value: cluster.Clamp(gpu)})
}
