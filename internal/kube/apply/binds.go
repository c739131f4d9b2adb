package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// BindOptions tune the writing of BindRequests.
type BindOptions struct {
	// Workers is how many requests are in flight at once; 0 means 32.
	Workers int
	// Partition is the shard that decides.
	Partition kai.Partition
	// Written, if set, is told of each BindRequest that was made, and of each pod that was bound without one, with the time since its plan was submitted. It is
	// called by many goroutines and must not block.
	Written func(after time.Duration)
	// Alone has a pod that is the only one of its bundle, and needs no preparing, bound at once, without a BindRequest.
	Alone bool
	// Bound, if set, is told of each pod that was bound so. Like Written, it must not block.
	Bound func(in *engine.Intent)
	// Complete, if set, is told of each bundle all of whose requests have been made. Like Written, it must not block.
	Complete func(b *engine.Bundle)
	// Fates is what becomes of bundles, shared with Evictions; nil for one of its own.
	Fates *Fates
	// Latest is asked whether there is still room, at the moment of each write; nil: nobody is.
	Latest Latest
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
}

// Failure is a bundle that could not be written. None of its BindRequests exists any more, or the binder will withdraw
// those that do as an incomplete bundle.
type Failure struct {
	Bundle engine.Bundle
	Err    error
}

// ErrMoved is why a decision is no longer valid: its pod is not what it was, or has been decided on by somebody else.
// It is the one failure that is no fault of anything: the event that tells is on its way.
var ErrMoved = errors.New("the pod changed since it was decided on")

// Binds writes the BindRequests of plans.
type Binds struct {
	client   client.Client // writes, and reads that must not be stale
	pods     client.Reader // the cache: preconditions
	o        BindOptions
	work     *line[task]
	mu       sync.Mutex
	failures []Failure // bounded by the bundles in flight
	failed   chan struct{}
}

// task is one intent of a bundle in flight, or one BindRequest to delete.
type task struct {
	run    *bundleRun
	intent int
	delete *v1alpha2.BindRequest
}

// bundleRun is a bundle in flight.
type bundleRun struct {
	bundle    engine.Bundle
	decided   uint64 // Plan.Generation
	submitted time.Time
	size      int
	left      atomic.Int32
	failed    atomic.Pointer[error]
	made      []made // by intent, each written by the one worker that has it, read by the last of them
}

// made is what is known of one intent's BindRequest.
type made struct {
	uid    types.UID // "" for: not made
	unsure bool      // an answer was lost: it may have been made all the same
}

// NewBinds returns a writer of BindRequests; Run starts it.
func NewBinds(c client.Client, pods client.Reader, o BindOptions) *Binds {
	if o.Workers <= 0 {
		o.Workers = 32
	}
	if o.Fates == nil {
		o.Fates = &Fates{}
	}
	if o.Written == nil {
		o.Written = func(time.Duration) {}
	}
	if o.Bound == nil {
		o.Bound = func(*engine.Intent) {}
	}
	if o.Complete == nil {
		o.Complete = func(*engine.Bundle) {}
	}
	return &Binds{client: c, pods: pods, o: o, work: newLine[task](4 * o.Workers), failed: make(chan struct{}, 1)}
}

// Submit queues the binds of a plan, and waits for nothing. Nominations need no write.
func (b *Binds) Submit(p engine.Plan) {
	var tasks []task
	for i := range p.Bundles {
		run := &bundleRun{bundle: p.Bundles[i], decided: p.Generation, submitted: time.Now(), made: make([]made, len(p.Bundles[i].Intents))}
		for j := range run.bundle.Intents {
			if run.bundle.Intents[j].Verb == engine.Bind {
				run.size++
			}
		}
		if run.size == 0 {
			continue
		}
		b.o.Fates.begin(run.bundle.ID)
		run.left.Store(int32(run.size))
		for j := range run.bundle.Intents {
			if run.bundle.Intents[j].Verb == engine.Bind {
				tasks = append(tasks, task{run: run, intent: j})
			}
		}
	}
	b.work.put(tasks...)
}

// Full says that four times as much is queued as can be in flight, or more: a decision that cannot be written yet only grows old.
func (b *Binds) Full() bool { return b.work.full() }

// Room is signalled when Full has come to an end.
func (b *Binds) Room() <-chan struct{} { return b.work.room }

