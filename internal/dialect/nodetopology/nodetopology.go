// Package nodetopology translates NodeResourceTopology objects (topology.node.k8s.io), by which nodes say what their NUMA
// zones have and how strictly their kubelets align pods to them.
package nodetopology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// The attributes by which the kubelet's settings are told, and the type of the zones that count.
const (
	AttributePolicy = "topologyManagerPolicy"
	AttributeScope  = "topologyManagerScope"
	TypeNode        = "Node"
)

// Zones returns what t says of its node; the node's name is t's. Only zones of type Node count, in the order of the
// numbers their names end in. Attributes say more than the older topologyPolicies; a node that says neither aligns
// nothing, container by container. problem says what of t was not understood, "" for nothing.
func Zones(t *v1alpha2.NodeResourceTopology) (z *cluster.NodeZones, problem string) {
	z = &cluster.NodeZones{}
	z.Policy, z.Scope, problem = settings(t)
	seen := map[string]bool{}
	for i := range t.Zones {
		zone := &t.Zones[i]
		if zone.Type != TypeNode {
			continue
		}
		if seen[zone.Name] {
			problem = fmt.Sprintf("zones[%d]: there is another zone called %q; names must be unique", i, zone.Name)
			continue
		}
		seen[zone.Name] = true
		allocatable, available := v1.ResourceList{}, v1.ResourceList{}
		for k := range zone.Resources {
			r := &zone.Resources[k]
			allocatable[v1.ResourceName(r.Name)], available[v1.ResourceName(r.Name)] = r.Allocatable, r.Available
		}
		z.Zones = append(z.Zones, cluster.Zone{Name: zone.Name, Allocatable: core.Amounts(allocatable), Available: core.Amounts(available)})
	}
	slices.SortFunc(z.Zones, func(a, b cluster.Zone) int { return compare(a.Name, b.Name) })
	if n := len(z.Zones); n > cluster.MaxZones {
		problem = fmt.Sprintf("zones: there are %d of type %s; only the first %d are looked at", n, TypeNode, cluster.MaxZones)
		z.Zones = z.Zones[:cluster.MaxZones]
	}
	return z, problem
}

// settings reads the policy and the scope.
func settings(t *v1alpha2.NodeResourceTopology) (cluster.ZonePolicy, cluster.ZoneScope, string) {
	policy, scope, problem := cluster.ZonesIgnored, cluster.PerContainer, ""
	if len(t.TopologyPolicies) > 0 {
		var ok bool
		if policy, scope, ok = older(t.TopologyPolicies[0]); !ok {
			problem = fmt.Sprintf("topologyPolicies[0] is %q, which is not known; the node counts as one that aligns nothing", t.TopologyPolicies[0])
		}
	}
	for i := range t.Attributes {
		value := t.Attributes[i].Value
		switch t.Attributes[i].Name {
		case AttributePolicy:
			switch p := cluster.ZonePolicy(value); p {
			case cluster.ZonesIgnored, cluster.ZonesBestEffort, cluster.ZonesRestricted, cluster.ZonesSingle:
				policy, problem = p, ""
			default:
				policy, problem = cluster.ZonesIgnored, fmt.Sprintf("attribute %s is %q, which is not known; the node counts as one that aligns nothing", AttributePolicy, value)
			}
		case AttributeScope:
			switch s := cluster.ZoneScope(value); s {
			case cluster.PerContainer, cluster.PerPod:
				scope = s
			default:
				problem = fmt.Sprintf("attribute %s is %q; it must be container or pod", AttributeScope, value)
			}
		}
	}
	return policy, scope, problem
}

// older reads a value of topologyPolicies.
func older(name string) (cluster.ZonePolicy, cluster.ZoneScope, bool) {
	scope := cluster.PerContainer
	base, podLevel := strings.CutSuffix(name, "PodLevel")
	if podLevel {
		scope = cluster.PerPod
	} else {
		base = strings.TrimSuffix(name, "ContainerLevel")
	}
	switch base {
	case "SingleNUMANode":
		return cluster.ZonesSingle, scope, base != name // it always says its level
	case "Restricted":
		return cluster.ZonesRestricted, scope, true
	case "BestEffort":
		return cluster.ZonesBestEffort, scope, true
	case "None":
		return cluster.ZonesIgnored, scope, base == name
	}
	return cluster.ZonesIgnored, cluster.PerContainer, false
}

// compare orders zones by the number at the end of their names, those without one first, then by name.
func compare(a, b string) int {
	x, y := number(a), number(b)
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(x, y), cmp.Compare(a, b))
}

// number returns the digits a name ends in, without leading zeros: shorter numbers are smaller ones.
func number(name string) string {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	if trimmed := strings.TrimLeft(digits, "0"); trimmed != "" || digits == "" {
		return trimmed
	}
	return "0"
}
