// Package placer finds where pods go: nodes for one, for gangs, and for those that have to be near each other.
//
//	TryGang ──► a choice of sets ──► constraint groups, each in a range of nodes ──► a ranking of its nodes per class ──► Statement
//	        └─ no: other choices, other orders, every way within bounds ──► Diagnosis: what each node says
//
// It writes into the caller's Statement, and asks the rules about gates and the plugins about nodes. What it remembers, for a run or (in
// a Cache) from run to run, never changes what it finds.
package placer

import (
	"context"
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/engine/recorder"
	"github.com/muster-scheduler/muster/internal/engine/rules"
)

// Placer finds where pods go: nodes for one, for gangs, and for those that have to be near each other. It remembers, for as long as a
// run lasts, what it has found out about nodes and classes; none of that ever changes what it finds.
type Placer struct {
	snap   *cluster.Snapshot
	ctx    context.Context
	ledger *ledger.Ledger
	rules  *rules.Rules
	rec    *recorder.Recorder
	points *policy.Plugins

	rank     []int32 // by node ID: position in Snap.NodeOrder
	rankings map[rankingKey]*ranking
	rated    int          // nodes that were, see Rated
	orders   []*nodeOrder // the first is all nodes by name
	nested   map[orderKey]*nodeOrder

	groups   map[cluster.GangID]*constraintGroup // of the pods that were asked about last, see constraintGroupsOf
	narrowed narrowed
	limited  map[cluster.GangID]bool        // see Limited
	failed   map[string]*recorder.Diagnosis // see failures
	failedOf int                            // Ledger.Freed(), as they were found
	tallies  map[tallyKey]policy.Tally
	leftOut  map[leftOutKey]policy.Tally
	gateMemo map[uint64]policy.Verdict
	statics  *Cache
	refused  []*policy.Verdict // room for checkStatics
	changed  []*cluster.Node   // room for maskOf
	masked   *cluster.Class
	mask     *mask // of masked, who is often asked about node by node
	said     sayings
}

// New returns the placer of a run, which gives up when ctx ends. O(nodes).
func New(ctx context.Context, cache *Cache, snap *cluster.Snapshot, l *ledger.Ledger, ru *rules.Rules, rec *recorder.Recorder, ps *policy.Plugins) *Placer {
	pl := &Placer{
		snap: snap, ctx: ctx, ledger: l, rules: ru, rec: rec, points: ps, statics: cache,
		rankings: map[rankingKey]*ranking{}, nested: map[orderKey]*nodeOrder{}, groups: map[cluster.GangID]*constraintGroup{}, limited: map[cluster.GangID]bool{}, failed: map[string]*recorder.Diagnosis{},
		tallies: map[tallyKey]policy.Tally{}, leftOut: map[leftOutKey]policy.Tally{}, gateMemo: map[uint64]policy.Verdict{},
	}
	pl.rank = ledger.Cleared(&cache.rank, snap.MaxNodeID())
	for i, id := range snap.NodeOrder {
		pl.rank[id] = int32(i)
	}
	cache.open(snap)
	return pl
}

// aborted says whether the caller gave up on the run.
func (pl *Placer) aborted() bool { return pl.ctx.Err() != nil }

// TryGang places the pods that Next names in the statement. On success it returns nil, and every one of them has been
// placed or nominated; a gang that could not have its minimum without waiting for a release has been nominated whole. On
// failure the statement is as it was, and the diagnosis says why.
//
// It costs O(log nodes) per pod, and for a gang that fails one look at every node; a gang of the same shape as one that
// failed since room last came back costs nothing. A gang whose pods differ, or about which filters have a say, is tried in
// other orders, and then in every way up to arrangeSteps steps, one for each node tried; a No beyond that says that it is partial.
//
// Of a gang that can do without some of its sets, other sets are tried when those that come first have no place.
func (pl *Placer) TryGang(st *ledger.Statement, g *ledger.GangState) *recorder.Diagnosis {
	tr := trial{Placer: pl, st: st}
	return tr.try(g)
}

// mode says what an attempt to place pods is for.
type mode uint8

