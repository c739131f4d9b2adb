package reservation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// picture is what the cache shows of a group.
type picture struct {
	held   []*corev1.Pod // reservation pods
	bound  []*corev1.Pod // pods that use the device: bound, and not ended
	strays []*corev1.Pod // pods with the group's label that nobody is going to bind
	wanted bool          // by a request that may still be executed

	requests []*schedulingv1alpha2.BindRequest
}

func (c *Controller) look(ctx context.Context, group string) (*picture, error) {
	members, err := c.cluster.members(ctx, group)
	if err != nil {
		return nil, err
	}
	v := &picture{held: c.reservations(members)}
	if v.requests, err = c.cluster.requests(ctx, group); err != nil {
		return nil, err
	}
	v.wanted = slices.ContainsFunc(v.requests, live)
	for _, p := range members {
		switch {
		case p.Namespace == c.options.Namespace, over(p):
		case p.Spec.NodeName != "":
			v.bound = append(v.bound, p)
		case !slices.ContainsFunc(v.requests, func(r *schedulingv1alpha2.BindRequest) bool { return live(r) && meant(r, p) }):
			v.strays = append(v.strays, p)
		}
	}
	return v, nil
}

// turn gives a group its turn.
func (c *Controller) turn(ctx context.Context, group string) error {
	defer c.locks.take(group)()
	return c.sync(ctx, group)
}

// sync puts a group in order: labels of pods that will not be bound are removed, a device that nobody uses is released,
// one that was lost is regained. An error is about the way to the API server, or asks for another look. The caller holds the
// group's lock.
func (c *Controller) sync(ctx context.Context, group string) error {
	v, err := c.look(ctx, group)
	if err != nil {
		return err
	}
	if len(v.held)+len(v.bound) == 0 && !v.wanted {
		c.locked(func() { delete(c.known, group) })
	}
	var errs []error
	for _, p := range v.strays {
		// A pod that changed is looked at again when the cache shows how.
		if _, err := c.cluster.patchMeta(ctx, p, unlabel(p, group), nil, true); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case len(v.held) > 0 && len(v.bound) == 0 && !v.wanted:
		errs = append(errs, c.release(ctx, group, v))
	case len(v.bound) > 0:
		errs = append(errs, c.mend(ctx, group, v))
	}
	return errors.Join(errs...)
}

// unlabel removes a pod's labels of one group.
func unlabel(p *corev1.Pod, group string) map[string]any {
	out := map[string]any{}
	for _, key := range []string{keys.GPUGroupLabel, keys.GPUGroupLabelPrefix + group} {
		if p.Labels[key] == group {
			out[key] = nil
		}
	}
	return out
}

// meant says that the request is about this very pod.
func meant(r *schedulingv1alpha2.BindRequest, p *corev1.Pod) bool {
	b := kai.Read(r)
	return b.Meant(p)
}

