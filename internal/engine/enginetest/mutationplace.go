package enginetest

import (
	"strings"

	nrt "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// placementFields are those that say where pods go: topologies, parts and slices of devices, and claims.
func placementFields() []field {
	out := []field{
		on("Topology.spec.levels[].alias", func(t *v1alpha1.Topology) {
			for i := range t.Spec.Levels {
				t.Spec.Levels[i].Alias = ""
			}
		}),
		on("Topology.spec.levels", func(t *v1alpha1.Topology) { t.Spec.Levels = t.Spec.Levels[:1] }),
		on("Node.status.allocatable["+keys.MIGResourcePrefix+"*]", func(n *v1.Node) {
			for name := range n.Status.Allocatable { // order: each by itself
				if strings.HasPrefix(string(name), keys.MIGResourcePrefix) {
					delete(n.Status.Allocatable, name)
				}
			}
		}),
		on("Pod.spec.containers[].resources.requests["+keys.MIGResourcePrefix+"*]", func(p *v1.Pod) {
			for i := range p.Spec.Containers {
				for name := range p.Spec.Containers[i].Resources.Requests { // order: each by itself
					if strings.HasPrefix(string(name), keys.MIGResourcePrefix) {
						delete(p.Spec.Containers[i].Resources.Requests, name)
					}
				}
			}
		}),
		on("Pod.metadata.annotations["+keys.GPUFractionDevicesAnnotation+"]", func(p *v1.Pod) { delete(p.Annotations, keys.GPUFractionDevicesAnnotation) }),
		on("Pod.metadata.labels["+keys.GPUGroupLabel+"]", func(p *v1.Pod) { delete(p.Labels, keys.GPUGroupLabel) }),
		on("Pod.metadata.labels["+keys.GPUGroupLabelPrefix+"*]", func(p *v1.Pod) {
			for key := range p.Labels { // order: each by itself
				if strings.HasPrefix(key, keys.GPUGroupLabelPrefix) {
					delete(p.Labels, key)
				}
			}
		}),
		on("Pod.metadata.annotations["+keys.NUMAObservedAnnotation+"]", func(p *v1.Pod) { delete(p.Annotations, keys.NUMAObservedAnnotation) }),
		on("NodeResourceTopology.zones", func(t *nrt.NodeResourceTopology) { t.Zones = nil }),
		on("NodeResourceTopology.attributes", func(t *nrt.NodeResourceTopology) { t.Attributes = nil }),
		on("DeviceClass.spec.selectors", func(c *resourcev1.DeviceClass) { c.Spec.Selectors = nil }),
		on("DeviceClass.spec.extendedResourceName", func(c *resourcev1.DeviceClass) { c.Spec.ExtendedResourceName = nil }),
		on("ResourceSlice.spec.devices", func(s *resourcev1.ResourceSlice) { s.Spec.Devices = nil }),
		on("ResourceSlice.spec.devices[].attributes", func(s *resourcev1.ResourceSlice) {
			for i := range s.Spec.Devices {
				s.Spec.Devices[i].Attributes = nil
			}
		}),
		on("ResourceSlice.spec.nodeName", func(s *resourcev1.ResourceSlice) {
			s.Spec.NodeName, s.Spec.AllNodes = nil, new(true)
		}),
		on("ResourceClaim.metadata.labels["+keys.QueueLabel+"]", func(c *resourcev1.ResourceClaim) { delete(c.Labels, keys.QueueLabel) }),
		on("ResourceClaim.spec.devices.requests", func(c *resourcev1.ResourceClaim) { c.Spec.Devices.Requests = nil }),
		on("ResourceClaim.spec.devices.requests[].exactly.count", func(c *resourcev1.ResourceClaim) {
			for i := range c.Spec.Devices.Requests {
				if e := c.Spec.Devices.Requests[i].Exactly; e != nil && e.Count > 1 {
					e.Count = 1
				}
			}
		}),
		on("ResourceClaim.spec.devices.requests[].exactly.allocationMode", func(c *resourcev1.ResourceClaim) {
			for i := range c.Spec.Devices.Requests {
				if e := c.Spec.Devices.Requests[i].Exactly; e != nil && e.AllocationMode == resourcev1.DeviceAllocationModeAll {
					e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeExactCount, 1
				}
			}
		}),
		on("ResourceClaim.spec.devices.requests[].exactly.selectors", func(c *resourcev1.ResourceClaim) {
			for i := range c.Spec.Devices.Requests {
				if e := c.Spec.Devices.Requests[i].Exactly; e != nil {
					e.Selectors = nil
				}
			}
		}),
		on("ResourceClaim.status.allocation", func(c *resourcev1.ResourceClaim) { c.Status.Allocation = nil }),
	}
	for _, label := range []string{keys.GPUMemoryNodeLabel, keys.MIGStrategyNodeLabel, keys.MIGWorkerNodeLabel} {
		out = append(out, on("Node.metadata.labels["+label+"]", func(n *v1.Node) { delete(n.Labels, label) }))
	}
	for _, part := range []struct {
		name string
		off  func(*v2alpha2.TopologyConstraint)
	}{
		{"topology", func(c *v2alpha2.TopologyConstraint) { c.Topology = "" }},
		{"requiredTopologyLevel", func(c *v2alpha2.TopologyConstraint) { c.RequiredTopologyLevel = "" }},
		{"preferredTopologyLevel", func(c *v2alpha2.TopologyConstraint) { c.PreferredTopologyLevel = "" }},
	} {
		out = append(out, on("PodGroup.spec.topologyConstraint."+part.name, func(g *v2alpha2.PodGroup) { part.off(&g.Spec.TopologyConstraint) }),
			on("PodGroup.spec.subGroups[].topologyConstraint."+part.name, func(g *v2alpha2.PodGroup) {
				eachSubGroup(g, func(s *v2alpha2.SubGroup) {
					if s.TopologyConstraint != nil {
						part.off(s.TopologyConstraint)
					}
				})
			}))
	}
	return out
}
