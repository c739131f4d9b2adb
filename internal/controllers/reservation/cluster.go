package reservation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	schedulingv1alpha2 "github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
)

// cluster is what the controller needs of a cluster. Objects that do not exist are nil, without an error. What is read
// may belong to a cache and is never changed.
type cluster interface {
	// members are the pods whose labels name the group, of all namespaces, reservation pods among them, as the cache
	// has them. What the cache shows of a pod it also showed to the handlers, or is about to.
	members(ctx context.Context, group string) ([]*corev1.Pod, error)

	// requests are the BindRequests that name the group, as the cache has them.
	requests(ctx context.Context, group string) ([]*schedulingv1alpha2.BindRequest, error)

	// node is the node as the cache has it.
	node(ctx context.Context, name string) (*corev1.Node, error)

	// unscheduled are the pods of the namespace that wait for a node, as the cache has them, and may still hope for one.
	unscheduled(ctx context.Context, namespace string) ([]*corev1.Pod, error)

	// liveMembers, livePod and liveMap ask the API server itself.
	liveMembers(ctx context.Context, group string) ([]*corev1.Pod, error)
	livePod(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error)
	liveMap(ctx context.Context, name types.NamespacedName) (*corev1.ConfigMap, error)

	// createPod creates a pod and returns it as the API server has it.
	createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)

	// deletePod deletes this very pod with a grace of one second; if exact, only as long as it is unchanged, and it
	// is a fault when it is not. A pod that is gone is no error.
	deletePod(ctx context.Context, pod *corev1.Pod, exact bool) error

	// patchMeta changes labels and annotations of this very pod; nil values remove. If exact, only as long as it is
	// unchanged. It says whether it did so: false when the pod is gone, or changed.
	patchMeta(ctx context.Context, pod *corev1.Pod, labels, annotations map[string]any, exact bool) (done bool, err error)

	createMap(ctx context.Context, m *corev1.ConfigMap) error

	// updateMap replaces a ConfigMap of that version.
	updateMap(ctx context.Context, m *corev1.ConfigMap) error

	// deleteMap deletes this very ConfigMap. One that is gone is no error.
	deleteMap(ctx context.Context, m *corev1.ConfigMap) error

	// evict evicts this very pod, if its disruption budgets allow it now; an error if they do not. It says whether it
	// did so: false when the pod is gone.
	evict(ctx context.Context, pod *corev1.Pod) (done bool, err error)

	// event tells the pod's user what happened. It may be lost.
	event(pod *corev1.Pod, kind, reason, message string)
}

// verdict is an error about a request, which trying again does not mend.
type verdict string

func (v verdict) Error() string { return string(v) }

// AboutRequest tells the binder that it is one.
func (verdict) AboutRequest() {}

func verdictf(format string, args ...any) error { return verdict(fmt.Sprintf(format, args...)) }

// fault hides what the API server answered, so that the answer is not taken for one about the request: the same is tried
// again.
func fault(err error) error { return fmt.Errorf("%v", err) }
