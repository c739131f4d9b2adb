package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestContainer: what a container says, as the machine has it.
func TestContainer(t *testing.T) {
	t.Parallel()
	sandbox := pod()
	sandbox.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 8080}, {ContainerPort: 53, Protocol: runtimeapi.Protocol_UDP}}
	c := container()
	c.Command, c.Args, c.WorkingDir = []string{"sh", "-c"}, []string{"exit 3"}, "/srv"
	c.Envs = []*runtimeapi.KeyValue{{Key: "A", Value: []byte("x\ny")}, {Key: "PCIDEVICE_EXAMPLE_COM_VF", Value: []byte("0000:3B:02.1,0000:3b:02.2")}}
	const volumes = "/var/lib/kubelet/pods/0f1e/volumes/"
	c.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/etc/conf", HostPath: volumes + "kubernetes.io~configmap/conf", Readonly: true},
		{ContainerPath: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: volumes + "kubernetes.io~projected/token", Readonly: true},
		{ContainerPath: "/etc/hosts", HostPath: "/var/lib/kubelet/pods/0f1e/etc-hosts"},
		{ContainerPath: "/data/", HostPath: volumes + "kubernetes.io~empty-dir/data", Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER},
	}
	c.Devices = []*runtimeapi.Device{
		{ContainerPath: "/dev/vfio/vfio", HostPath: "/dev/vfio/vfio", Permissions: "mrw"},
		{ContainerPath: "/dev/vfio/17", HostPath: "/dev/vfio/17", Permissions: "mrw"},
		{ContainerPath: "/", HostPath: "/dev/loop3", Permissions: "mrw"},
		{ContainerPath: "/dev/data", HostPath: "/dev/loop4", Permissions: "r"},
	}
	c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "example.com/gpu=0"}}
	c.Linux.Resources = &runtimeapi.LinuxContainerResources{
		CpuShares: 512, CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 256<<20 + 4097, CpusetCpus: "2-3,8", CpusetMems: "0",
		HugepageLimits: []*runtimeapi.HugepageLimit{{PageSize: "2MB"}, {PageSize: "1GB"}},
		OomScoreAdj:    -997, MemorySwapLimitInBytes: 256<<20 + 4097 + 64<<20,
		Unified: map[string]string{"memory.oom.group": "1", "memory.min": "1048576", "memory.high": "240000000", "memory.max": "max"},
	}
	s := judged(t, Input{Sandbox: sandbox, Container: c, SingleFiles: map[string]bool{"/var/lib/kubelet/pods/0f1e/etc-hosts": true}})
	want := *s
	want.Ports = []Port{{Protocol: "tcp", HostPort: 8080, GuestPort: 80}}
	want.Container.Command, want.Container.Args, want.Container.WorkingDir = []string{"sh", "-c"}, []string{"exit 3"}, "/srv"
	want.Container.Env = []EnvVar{{"A", "x\ny"}, {"PCIDEVICE_EXAMPLE_COM_VF", "0000:3B:02.1,0000:3b:02.2"}}
	want.Mounts = []Mount{
		{Path: "/etc/conf", HostPath: volumes + "kubernetes.io~configmap/conf", ReadOnly: true, Kind: Copy},
		{Path: "/var/run/secrets/kubernetes.io/serviceaccount", HostPath: volumes + "kubernetes.io~projected/token", ReadOnly: true, Kind: Copy},
		{Path: "/etc/hosts", HostPath: "/var/lib/kubelet/pods/0f1e/etc-hosts", Kind: SingleFile},
		{Path: "/data", HostPath: volumes + "kubernetes.io~empty-dir/data", Follow: true, Kind: Share},
	}
	want.HostDevices = HostDevices{VFIO: []string{"/dev/vfio/17"}, PCI: []string{"0000:3b:02.1", "0000:3b:02.2"}, CDI: []string{"example.com/gpu=0"}}
	want.Blocks = []Block{{DevicePath: "/", HostPath: "/dev/loop3"}, {DevicePath: "/dev/data", HostPath: "/dev/loop4", ReadOnly: true}}
	want.Resources = Resources{VCPUs: 1, Memory: 256 << 20, CPUShares: 512, CPUQuota: 50000, CPUPeriod: 100000, CPUs: []int{2, 3, 8}, Mems: []int{0}}
	// What bounds a process's memory would throttle a guest that uses what it was given.
	swap := int64(64 << 20)
	want.Resources.OOMScore, want.Resources.Swap, want.Resources.Unified = -997, &swap, map[string]string{"memory.oom.group": "1", "memory.min": "1048576"}
	if d := cmp.Diff(&want, s); d != "" {
		t.Error(d)
	}
}

