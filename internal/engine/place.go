package engine

import (
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
	case !g.QueueVerdict.Yes():
		return g.QueueVerdict
	case g.GaveUp:
		return Verdict{Code: NoForever, Reason: ReasonGaveUp, Object: g.Key.String()}
	case !g.ready(0):
		have, gated := int64(0), int64(0)
		for i := range g.Sets {
			have += int64(g.sets[i].alive) + int64(g.sets[i].finished)
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
		return g.sets[i].active-g.sets[i].binding >= g.sets[i].need
	}
	n := int32(0)
	for _, c := range g.Sets[i].Children {
		if g.bound(c) {
			n++
		}
	}
	return n >= g.sets[i].need
}

// readyNow is ready with postponed pods left out.
func (g *GangState) readyNow(i int32) bool {
	st := &g.sets[i]
	if g.Sets[i].Leaf {
		return st.active+int32(len(st.pods)-st.head) >= st.need
	}
	n := int32(0)
	for _, c := range g.Sets[i].Children {
		if g.readyNow(c) {
			n++
		}
	}
	return n >= g.sets[i].need
}

// TryGang places the pods that Next names in the statement. On success it returns nil, and every one of them has been
// placed or nominated; a gang that could not have its minimum without waiting for a release has been nominated whole. On
// failure the statement is as it was, and the diagnosis says why.
//
// It costs O(log nodes) per pod, and for a gang that fails one look at every node; a gang of the same shape as one that
// failed since room last came back costs nothing. A gang whose pods differ, or about which filters have a say, is tried in
// other orders, and then in every way up to arrangeLooks looks at nodes; a No beyond that says that it is partial.
//
// Of a gang that can do without some of its sets, other sets are tried when those that come first have no place.
func (s *Session) TryGang(st *Statement, g *GangState) *Diagnosis {
	pods, request := s.Next(g)
	switch {
	case len(pods) == 0: // what it had when the action began was evicted since
		return &Diagnosis{Verdict: s.Admit(g)}
	case !s.choice(g):
		return s.tryPods(st, g, pods, request)
	}
	pods, request = slices.Clone(pods), request.Clone()
	d := s.tryPods(st, g, pods, request)
	if d != nil && d.Verdict.Code != Wait {
		d = s.others(st, g, request, d)
	}
	return d
}

// tryPods places the pods of a gang, which ask for request.
func (s *Session) tryPods(st *Statement, g *GangState, pods []cluster.PodID, request cluster.Resources) *Diagnosis {
	start, promised := st.Mark(), s.Holds(g)
	held := s.openHolds(st, g, pods)
	if v := s.CheckGates(g, request); !v.Yes() {
		st.RollbackTo(start)
		return &Diagnosis{Verdict: v}
	}
	now := s.checkGates(g, request, true)
	key, memo := s.shape(g, pods)
	memo = memo && !held && !s.promise && start == 0 // within a statement, room may come back when that is rolled back
	if memo {
		if d := s.failed[key]; d != nil {
			return d
		}
	}
	mark := st.Mark()
	d := s.placeGang(st, g, pods)
	if d != nil {
		st.RollbackTo(mark)
		switch {
		case d.final || !d.Verdict.Reason.Room():
		case s.Constrained(g):
			d = s.rearrangedCohorts(st, g, pods, d)
		case !s.single(pods):
			d = s.rearranged(st, pods, d)
		}
	}
	if d != nil {
		if memo {
			s.failed[key] = d
		}
		st.RollbackTo(start)
		return d
	}
	if g.waitsForRelease() {
		st.NominateAll(mark)
	}
	switch g.limited = false; {
	case now.Yes() || !st.bindsSince(mark):
	case promised: // it waits on, or its victims would have gone for nothing
		st.NominateAll(mark)
	default: // there is room, and it must not be kept from others for a queue that may not have it yet
		st.RollbackTo(start)
		g.limited = true
		return &Diagnosis{Verdict: now}
	}
	return nil
}

