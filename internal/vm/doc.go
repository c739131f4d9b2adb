// Package vm holds the nouns that the parts of muster-vm share, and nothing else: what a pod's network looks like from inside a guest,
// and the kinds of error that cross from a part to the CRI. muster-vm runs a pod whose image is a disk as a virtual machine, for
// a kubelet that knows only the container runtime interface.
//
// The parts, each a package below this one that knows no other unless it says so (docs/adr/0009-a-pod-that-is-a-machine.md):
//
//	proxy      one CRI endpoint over several runtimes; knows CRI and nothing of VMs
//	image      disk images: names, pulls, what a hostile image may not do, the store by digest
//	spec       a pod's CRI configuration and annotations, judged: every error of a pod at once
//	domain     spec and facts of the node to libvirt's XML; a pure function
//	cloudinit  what a guest is told at its first boot; pure, but for the ISO it writes
//	network    network namespaces, CNI, veth, bridge and tap, DHCP, and the socket that hands out taps
//	hypervisor machines by libvirt's protocol, or a fake's; one contract, one suite
//	wrap       what libvirt runs as QEMU: fetches taps, adds the cards, becomes QEMU
//
// Of Muster's other packages they import only internal/app.
package vm
