package node

import (
	"context"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/wrap"
)

// Networks is the network process in the runtime's words: a token is the whole key that the wrapper needs, and releasing what is not there succeeds.
type Networks struct{ network.Client }

var _ runtime.Networks = Networks{}

// Add makes a pod's network.
func (n Networks) Add(ctx context.Context, pod network.Pod) (network.Attached, error) {
	return n.keyed(pod.ID)(n.Client.Add(ctx, pod))
}

// Recover finds a pod's network, with a new key.
func (n Networks) Recover(ctx context.Context, id string) (network.Attached, error) {
	return n.keyed(id)(n.Client.Recover(ctx, id))
}

func (n Networks) keyed(id string) func(network.Attached, error) (network.Attached, error) {
	return func(a network.Attached, err error) (network.Attached, error) {
		if err == nil {
			a.Token = wrap.Key{ID: id, Token: a.Token, Socket: n.Socket}.String()
		}
		return a, err
	}
}

// Release takes a pod's network away.
func (n Networks) Release(ctx context.Context, id string) error {
	if err := n.Client.Release(ctx, id); err != nil && vm.KindOf(err) != vm.NotFound {
		return err
	}
	return nil
}