// CheckGates says whether the gang's queue, and the queues above it, may take request more as the session stands, once all
// that is leaving has gone, what is stuck excepted.
func (s *Session) CheckGates(g *GangState, request cluster.Resources) Verdict {
	return s.checkGates(g, request, false)
}

// checkGates is CheckGates, or says whether they may take it now, beside all that is leaving: what is evicted by this run
// included, since nobody has gone before he is gone.
func (s *Session) checkGates(g *GangState, request cluster.Resources, now bool) Verdict {
	for _, gate := range s.points.queueGates {
		if v := gate.it.CheckQueue(g, request, now); !v.Yes() {
			v.Plugin = gate.name
			return v
		}
	}
	return Verdict{}
}

// Promise is TryGang for a gang that waits for what the statement releases: all its pods are nominated, none is placed.
func (s *Session) Promise(st *Statement, g *GangState) *Diagnosis {
	s.promise = true
	d := s.TryGang(st, g)
	s.promise = false
	return d
}

// PromisePod nominates one waiting pod on its best node, and says whether there was one. Gates are the caller's.
func (s *Session) PromisePod(st *Statement, p *cluster.Pod) bool {
	if s.nobody(p) != "" {
		s.Step()
		return false
	}
	s.promise = true
	ok := s.placePod(st, p, s.everywhere())
	s.promise = false
	return ok
}

// PromiseOn nominates one waiting pod on a node, if it may run there and fits.
func (s *Session) PromiseOn(st *Statement, p *cluster.Pod, n cluster.NodeID) bool {
	if !s.Allows(p.Class, n) || !s.FitsLater(p.Class, n) || !s.filtersAllow(p, n) {
		return false
	}
	st.Nominate(p, n)
	return true
}

// Allows says whether pods of the class may run on the node as far as the two alone decide.
func (s *Session) Allows(c *cluster.Class, n cluster.NodeID) bool { return s.staticMask(c).has(n) }

// CheckPods says whether each of the pods could run anywhere at all.
func (s *Session) CheckPods(pods []cluster.PodID) Verdict {
	var last *cluster.Class
	for _, id := range pods {
		p := s.Snap.Pod(id)
		if p.Class == last {
			continue
		}
		last = p.Class
		if v := s.checkPod(p); !v.Yes() {
			return v
		}
	}
	return Verdict{}
}

// TotalLater sums what the nodes that take pods have, once all releases have happened: O(nodes) when something changed.
// Callers must not write to it.
func (s *Session) TotalLater() cluster.Resources {
	if s.total != nil && s.totalOf == len(s.touched) {
		return s.total
	}
	total := make(cluster.Resources, s.dims)
	for _, id := range s.Snap.NodeOrder {
		if s.Snap.Node(id).Problem == "" {
			for d, x := range s.Later(id) {
				total[d] += max(0, x)
			}
			total[cluster.GPU] += s.partsLater(id)
		}
	}
	s.total, s.totalOf = total, len(s.touched)
	return total
}

// FairShare is what a queue is entitled to now; nil when nobody says.
func (s *Session) FairShare(q cluster.QueueID) cluster.Resources {
	if s.points.shares == nil {
		return nil
	}
	return s.points.shares.FairShare(q).Clone()
}

// Filtered says whether filters have a say about any of the pods, so that more room need not mean a better chance.
func (s *Session) Filtered(pods []cluster.PodID) bool {
	var last *cluster.Class
	for _, id := range pods {
		if c := s.Snap.Pod(id).Class; c != last {
			if last = c; s.wanted(c) {
				return true
			}
		}
	}
	return false
}

// wanted says whether some filter has a say about pods of the class.
func (s *Session) wanted(c *cluster.Class) bool {
	for _, f := range s.points.filters {
		if f.it.Wants(c) {
			return true
		}
	}
	return false
}

