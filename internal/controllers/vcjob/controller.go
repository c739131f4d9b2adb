package vcjob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// settle is how long a change of a pod waits to be looked at, so that a gang's are looked at together.
	settle = 50 * time.Millisecond

	// retryMin and retryMax bound the wait after failed writes, which doubles.
	retryMin = 5 * time.Millisecond
	retryMax = 3 * time.Minute

	// jobsPerWorker is about how many Jobs a worker writes at a time. A worker of Volcano's has one, but all pods of it under way at once; ours makes one pod first and a few at a time then, and would leave the API server waiting
	// where Jobs are small.
	jobsPerWorker = 4
)

// Options are the settings of the controller.
type Options struct {
	// Workers is of how many workers' worth of Jobs is written about at a time, jobsPerWorker each; 1 or more.
	Workers int
	// MaxRequeue is how many times in turn the API server may refuse what a Job needs before the Job is terminated; below 0: without end.
	MaxRequeue int
	// SchedulerName is what pods name whose Job names no scheduler.
	SchedulerName string
}

// DefaultOptions are Volcano's.
func DefaultOptions() Options {
	return Options{Workers: 3, MaxRequeue: 15, SchedulerName: keys.SchedulerName}
}

// Deps are what the controller needs of the process around it.
type Deps struct {
	// Cache feeds Jobs, pods, PodGroups, Commands, Queues, claims and priority classes; it is started by the process.
	Cache cache.Cache
	// Client writes. It must know Volcano's kinds.
	Client client.Client
	// Log takes the controller's messages.
	Log logr.Logger
	// Registry takes the controller's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times work; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
	// Keys makes the pair of keys of plugin ssh; nil is NewKeys.
	Keys func() (private, public []byte, err error)
	// Tell takes events for the Job's user; nil: nobody is told.
	Tell func(job client.Object, warning bool, reason, message string)
}

// Controller is the job controller.
type Controller struct {
	deps Deps
	kit  *write.Kit
	book *book
	loop *control.Loop[key, plan]
}

// New checks the options and returns the controller, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	if o.Workers < 1 {
		return nil, fmt.Errorf("job controller: %d workers: at least one is needed", o.Workers)
	}
	kit, err := write.New(deps.Client, "vcjob", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("job controller: %w", err)
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	if deps.Keys == nil {
		deps.Keys = NewKeys
	}
	c := &Controller{deps: deps, kit: kit, book: newBook()}
	b, r := c.book, rules{refusals: o.MaxRequeue, scheduler: o.SchedulerName}
	c.loop = control.New(control.Deps{Cache: deps.Cache, Log: deps.Log, Clock: deps.Clock, Guard: deps.Guard}, control.Role[key, plan]{
		Name: "vcjob", Workers: jobsPerWorker * o.Workers, MinRetry: retryMin, MaxRetry: retryMax,
		Tenant: func(k key) string { return k.Namespace },
		About: func(k key) client.Object {
			return &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
		},
		Decide: func(k key, now time.Time) (plan, []control.Due[key], time.Time) {
			p, again := b.decide(k, now, r)
			return p, nil, again
		},
		Write: c.write,
	})
	control.Watch(c.loop, &batch.Job{}, func(j *batch.Job, gone bool) []control.Due[key] {
		b.jobSeen(j, gone)
		return at(client.ObjectKeyFromObject(j), 0)
	})
	control.Watch(c.loop, &corev1.Pod{}, func(p *corev1.Pod, gone bool) []control.Due[key] {
		if k, ours := b.podSeen(p, gone); ours {
			return at(k, settle)
		}
		return nil
	})
	control.Watch(c.loop, &scheduling.PodGroup{}, func(g *scheduling.PodGroup, gone bool) []control.Due[key] {
		if k, ours := b.groupSeen(g, gone); ours {
			return at(k, 0)
		}
		return nil
	})
	control.Watch(c.loop, &bus.Command{}, func(m *bus.Command, gone bool) []control.Due[key] {
		if k, ours := b.commandSeen(m, gone); ours {
			return at(k, 0)
		}
		return nil
	})
	control.Watch(c.loop, &scheduling.Queue{}, func(q *scheduling.Queue, gone bool) []control.Due[key] { return all(b.queueSeen(q, gone)) })
	control.Watch(c.loop, &corev1.PersistentVolumeClaim{}, func(v *corev1.PersistentVolumeClaim, gone bool) []control.Due[key] {
		return all(b.claimSeen(v, gone))
	})
	control.Watch(c.loop, &schedulingv1.PriorityClass{}, func(p *schedulingv1.PriorityClass, gone bool) []control.Due[key] {
		b.classSeen(p, gone)
		return nil
	})
	return c, nil
}