// Remove queues the delete of a BindRequest that stands for nothing, if it still has that UID by then. False means that too much is
// queued. A delete that fails is logged, not repeated: who asked sees that it is still there.
func (b *Binds) Remove(namespace, name string, uid types.UID) bool {
	if b.work.full() {
		return false
	}
	br := &v1alpha2.BindRequest{}
	br.Namespace, br.Name, br.UID = namespace, name, uid
	b.work.put(task{delete: br})
	return true
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

// Run works until ctx ends. It first looks for bundles that an earlier process left half written, and withdraws them. A
// bundle that is half written when ctx ends is left to the next process, and to the binder, which withdraws what stays
// incomplete.
func (b *Binds) Run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	orphans, err := b.orphans(ctx)
	if err != nil && ctx.Err() == nil {
		log.Error(err, "looking for unfinished bundles; the binder will withdraw them")
	}
	var workers sync.WaitGroup
	workers.Go(func() {
		if err := b.o.Guard.Catch("unfinished bundles", "all", func() error { return b.adopt(ctx, orphans) }); err != nil && ctx.Err() == nil {
			log.Error(err, "withdrawing unfinished bundles; the binder will withdraw them")
		}
	})
	drain(ctx, b.work, b.o.Workers, b.do)
	workers.Wait()
	return nil
}

func (b *Binds) do(ctx context.Context, t task) {
	if t.delete != nil {
		if err := b.o.Guard.Catch("a stale BindRequest", t.delete, func() error { return b.remove(ctx, t.delete, false) }); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).Error(err, "a stale BindRequest stays for now")
		}
		return
	}
	if t.run.failed.Load() == nil {
		if err := b.o.Guard.Catch("a BindRequest", named(&t.run.bundle.Intents[t.intent]), func() error { return b.create(ctx, t.run, t.intent) }); err != nil {
			t.run.failed.CompareAndSwap(nil, &err)
		}
	}
	if t.run.left.Add(-1) > 0 {
		return
	}
	failed := t.run.failed.Load()
	if failed == nil {
		b.o.Fates.end(t.run.bundle.ID, nil)
		// What went wrong has been told; the bundle is complete all the same.
		_ = b.o.Guard.Catch("a complete bundle", t.run.bundle.ID, func() error { b.o.Complete(&t.run.bundle); return nil })
		return
	}
	if ctx.Err() != nil {
		return
	}
	b.withdraw(ctx, t.run)
	b.o.Fates.end(t.run.bundle.ID, *failed)
	b.mu.Lock()
	b.failures = append(b.failures, Failure{t.run.bundle, *failed})
	b.mu.Unlock()
	signal(b.failed)
}

// create carries the intent out, by a BindRequest or at once, or says why it must not.
func (b *Binds) create(ctx context.Context, run *bundleRun, index int) error {
	in := &run.bundle.Intents[index]
	p, err := stillWaits(ctx, b.pods, in)
	if err != nil {
		return err
	}
	want := kai.Intent{
		Namespace: in.Namespace, Pod: in.Pod, PodUID: types.UID(in.UID), Node: in.Node, GPU: in.GPU, Groups: in.Groups, Zones: in.Zones, Claims: in.Claims, Containers: kai.Containers(p, in.Claims),
		Charged: in.Charged,
		Bundle:  run.bundle.ID, Size: run.size, Decided: run.submitted, Partition: b.o.Partition,
	}
	attempt, what := func() (bool, error) { return b.request(ctx, &want, &run.made[index]) }, "create BindRequest"
	if b.o.Alone && run.size == 1 && !want.NeedsBinder(p) {
		if err := b.unasked(ctx, &want); err != nil {
			return err
		}
		attempt, what = func() (bool, error) { return b.bind(ctx, in, p, &want) }, "bind pod"
	}
	for try := 1; ; try++ {
		if err := cmp.Or(b.o.Fates.check(run.bundle.DependsOn), b.o.Latest.checkBind(run.decided, in)); err != nil {
			return err
		}
		again, err := attempt()
		switch {
		case err == nil:
			b.o.Written(time.Since(run.submitted))
			return nil
		case !again:
			return fmt.Errorf("%s %s/%s: %w", what, in.Namespace, in.Pod, err)
		case try == attempts:
			return fmt.Errorf("%s %s/%s: gave up after %d attempts: %w", what, in.Namespace, in.Pod, try, err)
		}
		if other := run.failed.Load(); other != nil {
			return *other // the bundle is lost already
		}
		if !pause(ctx, try) {
			return ctx.Err()
		}
	}
}

// request makes the BindRequest of an intent exist. again says that trying again may help.
func (b *Binds) request(ctx context.Context, want *kai.Intent, note *made) (again bool, err error) {
	br := want.BindRequest()
	err = b.client.Create(ctx, br)
	switch {
	case err == nil:
		note.uid = br.UID
	case apierrors.IsAlreadyExists(err):
		uid, replaceErr := b.replace(ctx, want)
		if replaceErr != nil {
			return false, replaceErr
		}
		if uid == "" {
			return true, err
		}
		note.uid = uid // an earlier attempt made it, and its answer was lost
	case transient(err):
		note.unsure = true
		return true, err
	default:
		return false, err
	}
	return false, nil
}

