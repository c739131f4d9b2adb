package store

import (
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Withheld stands where an annotation's value is not kept.
const Withheld = "(not kept by muster-vm: it may hold a secret)"

// manifestKey is kubectl's copy of the pod's whole manifest, with all its environments.
const manifestKey = "kubectl.kubernetes.io/last-applied-configuration"

// SandboxOf is what is kept of a sandbox's configuration. withhold names the annotations whose value is not; the caller fills in the rest: id,
// network, files, state and time. Nothing is shared with the configuration.
func SandboxOf(config *runtimeapi.PodSandboxConfig, handler string, withhold []string) Sandbox {
	m, linux := config.GetMetadata(), config.GetLinux()
	s := Sandbox{
		Name: m.GetName(), Namespace: m.GetNamespace(), UID: m.GetUid(), Attempt: m.GetAttempt(),
		Hostname: config.GetHostname(), LogDirectory: config.GetLogDirectory(), CgroupParent: linux.GetCgroupParent(), RuntimeHandler: handler,
		Labels: copied(config.GetLabels(), nil), Annotations: copied(config.GetAnnotations(), withhold),
		Overhead: ResourcesOf(linux.GetOverhead()), Resources: ResourcesOf(linux.GetResources()),
	}
	if d := config.GetDnsConfig(); d != nil {
		s.DNS = DNS{slices.Clone(d.GetServers()), slices.Clone(d.GetSearches()), slices.Clone(d.GetOptions())}
	}
	for _, p := range config.GetPortMappings() {
		s.Ports = append(s.Ports, Port{
			Protocol: int32(p.GetProtocol()), ContainerPort: p.GetContainerPort(), HostPort: p.GetHostPort(), HostIP: p.GetHostIp(),
		})
	}
	return s
}

// ContainerOf is what is kept of a container's configuration: neither command, arguments nor environment, and withhold is as for SandboxOf. The caller
// fills in ids, digest, log path, domain, files, state and times.
func ContainerOf(config *runtimeapi.ContainerConfig, withhold []string) Container {
	c := Container{
		Name: config.GetMetadata().GetName(), Attempt: config.GetMetadata().GetAttempt(), Image: config.GetImage().GetImage(),
		Labels: copied(config.GetLabels(), nil), Annotations: copied(config.GetAnnotations(), withhold),
		Resources: ResourcesOf(config.GetLinux().GetResources()),
	}
	for _, m := range config.GetMounts() {
		c.Mounts = append(c.Mounts, Mount{
			ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadonly(), Propagation: int32(m.GetPropagation()),
		})
	}
	return c
}

// ResourcesOf is a copy; nil of nil.
func ResourcesOf(r *runtimeapi.LinuxContainerResources) *Resources {
	if r == nil {
		return nil
	}
	out := &Resources{
		CPUPeriod: r.GetCpuPeriod(), CPUQuota: r.GetCpuQuota(), CPUShares: r.GetCpuShares(),
		Memory: r.GetMemoryLimitInBytes(), Swap: r.GetMemorySwapLimitInBytes(), OOMScoreAdj: r.GetOomScoreAdj(),
		CPUs: r.GetCpusetCpus(), Mems: r.GetCpusetMems(), Unified: copied(r.GetUnified(), nil),
	}
	for _, h := range r.GetHugepageLimits() {
		out.HugePages = append(out.HugePages, HugePage{Size: h.GetPageSize(), Limit: h.GetLimit()})
	}
	return out
}

// CRI is the state in the CRI's words.
func (s SandboxState) CRI() runtimeapi.PodSandboxState {
	if s == Ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// CRI is the state in the CRI's words.
func (s ContainerState) CRI() runtimeapi.ContainerState {
	switch s {
	case Created:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case Running:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	case Exited:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// copied leaves out the values of what is withheld.
func copied(in map[string]string, withhold []string) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for k, v := range in { // order: a copy
		if v != "" && (k == manifestKey || slices.Contains(withhold, k)) {
			v = Withheld
		}
		out[k] = v
	}
	return out
}
