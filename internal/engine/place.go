package engine

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Admit says whether a gang can be tried at all, before any room is looked at; the answer for a gang that cannot is its
// diagnosis.
func (s *Session) Admit(g *GangState) Verdict {
	switch {
	case g.Invalid != "":
		return Verdict{Code: NoForever, Reason: ReasonGangInvalid, Object: g.Key.String(), Detail: g.Invalid}
	case g.Leaf == nil:
		return g.QueueVerdict
	case g.GaveUp:
		return Verdict{Code: NoForever, Reason: ReasonGaveUp, Object: g.Key.String()}
	case !g.ready(0):
		have, gated := int64(0), int64(0)
		for i := range g.sets {
			have += int64(g.sets[i].alive)
			gated += int64(g.sets[i].gated)
		}
		if gated > 0 {
			return Verdict{Code: No, Reason: ReasonGated, Object: g.Key.String(), Have: gated}
		}
		if g.stray != nil {
			return Verdict{Code: NoForever, Reason: ReasonUnknownSubgroup, Object: g.stray.Name, Detail: g.stray.SetName()}
		}
		return Verdict{Code: No, Reason: ReasonGangNotReady, Object: g.Key.String(), Have: have, Need: int64(g.MinPods())}
	}
	if pods, _ := s.Next(g); len(pods) == 0 {
		switch {
		case g.postponed != nil:
			return Verdict{Code: Wait, Reason: ReasonPostponed, Object: g.postponed.Name, WakeAt: g.wake}
		case g.stray != nil:
			return Verdict{Code: NoForever, Reason: ReasonUnknownSubgroup, Object: g.stray.Name, Detail: g.stray.SetName()}
		}
		return Verdict{Code: No, Reason: ReasonGated, Object: g.Key.String(), Have: int64(g.GatedPods)}
	}
	if g.postponed != nil && !g.Satisfied() && !g.readyNow(0) {
		return Verdict{Code: Wait, Reason: ReasonPostponed, Object: g.postponed.Name, WakeAt: g.wake}
	}
	if g.binding > 0 && !g.bound(0) && !g.anyPodWill() {
		// Their bundle may be withdrawn yet, member by member. Deciding on those that came back first as if the others
		// were there to stay would bind a part of the gang.
		return Verdict{Code: Wait, Reason: ReasonBinding, Object: g.Key.String(), Have: int64(g.binding), WakeAt: cluster.Forever}
	}
	return Verdict{}
}

// anyPodWill says whether any one of its pods makes the gang whole, so that there is no part of it. Such a gang grows while
// its first pod is on its way: if it waited, whoever comes next would take the room that is its queue's.
func (g *GangState) anyPodWill() bool {
	only := &g.Sets[0]
	for len(only.Children) == 1 {
		only = &g.Sets[only.Children[0]]
	}
	return only.Leaf && only.Min <= 1
}

// bound says whether set i has its minimum without the pods that are still being bound.
func (g *GangState) bound(i int32) bool {
	if g.Sets[i].Leaf {
		return g.sets[i].active-g.sets[i].binding >= g.Sets[i].Min
	}
	n := int32(0)
	for _, c := range g.Sets[i].Children {
		if g.bound(c) {
			n++
		}
	}
	return n >= g.Sets[i].Min
}

// readyNow is ready with postponed pods left out.
func (g *GangState) readyNow(i int32) bool {
	st := &g.sets[i]
	if g.Sets[i].Leaf {
		return st.active+int32(len(st.pods)-st.head) >= g.Sets[i].Min
	}
	n := int32(0)
	for _, c := range g.Sets[i].Children {
		if g.readyNow(c) {
			n++
		}
	}
	return n >= g.Sets[i].Min
}

// TryGang places the pods that Next names in the statement. On success it returns nil, and every one of them has been
// placed or nominated; a gang that could not have its minimum without waiting for a release has been nominated whole. On
// failure the statement is as it was, and the diagnosis says why.
//
// It costs O(log nodes) per pod, and for a gang that fails one look at every node; a gang of the same shape as one that
// failed since room last came back costs nothing.
func (s *Session) TryGang(st *Statement, g *GangState) *Diagnosis {
	pods, request := s.Next(g)
	for _, gate := range s.points.queueGates {
		if v := gate.it.CheckQueue(g, request); !v.Yes() {
			v.Plugin = gate.name
			return &Diagnosis{Verdict: v}
		}
	}
	key, memo := s.shape(pods)
	if memo {
		if d := s.failed[key]; d != nil {
			return d
		}
	}
	mark := st.Mark()
	d := s.placeAll(st, pods)
	if d != nil {
		st.rollback(mark)
		if larger := s.largestFirst(pods); larger != nil && d.Verdict.Reason == ReasonGangNoRoom {
			if s.placeAll(st, larger) == nil {
				d = nil
			} else {
				st.rollback(mark)
				d.Verdict.Partial = true
			}
		}
	}
	if d != nil {
		if memo {
			s.failed[key] = d
		}
		return d
	}
	if g.waitsForRelease() {
		st.NominateAll(mark)
	}
	return nil
}

