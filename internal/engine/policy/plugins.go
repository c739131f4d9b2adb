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
	Votes        []Named[AdmissionVote]
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

	rest *companyOfRest // that of all faces, once there are faces
	sole bool           // some CompanyScore stands for that of all faces

	deviceOrder []DeviceOrder
	observers   []Observer
	timetables  []Timetable
	Closers     []Named[Closer]

	Preemptable []Named[Preemptable]
	Reclaimable []Named[Reclaimable]
	Turns       []Named[QueueTurn]
	Starving    []Named[Starving]
	leafOrder   []LeafOrder
	domains     []DomainScore
	sources     []VictimSource
	keepers     []VictimKeeper

	// Faces are what the tiers of a face's own have to say of its gangs, by its name; a face without a configuration has no entry.
	Faces map[string][]*Plugins
	// FaceScores are the node scores of a face's own, by its name: where there are some, they stand for Scores. None has an entry without any, and without a
	// CompanyScore of its own.
	FaceScores map[string][]NodeScore
	// DomainScores are those of a face's own, by its name: where there are some, domains of one level are taken by them.
	DomainScores map[string][]DomainScore
	// FaceFilters are the faces with node filters of their own: what these say to pods of a class holds for the face, and for the queue.
	FaceFilters map[string]bool

	orders map[string]*Orders // by face
	last   lastOrders
}

// Vote asks a face's tiers whether a gang of it is admitted: whoever rejects ends it; after a tier in which somebody permits, no later one is asked; with no vote it
// is. wake is when time alone may change a no, 0 for never.
func (ps *Plugins) Vote(face string, g *ledger.GangState, asks cluster.Resources) (no Verdict, wake cluster.Instant) {
	for _, tier := range ps.Faces[face] {
		permitted := false
		for _, p := range tier.Votes {
			vote, v := p.It.VoteAdmission(g, asks)
			switch {
			case vote == Reject && no.Yes():
				v.Plugin, no = p.Name, v
			case vote == Permit:
				permitted = true
			case vote == Abstain && !v.WakeAt.IsZero() && (wake.IsZero() || v.WakeAt.Before(wake)):
				wake = v.WakeAt
			}
		}
		if !no.Yes() || permitted {
			return no, wake
		}
	}
	return Verdict{}, wake
}

