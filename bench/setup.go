package main

import (
	"context"
	"fmt"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/internal/lab"
)

func crdDocuments() [][]byte { return crds.Documents() }

// priorityClass makes the class that gangs get by default, as every installation has it.
func priorityClass(ctx context.Context, l *lab.Lab) error {
	_, err := l.Client().SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Value: 50}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the PriorityClass train: %w", err)
	}
	return nil
}

// grouped waits until every pod of the load has been told its gang.
func grouped(ctx context.Context, l *lab.Lab) error {
	for {
		pods, err := l.Client().CoreV1().Pods("load").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		jobs, err := l.Client().BatchV1().Jobs("load").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left := len(jobs.Items) - len(pods.Items)
		for i := range pods.Items {
			if pods.Items[i].Annotations["pod-group-name"] == "" {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(5 * poll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
