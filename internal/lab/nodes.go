package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// AddNodes adds the nodes of a pool that do not exist yet and what they publish, and returns when all of them are ready.
func (l *Lab) AddNodes(ctx context.Context, p Pool) error {
	nodes, err := p.Nodes()
	if err != nil {
		return fmt.Errorf("add nodes: %w", err)
	}
	if err := InstallNodes(ctx, l.client, nodes); err != nil {
		return err
	}
	published, err := Fleet{Pools: []Pool{p}}.Published()
	if err != nil {
		return fmt.Errorf("add nodes: %w", err)
	}
	return Publish(ctx, l.config, published)
}

// RemoveNodes deletes nodes, as when machines are taken out. Their pods stay until the controller manager collects
// them, as in any cluster. Nodes that are gone already are fine.
func (l *Lab) RemoveNodes(ctx context.Context, names ...string) error {
	return each(ctx, writers, names, func(ctx context.Context, name string) error {
		err := l.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove node %s: %w", name, err)
		}
		return nil
	})
}

// FailNode makes a node fall silent, as when its machine loses power, and returns when the cluster knows: the node
// is not ready and carries the unreachable taint. Its pods neither start, end nor die until RestoreNode; the node
// controller evicts them after their toleration, 5 s by default here.
func (l *Lab) FailNode(ctx context.Context, name string) error {
	return l.setFailed(ctx, name, `"true"`, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute
		})
	})
}

// RestoreNode brings a failed node back, with the pods that are still bound to it, and returns when it is ready.
func (l *Lab) RestoreNode(ctx context.Context, name string) error {
	return l.setFailed(ctx, name, "null", NodeReady)
}

func (l *Lab) setFailed(ctx context.Context, name, value string, done func(*corev1.Node) bool) error {
	body := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, AnnotationFailed, value)
	nodes := l.client.CoreV1().Nodes()
	if _, err := nodes.Patch(ctx, name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("mark node %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	only := fields.OneTermEqualSelector("metadata.name", name).String()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = only
			return nodes.List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = only
			return nodes.Watch(ctx, o)
		},
	}
	_, err := watchtools.UntilWithSync(ctx, lw, &corev1.Node{}, nil, func(e watch.Event) (bool, error) {
		n, ok := e.Object.(*corev1.Node)
		return ok && done(n), nil
	})
	if err != nil {
		return fmt.Errorf("wait for the cluster to see node %s change: %w", name, err)
	}
	return nil
}
