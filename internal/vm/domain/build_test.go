package domain

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

var update = flag.Bool("update", false, "write the golden files anew")

const containerID = "3f1c"

// plain is the machine of a pod without annotations, on a node without KVM.
func plain() Input {
	return Input{
		Spec: &spec.Spec{
			Pod:       spec.Pod{Namespace: "team", Name: "web", UID: "0f1e"},
			Container: spec.Container{Name: "vm"},
			Resources: spec.Resources{VCPUs: 1, Memory: 1 << 30},
			Machine:   spec.Machine{DiskDriver: spec.SCSI, Network: spec.NetworkVirtIO},
		},
		ContainerID: containerID, SandboxID: "77aa",
		Disks: []Disk{
			{Role: Root, Format: "qcow2", File: "/run/vm/3f1c/root.qcow2", Serial: "root"},
			{Role: FirstBoot, Format: "raw", File: "/run/vm/3f1c/cidata.iso", Serial: "cidata"},
		},
		Paths:  Paths{Serial: "/run/vm/3f1c/serial", Exit: "/run/vm/3f1c/exit"},
		NetKey: "token", LogPath: "/var/log/pods/team_web_0f1e/vm/0.log",
		Node: Node{DomainType: "qemu", Emulator: "/usr/lib/muster/muster-vm-wrap", QEMU: "/usr/bin/qemu-system-x86_64"},
	}
}

// volumes is the scenario of the package's comment.
func volumes() Input {
	in := plain()
	in.Spec.Resources.VCPUs, in.Spec.Resources.Memory = 2, 512<<20
	data := Disk{Format: "raw", Block: "/dev/loop4", Serial: "data", ReadOnly: true}
	in.Disks = []Disk{in.Disks[0], data, in.Disks[1]}
	in.Shares = []Share{{Tag: "muster-0", Source: "/run/vm/3f1c/share/0"}}
	in.Node.Virtiofsd = "/usr/lib/qemu/virtiofsd"
	return in
}

// drive is the machine of volumes with another disk driver, and a persistent root beside a file.
func drive(d spec.DiskDriver) Input {
	in := plain()
	in.Spec.Machine.DiskDriver = d
	in.Disks = []Disk{
		{Role: Root, Format: "raw", Block: "/dev/loop3", Slice: &Slice{Offset: 1 << 20, Size: 1 << 30}, Serial: "root"},
		{Format: "qcow2", File: "/run/vm/3f1c/scratch.qcow2", Serial: "scratch"},
		in.Disks[1],
	}
	return in
}

func bound() Input {
	in := plain()
	in.Node.DomainType, in.Node.CgroupV2, in.Node.Nested = "kvm", true, "vmx"
	in.Node.NUMA = []NUMANode{{ID: 0, CPUs: []int{0, 1, 2, 3}}, {ID: 1, CPUs: []int{4, 5, 6, 7}}}
	in.Spec.Machine.CPUModel = spec.HostModel
	in.Spec.Resources = spec.Resources{VCPUs: 3, Memory: 1 << 30, HugePage: 2 << 20, CPUShares: 1024, CPUQuota: 300000, CPUPeriod: 100000, CPUs: []int{2, 3, 6, 7}, Mems: []int{0, 1}}
	return in
}

