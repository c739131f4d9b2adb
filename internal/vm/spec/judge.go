package spec

import (
	"maps"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Bounds and defaults that no node changes.
const (
	maxEntries     = 4096    // mounts, devices, variables, arguments, ports: of each
	maxText        = 1 << 20 // bytes of one annotation or variable; the API server's own limit for all annotations is 256 KiB
	defaultMemory  = 1 << 30
	minMemory      = 1 << 20
	maxVCPUs       = 255
	defaultSuspend = 40 << 20
)

var (
	pciAddress  = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	cdiName     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}/[A-Za-z0-9][A-Za-z0-9_.-]{0,62}=[A-Za-z0-9][A-Za-z0-9_.:-]{0,126}$`)
	unifiedFile = regexp.MustCompile(`^(cpu|cpuset|memory|io|hugetlb|pids|rdma|misc)(\.[A-Za-z0-9_]{1,32}){1,3}$`)
	objectName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)
)

// maxHostname is how long a host name that is made of a pod's name may be: Linux takes 64 bytes, a label of a DNS name 63.
const maxHostname = 63

// Judge gives the machine that a pod asks for, or every problem of the pod at once: an error of kind vm.Invalid that wraps Problems. The
// Spec shares nothing with what it was made from but the texts.
func Judge(in Input) (*Spec, error) {
	sandbox := in.Sandbox
	if sandbox == nil {
		sandbox = &runtimeapi.PodSandboxConfig{}
	}
	meta := sandbox.GetMetadata()
	s := &Spec{Pod: Pod{
		Namespace: meta.GetNamespace(), Name: meta.GetName(), UID: meta.GetUid(), Hostname: sandbox.GetHostname(),
		CgroupParent: sandbox.GetLinux().GetCgroupParent(), LogDirectory: sandbox.GetLogDirectory(),
		Labels: copied(sandbox.GetLabels()), Annotations: copied(sandbox.GetAnnotations()),
	}}
	if s.Pod.Hostname == "" {
		s.Pod.Hostname = strings.TrimRight(s.Pod.Name[:min(len(s.Pod.Name), maxHostname)], "-.")
	}
	j := &judgement{pod: Short(s.Pod.Namespace) + "/" + Short(s.Pod.Name)}
	if in.Node.MaxVCPUs <= 0 || in.Node.MaxVCPUs > maxVCPUs {
		in.Node.MaxVCPUs = maxVCPUs
	}
	if in.Node.DefaultMemory <= 0 {
		in.Node.DefaultMemory = defaultMemory
	}
	if in.Node.SuspendRate <= 0 {
		in.Node.SuspendRate = defaultSuspend
	}
	j.sandbox(s, sandbox)
	if in.Container != nil {
		j.container(s, in)
	} else {
		s.Resources.Memory = in.Node.DefaultMemory
	}
	j.annotations(s, in)
	if s.Machine.Suspend {
		j.owner(s)
	}
	if in.Container != nil {
		j.suspend(s, in)
	}
	if err := j.err(); err != nil {
		return nil, err
	}
	return s, nil
}

func (j *judgement) sandbox(s *Spec, c *runtimeapi.PodSandboxConfig) {
	for _, must := range []struct{ field, value string }{
		{"metadata.name", s.Pod.Name}, {"metadata.namespace", s.Pod.Namespace}, {"metadata.uid", s.Pod.UID},
	} {
		j.text(must.field, must.value)
		if must.value == "" {
			j.bad(must.field, "", "must be set")
		}
	}
	j.text("hostname", s.Pod.Hostname)
	j.text("linux.cgroup_parent", s.Pod.CgroupParent)
	j.text("log_directory", s.Pod.LogDirectory)
	j.shared(c.GetLinux())
	if !j.few("port_mappings", len(c.GetPortMappings())) {
		return
	}
	for _, p := range c.GetPortMappings() {
		if p.GetHostPort() == 0 {
			continue
		}
		protocol := strings.ToLower(p.GetProtocol().String())
		port := Port{Protocol: Protocol(protocol), HostPort: int(p.GetHostPort()), GuestPort: int(p.GetContainerPort()), HostIP: p.GetHostIp()}
		for _, n := range []int{port.HostPort, port.GuestPort} {
			if n < 1 || n > 65535 {
				j.bad("port_mappings", itoa(n), "a port must be 1 to 65535")
			}
		}
		if !slices.Contains([]string{"tcp", "udp", "sctp"}, protocol) {
			j.bad("port_mappings", protocol, "must be tcp, udp or sctp")
		}
		if port.HostIP != "" {
			if _, err := netip.ParseAddr(port.HostIP); err != nil {
				j.bad("port_mappings", port.HostIP, "a host address must be an IP address")
			}
		}
		s.Ports = append(s.Ports, port)
	}
}

// shared says what a pod asks for that a machine with a kernel of its own can never have of the node. What only keeps a process from the node's kernel is left out: a guest does not get
// to that.
func (j *judgement) shared(c *runtimeapi.LinuxPodSandboxConfig) {
	n := c.GetSecurityContext().GetNamespaceOptions()
	for _, one := range []struct {
		field, what string
		mode        runtimeapi.NamespaceMode
	}{{"hostNetwork", "network", n.GetNetwork()}, {"hostPID", "processes", n.GetPid()}, {"hostIPC", "IPC", n.GetIpc()}} {
		if one.mode == runtimeapi.NamespaceMode_NODE {
			j.bad(one.field, "", "a machine cannot share the host's %s", one.what)
		}
	}
	if !j.few("sysctls", len(c.GetSysctls())) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.GetSysctls())) {
		j.bad("sysctls", name, "a machine has a kernel of its own, and its image sets that")
	}
}

func (j *judgement) container(s *Spec, in Input) {
	c := in.Container
	s.Container = Container{
		Name: c.GetMetadata().GetName(), Attempt: c.GetMetadata().GetAttempt(), Image: c.GetImage().GetImage(),
		Command: slices.Clone(c.GetCommand()), Args: slices.Clone(c.GetArgs()), WorkingDir: c.GetWorkingDir(),
		Labels: copied(c.GetLabels()), Annotations: copied(c.GetAnnotations()), LogPath: c.GetLogPath(),
		Stdin: c.GetStdin(), StdinOnce: c.GetStdinOnce(), TTY: c.GetTty(),
	}
	for _, must := range []struct{ field, value string }{
		{"container metadata.name", s.Container.Name}, {"container image", s.Container.Image},
	} {
		j.text(must.field, must.value)
		if must.value == "" {
			j.bad(must.field, "", "must be set")
		}
	}
	j.text("container log_path", s.Container.LogPath)
	if s.Container.LogPath != "" && !localPath(s.Container.LogPath) {
		j.bad("container log_path", s.Container.LogPath, "must be below the log directory")
	}
	j.text("container working_dir", s.Container.WorkingDir)
	if j.few("container command", len(c.GetCommand())) && j.few("container args", len(c.GetArgs())) {
		for _, word := range slices.Concat(s.Container.Command, s.Container.Args) {
			if strings.ContainsRune(word, 0) || len(word) > maxText {
				j.bad("container command and args", word, "a word must hold no NUL and be at most %d bytes", maxText)
			}
		}
	}
	if j.few("container envs", len(c.GetEnvs())) {
		for _, e := range c.GetEnvs() {
			v := EnvVar{Name: e.GetKey(), Value: string(e.GetValue())}
			switch {
			case v.Name == "" || !plain(v.Name) || strings.ContainsAny(v.Name, "= "):
				j.bad("container envs", v.Name, "a name must not be empty, nor hold '=', space or control characters")
			case strings.ContainsRune(v.Value, 0) || len(v.Value) > maxText:
				j.bad("container envs", v.Name, "a value must hold no NUL and be at most %d bytes", maxText)
			}
			s.Container.Env = append(s.Container.Env, v)
		}
	}
	j.mounts(s, in)
	j.devices(s, c)
	j.resources(s, c.GetLinux().GetResources(), in.Node)
}

// kubeletCopies are the volumes that first-boot data carries: kinds as the kubelet names their directories.
var kubeletCopies = []string{"kubernetes.io~configmap", "kubernetes.io~secret", "kubernetes.io~projected", "kubernetes.io~downward-api"}

func (j *judgement) mounts(s *Spec, in Input) {
	if !j.few("container mounts", len(in.Container.GetMounts())) {
		return
	}
	taken := map[string]bool{}
	for _, m := range in.Container.GetMounts() {
		mount := Mount{Path: m.GetContainerPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadonly()}
		field := "mount " + Short(mount.Path)
		if m.GetImage().GetImage() != "" {
			j.bad(field, m.GetImage().GetImage(), "an image cannot be mounted into a machine")
			continue
		}
		if !absolute(mount.Path) || path.Clean(mount.Path) == "/" {
			j.bad(field, mount.Path, "the path in the container must be absolute, below /, without '..' and control characters")
		}
		mount.Path = path.Clean(mount.Path)
		if !absolute(mount.HostPath) {
			j.bad(field, mount.HostPath, "the path on the host must be absolute, without '..' and control characters")
		}
		if taken[mount.Path] {
			j.bad(field, "", "is mounted twice")
		}
		taken[mount.Path] = true
		switch m.GetPropagation() {
		case runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
			mount.Follow = true
		default:
			j.bad(field, "", "what a machine mounts cannot appear on the host: mountPropagation must be None or HostToContainer")
		}
		switch {
		case in.SingleFiles[m.GetHostPath()]:
			mount.Kind = SingleFile
		case copies(mount.HostPath):
			mount.Kind = Copy
		}
		s.Mounts = append(s.Mounts, mount)
	}
}

// copies says that a host path is of a volume that is copied: …/volumes/KIND/NAME, or …/volume-subpaths below one that the caller has
// found to be a directory is not, because its kind cannot be told from its path.
func copies(hostPath string) bool {
	parts := strings.Split(hostPath, "/")
	for i := range parts {
		if i > 0 && parts[i-1] == "volumes" && slices.Contains(kubeletCopies, parts[i]) {
			return true
		}
	}
	return false
}

func (j *judgement) devices(s *Spec, c *runtimeapi.ContainerConfig) {
	if !j.few("container devices", len(c.GetDevices())) || !j.few("container CDI_devices", len(c.GetCDIDevices())) {
		return
	}
	taken := map[string]bool{}
	for _, d := range c.GetDevices() {
		field := "device " + Short(d.GetContainerPath())
		switch {
		case !absolute(d.GetHostPath()):
			j.bad(field, d.GetHostPath(), "the path on the host must be absolute, without '..' and control characters")
		case strings.HasPrefix(d.GetHostPath(), "/dev/vfio/"):
			if group := strings.TrimPrefix(d.GetHostPath(), "/dev/vfio/"); group != "vfio" && !slices.Contains(s.HostDevices.VFIO, d.GetHostPath()) {
				s.HostDevices.VFIO = append(s.HostDevices.VFIO, d.GetHostPath())
			}
		case !absolute(d.GetContainerPath()):
			j.bad(field, d.GetContainerPath(), "the path in the container must be absolute, without '..' and control characters")
		case taken[path.Clean(d.GetContainerPath())]:
			j.bad(field, "", "stands twice: a path can be only one device")
		default:
			b := Block{DevicePath: path.Clean(d.GetContainerPath()), HostPath: d.GetHostPath(), ReadOnly: !strings.Contains(d.GetPermissions(), "w")}
			if b.Root() && b.ReadOnly {
				j.bad(field, d.GetPermissions(), "a machine cannot run from a root that it must not write")
			}
			taken[b.DevicePath] = true
			s.Blocks = append(s.Blocks, b)
		}
	}
	for _, d := range c.GetCDIDevices() {
		if !cdiName.MatchString(d.GetName()) {
			j.bad("container CDI_devices", d.GetName(), "must be a qualified name, vendor/class=device")
			continue
		}
		if !slices.Contains(s.HostDevices.CDI, d.GetName()) {
			s.HostDevices.CDI = append(s.HostDevices.CDI, d.GetName())
		}
	}
	for _, e := range s.Container.Env {
		if !strings.HasPrefix(e.Name, "PCIDEVICE_") && !strings.HasPrefix(e.Name, "PCI_RESOURCE_") || strings.HasSuffix(e.Name, "_INFO") {
			continue
		}
		for address := range strings.SplitSeq(e.Value, ",") {
			address = strings.ToLower(strings.TrimSpace(address))
			switch {
			case address == "" || slices.Contains(s.HostDevices.PCI, address):
			case !pciAddress.MatchString(address):
				j.bad("container envs", e.Name, "must list PCI addresses such as 0000:3b:02.1")
			case len(s.HostDevices.PCI) < maxEntries:
				s.HostDevices.PCI = append(s.HostDevices.PCI, address)
			}
		}
	}
}

func (j *judgement) resources(s *Spec, r *runtimeapi.LinuxContainerResources, node Node) {
	out := &s.Resources
	out.Memory = node.DefaultMemory
	if limit := r.GetMemoryLimitInBytes(); limit > 0 {
		out.Memory = limit
	}
	for _, h := range r.GetHugepageLimits() {
		if h.GetLimit() == 0 {
			continue
		}
		size, ok := pageSize(h.GetPageSize())
		switch {
		case !ok:
			j.bad("hugepages", h.GetPageSize(), "must be a size such as 2MB or 1GB")
		case out.HugePage != 0:
			j.bad("hugepages", h.GetPageSize(), "a machine's memory can lie on pages of one size only")
		case h.GetLimit()%uint64(size) != 0 || h.GetLimit() > 1<<62:
			j.bad("hugepages", h.GetPageSize(), "the limit must be a multiple of the page's size")
		default:
			out.HugePage, out.Memory = size, int64(h.GetLimit())
		}
	}
	if out.Memory < minMemory {
		j.bad("memory", itoa(out.Memory), "a machine needs at least %d bytes", minMemory)
	}
	if node.MaxMemory > 0 && out.Memory > node.MaxMemory {
		j.bad("memory", itoa(out.Memory), "must be at most %d bytes on this node", node.MaxMemory)
	}
	if out.HugePage == 0 {
		out.Memory = out.Memory >> 20 << 20 // whole MiB, down: the limit holds, and QEMU's own rounding would go up
	}
	if v := r.GetCpuShares(); v > 0 {
		out.CPUShares = min(max(v, 2), 262144)
	}
	if v := r.GetCpuQuota(); v > 0 {
		out.CPUQuota, out.CPUPeriod = v, r.GetCpuPeriod()
		if out.CPUPeriod <= 0 {
			out.CPUPeriod = 100_000 // the kernel's default
		}
	}
	var err error
	if out.CPUs, err = ParseCPUList(r.GetCpusetCpus()); err != nil {
		j.bad("cpuset_cpus", r.GetCpusetCpus(), "%v", err)
	}
	if out.Mems, err = ParseCPUList(r.GetCpusetMems()); err != nil {
		j.bad("cpuset_mems", r.GetCpusetMems(), "%v", err)
	}
	if out.OOMScore = r.GetOomScoreAdj(); out.OOMScore < -1000 || out.OOMScore > 1000 {
		j.bad("oom_score_adj", itoa(out.OOMScore), "must be -1000 to 1000")
	}
	j.swap(out, r)
	j.unified(out, r.GetUnified())
}

// swap takes the swap out of a limit of memory and swap together, which is how version 1 of control groups has it.
func (j *judgement) swap(out *Resources, r *runtimeapi.LinuxContainerResources) {
	both, memory := r.GetMemorySwapLimitInBytes(), r.GetMemoryLimitInBytes()
	switch {
	case both == 0:
	case both == -1:
		out.Swap = &both
	case memory <= 0 || both < memory:
		j.bad("memory_swap_limit_in_bytes", itoa(both), "is of memory and swap together, so that it needs memory_limit_in_bytes, and must be at least that")
	default:
		out.Swap = new(both - memory)
	}
}

func (j *judgement) unified(out *Resources, files map[string]string) {
	if !j.few("unified", len(files)) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		value := files[name]
		switch {
		case !unifiedFile.MatchString(name):
			j.bad("unified", name, "must be a controller's file of version 2, such as memory.min")
		case value == "" || !plain(value) || len(value) > maxEntries:
			j.bad("unified "+name, value, "must be one line that is not empty, at most %d bytes", maxEntries)
		case name == "memory.max" || name == "memory.high":
		default:
			if out.Unified == nil {
				out.Unified = map[string]string{}
			}
			out.Unified[name] = value
		}
	}
}

// The labels by which a Job's pods tell whose they are. Kubernetes sets both.
const (
	jobUID   = "batch.kubernetes.io/controller-uid"
	jobIndex = "batch.kubernetes.io/job-completion-index"
)

// part is what an owner's UID and a pod's index consist of: they become a file's name.
var part = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)

// suspend refuses what could not be saved when the machine stops. The mount that keeps the machine is no mount of the guest.
func (j *judgement) suspend(s *Spec, in Input) {
	to := s.Pod.Annotations[OwnSuspendTo]
	if !s.Machine.Suspend {
		if to != "" {
			j.bad(OwnSuspendTo, to, "needs %s: suspend", OwnOnStop)
		}
		return
	}
	const value = "suspend"
	if i := slices.IndexFunc(s.Mounts, func(m Mount) bool { return m.Path == path.Clean(to) && m.Kind == Share && !m.ReadOnly }); i >= 0 && to != "" {
		s.Machine.SuspendTo = s.Mounts[i].HostPath
		s.Mounts = slices.Delete(s.Mounts, i, i+1)
	} else {
		j.bad(OwnSuspendTo, to, "must be the mountPath of a claim that this container mounts as a directory, not read-only: it keeps the machine")
	}
	if s.Machine.DiskDriver == NVMe {
		j.bad(OwnOnStop, value, "a machine with NVMe disks (%s) cannot be saved", KeyDiskDriver)
	}
	for _, m := range s.Mounts {
		if m.Kind == Share {
			j.bad(OwnOnStop, value, "a machine with mount %s cannot be saved: its files are shared with the host while it runs", m.Path)
		}
	}
	if len(s.HostDevices.VFIO) > 0 || len(s.HostDevices.CDI) > 0 {
		j.bad(OwnOnStop, value, "a machine with devices of the host (%s) cannot be saved", Short(strings.Join(slices.Concat(s.HostDevices.VFIO, s.HostDevices.CDI), ", ")))
	}
	if grace, ok := in.Container.GetAnnotations()[keyGrace]; ok {
		seconds, err := parseInt(grace)
		if need := (s.Resources.Memory + in.Node.SuspendRate - 1) / in.Node.SuspendRate; err == nil && need > seconds {
			j.bad(OwnOnStop, value, "saving %d MiB takes about %d s, and the pod's grace is %d s: terminationGracePeriodSeconds must be at least %d",
				s.Resources.Memory>>20, need, seconds, need)
		}
	}
}

// owner says whose machine it is that is saved.
func (j *judgement) owner(s *Spec) {
	m := &s.Machine
	if v := s.Pod.Annotations[OwnOwner]; v != "" {
		m.Owner, m.Index, _ = strings.Cut(v, "/")
		if !part.MatchString(m.Owner) || strings.Contains(v, "/") && !part.MatchString(m.Index) {
			j.bad(OwnOwner, v, "must be UID or UID/INDEX, each of letters, digits, '_', '.' and '-', at most 63")
		}
		return
	}
	m.Owner, m.Index = s.Pod.Labels[jobUID], s.Pod.Labels[jobIndex]
	switch {
	case m.Owner == "":
		j.bad(OwnOnStop, "suspend", "the pod has no owner whose next pod could resume it: it must be a Job's, or have %s", OwnOwner)
	case !part.MatchString(m.Owner) || m.Index != "" && !part.MatchString(m.Index):
		j.bad(jobUID, m.Owner, "this and %s must be of letters, digits, '_', '.' and '-', at most 63", jobIndex)
	}
}

// text refuses what could not stand in a line of XML.
func (j *judgement) text(field, value string) {
	if !plain(value) || len(value) > maxEntries {
		j.bad(field, value, "must be UTF-8 without control characters, at most %d bytes", maxEntries)
	}
}

func (j *judgement) few(field string, n int) bool {
	if n > maxEntries {
		j.bad(field, "", "must have at most %d entries, has %d", maxEntries, n)
	}
	return n <= maxEntries
}

// absolute says that a path is absolute, has no element "..", no control characters, and a length that the kernel takes.
func absolute(p string) bool {
	return path.IsAbs(p) && plain(p) && len(p) < 4096 && !slices.Contains(strings.Split(p, "/"), "..")
}

// localPath says that a relative path stays below where it begins.
func localPath(p string) bool {
	return !path.IsAbs(p) && !slices.Contains(strings.Split(p, "/"), "..")
}

// pageSize reads the CRI's page sizes, "2MB" or "1GB", which are powers of two.
func pageSize(s string) (int64, bool) {
	for suffix, unit := range map[string]int64{"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30} { // at most one fits
		if digits, ok := strings.CutSuffix(s, suffix); ok {
			n, err := parseInt(digits)
			if size := n * unit; err == nil && n > 0 && n <= 1024 && size&(size-1) == 0 {
				return size, true
			}
		}
	}
	return 0, false
}

func copied(m map[string]string) map[string]string {
	out := make(map[string]string, len(m)) // never nil
	maps.Copy(out, m)
	return out
}
