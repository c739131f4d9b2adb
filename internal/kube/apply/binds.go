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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/links"
)

// BindOptions tune the writing of BindRequests.
type BindOptions struct {
	// Workers is how many requests are in flight at once; 0 means as many as the table of kinds of work has.
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
	// Records is the namespace in which the decisions about gangs are recorded none of whose members needs preparing, so that the scheduler
	// binds them; "" for none: gangs have BindRequests.
	Records string
	// Complete, if set, is told of each bundle that is carried out, as far as it is ours: all of its BindRequests have been made (asked), or
	// its one pod is bound, or all of a gang's. Like Written, it must not block.
	Complete func(b *engine.Bundle, asked bool)
	// Fates is what becomes of bundles, shared with Evictions; nil for one of its own.
	Fates *Fates
	// Latest is asked whether there is still room, at the moment of each write; nil: nobody is.
	Latest Latest
	// Links are what the podgrouper of the process tells of pods, which their Bindings bring them; nil for nothing.
	Links *links.Links
}

// Failure is a bundle that could not be written. None of its BindRequests exists any more, or the binder will withdraw
// those that do as an incomplete bundle. Of a gang some of whose pods the scheduler has bound it has the others alone.
type Failure struct {
	Bundle engine.Bundle
	Err    error
}

// ErrMoved is why a decision is no longer valid: its pod is not what it was, or has been decided on by somebody else.
// It is the one failure that is no fault of anything: the event that tells is on its way.
var ErrMoved = errors.New("the pod changed since it was decided on")

// errTaken is the failure of a write whose name another object has, which is going.
var errTaken = errors.New("a BindRequest of the name is in the way, and going")

// Binds writes the BindRequests of plans.
type Binds struct {
	client   client.Client // writes, and reads that must not be stale
	pods     client.Reader // the cache: preconditions
	o        BindOptions
	work     *Queue[task]
	records  *Queue[recordName] // of gangs that are bound, or given up
	homeless atomic.Bool        // whether it was said that there is no namespace for them
	mu       sync.Mutex
	failures []Failure // bounded by the bundles in flight
	failed   chan struct{}
}

// task is one intent of a bundle in flight, the record of one that is to have one, one BindRequest to delete, or what an earlier process left.
type task struct {
	run    *bundleRun
	intent int
	record bool
	delete *v1alpha2.BindRequest
	adopt  *unfinished
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

	// recorded says that the decision stands by a record, so that its pods are bound without looking back; unsure that it may. Written while
	// the bundle has one task alone.
	recorded, unsure bool
}

// made is what is known of one intent's BindRequest.
type made struct {
	write  func(context.Context) error // makes it; nil before anything was tried
	uid    types.UID                   // "" for: not made
	unsure bool                        // an answer was lost: it may have been made all the same
	lost   error                       // why it came to nothing, where the others go on
}

// NewBinds returns a writer of BindRequests, which pool runs. It first looks for bundles that an earlier process left half written, and
// withdraws them. A bundle that is half written when the pool ends is left to the next process, and to the binder, which withdraws what stays
// incomplete.
func NewBinds(pool *Pool, c client.Client, pods client.Reader, o BindOptions) *Binds {
	kind := bindWork
	kind.Workers = cmp.Or(o.Workers, kind.Workers)
	kind.Bound = 5 * int64(kind.Workers) // at work, and four times as many that wait
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
		o.Complete = func(*engine.Bundle, bool) {}
	}
	b := &Binds{client: c, pods: pods, o: o, failed: make(chan struct{}, 1)}
	b.work = NewQueue(pool, kind, Job[task]{About: task.about, Begin: b.begin, Try: b.try, End: b.end})
	b.records = NewQueue(pool, recordWork, Job[recordName]{About: recordName.about, Try: b.erase})
	return b
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
		if run.size > 1 && b.o.Records != "" {
			tasks = append(tasks, task{run: run, record: true})
			continue
		}
		tasks = append(tasks, run.each()...)
	}
	b.work.Put(0, tasks...)
}

