package podgrouper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
)

// relook is the least time between two looks at which kinds the API server serves. A kind that is new is known as late.
const relook = 10 * time.Second

// kinds knows which kinds the API server serves. Pods may name owners of any kind that comes to their users' minds, and asking for an
// object of a kind that does not exist costs several requests; all kinds together are one answer.
type kinds struct {
	discovery discovery.ServerResourcesInterface // nil: all are taken to be served
	clock     clock.Clock

	known atomic.Pointer[catalogue]
	mu    sync.Mutex // held while looking
}

// catalogue is one look. It is not changed.
type catalogue struct {
	at     time.Time
	served map[schema.GroupVersionKind]struct{}
	// unsure are the groups that could not be asked; all: nothing could.
	unsure map[schema.GroupVersion]error
	all    bool
}

func (c *catalogue) has(gvk schema.GroupVersionKind) bool {
	if c == nil {
		return false
	}
	_, served := c.served[gvk]
	return served
}

// served says whether the API server serves a kind; true in doubt. It asks at most once per relook, however many kinds there are.
func (k *kinds) served(ctx context.Context, gvk schema.GroupVersionKind) bool {
	if k == nil || k.discovery == nil || k.known.Load().has(gvk) {
		return true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.known.Load()
	if c == nil || k.clock.Since(c.at) >= relook {
		c = k.look(ctx)
		k.known.Store(c)
	}
	_, unsure := c.unsure[gvk.GroupVersion()]
	return c.all || unsure || c.has(gvk)
}

func (k *kinds) look(ctx context.Context) *catalogue {
	c := &catalogue{at: k.clock.Now(), served: map[schema.GroupVersionKind]struct{}{}}
	_, lists, err := k.discovery.ServerGroupsAndResources()
	var some *discovery.ErrGroupDiscoveryFailed
	switch {
	case errors.As(err, &some):
		c.unsure = some.Groups
	case err != nil:
		logr.FromContextOrDiscard(ctx).Info("which kinds there are is not known; owners are asked for one by one", "reason", err.Error())
		c.all = true
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			c.served[gv.WithKind(list.APIResources[i].Kind)] = struct{}{}
		}
	}
	return c
}

// unserved is an error about an owner of a kind that the API server does not serve.
type unserved struct {
	error
	kind schema.GroupVersionKind
}

// Unwrap lets the error be recognised for what it is.
func (u *unserved) Unwrap() error { return u.error }