const (
	asItStands mode = iota // the real thing: who fits now is placed, who will fit is nominated, and who does not is told why
	onRelease              // a what-if: nobody is placed before all is released
	elsewhere              // a what-if: the pods are evicted ones, who go elsewhere or stay
)

// trial is one attempt to place pods: where it is written, and in which mode.
type trial struct {
	*Placer
	st   *ledger.Statement
	mode mode
}

// try places the pods that the gang would have placed now, in its first choice of sets or in another.
func (tr *trial) try(g *ledger.GangState) *recorder.Diagnosis {
	pods, request := tr.ledger.Next(g)
	switch {
	case len(pods) == 0: // what it had when the action began was evicted since
		return &recorder.Diagnosis{Verdict: tr.rules.Admit(g)}
	case !tr.choice(g):
		return tr.tryPods(g, pods, request)
	}
	pods, request = slices.Clone(pods), request.Clone()
	d := tr.tryPods(g, pods, request)
	if d != nil && d.Verdict.Code != policy.Wait {
		d = tr.others(g, request, d)
	}
	return d
}

// tryPods places the pods of a gang, which ask for request.
func (tr *trial) tryPods(g *ledger.GangState, pods []cluster.PodID, request cluster.Resources) *recorder.Diagnosis {
	start, promised := tr.st.Mark(), tr.ledger.Holds(g)
	held := tr.st.OpenHolds(g, pods)
	if v := tr.rules.CheckGates(g, request); !v.Yes() {
		tr.st.RollbackTo(start)
		return &recorder.Diagnosis{Verdict: v}
	}
	now := tr.rules.CheckGatesNow(g, request)
	key, memo := tr.shape(g, pods)
	memo = memo && !held && tr.mode != onRelease && start == 0 // within a statement, room may come back when that is rolled back
	if memo {
		if d := tr.failures()[key]; d != nil {
			return d
		}
	}
	mark := tr.st.Mark()
	d, final := tr.placeGang(g, pods)
	if d != nil {
		tr.st.RollbackTo(mark)
		switch {
		case final || !d.Verdict.Reason.Room():
		case tr.Constrained(g):
			d = tr.rearrangedGroups(g, pods, d)
		case !tr.single(pods):
			d = tr.rearranged(pods, d)
		}
	}
	if d != nil {
		if memo {
			tr.failures()[key] = d
		}
		tr.st.RollbackTo(start)
		return d
	}
	if g.WaitsForRelease() {
		tr.st.NominateAll(mark)
	}
	delete(tr.limited, g.ID)
	switch {
	case now.Yes() || !tr.st.BindsSince(mark):
	case promised: // it waits on, or its victims would have gone for nothing
		tr.st.NominateAll(mark)
	default: // there is room, and it must not be kept from others for a queue that may not have it yet
		tr.st.RollbackTo(start)
		tr.limited[g.ID] = true
		return &recorder.Diagnosis{Verdict: now}
	}
	return nil
}

// Limited says whether there is room for the gang, which its queue may have when others have gone.
func (pl *Placer) Limited(g *ledger.GangState) bool { return pl.limited[g.ID] }

// failures are the diagnoses of gangs that failed since room last came back, by shape.
func (pl *Placer) failures() map[string]*recorder.Diagnosis {
	if pl.failedOf != pl.ledger.Freed() {
		clear(pl.failed)
		pl.failedOf = pl.ledger.Freed()
	}
	return pl.failed
}

// Promise is TryGang for a gang that waits for what the statement releases: all its pods are nominated, none is placed.
func (pl *Placer) Promise(st *ledger.Statement, g *ledger.GangState) *recorder.Diagnosis {
	tr := trial{Placer: pl, st: st, mode: onRelease}
	return tr.try(g)
}

// PromisePod nominates one waiting pod on its best node, and says whether there was one. Gates are the caller's.
func (pl *Placer) PromisePod(st *ledger.Statement, p *cluster.Pod) bool {
	if pl.nobody(p) != "" {
		pl.rec.Step()
		return false
	}
	tr := trial{Placer: pl, st: st, mode: onRelease}
	return tr.placePod(p, pl.everywhere())
}

