package policy

import (
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Bundles says how an action takes from gangs of a face with a law of its own. The zero value is pod by pod, as the votes on pods say.
type Bundles struct {
	// Ordered: what gangs can do without goes first, of all of them, and then whole gangs; the plugins of all tiers must agree.
	Ordered bool
	// Unbroken: no gang loses its minimum.
	Unbroken bool
}

// Judge is a plugin that votes on candidates.
type Judge struct {
	Plugin string
	Vote   func(c *Candidate) (Vote, Verdict)
}

// Judges returns who of a face's plugins decides about candidates on one node for g: all of them must permit one that is taken; nobody may be taken if there are none.
//
// Tier by tier each plugin has a list of candidates: those it permits, each asked about as if it alone were taken. One that abstains about all is passed over; one whose list is empty
// ends its tier, which then has no victims. The victims of a tier are those in all lists so far, and nobody's is where that is nobody: the list of the next plugin of the tier stands for
// it then. The first tier that has victims decides, by the plugins whose lists made them.
//
// wake is when time alone may change that, cluster.Forever for never.
func (ps *Plugins) Judges(r EvictionCause, g *ledger.GangState, request cluster.Resources, on []*Candidate) (judges []Judge, wake cluster.Instant) {
	wake = cluster.Forever
	for _, tier := range ps.Faces[g.Key.Face] {
		if judges = decide(tier.judges(r, g, request), on, &wake); judges != nil {
			break
		}
	}
	return judges, wake
}

// Bundlers are all that vote for this cause where gangs are taken from in bundles, of whichever tier, in order: whoever does not abstain must permit a pod, and somebody must.
func (ps *Plugins) Bundlers(r EvictionCause, g *ledger.GangState, request cluster.Resources) (out []Judge) {
	for _, tier := range ps.Faces[g.Key.Face] {
		for i, j := range tier.judges(r, g, request) {
			if b, ok := tier.judge(r, i).(Bundled); ok {
				j.Vote = b.VoteBundled
			}
			out = append(out, j)
		}
	}
	return out
}

// judge is the plugin that votes as the judge of that number does.
func (ps *Plugins) judge(r EvictionCause, i int) Instance {
	if r == Preempt {
		return ps.Preemptable[i].It
	}
	return ps.Reclaimable[i].It
}

// AllJudges are all that vote for this cause, of whichever tier, in order.
func (ps *Plugins) AllJudges(r EvictionCause, g *ledger.GangState, request cluster.Resources) (out []Judge) {
	for _, tier := range ps.Faces[g.Key.Face] {
		out = append(out, tier.judges(r, g, request)...)
	}
	return out
}

func (ps *Plugins) judges(r EvictionCause, g *ledger.GangState, request cluster.Resources) (out []Judge) {
	switch r {
	case Preempt:
		for _, p := range ps.Preemptable {
			out = append(out, Judge{p.Name, func(c *Candidate) (Vote, Verdict) { return p.It.VotePreemptable(g, request, c) }})
		}
	case Reclaim:
		for _, p := range ps.Reclaimable {
			out = append(out, Judge{p.Name, func(c *Candidate) (Vote, Verdict) { return p.It.VoteReclaimable(g, request, c) }})
		}
	}
	return out
}

// decide returns the judges whose lists made the victims of a tier; nil where it has none.
func decide(tier []Judge, on []*Candidate, wake *cluster.Instant) (judges []Judge) {
	var victims []*Candidate
	for _, j := range tier {
		judged := false
		var list []*Candidate
		for _, c := range on {
			vote, v := j.Vote(c)
			if v.Code == Wait {
				*wake = cluster.Earliest(*wake, v.WakeAt)
			}
			if judged = judged || vote != Abstain; vote == Permit {
				list = append(list, c)
			}
		}
		switch {
		case !judged:
			continue
		case len(list) == 0:
			return nil
		case judges == nil:
			victims = list
		default:
			victims = slices.DeleteFunc(victims, func(c *Candidate) bool { return !slices.Contains(list, c) })
		}
		if judges = append(judges, j); len(victims) == 0 {
			judges = nil
		}
	}
	return judges
}

// FaceTurn says whether the plugins of a face let anything be given to, or taken for, gangs of a queue of it.
func (ps *Plugins) FaceTurn(face string, q *ledger.QueueLedger) Verdict {
	for _, tier := range ps.Faces[face] {
		if v := FirstNo(tier.Turns, func(t QueueTurn) Verdict { return t.CheckTurn(q) }); !v.Yes() {
			return v
		}
	}
	return Verdict{}
}

// FaceReclaim says whether the plugins of g's face let it take from other queues of the face at all.
func (ps *Plugins) FaceReclaim(g *ledger.GangState, request cluster.Resources) Verdict {
	for _, tier := range ps.Faces[g.Key.Face] {
		if v := FirstNo(tier.Reclaim, func(t ReclaimGate) Verdict { return t.CheckReclaim(g, request) }); !v.Yes() {
			return v
		}
	}
	return Verdict{}
}

// FaceStarves says whether the plugins of g's face let others go for it: those of the first tier that has any for that.
func (ps *Plugins) FaceStarves(g *ledger.GangState) Verdict {
	for _, tier := range ps.Faces[g.Key.Face] {
		if len(tier.Starving) > 0 {
			return FirstNo(tier.Starving, func(s Starving) Verdict { return s.CheckStarving(g) })
		}
	}
	return Verdict{Code: No, Reason: ReasonNotStarving, Detail: "no plugin of its face says that it starves"}
}
