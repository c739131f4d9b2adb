package enginetest

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
)

// Object is any Kubernetes object.
type Object = dialect.Object

// Backend is a cluster with a scheduler that a scenario can be played on. It is used by one goroutine.
type Backend interface {
	// Apply creates the object, or makes the existing one of that kind and name equal to it, status included.
	Apply(o Object) error
	// Delete removes the object at once; an absent one is no error.
	Delete(o Object) error
	// Pods and Nodes return copies of what there is now, by namespace and name.
	Pods() ([]*v1.Pod, error)
	Nodes() ([]*v1.Node, error)
	// Cycle decides once and returns the plans; nothing of them has taken effect.
	Cycle() ([]engine.Plan, error)
	// Settle lets decisions take effect, pods start, and deleted pods go, until nothing changes any more.
	Settle() error
	// Trace says why things are as they are now.
	Trace() (*recorder.Trace, error)
	// Now is the backend's time; Advance lets it pass.
	Now() time.Time
	Advance(d time.Duration) error
	// RejectBind makes the last decision about a pod fail, so that it is not tried again for d.
	RejectBind(p *v1.Pod, d time.Duration) error
}
