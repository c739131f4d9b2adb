package engine

import (
	"iter"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// View is the read-only face of a session. Slices it returns are the session's own and must not be written to.
type View struct{ s *Session }

// Snapshot is what the run decides on.
func (v *View) Snapshot() *cluster.Snapshot { return v.s.Snap }

// Step counts one step of what a plugin searches; see [Recorder.Step].
func (v *View) Step() { v.s.Recorder.Step() }

// Idle is Ledger.Idle.
func (v *View) Idle(n cluster.NodeID) cluster.Resources { return v.s.Ledger.Idle(n) }

// Later is Ledger.Later.
func (v *View) Later(n cluster.NodeID) cluster.Resources { return v.s.Ledger.Later(n) }

// FitsIdle is Ledger.FitsIdle.
func (v *View) FitsIdle(c *cluster.Class, n cluster.NodeID) bool { return v.s.Ledger.FitsIdle(c, n) }

// FitsLater is Ledger.FitsLater.
func (v *View) FitsLater(c *cluster.Class, n cluster.NodeID) bool { return v.s.Ledger.FitsLater(c, n) }

// EachDevice calls f for the shared devices of a node as they stand: what is held of each now, and will be once releases
// have happened, in units of the node's devices.
func (v *View) EachDevice(n cluster.NodeID, f func(group string, now, later int64)) {
	v.s.Ledger.EachDevice(n, f)
}

// NodeOf returns where a pod is in the session: the node it holds room on, or was placed, nominated or moved to by this
// run; None once it has been evicted.
func (v *View) NodeOf(p *cluster.Pod) cluster.NodeID {
	return v.s.Ledger.NodeOf(p)
}

// EachHold calls f for every promise of room that counts: open ones are free for whom they are promised to, just now.
func (v *View) EachHold(f func(h *cluster.Hold, open bool)) {
	v.s.Ledger.EachHold(f)
}

// Held yields the promises of room on a node that stand: nobody has been given their room in this run.
func (v *View) Held(n cluster.NodeID) iter.Seq[*cluster.Hold] {
	return v.s.Ledger.Held(n)
}

// Queue returns the live ledger of a queue; nil for None.
func (v *View) Queue(id cluster.QueueID) *QueueLedger { return v.s.Ledger.Queue(id) }

// MaxQueueID is the exclusive upper bound of the IDs of ledgers.
func (v *View) MaxQueueID() int { return v.s.Ledger.MaxQueueID() }

// Queues returns the live ledgers of all sound queues, and of what stands for others; parents before children.
func (v *View) Queues() []*QueueLedger { return v.s.Ledger.Queues() }

// Members is Ledger.Members.
func (v *View) Members(g *GangState, set int32, f func(cluster.NodeID)) {
	v.s.Ledger.Members(g, set, f)
}

// Places is Placer.Places.
func (v *View) Places(in NodeRange, t *cluster.Topology, c *cluster.Class) []int {
	return v.s.Placer.Places(in, t, c)
}

// Top is Placer.Top.
func (v *View) Top(in NodeRange, t *cluster.Topology) cluster.DomainID {
	return v.s.Placer.Top(in, t)
}

// FreeLater returns what will be free on a node once releases have happened, as the session stands. The caller owns Parts;
// Room is the session's own.
func (v *View) FreeLater(n cluster.NodeID) FreeGPUs {
	f := FreeGPUs{Room: v.s.Ledger.Later(n), Units: v.s.Snap.Node(n).DeviceUnits()}
	v.EachDevice(n, func(_ string, _, later int64) {
		if later > 0 && later < f.Units {
			f.Parts = append(f.Parts, f.Units-later)
		}
	})
	return f
}
