package cluster

import (
	"slices"
	"strconv"
)

// NodeZones is what a node says of its NUMA zones. The model carries it for the plugins numa and numa-aware as an object of kind
// NodeResourceTopologies or Numatopologies, by the node's name.
type NodeZones struct {
	Policy ZonePolicy
	Scope  ZoneScope
	// Zones are in the order of their numbers, at most MaxZones.
	Zones []Zone
	// Shared says that the node gives no container CPUs of its own, so that it aligns none, whatever its policy.
	Shared bool `json:",omitempty"`
	// Pods is what the node says that pods have, by UID: it counts before what is on record with the pod. A pod that is not among them is not known there yet.
	Pods map[string][]ZoneShare `json:",omitempty"`
}

// MaxZones is how many zones of a node are looked at. The kubelet's own limit is eight unless it is raised.
const MaxZones = 64

// ZonePolicy is the kubelet's topology manager policy: how strictly it aligns pods to zones.
type ZonePolicy string

// The policies.
const (
	ZonesIgnored    ZonePolicy = "none"             // nothing is aligned
	ZonesBestEffort ZonePolicy = "best-effort"      // aligned if possible, admitted in any case
	ZonesRestricted ZonePolicy = "restricted"       // refused if it needs more zones than an empty node would need
	ZonesSingle     ZonePolicy = "single-numa-node" // refused if it needs more than one zone
)

// ZoneScope is the kubelet's topology manager scope: what is aligned as one.
type ZoneScope string

// The scopes.
const (
	PerContainer ZoneScope = "container"
	PerPod       ZoneScope = "pod"
)

// Zone is one NUMA zone. Amounts are in the model's units; a resource that no zone of the node has is not aligned there.
type Zone struct {
	Name        string
	Allocatable []Quantity
	// Available is what was free when the node last reported.
	Available []Quantity
}

// ZoneShare is what one pod takes from one zone of its node.
type ZoneShare struct {
	Zone    string     `json:"zone"`
	Amounts []Quantity `json:"amounts"`
}

func (z ZoneShare) equal(o ZoneShare) bool {
	return z.Zone == o.Zone && slices.Equal(z.Amounts, o.Amounts)
}

// AssumeZones adds to our decision about a pod (Assume) what it is expected to take from which zones of its node. It
// reports whether there is such a decision.
func (s *Store) AssumeZones(uid string, zones []ZoneShare) bool {
	id, ok := s.podIDs[uid]
	if !ok || s.pods.get(int32(id)).assumed == nil {
		return false
	}
	p := s.pod(id)
	a := *p.assumed
	a.zones = zones
	p.assumed, p.Zones = &a, zones
	s.gen++
	return true
}

// ContainerRole is when a container runs beside the others of its pod.
type ContainerRole uint8

// The roles.
const (
	Together ContainerRole = iota // an app container: runs with all others
	Sidecar                       // runs from its turn in the start until the end
	Before                        // an init container: runs in its turn, before the app containers
)

// Need is what of one container's requests its node may have to take from few zones. A pod's needs are in the order its
// containers start in; containers with nothing to align are left out.
type Need struct {
	Role    ContainerRole
	Amounts []Quantity // more than zero each; sorted by name
}

// appendNeeds adds the needs to a class key.
func appendNeeds(b []byte, needs []Need) []byte {
	for i := range needs {
		b = append(b, 'z', '0'+byte(needs[i].Role))
		for _, q := range needs[i].Amounts {
			b = strconv.AppendQuote(b, q.Name)
			b = strconv.AppendInt(b, q.Value, 10)
		}
	}
	return b
}
