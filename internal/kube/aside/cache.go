package aside

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cache is c, with every event handler and every index that is added to it guarded. An event whose handler panics is lost to that
// handler, which hears of the object again when it changes; an object whose index cannot be computed is not found by it.
func (g *Guard) Cache(c cache.Cache) cache.Cache { return guardedCache{c, g} }

// Transforms guards the functions by which a cache is to trim what it keeps: an object that brings one down is kept as far as it was
// trimmed.
func (g *Guard) Transforms(o *cache.Options) {
	o.DefaultTransform = g.transform(o.DefaultTransform)
	for kind, by := range o.ByObject { // order: each on its own
		by.Transform = g.transform(by.Transform)
		o.ByObject[kind] = by
	}
}

func (g *Guard) transform(f toolscache.TransformFunc) toolscache.TransformFunc {
	if f == nil {
		return nil
	}
	return func(o any) (out any, err error) {
		// The name first: what panics may leave none.
		if g.Do(context.Background(), "a transform", named{o}, func(context.Context) error {
			out, err = f(o)
			return nil
		}) != nil {
			return o, nil
		}
		return out, err
	}
}

// named is an object, of which a log needs no more than the name.
type named struct{ object any }

// String is the kind and the name.
func (n named) String() string {
	if o := n.known(); o != nil {
		return fmt.Sprintf("%T %s", o, client.ObjectKeyFromObject(o))
	}
	return fmt.Sprintf("%T", n.object)
}

// known is the object, nil if it is none.
func (n named) known() client.Object {
	o := n.object
	if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	c, _ := o.(client.Object)
	return c
}

type guardedCache struct {
	cache.Cache
	guard *Guard
}

func (c guardedCache) GetInformer(ctx context.Context, o client.Object, options ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformer(ctx, o, options...)
	if err != nil {
		return nil, err
	}
	return guardedInformer{i, c.guard}, nil
}

func (c guardedCache) GetInformerForKind(ctx context.Context, kind schema.GroupVersionKind, options ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := c.Cache.GetInformerForKind(ctx, kind, options...)
	if err != nil {
		return nil, err
	}
	return guardedInformer{i, c.guard}, nil
}

func (c guardedCache) IndexField(ctx context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	return c.Cache.IndexField(ctx, o, field, func(o client.Object) (values []string) {
		if c.guard.Do(ctx, "an index", named{o}, func(context.Context) error {
			values = extract(o)
			return nil
		}) != nil {
			return nil
		}
		return values
	})
}

type guardedInformer struct {
	cache.Informer
	guard *Guard
}

func (i guardedInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(guardedHandler{h, i.guard})
}

func (i guardedInformer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, every time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(guardedHandler{h, i.guard}, every)
}

func (i guardedInformer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(guardedHandler{h, i.guard}, o)
}

// LastSyncResourceVersion is the version that the watch has passed; "" if the informer does not say.
func (i guardedInformer) LastSyncResourceVersion() string {
	if w, ok := i.Informer.(interface{ LastSyncResourceVersion() string }); ok {
		return w.LastSyncResourceVersion()
	}
	return ""
}

type guardedHandler struct {
	toolscache.ResourceEventHandler
	guard *Guard
}

func (h guardedHandler) call(o any, f func()) {
	// What went wrong has been told.
	_ = h.guard.Do(context.Background(), "an event handler", named{o}, func(context.Context) error { f(); return nil })
}

// OnAdd passes on that an object is there.
func (h guardedHandler) OnAdd(o any, first bool) {
	h.call(o, func() { h.ResourceEventHandler.OnAdd(o, first) })
}

// OnUpdate passes on that an object has changed.
func (h guardedHandler) OnUpdate(was, is any) {
	h.call(is, func() { h.ResourceEventHandler.OnUpdate(was, is) })
}

// OnDelete passes on that an object is gone.
func (h guardedHandler) OnDelete(o any) {
	h.call(o, func() { h.ResourceEventHandler.OnDelete(o) })
}
