package keys

// Resource names of accelerators.
const (
	// GPUResource counts whole NVIDIA devices.
	GPUResource = "nvidia.com/gpu"

	// MIGResourcePrefix begins the resource names of MIG slices; the profile follows, for instance mig-1g.5gb.
	MIGResourcePrefix = "nvidia.com/mig-"

	// GPUMemoryResource stands, in the requested resources of a PodGroup's status, for GPU memory in MiB. No node
	// offers it.
	GPUMemoryResource = "run.ai/gpu.memory"
)

// Annotations by which a pod asks for a part of a GPU.
const (
	// GPUFractionAnnotation is the part of a device, a decimal number between 0 and 1, both excluded.
	GPUFractionAnnotation = "gpu-fraction"

	// GPUMemoryAnnotation is an amount of a device's memory in MiB, a positive integer.
	GPUMemoryAnnotation = "gpu-memory"

	// GPUFractionDevicesAnnotation is the number of devices of which the pod wants that part, at least 1.
	// Default: 1.
	GPUFractionDevicesAnnotation = "gpu-fraction-num-devices"

	// GPUFractionContainerAnnotation names the container that gets the devices. Default: the first one that is no
	// init container.
	GPUFractionContainerAnnotation = "gpu-fraction-container-name"

	// MPSAnnotation, set to "true", asks for a device shared through NVIDIA MPS. Only for pods that ask for a part.
	MPSAnnotation = "mps"
)

// Keys with which binder, admission and reservation pods keep track of shared GPUs.
const (
	// ReceivedResourceTypeAnnotation, on a bound pod, is Regular or Fraction. Written with the Binding.
	ReceivedResourceTypeAnnotation = "received-resource-type"

	// SharedGPUConfigMapAnnotation, on a pod, is what the names of its ConfigMaps with device settings begin with.
	// Written by admission.
	SharedGPUConfigMapAnnotation = "runai/shared-gpu-configmap"

	// GPUGroupLabel, on a pod that shares one device and on the pod that holds it, is the identifier of the sharing
	// group. Written by the binder.
	GPUGroupLabel = "runai-gpu-group"

	// GPUGroupLabelPrefix begins the labels of a pod that shares several devices; the group's identifier follows,
	// and is the value, too. Written by the binder.
	GPUGroupLabelPrefix = "runai-gpu-group/"

	// ReservedGPUAnnotation, on a pod that holds a shared device, is that device's UUID, in spite of its name.
	// Written by the pod itself.
	ReservedGPUAnnotation = "run.ai/reserve_for_gpu_index"

	// KarpenterDoNotDisruptAnnotation, set to "true" on pods that hold shared devices, keeps Karpenter from
	// removing their node.
	KarpenterDoNotDisruptAnnotation = "karpenter.sh/do-not-disrupt"

	// ScalingPodSourceLabel, on a pod that shows demand to a cluster autoscaler, names the pod it stands for.
	ScalingPodSourceLabel = "shared-gpu-pod-name"

	// ScalingPodSourceNamespaceLabel, on such a pod, is that pod's namespace.
	ScalingPodSourceNamespaceLabel = "shared-gpu-pod-namespace"
)

// Labels of nodes.
const (
	// FakeGPUNodeLabel, set to "true", says that the node's GPUs are simulated.
	FakeGPUNodeLabel = "run.ai/fake.gpu"

	// CPUWorkerNodeLabel marks nodes for pods without GPUs, when nodes are restricted.
	CPUWorkerNodeLabel = "node-role.kubernetes.io/cpu-worker"

	// GPUWorkerNodeLabel marks nodes for pods with GPUs, when nodes are restricted.
	GPUWorkerNodeLabel = "node-role.kubernetes.io/gpu-worker"

	// MIGWorkerNodeLabel marks nodes whose GPUs are cut into MIG slices.
	MIGWorkerNodeLabel = "node-role.kubernetes.io/mig-enabled"

	// GPUMemoryNodeLabel is the memory of each GPU of the node, in MiB.
	GPUMemoryNodeLabel = "nvidia.com/gpu.memory"

	// GPUCountNodeLabel is the number of GPUs of the node.
	GPUCountNodeLabel = "nvidia.com/gpu.count"

	// MIGStrategyNodeLabel is none, single or mixed.
	MIGStrategyNodeLabel = "nvidia.com/mig.strategy"

	// AMDGPUMemoryNodeLabelPrefix begins a label that carries the memory of an AMD GPU in its key.
	AMDGPUMemoryNodeLabelPrefix = "beta.amd.com/gpu.vram"
)

// Environment variables by which a container learns of the devices it shares. The keys of the ConfigMaps that carry
// them have the same names.
const (
	// VisibleDevicesEnv lists the devices a container may see, separated by commas: UUIDs, or CDI names; "all", "none"
	// and "void" (no devices, and no GPU runtime at all) have a meaning of their own.
	VisibleDevicesEnv = "NVIDIA_VISIBLE_DEVICES"

	// PortionEnv is the part of each device that the container may use, with two decimals.
	PortionEnv = "GPU_PORTION"

	// LegacyPortionEnv is PortionEnv under its old name.
	LegacyPortionEnv = "RUNAI_NUM_OF_GPUS"

	// MemoryLimitEnv bounds the device memory of a container under HAMi-core: a number of MiB followed by m.
	MemoryLimitEnv = "CUDA_DEVICE_MEMORY_LIMIT"

	// LegacyVisibleDevicesKey is the key of VisibleDevicesEnv in ConfigMaps of old installations.
	LegacyVisibleDevicesKey = "RUNAI-VISIBLE-DEVICES"
)
