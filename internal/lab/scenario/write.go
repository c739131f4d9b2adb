package scenario

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine/enginetest"
	"github.com/muster-scheduler/muster/internal/kube/feed"
)

// empty returns an object of o's kind.
func empty(o enginetest.Object) enginetest.Object {
	e, _ := reflect.New(reflect.TypeOf(o).Elem()).Interface().(enginetest.Object) // o's own type
	return e
}

func (b *Backend) exists(o enginetest.Object) (bool, error) {
	err := b.client.Get(b.ctx, client.ObjectKeyFromObject(o), empty(o))
	if err == nil || apierrors.IsNotFound(err) {
		return err == nil, nil
	}
	return false, fmt.Errorf("read %s: %w", o.GetName(), err)
}

// put makes o, or makes the one there is equal to it, status included.
func (b *Backend) put(o enginetest.Object) error {
	if o.GetUID() == "" {
		made, err := b.create(o)
		if err == nil {
			if n, ok := made.(*v1.Node); ok {
				return b.nodeKnown(n.Name)
			}
			return b.status(o, made)
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	if n, ok := o.(*v1.Node); ok {
		return b.node(n)
	}
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have := empty(o)
		if err := b.client.Get(b.ctx, client.ObjectKeyFromObject(o), have); err != nil {
			return err
		}
		next, ok := o.DeepCopyObject().(enginetest.Object)
		if !ok {
			return fmt.Errorf("copy of a %T", o)
		}
		next.SetUID(have.GetUID())
		next.SetResourceVersion(have.GetResourceVersion())
		next.SetCreationTimestamp(have.GetCreationTimestamp())
		if err := b.client.Update(b.ctx, next); err != nil {
			return err
		}
		return b.status(o, next)
	})
	if _, class := o.(*schedulingv1.PriorityClass); class && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
		if err := b.Delete(o); err != nil { // a class never changes its value: another of its name takes its place
			return err
		}
		_, err = b.create(o)
		return err
	}
	return err
}

// status gives have, as the API server returned it, the status of want. That of volumes and claims is left to the
// controllers that keep it.
func (b *Backend) status(want, have enginetest.Object) error {
	switch have := have.(type) {
	case *v2alpha2.PodGroup:
		w, ok := want.(*v2alpha2.PodGroup)
		if !ok || equality.Semantic.DeepEqual(have.Status, w.Status) {
			return nil
		}
		have.Status = w.Status
	case *v1beta1.Queue:
		w, ok := want.(*v1beta1.Queue)
		if !ok || equality.Semantic.DeepEqual(have.Status, w.Status) {
			return nil
		}
		have.Status = w.Status
	default:
		return nil
	}
	return b.client.Status().Update(b.ctx, have)
}

// ours says whether a taint is the scenario's; the others are the node controller's.
func ours(t v1.Taint) bool { return !strings.HasPrefix(t.Key, "node.kubernetes.io/") }

// node changes a node that exists, and returns when the node controller has followed.
func (b *Backend) node(want *v1.Node) error {
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		var n v1.Node
		if err := b.client.Get(b.ctx, client.ObjectKeyFromObject(want), &n); err != nil {
			return err
		}
		status := want.Status
		n.Labels, n.Spec.Unschedulable = maps.Clone(want.Labels), want.Spec.Unschedulable
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, ours)
		for _, t := range want.Spec.Taints {
			if ours(t) {
				n.Spec.Taints = append(n.Spec.Taints, t)
			}
		}
		if err := b.client.Update(b.ctx, &n); err != nil {
			return err
		}
		n.Status.Allocatable, n.Status.Capacity, n.Status.Conditions = status.Allocatable, status.Capacity, status.Conditions
		return b.client.Status().Update(b.ctx, &n)
	})
	if err != nil {
		return err
	}
	return b.nodeKnown(want.Name)
}

// nodeKnown waits until the taints of a node say what its conditions do.
func (b *Backend) nodeKnown(name string) error {
	return await(b.ctx, "taints of node "+name, func(ctx context.Context) (bool, error) {
		var n v1.Node
		if err := b.client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			return false, err
		}
		want := map[string]bool{}
		if n.Spec.Unschedulable {
			want[v1.TaintNodeUnschedulable] = true
		}
		for _, c := range n.Status.Conditions {
			switch {
			case c.Type == v1.NodeReady && c.Status == v1.ConditionFalse:
				want[v1.TaintNodeNotReady] = true
			case c.Type == v1.NodeReady && c.Status == v1.ConditionUnknown:
				want[v1.TaintNodeUnreachable] = true
			case c.Type == v1.NodeReady || c.Status != v1.ConditionTrue:
			case c.Type == v1.NodeMemoryPressure:
				want[v1.TaintNodeMemoryPressure] = true
			case c.Type == v1.NodeDiskPressure:
				want[v1.TaintNodeDiskPressure] = true
			case c.Type == v1.NodePIDPressure:
				want[v1.TaintNodePIDPressure] = true
			case c.Type == v1.NodeNetworkUnavailable:
				want[v1.TaintNodeNetworkUnavailable] = true
			}
		}
		have := map[string]bool{}
		for _, t := range n.Spec.Taints {
			if !ours(t) {
				have[t.Key] = true
			}
		}
		return maps.Equal(want, have), nil
	})
}

