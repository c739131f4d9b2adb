// Package wrap is what libvirt runs as a domain's <emulator>: it fetches the descriptors of the pod's taps, puts the network cards into QEMU's
// arguments, and becomes QEMU, which inherits the descriptors. It needs no privilege: descriptors come open, and a user id with a token that is good
// once is all that the network process asks for.
//
// What libvirt's domain sets in the environment, by the names that Virtlet's had:
//
//	VIRTLET_EMULATOR            QEMU, an absolute path. Absent: libvirt asks what QEMU can do, and QEMU of this node runs with its arguments as they are
//	VIRTLET_NET_KEY             who has the taps, a Key; absent: the machine has no card. QEMU does not get it
//	VIRTLET_CONTAINER_ID        the container, 1 to 128 letters, digits, '_', '.' and '-'; needed. For whoever reads QEMU's environment
//	VIRTLET_CONTAINER_LOG_PATH  its log, an absolute path; may be absent. For whoever reads it
//	VIRTLET_NETWORK_DEVICE      virtio (where absent), e1000 or e1000e
//	VIRTLET_CPUSETS             the CPUs that QEMU may use, such as 0-3,8; absent: all that it has
//
// Read judges that, Build makes the rest; both are pure, and testdata has what they give. Run is the thin shell around them. An error is one line
// on the standard error, which libvirt keeps in the domain's log and in the error of the start; it names the variable and the rule.
package wrap