// TestHugePages: a container that asks for huge pages has its machine's memory on them, and its memory limit is QEMU's.
func TestHugePages(t *testing.T) {
	t.Parallel()
	c := container()
	c.Linux.Resources.MemoryLimitInBytes = 64 << 20
	c.Linux.Resources.HugepageLimits = []*runtimeapi.HugepageLimit{{PageSize: "2MB", Limit: 512 << 20}, {PageSize: "1GB"}}
	if s := judged(t, Input{Sandbox: pod(), Container: c}); s.Resources.HugePage != 2<<20 || s.Resources.Memory != 512<<20 {
		t.Errorf("%+v", s.Resources)
	}
	c.Linux.Resources.HugepageLimits[1].Limit = 1 << 30
	_, err := Judge(Input{Sandbox: pod(), Container: c})
	if d := cmp.Diff([]string{`hugepages "1GB": a machine's memory can lie on pages of one size only`}, problems(t, err)); d != "" {
		t.Error(d)
	}
}

// TestBadContainer: what a container cannot ask for, all at once.
func TestBadContainer(t *testing.T) {
	t.Parallel()
	c := container()
	c.LogPath = "../../etc/passwd"
	c.Envs = []*runtimeapi.KeyValue{{Key: "A=B"}, {Key: "PCI_RESOURCE_X", Value: []byte("all")}}
	c.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/a", HostPath: "/x/../../etc"},
		{ContainerPath: "/b", HostPath: "/b", Propagation: runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL},
		{ContainerPath: "/b", HostPath: "/c"},
		{ContainerPath: "/i", Image: &runtimeapi.ImageSpec{Image: "data:1"}},
		{ContainerPath: "/n\n/etc/shadow", HostPath: "/d"},
	}
	c.Devices = []*runtimeapi.Device{{ContainerPath: "/", HostPath: "/dev/a", Permissions: "r"}, {ContainerPath: "/", HostPath: "/dev/b", Permissions: "rw"}}
	c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "gpu"}}
	c.Linux.Resources = &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes: 4 << 40, CpusetCpus: "3-1", OomScoreAdj: 1001, MemorySwapLimitInBytes: 1 << 40,
		Unified: map[string]string{"cgroup.procs": "1", "memory.min/../cgroup.kill": "1", "io.max": "8:0 rbps=1\n8:16 rbps=1", "pids.max": ""},
	}
	_, err := Judge(Input{Sandbox: pod(), Container: c, Node: Node{MaxMemory: 1 << 40}})
	want := []string{
		`container CDI_devices "gpu": must be a qualified name, vendor/class=device`,
		`container envs "A=B": a name must not be empty, nor hold '=', space or control characters`,
		`container envs "PCI_RESOURCE_X": must list PCI addresses such as 0000:3b:02.1`,
		`container log_path "../../etc/passwd": must be below the log directory`,
		`cpuset_cpus "3-1": must be a list such as "0-3,8"`,
		`device / "r": a machine cannot run from a root that it must not write`,
		`device /: stands twice: a path can be only one device`,
		`memory "4398046511104": must be at most 1099511627776 bytes on this node`,
		`memory_swap_limit_in_bytes "1099511627776": is of memory and swap together, so that it needs memory_limit_in_bytes, and must be at least that`,
		`mount /a "/x/../../etc": the path on the host must be absolute, without '..' and control characters`,
		`mount /b: what a machine mounts cannot appear on the host: mountPropagation must be None or HostToContainer`,
		`mount /b: is mounted twice`,
		`mount /i "data:1": an image cannot be mounted into a machine`,
		`mount /n?/etc/shadow "/n\n/etc/shadow": the path in the container must be absolute, below /, without '..' and control characters`,
		`oom_score_adj "1001": must be -1000 to 1000`,
		`unified "cgroup.procs": must be a controller's file of version 2, such as memory.min`,
		`unified "memory.min/../cgroup.kill": must be a controller's file of version 2, such as memory.min`,
		`unified io.max "8:0 rbps=1\n8:16 rbps=1": must be one line that is not empty, at most 4096 bytes`,
		`unified pids.max: must be one line that is not empty, at most 4096 bytes`,
	}
	if d := cmp.Diff(want, problems(t, err)); d != "" {
		t.Error(d)
	}
}

