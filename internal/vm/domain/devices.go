package domain

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"

	"libvirt.org/go/libvirtxml"

	"github.com/muster-scheduler/muster/internal/vm/spec"
)

var hostAddress = regexp.MustCompile(`^([0-9a-f]{4}):([0-9a-f]{2}):([01][0-9a-f])\.([0-7])$`)

// devices fills in everything that hangs on a bus.
func (in *Input) devices(d *libvirtxml.Domain) error {
	list := &libvirtxml.DomainDeviceList{
		Emulator: in.Node.Emulator,
		Controllers: []libvirtxml.DomainController{
			{Type: "pci", Index: number(0), Model: "pci-root"},
			{Type: "pci", Index: number(1), Model: "pci-bridge", Address: pci(0, slotBridge1)},
			{Type: "pci", Index: number(2), Model: "pci-bridge", Address: pci(0, slotBridge2)},
			{Type: "scsi", Index: number(0), Model: "virtio-scsi", Address: pci(0, slotSCSI)},
			{Type: "virtio-serial", Index: number(0), Address: pci(0, slotSerial)},
		},
		Serials: []libvirtxml.DomainSerial{{
			Source: &libvirtxml.DomainChardevSource{Pipe: &libvirtxml.DomainChardevSourcePipe{Path: in.Paths.Serial, SecLabel: noRelabel()}},
			Target: &libvirtxml.DomainSerialTarget{Type: "isa-serial", Port: number(0)},
		}},
		Channels: []libvirtxml.DomainChannel{
			{
				Source:  &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind"}},
				Target:  &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: AgentPort}},
				Address: port(1),
			},
			{
				Source:  &libvirtxml.DomainChardevSource{Pipe: &libvirtxml.DomainChardevSourcePipe{Path: in.Paths.Exit, SecLabel: noRelabel()}},
				Target:  &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: ExitPort}},
				Address: port(2),
			},
		},
		RNGs: []libvirtxml.DomainRNG{{
			Model: "virtio", Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}}, Address: pci(0, slotRNG),
		}},
		MemBalloon: &libvirtxml.DomainMemBalloon{Model: "virtio", Stats: &libvirtxml.DomainMemBalloonStats{Period: 10}, Address: pci(0, slotBalloon)},
		Panics:     []libvirtxml.DomainPanic{{Model: "isa"}},
	}
	d.Devices = list
	in.screen(list)
	for i, s := range in.Shares {
		fs := libvirtxml.DomainFilesystem{
			AccessMode: "passthrough",
			Driver:     &libvirtxml.DomainFilesystemDriver{Type: "virtiofs"},
			Source:     &libvirtxml.DomainFilesystemSource{Mount: &libvirtxml.DomainFilesystemSourceMount{Dir: s.Source}},
			Target:     &libvirtxml.DomainFilesystemTarget{Dir: s.Tag},
			Address:    pci(2, uint(i+1)),
		}
		if s.Socket != "" {
			fs.Source.Mount = &libvirtxml.DomainFilesystemSourceMount{Socket: s.Socket}
		} else if in.Node.Virtiofsd != "" {
			fs.Binary = &libvirtxml.DomainFilesystemBinary{Path: in.Node.Virtiofsd}
		}
		list.Filesystems = append(list.Filesystems, fs)
	}
	for i, address := range in.HostDevices {
		m := hostAddress.FindStringSubmatch(address)
		if m == nil {
			return fmt.Errorf("device %q: must be a PCI address such as 0000:3b:02.1", address)
		}
		list.Hostdevs = append(list.Hostdevs, libvirtxml.DomainHostdev{
			Managed: "no", // whoever gave the device to the pod has bound its driver, and takes it back
			SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{
				Driver: &libvirtxml.DomainHostdevSubsysPCIDriver{Name: "vfio"},
				Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: &libvirtxml.DomainAddressPCI{
					Domain: hexNumber(m[1]), Bus: hexNumber(m[2]), Slot: hexNumber(m[3]), Function: hexNumber(m[4]),
				}},
			},
			Address: pci(0, uint(slotHostdev+i)),
		})
	}
	return in.disks(d)
}

