package reservation

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestPatienceWithAutoscalers: scaling pods hold reservations up while a node may come for them, and not for ever.
func TestPatienceWithAutoscalers(t *testing.T) {
	t.Parallel()
	now := time.Now()
	gone := metav1.NewTime(now)
	made := func(ago time.Duration, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-ago))}}
		if change != nil {
			change(p)
		}
		return p
	}
	for what, tc := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"waits":            {made(time.Minute, nil), true},
		"waits in vain":    {made(patience, nil), false},
		"has its node":     {made(time.Minute, func(p *corev1.Pod) { p.Spec.NodeName = "n" }), false},
		"is over":          {made(time.Minute, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), false},
		"is being deleted": {made(time.Minute, func(p *corev1.Pod) { p.DeletionTimestamp = &gone }), false},
	} {
		if got := asksForNode(tc.pod, now); got != tc.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
