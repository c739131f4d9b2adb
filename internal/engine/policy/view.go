package policy

import (
	"iter"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// View is the read-only face of a session. Slices it returns are the session's own and must not be written to.
type View struct {
	snap   *cluster.Snapshot
	ledger *ledger.Ledger
	step   func()
	ps     *Plugins
}

// NewView returns the view of a run. step counts one step of a search; ps are the plugins as they are opened.
func NewView(snap *cluster.Snapshot, l *ledger.Ledger, step func(), ps *Plugins) *View {
	return &View{snap: snap, ledger: l, step: step, ps: ps}
}

// FairShare is what a queue is entitled to by the division that is for all faces, for plugins of one, which are opened after it; nil where nobody says.
func (v *View) FairShare(q cluster.QueueID) cluster.Resources {
	if v.ps.Shares == nil {
		return nil
	}
	return v.ps.Shares.FairShare(q)
}

// ofFace says whether a pod is of a gang of the face.
func (v *View) ofFace(p *cluster.Pod, face string) bool {
	g := v.snap.Gang(p.Gang)
	return g != nil && g.Key.Face == face
}

// QueueOf is the ledger of the queue of a pod's gang; nil for a pod without either.
func (v *View) QueueOf(p *cluster.Pod) *ledger.QueueLedger {
	if g := v.snap.Gang(p.Gang); g != nil {
		if l := v.ledger.Gang(g.ID); l != nil {
			return l.Leaf
		}
	}
	return nil
}

// Snapshot is what the run decides on.
func (v *View) Snapshot() *cluster.Snapshot { return v.snap }

// Step counts one step of what a plugin searches: one what-if, or as much work.
func (v *View) Step() { v.step() }

// Idle is Ledger.Idle.
func (v *View) Idle(n cluster.NodeID) cluster.Resources { return v.ledger.Idle(n) }

// Later is Ledger.Later.
func (v *View) Later(n cluster.NodeID) cluster.Resources { return v.ledger.Later(n) }

// FitsIdle is Ledger.FitsIdle.
func (v *View) FitsIdle(c *cluster.Class, n cluster.NodeID) bool { return v.ledger.FitsIdle(c, n) }

// FitsLater is Ledger.FitsLater.
func (v *View) FitsLater(c *cluster.Class, n cluster.NodeID) bool { return v.ledger.FitsLater(c, n) }

// EachDevice calls f for the shared devices of a node as they stand: what is held of each now, and will be once releases
// have happened, in units of the node's devices.
func (v *View) EachDevice(n cluster.NodeID, f func(group string, now, later cluster.DeviceUnits)) {
	v.ledger.EachDevice(n, f)
}

// NodeOf returns where a pod is in the session: the node it holds room on, or was placed, nominated or moved to by this
// run; None once it has been evicted.
func (v *View) NodeOf(p *cluster.Pod) cluster.NodeID {
	return v.ledger.NodeOf(p)
}

// EachHold calls f for every promise of room that counts: open ones are free for whom they are promised to, just now.
func (v *View) EachHold(f func(h *cluster.Hold, open bool)) {
	v.ledger.EachHold(f)
}

// Held yields the promises of room on a node that stand: nobody has been given their room in this run.
func (v *View) Held(n cluster.NodeID) iter.Seq[*cluster.Hold] {
	return v.ledger.Held(n)
}

// Queue returns the live ledger of a queue; nil for None.
func (v *View) Queue(id cluster.QueueID) *ledger.QueueLedger { return v.ledger.Queue(id) }

// MaxQueueID is the exclusive upper bound of the IDs of ledgers.
func (v *View) MaxQueueID() int { return v.ledger.MaxQueueID() }

// Queues returns the live ledgers of all sound queues, and of what stands for others; parents before children.
func (v *View) Queues() []*ledger.QueueLedger { return v.ledger.Queues() }

// Gang returns the live ledger of a gang; nil for None.
func (v *View) Gang(id cluster.GangID) *ledger.GangState { return v.ledger.Gang(id) }

// Touched is Ledger.Touched.
func (v *View) Touched() []cluster.NodeID { return v.ledger.Touched() }

// DomainScores are those of a face's own plugins; none of a face without any.
func (v *View) DomainScores(face string) []DomainScore { return v.ps.DomainScores[face] }

// Claimed is Ledger.Claimed.
func (v *View) Claimed(q *ledger.QueueLedger) ledger.Claims { return v.ledger.Claimed(q) }

// AdmittedNow are the gangs that were admitted in this run, in order.
func (v *View) AdmittedNow() []cluster.Key {
	now, _ := v.ledger.Admissions()
	return now
}

// Members is Ledger.Members.
func (v *View) Members(g *ledger.GangState, set int32, f func(cluster.NodeID)) {
	v.ledger.Members(g, set, f)
}

// FreeLater returns what will be free on a node once releases have happened, as the session stands. The caller owns Parts;
// Room is the session's own.
func (v *View) FreeLater(n cluster.NodeID) FreeGPUs {
	f := FreeGPUs{Room: v.ledger.Later(n), Units: v.snap.Node(n).DeviceUnits()}
	v.EachDevice(n, func(_ string, _, later cluster.DeviceUnits) {
		if later > 0 && later < f.Units {
			f.Parts = append(f.Parts, f.Units-later)
		}
	})
	return f
}
