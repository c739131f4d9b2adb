package binder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/devices"
)

// deviceClaims is what the claims preparer needs of the cluster. Claims that do not exist are nil, without an error.
type deviceClaims interface {
	// deviceClaim returns a claim, from a cache or, live, as the API server has it. It is never changed.
	deviceClaim(ctx context.Context, name types.NamespacedName, live bool) (*resourcev1.ResourceClaim, error)

	// writeClaim replaces the claim's finalizers and status, each if it differs. It fails with errStale if the claim is
	// not the version that was read, or gone.
	writeClaim(ctx context.Context, before, after *resourcev1.ResourceClaim) error

	// createClaim makes a claim; one that is there already is no error.
	createClaim(ctx context.Context, c *resourcev1.ResourceClaim) error

	// deleteClaim deletes the claim with that UID. One that is gone is no error.
	deleteClaim(ctx context.Context, c *resourcev1.ResourceClaim) error

	// setExtended sets pod.status.extendedResourceClaimStatus, or removes it when it is nil. A pod that is gone is no error; that the API
	// server does not keep the field is a verdict.
	setExtended(ctx context.Context, pod *corev1.Pod, s *corev1.PodExtendedResourceClaimStatus) error

	// node returns a node, nil if it does not exist.
	node(ctx context.Context, name string) (*corev1.Node, error)
}

// errStale says that an object is not what it was when it was read.
var errStale = errors.New("the claim changed in the meantime")

// claimTries is how often in a row a claim is written that others write, too.
const claimTries = 5

// claims prepares resource claims: it writes into each claim of the pod which devices it gets, unless it has some, and that
// the pod uses it. For extended resources that are given as devices it makes the claim first. Devices that can only be
// used after their driver has done something (binding conditions) are waited for.
type claims struct {
	store deviceClaims
	now   func() time.Time
}

// Name implements Preparer.
func (claims) Name() string { return "claims" }

// Relevant implements Preparer: pods with a resource claim, and requests that bring one.
func (claims) Relevant(r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || r.Spec.ExtendedResourceClaimAllocation != nil
}

// Prepare implements Preparer.
func (p claims) Prepare(ctx context.Context, r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) (bool, error) {
	node, err := p.store.node(ctx, r.Spec.SelectedNode)
	switch {
	case err != nil:
		return false, err
	case node == nil:
		return false, verdictf("node %s is gone", r.Spec.SelectedNode)
	}
	ready := true
	for i := range pod.Spec.ResourceClaims {
		ref := &pod.Spec.ResourceClaims[i]
		name, made, needed := devices.ClaimName(pod, ref)
		switch {
		case !needed:
			continue
		case name == "":
			return false, verdictf("claim %s of the pod has not been made", ref.Name)
		}
		done, err := p.take(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, pod, node, chosen(r, ref.Name), made)
		if err != nil {
			return false, err
		}
		ready = ready && done
	}
	if x := r.Spec.ExtendedResourceClaimAllocation; x != nil {
		done, err := p.extend(ctx, x, pod, node)
		if err != nil {
			return false, err
		}
		ready = ready && done
	}
	return ready, nil
}

// chosen returns the devices that the request has for a claim, by the pod's name of it; nil for none.
func chosen(r *schedulingv1alpha2.BindRequest, name string) *resourcev1.AllocationResult {
	for i := range r.Spec.ResourceClaimAllocations {
		if a := &r.Spec.ResourceClaimAllocations[i]; a.Name == name {
			return a.Allocation
		}
	}
	return nil
}

// take makes the pod a user of one claim, and gives the claim its devices if it has none. made says that the claim was made
// for the pod, or for its PodGroup. It returns true when the devices can be used.
func (p claims) take(ctx context.Context, name types.NamespacedName, pod *corev1.Pod, node *corev1.Node, a *resourcev1.AllocationResult, made bool) (bool, error) {
	for try := range claimTries {
		c, err := p.store.deviceClaim(ctx, name, try > 0)
		switch {
		case err != nil:
			return false, err
		case c == nil && try == 0:
			continue // the cache may be late
		case c == nil:
			return false, verdictf("claim %s does not exist", name.Name)
		case c.DeletionTimestamp != nil:
			return false, verdictf("claim %s is being deleted", name.Name)
		case made && !metav1.IsControlledBy(c, pod) && !devices.OfGroup(c, pod):
			return false, verdictf("claim %s was made neither for this pod nor for its PodGroup", name.Name)
		}
		next, err := p.taken(c, pod, node, a)
		if err != nil {
			if try == 0 {
				continue // by what the cache says; the API server has the last word
			}
			return false, err
		}
		if err = p.store.writeClaim(ctx, c, next); err == nil {
			return usable(next)
		}
		if !errors.Is(err, errStale) {
			return false, err
		}
	}
	return false, verdictf("claim %s: others kept changing it", name.Name)
}