// TestSuspendRefused: what could not be saved is said when the pod comes, not when it is to go.
func TestSuspendRefused(t *testing.T) {
	t.Parallel()
	c := container()
	c.Annotations = map[string]string{"io.kubernetes.pod.terminationGracePeriod": "10"}
	c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: "/srv/data"}, {ContainerPath: "/etc/hosts", HostPath: "/h"}}
	c.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/vfio/1", HostPath: "/dev/vfio/1", Permissions: "mrw"}}
	in := Input{Sandbox: pod(OwnOnStop, "suspend", KeyDiskDriver, "nvme"), Container: c, SingleFiles: map[string]bool{"/h": true}}
	_, err := Judge(in)
	want := []string{
		`vm.muster.dev/on-stop "suspend": the pod has no owner whose next pod could resume it: it must be a Job's, or have vm.muster.dev/owner`,
		`vm.muster.dev/on-stop "suspend": a machine with NVMe disks (VirtletDiskDriver) cannot be saved`,
		`vm.muster.dev/on-stop "suspend": a machine with mount /data cannot be saved: its files are shared with the host while it runs`,
		`vm.muster.dev/on-stop "suspend": a machine with devices of the host (/dev/vfio/1) cannot be saved`,
		`vm.muster.dev/on-stop "suspend": saving 1024 MiB takes about 26 s, and the pod's grace is 10 s: terminationGracePeriodSeconds must be at least 26`,
		`vm.muster.dev/suspend-to: must be the mountPath of a claim that this container mounts as a directory, not read-only: it keeps the machine`,
	}
	if d := cmp.Diff(want, problems(t, err)); d != "" {
		t.Error(d)
	}
	c.Devices, c.Annotations["io.kubernetes.pod.terminationGracePeriod"] = nil, "26"
	for _, one := range []struct {
		annotations, labels []string
		owner, index        string
	}{
		{nil, []string{jobUID, "u1", jobIndex, "3"}, "u1", "3"},
		{nil, []string{jobUID, "u1"}, "u1", ""},
		{[]string{OwnOwner, "u2/b.1"}, []string{jobUID, "u1", jobIndex, "3"}, "u2", "b.1"},
		{[]string{OwnOwner, "u2"}, nil, "u2", ""},
	} {
		in.Sandbox = pod(append([]string{OwnOnStop, "suspend", OwnSuspendTo, "/data/"}, one.annotations...)...)
		in.Sandbox.Labels = map[string]string{}
		for i := 0; i < len(one.labels); i += 2 {
			in.Sandbox.Labels[one.labels[i]] = one.labels[i+1]
		}
		s := judged(t, in)
		if m := s.Machine; m.SuspendTo != "/srv/data" || m.Owner != one.owner || m.Index != one.index || len(s.Mounts) != 1 || s.Mounts[0].Path != "/etc/hosts" {
			t.Errorf("%+v, %+v", m, s.Mounts)
		}
	}
	for key, value := range map[string]string{OwnOwner: "../x", OwnSuspendTo: "/etc/hosts"} { // order: each alone
		in.Sandbox = pod(OwnOnStop, "suspend", OwnSuspendTo, "/data", OwnOwner, "u")
		in.Sandbox.Annotations[key] = value
		if _, err := Judge(in); err == nil || !strings.Contains(err.Error(), key+" ") {
			t.Errorf("%s %s: %v", key, value, err)
		}
	}
	in.Sandbox = pod(OwnSuspendTo, "/data")
	if _, err := Judge(in); err == nil || !strings.Contains(err.Error(), "needs vm.muster.dev/on-stop: suspend") {
		t.Error(err)
	}
}

// TestNothing: a request without anything names what is missing.
func TestNothing(t *testing.T) {
	t.Parallel()
	_, err := Judge(Input{Container: &runtimeapi.ContainerConfig{}})
	for _, field := range []string{"metadata.name", "metadata.namespace", "metadata.uid", "container metadata.name", "container image"} {
		if err == nil || !strings.Contains(err.Error(), "pod /: "+field+": must be set") {
			t.Errorf("%v does not say that %s is missing", err, field)
		}
	}
}
