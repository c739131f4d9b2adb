package domain

import (
	"encoding/xml"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Namespace is the XML namespace of our element in a domain's metadata. A domain without it is not ours, and is left alone.
const Namespace = "https://vm.muster.dev/domain/1"

// The names of the virtio serial ports that a guest may know.
const (
	AgentPort = "org.qemu.guest_agent.0"
	ExitPort  = "dev.muster.exit"
)

// Owner is the element of a domain's metadata that makes it ours.
type Owner struct {
	XMLName   xml.Name `xml:"https://vm.muster.dev/domain/1 owner"`
	Container string   `xml:"container,attr"`
	Sandbox   string   `xml:"sandbox,attr"`
	Pod       string   `xml:"pod,attr"` // namespace/name
	UID       string   `xml:"uid,attr"`
}

// UUID is the domain's: the pod's own, or version 5 of RFC 4122 of the container's id, in the namespace that is version 5 of
// "container.vm.muster.dev" among names of the DNS.
func UUID(containerID string, s *spec.Spec) string {
	if s.Machine.UUID != "" {
		return s.Machine.UUID
	}
	return uuid.NewSHA1(uuid.NewSHA1(uuid.NameSpaceDNS, []byte("container.vm.muster.dev")), []byte(containerID)).String()
}

// maxName keeps the names of libvirt's sockets, log files and cgroups within what the kernel takes.
const maxName = 50

var notInName = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// Name is the domain's: "muster-", the first 13 characters of its UUID, and the container's name as far as it fits.
func Name(uuid, container string) string {
	name := "muster-" + uuid[:min(len(uuid), 13)] + "-" + notInName.ReplaceAllString(container, "_")
	return strings.TrimRight(name[:min(len(name), maxName)], "-.")
}

// maxSocket is what fits sockaddr_un.
const maxSocket = 107

// Build describes the domain. Its errors name the pod and say which part of the input cannot be. They are of kind vm.Invalid where a machine
// has no room for what the pod asks for; the others are defects of the caller.
func Build(in Input) (*libvirtxml.Domain, error) {
	if in.Spec == nil {
		return nil, errors.New("domain: there is no Spec")
	}
	d, err := in.build()
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", in.Spec.Pod, err)
	}
	return d, nil
}

func (in *Input) build() (*libvirtxml.Domain, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	id := UUID(in.ContainerID, in.Spec)
	owner, err := xml.Marshal(Owner{Container: in.ContainerID, Sandbox: in.SandboxID, Pod: in.Spec.Pod.String(), UID: in.Spec.Pod.UID})
	if err != nil {
		return nil, err
	}
	d := &libvirtxml.Domain{
		Type: in.Node.DomainType, Name: Name(id, in.Spec.Container.Name), UUID: id,
		Metadata: &libvirtxml.DomainMetadata{XML: string(owner)},
		OS:       &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Arch: "x86_64", Machine: "pc", Type: "hvm"}},
		Features: &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		Clock:    &libvirtxml.DomainClock{Offset: "utc"},
		// What the guest suspends by itself would look ended, and nothing would wake it.
		PM: &libvirtxml.DomainPM{
			SuspendToMem:  &libvirtxml.DomainPMPolicy{Enabled: "no"},
			SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"},
		},
		OnPoweroff: "destroy", OnReboot: "restart", OnCrash: "destroy",
		QEMUCommandline: &libvirtxml.DomainQEMUCommandline{Envs: in.environment()},
	}
	if err := in.compute(d); err != nil {
		return nil, err
	}
	if err := in.devices(d); err != nil {
		return nil, err
	}
	return d, nil
}

// XML is Build's domain as text.
func XML(in Input) (string, error) {
	d, err := Build(in)
	if err != nil {
		return "", err
	}
	text, err := d.Marshal()
	return text + "\n", err
}

