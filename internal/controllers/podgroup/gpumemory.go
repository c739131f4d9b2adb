package podgroup

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// labelAMDMemory begins labels whose last part, after a dot, is the memory of one AMD GPU: beta.amd.com/gpu.vram.64G.
const labelAMDMemory = "beta.amd.com/gpu.vram"

// gpuMemoryOf is the memory of one GPU of a node, by its labels: MiB for NVIDIA, megabytes for AMD, whose users give
// their requests in the same unit. An error says why it cannot be known.
func gpuMemoryOf(labels map[string]string) (int64, error) {
	nvidia, hasNvidia := labels[core.GPUMemoryLabel]
	amd, hasAMD := "", false
	for key := range labels {
		// With several such labels the smallest key counts, so that the answer does not depend on the map's order.
		if strings.HasPrefix(key, labelAMDMemory+".") && (!hasAMD || key < amd) {
			amd, hasAMD = key, true
		}
	}
	switch {
	case hasNvidia && hasAMD:
		return 0, fmt.Errorf("labels %s and %s: only one kind of GPU can be shared on a node", core.GPUMemoryLabel, amd)
	case hasNvidia:
		mib := core.GPUMemoryMiB(nvidia)
		if mib == 0 {
			return 0, fmt.Errorf("label %s=%q: it must be a whole number of MiB above 0", core.GPUMemoryLabel, nvidia)
		}
		return int64(mib), nil
	case hasAMD:
		q, err := resource.ParseQuantity(amd[len(labelAMDMemory)+1:])
		if err != nil || q.Value()/1e6 <= 0 {
			return 0, fmt.Errorf("label %s: it must end in a size of at least 1M", amd)
		}
		return q.Value() / 1e6, nil
	}
	return 0, errNoGPUMemory
}
