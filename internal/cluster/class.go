package cluster

import (
	v1 "k8s.io/api/core/v1"
)

// ClassSpec is everything about a pod that decides where it may run. Two pods with equal specs are interchangeable
// for scheduling. It is immutable once interned; slices and pointers may be shared with API objects.
type ClassSpec struct {
	// Requests is what the pod takes of a node's sums, Slots included. Devices that it shares or claims are not in it.
	Requests Resources
	// Charge is what the pod's queue is charged for it, without GPU memory, which depends on the node (ChargeOn). In an
	// interned class it is never nil; in a spec, nil means the same as Requests.
	Charge Resources
	// Share is what it takes of GPUs that it has not to itself.
	Share Share
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
	// Devices are the pod's resource claims, in the order of its spec; the extended resources that are allocated as devices
	// come last, as one.
	Devices []DeviceNeed
	// ConfigMaps are the non-optional ConfigMaps the pod cannot start without, by name in its namespace.
	ConfigMaps []string
	// Unsupported names a feature the pod asks for that this scheduler cannot honour yet ("" for none). Such a pod is
	// never placed: placing it as something it is not would overcommit or isolate nothing.
	Unsupported string
	// Align is what its node may have to take from few NUMA zones, by container; nil when nothing is, or nobody asks.
	Align []Need
	// ZonesBy is the policy by which its node has to align CPUs to NUMA zones, as the pod's owner wrote it; "" for any. One that is no policy no node has.
	ZonesBy ZonePolicy `json:",omitempty"`
	// LegacySlices says that the pod asks for slices of GPUs by annotation, as Run:ai once had it. Somebody else cuts them,
	// so nothing else that is sliced may be placed beside it.
	LegacySlices bool
	// RestrictTo holds label keys of which a node must carry at least one (restricted nodes), by the shard's setting.
	RestrictTo []string
	// Within is the set of nodes that the pod keeps to, by name, and Prefers the one whose nodes it is given first; "" for none.
	Within  string `json:",omitempty"`
	Prefers string `json:",omitempty"`
	// Revocable says that the pod may run on nodes that are lent for a time.
	Revocable bool `json:",omitempty"`
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

	demand *Demand // its kind, of the Store alone
	alone  *Class  // nil for itself
	site   *Class  // nil for itself
}

// Alone is the class of the same pods if they said nothing of other pods, nor of volumes or devices by claim, nor of ConfigMaps, and
// nothing but a node's sums counted: classes that differ in pod affinity, anti-affinity, spreading, claims, ConfigMaps and host ports
// only have it in common. It is the class itself for most.
func (c *Class) Alone() *Class {
	if c.alone == nil {
		return c
	}
	return c.alone
}

// Site is the class of the same pods if they asked for one of everything that they ask for, and said nothing of other pods:
// classes have it in common if the same nodes come into question for them, whatever room these have.
func (c *Class) Site() *Class {
	c = c.Alone()
	if c.site == nil {
		return c
	}
	return c.site
}

// NeedsFilters says whether pods of the class use a feature that makes their feasibility depend on where other pods are,
// and not on room alone: what only the upstream filters understand, and claims that pods share.
func (c *Class) NeedsFilters() bool {
	return c.PodAffinity != nil || c.PodAntiAffinity != nil || len(c.Spread) > 0 || len(c.Claims) > 0 || !countedPerPod(c.Devices)
}

// PrefersPods says whether pods of the class have terms that bear on the scores of nodes: preferred pod affinity or
// anti-affinity, or required pod affinity, which draws others near.
func (c *Class) PrefersPods() bool {
	a, b := c.PodAffinity, c.PodAntiAffinity
	return a != nil && len(a.PreferredDuringSchedulingIgnoredDuringExecution)+len(a.RequiredDuringSchedulingIgnoredDuringExecution) > 0 ||
		b != nil && len(b.PreferredDuringSchedulingIgnoredDuringExecution) > 0
}

// CPUOnly says whether pods of the class ask for no GPU, nor for a part of one.
func (c *Class) CPUOnly() bool { return c.Charge.At(GPU) == 0 && c.Share.None() }
