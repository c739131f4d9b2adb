package podgroup

import (
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/devices"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/tally"
)

// Annotations of a pod that this role reads beside those of package kai.
const (
	annotationDevices  = "gpu-fraction-num-devices"
	annotationReceived = "received-resource-type"
)

const (
	receivedFraction = "Fraction"

	// resourceGPU is where portions of shared GPUs are counted.
	resourceGPU corev1.ResourceName = "nvidia.com/gpu"

	// resourceGPUMemory is where requests of shared GPUs by memory are counted, in MiB; no node offers it.
	resourceGPUMemory corev1.ResourceName = "run.ai/gpu.memory"

	// maxDevices bounds gpu-fraction-num-devices. No machine has more, and the product stays small.
	maxDevices = 1 << 16
)

// share is what one pod adds to its gang.
type share struct {
	requested, allocated tally.Amounts
}

// balance is the share of a pod that was, or was not, placed as non-preemptible.
func (s share) balance(fixed bool) balance {
	b := balance{requested: s.requested, allocated: s.allocated}
	if fixed {
		b.fixed = s.allocated
	}
	return b
}

// surroundings are what a pod's share depends on beside the pod.
type surroundings interface {
	// gpuMemory is the memory, in MiB, of one GPU of a node.
	gpuMemory(node string) (mib int64, err error)
	// claimed is what a ResourceClaim counts as, by device class; nil for nothing, or if it does not exist yet.
	claimed(claim types.NamespacedName) corev1.ResourceList
}

// shareOf says what a pod asks for and what it holds. An error says which annotation or node is at fault; the share then
// counts everything but the shared GPU.
func shareOf(pod *corev1.Pod, around surroundings) (share, error) {
	if pod.Status.Phase != corev1.PodPending && pod.Status.Phase != corev1.PodRunning {
		return share{}, nil
	}
	containers := tally.Of(core.RequestList(pod))
	for _, claim := range claimsOf(pod) {
		containers = containers.Plus(tally.Of(around.claimed(claim)))
	}
	holds := holds(pod)
	s := share{requested: containers}
	if holds {
		s.allocated = containers
	}
	gpu, err := sharedGPUOf(pod)
	if err != nil || gpu == nil {
		return s, err
	}
	if !gpu.portion.IsZero() {
		s.requested = s.requested.Plus(tally.Of(corev1.ResourceList{resourceGPU: times(gpu.portion, gpu.devices)}))
	} else {
		s.requested = s.requested.Plus(tally.Of(corev1.ResourceList{resourceGPUMemory: times(*resource.NewQuantity(gpu.mib, resource.DecimalSI), gpu.devices)}))
	}
	if !holds || pod.Annotations[annotationReceived] != receivedFraction {
		return s, nil
	}
	portion := gpu.portion
	if portion.IsZero() {
		mib, err := around.gpuMemory(pod.Spec.NodeName)
		if err != nil {
			return s, err
		}
		portion = *resource.NewMilliQuantity(milliPortion(gpu.mib, mib), resource.DecimalSI)
	}
	s.allocated = s.allocated.Plus(tally.Of(corev1.ResourceList{resourceGPU: times(portion, gpu.devices)}))
	return s, nil
}

// claimsOf are the ResourceClaims that a pod uses, as far as they have been made.
func claimsOf(pod *corev1.Pod) []types.NamespacedName {
	var out []types.NamespacedName
	for i := range pod.Spec.ResourceClaims {
		if name, _, needed := devices.ClaimName(pod, &pod.Spec.ResourceClaims[i]); needed && name != "" {
			out = append(out, types.NamespacedName{Namespace: pod.Namespace, Name: name})
		}
	}
	return out
}

// claimList is what a claim counts as, by device class.
func claimList(c *resourcev1.ResourceClaim) corev1.ResourceList {
	var list corev1.ResourceList
	for class, n := range devices.Classes(&c.Spec) { // order: a map again
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[corev1.ResourceName(class)] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}

// holds says whether the pod's resources are taken: from its binding on, whatever its kubelet has made of it so far.
func holds(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodRunning || pod.Spec.NodeName != "" {
		return true
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// sharedGPU is what a pod asks of each of some shared GPUs: a portion of it, or so much of its memory.
type sharedGPU struct {
	portion resource.Quantity
	mib     int64
	devices int64
}

// byMemory says whether what the pod holds depends on the GPUs of its node.
func byMemory(pod *corev1.Pod) bool { return pod.Annotations[kai.MemoryAnnotation] != "" }

// sharedGPUOf is what a pod asks for of shared GPUs by its annotations, or what it was given by the record of its charge; nil for
// nothing.
func sharedGPUOf(pod *corev1.Pod) (*sharedGPU, error) {
	annotations := pod.Annotations
	if given := kai.ReadCharged(pod.Namespace, annotations).Share; pod.Spec.NodeName != "" && !given.None() {
		return &sharedGPU{portion: *resource.NewScaledQuantity(int64(given.Portion), resource.Micro), mib: int64(given.MemoryMiB), devices: int64(given.Devices)}, nil
	}
	fraction, memory := annotations[kai.FractionAnnotation], annotations[kai.MemoryAnnotation]
	if fraction == "" && memory == "" {
		return nil, nil
	}
	gpu := &sharedGPU{devices: 1}
	switch {
	case fraction != "" && memory != "":
		return nil, fmt.Errorf("annotations %s and %s exclude each other", kai.FractionAnnotation, kai.MemoryAnnotation)
	case fraction != "":
		q, err := resource.ParseQuantity(fraction)
		if err != nil || q.Sign() <= 0 || q.CmpInt64(1) >= 0 {
			return nil, fmt.Errorf("annotation %s=%q: it must be a number above 0 and below 1", kai.FractionAnnotation, fraction)
		}
		gpu.portion = q
	default:
		mib, err := strconv.ParseInt(memory, 10, 64)
		if err != nil || mib <= 0 {
			return nil, fmt.Errorf("annotation %s=%q: it must be a whole number of MiB above 0", kai.MemoryAnnotation, memory)
		}
		gpu.mib = mib
	}
	if s, ok := annotations[annotationDevices]; ok {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 1 || n > maxDevices {
			return nil, fmt.Errorf("annotation %s=%q: it must be a whole number from 1 to %d", annotationDevices, s, maxDevices)
		}
		gpu.devices = n
	}
	return gpu, nil
}

// milliPortion is the part of a GPU, in thousandths, that mib of its memory are, rounded to the nearest, at most 1000.
func milliPortion(mib, of int64) int64 {
	if mib >= of {
		return 1000
	}
	return int64(float64(mib)/float64(of)*1000 + 0.5)
}

func times(q resource.Quantity, n int64) resource.Quantity {
	q = q.DeepCopy()
	q.Mul(n)
	return q
}

var errNoGPUMemory = errors.New("it states no GPU memory")
