package feed

import (
	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
)

// kind is a kind of object that is watched. The order is that in which a drain works through them, so that what others
// refer to comes first and pods, which refer to everything, are translated once and last.
type kind uint8

const (
	nodes kind = iota
	topologies
	priorityClasses
	queues
	gangs
	namespaces
	configMaps
	volumes
	claims
	storageClasses
	csiNodes
	csiDrivers
	csiCapacities
	budgets
	nodeZones
	deviceClasses
	resourceSlices
	resourceClaims
	requests
	pods
	kinds // their number
)

// existence says that of objects of this kind only their existence matters.
func (k kind) existence() bool { return k == configMaps }

// wanted says whether objects of the kind are looked at at all.
func (o *Options) wanted(k kind) bool {
	switch k {
	case csiCapacities:
		return o.StorageCapacity
	case nodeZones:
		return o.Zones
	}
	return true
}

// optional says that an API server may not serve the kind; there are none of it until it does.
func (k kind) optional() bool {
	return k == topologies || k == deviceClasses || k == resourceSlices || k == resourceClaims || k == nodeZones
}

// example returns an empty object of the kind, the one that names it to a Source.
func (k kind) example() client.Object {
	switch k {
	case nodes:
		return &v1.Node{}
	case topologies:
		return &v1alpha1.Topology{}
	case priorityClasses:
		return &schedulingv1.PriorityClass{}
	case queues:
		return &v2.Queue{}
	case gangs:
		return &v2alpha2.PodGroup{}
	case namespaces:
		return &v1.Namespace{}
	case configMaps:
		m := &metav1.PartialObjectMetadata{}
		m.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("ConfigMap"))
		return m
	case volumes:
		return &v1.PersistentVolume{}
	case claims:
		return &v1.PersistentVolumeClaim{}
	case storageClasses:
		return &storagev1.StorageClass{}
	case csiNodes:
		return &storagev1.CSINode{}
	case csiDrivers:
		return &storagev1.CSIDriver{}
	case csiCapacities:
		return &storagev1.CSIStorageCapacity{}
	case budgets:
		return &policyv1.PodDisruptionBudget{}
	case nodeZones:
		return &topologyv1alpha2.NodeResourceTopology{}
	case deviceClasses:
		return &resourcev1.DeviceClass{}
	case resourceSlices:
		return &resourcev1.ResourceSlice{}
	case resourceClaims:
		return &resourcev1.ResourceClaim{}
	case requests:
		return &v1alpha2.BindRequest{}
	case pods:
		return &v1.Pod{}
	}
	panic("feed: no such kind")
}

// carried returns the name under which the model carries objects of the kind for filters; "" when it does not.
func (k kind) carried() cluster.ObjectKind {
	switch k {
	case priorityClasses:
		return cluster.PriorityClasses
	case namespaces:
		return cluster.Namespaces
	case configMaps:
		return cluster.ConfigMaps
	case volumes:
		return cluster.PersistentVolumes
	case claims:
		return cluster.PersistentVolumeClaims
	case storageClasses:
		return cluster.StorageClasses
	case csiNodes:
		return cluster.CSINodes
	case csiDrivers:
		return cluster.CSIDrivers
	case csiCapacities:
		return cluster.CSIStorageCapacities
	case budgets:
		return cluster.PodDisruptionBudgets
	case deviceClasses:
		return cluster.DeviceClasses
	case resourceSlices:
		return cluster.ResourceSlices
	case resourceClaims:
		return cluster.ResourceClaims
	}
	return ""
}
