package feed

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/dialect/volcano/nodeshards"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kube/served"
)

// Options say whose scheduler this is and what it is responsible for. The zero value is KAI's defaults without shards.
type Options struct {
	// SchedulerNames are the values of spec.schedulerName we answer to; nil means kai.DefaultSchedulerName alone.
	SchedulerNames []string
	// Volcano are the values of spec.schedulerName by which pods are Volcano's, which then has its kinds watched too; none: they are others'.
	Volcano []string
	// KubeBatch is the face of kube-batch, which has its kinds watched if it has scheduler names.
	KubeBatch dialect.KubeBatch
	// Sharding is the part of Volcano's pods in its NodeShards, which are watched if it has one.
	Sharding nodeshards.Sharding
	// Partition is the shard: nodes, queues and PodGroups outside it do not exist for us.
	Partition kai.Partition
	// ReservationApp is the value of the label app on reservation pods, ReservationSpace and ScalingSpace are the namespaces of
	// reservation and scaling pods; "" means KAI's.
	ReservationApp, ReservationSpace, ScalingSpace string
	// RestrictNodes keeps pods that ask for GPUs on nodes labelled GPUWorkerLabel, and all others on nodes labelled
	// CPUWorkerLabel.
	RestrictNodes                  bool
	GPUWorkerLabel, CPUWorkerLabel string
	// MIGWorkerLabel is the label that says whether the GPUs of a node are cut into slices; "" for KAI's.
	MIGWorkerLabel string
	// FlatQueues puts all queues side by side (--full-hierarchy-fairness=false): parents are not looked at, so that their
	// quotas, limits and weights do not bind their children.
	FlatQueues bool
	// Zones also watches NodeResourceTopologies, and reads which NUMA zones pods need and have (plugin numa). With Volcano's face they are watched in any case: of its pods those
	// that name a policy need zones.
	Zones bool
	// QueueLabel is the key of the label that says to which queue a resource claim that pods share belongs; "" means KAI's.
	QueueLabel string
	// Extended says, whenever it is asked, whether the API server lets pods have extended resources as devices, by a claim that is made
	// for them (its feature gate DRAExtendedResource, which no client can see). Where it does not, a DeviceClass stands for an extended
	// resource only if some class says extendedResourceName, which such an API server would have dropped. Nil means that it does.
	Extended func() bool
	// StorageCapacity also watches CSIStorageCapacities (--schedule-csi-storage).
	StorageCapacity bool
	// Drained hears of each Drain that had something to take in: of how many objects, and how long the oldest had waited. It is
	// called by Drain's goroutine and must not block. Nil hears nothing.
	Drained func(objects int, waited time.Duration)
	// Links are what the podgrouper of the process tells of pods, which are read as if they carried it; nil for nothing.
	Links *links.Links
	// Broken hears of an object, of which it gets kind and name, the reading of which ended in a panic. It is called by Drain's goroutine.
	// Nil hears nothing.
	Broken func(v any, object client.Object, stack []byte)
}

// wanted says whether objects of the kind are looked at at all.
func (o *Options) wanted(k dialect.Kind) bool {
	return !k.Row().Unread && o.faced(k.Row().Face) && (k != dialect.VolcanoNodeShards || o.Sharding.On()) && (k != dialect.CSIStorageCapacities || o.StorageCapacity) && (k != dialect.NodeResourceTopologies || o.Zones || o.faced(volcano.Face))
}

// faced says whether there is a face.
func (o *Options) faced(face string) bool {
	switch face {
	case volcano.Face:
		return len(o.Volcano) > 0
	case kubebatch.Face:
		return len(o.KubeBatch.Schedulers) > 0
	}
	return true
}

// Feed takes in what a Source delivers until it is drained into a Store. Create it with New.
type Feed struct {
	source     Source
	kinds      []dialect.Kind
	inbox      *inbox
	translator *translator
	links      *links.Links
	watching   atomic.Bool
	synced     atomic.Bool

	drained func(objects int, waited time.Duration)

	asking    sync.Mutex
	inquiries []*inquiry // of an Inspector
}

// New returns a feed that has not started; Run starts it.
func New(source Source, o Options) *Feed {
	f := &Feed{source: source, inbox: newInbox(), translator: newTranslator(o), links: o.Links, drained: o.Drained}
	f.links.Hear(f.inbox.putAgain)
	for k := range dialect.Kinds {
		if o.wanted(k) {
			f.kinds = append(f.kinds, k)
		}
	}
	return f
}

// Run watches until ctx ends, and then returns nil; an error means that it could not start to watch. It is called once.
func (f *Feed) Run(ctx context.Context) error {
	var absent sync.WaitGroup
	defer absent.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	waits := make([]<-chan struct{}, 0, len(f.kinds))
	for _, k := range f.kinds {
		synced, err := f.source.Watch(ctx, k.Watched(), intake{k, f.inbox, f.links})
		switch {
		case k.Row().Optional && meta.IsNoMatchError(err):
			absent.Go(func() {
				served.Await(ctx, func() error {
					_, err := f.source.Watch(ctx, k.Watched(), intake{k, f.inbox, f.links})
					return err
				})
			})
		case err != nil:
			return err
		default:
			waits = append(waits, synced)
		}
	}
	f.watching.Store(true)
	for _, synced := range waits {
		select {
		case <-synced:
		case <-ctx.Done():
			return nil
		}
	}
	f.synced.Store(true)
	f.inbox.nudge() // even an empty cluster is news once it is known to be empty
	<-ctx.Done()
	return nil
}

// Synced says whether everything there was at the start has come in. From then on a Drain makes the Store complete.
func (f *Feed) Synced() bool { return f.synced.Load() }

// Watching says whether every event from now on comes in: what is told of a pod (Options.Links) is then ended by what becomes of it.
func (f *Feed) Watching() bool { return f.watching.Load() }

// Changed delivers a token when there is something to drain, and once when the feed becomes synced. Any number of changes
// may stand behind one token.
func (f *Feed) Changed() <-chan struct{} { return f.inbox.changed }

// Waiting is the number of objects that wait to be drained.
func (f *Feed) Waiting() int { return f.inbox.len() }

// Drain applies everything that has come in to the store and returns how many of its events changed it. It must be
// called by the goroutine that owns the store, and always with the same store. It costs what has come in.
func (f *Feed) Drain(store *cluster.Store) int {
	boxes, again, since := f.inbox.take()
	if f.drained != nil && !since.IsZero() {
		objects := 0
		for k := range boxes {
			objects += len(boxes[k].entries)
		}
		f.drained(objects, time.Since(since))
	}
	n := f.translator.work(&boxes, again, store)
	f.answer(store)
	return n
}

// StaleBindRequests lists, as of the last Drain, the BindRequests of our shard that no longer stand for anything and stand
// in the way of a new decision, by namespace and name. Each stays listed until it is gone. Called by Drain's goroutine.
func (f *Feed) StaleBindRequests() []StaleBindRequest { return f.translator.Stale() }

// Problems says, as of the last Drain, which objects were understood only in part, and why: one sentence by
// "Kind namespace/name". Called by Drain's goroutine.
func (f *Feed) Problems() map[string]string { return f.translator.Problems() }
