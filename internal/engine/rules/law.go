package rules

import (
	"cmp"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// A face with a configuration of its own has a law of its own: its plugins say who of the face may take from whom of the face, and who divides for all faces does not. What the engine
// says itself, of priorities, of who came back and of who is being bound, holds for everybody.

// law is a face's, as it was when the search for a gang began. Who decides about a node is settled then, by all who might be taken there: within a search it is the same, so that
// what was not to be taken at first is not later because others have gone.
type law struct {
	judges map[cluster.NodeID][]policy.Judge
	all    []policy.Judge
	pods   map[string][]*policy.Candidate // by face: who held room when it was asked for first

	bundles policy.Bundles
}

// TakeIn says how the running action takes.
func (ru *Rules) TakeIn(b policy.Bundles) { ru.law.bundles = b }

// InBundles says whether the running action takes for g in bundles.
func (ru *Rules) InBundles(g *ledger.GangState) bool { return ru.law.bundles.Ordered && ru.OwnLaw(g) }

// OwnLaw says whether the gang's face has a law of its own.
func (ru *Rules) OwnLaw(g *ledger.GangState) bool {
	if len(ru.points.Faces) == 0 {
		return false
	}
	_, has := ru.points.Faces[g.Key.Face]
	return has
}

// ofFace says whether a queue is of a gang's face.
func ofFace(q *ledger.QueueLedger, g *ledger.GangState) bool {
	face, _ := cluster.SplitQueue(q.Name)
	own, _ := cluster.SplitQueue(g.Queue)
	return face == own
}

// governs says whether what g may take from v is for the law of its face to say.
func (ru *Rules) governs(r policy.EvictionCause, g, v *ledger.GangState) bool {
	return (r == policy.Reclaim || r == policy.Preempt) && ru.OwnLaw(g) && ofFace(v.Leaf, g)
}

// CheckStarving says whether others may go for what the gang lacks: where its face has a law of its own, that says so.
func (ru *Rules) CheckStarving(g *ledger.GangState) policy.Verdict {
	if !ru.OwnLaw(g) {
		return policy.Verdict{}
	}
	return ru.points.FaceStarves(g)
}

// faceReclaim says whether g may take from other queues of its face.
func (ru *Rules) faceReclaim(g *ledger.GangState, request cluster.Resources) policy.Verdict {
	if v := ru.points.FaceTurn(g.Key.Face, g.Leaf); !v.Yes() {
		return v
	}
	return ru.points.FaceReclaim(g, request)
}

// OpenLaw begins a search for g, before anything is taken, and returns how many pods it looked at: where the gang's face has a law of its own, all of the face that might be taken,
// O(those × plugins). wake is when time alone may change who decides, cluster.Forever for never.
func (ru *Rules) OpenLaw(r policy.EvictionCause, g *ledger.GangState, request cluster.Resources) (looked int, wake cluster.Instant) {
	wake = cluster.Forever
	if (r != policy.Reclaim && r != policy.Preempt) || !ru.OwnLaw(g) {
		return 0, wake
	}
	if ru.InBundles(g) {
		ru.law.all, ru.law.judges = ru.points.Bundlers(r, g, request), nil
		return 0, wake
	}
	on := map[cluster.NodeID][]*policy.Candidate{}
	for _, c := range ru.candidates(g.Key.Face) {
		looked++
		same := c.Gang.Leaf == g.Leaf
		if same == (r == policy.Preempt) && c.Gang != g && !c.Pod.Kept && !(r == policy.Reclaim && c.Gang.Leaf.NotReclaimable) && ru.ledger.NodeOf(c.Pod) == c.Pod.Node {
			on[c.Pod.Node] = append(on[c.Pod.Node], c)
		}
	}
	ru.law.all, ru.law.judges = ru.points.AllJudges(r, g, request), make(map[cluster.NodeID][]policy.Judge, len(on))
	for n, cs := range on { // order: each node by itself
		judges, at := ru.points.Judges(r, g, request, cs)
		ru.law.judges[n], wake = judges, cluster.Earliest(wake, at)
	}
	return looked, wake
}

// candidates are the pods of a face's gangs that held room when the run began.
func (ru *Rules) candidates(face string) []*policy.Candidate {
	out, known := ru.law.pods[face]
	if known {
		return out
	}
	ru.snap.EachGang(func(gang *cluster.Gang) {
		if gang.Key.Face != face || gang.ActivePods == 0 {
			return
		}
		g := ru.ledger.Gang(gang.ID)
		for _, id := range gang.Pods {
			if p := ru.snap.Pod(id); g.Leaf != nil && p.Ours && p.Phase.Active() && p.Node != cluster.None {
				out = append(out, &policy.Candidate{Gang: g, Pod: p})
			}
		}
	})
	slices.SortFunc(out, func(a, b *policy.Candidate) int { return cmp.Compare(a.Pod.ID, b.Pod.ID) })
	if ru.law.pods == nil {
		ru.law.pods = map[string][]*policy.Candidate{}
	}
	ru.law.pods[face] = out
	return out
}

// LawfulUnit is what a gang could give g instead of a unit that the law of their face refuses: the next with a pod that the law lets go by itself, of those that are wanted. False
// where there is none above the gang's minimum, and where no law of a face's is asked.
func (ru *Rules) LawfulUnit(r policy.EvictionCause, g, v *ledger.GangState, want func(*ledger.VictimUnit) bool) (ledger.VictimUnit, bool) {
	if !ru.governs(r, g, v) {
		return ledger.VictimUnit{}, false
	}
	u, ok := ru.ledger.NextUnitOf(v, func(p *cluster.Pod) bool {
		one := ledger.VictimUnit{Gang: v, Pods: []*cluster.Pod{p}, Charge: p.Charge}
		if p.Kept || !want(&one) {
			return false
		}
		_, no := ru.checkLaw(&one)
		return no.Yes()
	})
	return u, ok && !u.BelowMinimum
}

// checkLaw says whether one more unit may be taken, by the law of the face that the search was begun with: each of its pods, after those before it.
func (ru *Rules) checkLaw(u *ledger.VictimUnit) (rule string, no policy.Verdict) {
	c, bundles := policy.Candidate{Gang: u.Gang}, ru.law.bundles.Ordered
	if ru.law.bundles.Unbroken && u.BelowMinimum && u.Gang.SetSatisfied(0) {
		return "", policy.Verdict{Code: policy.No, Reason: policy.ReasonUnbroken, Object: u.Gang.Key.String()}
	}
	for i, p := range u.Pods {
		c.Pod, c.Before = p, u.Pods[:i]
		judges := ru.law.judges[p.Node]
		if bundles {
			judges = ru.law.all
		} else if len(judges) == 0 { // nobody may be taken there
			judges = ru.law.all
			no = policy.Verdict{Code: policy.No, Reason: policy.ReasonNoJudge, Object: u.Gang.Key.String()}
		}
		names := make([]string, 0, len(judges))
		for _, j := range judges {
			vote, v := j.Vote(&c)
			switch vote {
			case policy.Reject:
				v.Plugin = j.Plugin
				return "", v
			case policy.Abstain:
				if bundles {
					continue
				}
				no = policy.Verdict{Code: policy.No, Reason: policy.ReasonNoJudge, Object: u.Gang.Key.String()}
			}
			names = append(names, j.Plugin)
		}
		if bundles && len(names) == 0 {
			no = policy.Verdict{Code: policy.No, Reason: policy.ReasonNoJudge, Object: u.Gang.Key.String()}
		}
		if !no.Yes() {
			return "", no
		}
		rule = cmp.Or(rule, "permitted by "+strings.Join(names, ", "))
		c.Freed.AddCapped(p.Charge)
	}
	return rule, policy.Verdict{}
}
