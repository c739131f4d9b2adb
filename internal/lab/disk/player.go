package disk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/muster-scheduler/muster/internal/lab"
)

// player is the drivers of all classes. One worker does one thing after the other, so that what is left is known.
type player struct {
	client  kubernetes.Interface
	classes map[string]*lab.Storage // by name
	queue   workqueue.TypedRateLimitingInterface[task]
	nodes   cache.SharedIndexInformer
	claims  cache.SharedIndexInformer
	volumes cache.SharedIndexInformer

	// The worker's own.
	made  map[string]part                // volumes of ours, by name
	said  map[place]int64                // what was last published
	due   map[cache.ObjectName]time.Time // when the volume of a claim is made
	known map[string]bool                // nodes that have their CSINode
}

// task names what to look at: a node, a volume or a claim.
type task struct {
	kind string
	name cache.ObjectName
}

// The kinds of tasks.
const (
	aNode   = "node"
	aVolume = "volume"
	aClaim  = "claim"
)

// place is a value of the label by which a class's volumes are reached.
type place struct{ class, value string }

// part is what a volume takes of its place, in bytes.
type part struct {
	place
	size int64
}

// Run makes the classes and plays their drivers until ctx ends. It returns when every goroutine it started has ended.
// client should not limit the rate of requests.
func Run(ctx context.Context, client kubernetes.Interface, classes []lab.Storage) error {
	if len(classes) == 0 {
		<-ctx.Done()
		return nil
	}
	p := &player{
		client: client, classes: map[string]*lab.Storage{}, made: map[string]part{}, said: map[place]int64{},
		due: map[cache.ObjectName]time.Time{}, known: map[string]bool{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](20*time.Millisecond, 5*time.Second)),
	}
	for i := range classes {
		s := &classes[i]
		p.classes[s.Name] = s
		if _, err := client.StorageV1().CSIDrivers().Create(ctx, s.CSIDriver(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("disk player: driver %s: %w", s.Driver(), err)
		}
		if _, err := client.StorageV1().StorageClasses().Create(ctx, s.Class(), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("disk player: class %s: %w", s.Name, err)
		}
	}
	f := informers.NewSharedInformerFactory(client, 0)
	p.nodes, p.claims, p.volumes = f.Core().V1().Nodes().Informer(), f.Core().V1().PersistentVolumeClaims().Informer(), f.Core().V1().PersistentVolumes().Informer()
	for kind, i := range map[string]cache.SharedIndexInformer{aNode: p.nodes, aClaim: p.claims, aVolume: p.volumes} {
		add := func(o any) {
			if name, err := cache.DeletionHandlingObjectToName(o); err == nil {
				p.queue.Add(task{kind, name})
			}
		}
		if _, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }, DeleteFunc: add}); err != nil {
			return fmt.Errorf("disk player: %w", err)
		}
	}
	f.StartWithContext(ctx)
	defer f.Shutdown()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer p.queue.ShutDown()
	if cache.WaitForCacheSync(ctx.Done(), p.nodes.HasSynced, p.claims.HasSynced, p.volumes.HasSynced) {
		for _, o := range p.volumes.GetStore().List() { // before any volume is made, what there is must be known
			p.learn(o.(*corev1.PersistentVolume))
		}
		wg.Go(func() { p.work(ctx) })
	}
	<-ctx.Done()
	return nil
}

func (p *player) work(ctx context.Context) {
	for {
		t, over := p.queue.Get()
		if over {
			return
		}
		if err := p.handle(ctx, t); err != nil && ctx.Err() == nil {
			p.queue.AddRateLimited(t)
		} else {
			p.queue.Forget(t)
		}
		p.queue.Done(t)
	}
}

func (p *player) handle(ctx context.Context, t task) error {
	informer := map[string]cache.SharedIndexInformer{aNode: p.nodes, aClaim: p.claims, aVolume: p.volumes}[t.kind]
	o, exists, err := informer.GetStore().GetByKey(t.name.String())
	switch {
	case err != nil:
		return err
	case t.kind == aNode && exists:
		return p.node(ctx, o.(*corev1.Node))
	case t.kind == aNode:
		delete(p.known, t.name.Name)
	case t.kind == aClaim && exists:
		return p.claim(ctx, o.(*corev1.PersistentVolumeClaim))
	case t.kind == aClaim:
		delete(p.due, t.name)
	case exists:
		return p.volume(ctx, o.(*corev1.PersistentVolume))
	default:
		return p.gone(ctx, t.name.Name)
	}
	return nil
}

// node says that the drivers are there, and what they have there.
func (p *player) node(ctx context.Context, n *corev1.Node) error {
	if _, played := n.Labels[lab.LabelPool]; !played {
		return nil
	}
	if !p.known[n.Name] {
		c := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: n.Name, UID: n.UID}},
		}}
		for _, s := range p.sorted() {
			if n.Labels[s.Key()] == "" {
				continue
			}
			d := storagev1.CSINodeDriver{Name: s.Driver(), NodeID: n.Name, TopologyKeys: []string{s.Key()}}
			if s.VolumesPerNode > 0 {
				d.Allocatable = &storagev1.VolumeNodeResources{Count: &s.VolumesPerNode}
			}
			c.Spec.Drivers = append(c.Spec.Drivers, d)
		}
		if _, err := p.client.StorageV1().CSINodes().Create(ctx, c, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("CSINode %s: %w", n.Name, err)
		}
		p.known[n.Name] = true
	}
	for _, s := range p.sorted() {
		if value := n.Labels[s.Key()]; value != "" {
			if err := p.publish(ctx, place{s.Name, value}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *player) sorted() []*lab.Storage {
	return slices.SortedFunc(maps.Values(p.classes), func(a, b *lab.Storage) int { return strings.Compare(a.Name, b.Name) })
}
