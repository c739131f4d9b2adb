// Package domain turns a judged Spec, its disks and the facts of a node into libvirt's description of a domain. It is a pure function: the
// same input gives the same XML, byte for byte, and the golden files in testdata are what it gives. Nothing is left to libvirt that could
// come out differently the next time: every device has its PCI address.
//
// A scenario. A pod with VirtletVCPUCount 2, a limit of 512 MiB, an empty directory and a block volume becomes testdata/volumes.xml: two
// CPUs, memory in a memfd that virtiofsd shares, the root on sda, the volume on sdb, first-boot data in the CD-ROM sdc, the console on a
// pipe of the pod's own, a channel for the guest agent and one for the exit code; and no network card, because the emulator is
// muster-vm's wrapper, which adds the cards with the file descriptors that it is given.
//
// # How a machine ends
//
// The exit code of a guest that does not know the guest contract is told from libvirt's reason: shut down 0, destroyed 137, crashed 139.
// So on_poweroff destroys; a panic that the guest reports through the panic device, on_crash, destroys too, and the kubelet's restart
// policy decides what follows. A reboot stays a reboot: the machine goes on as the same container, as a machine does that installs
// updates, and no exit code is told.
//
// # The PCI bus
//
// The machine type is "pc": libvirt's default, which boots from every disk driver. On bus 0 are
//
//	00 to 02   host bridge, PIIX3, screen
//	03         SCSI controller
//	04 05 06   serial ports (guest agent, exit code), random numbers, balloon
//	07         bridge to bus 1: virtio disks, slot 1 for the first
//	08         bridge to bus 2: virtiofs mounts, slot 1 for the first
//	09 to 0f   devices of the host
//	10 to 1b   NVMe disks
//	1c to 1f   free; the wrapper leaves the choice to QEMU, which takes the lowest free slots
//
// NVMe disks are QEMU arguments, because libvirt 9.0 knows no such bus. libvirt therefore neither chowns, locks nor measures them, and does not
// put their block devices on QEMU's device list: whoever starts the domain does.
package domain