// claimed waits until a claim that names its volume has it.
func (b *Backend) claimed(c *v1.PersistentVolumeClaim) error {
	if c.Spec.VolumeName == "" {
		return nil
	}
	return await(b.ctx, "claim "+c.Name, func(ctx context.Context) (bool, error) {
		var have v1.PersistentVolumeClaim
		err := b.client.Get(ctx, client.ObjectKeyFromObject(c), &have)
		return have.Status.Phase == v1.ClaimBound || have.Status.Phase == v1.ClaimLost, err
	})
}

// change writes what a command changed of a pod that exists.
func (b *Backend) change(want *v1.Pod) error {
	var p v1.Pod
	if err := b.client.Get(b.ctx, client.ObjectKeyFromObject(want), &p); err != nil {
		return err
	}
	if len(p.Spec.SchedulingGates) > len(want.Spec.SchedulingGates) {
		p.Spec.SchedulingGates = want.Spec.SchedulingGates
		if err := b.client.Update(b.ctx, &p); err != nil {
			return err
		}
	}
	if p.Spec.NodeName == "" && want.Spec.NodeName != "" {
		bind := &v1.Binding{Target: v1.ObjectReference{Kind: "Node", Name: want.Spec.NodeName}}
		bind.Name, bind.Namespace = p.Name, p.Namespace
		if err := b.client.SubResource("binding").Create(b.ctx, &p, bind); err != nil {
			return fmt.Errorf("bind pod %s: %w", p.Name, err)
		}
		if err := b.charge(); err != nil {
			return err
		}
		if err := b.client.Get(b.ctx, client.ObjectKeyFromObject(want), &p); err != nil {
			return err
		}
	}
	if p.Status.Phase != want.Status.Phase {
		p.Status.Phase = want.Status.Phase
		if err := b.client.Status().Update(b.ctx, &p); err != nil {
			return err
		}
	}
	if want.DeletionTimestamp != nil && p.DeletionTimestamp == nil {
		return b.release(&p, releaseGrace)
	}
	return nil
}

// relabel gives a pod that is on its node already the labels and annotations of a later statement, if nothing else is said of it,
// and says whether that was so. Its charge stays.
func (b *Backend) relabel(want *v1.Pod) (bool, error) {
	if want.Spec.NodeName == "" || want.DeletionTimestamp != nil {
		return false, nil
	}
	var have v1.Pod
	if err := b.client.Get(b.ctx, client.ObjectKeyFromObject(want), &have); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	asks := func(p *v1.Pod) (out []v1.ResourceRequirements) {
		for i := range p.Spec.Containers {
			out = append(out, p.Spec.Containers[i].Resources)
		}
		return out
	}
	if have.Spec.NodeName != want.Spec.NodeName || have.Status.Phase != want.Status.Phase || have.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(asks(&have), asks(want)) {
		return false, nil
	}
	next := have.DeepCopy()
	next.Labels, next.Annotations = maps.Clone(want.Labels), maps.Clone(want.Annotations)
	for _, key := range []string{keys.ChargedAnnotation, keys.ChargedAsAnnotation} {
		if text, ok := have.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, text)
		}
	}
	return true, b.client.Patch(b.ctx, next, client.MergeFrom(&have))
}

// charge writes onto the pods that a scenario puts on nodes the record of their charge, as the binder does: it is that of the
// gang and queue they have now. Those that have a record keep it, and those that nobody is charged for get none.
func (b *Backend) charge() error {
	store := cluster.NewStore(b.store)
	if err := feed.Rebuild(b.ctx, b.client, b.feed, store); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(writers)
	store.Snapshot(cluster.Instant{}).EachPod(func(p *cluster.Pod) {
		record := kai.WriteCharged(p.Charged())
		if record == nil {
			return
		}
		g.Go(func() error {
			have := &v1.Pod{}
			if err := b.client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Name}, have); err != nil {
				return err
			}
			if have.Annotations[keys.ChargedAnnotation] != "" {
				return nil
			}
			next := have.DeepCopy()
			for key, text := range record {
				metav1.SetMetaDataAnnotation(&next.ObjectMeta, key, text)
			}
			return b.client.Patch(ctx, next, client.MergeFrom(have))
		})
	})
	return g.Wait()
}
