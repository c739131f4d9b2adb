package roles

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/controllers/vcpodgroup"
	"github.com/muster-scheduler/muster/internal/controllers/vcshardstatus"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/plugins/numa"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/write"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/scheduler"
)

// scheduler builds the loop and everything around it.
func (p *process) scheduler(c client.Client, guard *aside.Guard) (func(context.Context) error, error) {
	prof, err := p.profile()
	if err != nil {
		return nil, err
	}
	prof, unknown := profile.Known(prof, p.actions())
	for _, u := range unknown {
		p.log.Error(nil, "a plugin of the configuration is not known and left out", "problem", u.String())
	}
	if err := p.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "muster", Name: "profile_unknown_plugins", Help: "Plugins of the scheduler's configuration that it does not know and leaves out.",
	}, func() float64 { return float64(len(unknown)) })); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	e, err := engine.New(prof, p.actions())
	if err != nil {
		return nil, err
	}
	if err := p.tellKubeBatchFile(); err != nil {
		return nil, err
	}
	for _, w := range e.Warnings {
		p.log.Info("the profile was understood in part", "problem", w)
	}
	metrics, err := scheduler.NewMetrics(p.MetricsNamespace, p.partition().Pool(), p.registry)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	if len(p.VolcanoNames) > 0 {
		if err := metrics.ServeVolcano(p.registry); err != nil {
			return nil, fmt.Errorf("register metrics of Volcano's: %w", err)
		}
	}
	fo := p.feed()
	fo.Zones, fo.Drained = prof.Uses(numa.Name), metrics.Drained
	fo.Extended = func() bool { return p.has.Has(served.ExtendedByClaim) }
	fo.Links = p.links
	fo.Broken = func(v any, object client.Object, stack []byte) {
		p.log.WithName(Scheduler).Error(fmt.Errorf("panic: %v", v), "an object could not be read: a defect", "object", fmt.Sprintf("%T %s", object, client.ObjectKeyFromObject(object)), "stack", string(stack))
		guard.About(object)
	}
	f := feed.New(feed.FromCache(p.cache), fo)
	if p.inspector, err = feed.NewInspector(f, p.client, feed.InspectorOptions{Reads: p.reads(), Registry: p.registry, Guard: guard}); err != nil {
		return nil, err
	}
	kit, err := write.New(c, Scheduler, p.registry)
	if err != nil {
		return nil, err
	}
	eo, err := p.evictions()
	if err != nil {
		return nil, err
	}
	pool := apply.NewPool(guard)
	annotations := apply.NewAnnotations(pool, kit, p.grouped)
	event := p.events.recorder(p.SchedulerNames[0])
	events := apply.NewEvents(pool, p.partition().Pool(), p.Client.QPS, event)
	var known atomic.Pointer[cluster.Snapshot]
	fates := &apply.Fates{}
	eo.Latest, eo.Fates, eo.Links = known.Load, fates, p.links
	bo, err := p.binds()
	if err != nil {
		return nil, err
	}
	eo.Written = events.Busy
	bo.Latest, bo.Fates, bo.Bound, bo.Links = known.Load, fates, events.Bound, p.links
	bo.Written = func(after time.Duration) { metrics.Bound(after); events.Busy() }
	bo.Complete = func(b *engine.Bundle, asked bool) {
		if b.Starts { // a pod that is a gang by itself has got it with its Binding
			annotations.Set(b.Gang, b.UID, keys.LastStartAnnotation, cluster.InstantOf(time.Now()))
		}
		switch {
		case asked:
			events.Scheduled(b)
		case len(b.Intents) > 1:
			events.BoundGang(b)
		}
	}
	binds := apply.NewBinds(pool, c, p.cache, bo)
	evictions, nominations := apply.NewEvictions(pool, kit, p.cache, eo), apply.NewNominations(pool, kit, p.cache, apply.NominationOptions{Event: events.OfPodLater})
	if err := p.registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "muster", Name: "evicting_bundles", Help: "Decisions whose evictions are being carried out.",
	}, func() float64 { return float64(evictions.Open()) })); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	ro, err := p.statusOptions()
	if err != nil {
		return nil, err
	}
	ro.Event, ro.Bound, ro.Autoscaled = event, events.Last, sync.OnceValue(p.autoscaled)
	statuses := told{apply.NewStatuses(pool, kit, p.cache, ro)}
	statuses = append(statuses, apply.NewUpstreams(pool, kit, p.cache, ro.Settle), apply.NewStrays(pool, kit, p.cache, ro))
	if len(p.VolcanoNames) > 0 {
		statuses = append(statuses, apply.NewGroups(pool, kit, p.cache, ro))
	}
	if len(p.KubeBatchNames) > 0 {
		statuses = append(statuses, apply.NewKubeBatchGroups(pool, kit, p.cache, ro))
	}
	if p.recorder, err = replay.NewRecorder(p.version, prof, p.CSIStorage, p.RecordDecisions); err != nil {
		return nil, fmt.Errorf("--record-decisions: %w", err)
	}
	lo := p.loop()
	lo.Decided, lo.Known = p.recorder.Decided, known.Store
	if p.QueueGates {
		lo.Lifted = apply.NewGates(pool, kit).Publish
	}
	used := []func(engine.Profile){p.recorder.Use}
	var answers *answering
	if p.Explain {
		answers = p.newAnswering(apply.NewAnswers(pool, kit, keys.WhyAnnotation, keys.StartsAnnotation), guard)
	}
	if p.servesCycles() {
		var follow func(engine.Profile)
		if lo.Decided, follow, err = p.newCycles(prof); err != nil {
			return nil, err
		}
		used = append(used, follow)
	}
	var shards runner
	if s := p.sharding(); s.On() {
		if shards, err = vcshardstatus.New(p.shell(p.log.WithName(Scheduler), c, guard), s.Name); err != nil {
			return nil, err
		}
	}
	file, runFile, err := p.followFile(prof, used, guard)
	if err != nil {
		return nil, err
	}
	if file != nil {
		lo.Engines, lo.NodeUse = file, file.measure
	}
	lo.Watch = func(what string) scheduler.Work { return p.dog.Begin(what) }
	lo.Event, lo.Annotated, lo.Later, lo.Records = ro.Event, p.events.annotated(p.SchedulerNames[0]), events.Later, p.records
	past, err := p.usage()
	if err != nil {
		return nil, err
	}
	past.guard = guard
	// A process that waits for its turn follows the cluster, so that its turn begins with what it knows.
	store, turn, handed := scheduler.NewStore(lo), make(chan struct{}), make(chan struct{})
	p.group.Add("feed", untilAsked(f.Run))
	p.group.Add("inspector", p.inspector.Run)
	p.group.Add("standby", func(ctx context.Context) error {
		scheduler.Follow(ctx, turn, f, store)
		close(handed)
		<-ctx.Done()
		return nil
	})
	return func(ctx context.Context) error {
		close(turn) // a process leads once
		p.links.Open(func(labels map[string]string) bool { return f.Watching() && fo.Partition.Includes(labels) })
		select {
		case <-handed:
		case <-ctx.Done():
			return nil
		}
		var g app.Group
		keeper, done, err := past.open(ctx)
		if err != nil {
			return err
		}
		defer done()
		if keeper != nil {
			lo.Usage = keeper
			g.Add("usage", keeper.Run)
		}
		ro.Autoscaled() // asked now, so that no cycle waits for the answer
		loop := scheduler.New(scheduler.Parts{
			Feed: f, Store: store, Engine: e, Binds: binds, Evictions: evictions, Nominations: nominations, Annotations: annotations, Statuses: statuses, Metrics: metrics,
		}, lo)
		g.Add("writers", pool.Run)
		g.Add("loop", loop.Run)
		if file != nil {
			g.Add("scheduler-file", runFile)
			g.Add("node-use", file.measure.Run)
		}
		if len(p.VolcanoNames) > 0 {
			g.Add("bare-pods", untilAsked(vcpodgroup.NewTeller(vcpodgroup.TellerDeps{Cache: p.cache, Links: p.links, Log: p.log.WithName(Scheduler), Guard: guard}, p.VolcanoNames).Run))
		}
		if shards != nil {
			g.Add("node-shard", untilAsked(shards.Run))
		}
		if answers != nil {
			g.Add("answers", answers.Run)
		}
		return g.Run(ctx)
	}, nil
}

// grouped says whether a gang has a PodGroup, as far as the cache knows.
func (p *process) grouped(gang cluster.Key) bool {
	name := types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}
	return !apierrors.IsNotFound(p.cache.Get(context.Background(), name, &v2alpha2.PodGroup{}, client.UnsafeDisableDeepCopy))
}

// actions are the actions and plugins of the scheduler.
func (p *process) actions() engine.Registry {
	return filters.Register(builtin.Registry(), filters.Options{StorageCapacity: p.CSIStorage})
}