// Exact says whether it does not matter on which of the nodes that take them these pods are: they are alike, and no filter
// has a say.
func (s *Session) Exact(pods []cluster.PodID) bool {
	c := s.Snap.Pod(pods[0]).Class
	return !s.mixed(pods) && !s.wanted(c) && c.Share.None() // devices and reservations' slots can be dealt out badly
}

// Room says whether the nodes, as the session stands, have places enough for each kind of pod among these pods of g, filters
// apart, each kind for itself, and each set that must be together for itself. Without it, nothing can be placed; exact says
// that with it everything can.
func (s *Session) Room(g *GangState, pods []cluster.PodID) (enough, exact bool) {
	if s.Constrained(g) {
		return s.quietly(g, pods) == nil, false
	}
	exact = s.Exact(pods)
	for i := 0; i < len(pods); {
		c := s.Snap.Pod(pods[i]).Class
		n := 1
		for i+n < len(pods) && s.Snap.Pod(pods[i+n]).Class == c {
			n++
		}
		if s.ranking(c).room < n {
			return false, exact
		}
		i += n
	}
	return true, exact
}

// mixed says whether the pods are not all of one class.
func (s *Session) mixed(pods []cluster.PodID) bool {
	for _, id := range pods {
		if s.Snap.Pod(id).Class != s.Snap.Pod(pods[0]).Class {
			return true
		}
	}
	return false
}

// shape describes the pods by class and number, and what keeps them together. It can stand for them when nothing but room
// decides.
func (s *Session) shape(g *GangState, pods []cluster.PodID) (string, bool) {
	if s.Snap.HasAntiAffinity() {
		return "", false
	}
	var key []byte
	constrained := s.Constrained(g)
	if constrained {
		if s.Rooted(g) { // it goes where its members are
			return "", false
		}
		key = append(key, g.Shape()...)
	}
	for i := 0; i < len(pods); {
		c := s.Snap.Pod(pods[i]).Class
		if c.NeedsFilters() {
			return "", false
		}
		n := 1
		set := s.Snap.Pod(pods[i]).Set
		for i+n < len(pods) && s.Snap.Pod(pods[i+n]).Class == c && (!constrained || s.Snap.Pod(pods[i+n]).Set == set) {
			n++
		}
		if constrained {
			key = append(strconv.AppendInt(key, int64(set), 36), ':')
		}
		key = strconv.AppendUint(key, c.ID, 36)
		key = append(key, '*')
		key = strconv.AppendInt(key, int64(n), 36)
		key = append(key, ' ')
		i += n
	}
	return string(key), true
}

// AppendKinds appends what the pods of g ask for to a key that answers rest under: classes and numbers, and of a gang whose pods have to
// be near each other, which sets. It says nothing that another Store would call otherwise.
func (s *Session) AppendKinds(key []byte, g *GangState, pods []cluster.PodID) []byte {
	constrained := s.Constrained(g)
	var last *cluster.Class
	for i := 0; i < len(pods); {
		c, set := s.Snap.Pod(pods[i]).Class, s.Snap.Pod(pods[i]).Set
		n := 1
		for i+n < len(pods) && s.Snap.Pod(pods[i+n]).Class == c && (!constrained || s.Snap.Pod(pods[i+n]).Set == set) {
			n++
		}
		key = append(key, '/')
		if constrained {
			key = append(strconv.AppendInt(key, int64(set), 36), ':')
		}
		if c != last { // of many sets of one class it is said once
			key, last = append(key, c.Key...), c
		}
		key = strconv.AppendInt(append(key, '*'), int64(n), 36)
		i += n
	}
	return key
}

// waitsForRelease says whether some pod set would not have its minimum now, counting only pods that need not wait.
func (g *GangState) waitsForRelease() bool {
	for i := range g.Sets {
		st := &g.sets[i]
		if st.nominated > 0 && st.active-st.nominated < st.need {
			return true
		}
	}
	return false
}

