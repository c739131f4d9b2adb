package kai

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// ContainerAt is the place of one container in its pod's spec.
type ContainerAt struct {
	// Init says that it is one of spec.initContainers; otherwise it is one of spec.containers.
	Init bool
	// Index is its index there.
	Index int
}

// DeviceMapKeys are the keys that a binder writes into the ConfigMaps of a pod that shares devices.
func DeviceMapKeys() []string {
	return []string{keys.PortionEnv, keys.LegacyPortionEnv, keys.VisibleDevicesEnv, keys.LegacyVisibleDevicesKey, keys.MemoryLimitEnv}
}

// SharingContainer returns the container of p that gets the devices the pod shares: the one that the annotation
// gpu-fraction-container-name names, looked for among the init containers first, else the first regular container. It is
// an error when there is no such container.
func SharingContainer(p *v1.Pod) (ContainerAt, error) {
	name, named := p.Annotations[keys.GPUFractionContainerAnnotation]
	if !named || name == "" {
		if len(p.Spec.Containers) == 0 {
			return ContainerAt{}, fmt.Errorf("the pod has no containers")
		}
		return ContainerAt{}, nil
	}
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return ContainerAt{Init: true, Index: i}, nil
		}
	}
	for i := range p.Spec.Containers {
		if p.Spec.Containers[i].Name == name {
			return ContainerAt{Index: i}, nil
		}
	}
	return ContainerAt{}, fmt.Errorf("no container of the pod is called %q", core.Brief(name))
}

// Of returns the container itself, or nil if p has none at that place.
func (at ContainerAt) Of(p *v1.Pod) *v1.Container {
	list := p.Spec.Containers
	if at.Init {
		list = p.Spec.InitContainers
	}
	if at.Index < 0 || at.Index >= len(list) {
		return nil
	}
	return &list[at.Index]
}

// Suffix is how the names of the container's ConfigMaps tell it from the pod's others.
func (at ContainerAt) Suffix() string {
	if at.Init {
		return "i" + strconv.Itoa(at.Index)
	}
	return strconv.Itoa(at.Index)
}

// CapabilitiesMap is the name of the ConfigMap whose keys the container's environment refers to one by one; prefix is
// the value of the pod's annotation runai/shared-gpu-configmap.
func (at ContainerAt) CapabilitiesMap(prefix string) string { return prefix + "-" + at.Suffix() }

// EnvironmentMap is the name of the ConfigMap whose keys all become environment variables of the container.
func (at ContainerAt) EnvironmentMap(prefix string) string {
	return at.CapabilitiesMap(prefix) + "-evar"
}

// ReadsDevices says whether the container takes its list of devices from a key of a ConfigMap, so that the list belongs
// into the CapabilitiesMap; otherwise it belongs into the EnvironmentMap.
func ReadsDevices(c *v1.Container) bool {
	for i := range c.Env {
		e := &c.Env[i]
		if e.Name == keys.VisibleDevicesEnv && e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil {
			return true
		}
	}
	return false
}

// forgetOwnMaps takes, of the ConfigMaps that a pod cannot start without, those that tell it of its devices: the binder writes
// them once it knows the devices. As each pod has its own, they would also keep equal pods from being of one class.
func forgetOwnMaps(s *cluster.ClassSpec, p *v1.Pod) {
	prefix := p.Annotations[keys.SharedGPUConfigMapAnnotation]
	if prefix == "" || len(s.ConfigMaps) == 0 {
		return
	}
	s.ConfigMaps = slices.DeleteFunc(s.ConfigMaps, func(name string) bool { return strings.HasPrefix(name, prefix+"-") })
	if len(s.ConfigMaps) > 0 {
		return
	}
	s.ConfigMaps = nil
	if s.PodAffinity == nil && s.PodAntiAffinity == nil && len(s.Spread)+len(s.Claims)+len(s.Devices) == 0 {
		s.Namespace = "" // nothing else made it matter
	}
}