// release deletes the reservation pods of a group, unless the API server knows of a pod that uses the device. Nobody is asked
// about those that are on their way out already.
func (c *Controller) release(ctx context.Context, group string, v *picture) error {
	if !slices.ContainsFunc(v.held, func(p *corev1.Pod) bool { return p.DeletionTimestamp == nil }) {
		return nil
	}
	members, err := c.cluster.liveMembers(ctx, group)
	if err != nil {
		return err
	}
	for _, p := range members {
		if p.Namespace != c.options.Namespace && !over(p) && p.Spec.NodeName != "" {
			return nil // the cache will show it
		}
	}
	for _, p := range v.held {
		if p.DeletionTimestamp == nil {
			if err := c.cluster.deletePod(ctx, p, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// mend regains a device that is in use and not reserved.
func (c *Controller) mend(ctx context.Context, group string, v *picture) error {
	p := best(v.held)
	switch {
	case p == nil:
		return c.regain(ctx, group, v)
	case p.DeletionTimestamp != nil:
		return nil // until it is gone
	case over(p):
		if p.Annotations[keys.RegainedAnnotation] == "true" && p.Status.Phase == corev1.PodFailed {
			// The node has no free device: somebody else has got it.
			if err := c.expel(ctx, group, v, nil, "it is in use by another pod: "+why(p)); err != nil {
				return err
			}
		}
		return c.cluster.deletePod(ctx, p, false)
	case p.Annotations[keys.RegainedAnnotation] != "true":
		return nil
	case deviceOf(p) == "":
		return c.await(ctx, group, p)
	}
	return c.compare(ctx, group, v, p)
}

// users are the pods of which it is certain that they were given the group's device and want to keep it: the request that
// did so is there, and they are not on their way out. Labels alone, which a user can write, take no device.
func (v *picture) users() []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range v.bound {
		if p.DeletionTimestamp == nil && slices.ContainsFunc(v.requests, func(r *schedulingv1alpha2.BindRequest) bool {
			return kai.Read(r).Succeeded && meant(r, p) && r.Spec.SelectedNode == p.Spec.NodeName
		}) {
			out = append(out, p)
		}
	}
	return out
}

// regain reserves a device for pods that use one which is not reserved any more. The node usually still has it free: the
// scheduler counts it as used.
func (c *Controller) regain(ctx context.Context, group string, v *picture) error {
	users := v.users()
	if len(users) == 0 {
		return nil
	}
	members, err := c.cluster.liveMembers(ctx, group)
	if err != nil {
		return err
	}
	still := false
	for _, p := range members {
		if p.Namespace == c.options.Namespace {
			return nil // the cache will show it
		}
		still = still || p.UID == users[0].UID && p.DeletionTimestamp == nil && !over(p)
	}
	if !still {
		return nil // the cache will show that, too
	}
	c.log.Info("The reservation of a shared device is gone while pods use it; it is made again", "group", group, "node", users[0].Spec.NodeName, "pods", len(users))
	p, err := c.open(ctx, group, users[0].Spec.NodeName, users[0], true, c.options.Timeout)
	if err != nil {
		return fault(err)
	}
	if p == nil {
		return fmt.Errorf("group %s: no device may be reserved while pods of namespace %s wait for new nodes", group, c.options.ScalingNamespace)
	}
	c.again(group, c.options.Timeout+time.Second)
	return nil
}

// await gives a reservation pod that was made again its time, and then starts over.
func (c *Controller) await(ctx context.Context, group string, p *corev1.Pod) error {
	// Its age by two clocks: a clock that is wrong makes it wait longer, or start over earlier, and no harm is done.
	left := c.options.Timeout - c.now().Sub(p.CreationTimestamp.Time)
	if left > 0 {
		c.again(group, left+time.Second)
		return nil
	}
	if err := c.cluster.deletePod(ctx, p, true); err != nil {
		return err
	}
	return fmt.Errorf("group %s: reservation pod %s did not report its device within %v; it is made again", group, p.Name, c.options.Timeout)
}

// compare looks whether the device that was reserved again is the one that the pods use, and evicts those that use
// another one. When none is left, and no request is under way that may have been told of the other device, the matter is
// closed.
func (c *Controller) compare(ctx context.Context, group string, v *picture, p *corev1.Pod) error {
	device := deviceOf(p)
	if err := c.expel(ctx, group, v, func(told []string) bool { return slices.Contains(told, device) }, "device "+device+" was reserved in its place"); err != nil {
		return err
	}
	if v.wanted {
		return nil // the end of each request is heard of
	}
	_, err := c.cluster.patchMeta(ctx, p, nil, map[string]any{keys.RegainedAnnotation: nil}, false)
	return err
}

// expel evicts the users of which it is proven that their device is not theirs any more. keeps says whether a pod that was
// told these devices may stay; nil: none. Of a pod nobody knows what it was told nothing is proven.
func (c *Controller) expel(ctx context.Context, group string, v *picture, keeps func(told []string) bool, because string) error {
	var errs []error
	for _, p := range v.users() {
		told, err := c.toldDevices(ctx, p)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case keeps != nil && (told == nil || keeps(told)):
			continue
		}
		switch done, err := c.cluster.evict(ctx, p); {
		case err != nil:
			errs = append(errs, err)
		case done:
			c.cluster.event(p, corev1.EventTypeWarning, keys.EventSharedDeviceLost, fmt.Sprintf(
				"The pod is evicted: the pod that held the shared device of group %s is gone, and the device could not be reserved again: %s", group, because))
		}
	}
	return errors.Join(errs...)
}