func at(k key, after time.Duration) []control.Due[key] {
	return []control.Due[key]{{Key: k, After: after}}
}

func all(names []key) (out []control.Due[key]) {
	for _, k := range names {
		out = append(out, control.Due[key]{Key: k})
	}
	return out
}

// Run controls Jobs until ctx ends, which is no error. It must be called once. It writes nothing before every object that existed at its
// start has been taken in.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// write carries a plan out.
func (c *Controller) write(ctx context.Context, p plan) error {
	for _, m := range p.take {
		result, err := c.kit.Delete(ctx, m)
		if err != nil {
			return err
		}
		if result == write.Written {
			c.tell(p, note{reason: "CommandIssued", message: "Start to execute command " + m.Action + ", and clean it up to make sure executed not more than once."})
		}
	}
	if p.job == nil || len(p.take) > 0 {
		return nil
	}
	wrote, err := c.carryOut(ctx, p)
	for i := range p.tell {
		if wrote || p.wrong != nil {
			c.tell(p, p.tell[i])
		}
	}
	c.loop.Lock()
	defer c.loop.Unlock()
	e := c.book.jobs[p.key]
	if e == nil || e.job == nil || e.job.UID != p.job.UID {
		return err
	}
	switch {
	case err == nil && wrote:
		e.refused = 0
		e.hosts = p.hosts
		e.forgetHeard(p.heard)
	case refusal(err):
		e.refused++
	}
	return err
}

// refusal says whether an error is the API server's answer to what was written, or a defect of the Job: another attempt will hardly fare
// better. That it is busy, away, or that somebody was faster, is none.
func refusal(err error) bool {
	var wrong *wrongJob
	if errors.As(err, &wrong) {
		return true
	}
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// wrongJob is a defect of a Job.
type wrongJob struct{ error }

// carryOut makes a plan's writes in their order, and says whether the status is what it is to be.
func (c *Controller) carryOut(ctx context.Context, p plan) (bool, error) {
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.key.Namespace, Name: p.key.Name, UID: p.job.UID}}
	if p.patch != nil {
		result, err := c.kit.JSON(ctx, j, p.patch)
		if result == write.Written {
			c.seen(j)
		}
		return false, err
	}
	var first []func() error // what needs nothing of each other
	for _, v := range p.claims {
		first = append(first, func() error { return c.create(ctx, v) })
	}
	for i := range p.objects {
		first = append(first, func() error { return c.object(ctx, &p.objects[i]) })
	}
	if p.group != nil {
		first = append(first, func() error { return c.group(ctx, p.key, p.group) })
	}
	var kills []func() error // each is tried: one that somebody keeps holds up no other
	for _, pod := range p.kill {
		kills = append(kills, func() error { return c.kill(ctx, pod) })
	}
	beside := side{c.deps.Guard, j}
	errs := []error{beside.together(first), beside.together(kills)}
	var told sync.Once // one speaks for all
	for rest := p.make; len(rest) > 0; {
		alike := alike(rest)
		err := beside.slowly(alike, func(i int) error {
			err := c.make(ctx, p.key, rest[i])
			if err != nil {
				told.Do(func() {
					c.tell(p, note{warning: true, reason: "FailedCreate", message: fmt.Sprintf("create pod %s: %v", rest[i].Name, err)})
				})
			}
			return err
		})
		if rest = rest[alike:]; err != nil {
			errs = append(errs, err)
			break // the rest would hardly fare better
		}
	}
	if p.wrong != nil {
		errs = append(errs, &wrongJob{p.wrong})
	}
	if err := errors.Join(errs...); err != nil && p.wrong == nil {
		return false, err
	}
	return c.status(ctx, p, j, errors.Join(errs...))
}

// errChanged has a Job looked at again soon: somebody else was faster, and what he wrote is on its way.
var errChanged = errors.New("what was to be written has changed meanwhile")

