package vcpodgroup

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// retryMin and retryMax bound the wait after failed writes, which doubles.
	retryMin = 5 * time.Millisecond
	retryMax = 3 * time.Minute
)

// Options are the settings of the controller.
type Options struct {
	// Workers is how many gangs are written about at a time; 1 or more.
	Workers int
	// SchedulerNames are those of pods that are grouped; one or more.
	SchedulerNames []string
	// NameAfter is how long a pod has to have waited until it is told the name of its PodGroup, 0 or more. Muster's scheduler knows that name, and says it with the Binding; Volcano's waits for it. With 0 nothing waits for
	// Muster's: the PodGroup of a pod that is alone, and says all that it would say, is made at once too.
	NameAfter time.Duration
	// InheritAnnotations has PodGroups get the annotations volcano.sh/* of what owns their pods.
	InheritAnnotations bool
}

// DefaultOptions are Volcano's, beside Muster's scheduler.
func DefaultOptions() Options {
	return Options{Workers: 5, SchedulerNames: []string{keys.SchedulerName}, NameAfter: time.Minute, InheritAnnotations: true}
}

// Deps are what the controller needs of the process around it.
type Deps struct {
	// Cache feeds pods, ReplicaSets, StatefulSets, DaemonSets, Jobs of Kubernetes and PodGroups; it is started by the process.
	Cache cache.Cache
	// Client writes PodGroups and pods. It must know Volcano's kinds.
	Client client.Client
	// Log takes the controller's messages.
	Log logr.Logger
	// Registry takes the controller's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times work; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
	// Tell takes events for the pod's user; nil: nobody is told.
	Tell func(pod client.Object, warning bool, reason, message string)
}

// Controller is the podgroup controller of Volcano's face.
type Controller struct {
	deps Deps
	kit  *write.Kit
	book *book
	loop *control.Loop[key, plan]
}

// New checks the options and returns the controller, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	if o.Workers < 1 {
		return nil, fmt.Errorf("podgroup controller: %d workers: at least one is needed", o.Workers)
	}
	if o.NameAfter < 0 {
		return nil, fmt.Errorf("podgroup controller: pods are told their PodGroup after %v: it must be 0 or more", o.NameAfter)
	}
	if len(o.SchedulerNames) == 0 {
		return nil, errors.New("podgroup controller: no scheduler's name: at least one is needed")
	}
	kit, err := write.New(deps.Client, "vcpodgroup", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("podgroup controller: %w", err)
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	c := &Controller{deps: deps, kit: kit, book: newBook(o)}
	c.watch("vcpodgroup", o.Workers, c.write, func(*corev1.Pod, bool) {})
	control.Watch(c.loop, &scheduling.PodGroup{}, c.groupSeen)
	return c, nil
}

func (c *Controller) groupSeen(g *scheduling.PodGroup, gone bool) []control.Due[key] {
	return due(c.book.groupSeen(g, gone))
}

// watch makes the loop, which writes what it finds out, without PodGroups; seen hears of each pod.
func (c *Controller) watch(name string, workers int, write func(context.Context, plan) error, seen func(p *corev1.Pod, gone bool)) {
	b, deps := c.book, &c.deps
	c.loop = control.New(control.Deps{Cache: deps.Cache, Log: deps.Log, Clock: deps.Clock, Guard: deps.Guard}, control.Role[key, plan]{
		Name: name, Workers: workers, MinRetry: retryMin, MaxRetry: retryMax,
		Tenant: func(k key) string { return k.Namespace },
		About: func(k key) client.Object {
			return &scheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
		},
		Decide: func(k key, now time.Time) (plan, []control.Due[key], time.Time) {
			p, again := b.decide(k, now)
			return p, nil, again
		},
		Write: write,
	})
	control.Watch(c.loop, &corev1.Pod{}, func(p *corev1.Pod, gone bool) []control.Due[key] {
		seen(p, gone)
		return due(b.podSeen(p, gone, deps.Clock.Now()))
	})
	control.Watch(c.loop, &appsv1.ReplicaSet{}, func(o *appsv1.ReplicaSet, gone bool) []control.Due[key] { return due(b.ownerSeen(o, gone)) })
	control.Watch(c.loop, &appsv1.StatefulSet{}, func(o *appsv1.StatefulSet, gone bool) []control.Due[key] { return due(b.ownerSeen(o, gone)) })
	control.Watch(c.loop, &appsv1.DaemonSet{}, func(o *appsv1.DaemonSet, gone bool) []control.Due[key] { return due(b.ownerSeen(o, gone)) })
	control.Watch(c.loop, &batchv1.Job{}, func(o *batchv1.Job, gone bool) []control.Due[key] { return due(b.ownerSeen(o, gone)) })
}

func due(names []key) (out []control.Due[key]) {
	for _, k := range names {
		out = append(out, control.Due[key]{Key: k})
	}
	return out
}

// Run groups pods until ctx ends, which is no error. It must be called once. It writes nothing before every object that existed at its start has
// been taken in.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// write carries a plan out.
func (c *Controller) write(ctx context.Context, p plan) error {
	switch {
	case p.create != nil:
		if err := c.create(ctx, p); err != nil {
			return err
		}
	case p.remove:
		_, err := c.kit.Delete(ctx, p.group.DeepCopy())
		return err
	case p.patch != nil:
		if _, err := c.kit.Merge(ctx, p.group.DeepCopy(), p.patch); err != nil {
			return err
		}
	}
	var errs []error
	for _, pod := range p.mark {
		errs = append(errs, c.mark(ctx, pod, p.key.Name))
	}
	return errors.Join(errs...)
}

// create makes a PodGroup unless it exists. What the API server refuses of it, the user of its pods is told.
func (c *Controller) create(ctx context.Context, p plan) error {
	err := c.deps.Client.Create(ctx, p.create.DeepCopy())
	if err != nil && !apierrors.IsAlreadyExists(err) {
		if c.deps.Tell != nil && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
			c.deps.Tell(p.first, true, "FailedCreate", fmt.Sprintf("create PodGroup %s: %v", p.key.Name, err))
		}
		return fmt.Errorf("create PodGroup %s: %w", p.key, err)
	}
	c.loop.Lock()
	defer c.loop.Unlock()
	if g := c.book.gangs[p.key]; g != nil && g.group == nil {
		g.made = c.deps.Clock.Now()
	}
	return nil
}

// mark tells the very pod that was looked at which PodGroup it is in, unless it was told another meanwhile.
func (c *Controller) mark(ctx context.Context, pod *corev1.Pod, group string) error {
	body := write.Body(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "annotations": map[string]string{keys.GroupName: group},
	}})
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	result, err := c.kit.Merge(ctx, p, body)
	if err != nil {
		return err
	}
	switch result {
	case write.Written:
		c.loop.Lock()
		defer c.loop.Unlock()
		c.book.podWritten(p, c.deps.Clock.Now())
	case write.Changed:
		return errChanged
	}
	return nil
}

// errChanged has a gang looked at again soon: somebody else was faster, and what he wrote is on its way.
var errChanged = errors.New("what was to be written has changed meanwhile")