// largestFirst returns the pods of a mixed gang by size (GPUs, then memory, then CPU), nil when all are of one class. Placing a gang's pods in their own
// order can fail where largest first succeeds; where both fail, an arrangement that neither finds may still exist, and
// the verdict says so.
func (s *Session) largestFirst(pods []cluster.PodID) []cluster.PodID {
	mixed := false
	for _, id := range pods {
		mixed = mixed || s.Snap.Pod(id).Class != s.Snap.Pod(pods[0]).Class
	}
	if !mixed {
		return nil
	}
	out := slices.Clone(pods)
	slices.SortStableFunc(out, func(a, b cluster.PodID) int {
		l, r := s.Snap.Pod(a).Class, s.Snap.Pod(b).Class
		for _, d := range [...]int{cluster.GPU, cluster.RAM, cluster.CPU} {
			if c := cmp.Compare(r.Requests.At(d), l.Requests.At(d)); c != 0 {
				return c
			}
		}
		return cmp.Compare(l.Key, r.Key)
	})
	return out
}

// shape describes the pods by class and number. It can stand for them when nothing but room decides.
func (s *Session) shape(pods []cluster.PodID) (string, bool) {
	if s.Snap.HasAntiAffinity() {
		return "", false
	}
	var key []byte
	for i := 0; i < len(pods); {
		c := s.Snap.Pod(pods[i]).Class
		if c.NeedsFilters() {
			return "", false
		}
		n := 1
		for i+n < len(pods) && s.Snap.Pod(pods[i+n]).Class == c {
			n++
		}
		key = strconv.AppendUint(key, c.ID, 36)
		key = append(key, '*')
		key = strconv.AppendInt(key, int64(n), 36)
		key = append(key, ' ')
		i += n
	}
	return string(key), true
}

// waitsForRelease says whether some pod set would not have its minimum now, counting only pods that need not wait.
func (g *GangState) waitsForRelease() bool {
	for i := range g.sets {
		st := &g.sets[i]
		if st.nominated > 0 && st.active-st.nominated < g.Sets[i].Min {
			return true
		}
	}
	return false
}

func (s *Session) placeAll(st *Statement, pods []cluster.PodID) *Diagnosis {
	for i := 0; i < len(pods); {
		p := s.Snap.Pod(pods[i])
		same := 1
		for i+same < len(pods) && s.Snap.Pod(pods[i+same]).Class == p.Class {
			same++
		}
		if v := s.checkPod(p); !v.Yes() {
			return &Diagnosis{Verdict: v, Class: s.Snap.Dims.Format(p.Class.Requests), Pods: p.Class}
		}
		if len(s.Snap.NodeOrder) == 0 {
			return &Diagnosis{Verdict: Verdict{Code: No, Reason: ReasonNodesEmpty}, Class: s.Snap.Dims.Format(p.Class.Requests), Pods: p.Class}
		}
		if r := s.ranking(p.Class); r.room < same { // as cheap a no as a yes
			return s.noRoom(p, i+r.room, len(pods))
		}
		for k := range same {
			if q := s.Snap.Pod(pods[i+k]); !s.placePod(st, q) {
				return s.noRoom(q, i+k, len(pods))
			}
		}
		i += same
	}
	return nil
}

// checkPod asks the pod gates, once per class and namespace.
func (s *Session) checkPod(p *cluster.Pod) Verdict {
	if len(s.points.podGates) == 0 {
		return Verdict{}
	}
	key := strconv.FormatUint(p.Class.ID, 36) + "/" + p.Class.Namespace
	if v, ok := s.gateMemo[key]; ok {
		return v
	}
	v := Verdict{}
	for _, gate := range s.points.podGates {
		if v = gate.it.CheckPod(p.Class, p.Namespace); !v.Yes() {
			v.Plugin = gate.name
			break
		}
	}
	s.gateMemo[key] = v
	return v
}