// status writes the status, unless somebody else wrote the Job meanwhile.
func (c *Controller) status(ctx context.Context, p plan, j *batch.Job, before error) (bool, error) {
	if p.status == nil {
		return before == nil, before
	}
	body := write.Body([]patchOp{{"test", "/metadata/resourceVersion", p.job.ResourceVersion}, {"add", "/status", p.status}})
	result, err := c.kit.JSONStatus(ctx, j, body)
	switch result {
	case write.Written:
		c.seen(j)
	case write.Changed:
		err = errChanged
	}
	return result == write.Written && before == nil, errors.Join(before, err)
}

// seen takes in what the API server has made of a Job, before its event comes: what is decided next knows of it.
func (c *Controller) seen(j *batch.Job) {
	c.loop.Lock()
	defer c.loop.Unlock()
	c.book.jobWritten(j)
}

// create makes an object unless it exists.
func (c *Controller) create(ctx context.Context, o client.Object) error {
	err := c.deps.Client.Create(ctx, o)
	if err == nil || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return fmt.Errorf("create %T %s: %w", o, client.ObjectKeyFromObject(o), err)
}

// object makes what a plugin needs, or brings it up to date.
func (c *Controller) object(ctx context.Context, o *object) error {
	made := o.DeepCopyObject().(client.Object)
	if secret, ok := made.(*corev1.Secret); ok && o.keys {
		private, public, err := c.deps.Keys()
		if err != nil {
			return err
		}
		secret.Data["id_rsa"], secret.Data["id_rsa.pub"], secret.Data["authorized_keys"] = private, public, public
	}
	err := c.deps.Client.Create(ctx, made)
	switch {
	case err == nil:
		return nil
	case !apierrors.IsAlreadyExists(err):
		return fmt.Errorf("create %T %s: %w", made, client.ObjectKeyFromObject(made), err)
	case o.refresh == nil:
		return nil
	}
	_, err = c.kit.JSON(ctx, made, o.refresh) // somebody else's of the name is left alone
	return err
}

// group makes, changes or deletes a PodGroup.
func (c *Controller) group(ctx context.Context, k key, w *groupWrite) error {
	g := w.group.DeepCopy()
	var err error
	switch {
	case w.remove:
		var result write.Result
		if result, err = c.kit.Delete(ctx, g); result == write.Changed {
			return errChanged
		}
		if err == nil { // no pod is made in a gang that is no more, although its event is on its way
			c.loop.Lock()
			defer c.loop.Unlock()
			c.book.groupSeen(w.group, true)
		}
	case w.patch != nil:
		_, err = c.kit.Merge(ctx, g, w.patch)
	default:
		err = c.make(ctx, k, g)
	}
	return err
}

// make is create of what is watched: it is not made again before its event comes.
func (c *Controller) make(ctx context.Context, k key, o client.Object) error {
	if err := c.create(ctx, o); err != nil {
		return err
	}
	c.loop.Lock()
	defer c.loop.Unlock()
	if _, pod := o.(*corev1.Pod); pod {
		c.book.making = c.deps.Clock.Now()
	}
	if e := c.book.jobs[k]; e != nil && e.pods[o.GetName()] == nil && e.groups[o.GetName()] == nil {
		e.made[o.GetName()] = c.deps.Clock.Now()
	}
	return nil
}

// kill marks a pod, so that its end is no event, and deletes it. One that cannot be marked is not deleted.
func (c *Controller) kill(ctx context.Context, pod *corev1.Pod) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	if pod.Annotations[keys.OutOfSync] != "true" {
		body := write.Body(map[string]any{"metadata": map[string]any{"uid": pod.UID, "annotations": map[string]string{keys.OutOfSync: "true"}}})
		switch result, err := c.kit.Merge(ctx, p, body); {
		case err != nil || result == write.Gone:
			return err
		case result != write.Written: // another pod by now
			return errChanged
		}
		p.UID = pod.UID
	}
	result, err := c.kit.Delete(ctx, p)
	if result == write.Changed {
		err = errChanged
	}
	return err
}

func (c *Controller) tell(p plan, n note) {
	if c.deps.Tell != nil && p.job != nil {
		c.deps.Tell(p.job, n.warning, n.reason, n.message)
	}
}
