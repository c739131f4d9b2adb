package operator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Maker makes what one object's operator makes. It only adds: what the object asks for less of stays.
type Maker struct {
	// Object is the object, as the API server has it. It is not to be changed.
	Object *unstructured.Unstructured

	ctx context.Context
	dyn dynamic.Interface
	err error
}

// errNotYet says that something is missing that others make.
var errNotYet = errors.New("not yet")

func (m *Maker) resource(apiVersion, kind string) dynamic.ResourceInterface {
	gvr, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	return m.dyn.Resource(gvr).Namespace(m.Object.GetNamespace())
}

// Make sees to it that a child of an owner exists, and returns it, or nil once anything has failed. Without an owner it belongs
// to nobody.
func (m *Maker) Make(owner, child *unstructured.Unstructured) *unstructured.Unstructured {
	if m.err != nil {
		return nil
	}
	child.SetNamespace(m.Object.GetNamespace())
	if owner != nil {
		child.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
	}
	r := m.resource(child.GetAPIVersion(), child.GetKind())
	out, err := r.Get(m.ctx, child.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		out, err = r.Create(m.ctx, child, metav1.CreateOptions{})
	}
	if err != nil {
		m.err = fmt.Errorf("make %s %s/%s: %w", child.GetKind(), child.GetNamespace(), child.GetName(), err)
		return nil
	}
	return out
}

// Await returns an object that others make, or nil while there is none; the maker comes back then.
func (m *Maker) Await(apiVersion, kind, name string) *unstructured.Unstructured {
	if m.err != nil {
		return nil
	}
	out, err := m.resource(apiVersion, kind).Get(m.ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		m.err = errNotYet
		return nil
	case err != nil:
		m.err = fmt.Errorf("read %s %s/%s: %w", kind, m.Object.GetNamespace(), name, err)
		return nil
	}
	return out
}

// Label puts labels on a pod that another controller made, as the operator's webhook does when the pod is created.
func (m *Maker) Label(pod *unstructured.Unstructured, labels map[string]string) {
	if m.err != nil {
		return
	}
	missing := &unstructured.Unstructured{Object: map[string]any{}}
	missing.SetLabels(labels)
	missing.SetUID(pod.GetUID())
	raw, err := missing.MarshalJSON()
	if err == nil {
		_, err = m.resource("v1", "Pod").Patch(m.ctx, pod.GetName(), types.MergePatchType, raw, metav1.PatchOptions{})
	}
	if err != nil {
		m.err = fmt.Errorf("label pod %s/%s: %w", pod.GetNamespace(), pod.GetName(), err)
	}
}

// make plays a kind whose row has a Make.
func (k Kind) make(ctx context.Context, dyn dynamic.Interface) {
	queue := workqueue.NewTypedRateLimitingQueue(
		workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](50*time.Millisecond, time.Second))
	objects := dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0).ForResource(k.Resource).Informer()
	add := func(o any) {
		if name, err := cache.DeletionHandlingObjectToName(o); err == nil {
			queue.Add(name)
		}
	}
	if _, err := objects.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
		return // only an informer that has stopped refuses one
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer queue.ShutDown()
	wg.Go(func() { objects.RunWithContext(ctx) })
	wg.Go(func() {
		for {
			name, quit := queue.Get()
			if quit {
				return
			}
			o, found, err := objects.GetStore().GetByKey(name.String())
			u, ok := o.(*unstructured.Unstructured)
			if err == nil && found && ok && u.GetDeletionTimestamp() == nil {
				m := &Maker{Object: u, ctx: ctx, dyn: dyn}
				k.Make(m)
				err = m.err
			}
			if err != nil && ctx.Err() == nil {
				queue.AddRateLimited(name)
			} else {
				queue.Forget(name)
			}
			queue.Done(name)
		}
	})
	<-ctx.Done()
}
