package cloudinit

import (
	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Input is all that first-boot data is made of.
type Input struct {
	Spec    *spec.Spec
	Network vm.Network
	// UUID is the domain's, which a ConfigDrive tells.
	UUID string
	// Files are what the mounts of kind spec.Copy and spec.SingleFile hold.
	Files []File
	// Shares are the mounts that come by virtiofs.
	Shares []Share
	// Devices are block volumes, FileSystems volumes with a file system that the guest mounts.
	Devices     []Device
	FileSystems []FileSystem
}

// File is one file for the guest, with its permissions (the lowest nine bits count).
type File struct {
	Path    string
	Content []byte
	Mode    uint32
}

// Share is a directory of the host: Tag is virtiofs's, Path the guest's.
type Share struct {
	Tag, Path string
	ReadOnly  bool
}

// Device is a disk that the guest is to find under Path, such as "/dev/data".
type Device struct {
	Path string
	Disk Disk
}

// FileSystem is a disk whose partition the guest is to mount at Path; partition 0 is the whole disk.
type FileSystem struct {
	Path      string
	Disk      Disk
	Partition int
	ReadOnly  bool
}

// Disk is how a guest finds a disk: by a link below /dev/disk where there is udev, else by a shell pattern in /sys that matches one
// directory, whose own name is the disk's.
type Disk struct{ Link, Sysfs string }

// The bounds of what is told.
const (
	// MaxFiles and MaxFileBytes are over all files of a pod.
	MaxFiles     = 4096
	MaxFileBytes = 8 << 20
)

// Data is what a guest is told.
type Data struct {
	// Label is the volume's, by which cloud-init finds it: "cidata" or "config-2".
	Label string
	// Files have relative paths, sorted.
	Files []File
}

// Contract is meta-data's key "muster".
type Contract struct {
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Env has entries NAME=value.
	Env        []string         `json:"env,omitempty"`
	WorkingDir string           `json:"workingDir,omitempty"`
	Mounts     []ContractMount  `json:"mounts,omitempty"`
	Devices    []ContractDevice `json:"devices,omitempty"`
	// DNSOptions are resolv.conf's options, which neither DHCP nor cloud-init's network configuration can say.
	DNSOptions []string `json:"dnsOptions,omitempty"`
}

// ContractMount is a virtiofs mount.
type ContractMount struct {
	Tag      string `json:"tag"`
	Path     string `json:"path"`
	ReadOnly bool   `json:"readOnly"`
}

// ContractDevice is a block volume: the disk that the pattern matches is to be found under the path.
type ContractDevice struct {
	Path  string `json:"path"`
	Sysfs string `json:"sysfs"`
}
