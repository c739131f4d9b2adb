package reservation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
)

// reserve makes sure that a device of the node is reserved for the group, and returns its UUID; empty as long as that
// takes. left is how long the caller is ready to wait; when nothing is left, waiting becomes an error. source is the pod
// that wants the device.
func (c *Controller) reserve(ctx context.Context, group, node string, source *corev1.Pod, left time.Duration) (string, error) {
	defer c.locks.take(group)()
	members, err := c.cluster.members(ctx, group)
	if err != nil {
		return "", err
	}
	p := best(c.reservations(members))
	fresh := false
	if p == nil {
		// Others may have been told of a device before: whether it is this one is to be seen.
		var again bool
		c.locked(func() { _, again = c.known[group] })
		again = again || slices.ContainsFunc(members, func(m *corev1.Pod) bool { return m.UID != source.UID && !over(m) })
		if p, err = c.open(ctx, group, node, source, again, left); err != nil || p == nil {
			return "", err
		}
		fresh = true
	}
	late := func(what string) (string, error) {
		if left > 0 {
			return "", nil
		}
		return "", verdictf("the device of group %s was not reserved within %v: reservation pod %s %s", group, c.options.Timeout, p.Name, what)
	}
	switch {
	case p.Spec.NodeName != node:
		return "", verdictf("group %s shares a device of node %s, not of node %s", group, p.Spec.NodeName, node)
	case p.DeletionTimestamp != nil:
		return late("is still being deleted")
	case over(p):
		// It holds nothing, and nobody can hold it back.
		if p.Annotations[keys.RegainedAnnotation] != "true" { // else sync first looks at what it proves
			if err := c.cluster.deletePod(ctx, p, false); err != nil {
				return "", err
			}
		}
		return "", verdictf("the device of group %s could not be reserved: reservation pod %s ended: %s", group, p.Name, why(p))
	case deviceOf(p) == "" && left > 0:
		return "", nil
	case deviceOf(p) == "":
		// As long as it is as it was seen: its answer may be coming in just now.
		if err := c.cluster.deletePod(ctx, p, true); err != nil {
			return "", err
		}
		return late("did not report it")
	case fresh:
		c.locked(func() { c.known[group] = struct{}{} })
		return deviceOf(p), nil
	}
	// The cache may show a pod that went: another look, under the lock, at the pod itself.
	now, err := c.cluster.livePod(ctx, types.NamespacedName{Namespace: p.Namespace, Name: p.Name})
	if err != nil {
		return "", err
	}
	if now == nil || now.UID != p.UID || now.DeletionTimestamp != nil || over(now) {
		return late("went")
	}
	c.locked(func() { c.known[group] = struct{}{} })
	return deviceOf(now), nil
}

// reservations are the reservation pods among a group's members.
func (c *Controller) reservations(members []*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range members {
		if p.Namespace == c.options.Namespace {
			out = append(out, p)
		}
	}
	return out
}

// open makes the group's reservation pod and returns it as the API server has it; nil if it has to be waited for leave
// to do so. again says that there was one before, whose device pods may use. When there is one already, which the cache does
// not show yet, it is returned instead. The caller holds the group's lock.
func (c *Controller) open(ctx context.Context, group, node string, source *corev1.Pod, again bool, left time.Duration) (*corev1.Pod, error) {
	busy, err := c.scaling(ctx, node, source)
	switch {
	case err != nil:
		return nil, err
	case busy && left <= 0:
		return nil, verdictf("no device may be reserved while pods of namespace %s wait for new nodes; waited for %v", c.options.ScalingNamespace, c.options.Timeout)
	case busy:
		c.again(group, nodeYouth)
		return nil, nil
	}
	want := newPod(c.options, node, group)
	if again {
		want.Annotations[keys.RegainedAnnotation] = "true"
	}
	name := types.NamespacedName{Namespace: want.Namespace, Name: want.Name}
	p, err := c.cluster.createPod(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return nil, fmt.Errorf("reservation pod %s: %w", name, err)
		}
		return p, nil
	}
	if p, err = c.cluster.livePod(ctx, name); err != nil {
		return nil, err
	}
	switch {
	case p == nil:
		return nil, fmt.Errorf("reservation pod %s went while it was made", name)
	case p.Labels[keys.GPUGroupLabel] != group:
		return nil, verdictf("pod %s stands where the reservation pod of group %s has to be, and is not it", name, group)
	}
	return p, nil
}

// nodeYouth is for how long a node that joins the cluster is left to the pods that were waiting for new nodes.
const nodeYouth = 30 * time.Second

// scaling says whether a device of the node must not be reserved for the source now, because a pod waits for a new node: one that
// stands for a pod of the source's namespace, or for nobody knows whom; or any, if the node is a new one, which it may be about to
// get. What others wait for is no reason to leave what is there unused.
func (c *Controller) scaling(ctx context.Context, node string, source *corev1.Pod) (bool, error) {
	waiting, err := c.cluster.unscheduled(ctx, c.options.ScalingNamespace)
	if err != nil || len(waiting) == 0 {
		return false, err
	}
	for _, p := range waiting {
		if of := p.Labels[keys.ScalingPodSourceNamespaceLabel]; of == "" || of == source.Namespace {
			return true, nil
		}
	}
	n, err := c.cluster.node(ctx, node)
	return n != nil && c.now().Sub(n.CreationTimestamp.Time) < nodeYouth, err
}

// why is what a pod that ended says about it.
func why(p *corev1.Pod) string {
	switch {
	case p.Status.Reason != "" && p.Status.Message != "":
		return p.Status.Reason + ": " + p.Status.Message
	case p.Status.Reason != "":
		return p.Status.Reason
	}
	return string(p.Status.Phase)
}
