package podgrouper

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/dialect/workload"
)

const (
	// definitionsAge is how long the Karta objects are trusted before they are read again.
	definitionsAge = 30 * time.Second
	// definitionsRetry is the wait after there was no such kind, or no permission to read it.
	definitionsRetry = time.Minute
	// maxDefinitions bounds how many are read.
	maxDefinitions = 500
)

// definitions are the kinds of workloads that Karta objects define, read at most once per definitionsAge.
type definitions struct {
	reader client.Reader // nil: they are switched off
	clock  clock.Clock

	mu    sync.Mutex
	next  time.Time
	kinds map[schema.GroupVersionKind]*workload.Definition
}

func newDefinitions(reader client.Reader, clock clock.Clock, on bool) *definitions {
	d := &definitions{clock: clock}
	if on {
		d.reader = reader
	}
	return d
}

// get returns what finds the definition of a kind, or nil when there are none. Definitions that make no sense are logged, and
// warn of themselves at the pods of their kind, unless another one is for it; those that are one of several for a kind are left out. Where there are no Karta objects at all is asked again after a while.
func (d *definitions) get(ctx context.Context) (func(schema.GroupVersionKind) *workload.Definition, error) {
	if d.reader == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.clock.Now(); !now.Before(d.next) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(workload.DefinitionKind.GroupVersion().WithKind(workload.DefinitionKind.Kind + "List"))
		err := d.reader.List(ctx, list, client.Limit(maxDefinitions))
		switch {
		case err == nil:
			d.next, d.kinds = now.Add(definitionsAge), parseDefinitions(logr.FromContextOrDiscard(ctx), list)
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err), apierrors.IsForbidden(err):
			d.next, d.kinds = now.Add(definitionsRetry), nil
		default:
			return nil, fmt.Errorf("list the Karta objects that define kinds of workloads: %w", err)
		}
	}
	if len(d.kinds) == 0 {
		return nil, nil
	}
	kinds := d.kinds
	return func(kind schema.GroupVersionKind) *workload.Definition { return kinds[kind] }, nil
}

func parseDefinitions(log logr.Logger, list *unstructured.UnstructuredList) map[schema.GroupVersionKind]*workload.Definition {
	kinds := map[schema.GroupVersionKind]*workload.Definition{}
	several := map[schema.GroupVersionKind]bool{}
	broken := map[schema.GroupVersionKind]*workload.Definition{}
	for i := range list.Items {
		def, err := workload.ParseDefinition(list.Items[i].Object)
		switch {
		case err != nil:
			log.Error(err, "a Karta object is ignored")
			if def != nil {
				broken[def.Kind] = def
			}
		case def == nil:
		case kinds[def.Kind] != nil:
			several[def.Kind] = true
			log.Info("all Karta objects for this kind are ignored: there are several", "kind", def.Kind.String(),
				"names", kinds[def.Kind].Name+", "+def.Name)
		default:
			kinds[def.Kind] = def
		}
	}
	for kind, def := range broken { // order: of several for a kind one is told
		if kinds[kind] == nil {
			kinds[kind] = def
		}
	}
	for kind := range several { // order: each is removed
		delete(kinds, kind)
	}
	return kinds
}
