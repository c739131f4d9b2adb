package apply

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
)

// BindOptions tune the writing of BindRequests.
type BindOptions struct {
	// Workers is how many requests are in flight at once; 0 means 32.
	Workers int
	// Partition is the shard that decides.
	Partition kai.Partition
	// Clock is the time retries wait by; nil means the real one.
	Clock clock.Clock
}

// Failure is a bundle that could not be written. None of its BindRequests exists any more, or the binder will withdraw
// those that do as an incomplete bundle.
type Failure struct {
	Bundle engine.Bundle
	Err    error
}

// Binds writes the BindRequests of plans.
type Binds struct {
	client   client.Client // writes
	pods     client.Reader // the cache: preconditions
	o        BindOptions
	work     chan task
	mu       sync.Mutex
	failures []Failure // bounded by the bundles in flight
	failed   chan struct{}
}

// task is one intent of a bundle in flight.
type task struct {
	run    *bundleRun
	intent *engine.Intent
}

// bundleRun is a bundle in flight.
type bundleRun struct {
	bundle engine.Bundle
	size   int
	left   atomic.Int32
	failed atomic.Pointer[error]
}

// attempts bounds how often one BindRequest is tried, about ten seconds in all.
const attempts = 8

// NewBinds returns a writer of BindRequests; Run starts it.
func NewBinds(c client.Client, pods client.Reader, o BindOptions) *Binds {
	if o.Workers <= 0 {
		o.Workers = 32
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Binds{client: c, pods: pods, o: o, work: make(chan task, 4*o.Workers), failed: make(chan struct{}, 1)}
}

// Submit queues the binds of a plan; it waits while too much is queued, and until ctx ends. Nominations need no write.
func (b *Binds) Submit(ctx context.Context, p engine.Plan) {
	for _, bundle := range p.Bundles {
		run := &bundleRun{bundle: bundle}
		for i := range bundle.Intents {
			if bundle.Intents[i].Verb == engine.Bind {
				run.size++
			}
		}
		run.left.Store(int32(run.size))
		for i := range bundle.Intents {
			if bundle.Intents[i].Verb != engine.Bind {
				continue
			}
			select {
			case b.work <- task{run, &bundle.Intents[i]}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Failed is signalled when there are failures to take.
func (b *Binds) Failed() <-chan struct{} { return b.failed }

// Failures returns the bundles that failed since the last call.
func (b *Binds) Failures() []Failure {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.failures
	b.failures = nil
	return out
}

// Run works until ctx ends. It first looks for bundles that an earlier process left half written, and withdraws them.
func (b *Binds) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	done := make(chan struct{})
	orphans, err := b.orphans(ctx)
	if err != nil && ctx.Err() == nil {
		log.Error(err, "looking for unfinished bundles; the binder will withdraw them")
	}
	adopted := make(chan struct{})
	go func() {
		defer close(adopted)
		if err := b.adopt(ctx, orphans); err != nil && ctx.Err() == nil {
			log.Error(err, "withdrawing unfinished bundles; the binder will withdraw them")
		}
	}()
	defer func() { <-adopted }()
	for range b.o.Workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case t := <-b.work:
					b.do(ctx, t)
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	for range b.o.Workers {
		<-done
	}
	return nil
}

func (b *Binds) do(ctx context.Context, t task) {
	if t.run.failed.Load() == nil {
		if err := b.create(ctx, t.run, t.intent); err != nil {
			t.run.failed.CompareAndSwap(nil, &err)
		}
	}
	if t.run.left.Add(-1) > 0 {
		return
	}
	failed := t.run.failed.Load()
	if failed == nil {
		return
	}
	b.withdraw(ctx, t.run)
	b.mu.Lock()
	b.failures = append(b.failures, Failure{t.run.bundle, *failed})
	b.mu.Unlock()
	select {
	case b.failed <- struct{}{}:
	default:
	}
}

// create makes the intent's BindRequest exist, or says why it must not.
func (b *Binds) create(ctx context.Context, run *bundleRun, in *engine.Intent) error {
	if err := b.precondition(ctx, in); err != nil {
		return err
	}
	want := kai.Intent{Namespace: in.Namespace, Pod: in.Pod, PodUID: types.UID(in.UID), Node: in.Node, GPU: in.GPU,
		Bundle: run.bundle.ID, Size: run.size, Partition: b.o.Partition}
	wait := 50 * time.Millisecond
	for try := 1; ; try++ {
		err := b.client.Create(ctx, want.BindRequest())
		switch {
		case err == nil:
			return nil
		case apierrors.IsAlreadyExists(err):
			ours, err := b.replace(ctx, &want)
			if ours || err != nil {
				return err
			}
		case !transient(err):
			return fmt.Errorf("create BindRequest %s/%s: %w", in.Namespace, in.Pod, err)
		}
		if try == attempts {
			return fmt.Errorf("create BindRequest %s/%s: gave up after %d attempts: %w", in.Namespace, in.Pod, try, err)
		}
		select {
		case <-b.o.Clock.After(wait):
			wait *= 2
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errMoved is why an intent is no longer valid.
var errMoved = errors.New("the pod changed since it was decided on")

// precondition checks the intent against the live cache: the pod of this UID is there and still has no node.
func (b *Binds) precondition(ctx context.Context, in *engine.Intent) error {
	var p v1.Pod
	err := b.pods.Get(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, &p)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("%s/%s: %w: it is gone", in.Namespace, in.Pod, errMoved)
		}
		return fmt.Errorf("read pod %s/%s: %w", in.Namespace, in.Pod, err)
	}
	switch {
	case string(p.UID) != in.UID:
		return fmt.Errorf("%s/%s: %w: another pod has its name", in.Namespace, in.Pod, errMoved)
	case p.Spec.NodeName != "":
		return fmt.Errorf("%s/%s: %w: it is on node %s", in.Namespace, in.Pod, errMoved, p.Spec.NodeName)
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("%s/%s: %w: it is being deleted", in.Namespace, in.Pod, errMoved)
	}
	return nil
}

// replace looks at the BindRequest that has our name. It reports true when it is the one we meant to create; it deletes
// one that stands for nothing (another pod's, or a failed one); a live one for the same pod is an error.
func (b *Binds) replace(ctx context.Context, want *kai.Intent) (bool, error) {
	var br v1alpha2.BindRequest
	name := types.NamespacedName{Namespace: want.Namespace, Name: want.Pod}
	if err := b.client.Get(ctx, name, &br); err != nil {
		if apierrors.IsNotFound(err) || transient(err) {
			return false, nil
		}
		return false, fmt.Errorf("read BindRequest %s: %w", name, err)
	}
	have := kai.Read(&br)
	if have.PodUID == want.PodUID && !have.Failed {
		if have.Bundle == want.Bundle && have.Node == want.Node {
			return true, nil
		}
		return false, fmt.Errorf("%s: %w: it has a BindRequest to node %s already", name, errMoved, have.Node)
	}
	return false, b.remove(ctx, &br)
}

func (b *Binds) remove(ctx context.Context, br *v1alpha2.BindRequest) error {
	uid := br.UID
	err := b.client.Delete(ctx, br, client.Preconditions{UID: &uid})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || transient(err) {
		return nil
	}
	return fmt.Errorf("delete BindRequest %s/%s: %w", br.Namespace, br.Name, err)
}

// withdraw deletes what exists of a bundle that failed. What this cannot delete, the binder withdraws as incomplete.
func (b *Binds) withdraw(ctx context.Context, run *bundleRun) {
	for i := range run.bundle.Intents {
		in := &run.bundle.Intents[i]
		if in.Verb != engine.Bind {
			continue
		}
		var br v1alpha2.BindRequest
		if err := b.client.Get(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, &br); err != nil {
			continue
		}
		if br.Labels[kai.BundleLabel] == run.bundle.ID {
			if err := b.remove(ctx, &br); err != nil {
				logr.FromContextOrDiscard(ctx).Error(err, "withdrawing a bundle", "bundle", run.bundle.ID)
			}
		}
	}
}

// Remove deletes a BindRequest that stands for nothing, if it still has that UID.
func (b *Binds) Remove(ctx context.Context, namespace, name string, uid types.UID) error {
	br := &v1alpha2.BindRequest{}
	br.Namespace, br.Name, br.UID = namespace, name, uid
	return b.remove(ctx, br)
}

// transient says whether trying again may help.
func transient(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsConflict(err) || apierrors.ReasonForError(err) == "" && !errors.Is(err, context.Canceled)
}
