package vcgc

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// Deps are what the controller needs of the process around it.
type Deps struct {
	// Cache feeds Jobs; it is started by the process.
	Cache cache.Cache
	// Client deletes Jobs. It must know the Job kind.
	Client client.Client
	// Log takes the controller's messages.
	Log logr.Logger
	// Clock says when time is up; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
}

// Controller is the garbage collector.
type Controller struct {
	deps Deps
	loop *control.Loop[types.NamespacedName, *batch.Job]
}

// New returns the controller, not yet running. workers is how many Jobs are deleted at a time, 1 or more.
func New(deps Deps, workers int) (*Controller, error) {
	if workers < 1 {
		return nil, fmt.Errorf("garbage collector: %d workers: at least one is needed", workers)
	}
	jobs := map[types.NamespacedName]*batch.Job{}
	c := &Controller{deps: deps}
	c.loop = control.New(control.Deps{Cache: deps.Cache, Log: deps.Log, Clock: deps.Clock, Guard: deps.Guard}, control.Role[types.NamespacedName, *batch.Job]{
		Name: "vcgc", Workers: workers, MinRetry: time.Second, MaxRetry: time.Minute,
		Tenant: func(k types.NamespacedName) string { return k.Namespace },
		About: func(k types.NamespacedName) client.Object {
			return &batch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}
		},
		Decide: func(k types.NamespacedName, now time.Time) (*batch.Job, []control.Due[types.NamespacedName], time.Time) {
			j := jobs[k]
			at := expires(j)
			if at.IsZero() || at.After(now) {
				return nil, nil, at
			}
			return j, nil, time.Time{}
		},
		Write: c.remove,
	})
	control.Watch(c.loop, &batch.Job{}, func(j *batch.Job, gone bool) []control.Due[types.NamespacedName] {
		k := client.ObjectKeyFromObject(j)
		if gone || expires(j).IsZero() {
			delete(jobs, k)
			return nil
		}
		jobs[k] = j
		return []control.Due[types.NamespacedName]{{Key: k}}
	})
	return c, nil
}

// Run deletes until ctx ends, which is no error. It must be called once.
func (c *Controller) Run(ctx context.Context) error { return c.loop.Run(ctx) }

// expires is when a Job's time is up, counted from the last change of its state; zero for never: it goes already, has no such time, or has not
// ended. An aborted Job may be resumed, and has not.
func expires(j *batch.Job) time.Time {
	if j == nil || j.DeletionTimestamp != nil || j.Spec.TTLSecondsAfterFinished == nil {
		return time.Time{}
	}
	switch j.Status.State.Phase {
	case batch.Completed, batch.Failed, batch.Terminated:
		return j.Status.State.LastTransitionTime.Add(time.Duration(*j.Spec.TTLSecondsAfterFinished) * time.Second)
	}
	return time.Time{}
}

// remove deletes the very Job that was looked at, in the state that it was in, after all that it owns. One that is another by now, or in
// another state, is looked at anew: its event is on its way.
func (c *Controller) remove(ctx context.Context, j *batch.Job) error {
	if j == nil {
		return nil
	}
	uid, version := j.UID, j.ResourceVersion
	err := c.deps.Client.Delete(ctx, j.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete Job %s: %w", client.ObjectKeyFromObject(j), err)
}
