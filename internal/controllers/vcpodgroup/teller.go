package vcpodgroup

import (
	"context"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
	"github.com/muster-scheduler/muster/internal/kube/links"
)

// TellerDeps are what a Teller needs of the process around it.
type TellerDeps struct {
	// Cache feeds pods, ReplicaSets, StatefulSets, DaemonSets, Jobs of Kubernetes and PodGroups; it is started by the process.
	Cache cache.Cache
	// Links are what the scheduler of the process hears.
	Links *links.Links
	// Log takes the messages.
	Log logr.Logger
	// Clock times work; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
}

// Teller tells the scheduler of its process of pods that are alone in their gang, and whose PodGroup will say nothing that they do not say: it does not wait for these (ADR 18). It writes nothing.
//
// It finds that out as the Controller does, from the same book, so that both agree of whom it is so. What is told is forgotten when the pod has a node, which brings it the text, or is gone.
type Teller struct{ *Controller }

// NewTeller returns a teller, not yet running, for pods that name one of the schedulers.
func NewTeller(deps TellerDeps, schedulers []string) *Teller {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	o := DefaultOptions()
	o.SchedulerNames = schedulers
	c := &Controller{deps: Deps{Cache: deps.Cache, Log: deps.Log, Clock: deps.Clock, Guard: deps.Guard}, book: newBook(o)}
	c.watch("vcpodgroup-teller", 1, func(_ context.Context, p plan) error {
		if p.tell != nil {
			deps.Links.Tell(p.tell, nil, volcano.OwnText(p.tell), deps.Clock.Now())
			c.forget(deps.Links, p)
		}
		return nil
	}, func(p *corev1.Pod, gone bool) {
		if gone {
			deps.Links.Gone(client.ObjectKeyFromObject(p), p.UID)
		} else {
			deps.Links.Saw(p)
		}
	})
	control.WatchLater(c.loop, &scheduling.PodGroup{}, c.groupSeen)
	return &Teller{c}
}

// forget takes back what was told of a pod that is over meanwhile: no event of it is to come.
func (c *Controller) forget(l *links.Links, p plan) {
	c.loop.Lock()
	defer c.loop.Unlock()
	var is *corev1.Pod
	if g := c.book.gangs[p.key]; g != nil {
		is = g.pods[p.tell.Name]
	}
	if is == nil || is.UID != p.tell.UID {
		l.Gone(client.ObjectKeyFromObject(p.tell), p.tell.UID)
	} else {
		l.Saw(is)
	}
}
