package cluster

import "strings"

// PodID is a pod's dense index in one Store and its Snapshots; None means no pod.
type PodID int32

// NodeID is a node's dense index; None means no node.
type NodeID int32

// GangID is a gang's dense index; None means no gang.
type GangID int32

// QueueID is a queue's dense index; None means no queue.
type QueueID int32

// None is the ID of nothing, for every kind of ID.
const None = -1

// Phase is where a pod stands for the scheduler.
type Phase uint8

// The phases of a pod. Binding, Bound, Running, Releasing and StuckReleasing hold room on a node.
const (
	Pending        Phase = iota // may be placed
	Gated                       // has scheduling gates: counts for nothing until they are lifted
	Binding                     // decided: a BindRequest is on its way, or assumed by us
	Bound                       // has a node, not yet running
	Running                     //
	Releasing                   // being deleted: its room comes back
	StuckReleasing              // being deleted for longer than the threshold: its room is not counted on
	Succeeded                   //
	Failed                      //
	Unknown                     //
)

// Entry says how a pod stands that asks its queue to let it in: of its scheduling gates one is the queue's to lift.
type Entry uint8

// The states of a pod's entry.
const (
	EntryFree  Entry = iota // it does not ask, or has other gates too
	EntryAsked              // it is gated by its queue alone
	EntryGiven              // it asked, and was let in
)

var phaseNames = [...]string{"Pending", "Gated", "Binding", "Bound", "Running", "Releasing", "StuckReleasing", "Succeeded", "Failed", "Unknown"}

// String returns the phase's name.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "?"
}

// Holds says whether a pod of this phase takes room on its node.
func (p Phase) Holds() bool { return p >= Binding && p <= StuckReleasing }

// Active says whether a pod of this phase counts towards its gang's minimum and its queue's allocation: it has room
// and is not giving it back.
func (p Phase) Active() bool { return p >= Binding && p <= Running }

// Alive says whether a pod of this phase runs or may still run.
func (p Phase) Alive() bool { return p <= Running }

// Finished says that the pod is a member that ended well and is still on record: it counts towards the minimum of its set,
// see [Set.Need]. One that is being deleted was sent away, however well it ended.
func (p *Pod) Finished() bool { return p.Ours && p.Phase == Succeeded && p.DeletedAt.IsZero() }

// Pod is one pod as the scheduler sees it. It is immutable in a Snapshot.
type Pod struct {
	// What every session reads of every pod comes first: it is one line of the processor's cache.

	ID PodID
	// Gang is the gang it belongs to, None for a pod of no gang we know. For one that holds room its record decides, see
	// [Charged]. Set is the index of its pod set in the gang's tree, None when the gang has no set of that name.
	Gang GangID
	Set  int32
	// Node is where the pod is, or has been decided to go; None while it has none.
	Node  NodeID
	Class *Class
	Phase Phase

	recorded bool // Charged is what the API server said, not what the Store found out
	sent     bool // evicted by us, as far as this Store knows

	// NotBefore is when the pod may be placed again after a failed bind; 0 for at once.
	NotBefore Instant

	assumed  *assumption
	evicting Instant // until when our eviction is assumed, 0 for none
	epoch    uint64
	goneBy   Instant // DeletedAt by the Store's clock, which may have been set back since

	// PodState is what the API server last said; Returning and Charged stand as long as they are remembered. Fields of the same names
	// are what that comes to with our own decisions laid over it.
	PodState
	// NodeName is the name behind Node, kept for a node the Store does not know.
	NodeName string
	// Held is when the Store first saw the pod hold the room it has, by the time of the snapshot before;
	// 0 for pods that had it from the beginning, which hold it since their creation at most.
	Held Instant
	// Allocations are the devices that a decision on its way gives the pod's claims: ours, or that of its BindRequest.
	Allocations []ClaimAllocation
	// Charge is what its queue is charged for it where it is; of one that waits, Class.Charge.
	Charge Resources
	// Groups are the shared devices it holds, by the names of their groups, sorted; those of a reservation pod, the one it
	// is for. Empty for other pods, and for those that hold nothing.
	Groups []string
	// Zones is what it has of the NUMA zones of its node, nil when that is not on record.
	Zones []ZoneShare
}

// home is the gang it is in or waits for: that of its record, or the one it asks for.
func (p *Pod) home() Key {
	if p.PodState.Charged.Queue != "" {
		return p.PodState.Charged.Gang
	}
	return p.PodState.Gang
}

// Key names an object of one face: the API family it came from, its namespace and name.
type Key struct {
	Face      string // "kai", "volcano", "upstream", "composite"; RemnantFace
	Namespace string
	Name      string
}

// String returns "namespace/name", or the name alone for a cluster-scoped object.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Less orders keys by namespace, name, face.
func (k Key) Less(o Key) bool { return k.compare(o) < 0 }

func (k Key) compare(o Key) int {
	if c := strings.Compare(k.Namespace, o.Namespace); c != 0 {
		return c
	}
	if c := strings.Compare(k.Name, o.Name); c != 0 {
		return c
	}
	return strings.Compare(k.Face, o.Face)
}

// FullName returns "namespace/name".
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// SetName returns the name of the pod set the pod asks to be in ("" for the default one).
func (p *Pod) SetName() string { return p.PodState.SetName }

// GangKey returns the gang the pod asks to be in; the zero Key for none.
func (p *Pod) GangKey() Key { return p.PodState.Gang }

// Assumed says whether the pod's phase and node are our own decision, not yet confirmed by the API server.
func (p *Pod) Assumed() bool { return p.assumed != nil }

// Evicting says whether the pod is leaving by our own decision, which the API server does not show yet.
func (p *Pod) Evicting() bool { return !p.evicting.IsZero() }
