package keys

// Names of Muster's own for shared GPUs.
const (
	// RegainedAnnotation, set to "true" on a pod that holds a shared device, says that it took the place of one that was
	// lost while pods used the device, and that it is not known yet whether it got the same device. Written by the binder.
	RegainedAnnotation = "muster.dev/regained"

	// EventSharedDeviceLost: the device that the pod shares is held by nobody, or by somebody else.
	EventSharedDeviceLost = "SharedDeviceLost"

	// MPSCapableNodeLabel, set to "true" by NVIDIA's tools, says that the node runs an MPS daemon for its GPUs.
	MPSCapableNodeLabel = "nvidia.com/mps.capable"
)
