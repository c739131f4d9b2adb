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
//	volume     what a pod mounts, as disks, files and shared directories: in the words of domain and cloudinit, which are given them
//	flexvolume the kubelet's driver that describes disks; volume reads what it leaves
//	metrics    what proxy, network and node count; each of them knows it
//	socket     the unix sockets that proxy, network, node and diag serve; each of them knows it
//	store      the runtime's records on disk
//	console    a guest's serial port to the CRI's log, each line once, and to those that are attached
//	network    network namespaces, CNI, veth, bridge and tap, DHCP, and the socket that hands out taps
//	runtime    the CRI server: who does what in which order
//	node       where all of them but the proxy meet: what runtime asks for, in the words of the parts
//	hypervisor machines by libvirt's protocol, or a fake's; one contract, one suite
//	config     Virtlet's settings, each with where it is from
//	diag       what there is on a node, for people, without secrets
//	validate   whether a node can run machines, and what to do if not
//	ctl        machines reached from outside of the cluster
//	wrap       what libvirt runs as QEMU: fetches taps, adds the cards, becomes QEMU
//
// Of Muster's other packages they import only internal/app.
package vm
