package volcano

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresource "k8s.io/component-helpers/resource"
)

// Usage is what a pod of that spec uses of quotas: what it requests under two names, what its limits are, itself, under two names too. The result
// is the caller's.
func Usage(spec *corev1.PodSpec) corev1.ResourceList {
	p := &corev1.Pod{Spec: *spec.DeepCopy()}
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			defaultRequests(&list[i].Resources)
		}
	}
	one := resource.MustParse("1")
	out := corev1.ResourceList{"pods": one, "count/pods": one}
	for name, q := range podresource.PodRequests(p, podresource.PodResourcesOptions{}) { // order: the result is a map
		out[name] = q
		out["requests."+name] = q
	}
	for name, q := range podresource.PodLimits(p, podresource.PodResourcesOptions{}) { // order: the same
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			out["limits."+name] = q
		}
	}
	return out
}

// defaultRequests makes limits requests where these are missing, as API servers do to pods.
func defaultRequests(r *corev1.ResourceRequirements) {
	for name, q := range r.Limits { // order: each for itself
		if _, has := r.Requests[name]; !has {
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = q
		}
	}
}

// AddTimes adds n times, 0 or more, what is added to sum; exactly, however much that is.
func AddTimes(sum, add corev1.ResourceList, n int64) {
	for name, q := range add { // order: each for itself
		total := sum[name]
		many := q.DeepCopy()
		many.Mul(n)
		total.Add(many)
		sum[name] = total
	}
}

// Replaced is the merge patch that makes one list of another.
func Replaced(was *corev1.ResourceList, is corev1.ResourceList) map[corev1.ResourceName]any {
	out := map[corev1.ResourceName]any{}
	if was != nil {
		for name := range *was { // order: the result is a map
			out[name] = nil
		}
	}
	for name, q := range is { // order: the same
		out[name] = q
	}
	return out
}
