package spec

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Spec is a pod's machine as it was asked for and found to be possible. Its texts that end up in XML, scripts or file names hold no
// control characters; its paths are absolute and clean. It may hold data of Secrets: it is not for logs, nor for any disk.
type Spec struct {
	Pod       Pod
	Container Container
	Resources Resources
	Machine   Machine
	CloudInit CloudInit
	// Mounts are the container's in the kubelet's order.
	Mounts []Mount
	// Blocks are block devices of the host that become disks of the guest, in the kubelet's order. At most one is the root.
	Blocks []Block
	// Files are written into the root before the first boot (VirtletFilesFromDataSource), sorted by path.
	Files []File
	// HostDevices are what device plugins and CDI gave the container.
	HostDevices HostDevices
	// Ports are the pod's port mappings with a host port, for CNI's portMappings.
	Ports []Port
}

// Pod says whose machine it is.
type Pod struct {
	Namespace, Name, UID string
	// Hostname is the guest's: the sandbox's host name; where it has none the pod's name, cut to 63 bytes.
	Hostname string
	// CgroupParent is the pod's cgroup as the kubelet names it; it may be empty.
	CgroupParent string
	// LogDirectory is where the container's log path begins; it may be empty.
	LogDirectory string
	Labels       map[string]string
	Annotations  map[string]string
}

// String is namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// Container is what the guest contract calls the container: what a guest may run, if it knows the contract.
type Container struct {
	Name    string
	Attempt uint32
	// Image is the name or id that the kubelet asks for.
	Image               string
	Command, Args       []string
	Env                 []EnvVar
	WorkingDir          string
	Labels, Annotations map[string]string
	// LogPath is relative to the pod's LogDirectory.
	LogPath               string
	Stdin, StdinOnce, TTY bool
}

// EnvVar is one variable of the container's environment. Its value may hold anything but NUL.
type EnvVar struct{ Name, Value string }

// Resources are the container's, in the kernel's units; 0 and "" mean not set, but for Memory and VCPUs, which always are.
type Resources struct {
	// VCPUs is 1 to 255.
	VCPUs int
	// Memory is the guest's in bytes: the limit of its huge pages where there is one, else its memory limit, else the node's default.
	Memory int64
	// HugePage is the size of the pages that Memory lies on, in bytes; 0 for normal pages. Memory is a multiple of it.
	HugePage int64
	// CPUShares is cgroup v1's weight, 2 to 262144. CPUQuota and CPUPeriod are microseconds; a quota is of all the machine's CPU time.
	CPUShares, CPUQuota, CPUPeriod int64
	// CPUs and Mems are CPUs and NUMA nodes of the host that the machine is bound to, ascending; nil means unbound.
	CPUs, Mems []int
	// OOMScore is what the kernel adds to the score by which it chooses a process to end when memory is short, -1000 to 1000; 0 leaves the hypervisor's.
	OOMScore int64
	// Swap is how many bytes of the machine may be swapped out: nil means not said, a negative number any.
	Swap *int64
	// Unified are files of a control group of version 2 by name, such as "memory.min", with the line to write. It holds none that bound memory (memory.max, memory.high): those are made for a
	// process, and a guest is to have all of Memory, with what QEMU needs beside it; the pod's group bounds both.
	Unified map[string]string
}

// DiskDriver is the bus of a machine's disks.
type DiskDriver string

// The disk drivers.
const (
	SCSI   DiskDriver = "scsi"
	VirtIO DiskDriver = "virtio"
	NVMe   DiskDriver = "nvme"
)

// NetworkDevice is the model of a machine's network cards.
type NetworkDevice string

// The network devices.
const (
	NetworkVirtIO NetworkDevice = "virtio"
	NetworkE1000  NetworkDevice = "e1000"
	NetworkE1000E NetworkDevice = "e1000e"
)

// The CPU models that are no model's name.
const (
	// HostModel is the nearest named model, with the host's features.
	HostModel = "host-model"
	// HostPassthrough is the host's own CPU.
	HostPassthrough = "host-passthrough"
	// Maximum is all that the hypervisor can do.
	Maximum = "maximum"
)

// Machine is what the annotations say of the hardware.
type Machine struct {
	// UUID is the domain's, in lower case with hyphens; "" leaves it to the container's id.
	UUID       string
	DiskDriver DiskDriver
	Network    NetworkDevice
	// CPUModel is "", HostModel, HostPassthrough, Maximum or a model that libvirt knows by name. CPU, where not nil, wins over it.
	CPUModel string
	CPU      *CPU
	// RootSize is the least size of the root disk in bytes; 0 leaves it to the image, which is never cut.
	RootSize int64
	// VNC asks for a screen.
	VNC bool
	// Suspend asks that a stop saves the machine with its memory instead of ending it. SuspendTo is then the directory of the host that keeps it, Owner and Index whose machine it is:
	// letters, digits, '_', '.' and '-'; Index may be empty.
	Suspend                 bool
	SuspendTo, Owner, Index string
}

