package binder

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// undoTries is how often in a row the undoing of a preparation may fail before the failure is recorded without it.
const undoTries = 5

// writer is what the executor needs of the API server.
type writer interface {
	// readPod returns the pod as the API server has it, nil if it has none.
	readPod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error)

	// bind creates a Binding.
	bind(ctx context.Context, b *corev1.Binding) error

	// setCondition sets one condition of the pod with the pod's UID. A pod that is gone is no error.
	setCondition(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition) error

	// setStatus replaces the status of the request with the request's UID. One that is gone is no error.
	setStatus(ctx context.Context, r *schedulingv1alpha2.BindRequest, s schedulingv1alpha2.BindRequestStatus) error

	// deleteRequest deletes the request with the request's UID. One that is gone is no error.
	deleteRequest(ctx context.Context, r *schedulingv1alpha2.BindRequest) error

	// event tells the pod's user what happened. It may be lost.
	event(pod *corev1.Pod, kind, reason, message string)
}

// executor carries out tasks. It has no state; what it returns goes to the book.
type executor struct {
	writer    writer
	preparers []Preparer
	now       func() time.Time
}

// run carries out one task.
func (x *executor) run(ctx context.Context, t task) outcome {
	switch t.Verb {
	case Prepare:
		return x.prepare(ctx, t)
	case Bind:
		return x.bind(ctx, t)
	case Report:
		return x.report(ctx, t)
	case Retract:
		return x.retract(ctx, t)
	case Drop:
		return x.drop(ctx, t)
	case Discard:
		return written(x.writer.deleteRequest(ctx, t.request))
	}
	panic("binder: unknown action " + t.Verb.String())
}

// written is the outcome of a task that ends with a write.
func written(err error) outcome { return outcome{done: err == nil, fault: err} }

// prepare runs the preparers in order up to the first that is not finished.
func (x *executor) prepare(ctx context.Context, t task) outcome {
	for _, p := range x.preparers {
		if !p.Relevant(t.request, t.pod) {
			continue
		}
		ready, err := p.Prepare(ctx, t.request, t.pod)
		switch {
		case err != nil && saysNothing(err):
			return outcome{fault: fmt.Errorf("preparing %s: %w", p.Name(), err)}
		case err != nil:
			return outcome{failure: fmt.Errorf("preparing %s: %w", p.Name(), err)}
		case !ready && t.Expired:
			return outcome{failure: fmt.Errorf("preparing %s: not finished in time", p.Name())}
		case !ready:
			return outcome{}
		}
	}
	return outcome{done: true}
}

// bind creates the Binding. When that fails, the pod as the API server has it decides what it means: the answer of an
// earlier Binding may have been lost, or somebody else may have been faster.
func (x *executor) bind(ctx context.Context, t task) outcome {
	b, err := binding(t)
	if err != nil {
		return outcome{failure: err}
	}
	if err = x.writer.bind(ctx, b); err == nil {
		return outcome{done: true}
	}
	err = fmt.Errorf("binding to node %s: %w", t.request.Spec.SelectedNode, err)
	pod, readErr := x.writer.readPod(ctx, t.Member.PodName)
	if readErr != nil {
		return outcome{fault: errors.Join(err, readErr)}
	}
	out := outcome{read: true, pod: pod}
	switch {
	case pod != nil && pod.UID == t.Member.PodUID && pod.Spec.NodeName == t.request.Spec.SelectedNode:
		out.done = true
	case saysNothing(err):
		out.fault = err
	default:
		out.failure = err
	}
	return out
}

// binding is the Binding of a task.
func binding(t task) (*corev1.Binding, error) {
	bundle := t.bundle.ID
	if t.bundle.single() {
		bundle = ""
	}
	return kai.Bind(t.request, t.pod, bundle)
}

// report records that a pod is bound. The request's status comes last: as long as it is missing the rest is made good.
func (x *executor) report(ctx context.Context, t task) outcome {
	if t.pod != nil {
		if err := x.condition(ctx, t.pod, corev1.ConditionTrue, keys.ReasonBound, x.notes(t)); err != nil {
			return outcome{fault: err}
		}
		x.writer.event(t.pod, corev1.EventTypeNormal, keys.EventBound, "Bound to node "+t.request.Spec.SelectedNode)
	}
	return written(x.writer.setStatus(ctx, t.request, schedulingv1alpha2.BindRequestStatus{
		Phase: schedulingv1alpha2.BindRequestSucceeded, FailedAttempts: t.attempts,
	}))
}

