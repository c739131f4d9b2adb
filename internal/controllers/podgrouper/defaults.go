package podgrouper

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

// defaultsAge is how long the ConfigMap of defaults is trusted before it is read again.
const defaultsAge = 30 * time.Second

// defaults are the installation's defaults per kind of workload, read from a ConfigMap at most once per defaultsAge.
type defaults struct {
	name   types.NamespacedName // no name: there are none
	reader client.Reader
	clock  clock.Clock

	mu    sync.Mutex
	read  time.Time
	kinds map[string]workload.KindDefaults
}

// get returns the defaults. A ConfigMap that is missing or malformed counts as empty, and is logged; one that became
// malformed leaves the last good state.
func (d *defaults) get(ctx context.Context) (map[string]workload.KindDefaults, error) {
	if d.name.Name == "" {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	if !d.read.IsZero() && now.Sub(d.read) < defaultsAge {
		return d.kinds, nil
	}
	cm := &corev1.ConfigMap{}
	err := d.reader.Get(ctx, d.name, cm)
	switch {
	case apierrors.IsNotFound(err):
		d.kinds = nil
	case err != nil:
		return nil, fmt.Errorf("read ConfigMap %s with the defaults of kinds: %w", d.name, err)
	default:
		kinds, err := workload.ParseKindDefaults(cm.Data[workload.KindDefaultsKey])
		if err != nil {
			logr.FromContextOrDiscard(ctx).Error(err, "the ConfigMap of defaults is ignored", "configmap", d.name.String())
			break
		}
		d.kinds = kinds
	}
	d.read = now
	return d.kinds, nil
}