// TestGolden: testdata/NAME.xml is what each machine becomes. -update writes them anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]Input{
		"plain":   plain(),
		"volumes": volumes(),
		"virtio":  drive(spec.VirtIO),
		"nvme":    drive(spec.NVMe),
		"slice":   drive(spec.SCSI),
		"bound":   bound(),
		"devices": func() Input {
			in := plain()
			in.HostDevices = []string{"0000:3b:02.1", "0000:3b:02.2"}
			in.Spec.Machine.VNC, in.Paths.VNC = true, "/run/vm/3f1c/vnc.sock"
			in.Spec.Machine.Network = spec.NetworkE1000E
			in.Spec.Machine.UUID = "231700d5-c9a6-5a49-b38d-0123456789ab"
			return in
		}(),
		"served": func() Input {
			in := volumes()
			in.Shares[0].Socket = "/run/vm/s/0123-004.sock"
			return in
		}(),
		"ceph": func() Input {
			in := plain()
			in.Disks = []Disk{in.Disks[0], {Format: "raw", Serial: "ceph", RBD: &RBD{
				Pool: "rbd", Image: "vol", User: "muster", Secret: "5f3b2d1e-0000-5000-8000-000000000001",
				Monitors: []Monitor{{"192.0.2.1", 6789}, {"192.0.2.2", 0}},
			}}, in.Disks[1]}
			return in
		}(),
		"cpu": func() Input {
			in := plain()
			in.Spec.Resources.VCPUs = 4
			c, err := spec.ParseCPU("{mode: custom, match: exact, model: {value: Nehalem, fallback: allow}, topology: {cores: 4}, features: [{name: vmx, policy: disable}],"+
				" numa: {cell: [{id: 0, cpus: 0-1, memory: 512, unit: MiB}, {id: 1, cpus: 2-3, memory: 512, unit: MiB}]}}", 4, 1<<30)
			if err != nil {
				t.Fatal(err)
			}
			in.Spec.Machine.CPU = c
			return in
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := XML(in)
			if err != nil {
				t.Fatal(err)
			}
			file := "testdata/" + name + ".xml"
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("%s differs (-file +now); if it is right, run with -update\n%s", file, d)
			}
			// What libvirt's own types read from it is written the same again.
			var again libvirtxml.Domain
			if err := again.Unmarshal(got); err != nil {
				t.Fatal(err)
			}
			addresses(t, &again)
		})
	}
}

// addresses fails if two devices have one PCI address, or one has none that needs it.
func addresses(t *testing.T, d *libvirtxml.Domain) {
	t.Helper()
	seen := map[string]bool{"0/0": true, "0/1": true}
	take := func(what, at string) {
		if seen[at] {
			t.Errorf("%s is at %s, where something is already", what, at)
		}
		seen[at] = true
	}
	note := func(what string, a *libvirtxml.DomainAddress) {
		if a == nil || a.PCI == nil {
			t.Errorf("%s has no PCI address", what)
			return
		}
		if *a.PCI.Function == 0 {
			take(what, fmt.Sprintf("%d/%d", *a.PCI.Bus, *a.PCI.Slot))
		}
	}
	for _, c := range d.Devices.Controllers {
		if c.Model != "pci-root" && c.Model != "none" {
			note(c.Type, c.Address)
		}
	}
	for _, x := range d.Devices.Disks {
		if x.Target.Bus == "virtio" {
			note(x.Target.Dev, x.Address)
		}
	}
	for _, f := range d.Devices.Filesystems {
		note("virtiofs", f.Address)
	}
	for _, h := range d.Devices.Hostdevs {
		note("hostdev", h.Address)
	}
	for _, v := range d.Devices.Videos {
		note("video", v.Address)
	}
	note("rng", d.Devices.RNGs[0].Address)
	note("balloon", d.Devices.MemBalloon.Address)
	for i, a := range d.QEMUCommandline.Args {
		if a.Value != "-device" {
			continue
		}
		var device nvmeDevice
		if err := json.Unmarshal([]byte(d.QEMUCommandline.Args[i+1].Value), &device); err != nil {
			t.Fatal(err)
		}
		var slot int
		if _, err := fmt.Sscanf(device.Addr, "0x%x", &slot); err != nil {
			t.Fatal(err)
		}
		take(device.ID, fmt.Sprintf("0/%d", slot))
	}
	if len(d.Devices.Interfaces) != 0 {
		t.Error("the domain has network cards of libvirt's; the wrapper brings them")
	}
}

