package podgroup

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// labelNvidiaMemory carries the memory of one NVIDIA GPU of the node, in MiB.
	labelNvidiaMemory = "nvidia.com/gpu.memory"

	// labelAMDMemory begins labels whose last part, after a dot, is the memory of one AMD GPU: beta.amd.com/gpu.vram.64G.
	labelAMDMemory = "beta.amd.com/gpu.vram"
)

// gpuMemoryOf is the memory of one GPU of a node, by its labels: MiB for NVIDIA, megabytes for AMD, whose users give
// their requests in the same unit. An error says why it cannot be known.
func gpuMemoryOf(labels map[string]string) (int64, error) {
	nvidia, hasNvidia := labels[labelNvidiaMemory]
	amd, hasAMD := "", false
	for key := range labels {
		// With several such labels the smallest key counts, so that the answer does not depend on the map's order.
		if strings.HasPrefix(key, labelAMDMemory+".") && (!hasAMD || key < amd) {
			amd, hasAMD = key, true
		}
	}
	switch {
	case hasNvidia && hasAMD:
		return 0, fmt.Errorf("labels %s and %s: only one kind of GPU can be shared on a node", labelNvidiaMemory, amd)
	case hasNvidia:
		mib, err := strconv.ParseInt(nvidia, 10, 64)
		if err != nil || mib <= 0 {
			return 0, fmt.Errorf("label %s=%q: it must be a whole number of MiB above 0", labelNvidiaMemory, nvidia)
		}
		return mib, nil
	case hasAMD:
		q, err := resource.ParseQuantity(amd[len(labelAMDMemory)+1:])
		if err != nil || q.Value()/1e6 <= 0 {
			return 0, fmt.Errorf("label %s: it must end in a size of at least 1M", amd)
		}
		return q.Value() / 1e6, nil
	}
	return 0, errNoGPUMemory
}
