// Package devices is the dialect of Dynamic Resource Allocation, the API family resource.k8s.io: ResourceClaims, ResourceSlices
// and DeviceClasses as far as they change what pods and nodes are to the model.
//
//	ResourceClaim ──┐
//	ResourceSlice ──┼─► Index ◄── Pod's and Node's events, which it completes
//	DeviceClass   ──┘     └────► which pods and nodes have to be told anew
//
// It does not decide which devices anybody gets, nor read a selector: that is the allocator's, to which the model carries
// the objects as they are.
//
// A claim counts as so many GPUs against a queue as KAI counts: by the name of its device class, which must contain "gpu",
// and the number of devices it asks for exactly; all devices, or alternatives, count as they can be counted (GPUs). A
// node has as many as slices of drivers whose name contains "gpu" publish for it alone.
//
// An extended resource that a DeviceClass stands for is given by the device plugin of a node that has one for it, and as
// devices on all other nodes that publish any. There, the node's allocatable of it is taken to be the number of its
// devices: an upper bound, which indexes need; whether devices fit is the allocator's word.
package devices