// placeAll places the pods, in their order, within a region.
func (s *Session) placeAll(st *Statement, pods []cluster.PodID, in Region) *Diagnosis {
	for i := 0; i < len(pods); {
		same, d := s.run(pods, i, in)
		if d != nil {
			return d
		}
		for k := range same {
			if q := s.Snap.Pod(pods[i+k]); !s.placePod(st, q, in) {
				return s.noRoom(q, i+k, len(pods), in)
			}
		}
		i += same
	}
	return nil
}

// run returns how many pods from the i-th on are alike, or why they cannot all be placed in the region.
func (s *Session) run(pods []cluster.PodID, i int, in Region) (int, *Diagnosis) {
	p := s.Snap.Pod(pods[i])
	same := 1
	for i+same < len(pods) && s.Snap.Pod(pods[i+same]).Class == p.Class {
		same++
	}
	if v := s.checkPod(p); !v.Yes() {
		return 0, &Diagnosis{Verdict: v, Class: s.Snap.Dims.Format(s.Snap.ChargeWaiting(p.Class)), Pods: p.Class}
	}
	if len(s.Snap.NodeOrder) == 0 {
		return 0, &Diagnosis{Verdict: Verdict{Code: No, Reason: ReasonNodesEmpty}, Class: s.Snap.Dims.Format(s.Snap.ChargeWaiting(p.Class)), Pods: p.Class}
	}
	if room := s.rankingIn(p.Class, in.v).in(in); room < same { // as cheap a no as a yes
		return 0, s.noRoom(p, i+room, len(pods), in)
	}
	if !s.moving && s.nobody(p) != "" { // who is moved may stay where he is
		s.Step()
		return 0, s.noRoom(p, i, len(pods), in)
	}
	return same, nil
}

// checkPod asks the pod gates, once per class, which has a namespace where that matters.
func (s *Session) checkPod(p *cluster.Pod) Verdict {
	if len(s.points.podGates) == 0 {
		return Verdict{}
	}
	if v, ok := s.gateMemo[p.Class.ID]; ok {
		return v
	}
	v := Verdict{}
	for _, gate := range s.points.podGates {
		if v = gate.it.CheckPod(p.Class, p.Namespace); !v.Yes() {
			v.Plugin = gate.name
			break
		}
	}
	s.gateMemo[p.Class.ID] = v
	return v
}

// placePod puts one pod on the best node of a region that takes it: at once if it fits there now, else by nomination.
func (s *Session) placePod(st *Statement, p *cluster.Pod, in Region) bool {
	if s.moving && in.has(p.Node) && s.mayStay(p) {
		st.Spare(p)
		return true
	}
	r := s.rankingFor(p, in.v)
	var filters []named[NodeFilter]
	for _, f := range s.points.filters {
		if f.it.Wants(p.Class) {
			filters = append(filters, f)
		}
	}
	aside, kept, none := s.refusedLeaves(r, p, in)
	if none {
		return false
	}
	known := len(aside)
	chosen := int32(-1)
	for chosen < 0 {
		i, ok := s.favourite(r, p, in)
		if !ok {
			break
		}
		if s.checkNode(filters, p, s.Snap.Node(in.v.nodes[i])).Yes() {
			chosen = i
			break
		}
		if n := len(aside) - known; n%refusalsPerStep == 0 || !s.promise && !s.moving { // nobody has it for nothing
			s.Step()
		}
		aside, kept = append(aside, i), append(kept, r.setAside(i))
	}
	r.restore(aside, kept)
	if chosen < 0 {
		return false
	}
	return s.put(st, p, in.v.nodes[chosen])
}