// screen adds a screen, with a pointer that a viewer can follow, or makes sure that there is no USB.
func (in *Input) screen(list *libvirtxml.DomainDeviceList) {
	if !in.Spec.Machine.VNC {
		list.Controllers = append(list.Controllers, libvirtxml.DomainController{Type: "usb", Index: number(0), Model: "none"})
		return
	}
	usb := pci(0, 1)
	usb.PCI.Function = number(2) // of PIIX3
	list.Controllers = append(list.Controllers, libvirtxml.DomainController{Type: "usb", Index: number(0), Model: "piix3-uhci", Address: usb})
	list.Inputs = []libvirtxml.DomainInput{{Type: "tablet", Bus: "usb"}}
	list.Graphics = []libvirtxml.DomainGraphic{{VNC: &libvirtxml.DomainGraphicVNC{
		Listeners: []libvirtxml.DomainGraphicListener{{Socket: &libvirtxml.DomainGraphicListenerSocket{Socket: in.Paths.VNC}}},
	}}}
	list.Videos = []libvirtxml.DomainVideo{{Model: libvirtxml.DomainVideoModel{Type: "vga"}, Address: pci(0, 2)}}
}

// The order in which the firmware tries disks. First-boot data is named too: with no device named, libvirt would choose a disk of its
// own, which cannot be one that stands on QEMU's command line.
const (
	bootRoot  = 1
	bootOther = 2
)

func (in *Input) disks(d *libvirtxml.Domain) error {
	places, err := Places(in.Spec.Machine.DiskDriver, in.Disks)
	if err != nil {
		return err
	}
	for i, disk := range in.Disks {
		place := places[i]
		if place.Bus == spec.NVMe {
			args, err := nvme(disk, place)
			if err != nil {
				return err
			}
			d.QEMUCommandline.Args = append(d.QEMUCommandline.Args, args...)
			continue
		}
		x := libvirtxml.DomainDisk{
			Device: "disk", Serial: disk.Serial,
			Driver: &libvirtxml.DomainDiskDriver{Name: "qemu", Type: disk.Format},
			Source: source(disk),
			Target: &libvirtxml.DomainDiskTarget{Dev: place.Dev, Bus: string(place.Bus)},
		}
		if disk.ReadOnly || disk.Role == FirstBoot {
			x.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
		} else {
			x.Driver.Discard = "unmap"
		}
		switch disk.Role {
		case Root:
			x.Boot = &libvirtxml.DomainDeviceBoot{Order: bootRoot}
		case FirstBoot:
			x.Boot = &libvirtxml.DomainDeviceBoot{Order: bootOther}
		}
		if place.Bus == spec.SCSI {
			if disk.Role == FirstBoot {
				x.Device = "cdrom"
			}
			x.Address = &libvirtxml.DomainAddress{Drive: &libvirtxml.DomainAddressDrive{
				Controller: number(0), Bus: number(0), Target: number(0), Unit: number(place.slot),
			}}
		} else {
			x.Address = pci(1, place.slot)
		}
		if r := disk.RBD; r != nil && r.User != "" {
			x.Auth = &libvirtxml.DomainDiskAuth{Username: r.User, Secret: &libvirtxml.DomainDiskSecret{Type: "ceph", UUID: r.Secret}}
		}
		d.Devices.Disks = append(d.Devices.Disks, x)
	}
	return nil
}

