package enginetest

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	dra "github.com/muster-scheduler/muster/internal/dialect/devices"
)

// Reserve does what the binder does to a claim of a pod that is bound: the pod is among its users, and unless it has
// devices, it gets those of the allocation.
func Reserve(c *resourcev1.ResourceClaim, p *v1.Pod, a *resourcev1.AllocationResult) *resourcev1.ResourceClaim {
	c = c.DeepCopy()
	if c.Status.Allocation == nil {
		c.Status.Allocation = a.DeepCopy()
	}
	if !slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == p.UID }) {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: p.Name, UID: p.UID})
	}
	return c
}

// Release does what the claims' controller does when users are gone: they are struck off, and a claim without any gives its
// devices back. It says whether that changed anything.
func Release(c *resourcev1.ResourceClaim, gone func(uid types.UID) bool) (*resourcev1.ResourceClaim, bool) {
	if !slices.ContainsFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return gone(r.UID) }) {
		return c, false
	}
	c = c.DeepCopy()
	c.Status.ReservedFor = slices.DeleteFunc(c.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return gone(r.UID) })
	if len(c.Status.ReservedFor) == 0 {
		c.Status.ReservedFor, c.Status.Allocation = nil, nil
	}
	return c, true
}

// claimed writes the devices that a pod got into its claims.
func (b *Engine) claimed(p *v1.Pod, chosen []cluster.ClaimAllocation) error {
	for i := range p.Spec.ResourceClaims {
		ref := &p.Spec.ResourceClaims[i]
		name, _, _ := dra.ClaimName(p, ref)
		c, ok := b.objects["ResourceClaim/"+p.Namespace+"/"+name].(*resourcev1.ResourceClaim)
		if !ok {
			continue
		}
		var a *resourcev1.AllocationResult
		for k := range chosen {
			if chosen[k].Name == ref.Name {
				a = chosen[k].Allocation
			}
		}
		if err := b.Apply(Reserve(c, p, a)); err != nil {
			return err
		}
	}
	for k := range chosen {
		if chosen[k].Name != "" {
			continue
		}
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name + "-extended-resources", OwnerReferences: ownedBy(p),
			Annotations: map[string]string{resourcev1.ExtendedResourceClaimAnnotation: "true"},
		}}
		c.Spec.Devices.Requests = chosen[k].Requests
		if err := b.Apply(Reserve(c, p, chosen[k].Allocation)); err != nil {
			return err
		}
		p.Status.ExtendedResourceClaimStatus = &v1.PodExtendedResourceClaimStatus{ResourceClaimName: c.Name}
	}
	return nil
}

func ownedBy(p *v1.Pod) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: new(true)}}
}

// keepClaims does the rest of what the claims' controller does: it makes claims from templates for pods, and lets go of those
// whose pods are gone.
func (b *Engine) keepClaims() {
	alive := map[types.UID]bool{}
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		if p, ok := b.objects[k].(*v1.Pod); ok && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			alive[p.UID] = true
			b.makeClaims(p)
		} else if pg, ok := b.objects[k].(*schedulingv1beta1.PodGroup); ok {
			alive[pg.UID] = true
		}
	}
	gone := func(uid types.UID) bool { return !alive[uid] }
	for _, k := range slices.Sorted(maps.Keys(b.objects)) {
		c, ok := b.objects[k].(*resourcev1.ResourceClaim)
		if !ok {
			continue
		}
		if o := metav1.GetControllerOf(c); o != nil && gone(o.UID) {
			_ = b.Delete(c)
		} else if c, changed := Release(c, gone); changed {
			_ = b.Apply(c)
		}
	}
}

func (b *Engine) makeClaims(p *v1.Pod) {
	for i := range p.Spec.ResourceClaims {
		ref := &p.Spec.ResourceClaims[i]
		if name, made, _ := dra.ClaimName(p, ref); !made || name != "" {
			continue
		}
		t, ok := b.objects["ResourceClaimTemplate/"+p.Namespace+"/"+*ref.ResourceClaimTemplateName].(*resourcev1.ResourceClaimTemplate)
		if !ok {
			continue
		}
		c := &resourcev1.ResourceClaim{ObjectMeta: *t.Spec.ObjectMeta.DeepCopy(), Spec: *t.Spec.Spec.DeepCopy()}
		c.Namespace, c.Name = p.Namespace, strings.Join([]string{p.Name, ref.Name}, "-")
		c.OwnerReferences = ownedBy(p)
		pg, _ := b.objects["PodGroup.scheduling.k8s.io/"+p.Namespace+"/"+groupOf(p)].(*schedulingv1beta1.PodGroup)
		if pg != nil && slices.ContainsFunc(pg.Spec.ResourceClaims, func(g schedulingv1beta1.PodGroupResourceClaim) bool {
			return g.Name == ref.Name && g.ResourceClaimName == nil && *g.ResourceClaimTemplateName == *ref.ResourceClaimTemplateName
		}) {
			c.Name = strings.Join([]string{pg.Name, "group", ref.Name}, "-")
			c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "scheduling.k8s.io/v1beta1", Kind: "PodGroup", Name: pg.Name, UID: pg.UID, Controller: new(true)}}
		}
		old, _ := b.objects["ResourceClaim/"+c.Namespace+"/"+c.Name].(*resourcev1.ResourceClaim)
		if (old == nil || pg == nil || !metav1.IsControlledBy(old, pg)) && b.Apply(c) != nil {
			return
		}
		p = p.DeepCopy()
		p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, v1.PodResourceClaimStatus{Name: ref.Name, ResourceClaimName: &c.Name})
		_ = b.Apply(p)
	}
}
