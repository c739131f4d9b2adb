package kai

import (
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// maxShared bounds the devices one pod can share: no node has more.
const maxShared = 1024

// Share returns what p has of GPUs that it shares with others, by the record of its charge once it is bound, and what it asks for
// by its annotations before; the zero Share for nothing. wrong says what is wrong with them, "" for nothing: such a pod is never
// placed, because whatever it was given, it would not be what it asked for. With both a portion and an amount of memory the
// portion counts, as in KAI.
func Share(p *v1.Pod) (share cluster.Share, wrong string) {
	if p.Spec.NodeName != "" {
		if given := ReadCharged(p.Namespace, p.Annotations).Share; !given.None() {
			return given, ""
		}
	}
	return asked(p.Annotations)
}

func asked(annotations map[string]string) (share cluster.Share, wrong string) {
	portion, byPortion := annotations[FractionAnnotation]
	memory, byMemory := annotations[MemoryAnnotation]
	if !byPortion && !byMemory {
		return cluster.Share{}, ""
	}
	share.Devices = 1
	if n, ok := annotations[keys.GPUFractionDevicesAnnotation]; ok {
		x, err := strconv.ParseInt(n, 10, 32)
		if err != nil || x < 1 || x > maxShared {
			return cluster.Share{}, "a share of so many GPUs (annotation " + keys.GPUFractionDevicesAnnotation + ": " + core.Brief(n) + ", must be a whole number from 1 to " + strconv.Itoa(maxShared) + ")"
		}
		share.Devices = int32(x)
	}
	if byPortion {
		x, err := strconv.ParseFloat(portion, 64)
		share.Portion = cluster.Portion(math.Round(x * float64(cluster.WholePortion)))
		if err != nil || !(x > 0 && x <= 1) || share.Portion == 0 {
			return cluster.Share{}, "a share of a GPU (annotation " + FractionAnnotation + ": " + core.Brief(portion) + ", must be a number above 0 and at most 1)"
		}
		return share, ""
	}
	x, err := strconv.ParseInt(memory, 10, 64)
	if err != nil || x < 1 || x > cluster.MaxQuantity {
		return cluster.Share{}, "an amount of GPU memory (annotation " + MemoryAnnotation + ": " + core.Brief(memory) + ", must be a whole number of MiB, at least 1)"
	}
	share.MemoryMiB = cluster.MiB(x)
	return share, ""
}

// Groups returns the groups of the shared devices that p holds, by its labels, sorted; nil for none.
func Groups(labels map[string]string) []string {
	var out []string
	for key, g := range labels { // order: sorted below
		if g != "" && (key == keys.GPUGroupLabel || strings.HasPrefix(key, keys.GPUGroupLabelPrefix)) {
			out = append(out, g)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// reserve makes st what a reservation pod is to its node: the shared device that it holds for others, and not one of its
// own. One that does not say for whom it holds a device has it to itself.
func reserve(st *cluster.PodState, labels map[string]string) {
	g := labels[keys.GPUGroupLabel]
	if g == "" {
		return
	}
	st.Groups = []string{g}
	st.Requests = slices.DeleteFunc(slices.Clone(st.Requests), func(q cluster.Quantity) bool { return q.Name == "gpu" })
}
