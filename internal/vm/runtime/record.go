package runtime

import (
	"maps"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// Phase is where a sandbox or a container is in its life. A phase that ends in -ing is an intent: it is recorded before the first of its
// side effects, and whoever finds it after a crash knows what may have happened (see Reconcile).
type Phase string

// The phases. A sandbox is Creating, Ready, Stopping, NotReady, Removing; a container Creating, Created, Starting, Running, Stopping, Exited,
// Removing.
const (
	Creating Phase = "creating"
	Ready    Phase = "ready"
	NotReady Phase = "not-ready"
	Created  Phase = "created"
	Starting Phase = "starting"
	Running  Phase = "running"
	Stopping Phase = "stopping"
	Exited   Phase = "exited"
	Removing Phase = "removing"
)

// Sandbox is the record of a pod's sandbox. Of annotations that are data for the guest it has the names. A record that was given out is never changed: who wants another makes a copy.
type Sandbox struct {
	ID      string                       `json:"id"`
	Phase   Phase                        `json:"phase"`
	Handler string                       `json:"handler,omitempty"`
	Config  *runtimeapi.PodSandboxConfig `json:"config"`
	Created time.Time                    `json:"created"`
	Network vm.Network                   `json:"network"`
}

// Container is the record of a container, which is a machine. It has neither command nor environment nor first-boot data: those may be secret,
// and are needed only while the container is created.
type Container struct {
	ID          string                              `json:"id"`
	SandboxID   string                              `json:"sandbox"`
	Phase       Phase                               `json:"phase"`
	Name        string                              `json:"name"`
	Attempt     uint32                              `json:"attempt"`
	Image       string                              `json:"image"`
	UserImage   string                              `json:"userImage,omitempty"`
	ImageID     string                              `json:"imageID"`
	Labels      map[string]string                   `json:"labels,omitempty"`
	Annotations map[string]string                   `json:"annotations,omitempty"`
	Mounts      []*runtimeapi.Mount                 `json:"mounts,omitempty"`
	LogPath     string                              `json:"logPath,omitempty"`
	Stdin       bool                                `json:"stdin,omitempty"`
	Resources   *runtimeapi.LinuxContainerResources `json:"resources,omitempty"`
	UUID        string                              `json:"uuid"`
	Memory      int64                               `json:"memory,omitempty"` // what the machine was started with, in bytes
	Domain      *domain.Input                       `json:"domain,omitempty"` // nil while Creating and once Exited; without secrets and NetKey
	Defined     bool                                `json:"defined,omitempty"`
	Fits        string                              `json:"fits,omitempty"`       // of a machine that can be suspended: which others can begin from its state
	Resumes     bool                                `json:"resumes,omitempty"`    // it begins from a state, and its CPUs have not run
	LetGo       bool                                `json:"letGo,omitempty"`      // of one that resumed: its CPUs may have run
	Suspending  bool                                `json:"suspending,omitempty"` // its memory may have been saved
	Created     time.Time                           `json:"created"`
	Started     time.Time                           `json:"started,omitzero"`
	Finished    time.Time                           `json:"finished,omitzero"`
	ExitCode    int32                               `json:"exitCode,omitempty"`
	Reason      string                              `json:"reason,omitempty"`
	Message     string                              `json:"message,omitempty"`
}

// live says that the container has, or may have, a machine that runs.
func (c *Container) live() bool {
	return c.Phase == Starting || c.Phase == Running || c.Phase == Stopping
}

// ran says that the machine's CPUs ran, and it is not known to have ended.
func (c *Container) ran() bool { return c.Phase == Running || c.Phase == Stopping }

// CRI's word for a phase. Removing is Exited: what is being removed does not run.
func (c *Container) state() runtimeapi.ContainerState {
	switch c.Phase {
	case Creating, Created, Starting:
		return runtimeapi.ContainerState_CONTAINER_CREATED
	case Running, Stopping:
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	default:
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
}

func (b *Sandbox) state() runtimeapi.PodSandboxState {
	if b.Phase == Ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// String is namespace/name.
func (b *Sandbox) String() string {
	return b.Config.GetMetadata().GetNamespace() + "/" + b.Config.GetMetadata().GetName()
}

// functions are the PCI addresses of the pod's cards that are virtual functions.
func (b *Sandbox) functions() (out []string) {
	for _, i := range b.Network.Interfaces {
		if i.PCI != "" {
			out = append(out, i.PCI)
		}
	}
	return out
}

// addresses are the pod's, the first of IPv4 first, as the kubelet reports them.
func (b *Sandbox) addresses() []string {
	var four, six []string
	for _, i := range b.Network.Interfaces {
		for _, a := range i.Addresses {
			if a.Addr().Unmap().Is4() {
				four = append(four, a.Addr().Unmap().String())
			} else {
				six = append(six, a.Addr().String())
			}
		}
	}
	// The kubelet takes the first two: of a pod with several cards it wants one of each family.
	switch {
	case len(four) == 0:
		return six
	case len(six) == 0:
		return four
	default:
		return slices.Concat(four[:1], six, four[1:])
	}
}

// Withheld stands where an annotation's value is not kept.
const Withheld = "(not kept by muster-vm: it may hold a secret)"

// manifest is kubectl's copy of a pod's whole manifest, with all its environments.
const manifest = "kubectl.kubernetes.io/last-applied-configuration"

// keptAnnotations leaves out the values of annotations that are data for the guest.
func keptAnnotations(in map[string]string) map[string]string {
	out := maps.Clone(in)
	for _, key := range []string{spec.KeyUserData, spec.KeyUserDataScript, spec.KeyMetaData, spec.KeySSHKeys, manifest} {
		if out[key] != "" {
			out[key] = Withheld
		}
	}
	return out
}

// keptSandbox is what is kept of a sandbox's configuration, field by field: a new field of the CRI is left out until somebody decides.
func keptSandbox(c *runtimeapi.PodSandboxConfig) *runtimeapi.PodSandboxConfig {
	out := &runtimeapi.PodSandboxConfig{
		Metadata: c.GetMetadata(), Hostname: c.GetHostname(), LogDirectory: c.GetLogDirectory(), DnsConfig: c.GetDnsConfig(), PortMappings: c.GetPortMappings(),
		Labels: c.GetLabels(), Annotations: keptAnnotations(c.GetAnnotations()),
	}
	if l := c.GetLinux(); l != nil {
		out.Linux = &runtimeapi.LinuxPodSandboxConfig{CgroupParent: l.GetCgroupParent(), Overhead: l.GetOverhead(), Resources: l.GetResources()}
		if n := l.GetSecurityContext().GetNamespaceOptions(); n != nil {
			out.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: n}
		}
	}
	return out
}

// whole gives a sandbox's configuration with the values that are not kept, which the creation of a container brings again.
func (b *Sandbox) whole(again *runtimeapi.PodSandboxConfig) (*runtimeapi.PodSandboxConfig, error) {
	out := keptSandbox(b.Config)
	delete(out.Annotations, manifest)
	for _, key := range slices.Sorted(maps.Keys(out.Annotations)) {
		if out.Annotations[key] != Withheld {
			continue
		}
		value, ok := again.GetAnnotations()[key]
		if !ok {
			return nil, vm.Errorf(vm.Invalid, "pod %s: sandbox_config.annotations: must have %s as the sandbox had it: its value is not kept", b, key)
		}
		out.Annotations[key] = value
	}
	return out, nil
}

// scrub gives what a domain is made of, of a Spec, and nothing that may be secret.
func scrub(s *spec.Spec) *spec.Spec {
	out := *s
	out.CloudInit = spec.CloudInit{Type: s.CloudInit.Type}
	out.Files, out.Ports, out.Mounts = nil, nil, nil
	out.Pod.Labels, out.Pod.Annotations = nil, nil
	c := s.Container
	out.Container = spec.Container{Name: c.Name, Attempt: c.Attempt, Image: c.Image, LogPath: c.LogPath}
	return &out
}
