package apply

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
)

// orphanSettle is how long a bundle that was incomplete at our start has to have stood still before it is withdrawn: what
// an earlier process had on the wire when it died has arrived by then.
const orphanSettle = time.Second

// bundleName names a bundle in the cluster.
type bundleName struct{ namespace, id string }

// unfinished are the requests of bundles that were incomplete when this process had written nothing yet.
type unfinished struct {
	before map[bundleName][]v1alpha2.BindRequest
}

// orphans finds the bundles of our shard that are incomplete, and their requests. It asks the API server itself: a cache
// may not have all that an earlier process wrote. It is only right to call it while we write no bundle.
func (b *Binds) orphans(ctx context.Context) (map[bundleName][]v1alpha2.BindRequest, error) {
	var list v1alpha2.BindRequestList
	if err := b.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list BindRequests: %w", err)
	}
	return incomplete(list.Items, b.o.Partition), nil
}

// incomplete returns the requests of each bundle of the shard of which fewer exist than the bundle has, unless one of them
// succeeded: then the bundle was complete once, and its other requests went with their pods.
func incomplete(all []v1alpha2.BindRequest, shard kai.Partition) map[bundleName][]v1alpha2.BindRequest {
	found, done := map[bundleName][]v1alpha2.BindRequest{}, map[bundleName]bool{}
	for i := range all {
		said := kai.Read(&all[i])
		if said.Bundle == "" || said.Size == 0 || !shard.Includes(all[i].Labels) {
			continue
		}
		name := bundleName{all[i].Namespace, said.Bundle}
		found[name] = append(found[name], all[i])
		done[name] = done[name] || said.Succeeded || len(found[name]) >= said.Size
	}
	for name := range done { // order: each bundle on its own
		if done[name] {
			delete(found, name)
		}
	}
	return found
}

// adopt withdraws the bundles that an earlier process left half written, so that their gangs are decided anew at once
// instead of when the binder's patience ends. before are those that were incomplete when this process had written
// nothing yet; one that has not changed since is nobody's. It is called orphanSettle after that. A bundle of which a pod is bound is left
// alone: it was complete once, and the binder finishes it.
func (b *Binds) adopt(ctx context.Context, before map[bundleName][]v1alpha2.BindRequest) error {
	now, err := b.orphans(ctx)
	if err != nil {
		return err
	}
	for name, had := range before { // order: each bundle on its own
		have := now[name]
		if len(have) != len(had) {
			continue
		}
		begun, err := b.begun(ctx, have)
		if err != nil {
			return err
		}
		if begun {
			continue
		}
		logr.FromContextOrDiscard(ctx).Info("withdrawing a bundle that an earlier process did not finish",
			"namespace", name.namespace, "bundle", name.id, "written", len(have))
		for i := range have {
			// As it was just read: one that the binder has begun with since is its matter.
			if err := b.remove(ctx, &have[i], true); err != nil {
				return err
			}
		}
	}
	return nil
}

// begun says whether a pod of these requests has a node.
func (b *Binds) begun(ctx context.Context, requests []v1alpha2.BindRequest) (bool, error) {
	for i := range requests {
		said := kai.Read(&requests[i])
		var p v1.Pod
		err := b.client.Get(ctx, types.NamespacedName{Namespace: said.Namespace, Name: said.Pod}, &p)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("read pod %s/%s: %w", said.Namespace, said.Pod, err)
		}
		if err == nil && said.Meant(&p) && p.Spec.NodeName != "" {
			return true, nil
		}
	}
	return false, nil
}
