package kaizip

import (
	"reflect"

	topologyv1alpha2 "github.com/k8stopologyawareschedwg/noderesourcetopology-api/pkg/apis/topology/v1alpha2"
	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
)

// listOf returns an empty list of the kind whose objects a pointer of objects.each points to.
func listOf(list any) client.ObjectList {
	switch list.(type) {
	case *[]*v1.Pod:
		return &v1.PodList{}
	case *[]*v1.Node:
		return &v1.NodeList{}
	case *[]*v2.Queue:
		return &v2.QueueList{}
	case *[]*v2alpha2.PodGroup:
		return &v2alpha2.PodGroupList{}
	case *[]*v1alpha2.BindRequest:
		return &v1alpha2.BindRequestList{}
	case *[]*schedulingv1.PriorityClass:
		return &schedulingv1.PriorityClassList{}
	case *[]*metav1.PartialObjectMetadata:
		m := &metav1.PartialObjectMetadataList{}
		m.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("ConfigMapList"))
		return m
	case *[]*v1.PersistentVolume:
		return &v1.PersistentVolumeList{}
	case *[]*v1.PersistentVolumeClaim:
		return &v1.PersistentVolumeClaimList{}
	case *[]*storagev1.CSIStorageCapacity:
		return &storagev1.CSIStorageCapacityList{}
	case *[]*storagev1.StorageClass:
		return &storagev1.StorageClassList{}
	case *[]*storagev1.CSIDriver:
		return &storagev1.CSIDriverList{}
	case *[]*resourcev1.ResourceClaim:
		return &resourcev1.ResourceClaimList{}
	case *[]*resourcev1.ResourceSlice:
		return &resourcev1.ResourceSliceList{}
	case *[]*resourcev1.DeviceClass:
		return &resourcev1.DeviceClassList{}
	case *[]*v1alpha1.Topology:
		return &v1alpha1.TopologyList{}
	case *[]*topologyv1alpha2.NodeResourceTopology:
		return &topologyv1alpha2.NodeResourceTopologyList{}
	}
	panic("kaizip: no such list")
}

// items are the objects of a list of objects.each.
func items(list any) []client.Object {
	v := reflect.ValueOf(list).Elem()
	out := make([]client.Object, v.Len())
	for i := range out {
		out[i] = v.Index(i).Interface().(client.Object)
	}
	return out
}

// kindOf names the kind of a list of objects.each.
func kindOf(list any) string { return reflect.TypeOf(list).Elem().Elem().Elem().Name() }