// each returns the tasks of a bundle's intents.
func (r *bundleRun) each() []task {
	r.left.Store(int32(r.size))
	tasks := make([]task, 0, r.size)
	for i := range r.bundle.Intents {
		if r.bundle.Intents[i].Verb == engine.Bind {
			tasks = append(tasks, task{run: r, intent: i})
		}
	}
	return tasks
}

// Full says that four times as much is queued as can be in flight, or more: a decision that cannot be written yet only grows old.
func (b *Binds) Full() bool { return b.work.Full() }

// Room is signalled when Full has come to an end.
func (b *Binds) Room() <-chan struct{} { return b.work.Room() }

// Remove queues the delete of a BindRequest that stands for nothing, if it still has that UID by then. False means that too much is
// queued. A delete that is given up is logged: who asked sees that it is still there.
func (b *Binds) Remove(namespace, name string, uid types.UID) bool {
	if b.work.Full() {
		return false
	}
	br := &v1alpha2.BindRequest{}
	br.Namespace, br.Name, br.UID = namespace, name, uid
	b.work.Put(0, task{delete: br})
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

// about is what a task is about, for the log.
func (t task) about() any {
	switch {
	case t.delete != nil:
		return t.delete
	case t.adopt != nil:
		return "unfinished bundles"
	case t.record:
		return kai.GangRecordName(t.run.bundle.ID)
	}
	return named(&t.run.bundle.Intents[t.intent])
}

// begin looks for what an earlier process left, while nothing is written.
func (b *Binds) begin(ctx context.Context) {
	before, err := b.orphans(ctx)
	if err != nil && ctx.Err() == nil {
		logr.FromContextOrDiscard(ctx).Error(err, "looking for unfinished bundles; the binder will withdraw them")
	}
	if len(before) > 0 {
		b.work.Put(orphanSettle, task{adopt: &unfinished{before}})
	}
}

func (b *Binds) try(ctx context.Context, t task) error {
	switch {
	case t.delete != nil:
		return b.remove(ctx, t.delete, false)
	case t.adopt != nil:
		return b.adopt(ctx, t.adopt.before)
	case t.record:
		return b.record(ctx, t.run)
	}
	if other := t.run.failed.Load(); other != nil {
		return fmt.Errorf("%w: %w", ErrUndone, *other) // the bundle is lost already
	}
	return b.create(ctx, t.run, t.intent)
}

// end takes in that a task is done, or why not; whoever has the last of a bundle tells what became of it.
func (b *Binds) end(ctx context.Context, t task, err error) {
	if t.run == nil {
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "what stands for nothing stays for now", "about", t.about())
		}
		return
	}
	switch {
	case t.record && err == nil:
		b.work.Put(0, t.run.each()...)
		return
	case t.record:
		t.run.left.Store(1)
	case t.run.recorded:
		t.run.made[t.intent].lost, err = err, nil
	}
	if err != nil {
		t.run.failed.CompareAndSwap(nil, &err)
	}
	if t.run.left.Add(-1) > 0 {
		return
	}
	if t.run.recorded {
		b.bound(t.run)
		return
	}
	failed := t.run.failed.Load()
	if failed == nil {
		b.o.Fates.end(t.run.bundle.ID, nil)
		b.o.Complete(&t.run.bundle, t.run.made[0].uid != "")
		return
	}
	if ctx.Err() != nil {
		return
	}
	b.withdraw(ctx, t.run)
	b.lose(t.run.bundle, *failed)
}

// lose tells that a bundle, or what is left of one, came to nothing.
func (b *Binds) lose(bundle engine.Bundle, err error) {
	b.o.Fates.end(bundle.ID, err)
	b.mu.Lock()
	b.failures = append(b.failures, Failure{bundle, err})
	b.mu.Unlock()
	signal(b.failed)
}

