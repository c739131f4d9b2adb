// Package spec judges what a pod asks of its machine. It turns the CRI's configurations of sandbox and container, with the pod's
// annotations, into a Spec that the other parts of muster-vm can trust, or into every error of the pod at once. It is pure: it opens no
// file, asks no server and knows no clock.
//
// A scenario. A pod is annotated `VirtletVCPUCount: "many"` and `VirtletDiskDriver: floppy`, and it wants the host's network. Judge says,
// in one error of kind vm.Invalid:
//
//	pod team/web: VirtletDiskDriver "floppy": must be scsi, virtio or nvme
//	pod team/web: VirtletVCPUCount "many": must be a whole number, at most 255
//	pod team/web: hostNetwork: a machine cannot share the host's network
//
// What a pod may be told from Secrets and ConfigMaps is decided by whoever calls: Wanted says which ones the annotations name, the caller
// reads those of them that the pod mounts, and Judge refuses a name that it was not given. So an annotation is no way to a Secret that
// the pod could not read anyway. What such data holds is never part of an error's text.
//
// All keys, what they may hold and where they mean something else than in Virtlet: Annotations, and docs/operations/vm-annotations.md,
// which is written from it.
package spec
