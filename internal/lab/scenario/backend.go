package scenario

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/kube/filters"
)

// Backend is a Cluster under the settings of one scenario. It implements enginetest.Backend.
type Backend struct {
	*Cluster
	ctx      context.Context // of the scenario: the interface it implements has none
	begun    time.Time       // in whole seconds
	options  enginetest.Options
	profile  engine.Profile
	feed     feed.Options
	store    cluster.Options
	waiting  []enginetest.Object              // applied, and made when something wants to see them
	lastMade map[string]time.Time             // when the youngest object of a kind was made
	lastPods map[types.NamespacedName]lastPod // the youngest pod of each gang
	owners   map[string]types.UID             // of pods, by namespace
	replaced sync.Map                         // by UID: pods that were evicted and made anew
	playing  atomic.Int32                     // pods with which something is being done
}

type lastPod struct {
	made time.Time
	name string
}

// New returns a backend for one scenario; the cluster should be clean. ctx ends everything it does.
func (c *Cluster) New(ctx context.Context, o *enginetest.Options) (*Backend, error) {
	b := &Backend{Cluster: c, ctx: ctx, begun: time.Now().Truncate(time.Second), options: *o, lastMade: map[string]time.Time{}, lastPods: map[types.NamespacedName]lastPod{}, owners: map[string]types.UID{}}
	var err error
	if b.profile, err = o.Profile(); err != nil {
		return nil, err
	}
	b.feed = feed.Options{
		SchedulerNames: o.Names(), Volcano: o.VolcanoNames(), Sharding: o.NodeShards(), RestrictNodes: o.RestrictGPU != "" || o.RestrictCPU != "",
		GPUWorkerLabel: o.RestrictGPU, CPUWorkerLabel: o.RestrictCPU, FlatQueues: o.FlatQueues,
	}
	b.feed.Zones = b.profile.Uses(numa.Name)
	b.feed.StorageCapacity = slices.Contains(o.Needs, "filters") // as where the filters' own tests play them
	if o.StuckAfter != "" {
		d, err := time.ParseDuration(o.StuckAfter)
		if err != nil {
			return nil, fmt.Errorf("option stuck-after: %w", err)
		}
		b.store.StuckAfter = time.Duration(d.Nanoseconds())
	}
	return b, nil
}

// look lists the cluster and decides as a scheduler that has just started would; nothing takes effect.
func (b *Backend) look() (*cluster.Snapshot, []engine.Plan, *engine.Trace, error) {
	if err := b.flush(); err != nil {
		return nil, nil, nil, err
	}
	store := cluster.NewStore(b.store)
	if err := feed.Rebuild(b.ctx, b.client, b.feed, store); err != nil {
		return nil, nil, nil, err
	}
	snap := store.Snapshot(cluster.InstantOf(time.Now()))
	e, err := engine.New(b.profile, enginetest.WithProbe(filters.Register(builtin.Registry(), filters.Options{StorageCapacity: b.feed.StorageCapacity})))
	if err != nil {
		return nil, nil, nil, err
	}
	var plans []engine.Plan
	r := e.Run(b.ctx, snap, func(p engine.Plan) { plans = append(plans, p) })
	return snap, plans, &r.Trace, nil
}

// Cycle implements enginetest.Backend: what the scheduler would decide, audited.
func (b *Backend) Cycle() ([]engine.Plan, error) {
	snap, plans, _, err := b.look()
	if err != nil {
		return nil, err
	}
	gated := slices.ContainsFunc(b.profile.Tiers, func(tier []engine.PluginUse) bool {
		return slices.ContainsFunc(tier, func(u engine.PluginUse) bool { return u.Name == proportion.Name })
	})
	return plans, enginetest.Audit(snap, plans, gated)
}

// Trace implements enginetest.Backend.
func (b *Backend) Trace() (*engine.Trace, error) {
	_, _, trace, err := b.look()
	return trace, err
}

// Problems lists what is wrong with queues' numbers, by queue name.
func (b *Backend) Problems() []string {
	var list v2.QueueList
	if err := b.client.List(b.ctx, &list); err != nil {
		return []string{err.Error()}
	}
	var out []string
	for i := range list.Items {
		if _, problem := kai.Queue(&list.Items[i]); problem != "" {
			out = append(out, problem)
		}
	}
	return out
}

// Pods implements enginetest.Backend.
func (b *Backend) Pods() ([]*v1.Pod, error) {
	if err := b.flush(); err != nil {
		return nil, err
	}
	var list v1.PodList
	if err := b.client.List(b.ctx, &list); err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	return pointers(list.Items), nil
}

// Nodes implements enginetest.Backend.
func (b *Backend) Nodes() ([]*v1.Node, error) {
	if err := b.flush(); err != nil {
		return nil, err
	}
	var list v1.NodeList
	if err := b.client.List(b.ctx, &list); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return pointers(list.Items), nil
}

// pointers returns the items; lists of an API server are ordered by namespace and name.
func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// Now implements enginetest.Backend: when the scenario began, so that equal ages are equal.
func (b *Backend) Now() time.Time { return b.begun }

// Advance implements enginetest.Backend; a cluster's time cannot be set.
func (b *Backend) Advance(time.Duration) error {
	return fmt.Errorf("a lab's time passes by itself: the scenario needs the engine")
}

// RejectBind implements enginetest.Backend.
func (b *Backend) RejectBind(*v1.Pod, time.Duration) error {
	return fmt.Errorf("a lab's binds fail by themselves: the scenario needs the engine")
}

// Delete implements enginetest.Backend: at once, and it returns when the object is gone.
func (b *Backend) Delete(o enginetest.Object) error {
	if err := b.flush(); err != nil {
		return err
	}
	object, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("cannot delete a %T", o)
	}
	if err := b.remove(b.ctx, object); err != nil {
		return err
	}
	return await(b.ctx, "delete "+o.GetName(), func(ctx context.Context) (bool, error) {
		err := b.client.Get(ctx, client.ObjectKeyFromObject(object), object)
		return err != nil, client.IgnoreNotFound(err)
	})
}