// PromiseOn nominates one waiting pod on a node, if it may run there and fits.
func (pl *Placer) PromiseOn(st *ledger.Statement, p *cluster.Pod, n cluster.NodeID) bool {
	if !pl.Allows(p.Class, n) || !pl.ledger.FitsLater(p.Class, n) || !pl.filtersAllow(p, n) {
		return false
	}
	st.Nominate(p, n)
	return true
}

// Allows says whether pods of the class may run on the node as far as the two alone decide.
func (pl *Placer) Allows(c *cluster.Class, n cluster.NodeID) bool { return pl.staticMask(c).has(n) }

// CheckPods says whether each of the pods could run anywhere at all.
func (pl *Placer) CheckPods(pods []cluster.PodID) policy.Verdict {
	var last *cluster.Class
	for _, id := range pods {
		p := pl.snap.Pod(id)
		if p.Class == last {
			continue
		}
		last = p.Class
		if v := pl.checkPod(p); !v.Yes() {
			return v
		}
	}
	return policy.Verdict{}
}

// Filtered says whether filters have a say about any of the pods, so that more room need not mean a better chance.
func (pl *Placer) Filtered(pods []cluster.PodID) bool {
	var last *cluster.Class
	for _, id := range pods {
		if p := pl.snap.Pod(id); p.Class != last {
			if last = p.Class; pl.wanted(p) {
				return true
			}
		}
	}
	return false
}

// wanted says whether some filter has a say about the pod, and others of its class and gang.
func (pl *Placer) wanted(p *cluster.Pod) bool {
	return slices.ContainsFunc(pl.points.Filters, func(f policy.Named[policy.NodeFilter]) bool { return policy.Asks(f.It, p) })
}

// Exact says whether it does not matter on which of the nodes that take them these pods are: they are alike, and no filter
// has a say.
func (pl *Placer) Exact(pods []cluster.PodID) bool {
	p := pl.snap.Pod(pods[0])
	return !pl.mixed(pods) && !pl.wanted(p) && p.Class.Share.None() // devices and reservations' slots can be dealt out badly
}

// Room says whether the nodes, as the session stands, have places enough for each kind of pod among these pods of g, filters
// apart, each kind for itself, and each set that must be together for itself. Without it, nothing can be placed; exact says
// that with it everything can.
func (pl *Placer) Room(g *ledger.GangState, pods []cluster.PodID) (enough, exact bool) {
	if pl.Constrained(g) {
		return pl.quietly(g, pods) == nil, false
	}
	exact = pl.Exact(pods)
	for i := 0; i < len(pods); {
		c := pl.snap.Pod(pods[i]).Class
		n := 1
		for i+n < len(pods) && pl.snap.Pod(pods[i+n]).Class == c {
			n++
		}
		if pl.ranking(c).room < n {
			return false, exact
		}
		i += n
	}
	return true, exact
}

// mixed says whether the pods are not all of one class.
func (pl *Placer) mixed(pods []cluster.PodID) bool {
	for _, id := range pods {
		if pl.snap.Pod(id).Class != pl.snap.Pod(pods[0]).Class {
			return true
		}
	}
	return false
}

// shape describes the pods by class and number, and what keeps them together. It can stand for them when nothing but room
// decides.
func (pl *Placer) shape(g *ledger.GangState, pods []cluster.PodID) (string, bool) {
	if pl.snap.HasAntiAffinity() || pl.Constrained(g) && g.Rooted() { // it goes where its members are
		return "", false
	}
	for _, id := range pods {
		if pl.snap.Pod(id).Class.NeedsFilters() {
			return "", false
		}
	}
	var key []byte
	if pl.points.FaceFilters[g.Key.Face] { // which look at face and queue
		key = append(append(key, g.Queue...), 0)
	}
	if pl.Constrained(g) {
		key = append(key, g.Shape()...)
	}
	return string(pl.appendKinds(key, g, pods, byID)), true
}

// AppendKinds appends what the pods of g ask for to a key that answers rest under: classes and numbers, and of a gang whose pods have to
// be near each other, which sets. It says nothing that another Store would call otherwise.
func (pl *Placer) AppendKinds(key []byte, g *ledger.GangState, pods []cluster.PodID) []byte {
	return pl.appendKinds(key, g, pods, byKey)
}

