package binder

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/kube/served"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

func (w *apiClient) deviceClaim(ctx context.Context, name types.NamespacedName, live bool) (*resourcev1.ResourceClaim, error) {
	if live {
		return read(ctx, w.live, name, &resourcev1.ResourceClaim{})
	}
	return read(ctx, w.cache, name, &resourcev1.ResourceClaim{})
}

func (w *apiClient) writeClaim(ctx context.Context, before, after *resourcev1.ResourceClaim) error {
	target := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: before.Namespace, Name: before.Name}}
	version := before.ResourceVersion
	status := func() error {
		if equality.Semantic.DeepEqual(before.Status, after.Status) {
			return nil
		}
		err := w.ifSame(ctx, target, version, "/status", after.Status, w.kit.JSONStatus)
		version = target.ResourceVersion
		return err
	}
	finalizers := func() error {
		if slices.Equal(before.Finalizers, after.Finalizers) {
			return nil
		}
		err := w.ifSame(ctx, target, version, "/metadata/finalizers", append([]string{}, after.Finalizers...), w.kit.JSON)
		version = target.ResourceVersion
		return err
	}
	first, second := finalizers, status
	if len(after.Finalizers) < len(before.Finalizers) { // what protects the devices goes after them
		first, second = status, finalizers
	}
	if err := first(); err != nil {
		return err
	}
	return second()
}

// ifSame replaces a part of the claim if it still has the version.
func (w *apiClient) ifSame(ctx context.Context, target *resourcev1.ResourceClaim, version, path string, value any, send func(context.Context, client.Object, []byte) (write.Result, error)) error {
	body := write.Body([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": version},
		{"op": "add", "path": path, "value": value},
	})
	result, err := send(ctx, target, body)
	if err == nil && result != write.Written {
		return errStale
	}
	return err
}

func (w *apiClient) createClaim(ctx context.Context, c *resourcev1.ResourceClaim) error {
	if err := w.client.Create(ctx, c); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making claim %s: %w", nameOf(c), err)
	}
	return nil
}

func (w *apiClient) deleteClaim(ctx context.Context, c *resourcev1.ResourceClaim) error {
	target := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	err := w.client.Delete(ctx, target, client.Preconditions{UID: ptr.To(c.UID)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (w *apiClient) setExtended(ctx context.Context, pod *corev1.Pod, s *corev1.PodExtendedResourceClaimStatus) error {
	body := write.Body(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"extendedResourceClaimStatus": s},
	})
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	result, err := w.kit.MergeStatus(ctx, target, body)
	if err == nil && result == write.Written && s != nil && target.Status.ExtendedResourceClaimStatus == nil {
		// The kubelet would not find the devices, and run the pod without them or turn it away.
		return verdictf("the API server does not keep status.extendedResourceClaimStatus: its feature gate %s is off", served.ExtendedByClaim)
	}
	return err
}
