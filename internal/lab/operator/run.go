package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// workers is how many objects of a kind are handled at a time.
const workers = 8

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// Run plays the operators of kinds until ctx ends: each from when its CRD is established until that is deleted. It
// returns when every goroutine it started has ended. cfg should not limit the rate of requests.
func Run(ctx context.Context, cfg *rest.Config, kinds []Kind) error {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("operator player: %w", err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("operator player: %w", err)
	}
	rows := map[string]Kind{}
	for _, k := range kinds {
		rows[k.Resource.Resource+"."+k.Resource.Group] = k
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// Handlers of one informer run one after the other, so playing needs no lock.
	playing := map[string]context.CancelFunc{}
	see := func(o any) {
		crd, ok := o.(*unstructured.Unstructured)
		if !ok {
			return
		}
		row, ok := rows[crd.GetName()]
		if !ok || playing[crd.GetName()] != nil || !established(crd) {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		playing[crd.GetName()] = cancel
		wg.Go(func() {
			if row.Make != nil {
				row.make(ctx, dyn)
				return
			}
			newPlayer(row, dyn, client).run(ctx)
		})
	}
	crds := dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0).ForResource(crdResource).Informer()
	// Schemas are most of a CRD and of no interest here.
	if err := crds.SetTransform(func(o any) (any, error) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			delete(u.Object, "spec")
			u.SetManagedFields(nil)
		}
		return o, nil
	}); err != nil {
		return fmt.Errorf("operator player: %w", err)
	}
	if _, err := crds.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, o any) { see(o) },
		DeleteFunc: func(o any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
			if stop := playing[key]; err == nil && stop != nil {
				stop()
				delete(playing, key)
			}
		},
	}); err != nil {
		return fmt.Errorf("operator player: %w", err)
	}
	crds.RunWithContext(ctx)
	return nil
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}

// player plays one kind.
type player struct {
	kind   Kind
	dyn    dynamic.Interface
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
	jobs   cache.SharedIndexInformer
	pods   cache.SharedIndexInformer
}

// byJob indexes pods by namespace and name of their job.
const byJob = "job"

func newPlayer(kind Kind, dyn dynamic.Interface, client kubernetes.Interface) *player {
	return &player{
		kind: kind, dyn: dyn, client: client,
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](50*time.Millisecond, 10*time.Second)),
		jobs: dynamicinformer.NewDynamicSharedInformerFactory(dyn, 0).ForResource(kind.Resource).Informer(),
		pods: informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = kind.Selector
		})).Core().V1().Pods().Informer(),
	}
}

func (p *player) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer p.queue.ShutDown()
	enqueue := func(o any) {
		if name, err := cache.DeletionHandlingObjectToName(o); err == nil {
			p.queue.Add(name)
		}
	}
	ofPod := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if pod, ok := o.(*corev1.Pod); ok {
			p.queue.Add(cache.ObjectName{Namespace: pod.Namespace, Name: pod.Labels[p.kind.JobLabel]})
		}
	}
	handle := func(i cache.SharedIndexInformer, f func(any)) bool {
		_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: f, UpdateFunc: func(_, o any) { f(o) }, DeleteFunc: f})
		return err == nil // it fails only on an informer that has stopped, and these have not started
	}
	_ = p.pods.AddIndexers(cache.Indexers{byJob: func(o any) ([]string, error) {
		pod, ok := o.(*corev1.Pod)
		if !ok {
			return nil, nil
		}
		return []string{pod.Namespace + "/" + pod.Labels[p.kind.JobLabel]}, nil
	}})
	if !handle(p.jobs, enqueue) || !handle(p.pods, ofPod) {
		return
	}
	wg.Go(func() { p.jobs.RunWithContext(ctx) })
	wg.Go(func() { p.pods.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), p.jobs.HasSynced, p.pods.HasSynced) {
		return
	}
	for range workers {
		wg.Go(func() {
			for {
				name, quit := p.queue.Get()
				if quit {
					return
				}
				if err := p.sync(ctx, name); err != nil && ctx.Err() == nil {
					p.queue.AddRateLimited(name)
				} else {
					p.queue.Forget(name)
				}
				p.queue.Done(name)
			}
		})
	}
	<-ctx.Done()
}
