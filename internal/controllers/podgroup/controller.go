package podgroup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	v2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
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

// Controller is the podgroup role. Its book is the aggregator.
type Controller struct {
	*control.Controller[key, body]
	kit        *write.Kit
	aggregator *aggregator
}

// key names a PodGroup, or, without a namespace, a Queue.
type key = types.NamespacedName

// body is what is to be written of an object: its status if it is a PodGroup. A nil patch is nothing.
type body struct {
	of    key
	patch []byte
}

// New checks the options and returns the role, not yet running. told are what the podgrouper of the process tells of pods, which are
// counted as if they carried it; nil for nothing.
func New(s control.Shell, told *links.Links, o Options) (*Controller, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	f := newAggregator(o.SchedulerNames, cmp.Or(o.QueueLabel, keys.QueueLabel))
	c := &Controller{aggregator: f}
	kit, err := write.New(s.Client, "podgroup", s.Registry)
	if err != nil {
		return nil, fmt.Errorf("podgroup role: %w", err)
	}
	c.kit = kit
	c.Controller, err = control.NewController(s, control.Role[key, body]{
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
	if err != nil {
		return nil, err
	}
	inPart := func(changes []change, errs ...error) []control.Due[key] {
		for _, err := range errs {
			if err != nil {
				s.Log.Info("pod counted in part", "reason", err.Error())
			}
		}
		return due(changes)
	}
	control.Watch(c.Loop, &schedulingv1.PriorityClass{}, func(class *schedulingv1.PriorityClass, gone bool) []control.Due[key] {
		if gone {
			return due(f.classGone(class.Name))
		}
		return due(f.classChanged(class))
	})
	control.Watch(c.Loop, &corev1.Node{}, func(node *corev1.Node, gone bool) []control.Due[key] {
		labels := node.Labels
		if gone {
			labels = nil
		}
		changes, errs := f.nodeChanged(node.Name, labels, !gone)
		return inPart(changes, errs...)
	})
	control.Watch(c.Loop, &v2.Queue{}, func(q *v2.Queue, gone bool) []control.Due[key] {
		if gone {
			f.queueGone(q.Name)
			return nil
		}
		return due(f.queueChanged(q))
	})
	control.Watch(c.Loop, &v2alpha2.PodGroup{}, func(pg *v2alpha2.PodGroup, gone bool) []control.Due[key] {
		if gone {
			return due(f.groupGone(client.ObjectKeyFromObject(pg)))
		}
		return due(f.groupChanged(pg))
	})
	waiting := map[types.NamespacedName]*corev1.Pod{} // of which something may be told; part of the book
	control.Watch(c.Loop, &corev1.Pod{}, func(pod *corev1.Pod, gone bool) []control.Due[key] {
		name := client.ObjectKeyFromObject(pod)
		if delete(waiting, name); gone {
			return due(f.podGone(pod.UID))
		}
		if told != nil && pod.Spec.NodeName == "" && f.ours[pod.Spec.SchedulerName] {
			waiting[name] = pod
		}
		changes, err := f.podChanged(told.With(pod))
		return inPart(changes, err)
	})
	told.Hear(func(name types.NamespacedName) {
		c.Lock()
		defer c.Unlock()
		if pod := waiting[name]; pod != nil {
			changes, err := f.podChanged(told.With(pod))
			c.Add(inPart(changes, err)...)
		}
	})
	control.WatchLater(c.Loop, &resourcev1.ResourceClaim{}, func(claim *resourcev1.ResourceClaim, gone bool) []control.Due[key] {
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
