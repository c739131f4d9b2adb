package main

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// TestObserver: each thing that befalls a pod counts once, from the first event that shows it, and other groups' do not.
func TestObserver(t *testing.T) {
	var begun []int64
	o := &observer{
		prefix: "b-", pods: map[types.UID]*pod{}, changed: make(chan struct{}),
		first: func(_ time.Time, before int64) { begun = append(begun, before) },
	}
	see := func(s float64, kind watch.EventType, group, version, node string, phase corev1.PodPhase) {
		o.see(watch.Event{Type: kind, Object: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{UID: types.UID(group), ResourceVersion: version, Labels: map[string]string{jobLabel: group}},
			Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
		}}, at(s))
	}
	see(0, watch.Added, "a-1", "7", "", corev1.PodPending)
	see(1, watch.Added, "b-1", "8", "", corev1.PodPending)
	see(2, watch.Modified, "b-1", "9", "n", corev1.PodPending)
	see(3, watch.Modified, "b-1", "10", "n", corev1.PodRunning)
	see(4, watch.Modified, "b-1", "11", "n", corev1.PodRunning)
	see(5, watch.Modified, "b-1", "12", "n", corev1.PodSucceeded)
	see(6, watch.Deleted, "b-1", "13", "n", corev1.PodSucceeded)
	see(7, watch.Added, "b-2", "14", "", corev1.PodPending)
	pods, n := o.seen()
	if want := (counts{made: 2, bound: 1, ran: 1, ended: 1}); n != want || len(pods) != 2 {
		t.Errorf("counts %v, want %v", n, want)
	}
	for _, p := range pods {
		if want := (pod{group: "b-1", made: at(1), bound: at(2), ran: at(3), ended: at(5)}); p.group == "b-1" && p != want {
			t.Errorf("seen %+v, want %+v", p, want)
		}
	}
	if len(begun) != 1 || begun[0] != 7 {
		t.Errorf("began at the revisions %v, want 7 once", begun)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := o.wait(ctx, "all are bound", time.Hour, nil, func(c counts) bool { return c.bound == 2 })
	if err == nil || !strings.Contains(err.Error(), "wait until all are bound: ") || !strings.Contains(err.Error(), "2 pods made, 1 bound") {
		t.Errorf("the error is %v", err)
	}
	if err := o.wait(ctx, "one is bound", time.Hour, nil, func(c counts) bool { return c.bound == 1 }); err != nil {
		t.Error(err)
	}
}
