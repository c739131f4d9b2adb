package kubelet

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// amounts counts resources in a kubelet's units: milli-CPU, and whole units of everything else.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	a := make(amounts, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			a[name] = q.MilliValue()
		} else {
			a[name] = q.Value()
		}
	}
	return a
}

// requestsOf is what a pod takes from its node: its effective requests and one pod slot. Extended resources that it gets as
// devices by a claim are the driver's business, as a kubelet has it.
func requestsOf(pod *corev1.Pod) amounts {
	a := amountsOf(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	if s := pod.Status.ExtendedResourceClaimStatus; s != nil {
		for i := range s.RequestMappings {
			delete(a, corev1.ResourceName(s.RequestMappings[i].ResourceName))
		}
	}
	a[corev1.ResourcePods] = 1
	return a
}

// node is a played node with what its admitted pods take.
type node struct {
	capacity    amounts
	allocatable amounts
	used        amounts
	devices     map[int]bool // GPUs in use, by index
	failed      bool
	ready       corev1.ConditionStatus // as last seen
}

// shortage is the first resource, in a fixed order, that a pod with these requests lacks.
type shortage struct {
	name                       corev1.ResourceName
	requested, used, available int64
}

func (s shortage) reason() string { return "OutOf" + string(s.name) }

func (s shortage) message() string {
	return fmt.Sprintf("Pod was rejected: Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
		s.name, s.requested, s.used, s.available)
}

func (n *node) lacks(req amounts) (shortage, bool) {
	for _, name := range slices.SortedFunc(maps.Keys(req), func(a, b corev1.ResourceName) int { return strings.Compare(rank(a), rank(b)) }) {
		if v := req[name]; v > 0 && n.used[name]+v > n.allocatable[name] {
			return shortage{name, v, n.used[name], n.allocatable[name]}, true
		}
	}
	return shortage{}, false
}

// rank orders resources as a kubelet checks them: pods, CPU, memory, storage, then the others by name.
func rank(name corev1.ResourceName) string {
	switch name {
	case corev1.ResourcePods:
		return "0"
	case corev1.ResourceCPU:
		return "1"
	case corev1.ResourceMemory:
		return "2"
	case corev1.ResourceEphemeralStorage:
		return "3"
	}
	return "4" + string(name)
}

func (n *node) take(req amounts) {
	for name, v := range req {
		n.used[name] += v
	}
}

func (n *node) giveBack(req amounts) {
	for name, v := range req {
		n.used[name] -= v
	}
}
