package nodescale

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// settle is how long a change waits to be looked at, so that a burst of them is looked at once.
	settle = 500 * time.Millisecond

	// retryMin and retryMax bound the exponential wait after failed writes.
	retryMin = time.Second
	retryMax = time.Minute
)

// everything is the one item of the work queue: pods share what is asked for, so they are looked at together.
const everything = "all"

// Controller is the nodescale role.
type Controller struct {
	*control.Controller[string, work]
	kit     *write.Kit
	options Options
	metrics *metrics
}

// work is a decision, with the pods for which others are to be created.
type work struct {
	decision
	sources []*corev1.Pod
}

// New checks the options and returns the role, not yet running. nodesHelp says whether a gang that waits for a reason, by its key, could
// start on another node.
func New(s control.Shell, nodesHelp func(reason string) bool, o Options) (*Controller, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("nodescale role: %w", err)
	}
	m, err := newMetrics(s.Registry)
	if err != nil {
		return nil, fmt.Errorf("nodescale role: %w", err)
	}
	b, cool := newBook(o, nodesHelp), cooldowns{}
	c := &Controller{options: o, metrics: m}
	kit, err := write.New(s.Client, "nodescale", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("nodescale role: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[string, work]{
		Name: "nodescale", Workers: 1, MinRetry: retryMin, MaxRetry: retryMax,
		Decide: func(_ string, now time.Time) (work, []control.Due[string], time.Time) {
			w, again := c.decide(b, cool, now)
			return w, nil, again
		},
		Write: c.write,
	})
	if err != nil {
		return nil, err
	}
	control.Watch(c.Loop, &v2alpha2.PodGroup{}, func(pg *v2alpha2.PodGroup, gone bool) []control.Due[string] {
		return look(b.groupSeen(pg, gone))
	})
	control.Watch(c.Loop, &v1alpha2.BindRequest{}, func(r *v1alpha2.BindRequest, gone bool) []control.Due[string] {
		return look(b.requestSeen(r.Namespace, r.Spec.PodName, r.UID, gone))
	})
	control.Watch(c.Loop, &corev1.Pod{}, func(p *corev1.Pod, gone bool) []control.Due[string] {
		if gone {
			return look(b.podGone(p))
		}
		return look(b.podSeen(p))
	})
	return c, nil
}

// look has everything looked at if what was seen may matter.
func look(matters bool) []control.Due[string] { return control.If(matters, everything, settle) }

// decide is what is to be done, and when to look again.
func (c *Controller) decide(b *book, cool cooldowns, now time.Time) (work, time.Time) {
	demands, asks := b.state()
	w := work{decision: decide(demands, asks, b.look, cool, now)}
	w.sources = make([]*corev1.Pod, len(w.create))
	for i := range w.create {
		w.sources[i] = b.sharers[w.create[i].pod].pod
	}
	c.metrics.looked(len(demands), len(asks), w.left)
	if soon := now.Add(settle); !w.again.IsZero() && w.again.Before(soon) {
		return w, soon
	}
	return w, w.again
}

// write makes the scaling pods those that should be. One write that fails does not keep the others from being tried.
func (c *Controller) write(ctx context.Context, w work) error {
	var errs []error
	for i := range w.remove {
		if err := c.remove(ctx, &w.remove[i]); err != nil {
			errs = append(errs, err)
		}
	}
	for i := range w.create {
		if len(errs) > 3 {
			break // the rest would hardly fare better
		}
		if err := c.create(ctx, w.sources[i], w.create[i].devices); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// remove deletes the very pod that was seen.
func (c *Controller) remove(ctx context.Context, r *removal) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.options.Namespace, Name: r.ask.name}}
	err := c.Shell.Client.Delete(ctx, p, client.Preconditions{UID: &r.ask.uid})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or another one of its name: an event will tell
	}
	if err != nil {
		return fmt.Errorf("delete scaling pod %s/%s: %w", c.options.Namespace, r.ask.name, err)
	}
	c.metrics.removed.WithLabelValues(r.why).Inc()
	c.Shell.Log.V(1).Info("scaling pod removed", "pod", r.ask.name, "for", r.ask.source.String(), "why", r.why)
	return nil
}

// create makes the scaling pod of a source, unless it is there already.
func (c *Controller) create(ctx context.Context, source *corev1.Pod, devices int64) error {
	for _, plain := range [...]bool{true, false} {
		p := c.options.newPod(source, devices, plain)
		err := c.Shell.Client.Create(ctx, p)
		if apierrors.IsAlreadyExists(err) {
			mine, err := c.standsFor(ctx, p, source)
			switch {
			case err != nil:
				return err
			case mine:
				return nil // its event has not come yet
			}
			continue // two pods whose names, put together, are the same
		}
		if err != nil {
			return fmt.Errorf("create scaling pod %s/%s: %w", p.Namespace, p.Name, err)
		}
		c.metrics.created.Inc()
		c.Shell.Log.V(1).Info("scaling pod created", "pod", p.Name, "for", source.Namespace+"/"+source.Name, "gpus", devices)
		_, err = c.kit.StrategicStatus(ctx, p, waitsForNode(p.UID, metav1.NewTime(c.Shell.Clock.Now())))
		return err
	}
	return nil // neither name is to be had: whose pods they are, is told by their events
}

// standsFor says whether the pod of that name that exists is the source's scaling pod.
func (c *Controller) standsFor(ctx context.Context, p, source *corev1.Pod) (bool, error) {
	have := &corev1.Pod{}
	err := c.Shell.Client.Get(ctx, client.ObjectKeyFromObject(p), have)
	if apierrors.IsNotFound(err) {
		return true, nil // gone meanwhile, which an event will tell
	}
	if err != nil {
		return false, fmt.Errorf("read scaling pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return c.options.ours(have) && askOf(have).source == keyOf(source.Namespace, source.Name), nil
}
