package podgrouper

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

const (
	// syncPatience is how long readers wait for a watch that has just begun before they ask the API server instead.
	syncPatience = 3 * time.Second
	// retryFollow is the wait after a kind could not be watched at all, for instance because its CRD is not installed.
	retryFollow = time.Minute
)

// follower watches the metadata of owner kinds from the first time that they are asked for, and tells of changes.
type follower struct {
	cache cache.Cache
	table *workload.Table
	clock clock.Clock
	log   logr.Logger
	// changed is called for an object whose facts changed, gone for one that went away; neither may block.
	changed, gone func(uid types.UID)

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]*followed
	ended bool
}

type followed struct {
	informer cache.Informer // nil: could not be started
	handler  toolscache.ResourceEventHandlerRegistration
	since    time.Time
}

// ready says whether the cache answers for the kind, and starts the kind's watch if there is none. It waits for a watch
// that has just begun, syncPatience at most.
func (f *follower) ready(ctx context.Context, gvk schema.GroupVersionKind) bool {
	k := f.kind(ctx, gvk)
	if k == nil || k.informer == nil {
		return false
	}
	if k.handler.HasSynced() {
		return true
	}
	patience := syncPatience - f.clock.Since(k.since)
	if patience <= 0 {
		return false
	}
	timeout := f.clock.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-k.handler.HasSyncedChecker().Done():
		return true
	case <-timeout.C():
	case <-ctx.Done():
	}
	return false
}

func (f *follower) kind(ctx context.Context, gvk schema.GroupVersionKind) *followed {
	f.mu.Lock()
	defer f.mu.Unlock()
	if k := f.kinds[gvk]; f.ended || k != nil && (k.informer != nil || f.clock.Since(k.since) < retryFollow) {
		return k
	}
	k := &followed{since: f.clock.Now()}
	f.kinds[gvk] = k
	var m metav1.PartialObjectMetadata
	m.SetGroupVersionKind(gvk)
	informer, err := f.cache.GetInformer(ctx, &m, cache.BlockUntilSynced(false))
	if err == nil {
		k.handler, err = informer.AddEventHandler(f.events(f.table.Read(gvk)))
	}
	if err != nil {
		f.log.Info("owners of this kind are read one by one: they cannot be watched", "kind", gvk.String(), "reason", err.Error())
		return k
	}
	k.informer = informer
	return k
}

// events reports what changed of an object that a derivation may depend on; spec says whether its spec is among that.
func (f *follower) events(spec bool) toolscache.ResourceEventHandler {
	meta := func(obj any) *metav1.PartialObjectMetadata {
		if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		m, _ := obj.(*metav1.PartialObjectMetadata)
		return m
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			// A derivation may stem from the API server while the watch lagged behind.
			if m := meta(obj); m != nil && !initial {
				f.changed(m.UID)
			}
		},
		UpdateFunc: func(old, obj any) {
			a, b := meta(old), meta(obj)
			if a == nil || b == nil {
				return
			}
			if a.UID != b.UID {
				f.gone(a.UID)
			}
			if a.UID != b.UID || spec && a.Generation != b.Generation || !maps.Equal(a.Labels, b.Labels) ||
				!maps.Equal(a.Annotations, b.Annotations) ||
				!workload.SameOwners(a, b) {
				f.changed(b.UID)
			}
		},
		DeleteFunc: func(obj any) {
			if m := meta(obj); m != nil {
				f.gone(m.UID)
			}
		},
	}
}

// end stops listening. The watches themselves belong to the cache, and end with it.
func (f *follower) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended = true
	for _, k := range f.kinds {
		if k.informer != nil {
			if err := k.informer.RemoveEventHandler(k.handler); err != nil {
				f.log.V(1).Info("an event handler could not be removed", "reason", err.Error())
			}
		}
	}
	clear(f.kinds)
}
