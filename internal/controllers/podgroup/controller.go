package podgroup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/links"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

const (
	// soonAfter is how long a changed allocation waits to be written. As every event after a write waits at least
	// as long, it is also the least time between two writes of one status.
	soonAfter = time.Second

	// relaxedAfter is how long changed requests wait: most gangs are placed, and written anyway, in that time.
	relaxedAfter = 3 * time.Second

	// retryMax bounds the exponential wait after failed writes, so that a status is never older than 10 s once the
	// API server answers again.
	retryMax = 8 * time.Second
)

// Deps are what the role needs of the process around it.
type Deps struct {
	// Cache feeds pods, nodes, ResourceClaims, PodGroups, Queues and PriorityClasses; it is started by the process.
	Cache cache.Cache
	// Client writes PodGroup statuses and an annotation of Queues. It must know both kinds.
	Client client.Client
	// Log takes the role's messages.
	Log logr.Logger
	// Registry takes the role's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times the writes; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect, and has hung work noticed; nil: nobody is told.
	Guard *aside.Guard
	// Links are what the podgrouper of the process tells of pods, which are counted as if they carried it; nil for nothing.
	Links *links.Links
}

// Controller is the podgroup role. Its book is the aggregator.
type Controller struct {
	kit        *write.Kit
	aggregator *aggregator
	loop       *control.Loop[key, body]
}

// key names a PodGroup, or, without a namespace, a Queue.
type key = types.NamespacedName

// body is what is to be written of an object: its status if it is a PodGroup. A nil patch is nothing.
type body struct {
	of    key
	patch []byte
}

// New checks the options and returns the role, not yet running.
func New(deps Deps, o Options) (*Controller, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	kit, err := write.New(deps.Client, "podgroup", deps.Registry)
	if err != nil {
		return nil, fmt.Errorf("podgroup role: %w", err)
	}
	f := newAggregator(o.SchedulerNames, cmp.Or(o.QueueLabel, keys.QueueLabel))
	c := &Controller{kit: kit, aggregator: f}
	c.loop = control.New(control.Deps{Cache: deps.Cache, Log: deps.Log, Clock: deps.Clock, Guard: deps.Guard}, control.Role[key, body]{
		Name: "podgroup", Workers: o.MaxConcurrentReconciles, MinRetry: soonAfter, MaxRetry: retryMax,
		Tenant: func(k key) string { return k.Namespace },
		About:  about,
		Decide: func(k key, _ time.Time) (body, []control.Due[key], time.Time) {
			if k.Namespace == "" {
				return body{k, f.takeRest(k.Name)}, nil, time.Time{}
			}
			return body{k, f.take(k)}, nil, time.Time{}
		},
		Write: c.write,
	})
	inPart := func(changes []change, errs ...error) []control.Due[key] {
		for _, err := range errs {
			if err != nil {
				deps.Log.Info("pod counted in part", "reason", err.Error())
			}
		}
		return due(changes)
	}
	control.Watch(c.loop, &schedulingv1.PriorityClass{}, func(class *schedulingv1.PriorityClass, gone bool) []control.Due[key] {
		if gone {
			return due(f.classGone(class.Name))
		}
		return due(f.classChanged(class))
	})
	control.Watch(c.loop, &corev1.Node{}, func(node *corev1.Node, gone bool) []control.Due[key] {
		labels := node.Labels
		if gone {
			labels = nil
		}
		changes, errs := f.nodeChanged(node.Name, labels, !gone)
		return inPart(changes, errs...)
	})
	control.Watch(c.loop, &v2.Queue{}, func(q *v2.Queue, gone bool) []control.Due[key] {
		if gone {
			f.queueGone(q.Name)
			return nil
		}
		return due(f.queueChanged(q))
	})
	control.Watch(c.loop, &v2alpha2.PodGroup{}, func(pg *v2alpha2.PodGroup, gone bool) []control.Due[key] {
		if gone {
			return due(f.groupGone(client.ObjectKeyFromObject(pg)))
		}
		return due(f.groupChanged(pg))
	})
	waiting := map[types.NamespacedName]*corev1.Pod{} // of which something may be told; part of the book
	control.Watch(c.loop, &corev1.Pod{}, func(pod *corev1.Pod, gone bool) []control.Due[key] {
		name := client.ObjectKeyFromObject(pod)
		if delete(waiting, name); gone {
			return due(f.podGone(pod.UID))
		}
		if deps.Links != nil && pod.Spec.NodeName == "" && f.ours[pod.Spec.SchedulerName] {
			waiting[name] = pod
		}
		changes, err := f.podChanged(deps.Links.With(pod))
		return inPart(changes, err)
	})
	deps.Links.Hear(func(name types.NamespacedName) {
		c.loop.Lock()
		defer c.loop.Unlock()
		if pod := waiting[name]; pod != nil {
			changes, err := f.podChanged(deps.Links.With(pod))
			c.loop.Add(inPart(changes, err)...)
		}
	})
	control.WatchLater(c.loop, &resourcev1.ResourceClaim{}, func(claim *resourcev1.ResourceClaim, gone bool) []control.Due[key] {
		var list corev1.ResourceList
		if !gone {
			list = claimList(claim)
		}
		changes, errs := f.claimChanged(client.ObjectKeyFromObject(claim), list)
		return inPart(changes, errs...)
	})
	return c, nil
}

// due makes what has changed wait to be written.
func due(changes []change) []control.Due[key] {
	out := make([]control.Due[key], len(changes))
	for i, ch := range changes {
		out[i] = control.Due[key]{Key: ch.gang, After: relaxedAfter}
		if ch.urgency == soon {
			out[i].After = soonAfter
		}
	}
	return out
}

// Run keeps statuses until ctx ends, which is no error. It must be called once. It writes nothing before every object
// that existed at its start has been taken in.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// write makes one gang's status, or what is charged to a queue besides what its PodGroups hold, what it should be.
func (c *Controller) write(ctx context.Context, b body) (err error) {
	switch o := about(b.of).(type) {
	case *v2.Queue:
		if b.patch == nil {
			return nil // counted as no write
		}
		_, err = c.kit.Merge(ctx, o, b.patch)
	default:
		_, err = c.kit.MergeStatus(ctx, o, b.patch)
	}
	return err
}

// about is what a key names: a PodGroup, or a Queue.
func about(k key) client.Object {
	if k.Namespace == "" {
		return &v2.Queue{ObjectMeta: metav1.ObjectMeta{Name: k.Name}}
	}
	return &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
}
