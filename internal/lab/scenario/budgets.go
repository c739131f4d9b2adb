package scenario

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counted returns when the disruption controller has seen all that its budgets mean: their statuses say what the pods there
// are make of them.
func (b *Backend) counted() error {
	return await(b.ctx, "PodDisruptionBudgets", func(ctx context.Context) (bool, error) {
		var budgets policyv1.PodDisruptionBudgetList
		if err := b.client.List(ctx, &budgets); err != nil || len(budgets.Items) == 0 {
			return err == nil, err
		}
		var pods v1.PodList
		if err := b.client.List(ctx, &pods); err != nil {
			return false, err
		}
		for i := range budgets.Items {
			right, err := right(&budgets.Items[i], pods.Items)
			if err != nil || !right {
				return false, err
			}
		}
		return true, nil
	})
}

// right says whether a budget's status is what the pods make of it. It knows budgets with a number of pods that must stay.
func right(b *policyv1.PodDisruptionBudget, pods []v1.Pod) (bool, error) {
	if b.Spec.MinAvailable == nil {
		return true, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return false, fmt.Errorf("PodDisruptionBudget %s: %w", client.ObjectKeyFromObject(b), err)
	}
	healthy := int32(0)
	for i := range pods {
		p := &pods[i]
		if p.Namespace == b.Namespace && p.DeletionTimestamp == nil && p.Status.Phase == v1.PodRunning && ready(p) && selector.Matches(labels.Set(p.Labels)) {
			healthy++
		}
	}
	return b.Status.ObservedGeneration >= b.Generation && b.Status.DisruptionsAllowed == max(0, healthy-b.Spec.MinAvailable.IntVal), nil
}

func ready(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue })
}
