package core

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Budget returns what the scheduler needs of a PodDisruptionBudget: whom it means, and how many of them may be disrupted
// now. A budget whose status does not speak of its current spec yet allows no disruption, which is what the API server
// makes of it, too. Its counts of pods and its times are left out: they change with every pod that starts, and decide
// nothing here.
func Budget(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	out := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, UID: b.UID},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: b.Spec.Selector},
	}
	if b.Status.ObservedGeneration >= b.Generation {
		out.Status.DisruptionsAllowed = max(0, b.Status.DisruptionsAllowed)
	}
	return out
}
