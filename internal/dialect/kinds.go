package dialect

import (
	"reflect"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	kbv1alpha1 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	kbv1alpha2 "github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	vcnodeinfo "github.com/muster-scheduler/muster/api/volcano/nodeinfo/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/nodetopology"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// Those of controller-runtime with these names have the same methods.
type (
	// Object is an API object.
	Object interface {
		metav1.Object
		runtime.Object
	}
	// List is a list of them.
	List interface {
		metav1.ListInterface
		runtime.Object
	}
)

// Kind is a kind of API object that a scheduler reads: a row of the table below. The order is that in which a batch is
// translated, so that what others refer to comes first and pods, which refer to everything, are translated once and last.
type Kind uint8

// The kinds; Kinds is their number.
const (
	Nodes Kind = iota
	Topologies
	VolcanoHyperNodes
	VolcanoNodeShards
	PriorityClasses
	Queues
	PodGroups
	VolcanoQueues
	VolcanoPodGroups
	UpstreamPodGroups
	CompositePodGroups
	KubeBatchQueues
	KubeBatchSigsQueues
	KubeBatchPodGroups
	KubeBatchSigsPodGroups
	Namespaces
	ConfigMaps
	PersistentVolumes
	PersistentVolumeClaims
	StorageClasses
	CSINodes
	CSIDrivers
	CSIStorageCapacities
	PodDisruptionBudgets
	ResourceQuotas
	NodeResourceTopologies
	VolcanoNumatopologies
	DeviceClasses
	ResourceSlices
	ResourceClaimTemplates
	ResourceClaims
	BindRequests
	Pods
	Kinds
)

// Row says what is the same wherever objects of a kind are handled. docs/contributing/checklist-kind.md says what else a new
// row touches.
type Row struct {
	// Name is the kind as manifests and messages have it: "PodGroup". Of a kind of another face's API group it goes on with the API group, as
	// kubectl has it: "PodGroup.scheduling.volcano.sh".
	Name string
	// Face is the face whose kind it is, or whose plugins alone read it, "" for what every scheduler reads. One without the face has no watch of it; Kubernetes' own every scheduler has.
	Face string
	// New returns an empty object of the kind, List an empty list.
	New  func() Object
	List func() List
	// Namespaced says that objects of the kind are in namespaces.
	Namespaced bool
	// Optional says that an API server may not serve the kind; there are none of it until it does.
	Optional bool
	// Pooled says that an object belongs to a shard by its own label (kai.Partition).
	Pooled bool
	// Unread says that no scheduler reads the kind: controllers of Kubernetes make of it what is read. It is here for those who
	// make such objects and clean up after them.
	Unread bool
	// Metadata, if it is not empty, says that of objects of the kind only their existence matters, so that they are watched and
	// listed as metadata of this kind (Watched, WatchedList).
	Metadata schema.GroupVersionKind
	// Carried is the name under which the model carries objects of the kind for filters, "" for one that it does not carry.
	Carried cluster.ObjectKind

	typed reflect.Type                               // of an object
	blank func() any                                 // what the model carries, empty; nil for an object as New returns it
	carry func(Object) (carried any, problem string) // what the model carries of an object; nil for all of it
}

// rows is the table.
var rows = [Kinds]Row{
	Nodes:                  of[v1.Node, v1.NodeList](Row{Name: "Node", Pooled: true}),
	Topologies:             of[v1alpha1.Topology, v1alpha1.TopologyList](Row{Name: "Topology", Optional: true}),
	VolcanoHyperNodes:      of[vctopology.HyperNode, vctopology.HyperNodeList](Row{Name: "HyperNode.topology.volcano.sh", Face: volcano.Face, Optional: true}),
	VolcanoNodeShards:      of[vcshard.NodeShard, vcshard.NodeShardList](Row{Name: "NodeShard.shard.volcano.sh", Face: volcano.Face, Optional: true}),
	PriorityClasses:        of[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](Row{Name: "PriorityClass", Carried: cluster.PriorityClasses}),
	Queues:                 of[v2.Queue, v2.QueueList](Row{Name: "Queue", Pooled: true}),
	PodGroups:              of[v2alpha2.PodGroup, v2alpha2.PodGroupList](Row{Name: "PodGroup", Namespaced: true, Pooled: true}),
	VolcanoQueues:          of[v1beta1.Queue, v1beta1.QueueList](Row{Name: "Queue.scheduling.volcano.sh", Face: volcano.Face, Optional: true, Pooled: true}),
	VolcanoPodGroups:       of[v1beta1.PodGroup, v1beta1.PodGroupList](Row{Name: "PodGroup.scheduling.volcano.sh", Face: volcano.Face, Namespaced: true, Optional: true, Pooled: true}),
	UpstreamPodGroups:      of[schedulingv1beta1.PodGroup, schedulingv1beta1.PodGroupList](Row{Name: "PodGroup.scheduling.k8s.io", Face: upstream.Face, Namespaced: true, Optional: true, Pooled: true}),
	CompositePodGroups:     of[schedulingv1alpha3.CompositePodGroup, schedulingv1alpha3.CompositePodGroupList](Row{Name: "CompositePodGroup.scheduling.k8s.io", Face: upstream.Face, Namespaced: true, Optional: true, Pooled: true}),
	KubeBatchQueues:        of[kbv1alpha1.Queue, kbv1alpha1.QueueList](Row{Name: "Queue.scheduling.incubator.k8s.io", Face: kubebatch.Face, Optional: true, Pooled: true}),
	KubeBatchSigsQueues:    of[kbv1alpha2.Queue, kbv1alpha2.QueueList](Row{Name: "Queue.scheduling.sigs.dev", Face: kubebatch.Face, Optional: true, Pooled: true}),
	KubeBatchPodGroups:     of[kbv1alpha1.PodGroup, kbv1alpha1.PodGroupList](Row{Name: "PodGroup.scheduling.incubator.k8s.io", Face: kubebatch.Face, Namespaced: true, Optional: true, Pooled: true}),
	KubeBatchSigsPodGroups: of[kbv1alpha2.PodGroup, kbv1alpha2.PodGroupList](Row{Name: "PodGroup.scheduling.sigs.dev", Face: kubebatch.Face, Namespaced: true, Optional: true, Pooled: true}),
	Namespaces:             of[v1.Namespace, v1.NamespaceList](Row{Name: "Namespace", Carried: cluster.Namespaces, carry: labelsOf}),
	ConfigMaps:             of[v1.ConfigMap, v1.ConfigMapList](Row{Name: "ConfigMap", Namespaced: true, Carried: cluster.ConfigMaps, Metadata: v1.SchemeGroupVersion.WithKind("ConfigMap"), carry: existence, blank: newObject[metav1.PartialObjectMetadata]}),
	PersistentVolumes:      of[v1.PersistentVolume, v1.PersistentVolumeList](Row{Name: "PersistentVolume", Carried: cluster.PersistentVolumes}),
	PersistentVolumeClaims: of[v1.PersistentVolumeClaim, v1.PersistentVolumeClaimList](Row{Name: "PersistentVolumeClaim", Namespaced: true, Carried: cluster.PersistentVolumeClaims}),
	StorageClasses:         of[storagev1.StorageClass, storagev1.StorageClassList](Row{Name: "StorageClass", Carried: cluster.StorageClasses}),
	CSINodes:               of[storagev1.CSINode, storagev1.CSINodeList](Row{Name: "CSINode", Carried: cluster.CSINodes}),
	CSIDrivers:             of[storagev1.CSIDriver, storagev1.CSIDriverList](Row{Name: "CSIDriver", Carried: cluster.CSIDrivers}),
	CSIStorageCapacities:   of[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList](Row{Name: "CSIStorageCapacity", Namespaced: true, Carried: cluster.CSIStorageCapacities}),
	PodDisruptionBudgets:   of[policyv1.PodDisruptionBudget, policyv1.PodDisruptionBudgetList](Row{Name: "PodDisruptionBudget", Namespaced: true, Carried: cluster.PodDisruptionBudgets, carry: budget}),
	ResourceQuotas:         of[v1.ResourceQuota, v1.ResourceQuotaList](Row{Name: "ResourceQuota", Face: volcano.Face, Namespaced: true, Carried: cluster.ResourceQuotas, carry: spaceQuota, blank: newObject[cluster.SpaceQuota]}),
	NodeResourceTopologies: of[topologyv1alpha2.NodeResourceTopology, topologyv1alpha2.NodeResourceTopologyList](Row{Name: "NodeResourceTopology", Optional: true, Carried: cluster.NodeResourceTopologies, carry: zones, blank: newObject[cluster.NodeZones]}),
	VolcanoNumatopologies:  of[vcnodeinfo.Numatopology, vcnodeinfo.NumatopologyList](Row{Name: "Numatopology.nodeinfo.volcano.sh", Face: volcano.Face, Optional: true, Carried: cluster.Numatopologies, carry: cpuZones, blank: newObject[cluster.NodeZones]}),
	DeviceClasses:          of[resourcev1.DeviceClass, resourcev1.DeviceClassList](Row{Name: "DeviceClass", Optional: true, Carried: cluster.DeviceClasses}),
	ResourceSlices:         of[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](Row{Name: "ResourceSlice", Optional: true, Carried: cluster.ResourceSlices}),
	ResourceClaimTemplates: of[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](Row{Name: "ResourceClaimTemplate", Namespaced: true, Optional: true, Unread: true}),
	ResourceClaims:         of[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](Row{Name: "ResourceClaim", Namespaced: true, Optional: true, Carried: cluster.ResourceClaims}),
	BindRequests:           of[v1alpha2.BindRequest, v1alpha2.BindRequestList](Row{Name: "BindRequest", Namespaced: true, Pooled: true}),
	Pods:                   of[v1.Pod, v1.PodList](Row{Name: "Pod", Namespaced: true}),
}

// of completes a row with its Go types.
func of[O, L any, PO interface {
	*O
	Object
}, PL interface {
	*L
	List
}](r Row) Row {
	r.New = func() Object { return PO(new(O)) }
	r.List = func() List { return PL(new(L)) }
	r.typed = reflect.TypeFor[*O]()
	return r
}

func newObject[T any]() any { return new(T) }

// Of some kinds only what is read is carried, so that their other changes are none.

func labelsOf(o Object) (any, string) {
	return &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetName(), UID: o.GetUID(), Labels: o.GetLabels()}}, ""
}