// placePod puts one pod on the best node that takes it: at once if it fits there now, else by nomination.
func (s *Session) placePod(st *Statement, p *cluster.Pod) bool {
	r := s.ranking(p.Class)
	var filters []named[NodeFilter]
	for _, f := range s.points.filters {
		if f.it.Wants(p.Class) {
			filters = append(filters, f)
		}
	}
	var aside []int32
	var kept []int64
	chosen := int32(-1)
	for chosen < 0 {
		i, ok := s.favourite(r, p)
		if !ok {
			break
		}
		if s.checkNode(filters, p, s.Snap.Node(s.Snap.NodeOrder[i])).Yes() {
			chosen = i
			break
		}
		aside, kept = append(aside, i), append(kept, r.setAside(i))
	}
	for k := len(aside) - 1; k >= 0; k-- {
		r.restore(aside[k], kept[k])
	}
	if chosen < 0 {
		return false
	}
	n := s.Snap.NodeOrder[chosen]
	if p.Class.Requests.Fits(s.Idle(n)) {
		st.Place(p, n)
	} else {
		st.Nominate(p, n)
	}
	return true
}

// favourite returns the best leaf for this very pod: the tournament's winner, or one of the few nodes the pod has a
// bonus on.
func (s *Session) favourite(r *ranking, p *cluster.Pod) (int32, bool) {
	best, ok := r.best()
	if !ok || len(s.points.bonuses) == 0 {
		return best, ok
	}
	type extra struct {
		leaf  int32
		score int64
	}
	var extras []extra
	for _, b := range s.points.bonuses {
		n, x := b.Bonus(p)
		if n == cluster.None || s.Snap.Node(n) == nil {
			continue
		}
		i := s.rank[n]
		if k := slices.IndexFunc(extras, func(e extra) bool { return e.leaf == i }); k >= 0 {
			extras[k].score += x
		} else if r.score[i] != unfit {
			extras = append(extras, extra{i, r.score[i] + x})
		}
	}
	top := r.score[best]
	for _, e := range extras {
		if e.score > top || e.score == top && e.leaf < best {
			best, top = e.leaf, e.score
		}
	}
	return best, true
}

func (s *Session) checkNode(filters []named[NodeFilter], p *cluster.Pod, n *cluster.Node) Verdict {
	for _, f := range filters {
		if v := f.it.CheckNode(p, n); !v.Yes() {
			v.Plugin = f.name
			return v
		}
	}
	return Verdict{}
}

// noRoom explains, as the session stands, why no node takes p, after have of need pods had found a place.
func (s *Session) noRoom(p *cluster.Pod, have, need int) *Diagnosis {
	d := &Diagnosis{
		Verdict: Verdict{Code: No, Reason: ReasonGangNoRoom, Have: int64(have), Need: int64(need)},
		Class:   s.Snap.Dims.Format(p.Class.Requests), Pods: p.Class, Nodes: len(s.Snap.NodeOrder),
	}
	at := map[Verdict]int{}
	for _, id := range s.Snap.NodeOrder {
		n := s.Snap.Node(id)
		v := s.whyNot(p, n)
		if v.Yes() {
			continue
		}
		i, ok := at[v]
		if !ok {
			i = len(d.Tally)
			at[v], d.Tally = i, append(d.Tally, Count{Verdict: v})
		}
		c := &d.Tally[i]
		if c.Nodes++; len(c.Named) < maxNamed {
			c.Named = append(c.Named, n.Name)
		}
	}
	slices.SortFunc(d.Tally, compareCounts)
	return d
}

// whyNot is one node's verdict on one pod, all checks in order.
func (s *Session) whyNot(p *cluster.Pod, n *cluster.Node) Verdict {
	if v := s.checkStatic(p.Class, n); !v.Yes() {
		return v
	}
	if dim, short := p.Class.Requests.Short(s.Later(n.ID)); short {
		return Verdict{Code: No, Reason: ReasonInsufficient, Dim: s.Snap.Dims.Name(dim)}
	}
	for _, f := range s.points.filters {
		if f.it.Wants(p.Class) {
			if v := f.it.CheckNode(p, n); !v.Yes() {
				v.Plugin = f.name
				return v
			}
		}
	}
	return Verdict{}
}
