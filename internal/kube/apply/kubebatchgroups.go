package apply

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha1"
	"github.com/muster-scheduler/muster/api/kubebatch/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/dialect/kubebatch"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// NewKubeBatchGroups returns a writer of the statuses of kube-batch's PodGroups, each by the API group that it came from; otherwise as NewGroups. Of gangs without a PodGroup nothing is written.
func NewKubeBatchGroups(pool *Pool, kit *write.Kit, reader client.Reader, o StatusOptions) *Groups {
	g := groupsOfFace(pool, kit, reader, o, kubebatch.Face, kubeBatchWork)
	g.put = g.putKubeBatch
	return g
}

// putKubeBatch writes what is to be said of a gang of kube-batch's, if its object does not say so.
func (g *Groups) putKubeBatch(ctx context.Context, key cluster.Key, uid string, want volcano.Status) (client.Object, error) {
	object, err := groupOf(ctx, g.reader, key, func(o client.Object) bool { return string(o.GetUID()) == uid })
	if object == nil || err != nil {
		return nil, err
	}
	have := &v1alpha1.PodGroupStatus{}
	var to client.Object
	switch o := object.(type) {
	case *v1alpha1.PodGroup:
		have, to = &o.Status, &v1alpha1.PodGroup{}
	case *v1alpha2.PodGroup:
		have, to = &o.Status, &v1alpha2.PodGroup{}
	}
	status, changed := kubebatch.Over(want, have, metav1.Now())
	if !changed {
		return nil, nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": status})
	if err != nil {
		return nil, fmt.Errorf("encode the status of PodGroup %s: %w", key, err)
	}
	to.SetNamespace(key.Namespace)
	to.SetName(key.Name)
	to.SetUID(object.GetUID())
	if _, err := g.kit.MergeStatus(ctx, to, body); err != nil {
		return nil, fmt.Errorf("status of PodGroup %s: %w", key, err)
	}
	return object, nil
}

// groupOf reads the object that a gang is, of whichever kind that is; nil if there is none, or none that is it. A kind that the API server does not serve has no objects.
func groupOf(ctx context.Context, reader client.Reader, key cluster.Key, is func(client.Object) bool) (client.Object, error) {
	for _, o := range dialect.Groups(key) {
		switch err := reader.Get(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: o.GetName()}, o); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
		case err != nil:
			return nil, fmt.Errorf("read PodGroup %s: %w", key, err)
		case is(o):
			return o, nil
		}
	}
	return nil, nil
}
