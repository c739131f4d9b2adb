package control

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// Shell is what a controller that writes and speaks to users needs of the process around it.
type Shell struct {
	// Cache feeds what is watched; it is started by the process.
	Cache cache.Cache
	// Client writes. It must know the kinds.
	Client client.Client
	// Log takes the controller's messages.
	Log logr.Logger
	// Registry takes the controller's metrics; nil for none.
	Registry prometheus.Registerer
	// Clock times work; nil is the real one.
	Clock clock.WithTicker
	// Guard sets aside what ends in a defect; nil: nobody is told.
	Guard *aside.Guard
	// Tell takes events for the user of an object; nil: nobody is told.
	Tell func(about client.Object, warning bool, reason, message string)
}

// Note is an event for the user of an object.
type Note struct {
	// Warning says that something is wrong.
	Warning bool
	// Reason is one word; Message is a sentence.
	Reason, Message string
}

// Controller is a loop with the shell that it lives in.
type Controller[K comparable, W any] struct {
	*Loop[K, W]
	// Shell is what the process gave.
	Shell Shell

	told map[K]Note // what Once last told; guarded by the loop's lock
}

// NewController returns a controller that watches nothing yet. It fails without a worker.
func NewController[K comparable, W any](s Shell, role Role[K, W]) (*Controller[K, W], error) {
	if role.Workers < 1 {
		return nil, fmt.Errorf("%s: %d workers: at least one is needed", role.Name, role.Workers)
	}
	if s.Clock == nil {
		s.Clock = clock.RealClock{}
	}
	loop := New(Deps{Cache: s.Cache, Log: s.Log, Clock: s.Clock, Guard: s.Guard}, role)
	return &Controller[K, W]{Loop: loop, Shell: s, told: map[K]Note{}}, nil
}

// Say tells the user of an object.
func (c *Controller[K, W]) Say(about client.Object, notes ...Note) {
	for _, n := range notes {
		if c.Shell.Tell != nil {
			c.Shell.Tell(about, n.Warning, n.Reason, n.Message)
		}
	}
}

// Once tells the user of a key's object what is wrong with it, if it is not what was told of the key last; nil: nothing is wrong any more.
func (c *Controller[K, W]) Once(key K, about client.Object, n *Note) {
	c.Lock()
	last, had := c.told[key]
	if n == nil {
		delete(c.told, key)
	} else {
		c.told[key] = *n
	}
	c.Unlock()
	if n != nil && (!had || last != *n) {
		c.Say(about, *n)
	}
}

// StatusPatch is the JSON patch that makes the status of the object of that UID what is given. It is for a status that one controller writes alone.
func StatusPatch(uid types.UID, status any) ([]byte, error) {
	body, err := json.Marshal([]map[string]any{{"op": "test", "path": "/metadata/uid", "value": uid}, {"op": "add", "path": "/status", "value": status}})
	if err != nil {
		return nil, fmt.Errorf("encode a status: %w", err)
	}
	return body, nil
}

// Keys are the keys as due at once.
func Keys[K comparable](keys ...K) []Due[K] { return After(0, keys...) }

// After are the keys as due after a time.
func After[K comparable](after time.Duration, keys ...K) (out []Due[K]) {
	for _, k := range keys {
		out = append(out, Due[K]{k, after})
	}
	return out
}

// If is the key as due after a time, if there is news of it.
func If[K comparable](news bool, key K, after time.Duration) []Due[K] {
	if !news {
		return nil
	}
	return After(after, key)
}

// Named is the object of a kind that a key names; it is an About.
func Named[T any, P interface {
	*T
	client.Object
}](k types.NamespacedName) client.Object {
	o := P(new(T))
	o.SetNamespace(k.Namespace)
	o.SetName(k.Name)
	return o
}
