package binder

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// Preparer makes ready one kind of thing that a pod needs on its node before it is bound. Preparers work in a fixed
// order and are undone in the reverse one.
//
// None of them keeps state between calls: what was done is read back from the objects. So a process that starts anew
// can finish or undo what an earlier one began.
type Preparer interface {
	// Name is one lower-case word for logs and reasons.
	Name() string

	// Relevant says whether the pod needs anything of this kind. It is pure and cheap. Pods for which no preparer
	// is relevant are prepared by existing.
	Relevant(request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) bool

	// Prepare does what is still missing. It returns false when it has to wait for somebody else's work; it is then
	// called again when a claim of the pod changes, and when time is up. An error counts as a failed attempt,
	// unless it says nothing about the request, such as an API server that does not answer. It may be called again
	// after it returned true.
	Prepare(ctx context.Context, request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) (ready bool, err error)

	// Undo takes back what Prepare did for a pod that was not bound, completely or not at all. What others rely on
	// by now, such as a claim that was bound, stays. It returns nil when nothing is left to take back.
	Undo(ctx context.Context, request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) error
}

// relevant says whether any preparer has work for the pod.
func relevant(ps []Preparer, request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) bool {
	for _, p := range ps {
		if p.Relevant(request, pod) {
			return true
		}
	}
	return false
}
