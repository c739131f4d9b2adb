package domain

import (
	"fmt"
	"regexp"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Slots of the PCI bus 0; see the package's comment.
const (
	slotSCSI    = 0x03
	slotSerial  = 0x04
	slotRNG     = 0x05
	slotBalloon = 0x06
	slotBridge1 = 0x07
	slotBridge2 = 0x08
	slotHostdev = 0x09
	slotNVMe    = 0x10
	slotsFree   = 0x1c
)

// How many there can be of each.
const (
	MaxSCSI        = 26
	MaxVirtIO      = 26
	MaxNVMe        = slotsFree - slotNVMe
	MaxShares      = 31
	MaxHostDevices = slotNVMe - slotHostdev
)

// Place is where a disk is, from outside and from inside.
type Place struct {
	// Bus is spec.SCSI for a CD-ROM beside NVMe disks.
	Bus spec.DiskDriver
	// Dev is libvirt's name of the target, "sda" or "vdb"; for NVMe, QEMU's of the device.
	Dev string
	// Path is the disk's link below /dev/disk/by-id in a guest with udev. (by-path names of the same disk differ between udev's versions.)
	Path string
	// Sysfs is a shell pattern for a guest without udev: it matches one directory, whose own name is the disk's, such as "sda".
	Sysfs string

	slot uint // unit of the SCSI controller, or PCI slot
}

var serial = regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)

// Places says where each disk is: for cloud-init, which mounts them, and for Build. It is an error to have more disks than a
// bus has room for, or serials that are not as Disk says.
func Places(driver spec.DiskDriver, disks []Disk) ([]Place, error) {
	out := make([]Place, 0, len(disks))
	seen := map[string]bool{}
	var scsi, virtio, nvme uint
	for i, d := range disks {
		if !serial.MatchString(d.Serial) || seen[d.Serial] {
			return nil, fmt.Errorf("disk %d: serial %q: must be 1 to 20 letters, digits, '-' and '_', and no other disk's", i, d.Serial)
		}
		seen[d.Serial] = true
		p := Place{Bus: driver}
		if driver == spec.NVMe && d.Role == FirstBoot {
			p.Bus = spec.SCSI
		}
		switch p.Bus {
		case spec.SCSI:
			if scsi == MaxSCSI {
				return nil, vm.Errorf(vm.Invalid, "disk %d: the SCSI controller has room for %d", i, MaxSCSI)
			}
			p.slot = scsi
			p.Dev = "sd" + letter(scsi)
			product := "QEMU_HARDDISK"
			if d.Role == FirstBoot {
				product = "QEMU_CD-ROM"
			}
			p.Path = "/dev/disk/by-id/scsi-0QEMU_" + product + "_" + d.Serial
			p.Sysfs = fmt.Sprintf("/sys/devices/pci0000:00/0000:00:%02x.0/virtio*/host*/target*:0:0/*:0:0:%d/block/*", slotSCSI, scsi)
			scsi++
		case spec.VirtIO:
			if virtio == MaxVirtIO {
				return nil, vm.Errorf(vm.Invalid, "disk %d: the bus of virtio disks has room for %d", i, MaxVirtIO)
			}
			p.slot = virtio + 1
			p.Dev = "vd" + letter(virtio)
			p.Path = "/dev/disk/by-id/virtio-" + d.Serial
			p.Sysfs = fmt.Sprintf("/sys/devices/pci0000:00/0000:00:%02x.0/0000:01:%02x.0/virtio*/block/*", slotBridge1, p.slot)
			virtio++
		case spec.NVMe:
			if nvme == MaxNVMe {
				return nil, vm.Errorf(vm.Invalid, "disk %d: there is room for %d NVMe disks", i, MaxNVMe)
			}
			p.slot = slotNVMe + nvme
			p.Dev = fmt.Sprintf("muster-nvme%d", nvme)
			p.Path = "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_" + d.Serial
			p.Sysfs = fmt.Sprintf("/sys/devices/pci0000:00/0000:00:%02x.0/nvme/nvme*/nvme*n*", p.slot)
			nvme++
		default:
			return nil, fmt.Errorf("disk %d: driver %q: must be scsi, virtio or nvme", i, driver)
		}
		out = append(out, p)
	}
	return out, nil
}

func letter(n uint) string { return string(rune('a' + n)) }
