package store

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// SandboxState is a sandbox's state, as the CRI has them.
type SandboxState string

// The states of a sandbox.
const (
	Ready    SandboxState = "ready"
	NotReady SandboxState = "notready"
)

// ContainerState is a container's state, as the CRI has them. It goes from Created by Running to Exited, or from Created to Exited, and never back.
type ContainerState string

// The states of a container.
const (
	Created ContainerState = "created"
	Running ContainerState = "running"
	Exited  ContainerState = "exited"
)

// Sandbox is a pod's sandbox. Its network is that of the network process under the same id.
type Sandbox struct {
	// ID is the CRI's: 1 to 128 letters, digits, dots, underscores and dashes, the first a letter or digit.
	ID string `json:"id"`
	// Name, Namespace, UID and Attempt are the CRI's metadata. No two sandboxes have the same UID and Attempt.
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	UID       string `json:"uid"`
	Attempt   uint32 `json:"attempt,omitempty"`

	Hostname       string            `json:"hostname,omitempty"`
	LogDirectory   string            `json:"logDirectory,omitempty"`
	CgroupParent   string            `json:"cgroupParent,omitempty"`
	RuntimeHandler string            `json:"runtimeHandler,omitempty"`
	DNS            DNS               `json:"dns"`
	Ports          []Port            `json:"ports,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	// Annotations are as received, but for values that are Withheld.
	Annotations map[string]string `json:"annotations,omitempty"`
	// Overhead and Resources are the pod's; nil where the kubelet says nothing.
	Overhead  *Resources `json:"overhead,omitempty"`
	Resources *Resources `json:"resources,omitempty"`

	// Netns is the path of the pod's network namespace, Network what is in it.
	Netns   string     `json:"netns,omitempty"`
	Network vm.Network `json:"network"`
	// Files are absolute paths that are this sandbox's alone; a folder stands for all below it.
	Files []string `json:"files,omitempty"`

	State     SandboxState `json:"state"`
	CreatedAt time.Time    `json:"createdAt"`
}

// Container is a container: one machine, from its definition to its removal.
type Container struct {
	// ID is as a sandbox's, SandboxID that of its sandbox, which has a record.
	ID        string `json:"id"`
	SandboxID string `json:"sandboxID"`
	// Name and Attempt are the CRI's metadata. No two containers of a sandbox have the same.
	Name    string `json:"name"`
	Attempt uint32 `json:"attempt,omitempty"`

	// Image is what the kubelet asked for, Digest the disk that was meant, "sha256:" and 64 digits.
	Image  string            `json:"image"`
	Digest string            `json:"digest"`
	Labels map[string]string `json:"labels,omitempty"`
	// Annotations are as received, but for values that are Withheld.
	Annotations map[string]string `json:"annotations,omitempty"`
	Mounts      []Mount           `json:"mounts,omitempty"`
	Resources   *Resources        `json:"resources,omitempty"`
	// LogPath is absolute; "" for no log.
	LogPath string `json:"logPath,omitempty"`

	// Domain is the UUID of the libvirt domain, in lower case with hyphens.
	Domain string `json:"domain"`
	// Files are absolute paths that are this container's alone; a folder stands for all below it.
	Files []string `json:"files,omitempty"`

	State     ContainerState `json:"state"`
	CreatedAt time.Time      `json:"createdAt"`
	// StartedAt is zero before the start; FinishedAt, ExitCode, Reason and Message count only when it is Exited.
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	ExitCode   int32     `json:"exitCode,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Message    string    `json:"message,omitempty"`
}

// DNS is the kubelet's resolver, as received.
type DNS struct {
	Servers  []string `json:"servers,omitempty"`
	Searches []string `json:"searches,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// Port is a port mapping, as received: Protocol is the CRI's number.
type Port struct {
	Protocol      int32  `json:"protocol,omitempty"`
	ContainerPort int32  `json:"containerPort,omitempty"`
	HostPort      int32  `json:"hostPort,omitempty"`
	HostIP        string `json:"hostIP,omitempty"`
}

// Mount is a mount, as received: Propagation is the CRI's number.
type Mount struct {
	ContainerPath string `json:"containerPath"`
	HostPath      string `json:"hostPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
	Propagation   int32  `json:"propagation,omitempty"`
}

