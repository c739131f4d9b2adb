package filters

import (
	"context"
	"maps"
	"slices"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/informers/storage"
	storagev1 "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// objects is one kind of the snapshot's objects in the form of an informer's cache. Upstream's filters read it through
// client-go's own listers; nothing changes in it but by put. It is made for one run.
type objects struct {
	cache.Indexer // nil: nothing but the methods below is called

	all      map[string]any
	list     []any // by key; nil until asked for
	own      bool  // all is not the snapshot's any more
	indexers cache.Indexers
	indices  map[string]map[string][]any
}

// GetByKey implements cache.Indexer.
func (o *objects) GetByKey(key string) (any, bool, error) {
	x, ok := o.all[key]
	return x, ok, nil
}

// List implements cache.Indexer. Its order is that of the keys, so that upstream's choice among equal volumes is the
// same in every run.
func (o *objects) List() []any {
	if o.list == nil && len(o.all) > 0 {
		o.list = make([]any, 0, len(o.all))
		for _, key := range slices.Sorted(maps.Keys(o.all)) {
			o.list = append(o.list, o.all[key])
		}
	}
	return o.list
}

// put replaces an object that is there, for this run. Indexes must not depend on what differs.
func (o *objects) put(key string, x any) {
	if !o.own {
		o.all, o.own = maps.Clone(o.all), true
	}
	if o.list != nil {
		o.list[slices.Index(o.list, o.all[key])] = x
	}
	o.all[key] = x
}

// AddIndexers implements cache.Indexer.
func (o *objects) AddIndexers(more cache.Indexers) error {
	if o.indexers == nil {
		o.indexers, o.indices = cache.Indexers{}, map[string]map[string][]any{}
	}
	maps.Copy(o.indexers, more)
	return nil
}

// GetIndexers implements cache.Indexer.
func (o *objects) GetIndexers() cache.Indexers { return o.indexers }

// ByIndex implements cache.Indexer.
func (o *objects) ByIndex(name, value string) ([]any, error) {
	index := o.indices[name]
	if index == nil {
		f := o.indexers[name]
		if f == nil {
			return nil, nil
		}
		index = map[string][]any{}
		for _, x := range o.List() {
			values, err := f(x)
			if err != nil {
				return nil, err
			}
			for _, v := range values {
				index[v] = append(index[v], x)
			}
		}
		o.indices[name] = index
	}
	return index[value], nil
}

// informer is objects in the form of an informer.
type informer struct {
	cache.SharedIndexInformer // nil: nothing but the methods below is called
	objects                   *objects
}

// GetIndexer implements cache.SharedIndexInformer.
func (i informer) GetIndexer() cache.Indexer { return i.objects }

// AddIndexers implements cache.SharedIndexInformer.
func (i informer) AddIndexers(more cache.Indexers) error { return i.objects.AddIndexers(more) }

// AddEventHandler implements cache.SharedIndexInformer: nothing will happen, so there is nothing to tell.
func (i informer) AddEventHandler(cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

// handle is what upstream's constructors ask for. They and the filters call the methods below and no others.
type handle struct {
	fwk.Handle
	upstream *upstreamSnapshot
	kinds    map[cluster.ObjectKind]*objects
	hide     map[cluster.ObjectKind]bool
}

func newHandle(w *upstreamSnapshot, o Options) *handle {
	h := &handle{upstream: w, kinds: map[cluster.ObjectKind]*objects{}, hide: map[cluster.ObjectKind]bool{}}
	if !o.StorageCapacity { // a driver that is not known publishes no capacity
		h.hide[cluster.CSIDrivers], h.hide[cluster.CSIStorageCapacities] = true, true
	}
	return h
}

func (h *handle) of(kind cluster.ObjectKind) *objects {
	o := h.kinds[kind]
	if o == nil {
		o = &objects{}
		if !h.hide[kind] {
			o.all = h.upstream.snap.Objects(kind)
		}
		h.kinds[kind] = o
	}
	return o
}

// SnapshotSharedLister implements fwk.Handle.
func (h *handle) SnapshotSharedLister() fwk.SharedLister { return h.upstream }

// SharedInformerFactory implements fwk.Handle.
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return factory{h: h} }

// SharedCSIManager implements fwk.Handle.
func (h *handle) SharedCSIManager() fwk.CSIManager {
	return nodevolumelimits.NewCSIManager(storagelisters.NewCSINodeLister(h.of(cluster.CSINodes)))
}

// ClientSet implements fwk.Handle: only what binds volumes would write.
func (h *handle) ClientSet() kubernetes.Interface { return nil }

// Parallelizer implements fwk.Handle. The engine runs on one goroutine, and so do its filters.
func (h *handle) Parallelizer() fwk.Parallelizer { return inline{} }

type inline struct{}

// Until implements fwk.Parallelizer.
func (inline) Until(_ context.Context, pieces int, do workqueue.DoWorkPieceFunc, _ string) {
	for i := range pieces {
		do(i)
	}
}

// factory gives upstream's constructors the informers they take, group by group.
type factory struct {
	informers.SharedInformerFactory
	h *handle
}

// Core implements informers.SharedInformerFactory.
func (f factory) Core() core.Interface { return coreGroup{f.h} }

// Storage implements informers.SharedInformerFactory.
func (f factory) Storage() storage.Interface { return storageGroup{h: f.h} }

type coreGroup struct{ h *handle }

// V1 implements core.Interface.
func (g coreGroup) V1() corev1.Interface { return coreV1{h: g.h} }

type storageGroup struct {
	storage.Interface
	h *handle
}

// V1 implements storage.Interface.
func (g storageGroup) V1() storagev1.Interface { return storageV1{h: g.h} }

// kind is the informer of one kind with its lister L.
type kind[L any] struct {
	objects *objects
	list    func(cache.Indexer) L
}

// Informer implements client-go's informer of the kind.
func (k kind[L]) Informer() cache.SharedIndexInformer { return informer{objects: k.objects} }

// Lister implements client-go's informer of the kind.
func (k kind[L]) Lister() L { return k.list(k.objects) }

type coreV1 struct {
	corev1.Interface
	h *handle
}

// Namespaces implements client-go's informers of core/v1, as do those below.
func (g coreV1) Namespaces() corev1.TypedNamespaceInformer {
	return corev1.ToTypedNamespaceInformer(kind[corelisters.NamespaceLister]{g.h.of(cluster.Namespaces), corelisters.NewNamespaceLister})
}

// PersistentVolumes is of core/v1.
func (g coreV1) PersistentVolumes() corev1.TypedPersistentVolumeInformer {
	return corev1.ToTypedPersistentVolumeInformer(kind[corelisters.PersistentVolumeLister]{g.h.of(cluster.PersistentVolumes), corelisters.NewPersistentVolumeLister})
}

// PersistentVolumeClaims is of core/v1.
func (g coreV1) PersistentVolumeClaims() corev1.TypedPersistentVolumeClaimInformer {
	return corev1.ToTypedPersistentVolumeClaimInformer(kind[corelisters.PersistentVolumeClaimLister]{g.h.of(cluster.PersistentVolumeClaims), corelisters.NewPersistentVolumeClaimLister})
}

// Pods is of core/v1, and empty: only what binds volumes would read it.
func (g coreV1) Pods() corev1.TypedPodInformer {
	return corev1.ToTypedPodInformer(kind[corelisters.PodLister]{&objects{}, corelisters.NewPodLister})
}

// Nodes is of core/v1, and empty: only what binds volumes would read it.
func (g coreV1) Nodes() corev1.TypedNodeInformer {
	return corev1.ToTypedNodeInformer(kind[corelisters.NodeLister]{&objects{}, corelisters.NewNodeLister})
}

type storageV1 struct {
	storagev1.Interface
	h *handle
}

// StorageClasses implements client-go's informers of storage/v1, as do those below.
func (g storageV1) StorageClasses() storagev1.TypedStorageClassInformer {
	return storagev1.ToTypedStorageClassInformer(kind[storagelisters.StorageClassLister]{g.h.of(cluster.StorageClasses), storagelisters.NewStorageClassLister})
}

// CSINodes is of storage/v1.
func (g storageV1) CSINodes() storagev1.TypedCSINodeInformer {
	return storagev1.ToTypedCSINodeInformer(kind[storagelisters.CSINodeLister]{g.h.of(cluster.CSINodes), storagelisters.NewCSINodeLister})
}

// CSIDrivers is of storage/v1.
func (g storageV1) CSIDrivers() storagev1.TypedCSIDriverInformer {
	return storagev1.ToTypedCSIDriverInformer(kind[storagelisters.CSIDriverLister]{g.h.of(cluster.CSIDrivers), storagelisters.NewCSIDriverLister})
}

// CSIStorageCapacities is of storage/v1.
func (g storageV1) CSIStorageCapacities() storagev1.TypedCSIStorageCapacityInformer {
	return storagev1.ToTypedCSIStorageCapacityInformer(kind[storagelisters.CSIStorageCapacityLister]{g.h.of(cluster.CSIStorageCapacities), storagelisters.NewCSIStorageCapacityLister})
}

// VolumeAttachments is of storage/v1, and empty: the snapshot carries none, and volumes of the pods on a node are
// counted without it.
func (g storageV1) VolumeAttachments() storagev1.TypedVolumeAttachmentInformer {
	return storagev1.ToTypedVolumeAttachmentInformer(kind[storagelisters.VolumeAttachmentLister]{&objects{}, storagelisters.NewVolumeAttachmentLister})
}