// ImageType is the form in which first-boot data reaches the guest.
type ImageType string

// The forms of first-boot data.
const (
	NoCloud     ImageType = "nocloud"
	ConfigDrive ImageType = "configdrive"
)

// CloudInit is what the annotations and their data sources tell the guest at its first boot. Package cloudinit adds the rest.
type CloudInit struct {
	Type ImageType
	// MetaData overrides generated keys.
	MetaData map[string]any
	// UserData is the data source's with the annotation's merged over it.
	UserData map[string]any
	// Script, where not "", is the whole user-data and UserData counts for nothing.
	Script string
	// SSHKeys are those of the source, then those of the annotation.
	SSHKeys []string
	// ForceDHCP leaves the network configuration out.
	ForceDHCP bool
}

// MountKind is how a mount reaches the guest.
type MountKind uint8

const (
	// Share is a directory of the host that the guest mounts by virtiofs.
	Share MountKind = iota
	// Copy is a snapshot that first-boot data carries: a volume of kind configMap, secret, projected or downward API.
	Copy
	// SingleFile is one file, which first-boot data carries as well.
	SingleFile
)

// Mount is one mount of the container.
type Mount struct {
	// Path is the guest's, HostPath the host's.
	Path, HostPath string
	ReadOnly       bool
	// Follow says that what is mounted below HostPath later is to appear in the guest (HostToContainer). Nothing a guest mounts ever
	// appears on the host: bidirectional propagation is refused.
	Follow bool
	Kind   MountKind
}

// Block is one block device of the host.
type Block struct {
	// DevicePath is where the container would find it; the guest gets a link of that name. "/" is the root: see Root.
	DevicePath, HostPath string
	ReadOnly             bool
}

// Root says that the block device is the machine's persistent root.
func (b Block) Root() bool { return b.DevicePath == "/" }

// File is one file for the guest's root.
type File struct {
	Path    string
	Content []byte
}

// HostDevices name what the container was given of the host's devices.
type HostDevices struct {
	// VFIO are the container's device nodes below /dev/vfio: each an IOMMU group, but for the container node "/dev/vfio/vfio", which is left
	// out.
	VFIO []string
	// PCI are addresses that the environment names as SR-IOV and KubeVirt device plugins do (PCIDEVICE_*, PCI_RESOURCE_*), without
	// repetition. A pod's author can write such variables too: pass a device through only if its IOMMU group is one of VFIO.
	PCI []string
	// CDI are qualified names of devices, "vendor/class=device".
	CDI []string
}

// Protocol is a port mapping's: "tcp", "udp" or "sctp", as CNI's portMappings write it.
type Protocol string

// Port is a mapping of a host's port to the guest's.
type Port struct {
	Protocol            Protocol
	HostPort, GuestPort int
	// HostIP is "" for every address of the host.
	HostIP string
}

// Node holds the limits and defaults of a node. A zero value means: no limit, no default of its own.
type Node struct {
	// CPUModel is used where the pod names none: "" or HostModel.
	CPUModel string
	// MaxVCPUs is at most 255, which is the default.
	MaxVCPUs int
	// DefaultMemory is the guest's memory in bytes where the container has no limit; 1 GiB by default.
	DefaultMemory int64
	// MaxMemory and MaxRootSize are bytes.
	MaxMemory, MaxRootSize int64
	// SuspendRate is how many bytes of memory are saved in a second; 40 MiB by default.
	SuspendRate int64
}

// SourceKind says what a data source is.
type SourceKind string

// The kinds of data sources.
const (
	ConfigMap SourceKind = "configmap"
	Secret    SourceKind = "secret"
)

// Source names a ConfigMap or a Secret of the pod's namespace.
type Source struct {
	Kind SourceKind
	Name string
}

// String is as annotations write it: kind/name.
func (s Source) String() string { return string(s.Kind) + "/" + s.Name }

// Sources is the data that a pod may be told. It holds nothing that the pod does not mount.
type Sources map[Source]map[string][]byte

// Input is what Judge looks at.
type Input struct {
	Sandbox *runtimeapi.PodSandboxConfig
	// Container is nil while there is only a sandbox: then what concerns the container is not judged, and Sources may be empty.
	Container *runtimeapi.ContainerConfig
	Sources   Sources
	// SingleFiles are the host paths of the container's mounts that are regular files on the host, as the caller found them.
	SingleFiles map[string]bool
	Node        Node
}
