package domain

import (
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Input is all that a domain is made of.
type Input struct {
	Spec *spec.Spec
	// ContainerID and SandboxID are the CRI's; the domain's UUID follows from the first unless an annotation sets it.
	ContainerID, SandboxID string
	// Disks in the order in which the guest sees them: the root first, first-boot data last.
	Disks []Disk
	// Shares are the directories that the guest mounts by virtiofs.
	Shares []Share
	// HostDevices are PCI addresses of the host, such as "0000:3b:02.1", that are passed through and already judged to be the pod's.
	HostDevices []string
	Paths       Paths
	// NetKey is the wrapper's token for the pod's network cards; "" where there are none.
	NetKey string
	// LogPath is the container's log file, for the wrapper and whoever reads QEMU's environment.
	LogPath string
	Node    Node
}

// Paths are the host paths of what belongs to this domain alone.
type Paths struct {
	// Serial is the pipe of the first serial port: SERIAL.in, a FIFO that the guest reads, and SERIAL.out, a regular file that holds all that it says. Both have
	// to be there, and QEMU's user has to be able to read and write them. (QEMU opens a pipe's two files for reading and writing, whatever they are: so output is kept while
	// nobody listens, and input does not end with whoever types.)
	Serial string
	// Exit is the pipe of the port dev.muster.exit, as Serial: EXIT.out holds what the guest writes, also when nobody is there and after QEMU has ended, which a FIFO
	// would not. Who makes it has to keep a guest from filling the disk with it.
	Exit string
	// VNC is the screen's socket, at most 107 bytes; needed only where the pod asks for a screen.
	VNC string
}

// Node is what a domain has to know of where it runs.
type Node struct {
	// DomainType is "kvm" or "qemu". It is never guessed: /dev/kvm can be there and not work.
	DomainType string
	// Emulator is the wrapper that libvirt starts, QEMU what the wrapper starts.
	Emulator, QEMU string
	// CgroupV2 says that CPU weights are 1 to 10000 instead of 2 to 262144.
	CgroupV2 bool
	// Nested is the CPU feature of nested virtualization that guests can be given, "vmx" or "svm"; "" for none.
	Nested string
	// NUMA are the host's nodes that have CPUs; nil where it is not known.
	NUMA []NUMANode
	// Virtiofsd is the path of the program; "" leaves it to libvirt.
	Virtiofsd string
}

// NUMANode is a node of the host with its CPUs.
type NUMANode struct {
	ID   int
	CPUs []int
}

// Role says what a disk is for.
type Role uint8

// The roles of a disk.
const (
	// Data is a volume.
	Data Role = iota
	// Root is what the machine boots from.
	Root
	// FirstBoot is the ISO with first-boot data. It is a CD-ROM, but with the driver virtio a disk that cannot be written: libvirt has no virtio CD-ROM.
	FirstBoot
)

// Disk is one disk. Exactly one of File, Block and RBD is set.
type Disk struct {
	Role Role
	// Format is "qcow2" or "raw".
	Format string
	// File and Block are absolute paths of the host. QEMU's user must be able to read, and to write unless ReadOnly: libvirt changes no owner.
	File, Block string
	RBD         *RBD
	// Slice is the part of a raw disk that the guest sees; nil for all of it.
	Slice *Slice
	// Serial is what the guest finds the disk by: 1 to 20 letters, digits, '-' and '_', no two disks the same.
	Serial   string
	ReadOnly bool
}

// Slice is a part of a disk, in bytes.
type Slice struct{ Offset, Size int64 }

// RBD is a volume of a Ceph cluster.
type RBD struct {
	Pool, Image string
	Monitors    []Monitor
	// User and Secret go together: Secret is the UUID of the libvirt secret that holds the user's key. The key is in no XML.
	User, Secret string
}

// Monitor is the address of a Ceph monitor.
type Monitor struct {
	Host string
	Port int
}

// Share is a directory of the host for the guest.
type Share struct {
	// Tag is what the guest mounts: at most 35 bytes, no two the same.
	Tag string
	// Source is the directory. To be read-only in the guest it has to be a read-only bind mount: libvirt 9.0 has no read-only virtiofs.
	Source string
	// Socket, if not empty, is where a file server listens that serves Source; libvirt then starts none, and Source is not in the XML.
	Socket string
}