// create carries the intent out, or says why it must not.
func (b *Binds) create(ctx context.Context, run *bundleRun, index int) error {
	in, note := &run.bundle.Intents[index], &run.made[index]
	if note.write == nil {
		if err := b.prepare(ctx, run, in, note); err != nil {
			return err
		}
	}
	if !run.recorded {
		if err := cmp.Or(b.o.Fates.check(run.bundle.DependsOn), b.o.Latest.checkBind(run.decided, in)); err != nil {
			return err
		}
	}
	if err := note.write(ctx); err != nil {
		return fmt.Errorf("%s/%s: %w", in.Namespace, in.Pod, err)
	}
	b.o.Written(time.Since(run.submitted))
	return nil
}

// prepare finds how the intent is carried out, by a BindRequest or at once, or says why it must not be. That is asked once: after a try whose
// answer was lost the pod may have a node, by that very try.
func (b *Binds) prepare(ctx context.Context, run *bundleRun, in *engine.Intent, note *made) error {
	p, err := stillWaits(ctx, b.pods, in)
	if err != nil {
		return err
	}
	want := b.want(run, in, p)
	if b.o.Alone && run.size == 1 && !want.NeedsBinder(p) {
		if err := b.unasked(ctx, &want); err != nil {
			return err
		}
		note.write = func(ctx context.Context) error { return b.bind(ctx, in, p, &want) }
		return nil
	}
	note.write = func(ctx context.Context) error { return b.request(ctx, &want, note) }
	return nil
}

// want is the intent in the words of the API.
func (b *Binds) want(run *bundleRun, in *engine.Intent, p *v1.Pod) kai.Intent {
	return kai.Intent{
		Namespace: in.Namespace, Pod: in.Pod, PodUID: types.UID(in.UID), Node: in.Node, GPU: in.GPU, Groups: in.Groups, Zones: in.Zones, Claims: in.Claims, Containers: kai.Containers(p, in.Claims),
		Charged: in.Charged, OwnGang: b.o.Links.Text(p),
		Bundle: run.bundle.ID, Size: run.size, Decided: run.submitted, Partition: b.o.Partition,
	}
}

// request makes the BindRequest of an intent exist.
func (b *Binds) request(ctx context.Context, want *kai.Intent, note *made) error {
	br := want.BindRequest()
	err := b.client.Create(ctx, br)
	switch {
	case err == nil:
		note.uid = br.UID
	case apierrors.IsAlreadyExists(err):
		note.uid, err = b.replace(ctx, want) // an earlier try made it, and its answer was lost
	default:
		note.unsure = note.unsure || passes(err)
		err = fmt.Errorf("create BindRequest: %w", err)
	}
	return err
}

// stillWaits checks the intent against the live cache: the pod of this UID is there and still has no node; it returns the pod, of which nothing is to
// be changed: a copy of all of it would be made for every bind.
func stillWaits(ctx context.Context, pods client.Reader, in *engine.Intent) (*v1.Pod, error) {
	var p v1.Pod
	err := pods.Get(ctx, types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, &p, client.UnsafeDisableDeepCopy)
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

// replace looks at the BindRequest that has our name. It returns the UID of the one we meant to create; it deletes one that stands for
// nothing (another pod's, or a failed one), and says that it is to be tried again; a live one for the same pod is an error.
func (b *Binds) replace(ctx context.Context, want *kai.Intent) (types.UID, error) {
	var br v1alpha2.BindRequest
	name := types.NamespacedName{Namespace: want.Namespace, Name: want.Pod}
	if err := b.client.Get(ctx, name, &br); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("read BindRequest %s: %w", name, err)
	} else if err != nil {
		return "", errTaken
	}
	have := kai.Read(&br)
	switch {
	case br.DeletionTimestamp != nil: // it is going; try again when it is gone
	case have.PodUID == want.PodUID && !have.Failed:
		if have.Bundle == want.Bundle && have.Node == want.Node && slices.Equal(have.Groups, want.Groups) {
			return br.UID, nil
		}
		return "", fmt.Errorf("%s: %w: it has a BindRequest to node %s already", name, ErrMoved, have.Node)
	default:
		if err := b.remove(ctx, &br, false); err != nil {
			return "", err
		}
	}
	return "", errTaken
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
	if run.unsure {
		b.records.Put(0, recordName{run.bundle.ID})
	}
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
