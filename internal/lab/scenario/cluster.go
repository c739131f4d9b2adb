package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/roles"
)

// patience is how long the API server and its controllers may take for one thing; polls look every glance.
const (
	patience = 20 * time.Second
	glance   = 10 * time.Millisecond
)

// Cluster is a lab with Muster's definitions, on which scenarios are played one after another.
type Cluster struct {
	kubeconfig string
	client     client.WithWatch
	spaces     map[string]bool // namespaces that are ready for pods
	account    bool            // reservation pods have theirs
}

// Open connects to the lab at cfg; kubeconfig is the file that says the same.
func Open(cfg *rest.Config, kubeconfig string) (*Cluster, error) {
	scheme, err := roles.Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the lab: %w", err)
	}
	return &Cluster{kubeconfig: kubeconfig, client: c, spaces: map[string]bool{metav1.NamespaceDefault: true}}, nil
}

// await polls until ok, at most for patience.
func await(ctx context.Context, what string, ok func(context.Context) (bool, error)) error {
	if err := wait.PollUntilContextTimeout(ctx, glance, patience, true, ok); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// space makes a namespace that pods can be made in.
func (c *Cluster) space(ctx context.Context, name string) error {
	if name == "" || c.spaces[name] {
		return nil
	}
	err := c.client.Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	for _, o := range []client.Object{
		&v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: rootCA}},
	} {
		key := client.ObjectKey{Namespace: name, Name: o.GetName()}
		if err := await(ctx, "namespace "+name, func(ctx context.Context) (bool, error) {
			err := c.client.Get(ctx, key, o)
			return err == nil, client.IgnoreNotFound(err)
		}); err != nil {
			return err
		}
	}
	c.spaces[name] = true
	return nil
}

// rootCA is the ConfigMap that every namespace has.
const rootCA = "kube-root-ca.crt"

// Clean removes whatever scenarios made, but for namespaces, which are emptied and lose their labels, and returns when it
// is gone.
func (c *Cluster) Clean(ctx context.Context) error {
	for i := range dialect.Kinds {
		k := dialect.Kinds - 1 - i // pods first, for others wait for them
		if k == dialect.Namespaces {
			continue
		}
		list := k.Row().List()
		err := await(ctx, fmt.Sprintf("clean %T", list), func(ctx context.Context) (bool, error) {
			if err := c.client.List(ctx, list); meta.IsNoMatchError(err) { // a kind that this lab does not serve
				return true, nil
			} else if err != nil {
				return false, err
			}
			left := 0
			err := meta.EachListItem(list, func(item runtime.Object) error {
				o, ok := item.(client.Object)
				if !ok || keep(o) {
					return nil
				}
				left++
				return c.remove(ctx, o)
			})
			return left == 0, err
		})
		if err != nil {
			return err
		}
	}
	var spaces v1.NamespaceList
	if err := c.client.List(ctx, &spaces); err != nil {
		return fmt.Errorf("clean: %w", err)
	}
	for i := range spaces.Items {
		n := &spaces.Items[i]
		if len(n.Labels) > 1 && !strings.HasPrefix(n.Name, "kube-") {
			n.Labels = map[string]string{v1.LabelMetadataName: n.Name}
			if err := c.client.Update(ctx, n); err != nil {
				return fmt.Errorf("clean namespace %s: %w", n.Name, err)
			}
		}
	}
	return nil
}

// keep says what belongs to the cluster rather than to a scenario.
func keep(o client.Object) bool {
	if strings.HasPrefix(o.GetNamespace(), "kube-") {
		return true
	}
	switch o.(type) {
	case *schedulingv1.PriorityClass:
		return strings.HasPrefix(o.GetName(), "system-")
	case *v1.ConfigMap:
		return o.GetName() == rootCA
	}
	return false
}

// remove deletes an object at once, whatever holds it; one that is gone is fine.
func (c *Cluster) remove(ctx context.Context, o client.Object) error {
	if held := o.GetFinalizers(); len(held) > 0 {
		bare, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			return fmt.Errorf("copy of a %T", o)
		}
		bare.SetFinalizers(slices.DeleteFunc(slices.Clone(held), func(f string) bool { return !strings.HasPrefix(f, "foregroundDeletion") }))
		if err := c.client.Patch(ctx, bare, client.MergeFrom(o)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("free %s: %w", o.GetName(), err)
		}
	}
	if err := c.client.Delete(ctx, o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete %s: %w", o.GetName(), err)
	}
	return nil
}
