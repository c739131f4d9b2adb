package node

import (
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/store"
)

// judged is a Spec with all that its readers can put into it.
func judged(t *testing.T) *spec.Spec {
	t.Helper()
	s, err := spec.Judge(spec.Input{
		Sandbox: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "team", Uid: "u"}, LogDirectory: "/var/log/pods/web",
			Annotations: map[string]string{
				spec.KeyCPUSetting: "mode: custom\nmodel:\n  value: qemu64\nfeatures:\n- name: vmx\n  policy: disable\n", spec.KeyDiskDriver: "virtio",
				spec.KeySystemUUID: "5d3b1c1e-6c0f-4d6b-9c39-0d1d3c4c5b6a", spec.KeyRootVolumeSize: "2Gi", spec.OwnVNC: "true", spec.KeyUserData: "{a: [1, {b: c}]}",
			},
		},
		Container: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "app"}, Image: &runtimeapi.ImageSpec{Image: "tiny"}, Command: []string{"sh"},
			Devices: []*runtimeapi.Device{{ContainerPath: "/", HostPath: "/dev/sdz", Permissions: "rw"}},
			Mounts:  []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/srv/data"}},
			Linux:   &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpuShares: 512, CpusetCpus: "0-1", MemoryLimitInBytes: 1 << 28}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRecords: what the runtime saves is what it is given after the file was closed and opened, in the order in which it was made. A field that a
// file cannot hold shows here.
func TestRecords(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 12, 0, 0, 5, time.UTC)
	box := &runtime.Sandbox{
		ID: "b1", Phase: runtime.Ready, Handler: "muster-vm", Created: at,
		Config: &runtimeapi.PodSandboxConfig{
			Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "team", Uid: "u", Attempt: 2}, Hostname: "web", LogDirectory: "/l",
			DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"10.0.0.1"}},
			PortMappings: []*runtimeapi.PortMapping{{Protocol: runtimeapi.Protocol_UDP, ContainerPort: 80, HostPort: 8080}},
			Linux: &runtimeapi.LinuxPodSandboxConfig{
				CgroupParent: "/kubepods/web", Overhead: &runtimeapi.LinuxContainerResources{CpuShares: 2, Unified: map[string]string{"a": "b"}},
				SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}},
			},
		},
		Network: vm.Network{Interfaces: []vm.Interface{{Name: "eth0", MAC: "02:00:00:00:00:01", Addresses: []netip.Prefix{netip.MustParsePrefix("10.1.2.3/24")}}}},
	}
	s := judged(t)
	s.CloudInit = spec.CloudInit{Type: spec.NoCloud} // the runtime keeps no more
	first := &runtime.Container{
		ID: "z", SandboxID: "b1", Phase: runtime.Running, Name: "app", Attempt: 1, Image: "tiny", UserImage: "tiny:1", ImageID: "sha256:1", Stdin: true,
		Labels: map[string]string{"a": "b"}, Mounts: []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/srv", Readonly: true, UidMappings: []*runtimeapi.IDMapping{{Length: 1}}}},
		Resources: &runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 5, HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 4}}},
		UUID:      "5d3b1c1e-6c0f-4d6b-9c39-0d1d3c4c5b6a", Memory: 1 << 28, Defined: true, Created: at, Started: at.Add(time.Second),
		Domain: &domain.Input{
			Spec: s, ContainerID: "z", SandboxID: "b1", Shares: []domain.Share{{Tag: "muster-0", Source: "/srv", Socket: "/s"}}, HostDevices: []string{"0000:3b:02.1"},
			Disks: []domain.Disk{
				{Role: domain.Root, Format: "raw", Block: "/dev/sdz", Serial: "root", Slice: &domain.Slice{Offset: 512, Size: 1024}},
				{Role: domain.Data, Format: "raw", RBD: &domain.RBD{Pool: "p", Image: "i", Monitors: []domain.Monitor{{Host: "m", Port: 6789}}, User: "u", Secret: "s"}, Serial: "data"},
			},
			Paths: domain.Paths{Serial: "/c/serial", Exit: "/c/exit", VNC: "/s/vnc"}, LogPath: "/l/0.log",
			Node: domain.Node{DomainType: "qemu", Emulator: "/w", QEMU: "/q", NUMA: []domain.NUMANode{{ID: 0, CPUs: []int{0, 1}}}},
		},
	}
	second := &runtime.Container{
		ID: "a", SandboxID: "b1", Phase: runtime.Exited, Name: "next", Created: at.Add(time.Minute), Finished: at.Add(time.Hour), ExitCode: 137, Reason: "Lost", Message: "m",
	}
	path := filepath.Join(t.TempDir(), "vm.db")
	open := func() Records {
		s, err := store.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		return Records{s}
	}
	r := open()
	for _, err := range []error{
		r.SaveSandbox(t.Context(), box), r.SaveContainer(t.Context(), second), r.SaveContainer(t.Context(), first),
		r.SaveSandbox(t.Context(), &runtime.Sandbox{ID: "gone"}), r.SaveContainer(t.Context(), &runtime.Container{ID: "gone"}),
		r.DeleteSandbox(t.Context(), "gone"), r.DeleteContainer(t.Context(), "gone"), r.Store.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r = open()
	defer func() { _ = r.Store.Close() }()
	boxes, containers, err := r.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same := []cmp.Option{protocmp.Transform(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
	if diff := cmp.Diff([]*runtime.Sandbox{box}, boxes, same...); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]*runtime.Container{first, second}, containers, same...); diff != "" {
		t.Error(diff)
	}
	before, err := domain.XML(*first.Domain)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := domain.XML(*containers[0].Domain); err != nil || after != before {
		t.Errorf("the machine is another, %v:\n%s", err, cmp.Diff(before, after))
	}
}
