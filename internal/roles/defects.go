package roles

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// caches is the guard of the process's cache, which all its roles share.
const caches = "cache"

// The event about an object that brought out a defect. Its text is one for all, so that events aggregate, and repeats nothing of what the
// defect says itself, which may be about others' objects.
const (
	eventDefect = "Defect"
	textDefect  = "Work about this object ended in a defect of Muster (role %s) and is set aside; it is tried again. Nothing else waits for it. The role's log tells more."
)

// guard is what a role's work goes through.
func (p *process) guard(role string) (*aside.Guard, error) {
	g, err := aside.New(role, p.log.WithName(role), p.registry, p.dog.During)
	if err != nil {
		return nil, err
	}
	g.Tell = func(about client.Object) { p.tellDefect(role, about) }
	return g, nil
}

// tellDefect tells an object's owner of a defect that it brought out. It may wait a second for the cache.
func (p *process) tellDefect(role string, about client.Object) {
	if p.events == nil {
		return // the process is being put together
	}
	component := role
	switch role {
	case Scheduler:
		component = p.SchedulerNames[0]
	case caches:
		component = "muster"
	}
	if about.GetUID() == "" { // by which events are found; a role names objects only of kinds that it watches
		ctx, cancel := context.WithTimeout(p.life, time.Second)
		defer cancel()
		known, ok := about.DeepCopyObject().(client.Object)
		if ok && p.cache.Get(ctx, client.ObjectKeyFromObject(about), known) == nil {
			about = known
		}
	}
	p.events.recorder(component)(about, corev1.EventTypeWarning, eventDefect, fmt.Sprintf(textDefect, role))
}