// notes is what the preparers have to tell the user of a bound pod.
func (x *executor) notes(t task) string {
	var notes []string
	for _, p := range x.preparers {
		if n, ok := p.(Noter); ok {
			if note := n.Note(t.request, t.pod); note != "" {
				notes = append(notes, note)
			}
		}
	}
	return strings.Join(notes, " ")
}

// retract takes back what was prepared and records why. The request's status comes last, as in report. The pod is asked for first: what
// this process knows may be of before a pause, and what is bound is not taken back. Not done without a fault says that it is bound.
func (x *executor) retract(ctx context.Context, t task) outcome {
	reason := t.Reason
	if t.pod != nil {
		pod, err := x.writer.readPod(ctx, t.Member.PodName)
		if err != nil {
			return outcome{fault: err}
		}
		if pod != nil && pod.UID == t.Member.PodUID && pod.Spec.NodeName != "" && pod.Spec.NodeName == t.request.Spec.SelectedNode {
			return outcome{read: true, pod: pod}
		}
	}
	if err := x.undo(ctx, t); err != nil {
		if t.undone+1 < undoTries {
			return outcome{fault: err}
		}
		reason = fmt.Sprintf("%s; taking back what was prepared failed, too: %v", reason, err)
	}
	if t.pod != nil {
		if err := x.condition(ctx, t.pod, corev1.ConditionFalse, keys.ReasonBindingError, reason); err != nil {
			return outcome{fault: err}
		}
		x.writer.event(t.pod, corev1.EventTypeWarning, keys.EventBindingError, reason)
	}
	return written(x.writer.setStatus(ctx, t.request, schedulingv1alpha2.BindRequestStatus{
		Phase: schedulingv1alpha2.BindRequestFailed, Reason: reason, FailedAttempts: t.attempts,
	}))
}

// undo runs all preparers backwards, whether this process ran them forwards or not, and tries all even if one fails.
func (x *executor) undo(ctx context.Context, t task) error {
	if t.pod == nil {
		return nil
	}
	var errs []error
	for i := len(x.preparers) - 1; i >= 0; i-- {
		if p := x.preparers[i]; p.Relevant(t.request, t.pod) {
			if err := p.Undo(ctx, t.request, t.pod); err != nil {
				errs = append(errs, fmt.Errorf("undoing %s: %w", p.Name(), err))
			}
		}
	}
	return errors.Join(errs...)
}

// drop deletes a request if the API server agrees that its pod cannot be bound any more.
func (x *executor) drop(ctx context.Context, t task) outcome {
	pod, err := x.writer.readPod(ctx, t.Member.PodName)
	if err != nil {
		return outcome{fault: err}
	}
	out := outcome{read: true, pod: pod}
	if pod != nil && pod.UID == t.Member.PodUID && (pod.Spec.NodeName != "" || !ended(pod)) {
		return out
	}
	if err := x.undo(ctx, t); err != nil && t.undone+1 < undoTries {
		out.fault = err
		return out
	}
	out.fault = x.writer.deleteRequest(ctx, t.request)
	out.done = out.fault == nil
	return out
}

// ended says that a pod will not run any more.
func ended(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// condition sets the pod's PodBound condition unless it says the same already.
func (x *executor) condition(ctx context.Context, pod *corev1.Pod, status corev1.ConditionStatus, reason, message string) error {
	now := metav1.NewTime(x.now())
	want := corev1.PodCondition{Type: keys.PodBoundCondition, Status: status, Reason: reason, Message: message, LastTransitionTime: now}
	for _, c := range pod.Status.Conditions {
		if c.Type != keys.PodBoundCondition {
			continue
		}
		if c.Status == status && c.Reason == reason && c.Message == message {
			return nil
		}
		if c.Status == status {
			want.LastTransitionTime = c.LastTransitionTime
		}
	}
	return x.writer.setCondition(ctx, pod, want)
}

// saysNothing says that an error is about the way to the API server, or its load, and not about the request: the same
// request may succeed next time.
func saysNothing(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		// Preparers and the executor mark their own verdicts; the rest comes from the connection.
		var v interface{ AboutRequest() }
		return !errors.As(err, &v)
	}
	return apierrors.IsUnauthorized(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}

// verdictError is an error that a preparer found by looking at the objects, and that is about the request.
type verdictError string

func (e verdictError) Error() string { return string(e) }

// AboutRequest marks the error as one that will not go away by trying again.
func (verdictError) AboutRequest() {}

// verdictf formats a verdictError.
func verdictf(format string, args ...any) error { return verdictError(fmt.Sprintf(format, args...)) }
