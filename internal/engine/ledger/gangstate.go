package ledger

import (
	"cmp"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// GangState is a gang in a session: which pods of each set wait, and how many have room.
type GangState struct {
	*cluster.Gang
	// Leaf is what is charged for it: its queue or, of a queue that is no leaf any more, what stands for it; nil for neither.
	Leaf *QueueLedger
	// Lack says why it has no queue to ask in, if it has none.
	Lack      Lack
	sets      []setState      // of Sets, and at last of the stray pods: those that have room and whose set is not in the tree
	stray     *cluster.Pod    // a waiting pod asking for a set the gang does not have
	wake      cluster.Instant // the earliest end of a postponement, 0 for none
	postponed *cluster.Pod

	next    []cluster.PodID // cached answer of nextPods
	nextReq cluster.Resources
	nextOK  bool
	hadRoom bool // had active pods when the run began
	binding int  // how many of them were not bound yet
	victim  bool // held lists of the sets are built
}

// leaf is where a pod counts in g.sets: its set, or the last, which has no minimum and is in no tree.
func (g *GangState) leaf(p *cluster.Pod) int32 {
	if p.Set == cluster.None {
		return int32(len(g.Sets))
	}
	return p.Set
}

// setState is one set of the gang's tree.
type setState struct {
	pods      []cluster.PodID // pending pods of the snapshot, in pod order; leaves only
	head      int             // pods[:head] were placed or nominated by this run, always in that order
	active    int32           // pods with room, this run's placements and nominations included
	nominated int32           // the part of active that waits for a release
	binding   int32           // the part of active that was decided by an earlier run and is not bound yet
	alive     int32           // pods that run or may run, gated ones apart
	gated     int32
	unfit     int32           // the part of alive that waits and is larger than any node, where somebody has asked
	finished  int32           // pods that ended well and are on record
	need      int32           // of a leaf, how many with room satisfy it: its minimum, less who finished; see [cluster.Set.Need]
	held      []cluster.PodID // active pods of the snapshot on known nodes, in pod order; built on demand, see buildHeld
	live      int             // held[live:] were evicted by this run, the last one first
	satisfied int32           // inner sets: how many children are satisfied
	least     int32           // inner sets: how many pods of the children satisfy it besides; 0 for no more than these need
}

// statesAtOnce is how many states are made in one piece: most runs touch few gangs, and some ten thousand.
const statesAtOnce = 32

// Gang returns the session's state of a gang, building it on first use: O(its pods · log).
func (l *Ledger) Gang(id cluster.GangID) *GangState {
	if g := l.gangs[id]; g != nil {
		return g
	}
	gang := l.snap.Gang(id)
	if len(l.states) == 0 {
		l.states = make([]GangState, statesAtOnce)
	}
	if len(l.sets) <= len(gang.Sets) {
		l.sets = make([]setState, max(2*statesAtOnce, len(gang.Sets)+1))
	}
	g, n := &l.states[0], len(gang.Sets)+1
	*g = GangState{Gang: gang, sets: l.sets[:n:n]}
	l.states, l.sets = l.states[1:], l.sets[n:]
	_, g.Lack = l.queues.leafFor(gang)
	g.Leaf = l.queues.victimQueueFor(gang)
	for _, pid := range gang.Pods {
		p := l.snap.Pod(pid)
		if p.Finished() && p.Set != cluster.None {
			g.sets[p.Set].finished++
		}
		if !p.Ours || !p.Phase.Alive() {
			continue
		}
		if p.Set == cluster.None && !p.Phase.Active() {
			if g.stray == nil || p.Name < g.stray.Name {
				g.stray = p
			}
			continue
		}
		set := &g.sets[g.leaf(p)]
		switch p.Phase {
		case cluster.Gated:
			set.gated++
		case cluster.Pending:
			set.alive++
			if p.NotBefore.After(l.snap.Now) {
				if g.wake.IsZero() || p.NotBefore.Before(g.wake) {
					g.wake, g.postponed = p.NotBefore, p
				}
				continue
			}
			set.pods = append(set.pods, pid)
		default:
			set.alive++
			set.active++
			g.hadRoom = true
			if p.Phase == cluster.Binding {
				set.binding++
				g.binding++
			}
		}
	}
	for i := range g.Sets { // parents come first, so that all pods below one count in what it needs
		set := &g.sets[i]
		if set.need = g.Sets[i].Min; g.Sets[i].Leaf {
			set.need = g.Sets[i].Need(set.alive, set.finished)
		} else if g.Sets[i].Pods > 0 {
			set.least = g.Sets[i].NeedPods(
				g.sum(int32(i), func(st *setState) int32 { return st.alive }), g.sum(int32(i), func(st *setState) int32 { return st.finished }))
		}
		if len(set.pods) > 1 {
			l.sortPods(set.pods)
		}
	}
	l.recount(g, 0)
	l.gangs[id] = g
	return g
}

// sortPods puts pods into placement order: plugins, then age, then name as text, then UID.
func (l *Ledger) sortPods(ids []cluster.PodID) {
	pods := make([]*cluster.Pod, len(ids))
	for i, id := range ids {
		pods[i] = l.snap.Pod(id)
	}
	slices.SortFunc(pods, func(a, b *cluster.Pod) int {
		if c := l.hooks.ComparePods(a, b); c != 0 {
			return c
		}
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for i, p := range pods {
		ids[i] = p.ID
	}
}

// recount fills the satisfied counters of the subtree at set i.
func (l *Ledger) recount(g *GangState, i int32) {
	st := &g.sets[i]
	st.satisfied = 0
	for _, c := range g.Sets[i].Children {
		l.recount(g, c)
		if g.SetSatisfied(c) {
			st.satisfied++
		}
	}
}

// bump moves a leaf's count of active pods and carries changes of satisfaction up the tree: O(depth).
func (g *GangState) bump(leaf int32, by int32) {
	if int(leaf) == len(g.Sets) {
		g.sets[leaf].active += by
		g.nextOK = false
		return
	}
	var buf [8]bool
	was := buf[:0] // of the leaf and what is above it: that may depend on how many pods there are, and not on this leaf's minimum
	for i := leaf; i != cluster.None; i = g.Sets[i].Parent {
		was = append(was, g.SetSatisfied(i))
	}
	g.sets[leaf].active += by
	g.nextOK = false
	for k, i := 0, leaf; g.Sets[i].Parent != cluster.None; k++ {
		up := g.Sets[i].Parent
		switch now := g.SetSatisfied(i); {
		case was[k] && !now:
			g.sets[up].satisfied--
		case now && !was[k]:
			g.sets[up].satisfied++
		}
		i = up
	}
}

// sum adds up what the leaves below an inner set have. Of those below a child of it only the pods of leaves count that have their minimum: the others
// do not start.
func (g *GangState) sum(i int32, of func(*setState) int32) (n int32) {
	for _, c := range g.Sets[i].Children {
		if g.Sets[c].Leaf {
			n += of(&g.sets[c])
		} else {
			n += g.sumWhole(c, of)
		}
	}
	return n
}

func (g *GangState) sumWhole(i int32, of func(*setState) int32) (n int32) {
	for _, c := range g.Sets[i].Children {
		if !g.Sets[c].Leaf {
			n += g.sumWhole(c, of)
		} else if have := of(&g.sets[c]); have >= g.sets[c].need {
			n += have
		}
	}
	return n
}

// needsAll says whether some set above c would lack pods without the n that c has.
func (g *GangState) needsAll(c int32, n int) bool {
	nested := n // of these, what counts for sets that are further up than the next
	if !g.Sets[c].Leaf {
		nested = int(g.sumWhole(c, active))
		n = nested
	} else if !g.SetSatisfied(c) {
		nested = 0
	}
	for up := g.Sets[c].Parent; up != cluster.None; up, n = g.Sets[up].Parent, nested {
		if least := int(g.sets[up].least); least > 0 && n > 0 && int(g.sum(up, active))-n < least {
			return true
		}
	}
	return false
}

// lacks is how many pods an inner set lacks that any of the leaves below it may have, when those have so many.
func (g *GangState) lacks(i int32, pods func(*setState) int32) int32 {
	if i == cluster.None || g.sets[i].least == 0 {
		return 0
	}
	return max(0, g.sets[i].least-g.sum(i, pods))
}

// Spares says whether a pod set has a pod that no minimum needs, its own or that of a set above.
func (g *GangState) Spares(leaf int32) bool {
	if g.sets[leaf].active <= g.sets[leaf].need {
		return false
	}
	for up := g.Sets[leaf].Parent; up != cluster.None; up = g.Sets[up].Parent {
		if g.sets[up].least > 0 && g.sum(up, active) <= g.sets[up].least {
			return false
		}
	}
	return true
}

// lacksAbove says whether some set above a leaf lacks pods, when the leaves have so many.
func (g *GangState) lacksAbove(leaf int32, pods func(*setState) int32) bool {
	for up := g.Sets[leaf].Parent; up != cluster.None; up = g.Sets[up].Parent {
		if g.lacks(up, pods) > 0 {
			return true
		}
	}
	return false
}

// active is how many pods of a leaf have room.
func active(st *setState) int32 { return st.active }

// Satisfied says whether the gang has its minimum.
func (g *GangState) Satisfied() bool { return g.SetSatisfied(0) }

// SetSatisfied says whether one set has its minimum.
func (g *GangState) SetSatisfied(i int32) bool {
	return g.SetActive(i) >= g.sets[i].need && g.lacks(i, active) == 0
}

// SetActive returns how many members of a set have room: pods of a leaf, satisfied children of an inner set.
func (g *GangState) SetActive(i int32) int32 {
	if g.Sets[i].Leaf {
		return g.sets[i].active
	}
	return g.sets[i].satisfied
}

// CountReady returns how many pods of the gang hold room or have ended well, and how many wait for a release.
func (g *GangState) CountReady() (ready, waiting int) {
	for i := range g.sets {
		if i == len(g.Sets) || g.Sets[i].Leaf {
			ready += int(g.sets[i].active - g.sets[i].nominated + g.sets[i].finished)
			waiting += int(g.sets[i].nominated)
		}
	}
	return ready, waiting
}

// StrayActive returns how many pods have room whose set is not in the tree: they count for no minimum.
func (g *GangState) StrayActive() int32 { return g.sets[len(g.Sets)].active }

// Suffices says whether the gang has its minimum when one pod more of each of these sets has room.
func (g *GangState) Suffices(sets []int32) bool {
	more := map[*setState]int32{}
	for _, i := range sets {
		more[&g.sets[i]]++
	}
	return g.reaches(0, func(st *setState) int32 { return st.active + more[st] })
}

// SetNeed returns how many members a set needs, of those that SetActive counts: its minimum, and of a leaf less the members
// that have finished, see [cluster.Set.Need].
func (g *GangState) SetNeed(i int32) int32 { return g.sets[i].need }

// Elastic says where the gang stands against its minimum: -1 some pod set is below, 0 all exactly at it, 1 above.
func (g *GangState) Elastic() int {
	above := false
	for i := range g.Sets {
		if !g.Sets[i].Leaf {
			continue
		}
		if g.sets[i].active < g.sets[i].need || g.lacksAbove(int32(i), active) {
			return -1
		}
		above = above || g.Spares(int32(i))
	}
	if above {
		return 1
	}
	return 0
}

// Next returns the pods the gang would have placed now, in order, and what its queue would be charged: what is missing to its
// minimum, or, above it, one more pod; nothing when the pods that wait do not make up its minimum, others of its pods having been
// evicted by this run. The answer is cached until the gang changes.
//
// Of an inner set below its minimum, only as many unsatisfied children are collected as are missing.
func (l *Ledger) Next(g *GangState) ([]cluster.PodID, cluster.Resources) {
	if !g.nextOK {
		g.next = g.next[:0]
		if g.SetSatisfied(0) || g.SetReadyNow(0) {
			g.next = l.Collect(g, 0, g.next)
		}
		g.nextReq = g.nextReq[:0]
		for _, id := range g.next {
			g.nextReq.AddCapped(l.snap.ChargeWaiting(l.snap.Pod(id).Class))
		}
		g.nextOK = true
	}
	return g.next, g.nextReq
}

// Collect appends the pods of set i, and of the sets below it, that are placed next.
func (l *Ledger) Collect(g *GangState, i int32, out []cluster.PodID) []cluster.PodID {
	set, st := &g.Sets[i], &g.sets[i]
	if set.Leaf {
		want := max(1, int(st.need-st.active))
		waiting := st.pods[st.head:]
		return append(out, waiting[:min(want, len(waiting))]...)
	}
	missing, more := st.need-st.satisfied, g.lacks(i, active)
	if missing > 0 || more > 0 {
		from := len(out)
		for _, c := range l.SetOrder(g, i) {
			if missing <= 0 {
				break
			}
			if g.SetSatisfied(c) || !g.SetReadyNow(c) {
				continue
			}
			out = l.Collect(g, c, out)
			missing--
		}
		return l.fill(g, i, out, int(more)-(len(out)-from))
	}
	for _, c := range l.SetOrder(g, i) { // elastic: the first child that has something to add
		if !g.SetReadyNow(c) {
			continue
		}
		if more := l.Collect(g, c, out); len(more) > len(out) {
			return more
		}
	}
	return out
}

// fill appends more of the pods that wait in the children of set i, each's after what it needs for itself.
func (l *Ledger) fill(g *GangState, i int32, out []cluster.PodID, more int) []cluster.PodID {
	if more <= 0 {
		return out
	}
	for _, c := range l.SetOrder(g, i) {
		if !g.Sets[c].Leaf {
			if out, more = l.fillWhole(g, c, out, more); more <= 0 {
				break
			}
			continue
		}
		st := &g.sets[c]
		waiting := st.pods[st.head:]
		waiting = waiting[min(len(waiting), max(0, int(st.need-st.active))):] // before these it has been collected, or all of them wait for more
		n := min(more, len(waiting))
		out, more = append(out, waiting[:n]...), more-n
	}
	return out
}

// fillWhole is fill for the children of an inner set c: those that lack their minimum come whole, after those that have been collected for c; then what
// waits beyond. It returns how many are lacking still.
func (l *Ledger) fillWhole(g *GangState, c int32, out []cluster.PodID, more int) ([]cluster.PodID, int) {
	collected := max(0, g.sets[c].need-g.sets[c].satisfied)
	for _, k := range l.SetOrder(g, c) {
		if more <= 0 {
			return out, 0
		}
		if !g.Sets[k].Leaf || g.SetSatisfied(k) || !g.SetReadyNow(k) {
			continue
		}
		if collected--; collected < 0 {
			out = l.Collect(g, k, out)
			more -= int(g.sets[k].need)
		}
	}
	for _, k := range g.Sets[c].Children {
		if more <= 0 || !g.Sets[k].Leaf || !g.SetReadyNow(k) {
			continue
		}
		st := &g.sets[k]
		waiting := st.pods[st.head:]
		waiting = waiting[min(len(waiting), max(0, int(st.need-st.active))):]
		n := min(more, len(waiting))
		out, more = append(out, waiting[:n]...), more-n
	}
	return out, more
}

// SetOrder returns the children of set i in the order they are filled.
func (l *Ledger) SetOrder(g *GangState, i int32) []int32 {
	children := g.Sets[i].Children
	if len(children) < 2 {
		return children
	}
	out := slices.Clone(children)
	slices.SortFunc(out, func(a, b int32) int {
		if c := l.hooks.CompareSets(g, a, b); c != 0 {
			return c
		}
		return cmp.Compare(g.Sets[a].Name, g.Sets[b].Name)
	})
	return out
}

// Rooted says whether some of the gang has room already, so that the rest may have to be near it.
func (g *GangState) Rooted() bool { return g.hadRoom || g.Changed() }

// Changed says whether this run gave or took anything.
func (g *GangState) Changed() bool {
	for i := range g.sets {
		if g.sets[i].head > 0 || g.sets[i].nominated > 0 {
			return true
		}
	}
	return false
}

// below says whether set i is set top, or below it.
func (g *GangState) below(i, top int32) bool {
	for i != cluster.None && i != top {
		i = g.Sets[i].Parent
	}
	return i == top
}

// Nominated says whether this run nominated pods of the gang: they wait for room, and the rest waits with them.
func (g *GangState) Nominated() bool {
	for i := range g.sets {
		if g.sets[i].nominated > 0 {
			return true
		}
	}
	return false
}

// EachGang calls f for every gang, in ID order.
func (l *Ledger) EachGang(f func(*GangState)) {
	l.snap.EachGang(func(g *cluster.Gang) { f(l.Gang(g.ID)) })
}

// WaitsForRelease says whether some pod set would not have its minimum now, counting only pods that need not wait.
func (g *GangState) WaitsForRelease() bool {
	for i := range g.Sets {
		st := &g.sets[i]
		if st.nominated > 0 && (st.active-st.nominated < st.need || g.lacksAbove(int32(i), func(st *setState) int32 { return st.active - st.nominated })) {
			return true
		}
	}
	return false
}

// Succeeds says whether a pod that is made anew can take the place of p: somebody makes one, and it is of the same gang and set.
func (g *GangState) Succeeds(p *cluster.Pod) bool {
	return p.Recreated && p.Set != cluster.None && !g.Key.Remnant() && g.HasQueue()
}

// HasQueue says whether it has a queue to ask in.
func (g *GangState) HasQueue() bool { return g.Lack.Kind == LackNothing }

// Ready says whether enough of its pods exist to reach its minimum.
func (g *GangState) Ready() bool {
	return g.reaches(0, func(st *setState) int32 { return st.alive })
}

// SetReadyNow says whether set i has or can have its minimum without pods that are postponed.
func (g *GangState) SetReadyNow(i int32) bool {
	return g.reaches(i, func(st *setState) int32 { return st.active + int32(len(st.pods)-st.head) })
}

// Bound says whether it has its minimum without the pods that are still being bound, of which there are Binding.
func (g *GangState) Bound() bool {
	return g.reaches(0, func(st *setState) int32 { return st.active - st.binding })
}

// reaches says whether set i would have its minimum, if each leaf had so many pods.
func (g *GangState) reaches(i int32, pods func(*setState) int32) bool {
	if g.Sets[i].Leaf {
		return pods(&g.sets[i]) >= g.sets[i].need
	}
	n := int32(0)
	for _, c := range g.Sets[i].Children {
		if g.reaches(c, pods) {
			n++
		}
	}
	return n >= g.sets[i].need && g.lacks(i, pods) == 0
}

// Binding returns how many of its pods an earlier run decided on that are not bound yet.
func (g *GangState) Binding() int { return g.binding }

// HadRoom says whether pods of it had room when the run began.
func (g *GangState) HadRoom() bool { return g.hadRoom }

// Stray returns a waiting pod that asks for a set the gang does not have, the first by name; nil for none.
func (g *GangState) Stray() *cluster.Pod { return g.stray }

// Postponed returns the pod whose postponement ends first, and when; nil for none.
func (g *GangState) Postponed() (*cluster.Pod, cluster.Instant) { return g.postponed, g.wake }

// Count returns how many of its pods run, may run or ended well, and how many are gated.
func (g *GangState) Count() (have, gated int64) {
	for i := range g.Sets {
		have += int64(g.sets[i].alive) + int64(g.sets[i].finished)
		gated += int64(g.sets[i].gated)
	}
	return have, gated
}

// Lacking returns the first of its sets of pods that has fewer than its minimum, gated ones apart, and both numbers; "" for none, and for a
// gang that has one.
func (g *GangState) Lacking() (set string, have, need int64) {
	if len(g.Sets) <= 2 { // the root and one below it
		return "", 0, 0
	}
	for i := range g.Sets {
		if g.Sets[i].Leaf && g.sets[i].alive < g.sets[i].need {
			return g.Sets[i].Name, int64(g.sets[i].alive), int64(g.sets[i].need)
		}
	}
	return "", 0, 0
}

// SetAlive returns how many pods of a set run or may run, gated ones apart.
func (g *GangState) SetAlive(i int32) int32 { return g.sets[i].alive }

// SetWaiting returns the pods of a set that wait, in the order in which they are placed. It is the gang's own.
func (g *GangState) SetWaiting(i int32) []cluster.PodID { return g.sets[i].pods[g.sets[i].head:] }