// Resources are the CRI's for Linux: times in microseconds, memory in bytes.
type Resources struct {
	CPUPeriod   int64             `json:"cpuPeriod,omitempty"`
	CPUQuota    int64             `json:"cpuQuota,omitempty"`
	CPUShares   int64             `json:"cpuShares,omitempty"`
	Memory      int64             `json:"memory,omitempty"`
	Swap        int64             `json:"swap,omitempty"`
	OOMScoreAdj int64             `json:"oomScoreAdj,omitempty"`
	CPUs        string            `json:"cpus,omitempty"`
	Mems        string            `json:"mems,omitempty"`
	HugePages   []HugePage        `json:"hugePages,omitempty"`
	Unified     map[string]string `json:"unified,omitempty"`
}

// HugePage is a limit of huge pages: the size as the CRI writes it ("2MB"), and bytes.
type HugePage struct {
	Size  string `json:"size"`
	Limit uint64 `json:"limit"`
}

// Kind is what an intent or an action is about.
type Kind string

// The kinds. Intents are about the first two.
const (
	KindSandbox   Kind = "sandbox"
	KindContainer Kind = "container"
	KindDomain    Kind = "domain"
	KindNetwork   Kind = "network"
	KindFile      Kind = "file"
)

// Act is what an intent is going to do.
type Act string

// The acts. A sandbox is never started: its creation makes it ready.
const (
	Create Act = "create"
	Start  Act = "start"
	Stop   Act = "stop"
	Remove Act = "remove"
)

// Intent is a side effect that was begun. The package comment says what becomes of each when it is found at a start.
type Intent struct {
	Kind Kind   `json:"kind"`
	ID   string `json:"id"`
	Act  Act    `json:"act"`
	// At is when it was written.
	At time.Time `json:"at"`
	// Deadline is when the grace of a Stop ends; zero for at once.
	Deadline time.Time `json:"deadline,omitzero"`
	// A Create names all that it may make before there is a record: files, and a container's domain. A sandbox's network goes by the id.
	SandboxID string   `json:"sandboxID,omitempty"`
	Domain    string   `json:"domain,omitempty"`
	Files     []string `json:"files,omitempty"`
}

// String is "create container c1".
func (i Intent) String() string { return fmt.Sprintf("%s %s %s", i.Act, i.Kind, i.ID) }

func (i Intent) key() string { return string(i.Kind) + "/" + i.ID }

var (
	idForm   = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)
	uuidForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// maxRecord bounds one record in the file, in bytes. A pod's annotations are at most 256 KiB in Kubernetes.
const maxRecord = 4 << 20

func (s *Sandbox) check() error {
	switch {
	case !idForm.MatchString(s.ID):
		return bad(KindSandbox, s.ID, "id", "must be 1 to 128 letters, digits, '_', '.' or '-', and begin with a letter or digit")
	case s.UID == "" || s.Name == "" || s.Namespace == "":
		return bad(KindSandbox, s.ID, "metadata", "must have a name, a namespace and a UID")
	case s.State != Ready && s.State != NotReady:
		return bad(KindSandbox, s.ID, "state", fmt.Sprintf("%q must be %s or %s", s.State, Ready, NotReady))
	}
	return checkFiles(KindSandbox, s.ID, s.Files)
}

