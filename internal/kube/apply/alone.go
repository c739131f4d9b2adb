package apply

import (
	"cmp"
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
)

// A decision about a single pod is as atomic as its Binding: before it nothing stands, after it all does. So there is nothing that an
// earlier process could leave half done, and nothing to withdraw (ADR 18).

// unasked looks, in the cache, whether somebody else has asked the binder for this very pod already: then he has decided.
func (b *Binds) unasked(ctx context.Context, want *kai.Intent) error {
	var br v1alpha2.BindRequest
	name := types.NamespacedName{Namespace: want.Namespace, Name: want.Pod}
	err := b.pods.Get(ctx, name, &br)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read BindRequest %s: %w", name, err)
	}
	if have := kai.Read(&br); br.DeletionTimestamp == nil && have.PodUID == want.PodUID && !have.Failed {
		return fmt.Errorf("%s: %w: it has a BindRequest to node %s already", name, ErrMoved, have.Node)
	}
	return nil // it stands for nothing, and is deleted as such
}

// bind binds the pod. When that fails, the pod as the API server has it says what became of it: the answer of an earlier try may have been
// lost, or somebody else was faster.
func (b *Binds) bind(ctx context.Context, in *engine.Intent, p *v1.Pod, want *kai.Intent) error {
	binding, err := want.Binding(p)
	if err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	pod := &v1.Pod{}
	pod.Namespace, pod.Name = in.Namespace, in.Pod
	if err = b.client.SubResource("binding").Create(ctx, pod, binding); err != nil {
		err = b.fate(ctx, in, want, err)
	}
	if err == nil && want.Size == 1 {
		b.o.Bound(in)
	}
	return err
}

// fate says what became of a pod whose Binding was answered with an error: nil for bound by this very decision.
func (b *Binds) fate(ctx context.Context, in *engine.Intent, want *kai.Intent, failed error) error {
	var p v1.Pod
	err := b.client.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: in.Pod}, &p)
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s/%s: %w: it is gone", in.Namespace, in.Pod, ErrMoved)
	case err != nil:
		return fmt.Errorf("bind: %w", failed)
	case string(p.UID) == in.UID && p.Spec.NodeName == in.Node && p.Annotations[kai.BundleLabel] == want.Bundle:
		return nil
	}
	return cmp.Or(moved(&p, in), fmt.Errorf("bind: %w", failed))
}
