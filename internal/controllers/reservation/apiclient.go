package reservation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// Indexes of the cache: objects by the groups that they name.
const (
	podIndex     = "reservation.members"
	requestIndex = "reservation.requests"
)

// index adds the indexes to the cache, once. The cache asks the API server for the kinds, so it is not done before the
// controller works.
func (w *apiClient) index(ctx context.Context) error {
	w.indexing.Lock()
	defer w.indexing.Unlock()
	if w.indexed == 2 {
		return nil
	}
	if w.indexed == 0 {
		if err := w.cache.IndexField(ctx, &corev1.Pod{}, podIndex, func(o client.Object) []string { return groupsOf(o.(*corev1.Pod)) }); err != nil {
			return fmt.Errorf("index of pods: %w", err)
		}
		w.indexed = 1
	}
	err := w.cache.IndexField(ctx, &schedulingv1alpha2.BindRequest{}, requestIndex, func(o client.Object) []string {
		return requestGroups(o.(*schedulingv1alpha2.BindRequest))
	})
	if err != nil {
		return fmt.Errorf("index of BindRequests: %w", err)
	}
	w.indexed = 2
	return nil
}

// apiClient is a real cluster.
type apiClient struct {
	cache  cache.Cache   // informers
	live   client.Reader // the API server
	client client.Client // creates and deletes
	kit    *write.Kit    // patches and evicts
	emit   func(pod *corev1.Pod, kind, reason, message string)

	indexing sync.Mutex
	indexed  int // how many of the indexes are there
}

func (w *apiClient) members(ctx context.Context, group string) ([]*corev1.Pod, error) {
	if err := w.index(ctx); err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := w.cache.List(ctx, &list, client.MatchingFields{podIndex: group}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("pods of group %s: %w", group, err)
	}
	return pointers(list.Items), nil
}

func (w *apiClient) requests(ctx context.Context, group string) ([]*schedulingv1alpha2.BindRequest, error) {
	if err := w.index(ctx); err != nil {
		return nil, err
	}
	var list schedulingv1alpha2.BindRequestList
	if err := w.cache.List(ctx, &list, client.MatchingFields{requestIndex: group}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("BindRequests of group %s: %w", group, err)
	}
	return pointers(list.Items), nil
}

func pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

func (w *apiClient) node(ctx context.Context, name string) (*corev1.Node, error) {
	return read(ctx, w.cache, types.NamespacedName{Name: name}, &corev1.Node{})
}

func (w *apiClient) unscheduled(ctx context.Context, namespace string) ([]*corev1.Pod, error) {
	if namespace == "" {
		return nil, nil
	}
	var list corev1.PodList
	if err := w.cache.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("pods of namespace %s: %w", namespace, err)
	}
	now := time.Now()
	return slices.DeleteFunc(pointers(list.Items), func(p *corev1.Pod) bool { return !asksForNode(p, now) }), nil
}

// patience is how long a pod that waits for a new node keeps others from reserving devices. An autoscaler that has brought
// nothing by then is at its bound, or does not exist; all binds of shared devices would wait for it for ever.
const patience = 10 * time.Minute

// asksForNode says whether a pod of the scaling namespace waits for a new node, and still may hope for one.
func asksForNode(p *corev1.Pod, now time.Time) bool {
	return p.Spec.NodeName == "" && !over(p) && p.DeletionTimestamp == nil && now.Sub(p.CreationTimestamp.Time) < patience
}

func (w *apiClient) liveMembers(ctx context.Context, group string) ([]*corev1.Pod, error) {
	var out []*corev1.Pod
	for _, key := range []string{keys.GPUGroupLabel, keys.GPUGroupLabelPrefix + group} {
		var list corev1.PodList
		if err := w.live.List(ctx, &list, client.MatchingLabels{key: group}); err != nil {
			return nil, fmt.Errorf("pods of group %s: %w", group, err)
		}
		out = append(out, pointers(list.Items)...)
	}
	return out, nil
}

func (w *apiClient) livePod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	return read(ctx, w.live, name, &corev1.Pod{})
}

func (w *apiClient) liveMap(ctx context.Context, name types.NamespacedName) (*corev1.ConfigMap, error) {
	return read(ctx, w.live, name, &corev1.ConfigMap{})
}

func (w *apiClient) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	return pod, w.client.Create(ctx, pod)
}

func (w *apiClient) deletePod(ctx context.Context, pod *corev1.Pod, exact bool) error {
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	demand := client.Preconditions{UID: ptr.To(pod.UID)}
	if exact {
		demand.ResourceVersion = ptr.To(pod.ResourceVersion)
	}
	err := w.client.Delete(ctx, target, demand, client.GracePeriodSeconds(1))
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err) && !exact:
		return nil
	case err != nil:
		return fault(fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err))
	}
	return nil
}

func (w *apiClient) patchMeta(ctx context.Context, pod *corev1.Pod, labels, annotations map[string]any, exact bool) (bool, error) {
	meta := map[string]any{"uid": pod.UID}
	if exact {
		meta["resourceVersion"] = pod.ResourceVersion
	}
	if len(labels) > 0 {
		meta["labels"] = labels
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	body := write.Body(map[string]any{"metadata": meta})
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	result, err := w.kit.Merge(ctx, target, body)
	return result == write.Written, err
}

func (w *apiClient) createMap(ctx context.Context, m *corev1.ConfigMap) error {
	return w.client.Create(ctx, m)
}

func (w *apiClient) updateMap(ctx context.Context, m *corev1.ConfigMap) error {
	return w.client.Update(ctx, m)
}

func (w *apiClient) deleteMap(ctx context.Context, m *corev1.ConfigMap) error {
	_, err := w.kit.Delete(ctx, m)
	return err
}

func (w *apiClient) evict(ctx context.Context, pod *corev1.Pod) (bool, error) {
	result, err := w.kit.Evict(ctx, pod.DeepCopy(), write.Within(pod, write.MaxGrace)...)
	if err == nil && (result == write.Blocked || result == write.Unjudged) {
		return false, fmt.Errorf("evicting pod %s/%s: its disruption budgets do not allow it now", pod.Namespace, pod.Name)
	}
	return result == write.Written, err
}

func (w *apiClient) event(pod *corev1.Pod, kind, reason, message string) {
	if w.emit != nil {
		w.emit(pod, kind, reason, message)
	}
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