// stillWaits checks the intent against the live cache: the pod of this UID is there and still has no node; it returns the pod.
func stillWaits(ctx context.Context, pods client.Reader, in *engine.Intent) (*v1.Pod, error) {
	var p v1.Pod
	err := pods.Get(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, &p)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("%s/%s: %w: it is gone", in.Namespace, in.Pod, ErrMoved)
		}
		return nil, fmt.Errorf("read pod %s/%s: %w", in.Namespace, in.Pod, err)
	}
	return &p, moved(&p, in)
}

// moved says why a pod is not the one that the intent means, or waits for a node no more; nil for neither.
func moved(p *v1.Pod, in *engine.Intent) error {
	switch {
	case string(p.UID) != in.UID:
		return fmt.Errorf("%s/%s: %w: another pod has its name", in.Namespace, in.Pod, ErrMoved)
	case p.Spec.NodeName != "":
		return fmt.Errorf("%s/%s: %w: it is on node %s", in.Namespace, in.Pod, ErrMoved, p.Spec.NodeName)
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("%s/%s: %w: it is being deleted", in.Namespace, in.Pod, ErrMoved)
	case p.Status.Phase == v1.PodFailed || p.Status.Phase == v1.PodSucceeded:
		return fmt.Errorf("%s/%s: %w: it has ended", in.Namespace, in.Pod, ErrMoved)
	case len(p.Spec.SchedulingGates) > 0:
		return fmt.Errorf("%s/%s: %w: it has scheduling gates", in.Namespace, in.Pod, ErrMoved)
	}
	return nil
}

// replace looks at the BindRequest that has our name. It returns the UID of the one we meant to create; it deletes one
// that stands for nothing (another pod's, or a failed one) and returns ""; a live one for the same pod is an error.
func (b *Binds) replace(ctx context.Context, want *kai.Intent) (types.UID, error) {
	var br v1alpha2.BindRequest
	name := types.NamespacedName{Namespace: want.Namespace, Name: want.Pod}
	if err := b.client.Get(ctx, name, &br); err != nil {
		if apierrors.IsNotFound(err) || transient(err) {
			return "", nil
		}
		return "", fmt.Errorf("read BindRequest %s: %w", name, err)
	}
	have := kai.Read(&br)
	switch {
	case br.DeletionTimestamp != nil:
		return "", nil // it is going; try again when it is gone
	case have.PodUID == want.PodUID && !have.Failed:
		if have.Bundle == want.Bundle && have.Node == want.Node && slices.Equal(have.Groups, want.Groups) {
			return br.UID, nil
		}
		return "", fmt.Errorf("%s: %w: it has a BindRequest to node %s already", name, ErrMoved, have.Node)
	}
	if err := b.remove(ctx, &br, false); err != nil && !transient(err) {
		return "", err
	}
	return "", nil
}

// remove deletes a BindRequest if it still has its UID; exact: and its version. One that is gone, or another by now, is no error.
func (b *Binds) remove(ctx context.Context, br *v1alpha2.BindRequest, exact bool) error {
	uid, version := br.UID, br.ResourceVersion
	demand := client.Preconditions{UID: &uid}
	if exact {
		demand.ResourceVersion = &version
	}
	err := b.client.Delete(ctx, br, demand)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete BindRequest %s/%s: %w", br.Namespace, br.Name, err)
}

// withdraw deletes what exists of a bundle that failed. What this cannot delete, the binder withdraws as incomplete.
func (b *Binds) withdraw(ctx context.Context, run *bundleRun) {
	log := logr.FromContextOrDiscard(ctx)
	for i := range run.made {
		in, m := &run.bundle.Intents[i], run.made[i]
		br := &v1alpha2.BindRequest{}
		br.Namespace, br.Name, br.UID = in.Namespace, in.Pod, m.uid
		if m.uid == "" {
			if !m.unsure || b.client.Get(ctx, client.ObjectKeyFromObject(br), br) != nil || br.Labels[kai.BundleLabel] != run.bundle.ID {
				continue
			}
		}
		if err := b.remove(ctx, br, false); err != nil {
			log.Error(err, "withdrawing a bundle is left to the binder", "bundle", run.bundle.ID)
		}
	}
}

// transient says whether trying again may help: the API server was busy, failed, or was not reached.
func transient(err error) bool {
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsConflict(err) || apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && !errors.Is(err, context.Canceled)
}
