package binder

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// called again when a claim of the pod changes, when a Companion asks for it, and when time is up. An error that
	// has a method AboutRequest(), and an answer of the API server, count as a failed attempt; any other error, such
	// as an API server that cannot be reached, says nothing about the request, and the same is tried again. It may be
	// called again after it returned true.
	Prepare(ctx context.Context, request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) (ready bool, err error)

	// Undo takes back what Prepare did for a pod that was not bound, completely or not at all. What others rely on
	// by now, such as a claim that was bound, stays. It returns nil when nothing is left to take back.
	Undo(ctx context.Context, request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) error
}

// Checker is a Preparer that knows a kind of request and can tell, before anything is done, that one makes no sense. A
// request of a kind that no Checker knows is refused: binding its pod all the same would leave it without its devices.
type Checker interface {
	Preparer

	// Check says whether the request is of the Preparer's kind, and what is wrong with it; empty if nothing is. It is
	// pure and cheap.
	Check(request *schedulingv1alpha2.BindRequest) (known bool, problem string)
}

// Companion is a Preparer with work of its own beside the requests. It runs as long as the binder does.
type Companion interface {
	Preparer

	// Run works until ctx ends; it returns nil then, and an error when it cannot go on. wake has Prepare called
	// again for the request of that name, if it waits; it never blocks.
	Run(ctx context.Context, wake func(request types.NamespacedName)) error
}

// Noter is a Preparer that has something to tell the user of a pod that is bound.
type Noter interface {
	Preparer

	// Note is one sentence for the message of the condition PodBound, empty for none. It is asked whether the
	// Preparer is relevant for the pod or not.
	Note(request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) string
}

// relevant says whether any preparer has work for the pod.
func relevant(ps []Preparer, request *schedulingv1alpha2.BindRequest, pod *corev1.Pod) bool {
	return slices.ContainsFunc(ps, func(p Preparer) bool { return p.Relevant(request, pod) })
}