// TestUUID against the definition in RFC 4122, section 4.3.
func TestUUID(t *testing.T) {
	t.Parallel()
	v5 := func(namespace []byte, name string) []byte {
		sum := sha1.Sum(append(bytes.Clone(namespace), name...))
		u := sum[:16]
		u[6] = u[6]&0x0f | 0x50
		u[8] = u[8]&0x3f | 0x80
		return u
	}
	dns, err := hex.DecodeString("6ba7b8109dad11d180b400c04fd430c8")
	if err != nil {
		t.Fatal(err)
	}
	h := hex.EncodeToString(v5(v5(dns, "container.vm.muster.dev"), containerID))
	want := h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
	if got := UUID(containerID, plain().Spec); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	own := &spec.Spec{Machine: spec.Machine{UUID: "231700d5-c9a6-5a49-b38d-0123456789ab"}}
	if got := UUID(containerID, own); got != own.Machine.UUID {
		t.Errorf("%s, want the annotation's", got)
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	const id = "231700d5-c9a6-5a49-b38d-0123456789ab"
	for container, want := range map[string]string{
		"vm": "muster-231700d5-c9a6-vm", "a/b..\x00": "muster-231700d5-c9a6-a_b.._", "": "muster-231700d5-c9a6",
		strings.Repeat("long", 40): "muster-231700d5-c9a6-" + strings.Repeat("long", 8)[:29],
	} {
		if got := Name(id, container); got != want || len(got) > maxName {
			t.Errorf("%q gives %q, want %q", container, got, want)
		}
	}
}

// TestOwner: our element names whose domain it is, and is read back, whatever the names hold.
func TestOwner(t *testing.T) {
	t.Parallel()
	in := plain()
	in.Spec.Pod.Name = `we"b<&>`
	d, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	var got Owner
	if err := xml.Unmarshal([]byte(d.Metadata.XML), &got); err != nil {
		t.Fatal(err)
	}
	got.XMLName = xml.Name{}
	if want := (Owner{Container: containerID, Sandbox: "77aa", Pod: `team/we"b<&>`, UID: "0f1e"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestWeight: the ends of KEP 2254's line, and a container of one CPU.
func TestWeight(t *testing.T) {
	t.Parallel()
	for shares, want := range map[int64]int64{1: 1, 2: 1, 1024: 39, 262144: 10000, 1 << 40: 10000} {
		if got := weight(shares, true); got != want {
			t.Errorf("%d gives %d, want %d", shares, got, want)
		}
	}
	if got := weight(1024, false); got != 1024 {
		t.Errorf("cgroup v1: %d", got)
	}
}

// TestNestedIsRequiredWhereItIs: with "host-model" a machine must start on a node without nested virtualization, or without KVM.
func TestNestedIsRequiredWhereItIs(t *testing.T) {
	t.Parallel()
	in := plain()
	in.Spec.Machine.CPUModel = spec.HostModel
	in.Node.Nested = "svm"
	d, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.CPU.Features) != 0 || d.CPU.Mode != spec.HostModel {
		t.Errorf("%+v", d.CPU)
	}
}

// TestFewerCPUsThanTheMachineHas: all its CPUs run on the whole set, and the guest sees one node.
func TestFewerCPUsThanTheMachineHas(t *testing.T) {
	t.Parallel()
	in := bound()
	in.Spec.Resources.VCPUs = 5
	d, err := Build(in)
	if err != nil {
		t.Fatal(err)
	}
	for _, pin := range d.CPUTune.VCPUPin {
		if pin.CPUSet != "2-3,6-7" {
			t.Errorf("CPU %d on %s", pin.VCPU, pin.CPUSet)
		}
	}
	if d.CPU.Numa != nil {
		t.Errorf("guest NUMA %+v", d.CPU.Numa)
	}
}

// TestRefused: what cannot be a domain is said, and what is over a bus's room.
func TestRefused(t *testing.T) {
	t.Parallel()
	many := func(in *Input, n int) {
		in.Disks = in.Disks[:1]
		for i := range n {
			in.Disks = append(in.Disks, Disk{Format: "raw", File: "/d", Serial: fmt.Sprint("d", i)})
		}
	}
	for want, change := range map[string]func(*Input){
		`domain type "": must be kvm or qemu`:              func(in *Input) { in.Node.DomainType = "" },
		`emulator "": must be an absolute path`:            func(in *Input) { in.Node.Emulator = "" },
		`VNC socket "": must be an absolute path`:          func(in *Input) { in.Spec.Machine.VNC = true },
		`serial pipe "serial":`:                            func(in *Input) { in.Paths.Serial = "serial" },
		`0 of the disks are the root: must be 1`:           func(in *Input) { in.Disks = in.Disks[1:] },
		`disk 0: has 2 sources`:                            func(in *Input) { in.Disks[0].Block = "/dev/x" },
		`disk 0: format "vmdk"`:                            func(in *Input) { in.Disks[0].Format = "vmdk" },
		`disk 0: a slice must be of a raw disk`:            func(in *Input) { in.Disks[0].Slice = &Slice{0, 1} },
		`disk 1: serial "root"`:                            func(in *Input) { in.Disks[1].Serial = "root" },
		`disk 0: serial "a,b"`:                             func(in *Input) { in.Disks[0].Serial = "a,b" },
		`disk 26: the SCSI controller has room for 26`:     func(in *Input) { many(in, 26) },
		`disk 26: the bus of virtio disks has room for 26`: func(in *Input) { many(in, 26); in.Spec.Machine.DiskDriver = spec.VirtIO },
		`disk 12: there is room for 12 NVMe disks`:         func(in *Input) { many(in, 12); in.Spec.Machine.DiskDriver = spec.NVMe },
		`disk 0: a Ceph volume cannot be an NVMe disk`: func(in *Input) {
			in.Spec.Machine.DiskDriver, in.Disks[0] = spec.NVMe, Disk{Role: Root, Format: "raw", Serial: "r", RBD: &RBD{Pool: "p", Image: "i", Monitors: []Monitor{{"m", 1}}}}
		},
		`device "00:1f.2": must be a PCI address`: func(in *Input) { in.HostDevices = []string{"00:1f.2"} },
		`8 devices of the host`:                   func(in *Input) { in.HostDevices = make([]string, 8) },
		`32 shared mounts`:                        func(in *Input) { in.Shares = make([]Share, 32) },
		`shared mount "t" of "rel"`:               func(in *Input) { in.Shares = []Share{{Tag: "t", Source: "rel"}} },
	} {
		in := plain()
		change(&in)
		_, err := Build(in)
		if err == nil || !strings.HasPrefix(err.Error(), "pod team/web: "+want) {
			t.Errorf("%v, want %q", err, want)
			continue
		}
		room := strings.Contains(want, "room") || strings.Contains(want, "Ceph") || strings.Contains(want, "shared mounts") || strings.Contains(want, "devices of")
		if invalid := vm.KindOf(err) == vm.Invalid; invalid != room {
			t.Errorf("%v is of kind %d", err, vm.KindOf(err))
		}
	}
}

// TestPlaces: how a guest finds its disks.
func TestPlaces(t *testing.T) {
	t.Parallel()
	disks := []Disk{{Role: Root, Serial: "root"}, {Serial: "data"}, {Role: FirstBoot, Serial: "cidata"}}
	for driver, want := range map[spec.DiskDriver][]Place{
		spec.SCSI: {
			{spec.SCSI, "sda", "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_root", "/sys/devices/pci0000:00/0000:00:03.0/virtio*/host*/target*:0:0/*:0:0:0/block/*", 0},
			{spec.SCSI, "sdb", "/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_data", "/sys/devices/pci0000:00/0000:00:03.0/virtio*/host*/target*:0:0/*:0:0:1/block/*", 1},
			{spec.SCSI, "sdc", "/dev/disk/by-id/scsi-0QEMU_QEMU_CD-ROM_cidata", "/sys/devices/pci0000:00/0000:00:03.0/virtio*/host*/target*:0:0/*:0:0:2/block/*", 2},
		},
		spec.VirtIO: {
			{spec.VirtIO, "vda", "/dev/disk/by-id/virtio-root", "/sys/devices/pci0000:00/0000:00:07.0/0000:01:01.0/virtio*/block/*", 1},
			{spec.VirtIO, "vdb", "/dev/disk/by-id/virtio-data", "/sys/devices/pci0000:00/0000:00:07.0/0000:01:02.0/virtio*/block/*", 2},
			{spec.VirtIO, "vdc", "/dev/disk/by-id/virtio-cidata", "/sys/devices/pci0000:00/0000:00:07.0/0000:01:03.0/virtio*/block/*", 3},
		},
		spec.NVMe: {
			{spec.NVMe, "muster-nvme0", "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_root", "/sys/devices/pci0000:00/0000:00:10.0/nvme/nvme*/nvme*n*", 16},
			{spec.NVMe, "muster-nvme1", "/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_data", "/sys/devices/pci0000:00/0000:00:11.0/nvme/nvme*/nvme*n*", 17},
			{spec.SCSI, "sda", "/dev/disk/by-id/scsi-0QEMU_QEMU_CD-ROM_cidata", "/sys/devices/pci0000:00/0000:00:03.0/virtio*/host*/target*:0:0/*:0:0:0/block/*", 0},
		},
	} {
		got, err := Places(driver, disks)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(Place{})); d != "" {
			t.Errorf("%s: %s", driver, d)
		}
	}
}