// className is how a key names a class: by what every Store calls it, or, shorter, by its number in this one. It is no function, through
// which the caller's room for the key would escape to the heap.
type className uint8

const (
	byKey className = iota
	byID
)

// append appends the name of a class to a key.
func (by className) append(key []byte, c *cluster.Class) []byte {
	if by == byID {
		return strconv.AppendUint(key, c.ID, 36)
	}
	return append(key, c.Key...)
}

// appendKinds is AppendKinds with classes named in one of the two ways.
func (pl *Placer) appendKinds(key []byte, g *ledger.GangState, pods []cluster.PodID, by className) []byte {
	constrained := pl.Constrained(g)
	var last *cluster.Class
	for i := 0; i < len(pods); {
		c, set := pl.snap.Pod(pods[i]).Class, pl.snap.Pod(pods[i]).Set
		n := 1
		for i+n < len(pods) && pl.snap.Pod(pods[i+n]).Class == c && (!constrained || pl.snap.Pod(pods[i+n]).Set == set) {
			n++
		}
		key = append(key, '/')
		if constrained {
			key = append(strconv.AppendInt(key, int64(set), 36), ':')
		}
		if c != last { // of many sets of one class it is said once
			key, last = by.append(key, c), c
		}
		key = strconv.AppendInt(append(key, '*'), int64(n), 36)
		i += n
	}
	return key
}

// placeAll places the pods, in their order, within a range.
func (tr *trial) placeAll(pods []cluster.PodID, in nodeRange) *recorder.Diagnosis {
	for i := 0; i < len(pods); {
		same, d := tr.run(pods, i, in)
		if d != nil {
			return d
		}
		for k := range same {
			if q := tr.snap.Pod(pods[i+k]); !tr.placePod(q, in) {
				return tr.noRoom(q, i+k, len(pods), in)
			}
		}
		i += same
	}
	return nil
}

// run returns how many pods from the i-th on are alike, or why they cannot all be placed in the range.
func (tr *trial) run(pods []cluster.PodID, i int, in nodeRange) (int, *recorder.Diagnosis) {
	p := tr.snap.Pod(pods[i])
	same := 1
	for i+same < len(pods) && tr.snap.Pod(pods[i+same]).Class == p.Class {
		same++
	}
	if v := tr.checkPod(p); !v.Yes() {
		return 0, &recorder.Diagnosis{Verdict: v, Class: tr.snap.Dims.Format(tr.snap.ChargeWaiting(p.Class)), Pods: p.Class}
	}
	if len(tr.snap.NodeOrder) == 0 {
		return 0, &recorder.Diagnosis{Verdict: policy.Verdict{Code: policy.No, Reason: policy.ReasonNodesEmpty}, Class: tr.snap.Dims.Format(tr.snap.ChargeWaiting(p.Class)), Pods: p.Class}
	}
	if room := tr.rankingIn(p.Class, in.order).in(in); room < same { // as cheap a no as a yes
		return 0, tr.noRoom(p, i+room, len(pods), in)
	}
	if tr.mode != elsewhere && tr.nobody(p) != "" { // who is moved may stay where he is
		tr.rec.Step()
		return 0, tr.noRoom(p, i, len(pods), in)
	}
	return same, nil
}

// checkPod asks the pod gates, once per class, which has a namespace where that matters.
func (pl *Placer) checkPod(p *cluster.Pod) policy.Verdict {
	if len(pl.points.PodGates) == 0 {
		return policy.Verdict{}
	}
	if v, ok := pl.gateMemo[p.Class.ID]; ok {
		return v
	}
	v := policy.FirstNo(pl.points.PodGates, func(gate policy.PodGate) policy.Verdict { return gate.CheckPod(p.Class, p.Namespace) })
	pl.gateMemo[p.Class.ID] = v
	return v
}