// taken returns the claim with the pod among its users and its devices.
func (p claims) taken(c *resourcev1.ResourceClaim, pod *corev1.Pod, node *corev1.Node, a *resourcev1.AllocationResult) (*resourcev1.ResourceClaim, error) {
	next := c.DeepCopy()
	switch {
	case c.Status.Allocation == nil && a == nil:
		return nil, verdictf("claim %s has no devices, and the request chooses none", c.Name)
	case c.Status.Allocation == nil:
		next.Status.Allocation = a.DeepCopy()
		if conditional(a) {
			next.Status.Allocation.AllocationTimestamp = new(metav1.NewTime(p.now()))
		}
		if !slices.Contains(next.Finalizers, resourcev1.Finalizer) { // or nobody would ever take the devices back
			next.Finalizers = append(next.Finalizers, resourcev1.Finalizer)
		}
	case c.Status.Allocation.NodeSelector != nil:
		s, err := nodeaffinity.NewNodeSelector(c.Status.Allocation.NodeSelector)
		if err != nil || !s.Match(node) {
			return nil, verdictf("claim %s has devices that cannot be reached from node %s", c.Name, node.Name)
		}
	}
	if user(c, pod.UID) < 0 {
		if len(c.Status.ReservedFor) >= resourcev1.ResourceClaimReservedForMaxSize {
			return nil, verdictf("claim %s is used by %d pods, which is the most", c.Name, len(c.Status.ReservedFor))
		}
		next.Status.ReservedFor = append(next.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: pod.Name, UID: pod.UID})
	}
	return next, nil
}

// user is the pod's place among the claim's users, -1 if it is none.
func user(c *resourcev1.ResourceClaim, uid types.UID) int {
	return slices.IndexFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == uid })
}

// conditional says whether a driver has to do something before some of the devices can be used.
func conditional(a *resourcev1.AllocationResult) bool {
	return slices.ContainsFunc(a.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool { return len(r.BindingConditions) > 0 })
}

// usable says whether all binding conditions of a claim's devices hold; that one can no longer hold is an error.
func usable(c *resourcev1.ResourceClaim) (bool, error) {
	ready := true
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if len(r.BindingConditions) == 0 {
			continue
		}
		var conditions []metav1.Condition
		for k := range c.Status.Devices {
			if d := &c.Status.Devices[k]; d.Driver == r.Driver && d.Pool == r.Pool && d.Device == r.Device {
				conditions = d.Conditions
			}
		}
		holds := func(kind string) bool {
			return slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Type == kind && c.Status == metav1.ConditionTrue })
		}
		if k := slices.IndexFunc(r.BindingFailureConditions, holds); k >= 0 {
			return false, verdictf("claim %s: device %s: %s", c.Name, r.Device, r.BindingFailureConditions[k])
		}
		for _, kind := range r.BindingConditions {
			ready = ready && holds(kind)
		}
	}
	return ready, nil
}

// extendedClaim is the claim for the extended resources of a pod. Its name tells the pod, so that it is made once.
func extendedClaim(pod *corev1.Pod, requests []resourcev1.DeviceRequest) *resourcev1.ResourceClaim {
	const most = 253 - 1 - 36
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
		Namespace: pod.Namespace, Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"}, Finalizers: []string{resourcev1.Finalizer},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true), BlockOwnerDeletion: new(true)}},
	}}
	prefix := pod.Name + "-extended-resources"
	c.Name = fmt.Sprintf("%s-%s", prefix[:min(len(prefix), most)], pod.UID)
	c.Spec.Devices.Requests = requests
	return c
}