func source(disk Disk) *libvirtxml.DomainDiskSource {
	s := &libvirtxml.DomainDiskSource{}
	switch {
	case disk.File != "":
		s.File = &libvirtxml.DomainDiskSourceFile{File: disk.File, SecLabel: noRelabel()}
	case disk.Block != "":
		s.Block = &libvirtxml.DomainDiskSourceBlock{Dev: disk.Block, SecLabel: noRelabel()}
	default:
		s.Network = &libvirtxml.DomainDiskSourceNetwork{Protocol: "rbd", Name: disk.RBD.Pool + "/" + disk.RBD.Image}
		for _, m := range disk.RBD.Monitors {
			host := libvirtxml.DomainDiskSourceHost{Name: m.Host}
			if m.Port > 0 {
				host.Port = strconv.Itoa(m.Port)
			}
			s.Network.Hosts = append(s.Network.Hosts, host)
		}
	}
	if disk.Slice != nil {
		s.Slices = &libvirtxml.DomainDiskSlices{Slices: []libvirtxml.DomainDiskSlice{
			{Type: "storage", Offset: uint(disk.Slice.Offset), Size: uint(disk.Slice.Size)},
		}}
	}
	return s
}

// blockNode and nvmeDevice are QEMU's own JSON forms of -blockdev and -device. With JSON, QEMU makes the device in the order of its
// arguments, after libvirt's, and not before them.
type blockNode struct {
	Driver   string     `json:"driver"`
	NodeName string     `json:"node-name,omitempty"`
	ReadOnly bool       `json:"read-only,omitempty"`
	Discard  string     `json:"discard,omitempty"`
	Offset   int64      `json:"offset,omitempty"`
	Size     int64      `json:"size,omitempty"`
	Filename string     `json:"filename,omitempty"`
	File     *blockNode `json:"file,omitempty"`
}

type nvmeDevice struct {
	Driver    string `json:"driver"`
	ID        string `json:"id"`
	Drive     string `json:"drive"`
	Serial    string `json:"serial"`
	Bus       string `json:"bus"`
	Addr      string `json:"addr"`
	BootIndex int    `json:"bootindex,omitempty"`
}

func nvme(disk Disk, place Place) ([]libvirtxml.DomainQEMUCommandlineArg, error) {
	node := blockNode{Driver: disk.Format, NodeName: place.Dev + "-node", ReadOnly: disk.ReadOnly, Discard: "unmap"}
	node.File = &blockNode{Driver: "file", Filename: disk.File, ReadOnly: disk.ReadOnly, Discard: "unmap"}
	if disk.Block != "" {
		node.File.Driver, node.File.Filename = "host_device", disk.Block
	}
	if disk.Slice != nil {
		node.Offset, node.Size = disk.Slice.Offset, disk.Slice.Size
	}
	device := nvmeDevice{
		Driver: "nvme", ID: place.Dev, Drive: node.NodeName, Serial: disk.Serial, Bus: "pci.0", Addr: fmt.Sprintf("0x%x", place.slot),
	}
	if disk.Role == Root {
		device.BootIndex = bootRoot
	}
	var out []libvirtxml.DomainQEMUCommandlineArg
	for _, arg := range []struct {
		flag  string
		value any
	}{{"-blockdev", node}, {"-device", device}} {
		text, err := json.Marshal(arg.value)
		if err != nil {
			return nil, err
		}
		out = append(out, libvirtxml.DomainQEMUCommandlineArg{Value: arg.flag}, libvirtxml.DomainQEMUCommandlineArg{Value: string(text)})
	}
	return out, nil
}

// noRelabel keeps libvirt from changing a file's owner, which it would not give back, and which would be the image store's for a backing file.
func noRelabel() []libvirtxml.DomainDeviceSecLabel {
	return []libvirtxml.DomainDeviceSecLabel{{Model: "dac", Relabel: "no"}}
}

func pci(bus, slot uint) *libvirtxml.DomainAddress {
	return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Domain: number(0), Bus: number(bus), Slot: number(slot), Function: number(0)}}
}

// port is a port of the virtio serial controller. Number 0 is kept for consoles.
func port(n uint) *libvirtxml.DomainAddress {
	return &libvirtxml.DomainAddress{VirtioSerial: &libvirtxml.DomainAddressVirtioSerial{Controller: number(0), Bus: number(0), Port: number(n)}}
}

func number(n uint) *uint { return &n }

func hexNumber(digits string) *uint {
	n, err := strconv.ParseUint(digits, 16, 16)
	if err != nil { // the pattern lets nothing else through
		panic(err)
	}
	return number(uint(n))
}