// placePod puts one pod on the best node of a range that takes it: at once if it fits there now, else by nomination.
func (tr *trial) placePod(p *cluster.Pod, in nodeRange) bool {
	if tr.mode == elsewhere && in.has(p.Node) && tr.mayStay(p) {
		tr.st.Spare(p)
		return true
	}
	r := tr.rankingFor(p, in.order)
	best := func() (int32, bool) { return tr.favourite(r, p, in) }
	i, ok := tr.choose(r, p, in, best, func(n int) {
		if n%refusalsPerStep == 0 || tr.mode == asItStands { // nobody has it for nothing
			tr.rec.Step()
		}
	})
	return ok && tr.put(p, in.order.nodes[i])
}

// choose returns the first leaf that best names whose node the filters allow the pod: those before it are set aside meanwhile, and
// refused is told how many there have been.
func (pl *Placer) choose(r *ranking, p *cluster.Pod, in nodeRange, best func() (int32, bool), refused func(n int)) (int32, bool) {
	aside, kept, none := pl.refusedLeaves(r, p, in)
	if none {
		return 0, false
	}
	known := len(aside)
	i, ok := best()
	for ; ok && !pl.filtersAllow(p, in.order.nodes[i]); i, ok = best() {
		refused(len(aside) - known)
		aside, kept = append(aside, i), append(kept, r.setAside(i))
	}
	r.restore(aside, kept)
	return i, ok
}

// RefusedAll says whether some filter refuses each of the pods, which are alike, every node, whoever of those that are there goes; see
// [NodeRefusals].
func (pl *Placer) RefusedAll(pods []cluster.PodID) bool {
	p := pl.snap.Pod(pods[0])
	return !pl.mixed(pods) && slices.ContainsFunc(pl.points.Refusals, func(f policy.Named[policy.NodeRefusals]) bool {
		return f.It.Wants(p.Class) && f.It.RefusesAll(p)
	})
}

// refusalsPerStep is how many nodes that a filter refuses in a what-if count as one step. Elsewhere, each is one.
const refusalsPerStep = 4

// put gives a pod room on a node that takes it, and says whether it may.
func (tr *trial) put(p *cluster.Pod, n cluster.NodeID) bool {
	switch {
	case tr.mode == elsewhere && n == p.Node && tr.mayStay(p):
		tr.st.Spare(p)
	case tr.mode == elsewhere:
		if !p.Recreated {
			return false
		}
		tr.st.Move(p, n)
	case tr.mode != onRelease && tr.ledger.FitsIdle(p.Class, n) && tr.readyNow(p, n):
		tr.st.Place(p, n)
	default:
		tr.st.Nominate(p, n)
	}
	return true
}

// mayStay says whether the room that an evicted pod had is still there.
func (pl *Placer) mayStay(p *cluster.Pod) bool {
	if !pl.ledger.StillFits(p) {
		return false
	}
	n := pl.snap.Node(p.Node)
	for _, f := range pl.points.Filters {
		if !f.It.Wants(p.Class) {
			continue
		}
		stay, part := f.It.(policy.NodeStay)
		if part && !stay.CheckStay(p, n) || !part && !f.It.CheckNode(p, n).Yes() {
			return false
		}
	}
	return true
}

// Awaits says whether the room that is held for the gang may be of use once those have gone who had to go for it: filters have a
// say about its pods, and who is leaving may be what they mind.
func (pl *Placer) Awaits(g *ledger.GangState) bool {
	for h, on := range pl.ledger.HeldFor(g) {
		if p := pl.snap.Pod(h.Waits); p != nil && !(pl.wanted(p) && pl.Allows(p.Class, on)) {
			return false
		}
	}
	leaving := false
	pl.snap.EachGang(func(v *cluster.Gang) {
		if leaving || !slices.ContainsFunc(v.Displacements, func(d cluster.Displacement) bool { return d.By == g.Key }) {
			return
		}
		leaving = slices.ContainsFunc(v.Pods, func(id cluster.PodID) bool { return pl.snap.Pod(id).Phase == cluster.Releasing })
	})
	return leaving
}

// readyNow says whether nothing of what the filters counted on is still being released.
func (pl *Placer) readyNow(p *cluster.Pod, n cluster.NodeID) bool {
	for _, r := range pl.points.Ready {
		if r.Wants(p.Class) && !r.CheckReady(p, pl.snap.Node(n)).Yes() {
			return false
		}
	}
	return true
}