// Hooks are the points that the ledger asks and tells.
func (ps *Plugins) Hooks() ledger.Hooks {
	return ledger.Hooks{
		ComparePods: func(a, b *cluster.Pod) int {
			if own := ps.Own(a.PodState.Gang.Face); own != nil {
				return own.comparePods(a, b)
			}
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

// NextChange is when time alone next changes what a plugin says; cluster.Forever for never.
func (ps *Plugins) NextChange() cluster.Instant {
	next := cluster.Forever
	for _, t := range ps.timetables {
		next = cluster.Earliest(next, t.NextChange())
	}
	return next
}

// Add takes in a tier of a face's own, opened for the run.
func (ps *Plugins) Add(face string, tier *Plugins, v *View) {
	ps.Faces[face] = append(ps.Faces[face], tier)
	ps.order(face, tier)
	if ps.rest == nil {
		ps.rest = &companyOfRest{CompanyScore: ps.Company, view: v}
		if ps.Company != nil {
			ps.Company = ps.rest
		}
	}
	if tier.sole {
		ps.rest.without = append(ps.rest.without, face)
	}
	ps.observers = append(ps.observers, tier.observers...)
	ps.timetables = append(ps.timetables, tier.timetables...)
	if tier.Company != nil {
		ps.Company = beside(ps.Company, companyOfFace{tier.Company, face, v})
	}
	if len(tier.Scores) > 0 || tier.Company != nil {
		ps.FaceScores[face] = append(append([]NodeScore{}, ps.FaceScores[face]...), tier.Scores...)
	}
	for _, r := range tier.Ready {
		ps.Ready = append(ps.Ready, readyOfFace{r, face, v})
	}
	for _, d := range tier.Details {
		ps.Details = append(ps.Details, detailsOfFace{d, face, v})
	}
	for _, b := range tier.Bonuses {
		ps.Bonuses = append(ps.Bonuses, bonusOfFace{b, face, v})
	}
	if len(tier.domains) > 0 {
		ps.DomainScores[face] = append(ps.DomainScores[face], tier.domains...)
	}
	for _, f := range tier.Filters {
		own := ofFace{f.It, face, v}
		ps.FaceFilters[face] = true
		if r, ok := f.It.(NodeRefusals); ok {
			of := refusalsOfFace{own, r}
			ps.Filters, ps.Refusals = append(ps.Filters, Named[NodeFilter]{f.Name, of}), append(ps.Refusals, Named[NodeRefusals]{f.Name, of})
			continue
		}
		ps.Filters = append(ps.Filters, Named[NodeFilter]{f.Name, own})
	}
}

// bonusOfFace is a PodBonus of a face's own: pods of others have none.
type bonusOfFace struct {
	PodBonus
	face string
	view *View
}

// Bonus implements PodBonus.
func (b bonusOfFace) Bonus(p *cluster.Pod) (cluster.NodeID, int64) {
	if !b.view.ofFace(p, b.face) {
		return cluster.None, 0
	}
	return b.PodBonus.Bonus(p)
}

// Asks says whether the filter has a say about the pod.
func Asks(f NodeFilter, p *cluster.Pod) bool {
	of, own := f.(interface{ wantsPod(p *cluster.Pod) bool })
	return f.Wants(p.Class) && (!own || of.wantsPod(p))
}

// ofFace is a NodeFilter that is asked about a face's pods alone: to all others it says yes.
type ofFace struct {
	NodeFilter
	face string
	view *View
}

func (f ofFace) wantsPod(p *cluster.Pod) bool { return f.view.ofFace(p, f.face) }

// CheckNode asks the filter about a pod of the face.
func (f ofFace) CheckNode(p *cluster.Pod, n *cluster.Node) Verdict {
	if !f.wantsPod(p) {
		return Verdict{}
	}
	return f.NodeFilter.CheckNode(p, n)
}

// CheckStay implements NodeStay: it asks whether a pod of the face may stay where the filter tells that from going there, and else whether it may go there.
func (f ofFace) CheckStay(p *cluster.Pod, n *cluster.Node) bool {
	if !f.wantsPod(p) {
		return true
	}
	if stay, told := f.NodeFilter.(NodeStay); told {
		return stay.CheckStay(p, n)
	}
	return f.NodeFilter.CheckNode(p, n).Yes()
}

// readyOfFace is a NodeReady that is asked about a face's pods alone.
type readyOfFace struct {
	NodeReady
	face string
	view *View
}

// CheckReady asks about a pod of the face.
func (r readyOfFace) CheckReady(p *cluster.Pod, n *cluster.Node) Verdict {
	if !r.view.ofFace(p, r.face) {
		return Verdict{}
	}
	return r.NodeReady.CheckReady(p, n)
}

// detailsOfFace is a Detailer that is asked about a face's pods alone.
type detailsOfFace struct {
	Detailer
	face string
	view *View
}

// Detail asks about a pod of the face.
func (d detailsOfFace) Detail(op ledger.Op, to *Detail) {
	if d.view.ofFace(op.Pod, d.face) {
		d.Detailer.Detail(op, to)
	}
}

// refusalsOfFace is a NodeRefusals that is asked about a face's pods alone.
type refusalsOfFace struct {
	ofFace
	it NodeRefusals
}

// Refuses implements NodeRefusals.
func (f refusalsOfFace) Refuses(p *cluster.Pod) ([]uint64, *Verdict) {
	if !f.wantsPod(p) {
		return nil, nil
	}
	return f.it.Refuses(p)
}

// RefusesAll implements NodeRefusals.
func (f refusalsOfFace) RefusesAll(p *cluster.Pod) bool { return f.wantsPod(p) && f.it.RefusesAll(p) }
