package policy

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Plugins is everything that was opened for one run, by extension point and in the order of the profile.
type Plugins struct {
	QueueOrder   []QueueOrder
	GangOrder    []GangOrder
	setOrder     []SetOrder
	podOrder     []PodOrder
	Shares       QueueShares
	Reclaim      []Named[ReclaimGate]
	VictimQueues []Named[VictimQueueFilter]
	Victims      []Named[VictimFilter]
	Units        []Named[UnitCheck]
	VictimOrders []VictimOrder
	Tiers        []VictimTier
	QueueGates   []Named[QueueGate]
	FixedQuota   []Named[FixedQuota]
	PodGates     []Named[PodGate]
	NodeSets     []Named[NodeSets]
	Statics      []Named[NodeStatic]
	Filters      []Named[NodeFilter]
	Refusals     []Named[NodeRefusals]
	Ready        []NodeReady
	promises     []Promises
	Details      []Detailer
	Scores       []NodeScore
	Bonuses      []PodBonus
	Company      CompanyScore

	deviceOrder []DeviceOrder
	observers   []Observer
	Closers     []Named[Closer]
}

// Hooks are the points that the ledger asks and tells.
func (ps *Plugins) Hooks() ledger.Hooks {
	return ledger.Hooks{
		ComparePods: func(a, b *cluster.Pod) int {
			for _, o := range ps.podOrder {
				if c := o.ComparePods(a, b); c != 0 {
					return c
				}
			}
			return 0
		},
		CompareSets: func(g *ledger.GangState, a, b int32) int {
			for _, o := range ps.setOrder {
				if c := o.CompareSets(g, a, b); c != 0 {
					return c
				}
			}
			return 0
		},
		ScoreDevice: func(c *cluster.Class, n *cluster.Node, used, capacity cluster.DeviceUnits) int64 {
			score := int64(0)
			for _, o := range ps.deviceOrder {
				score += o.ScoreDevice(c, n, used, capacity)
			}
			return score
		},
		Done: func(op ledger.Op) {
			for _, o := range ps.observers {
				o.Done(op)
			}
		},
		Undone: func(op ledger.Op) {
			for i := len(ps.observers) - 1; i >= 0; i-- {
				ps.observers[i].Undone(op)
			}
		},
		Turned: func(h *cluster.Hold, open bool) {
			for _, o := range ps.promises {
				o.Turned(h, open)
			}
		},
	}
}

// Named is an instance whose verdicts name its plugin.
type Named[T any] struct {
	Name string
	It   T
}

// FirstNo asks one plugin after the other, and returns the first no, with the plugin's name: all must agree.
func FirstNo[T any](of []Named[T], ask func(T) Verdict) Verdict {
	for _, p := range of {
		if v := ask(p.It); !v.Yes() {
			v.Plugin = p.Name
			return v
		}
	}
	return Verdict{}
}