// refusedLeaves sets aside the leaves of a region of which filters say, without being asked about each, that they refuse p, and returns
// them with their scores. If one of them refuses all that fit, it sets none aside and says so. It costs a look at each node.
func (s *Session) refusedLeaves(r *ranking, p *cluster.Pod, in Region) (leaves []int32, scores []int64, none bool) {
	for _, f := range s.points.refusals {
		if !f.it.Wants(p.Class) || r.winner == nil { // nothing fits
			continue
		}
		refused, _ := f.it.Refuses(p)
		if !slices.ContainsFunc(refused, func(nodes uint64) bool { return nodes != 0 }) {
			continue
		}
		of, open := mask{bits: refused}, false
		for i := in.lo; i < in.hi && !open; i++ {
			open = r.score[i] != unfit && !of.has(in.v.nodes[i])
		}
		if !open {
			r.restore(leaves, scores)
			return nil, nil, true
		}
		for i := in.lo; i < in.hi; i++ {
			if r.score[i] != unfit && of.has(in.v.nodes[i]) {
				leaves, scores = append(leaves, i), append(scores, r.score[i])
				r.score[i] = unfit
			}
		}
		r.replayed(leaves)
	}
	return leaves, scores, false
}

// RefusedAll says whether some filter refuses each of the pods, which are alike, every node, whoever of those that are there goes; see
// [NodeRefusals].
func (s *Session) RefusedAll(pods []cluster.PodID) bool {
	p := s.Snap.Pod(pods[0])
	return !s.mixed(pods) && slices.ContainsFunc(s.points.refusals, func(f named[NodeRefusals]) bool {
		return f.it.Wants(p.Class) && f.it.RefusesAll(p)
	})
}

// refusalsPerStep is how many nodes that a filter refuses in a what-if count as one step. Elsewhere, each is one.
const refusalsPerStep = 4

// put gives a pod room on a node that takes it, and says whether it may.
func (s *Session) put(st *Statement, p *cluster.Pod, n cluster.NodeID) bool {
	switch {
	case s.moving && n == p.Node && s.mayStay(p):
		st.Spare(p)
	case s.moving:
		if !p.Recreated {
			return false
		}
		st.Move(p, n)
	case !s.promise && s.FitsIdle(p.Class, n) && s.readyNow(p, n):
		st.Place(p, n)
	default:
		st.Nominate(p, n)
	}
	return true
}

// favourite returns the best leaf for this very pod: the tournament's winner, or one of the few nodes the pod has a
// bonus on.
func (s *Session) favourite(r *ranking, p *cluster.Pod, in Region) (int32, bool) {
	best, ok := r.best(in)
	kept := s.holdFor(p)
	if !ok || len(s.points.bonuses) == 0 && kept < 0 {
		return best, ok
	}
	type extra struct {
		leaf  int32
		score int64
	}
	var extras []extra
	for _, b := range s.points.bonuses {
		n, x := b.Bonus(p)
		if n == cluster.None || s.Snap.Node(n) == nil || !in.has(n) {
			continue
		}
		i := in.v.at[n]
		if k := slices.IndexFunc(extras, func(e extra) bool { return e.leaf == i }); k >= 0 {
			extras[k].score += x
		} else if r.score[i] != unfit {
			extras = append(extras, extra{i, r.score[i] + x})
		}
	}
	if kept >= 0 && in.has(s.holds[kept].node) {
		// Where its room is held: before all others once the room is there; until then, before others that are not free either.
		n, x := s.holds[kept].node, heldBonus
		if !s.FitsIdle(p.Class, n) {
			x = waitingBonus
		}
		if i := in.v.at[n]; r.score[i] != unfit {
			extras = append(extras, extra{i, r.score[i] + x})
		}
	}
	top := r.score[best]
	for _, e := range extras {
		if e.score > top || e.score == top && in.v.rank[e.leaf] < in.v.rank[best] {
			best, top = e.leaf, e.score
		}
	}
	return best, true
}

// The bonus of a node whose room is held for the pod: above every other score, and, while the room is being released,
// below that of room that is there.
const (
	heldBonus    = 10_000_000 * ScorePoint
	waitingBonus = 500 * ScorePoint
)

// readyNow says whether nothing of what the filters counted on is still being released.
func (s *Session) readyNow(p *cluster.Pod, n cluster.NodeID) bool {
	for _, r := range s.points.ready {
		if r.Wants(p.Class) && !r.CheckReady(p, s.Snap.Node(n)).Yes() {
			return false
		}
	}
	return true
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
