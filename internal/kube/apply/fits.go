package apply

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// ErrNoRoom is why a decision is not written any more: the room that it counts on is not there now. Whom it was for is decided on anew.
var ErrNoRoom = errors.New("the room is not there any more")

// Latest returns the cluster as the scheduler knows it now, what it has decided included; nil before it knows any. It is called by many
// goroutines and must not block.
type Latest func() *cluster.Snapshot

// since returns what is known, if that is more than was known when a decision was made; nil for nothing new.
func (l Latest) since(decided uint64) *cluster.Snapshot {
	if l == nil {
		return nil
	}
	if snap := l(); snap != nil && snap.Generation > decided {
		return snap
	}
	return nil
}

// checkBind looks whether the room is still there that a pod was to be bound to. The pod itself holds it by now, as whatever else was
// decided does: the room is gone when more is held than there is of something that the pod asks for.
func (l Latest) checkBind(decided uint64, in *engine.Intent) error {
	snap := l.since(decided)
	if snap == nil {
		return nil
	}
	if err := Fits(snap, in.Node, in.Requests); err != nil {
		return err
	}
	n := snap.NodeByName(in.Node)
	for _, group := range in.Groups {
		if d := n.Device(group); d != nil && d.Used > n.DeviceUnits() {
			return roomGone(in.Node, "more is held of a shared device than there is")
		}
	}
	return nil
}

// Fits says why what is held on a node is too much of something that is asked for, the asker's part included; nil for it fits.
func Fits(snap *cluster.Snapshot, node string, asked cluster.Resources) error {
	n, err := usable(snap, node)
	if err != nil {
		return err
	}
	if text := lack(snap.Dims, n.Idle(), asked, nil); text != "" {
		return roomGone(node, text)
	}
	return nil
}

// checkPromises looks whether the room that is promised to whom a bundle is for, and to those that it moves, will be there when all that
// leaves has gone. What others are promised is not looked at: that is for the next cycle to judge.
func (l Latest) checkPromises(decided uint64, b *engine.Bundle) error {
	snap := l.since(decided)
	if snap == nil {
		return nil
	}
	sums := map[string]cluster.Resources{} // by node
	for i := range b.Intents {
		switch in := &b.Intents[i]; {
		case in.Verb == engine.Nominate:
			sums[in.Node] = nil
		case in.To != "":
			sums[in.To] = nil
		}
	}
	for i := range snap.Holds {
		h := &snap.Holds[i]
		sum, ours := sums[h.Node]
		if ours && (h.Gang == b.Gang || h.Bundle == b.ID) {
			sum.Add(h.Requests)
			sums[h.Node] = sum
		}
	}
	for _, node := range slices.Sorted(maps.Keys(sums)) {
		n, err := usable(snap, node)
		if err != nil {
			return err
		}
		if text := lack(snap.Dims, n.Later(), sums[node], sums[node]); text != "" {
			return roomGone(node, text)
		}
	}
	return nil
}

// usable finds a node that takes pods.
func usable(snap *cluster.Snapshot, name string) (*cluster.Node, error) {
	n := snap.NodeByName(name)
	switch {
	case n == nil:
		return nil, roomGone(name, "the node is gone")
	case n.Problem != "":
		return nil, roomGone(name, n.Problem)
	}
	return n, nil
}

// lack says of what is asked for less than need is free; "" for nothing.
func lack(dims cluster.Dims, free, asked, need cluster.Resources) string {
	for d, x := range asked {
		if short := need.At(d) - free.At(d); x > 0 && short > 0 {
			return fmt.Sprintf("%s %s are missing", dims.FormatOne(d, short), dims.Name(d))
		}
	}
	return ""
}

func roomGone(node, why string) error { return fmt.Errorf("node %s: %w: %s", node, ErrNoRoom, why) }
