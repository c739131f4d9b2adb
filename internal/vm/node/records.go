package node

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/store"
)

// Records keeps the runtime's records in a store, as they are.
type Records struct{ Store *store.Store }

var _ runtime.Records = Records{}

// SaveSandbox is runtime.Records', as are the other methods.
func (r Records) SaveSandbox(_ context.Context, b *runtime.Sandbox) error {
	return r.Store.Put(store.Sandboxes, b.ID, b)
}

// SaveContainer writes a container's record.
func (r Records) SaveContainer(_ context.Context, c *runtime.Container) error {
	return r.Store.Put(store.Containers, c.ID, c)
}

// DeleteSandbox takes a sandbox's record away.
func (r Records) DeleteSandbox(_ context.Context, id string) error {
	return r.Store.Delete(store.Sandboxes, id)
}

// DeleteContainer takes a container's record away.
func (r Records) DeleteContainer(_ context.Context, id string) error {
	return r.Store.Delete(store.Containers, id)
}

// Load reads all records, in the order in which they were made.
func (r Records) Load(context.Context) ([]*runtime.Sandbox, []*runtime.Container, error) {
	boxes, err := store.Load[runtime.Sandbox](r.Store, store.Sandboxes)
	if err != nil {
		return nil, nil, err
	}
	containers, err := store.Load[runtime.Container](r.Store, store.Containers)
	slices.SortStableFunc(boxes, func(a, b *runtime.Sandbox) int { return a.Created.Compare(b.Created) })
	slices.SortStableFunc(containers, func(a, b *runtime.Container) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return boxes, containers, err
}
