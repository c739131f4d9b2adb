package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/install"
)

// leaders are the pods that hold Leases of a namespace, by Lease. They are watched as long as somebody asks for some: a Lease is renewed
// several times a second, which is news to nobody else.
func (w *apiClient) leaders(ctx context.Context, namespace string, leases []string) (map[string]install.Leader, error) {
	if len(leases) == 0 {
		w.leads.close()
		w.leads = nil
		return nil, nil
	}
	if key := "leaders in " + namespace; w.leads == nil || w.leads.key != key {
		w.leads.close()
		w.leads = nil
		ours := labels.SelectorFromSet(labels.Set{install.LabelPartOf: install.PartOf, install.LabelComponent: install.Scheduler})
		there := map[string]cache.Config{namespace: {}}
		leads, err := w.watch(ctx, cache.Options{Scheme: w.deps.Scheme, ByObject: map[client.Object]cache.ByObject{
			&coordinationv1.Lease{}: {Namespaces: there}, &corev1.Pod{}: {Namespaces: there, Label: ours},
		}}, []client.Object{&coordinationv1.Lease{}, &corev1.Pod{}}, func(old, now client.Object) bool { return leading(old) != leading(now) })
		if err != nil {
			return nil, fmt.Errorf("who leads: %w", err)
		}
		leads.key, w.leads = key, leads
	}
	out := map[string]install.Leader{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(leases))) {
		var lease coordinationv1.Lease
		if err := w.leads.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &lease); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
		}
		holder := podOf(&lease)
		if holder == "" {
			continue
		}
		var pod corev1.Pod
		if err := w.leads.Get(ctx, client.ObjectKey{Namespace: namespace, Name: holder}, &pod); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read pod %s/%s: %w", namespace, holder, err)
		}
		if l, leads := leaderOf(&pod); leads {
			out[name] = l
		}
	}
	return out, nil
}

// podOf is the pod that holds a Lease: what its holder's identity begins with, up to the underscore that no pod's name contains.
func podOf(l *coordinationv1.Lease) string {
	name, _, _ := strings.Cut(ptr.Deref(l.Spec.HolderIdentity, ""), "_")
	return name
}

// leaderOf is a pod as the leader; false of one that cannot be reached.
func leaderOf(p *corev1.Pod) (install.Leader, bool) {
	l := install.Leader{Name: p.Name, UID: p.UID, Address: p.Status.PodIP, Node: p.Spec.NodeName}
	return l, l.Address != "" && l.Node != "" && (p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodPending)
}

// leading is what of a Lease or a pod decides who leads; nil for nothing. Times do not: a renewal is no news.
func leading(o client.Object) any {
	switch o := o.(type) {
	case *coordinationv1.Lease:
		return podOf(o)
	case *corev1.Pod:
		l, leads := leaderOf(o)
		return [2]any{l, leads}
	}
	return nil
}