// extend makes the claim for the pod's extended resources, gives it its devices, and tells the kubelet by the pod's status.
func (p claims) extend(ctx context.Context, x *schedulingv1alpha2.ExtendedResourceClaimAllocation, pod *corev1.Pod, node *corev1.Node) (bool, error) {
	if x.Allocation == nil || len(x.DeviceRequests) == 0 {
		return false, verdictf("spec.extendedResourceClaimAllocation lacks its devices or its requests")
	}
	c := extendedClaim(pod, x.DeviceRequests)
	name := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	if s := pod.Status.ExtendedResourceClaimStatus; s == nil || s.ResourceClaimName != c.Name {
		if err := p.store.createClaim(ctx, c); err != nil {
			return false, err
		}
	}
	done, err := p.take(ctx, name, pod, node, x.Allocation, true)
	if err != nil {
		return false, err
	}
	want := &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name, RequestMappings: x.ContainerMappings}
	if equality.Semantic.DeepEqual(pod.Status.ExtendedResourceClaimStatus, want) {
		return done, nil
	}
	return done, p.store.setExtended(ctx, pod, want)
}

// Undo implements Preparer. The pod is struck off its claims; a claim that nobody else uses gives the devices back that the
// request gave it, so that others can have them and the pod can go where others are.
func (p claims) Undo(ctx context.Context, r *schedulingv1alpha2.BindRequest, pod *corev1.Pod) error {
	var errs []error
	if r.Spec.ExtendedResourceClaimAllocation != nil {
		c := extendedClaim(pod, nil)
		errs = append(errs, p.leave(ctx, types.NamespacedName{Namespace: c.Namespace, Name: c.Name}, pod, r.Spec.ExtendedResourceClaimAllocation.Allocation, true))
		if pod.Status.ExtendedResourceClaimStatus != nil {
			errs = append(errs, p.store.setExtended(ctx, pod, nil))
		}
	}
	for i := range slices.Backward(pod.Spec.ResourceClaims) {
		ref := &pod.Spec.ResourceClaims[i]
		if name, _, needed := devices.ClaimName(pod, ref); needed && name != "" {
			errs = append(errs, p.leave(ctx, types.NamespacedName{Namespace: pod.Namespace, Name: name}, pod, chosen(r, ref.Name), false))
		}
	}
	return errors.Join(errs...)
}

// leave undoes take; last also deletes the claim.
func (p claims) leave(ctx context.Context, name types.NamespacedName, pod *corev1.Pod, a *resourcev1.AllocationResult, last bool) error {
	for range claimTries {
		c, err := p.store.deviceClaim(ctx, name, true)
		if err != nil || c == nil {
			return err
		}
		k := user(c, pod.UID)
		ours := gave(c, a)
		next := c.DeepCopy()
		if k >= 0 {
			next.Status.ReservedFor = slices.Delete(next.Status.ReservedFor, k, k+1)
		}
		if len(next.Status.ReservedFor) == 0 && ours {
			next.Status.Allocation, next.Status.Devices = nil, nil
		}
		if last && next.Status.Allocation == nil { // or it could not be deleted
			next.Finalizers = slices.DeleteFunc(next.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		}
		if k >= 0 || ours || len(next.Finalizers) < len(c.Finalizers) {
			if err = p.store.writeClaim(ctx, c, next); errors.Is(err, errStale) {
				continue
			} else if err != nil {
				return err
			}
		}
		if last && metav1.IsControlledBy(c, pod) {
			return p.store.deleteClaim(ctx, c)
		}
		return nil
	}
	return fmt.Errorf("claim %s: others kept changing it", name.Name)
}

// gave says whether the devices of a claim are those of the request.
func gave(c *resourcev1.ResourceClaim, a *resourcev1.AllocationResult) bool {
	if c.Status.Allocation == nil || a == nil {
		return false
	}
	have := c.Status.Allocation.DeepCopy()
	have.AllocationTimestamp = a.AllocationTimestamp
	return equality.Semantic.DeepEqual(have, a)
}

// deviceClaimsOf returns the keys of the pod's resource claims among all that its preparation may wait for.
func deviceClaimsOf(pod *corev1.Pod) []types.NamespacedName {
	var out []types.NamespacedName
	for i := range pod.Spec.ResourceClaims {
		if name, _, needed := devices.ClaimName(pod, &pod.Spec.ResourceClaims[i]); needed && name != "" {
			out = append(out, deviceClaimKey(types.NamespacedName{Namespace: pod.Namespace, Name: name}))
		}
	}
	return out
}

// deviceClaimKey tells resource claims from volume claims of the same name.
func deviceClaimKey(name types.NamespacedName) types.NamespacedName {
	return types.NamespacedName{Namespace: name.Namespace, Name: "resourceclaim/" + name.Name}
}
