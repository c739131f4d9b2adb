package devices

import (
	"encoding/json"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
	"github.com/muster-scheduler/muster/internal/entry"
)

// Pod completes a pod's event: which claims it has, and what its queue is charged for them. A pod that has ended has none.
func (b *Index) Pod(st *cluster.PodState, p *v1.Pod) {
	b.now = b.now[:0]
	if st.Phase != cluster.Succeeded && st.Phase != cluster.Failed {
		b.complete(st, p)
	}
	b.use(p.Namespace + "/" + p.Name)
}

// complete is Pod for one that has not ended. It notes what the event depends on.
func (b *Index) complete(st *cluster.PodState, p *v1.Pod) {
	gpus := int64(0)
	for i := range p.Spec.ResourceClaims {
		ref := &p.Spec.ResourceClaims[i]
		name, made, needed := ClaimName(p, ref)
		if !needed {
			continue
		}
		need, object := cluster.DeviceNeed{}, ""
		if name == "" {
			need.Missing = p.Namespace + "/" + *ref.ResourceClaimTemplateName + " (template)"
		} else {
			object = p.Namespace + "/" + name
			b.now = append(b.now, want{what: object})
			c, ok := b.claims[object]
			if !ok {
				need.Missing = object
			}
			need.Spec, need.GPUs = c.spec, c.gpus
			switch {
			case !made:
				need.Shared, need.Queue = object, c.queue
			case c.group != "" && c.group == podsGroup(p):
				need.Shared, need.Own = object, true
			}
		}
		gpus += need.GPUs
		st.Spec.Devices = append(st.Spec.Devices, need)
		st.DeviceClaims = append(st.DeviceClaims, cluster.DeviceClaim{Name: ref.Name, Object: object})
	}
	if slices.ContainsFunc(st.Spec.Devices, func(d cluster.DeviceNeed) bool { return d.Shared != "" || d.Missing != "" }) {
		st.Spec.Namespace = p.Namespace // it may matter for other reasons, too
	}
	b.extended(st, p)
	core.Charge(st, gpus*1000)
}

// OfGroup says whether a claim was made, from a template, for the PodGroup that the pod names: all pods of the group that refer to it as the group does use it.
func OfGroup(c *resourceapi.ResourceClaim, p *v1.Pod) bool {
	name := groupOf(c)
	return name != "" && name == podsGroup(p)
}

// groupOf is the name of the PodGroup that a claim was made for; "" for none. Who makes claims by hand can say so, but not have a pod refer to it: the claim behind a
// pod's template is named by the pod's status.
func groupOf(c *resourceapi.ResourceClaim) string {
	o := metav1.GetControllerOf(c)
	if o == nil || o.Kind != "PodGroup" {
		return ""
	}
	if gv, err := schema.ParseGroupVersion(o.APIVersion); err != nil || gv.Group != schedulingv1beta1.GroupName {
		return ""
	}
	return o.Name
}

// podsGroup is the name of the PodGroup of Kubernetes' own that a pod names; "" for none.
func podsGroup(p *v1.Pod) string {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return *g.PodGroupName
	}
	return ""
}

// ClaimName returns the name of the claim behind a pod's reference: of one that exists by itself, or, made, of the one
// that was made for the pod or its PodGroup; "" while that has not been done. needed is false when the claim's controller found that
// none is needed.
func ClaimName(p *v1.Pod, ref *v1.PodResourceClaim) (name string, made, needed bool) {
	if ref.ResourceClaimName != nil {
		return *ref.ResourceClaimName, false, *ref.ResourceClaimName != "" // the API server refuses an empty name
	}
	if ref.ResourceClaimTemplateName == nil {
		return "", false, false // neither: the API server refuses such pods
	}
	for i := range p.Status.ResourceClaimStatuses {
		if s := &p.Status.ResourceClaimStatuses[i]; s.Name == ref.Name {
			if s.ResourceClaimName == nil {
				return "", true, false
			}
			return *s.ResourceClaimName, true, true
		}
	}
	return "", true, true
}

// use has the indices say that a pod depends on what was noted. Of nearly every event of a pod that is what it was.
func (b *Index) use(pod string) {
	delete(b.dirtyPods, pod)
	if slices.Equal(b.wants[pod], b.now) {
		return
	}
	b.Forget(pod)
	if len(b.now) == 0 {
		return
	}
	b.wants[pod] = slices.Clone(b.now)
	for _, w := range b.now {
		entry.Put(b.index(w), w.what, pod, struct{}{})
	}
}

// index is the one that a want is in.
func (b *Index) index(w want) map[string]map[string]struct{} {
	if w.resource {
		return b.asks
	}
	return b.users
}

// GPUs is how many GPUs a claim counts as. A request that asks for alternatives counts as its first, which is what it would
// rather have.
func GPUs(spec *resourceapi.ResourceClaimSpec) int64 {
	sum := int64(0)
	for _, n := range Classes(spec) { // order: a sum
		sum += n
	}
	return sum
}

// Classes is how many GPUs a claim counts as, by the name of the device class; nil for none.
func Classes(spec *resourceapi.ResourceClaimSpec) map[string]int64 {
	const most = int64(resourceapi.AllocationResultsMaxSize)
	var out map[string]int64
	for i := range spec.Devices.Requests {
		r := &spec.Devices.Requests[i]
		class, mode, count := "", resourceapi.DeviceAllocationMode(""), int64(0)
		switch {
		case r.Exactly != nil:
			if r.Exactly.AdminAccess != nil && *r.Exactly.AdminAccess {
				continue
			}
			class, mode, count = r.Exactly.DeviceClassName, r.Exactly.AllocationMode, r.Exactly.Count
		case len(r.FirstAvailable) > 0:
			class, mode, count = r.FirstAvailable[0].DeviceClassName, r.FirstAvailable[0].AllocationMode, r.FirstAvailable[0].Count
		}
		if !IsGPU(class) {
			continue
		}
		if mode == resourceapi.DeviceAllocationModeAll {
			count = 1
		}
		if out == nil {
			out = map[string]int64{}
		}
		out[class] += min(max(1, count), most)
	}
	return out
}

// specText is a spec as canonical text.
func specText(s *resourceapi.ResourceClaimSpec) string {
	text, err := json.Marshal(s)
	if err != nil { // these types marshal by construction
		panic("devices: claim spec: " + err.Error())
	}
	return string(text)
}