func (c *Container) check() error {
	switch {
	case !idForm.MatchString(c.ID):
		return bad(KindContainer, c.ID, "id", "must be 1 to 128 letters, digits, '_', '.' or '-', and begin with a letter or digit")
	case c.Name == "":
		return bad(KindContainer, c.ID, "metadata", "must have a name")
	case !uuidForm.MatchString(c.Domain):
		return bad(KindContainer, c.ID, "domain", fmt.Sprintf("%q must be a UUID in lower case with hyphens", c.Domain))
	case c.State != Created && c.State != Running && c.State != Exited:
		return bad(KindContainer, c.ID, "state", fmt.Sprintf("%q must be %s, %s or %s", c.State, Created, Running, Exited))
	case c.State == Running && c.StartedAt.IsZero():
		return bad(KindContainer, c.ID, "startedAt", "must be set when it runs")
	case c.State == Exited && c.FinishedAt.IsZero():
		return bad(KindContainer, c.ID, "finishedAt", "must be set when it has exited")
	}
	return checkFiles(KindContainer, c.ID, c.Files)
}

func (i *Intent) check() error {
	acts := []Act{Create, Stop, Remove}
	if i.Kind == KindContainer {
		acts = append(acts, Start)
	}
	switch {
	case i.Kind != KindSandbox && i.Kind != KindContainer:
		return bad("intent", i.ID, "kind", fmt.Sprintf("%q must be %s or %s", i.Kind, KindSandbox, KindContainer))
	case !idForm.MatchString(i.ID):
		return bad("intent", i.ID, "id", "must be an object's")
	case !slices.Contains(acts, i.Act):
		return bad("intent", i.ID, "act", fmt.Sprintf("%q must be one of %s's: %v", i.Act, i.Kind, acts))
	case i.Act == Create && i.Kind == KindContainer && (!uuidForm.MatchString(i.Domain) || !idForm.MatchString(i.SandboxID)):
		return bad("intent", i.ID, "domain", "the creation of a container must name its sandbox, and its domain by UUID")
	}
	return checkFiles("intent", i.ID, i.Files)
}

// pathForm is an absolute path without a last slash, empty parts, "." and "..".
var pathForm = regexp.MustCompile(`^(/([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+$`)

func checkFiles(kind Kind, id string, files []string) error {
	for _, f := range files {
		if !pathForm.MatchString(f) {
			return bad(kind, id, "files", fmt.Sprintf("%q must be an absolute, clean path other than the root", f))
		}
	}
	return nil
}

func bad(kind Kind, id, field, rule string) error {
	return vm.Errorf(vm.Invalid, "store: %s %s: %s: %s", kind, short(id), field, rule)
}

func short(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}

func (s Sandbox) clone() Sandbox {
	s.DNS = DNS{slices.Clone(s.DNS.Servers), slices.Clone(s.DNS.Searches), slices.Clone(s.DNS.Options)}
	s.Ports, s.Files = slices.Clone(s.Ports), slices.Clone(s.Files)
	s.Labels, s.Annotations = maps.Clone(s.Labels), maps.Clone(s.Annotations)
	s.Overhead, s.Resources = s.Overhead.clone(), s.Resources.clone()
	n := s.Network
	n.Interfaces = slices.Clone(n.Interfaces)
	for i := range n.Interfaces {
		n.Interfaces[i].Addresses = slices.Clone(n.Interfaces[i].Addresses)
		n.Interfaces[i].Routes = slices.Clone(n.Interfaces[i].Routes)
	}
	n.DNS = vm.DNS{Servers: slices.Clone(n.DNS.Servers), Search: slices.Clone(n.DNS.Search), Options: slices.Clone(n.DNS.Options)}
	s.Network = n
	return s
}

func (c Container) clone() Container {
	c.Labels, c.Annotations = maps.Clone(c.Labels), maps.Clone(c.Annotations)
	c.Mounts, c.Files = slices.Clone(c.Mounts), slices.Clone(c.Files)
	c.Resources = c.Resources.clone()
	return c
}

func (r *Resources) clone() *Resources {
	if r == nil {
		return nil
	}
	out := *r
	out.HugePages, out.Unified = slices.Clone(r.HugePages), maps.Clone(r.Unified)
	return &out
}

func (i Intent) clone() Intent {
	i.Files = slices.Clone(i.Files)
	return i
}
