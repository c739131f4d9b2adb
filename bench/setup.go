package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/kai/v1alpha1"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/lab"
)

func crdDocuments() [][]byte { return crds.Documents() }

// namespace makes one.
func namespace(ctx context.Context, l *lab.Lab, name string) error {
	_, err := l.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return nil
}

// installation makes what every installation has: the namespace where gangs' records are, without which there are BindRequests instead, and
// the class that gangs get by default.
func installation(ctx context.Context, l *lab.Lab) error {
	if err := namespace(ctx, l, home); err != nil {
		return err
	}
	_, err := l.Client().SchedulingV1().PriorityClasses().Create(ctx, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "train"}, Value: 50}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create the PriorityClass train: %w", err)
	}
	return nil
}

// layOut labels the nodes as the case's layout says, makes the Topology of these labels, and has the Jobs of the load prefer
// a level of it, by the annotations of KAI.
func layOut(ctx context.Context, l *lab.Lab, c *benchCase) error {
	nodes, err := l.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	topology := &v1alpha1.Topology{ObjectMeta: metav1.ObjectMeta{Name: "layout"}}
	for i := range c.Layout {
		topology.Spec.Levels = append(topology.Spec.Levels, v1alpha1.TopologyLevel{NodeLabel: level(i + 1)})
	}
	for i := range nodes.Items {
		labels := map[string]string{}
		share := len(nodes.Items)
		for k, n := range c.Layout { // the value counts domains from the first node on, over the whole cluster; a domain has a node at least
			share = max(1, share/n)
			labels[level(k+1)] = strconv.Itoa(i / share)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			return err
		}
		if _, err := l.Client().CoreV1().Nodes().Patch(ctx, nodes.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("label node %s: %w", nodes.Items[i].Name, err)
		}
	}
	writer, err := ours(l)
	if err != nil {
		return err
	}
	if err := writer.Create(ctx, topology); err != nil {
		return fmt.Errorf("create the Topology: %w", err)
	}
	jobs, err := l.Client().BatchV1().Jobs(space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		keys.TopologyAnnotation: topology.Name, keys.TopologyPreferredAnnotation: level(c.Prefer),
	}}})
	if err != nil {
		return err
	}
	for i := range jobs.Items {
		if _, err := l.Client().BatchV1().Jobs(space).Patch(ctx, jobs.Items[i].Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("annotate Job %s: %w", jobs.Items[i].Name, err)
		}
	}
	return nil
}

// ours is a client for KAI's kinds.
func ours(l *lab.Lab) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), v2alpha2.AddToScheme(scheme), queuev2.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	return client.New(l.Config(), client.Options{Scheme: scheme})
}

func level(i int) string { return "bench.muster/level-" + strconv.Itoa(i) }

// grouped says what is missing until every pod of the load is in a gang: there is its PodGroup, or it is one by itself.
func grouped(ctx context.Context, l *lab.Lab) (string, error) {
	reader, err := ours(l)
	if err != nil {
		return "", err
	}
	pods, err := l.Client().CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	var groups v2alpha2.PodGroupList
	if err := reader.List(ctx, &groups, client.InNamespace(space)); err != nil {
		return "", err
	}
	there := map[string]bool{}
	for i := range groups.Items {
		there[groups.Items[i].Name] = true
	}
	left := 0
	for i := range pods.Items {
		if gang, _ := kai.Membership(&pods.Items[i]); !there[gang.Name] && kai.OwnGang(&pods.Items[i]) == nil {
			left++
		}
	}
	if left == 0 {
		return "", nil
	}
	return fmt.Sprintf("%d of %d pods are not", left, len(pods.Items)), nil
}
