package cluster

import (
	v1 "k8s.io/api/core/v1"
)

// ClassSpec is everything about a pod that decides where it may run. Two pods with equal specs are interchangeable
// for scheduling. It is immutable once interned; slices and pointers may be shared with API objects.
type ClassSpec struct {
	// Requests is what the pod takes from a node, Slots included.
	Requests Resources
	// NodeSelector and NodeAffinity are the pod's own; nil when it has none.
	NodeSelector map[string]string
	NodeAffinity *v1.NodeAffinity
	Tolerations  []v1.Toleration
	// PodAffinity, PodAntiAffinity and Spread are checked by the upstream filters, only for pods that carry them.
	PodAffinity     *v1.PodAffinity
	PodAntiAffinity *v1.PodAntiAffinity
	Spread          []v1.TopologySpreadConstraint
	// HostPorts are the (IP, protocol, port) triples the pod opens on its node.
	HostPorts []HostPort
	// Namespace and Labels are set only when PodAffinity, PodAntiAffinity, Spread, Claims or ConfigMaps make them matter.
	Namespace string
	Labels    map[string]string
	// Claims are the PersistentVolumeClaims the pod mounts, by name in its namespace.
	Claims []string
	// ConfigMaps are the non-optional ConfigMaps the pod cannot start without, by name in its namespace.
	ConfigMaps []string
	// Unsupported names a feature the pod asks for that this scheduler cannot honour yet ("" for none). Such a pod is
	// never placed: placing it as something it is not would overcommit or isolate nothing.
	Unsupported string
	// RestrictTo holds label keys of which a node must carry at least one (restricted nodes), by the shard's setting.
	RestrictTo []string
}

// HostPort is one port a pod opens on its node.
type HostPort struct {
	IP       string // "0.0.0.0" when the pod names none
	Protocol string
	Port     int32
}

// Conflicts says whether two host ports cannot be open on one node: same protocol and port, and equal addresses or
// one of them the wildcard.
func (p HostPort) Conflicts(o HostPort) bool {
	return p.Port == o.Port && p.Protocol == o.Protocol && (p.IP == o.IP || p.IP == "0.0.0.0" || o.IP == "0.0.0.0")
}

// Class is an interned ClassSpec. Within one Store, equal specs are the same *Class while any pod refers to it.
type Class struct {
	// ID is unique over the life of the Store and never reused; caches may key on it.
	ID uint64
	// Key is the canonical text of the spec: equal keys, equal specs. It orders classes independently of ID.
	Key string
	ClassSpec
}

// NeedsFilters says whether pods of the class use a feature that only the upstream filters understand, which makes
// their feasibility depend on where other pods are.
func (c *Class) NeedsFilters() bool {
	return c.PodAffinity != nil || c.PodAntiAffinity != nil || len(c.Spread) > 0 || len(c.Claims) > 0
}

// CPUOnly says whether pods of the class ask for no GPU.
func (c *Class) CPUOnly() bool { return c.Requests.At(GPU) == 0 }
