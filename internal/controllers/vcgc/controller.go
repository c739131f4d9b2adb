package vcgc

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// Controller is the garbage collector.
type Controller struct {
	*control.Controller[types.NamespacedName, *batch.Job]
}

// New returns the controller, not yet running. workers is how many Jobs are deleted at a time, 1 or more.
func New(s control.Shell, workers int) (*Controller, error) {
	jobs := map[types.NamespacedName]*batch.Job{}
	c := &Controller{}
	var err error
	c.Controller, err = control.NewController(s, control.Role[types.NamespacedName, *batch.Job]{
		Name: "vcgc", Workers: workers, MinRetry: time.Second, MaxRetry: time.Minute,
		Tenant: func(k types.NamespacedName) string { return k.Namespace },
		About:  control.Named[batch.Job],
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
	if err != nil {
		return nil, err
	}
	control.Watch(c.Loop, &batch.Job{}, func(j *batch.Job, gone bool) []control.Due[types.NamespacedName] {
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
	err := c.Shell.Client.Delete(ctx, j.DeepCopy(), client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete Job %s: %w", client.ObjectKeyFromObject(j), err)
}
