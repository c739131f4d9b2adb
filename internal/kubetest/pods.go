package kubetest

import (
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// decode fills a typed object with what was sent.
func (in *request) decode(into runtime.Object) error {
	u, err := in.object()
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, into)
	}
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func success() *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated}
}

// bind puts a pod on a node.
func (s *Server) bind(in *request) (any, error) {
	var b corev1.Binding
	if err := in.decode(&b); err != nil {
		return nil, err
	}
	old := in.table.objects[in.key]
	if old == nil {
		return nil, in.notFound()
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(old.DeepCopy().Object, &pod); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return nil, in.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", b.UID, pod.UID))
	case pod.DeletionTimestamp != nil:
		return nil, in.conflict(fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", pod.Name))
	case pod.Spec.NodeName != "":
		return nil, in.conflict(fmt.Sprintf("pod %s is already assigned to node %q", pod.Name, pod.Spec.NodeName))
	case len(pod.Spec.SchedulingGates) > 0:
		return nil, in.conflict(fmt.Sprintf("pod %s has non-empty .spec.schedulingGates", pod.Name))
	}
	pod.Spec.NodeName = b.Target.Name
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	for k, v := range b.Labels {
		metav1.SetMetaDataLabel(&pod.ObjectMeta, k, v)
	}
	setCondition(&pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
	s.storePod(in, &pod)
	return success(), nil
}

// storePod stores a pod that the server itself has changed.
func (s *Server) storePod(in *request, pod *corev1.Pod) {
	u, k := s.content(pod)
	old := in.table.objects[in.key]
	tidy(u)
	s.count(k, old, u)
	s.store(in.table, old, u)
}

func setCondition(pod *corev1.Pod, c corev1.PodCondition) {
	for i := range pod.Status.Conditions {
		have := &pod.Status.Conditions[i]
		if have.Type == c.Type {
			if c.LastTransitionTime = have.LastTransitionTime; have.Status != c.Status {
				c.LastTransitionTime = metav1.Now()
			}
			*have = c
			return
		}
	}
	c.LastTransitionTime = metav1.Now()
	pod.Status.Conditions = append(pod.Status.Conditions, c)
}

// evict deletes a pod if its disruption budgets allow it. Their statuses, which a controller of Kubernetes keeps, are the test's.
func (s *Server) evict(in *request) (any, error) {
	var e policyv1.Eviction
	if err := in.decode(&e); err != nil {
		return nil, err
	}
	old := in.table.objects[in.key]
	if old == nil {
		return nil, in.notFound()
	}
	var pod corev1.Pod
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(old.DeepCopy().Object, &pod); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	o := e.DeleteOptions
	if o == nil {
		o = &metav1.DeleteOptions{}
	}
	if p := o.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
		return nil, in.conflict(fmt.Sprintf("Precondition failed: UID in precondition: %s, UID in object meta: %s", *p.UID, pod.UID))
	}
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if !over && pod.Status.Phase != corev1.PodPending && pod.DeletionTimestamp == nil {
		if err := s.allowed(&pod); err != nil {
			return nil, err
		}
		setCondition(&pod, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting",
		})
		s.storePod(in, &pod)
	}
	if _, err := s.deleted(in, o); err != nil {
		return nil, err
	}
	return success(), nil
}

// allowed asks the disruption budgets of a pod, and takes one from the budget that allows it.
func (s *Server) allowed(pod *corev1.Pod) error {
	t := s.tables[schema.GroupResource{Group: policyv1.GroupName, Resource: "poddisruptionbudgets"}]
	var of []*policyv1.PodDisruptionBudget
	for _, u := range t.sorted(pod.Namespace) {
		b := &policyv1.PodDisruptionBudget{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.DeepCopy().Object, b); err != nil {
			return apierrors.NewInternalError(err)
		}
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		if selector.Matches(labels.Set(pod.Labels)) {
			of = append(of, b)
		}
	}
	switch {
	case len(of) == 0:
		return nil
	case len(of) > 1:
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		}}
	}
	b := of[0]
	if b.Status.DisruptionsAllowed <= 0 {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: fmt.Sprintf("The disruption budget %s does not allow it", b.Name)}}
		return err
	}
	b.Status.DisruptionsAllowed--
	u, _ := s.content(b)
	s.store(t, t.objects[key(u)], u)
	return nil
}

// kindOf is the kind of an object; nil for one that is not served.
func (s *Server) kindOf(o runtime.Object) *Kind {
	gvk := o.GetObjectKind().GroupVersionKind()
	for i := range s.kinds {
		if s.kinds[i].GroupVersionKind == gvk {
			return &s.kinds[i]
		}
	}
	if known, _, err := s.scheme.ObjectKinds(o); err == nil {
		for i := range s.kinds {
			if s.kinds[i].GroupVersionKind == known[0] {
				return &s.kinds[i]
			}
		}
	}
	return nil
}