func existence(o Object) (any, string) {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID()}}, ""
}

func budget(o Object) (any, string) {
	if b, ok := o.(*policyv1.PodDisruptionBudget); ok {
		return core.Budget(b), ""
	}
	return o, ""
}

func spaceQuota(o Object) (any, string) {
	if q, ok := o.(*v1.ResourceQuota); ok {
		return core.Quota(q), ""
	}
	return o, ""
}

func zones(o Object) (any, string) {
	if t, ok := o.(*topologyv1alpha2.NodeResourceTopology); ok {
		return nodetopology.Zones(t)
	}
	return o, ""
}

func cpuZones(o Object) (any, string) {
	if t, ok := o.(*vcnodeinfo.Numatopology); ok {
		return volcano.Zones(t)
	}
	return o, ""
}

// Row returns the kind's row.
func (k Kind) Row() Row { return rows[k] }

// String is the kind's name.
func (k Kind) String() string { return rows[k].Name }

// Watched returns an empty object of the form in which the kind is watched: whole, or its metadata.
func (k Kind) Watched() Object {
	if rows[k].Metadata.Empty() {
		return rows[k].New()
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(rows[k].Metadata)
	return m
}

// WatchedList is the list of what Watched returns.
func (k Kind) WatchedList() List {
	if rows[k].Metadata.Empty() {
		return rows[k].List()
	}
	m := &metav1.PartialObjectMetadataList{}
	m.SetGroupVersionKind(rows[k].Metadata.GroupVersion().WithKind(rows[k].Metadata.Kind + "List"))
	return m
}

// KindOf returns the kind of an object; ok is false for one that the table does not have.
func KindOf(o Object) (k Kind, ok bool) { return Typed(reflect.TypeOf(o)) }

// Typed returns the kind whose objects, whole or as they are watched, are of a pointer type. Only one kind is watched as
// metadata.
func Typed(t reflect.Type) (k Kind, ok bool) {
	partial := t == reflect.TypeFor[*metav1.PartialObjectMetadata]()
	for k := range Kinds {
		if rows[k].typed == t || partial && !rows[k].Metadata.Empty() {
			return k, true
		}
	}
	return 0, false
}

// Named returns the kind of a name such as "PodGroup".
func Named(name string) (k Kind, ok bool) {
	for k := range Kinds {
		if rows[k].Name == name {
			return k, true
		}
	}
	return 0, false
}

// Blank returns an empty value of the type that the model carries under a name, as a pointer; nil for a name that it does not
// carry. Files of snapshots are read into it.
func Blank(carried cluster.ObjectKind) any {
	if carried == cluster.NodeUses { // which is measured, and no API object
		return new(cluster.NodeUse)
	}
	for k := range Kinds {
		switch r := rows[k]; {
		case carried == "" || r.Carried != carried:
		case r.blank != nil:
			return r.blank()
		default:
			return r.New()
		}
	}
	return nil
}

// KeyOf returns an object's namespace and name.
func KeyOf(o Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}