func (in *Input) check() error {
	switch {
	case in.Node.DomainType != "kvm" && in.Node.DomainType != "qemu":
		return fmt.Errorf("domain type %q: must be kvm or qemu", in.Node.DomainType)
	case in.ContainerID == "":
		return errors.New("domain: the container has no id")
	case len(in.Shares) > MaxShares:
		return vm.Errorf(vm.Invalid, "%d shared mounts: a machine has room for %d", len(in.Shares), MaxShares)
	case len(in.HostDevices) > MaxHostDevices:
		return vm.Errorf(vm.Invalid, "%d devices of the host: a machine has room for %d", len(in.HostDevices), MaxHostDevices)
	}
	for _, must := range []struct {
		what, path string
		optional   bool
		most       int
	}{
		{"emulator", in.Node.Emulator, false, 4095},
		{"QEMU", in.Node.QEMU, false, 4095},
		{"virtiofsd", in.Node.Virtiofsd, true, 4095},
		{"serial pipe", in.Paths.Serial, false, 4095 - len(".out")},
		{"exit pipe", in.Paths.Exit, false, 4095 - len(".out")},
		{"VNC socket", in.Paths.VNC, !in.Spec.Machine.VNC, maxSocket},
	} {
		if must.path == "" && must.optional {
			continue
		}
		if !path.IsAbs(must.path) || len(must.path) > must.most {
			return fmt.Errorf("%s %q: must be an absolute path of at most %d bytes", must.what, must.path, must.most)
		}
	}
	tags := map[string]bool{}
	for _, s := range in.Shares {
		if s.Tag == "" || len(s.Tag) > 35 || tags[s.Tag] || !path.IsAbs(s.Source) {
			return fmt.Errorf("shared mount %q of %q: needs a tag of its own of at most 35 bytes, and an absolute path", s.Tag, s.Source)
		}
		tags[s.Tag] = true
	}
	roots := 0
	for i, d := range in.Disks {
		if err := d.check(in.Spec.Machine.DiskDriver); err != nil {
			return fmt.Errorf("disk %d: %w", i, err)
		}
		if d.Role == Root {
			roots++
		}
	}
	if roots != 1 {
		return fmt.Errorf("%d of the disks are the root: must be 1", roots)
	}
	return nil
}

func (d Disk) check(driver spec.DiskDriver) error {
	sources := 0
	for _, set := range []bool{d.File != "", d.Block != "", d.RBD != nil} {
		if set {
			sources++
		}
	}
	switch {
	case sources != 1:
		return fmt.Errorf("has %d sources: must have 1", sources)
	case d.RBD == nil && !path.IsAbs(d.File+d.Block):
		return fmt.Errorf("%q: must be an absolute path", d.File+d.Block)
	case d.Format != "qcow2" && d.Format != "raw":
		return fmt.Errorf("format %q: must be qcow2 or raw", d.Format)
	case d.Slice != nil && (d.Format != "raw" || d.Slice.Offset < 0 || d.Slice.Size <= 0):
		return errors.New("a slice must be of a raw disk, begin at 0 or later, and have a size")
	case d.RBD != nil && driver == spec.NVMe && d.Role != FirstBoot:
		return vm.Errorf(vm.Invalid, "a Ceph volume cannot be an NVMe disk: its key would have to stand on QEMU's command line")
	case d.RBD != nil && (d.RBD.Pool == "" || d.RBD.Image == "" || len(d.RBD.Monitors) == 0):
		return errors.New("a Ceph volume needs pool, image and monitors")
	case d.RBD != nil && (d.RBD.User == "") != (d.RBD.Secret == ""):
		return errors.New("a Ceph volume has a user and a secret, or neither")
	}
	return nil
}

// environment is the wrapper's contract. What is not set is left out.
func (in *Input) environment() []libvirtxml.DomainQEMUCommandlineEnv {
	var out []libvirtxml.DomainQEMUCommandlineEnv
	for _, v := range []struct{ name, value string }{
		{"VIRTLET_EMULATOR", in.Node.QEMU},
		{"VIRTLET_NET_KEY", in.NetKey},
		{"VIRTLET_CONTAINER_ID", in.ContainerID},
		{"VIRTLET_CONTAINER_LOG_PATH", in.LogPath},
		{"VIRTLET_NETWORK_DEVICE", string(in.Spec.Machine.Network)},
		{"VIRTLET_CPUSETS", spec.FormatCPUList(in.Spec.Resources.CPUs)},
	} {
		if v.value != "" {
			out = append(out, libvirtxml.DomainQEMUCommandlineEnv{Name: v.name, Value: v.value})
		}
	}
	return out
}

// sorted is a copy, ascending.
func sorted(numbers []int) []int {
	out := slices.Clone(numbers)
	slices.Sort(out)
	return out
}
