package feed

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/kube/links"
)

// Source hands over the objects of one kind, those there are and how they change. The kind is that of example; objects
// handed over have its type and are not written to any more.
type Source interface {
	// Watch calls h from one goroutine until ctx ends. The channel it returns is closed once h has been told of all
	// objects there were at first.
	Watch(ctx context.Context, example client.Object, h toolscache.ResourceEventHandler) (synced <-chan struct{}, err error)
}

// FromCache makes a Source of the process's shared cache.
func FromCache(c cache.Informers) Source { return cacheSource{c} }

type cacheSource struct{ informers cache.Informers }

func (s cacheSource) Watch(ctx context.Context, example client.Object, h toolscache.ResourceEventHandler) (<-chan struct{}, error) {
	informer, err := s.informers.GetInformer(ctx, example, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("informer for %T: %w", example, err)
	}
	registration, err := informer.AddEventHandler(h)
	if err != nil {
		return nil, fmt.Errorf("handler for %T: %w", example, err)
	}
	context.AfterFunc(ctx, func() {
		_ = informer.RemoveEventHandler(registration) // fails only when the informer has ended, which is as good
	})
	return registration.HasSyncedChecker().Done(), nil
}

// Reached is the version that the watch of a kind has passed, bookmarks included; "" if it is not known.
func (s cacheSource) Reached(ctx context.Context, example client.Object) string {
	informer, err := s.informers.GetInformer(ctx, example, cache.BlockUntilSynced(false))
	if err != nil {
		return ""
	}
	if w, ok := informer.(interface{ LastSyncResourceVersion() string }); ok {
		return w.LastSyncResourceVersion()
	}
	return ""
}

// intake is the handler of one kind: it leaves what it is told in the inbox, and then ends what was told of a pod that needs it no more. In
// the inbox nothing may be left of an object that came and went.
type intake struct {
	kind  dialect.Kind
	inbox *inbox
	links *links.Links
}

func (h intake) put(o client.Object, added bool) {
	h.inbox.put(h.kind, client.ObjectKeyFromObject(o), o, added)
	if p, ok := o.(*v1.Pod); ok {
		h.links.Saw(p)
	}
}

func (h intake) remove(key types.NamespacedName, uid types.UID) {
	h.inbox.remove(h.kind, key)
	if h.kind == dialect.Pods {
		h.links.Gone(key, uid)
	}
}

func (h intake) OnAdd(obj any, _ bool) {
	if o, ok := obj.(client.Object); ok {
		h.put(o, true)
	}
}

func (h intake) OnUpdate(before, after any) {
	old, ok1 := before.(client.Object)
	o, ok2 := after.(client.Object)
	if !ok1 || !ok2 {
		return
	}
	if rv := o.GetResourceVersion(); rv != "" && rv == old.GetResourceVersion() {
		return // a resync
	}
	if !h.kind.Row().Metadata.Empty() && old.GetUID() == o.GetUID() {
		return
	}
	h.put(o, false)
	if h.kind == dialect.Pods && old.GetUID() != o.GetUID() { // it was replaced while nobody watched
		h.links.Gone(client.ObjectKeyFromObject(o), old.GetUID())
	}
}

func (h intake) OnDelete(obj any) {
	switch o := obj.(type) {
	case client.Object:
		h.remove(client.ObjectKeyFromObject(o), o.GetUID())
	case toolscache.DeletedFinalStateUnknown:
		if namespace, name, err := toolscache.SplitMetaNamespaceKey(o.Key); err == nil {
			var uid types.UID
			if last, ok := o.Obj.(client.Object); ok {
				uid = last.GetUID()
			}
			h.remove(types.NamespacedName{Namespace: namespace, Name: name}, uid)
		}
	}
}
