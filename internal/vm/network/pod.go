package network

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Pod is a sandbox as CNI and DHCP need to know it.
type Pod struct {
	// ID is the sandbox's id: 1 to 128 letters, digits, dots, underscores and dashes, the first a letter or digit. CNI gets it as the
	// container's id, and the network namespace is called after it.
	ID string `json:"id"`
	// Namespace, Name and UID are the pod's in Kubernetes.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Hostname is told by DHCP. Empty: the pod's name.
	Hostname string `json:"hostname,omitempty"`
	// PortMappings go to the CNI plugins that have the capability portMappings.
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	// Bandwidth goes to the CNI plugins that have the capability bandwidth.
	Bandwidth *Bandwidth `json:"bandwidth,omitempty"`
	// DNS is the kubelet's; where it has neither servers nor search domains, CNI's result is used. It goes to the CNI plugins that
	// have the capability dns.
	DNS vm.DNS `json:"dns"`
	// Annotations are those of the pod that CNI plugins may see (capability io.kubernetes.cri.pod-annotations, as containerd passes
	// them). They are written to disk: a caller leaves out what is secret.
	Annotations map[string]string `json:"annotations,omitempty"`
	// MTU, in bytes, makes the guest's cards smaller than CNI did; 0 leaves CNI's. From 576, the least that IPv4 hosts have to take.
	MTU int `json:"mtu,omitempty"`
	// MAC is wished for the first card, by the capability mac. What the plugins made of it counts.
	MAC string `json:"mac,omitempty"`
}

// PortMapping is a port of the node that leads to one of the pod.
type PortMapping struct {
	// Protocol is "tcp", "udp" or "sctp".
	Protocol string `json:"protocol"`
	// ContainerPort and HostPort are 1 to 65535.
	ContainerPort int `json:"containerPort"`
	HostPort      int `json:"hostPort"`
	// HostIP limits the mapping to one address of the node. The zero Addr: every one.
	HostIP netip.Addr `json:"hostIP,omitzero"`
}

// Bandwidth limits a pod's traffic. Rates are in bits a second, bursts in bits, as CNI's bandwidth plugin has them; 0 is no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}

// Bounds of what one pod may ask for or be given. A pod's annotations are at most 256 KiB in Kubernetes.
const (
	maxPortMappings    = 256
	maxAnnotationBytes = 256 << 10
	maxServers         = 16
	maxSearch          = 32
	maxOptions         = 32
	minMTU             = 576
	maxMTU             = 65535
)

var (
	idForm = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$`)
	// What becomes a value of CNI_ARGS may have no ; or =. Kubernetes' names have far less.
	nameForm   = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,251}[a-zA-Z0-9])?$`)
	domainForm = regexp.MustCompile(`^([a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.)*[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?\.?$`)
	hostForm   = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?(\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$`)
	optionForm = regexp.MustCompile(`^[a-zA-Z0-9_:.-]{1,128}$`)
)

// check says what is wrong with a pod, as Invalid, with the field and its rule.
func (p *Pod) check() error {
	bad := func(field, rule string, args ...any) error {
		return vm.Errorf(vm.Invalid, "pod %s/%s: %s: %s", short(p.Namespace), short(p.Name), field, fmt.Sprintf(rule, args...))
	}
	if !idForm.MatchString(p.ID) {
		return bad("id", "%q must be 1 to 128 letters, digits, '_', '.' or '-', and begin with a letter or digit", short(p.ID))
	}
	for _, f := range []struct{ field, value string }{{"namespace", p.Namespace}, {"name", p.Name}, {"uid", p.UID}} {
		if !nameForm.MatchString(f.value) {
			return bad(f.field, "%q must be 1 to 253 letters, digits, '_', '.' or '-', and begin and end with a letter or digit", short(f.value))
		}
	}
	if p.Hostname != "" && (!hostForm.MatchString(p.Hostname) || len(p.Hostname) > 253) {
		return bad("hostname", "%q must be a DNS name", short(p.Hostname))
	}
	if len(p.PortMappings) > maxPortMappings {
		return bad("portMappings", "%d are given; at most %d are allowed", len(p.PortMappings), maxPortMappings)
	}
	for i, m := range p.PortMappings {
		if m.Protocol != "tcp" && m.Protocol != "udp" && m.Protocol != "sctp" {
			return bad(fmt.Sprintf("portMappings[%d].protocol", i), "%q must be tcp, udp or sctp", short(m.Protocol))
		}
		for _, port := range []struct {
			field string
			value int
		}{{"containerPort", m.ContainerPort}, {"hostPort", m.HostPort}} {
			if port.value < 1 || port.value > 65535 {
				return bad(fmt.Sprintf("portMappings[%d].%s", i, port.field), "%d must be 1 to 65535", port.value)
			}
		}
	}
	size := 0
	for k, v := range p.Annotations { // order: a sum
		size += len(k) + len(v)
	}
	if size > maxAnnotationBytes {
		return bad("annotations", "they have %d bytes; at most %d are allowed", size, maxAnnotationBytes)
	}
	if p.MTU != 0 && (p.MTU < minMTU || p.MTU > maxMTU) {
		return bad("mtu", "%d must be 0, or %d to %d", p.MTU, minMTU, maxMTU)
	}
	if p.MAC != "" {
		mac, err := net.ParseMAC(p.MAC)
		if err != nil || len(mac) != 6 || mac[0]&1 != 0 {
			return bad("mac", "%q must be a unicast Ethernet address", short(p.MAC))
		}
	}
	return p.checkDNS(bad)
}

func (p *Pod) checkDNS(bad func(field, rule string, args ...any) error) error {
	for _, f := range []struct {
		field    string
		len, max int
	}{{"servers", len(p.DNS.Servers), maxServers}, {"search", len(p.DNS.Search), maxSearch}, {"options", len(p.DNS.Options), maxOptions}} {
		if f.len > f.max {
			return bad("dns."+f.field, "%d are given; at most %d are allowed", f.len, f.max)
		}
	}
	for i, s := range p.DNS.Servers {
		if !s.IsValid() {
			return bad(fmt.Sprintf("dns.servers[%d]", i), "it must be an address")
		}
	}
	for i, s := range p.DNS.Search {
		// A kubelet may hand over the root.
		if s != "." && (!domainForm.MatchString(s) || len(s) > 254) {
			return bad(fmt.Sprintf("dns.search[%d]", i), "%q must be a domain's name", short(s))
		}
	}
	for i, o := range p.DNS.Options {
		if !optionForm.MatchString(o) {
			return bad(fmt.Sprintf("dns.options[%d]", i), "%q must be an option of resolv.conf, of at most 128 letters, digits, '_', ':', '.' and '-'", short(o))
		}
	}
	return nil
}

// hostname is what DHCP tells the guest.
func (p *Pod) hostname() string {
	if p.Hostname != "" {
		return p.Hostname
	}
	return p.Name
}

// short cuts what an error quotes, because whoever is wrong may be so at length.
func short(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
