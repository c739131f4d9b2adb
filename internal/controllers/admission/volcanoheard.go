package admission

import (
	"context"
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/kube/served"
)

// heard is what watches have told of Volcano's queues and PodGroups: where queues are in the tree and whether they are open, and in which PodGroups pods run. By it reviews say yes without a list of
// all that there is; before they say no, they read what is so now. Its zero value has heard nothing. It is safe for concurrent use.
//
// It is behind the API server, mostly by milliseconds, and by more while a watch is broken. So a Job or PodGroup may come into a queue that has just been closed or deleted or has got one below it, and a
// queue below one in which pods have just begun to run. The same happens where the change comes right after the review, which no review can know, and it harms nobody: what is new in such a queue
// waits with that as its reason (QueueClosed, QueueDoesNotExist, QueueNotLeaf), and what runs in it runs on and is charged where it is.
//
// Rules that compare queues with each other, such as their amounts, are not judged by it: two queues that come one right after the other must not be more together than either may.
type heard struct {
	mu            sync.Mutex
	queues        map[string]*v1beta1.Queue
	tree          *volcano.Forest                              // of queues; nil: it is to be made anew
	running       map[string]map[types.NamespacedName]struct{} // by queue, of those in which pods run
	queuesSynced  func() bool                                  // nil before the watch begins
	runningSynced func() bool
}

// trimHeard keeps of a queue or PodGroup what heard takes in: whoever may make one decides how large it is.
func trimHeard(obj any) (any, error) {
	switch o := obj.(type) {
	case *v1beta1.Queue:
		return &v1beta1.Queue{
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, ResourceVersion: o.ResourceVersion}, Spec: v1beta1.QueueSpec{Parent: o.Spec.Parent}, Status: v1beta1.QueueStatus{State: o.Status.State},
		}, nil
	case *v1beta1.PodGroup:
		return &heardGroup{types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, o.ResourceVersion, runsIn(o)}, nil
	}
	return obj, nil
}

// heardGroup is what the cache keeps of a PodGroup, of which there may be many: half of what a PodGroup takes that says no more.
type heardGroup struct {
	key     types.NamespacedName
	version string
	queue   string // in which pods of it run, "" for none
}

// GetObjectMeta is what the cache asks of an object.
func (g *heardGroup) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: g.key.Namespace, Name: g.key.Name, ResourceVersion: g.version}
}

// Hear follows Volcano's queues and PodGroups until ctx ends, which is no error, so that reviews need no lists. It waits for an API server that does not serve them yet. Where the face is off there is
// nothing to hear.
func (c *Controller) Hear(ctx context.Context) error {
	if len(c.options.Volcano) > 0 {
		deaf := func() {}
		try := func() error {
			stop, err := c.heard.listen(ctx, c.deps.Cache)
			if err == nil {
				deaf = stop
			}
			return err
		}
		if err := try(); err != nil {
			c.deps.Log.Info("Volcano's queues and PodGroups cannot be watched; reviews list them until they can", "error", err.Error())
			served.Await(ctx, try)
		}
		defer deaf()
	}
	<-ctx.Done()
	return nil
}

// listen begins to hear what a cache tells, until stop.
func (h *heard) listen(ctx context.Context, objects cache.Cache) (stop func(), err error) {
	stopQueues, queuesSynced, err := follow(ctx, objects, &v1beta1.Queue{}, h.queue)
	if err != nil {
		return nil, err
	}
	stopGroups, runningSynced, err := follow(ctx, objects, &v1beta1.PodGroup{}, h.group)
	if err != nil {
		stopQueues()
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.queuesSynced, h.runningSynced = queuesSynced, runningSynced
	return func() { stopQueues(); stopGroups() }, nil
}

// follow has changed called with what is kept of each object of a kind, as it was and is, nil for nothing, until stop; synced says whether all that was there at the beginning has been told.
func follow[T any](ctx context.Context, objects cache.Cache, kind client.Object, changed func(was, is *T)) (stop func(), synced func() bool, err error) {
	informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, nil, fmt.Errorf("admission role: watch %T: %w", kind, err)
	}
	as := func(o any) *T {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		o, _ = trimHeard(o) // nothing is left to do, unless the cache keeps more
		kept, _ := o.(*T)
		return kept
	}
	handle, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(is any) { changed(nil, as(is)) }, UpdateFunc: func(was, is any) { changed(as(was), as(is)) }, DeleteFunc: func(was any) { changed(as(was), nil) },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("admission role: watch %T: %w", kind, err)
	}
	return func() { _ = informer.RemoveEventHandler(handle) }, handle.HasSynced, nil
}

// queue takes in that a queue is what it was not.
func (h *heard) queue(was, is *v1beta1.Queue) {
	switch {
	case was == nil && is == nil:
		return
	case was != nil && is != nil && was.Spec.Parent == is.Spec.Parent && was.Status.State == is.Status.State:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tree = nil; is == nil {
		delete(h.queues, was.Name)
		return
	}
	if h.queues == nil {
		h.queues = map[string]*v1beta1.Queue{}
	}
	h.queues[is.Name] = is
}

// group takes in that a PodGroup is what it was not.
func (h *heard) group(was, is *heardGroup) {
	if was != nil && is != nil && was.queue == is.queue {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if was != nil {
		if delete(h.running[was.queue], was.key); len(h.running[was.queue]) == 0 {
			delete(h.running, was.queue)
		}
	}
	if is == nil || is.queue == "" {
		return
	}
	if h.running == nil {
		h.running = map[string]map[types.NamespacedName]struct{}{}
	}
	if h.running[is.queue] == nil {
		h.running[is.queue] = map[types.NamespacedName]struct{}{}
	}
	h.running[is.queue][is.key] = struct{}{}
}

// runsIn is the queue in which pods of a PodGroup run, "" for none.
func runsIn(g *v1beta1.PodGroup) string {
	if g.Status.Running <= 0 {
		return ""
	}
	return g.Spec.Queue
}

// forest is the tree of queues as far as it has been heard: their names, parents and states; known says whether all of it has.
func (h *heard) forest() (tree volcano.Forest, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.queuesSynced == nil || !h.queuesSynced() {
		return volcano.Forest{}, false
	}
	if h.tree == nil {
		all := make([]*v1beta1.Queue, 0, len(h.queues))
		for _, q := range h.queues { // order: the forest has its own
			all = append(all, q)
		}
		tree := volcano.NewForest(all...)
		h.tree = &tree
	}
	return *h.tree, true
}

// runs is one of the PodGroups of a queue in which pods run, with an empty name if there is none; known says whether all of them have been heard.
func (h *heard) runs(queue string) (one types.NamespacedName, known bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runningSynced == nil || !h.runningSynced() {
		return one, false
	}
	for one = range h.running[queue] { // order: any of them does
		break
	}
	return one, true
}
