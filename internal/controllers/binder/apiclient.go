package binder

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// apiClient is the writer and the storage of a real cluster.
type apiClient struct {
	cache  client.Reader // informers
	live   client.Reader // the API server
	client client.Client // binds and deletes
	kit    *write.Kit    // patches
	emit   EventFunc
}

func (w *apiClient) readPod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	return read(ctx, w.live, name, &corev1.Pod{})
}

func (w *apiClient) bind(ctx context.Context, b *corev1.Binding) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name}}
	return w.client.SubResource("binding").Create(ctx, pod, b)
}

func (w *apiClient) setCondition(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition) error {
	// The UID in the body makes the API server refuse the patch for another pod of the name.
	body := write.Body(map[string]any{
		"metadata": map[string]any{"uid": pod.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{c}},
	})
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	_, err := w.kit.StrategicStatus(ctx, target, body)
	return err
}

func (w *apiClient) setStatus(ctx context.Context, r *schedulingv1alpha2.BindRequest, s schedulingv1alpha2.BindRequestStatus) error {
	// A merge patch cannot say which object it is meant for: the status endpoint of a custom resource ignores the
	// UID in its body. A test operation can.
	patch := []map[string]any{{"op": "test", "path": "/metadata/uid", "value": r.UID}}
	if s.Phase != schedulingv1alpha2.BindRequestSucceeded {
		// A bad end is recorded of the request as it was seen: another binder may have brought it to a good one since.
		patch = append(patch, map[string]any{"op": "test", "path": "/metadata/resourceVersion", "value": r.ResourceVersion})
	}
	body := write.Body(append(patch, map[string]any{"op": "add", "path": "/status", "value": s}))
	target := &schedulingv1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	result, err := w.kit.JSONStatus(ctx, target, body)
	if err != nil || result != write.Changed {
		return err
	}
	// Either it is another request by now, which needs nothing of us, or the API server was at odds with itself: an end that
	// nobody is told would keep the gang waiting for a bind that does not come.
	now, err := read(ctx, w.cache, client.ObjectKeyFromObject(r), &schedulingv1alpha2.BindRequest{})
	if err != nil {
		return err
	}
	if now != nil && now.UID == r.UID {
		return fmt.Errorf("status of BindRequest %s/%s: a conflict; it is written again", r.Namespace, r.Name)
	}
	return nil
}

func (w *apiClient) deleteRequest(ctx context.Context, r *schedulingv1alpha2.BindRequest) error {
	target := &schedulingv1alpha2.BindRequest{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	err := w.client.Delete(ctx, target, client.Preconditions{UID: ptr.To(r.UID)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (w *apiClient) event(pod *corev1.Pod, kind, reason, message string) {
	if w.emit != nil {
		w.emit(pod, kind, reason, message)
	}
}

func (w *apiClient) claim(ctx context.Context, name types.NamespacedName, live bool) (*corev1.PersistentVolumeClaim, error) {
	if live {
		return read(ctx, w.live, name, &corev1.PersistentVolumeClaim{})
	}
	return read(ctx, w.cache, name, &corev1.PersistentVolumeClaim{})
}

func (w *apiClient) class(ctx context.Context, name string) (*storagev1.StorageClass, error) {
	if name == "" {
		return nil, nil
	}
	return read(ctx, w.cache, types.NamespacedName{Name: name}, &storagev1.StorageClass{})
}

func (w *apiClient) volume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return read(ctx, w.cache, types.NamespacedName{Name: name}, &corev1.PersistentVolume{})
}

func (w *apiClient) volumes(ctx context.Context) ([]*corev1.PersistentVolume, error) {
	var list corev1.PersistentVolumeList
	if err := w.cache.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing volumes: %w", err)
	}
	out := make([]*corev1.PersistentVolume, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

func (w *apiClient) node(ctx context.Context, name string) (*corev1.Node, error) {
	return read(ctx, w.cache, types.NamespacedName{Name: name}, &corev1.Node{})
}

func (w *apiClient) selectNode(ctx context.Context, claim *corev1.PersistentVolumeClaim, node string, request types.UID) error {
	value, by := any(node), any(request)
	if node == "" {
		value, by = nil, nil
	}
	target := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name}}
	return w.merge(ctx, target, map[string]any{"metadata": map[string]any{
		"resourceVersion": claim.ResourceVersion,
		"annotations":     map[string]any{volume.AnnSelectedNode: value, keys.SelectedForAnnotation: by},
	}})
}

func (w *apiClient) reserveVolume(ctx context.Context, v *corev1.PersistentVolume, ref *corev1.ObjectReference, mark bool) error {
	value := any(nil)
	if mark {
		value = "yes"
	}
	target := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}}
	return w.merge(ctx, target, map[string]any{
		"metadata": map[string]any{
			"resourceVersion": v.ResourceVersion,
			"annotations":     map[string]any{volume.AnnBoundByController: value},
		},
		"spec": map[string]any{"claimRef": ref},
	})
}

// merge sends a patch that demands the version that was read. Nothing is left to patch on an object that is gone.
func (w *apiClient) merge(ctx context.Context, target client.Object, patch map[string]any) error {
	body := write.Body(patch)
	result, err := w.kit.Merge(ctx, target, body)
	if err == nil && result == write.Changed {
		// No API status: what says nothing about the request is tried again.
		return fmt.Errorf("%T %s %w", target, nameOf(target), errChanged)
	}
	return err
}

// read gets one object, nil if it does not exist. From a cache it comes without a copy.
func read[T client.Object](ctx context.Context, r client.Reader, name types.NamespacedName, into T) (T, error) {
	var none T
	err := r.Get(ctx, name, into, &client.GetOptions{UnsafeDisableDeepCopy: ptr.To(true)})
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return into, nil
}
