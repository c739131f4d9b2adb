package solver_test

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// question is one gang's at its turn, as plain numbers, and the law about it in the plainest code that does. What is free, what
// queues hold, what gangs have by set and when they have their minimum is reckoned here from the pods of the snapshot and from
// where this run put them. What is shared with what is judged, and why that is harmless:
//
//   - View.NodeOf and Ledger.Fate: what this run decided before.
//   - Ledger.Next: which pods come next, and what they ask for. The order of the pods of a set is not the law's; that what
//     is decided gives the gang its minimum is (wrong).
//   - Ledger.LivePods, in TestPrefix and TestHarm only: the order of a gang's pods, as CompareGangs and CompareVictimQueues are that of
//     gangs and queues, is what these take for granted. No question of what is legal, or whether there is a way, asks for it.
//   - Rules.FairShare: a number; package fairshare has an oracle of its own for it.
//   - Placer.Promise, once per question: whether room is idle by now, so that nobody need go.
//   - Placer.Filtered and Exact, to sort results into kinds. The filter company is the test's own.
//   - cluster.Resources: sums and comparisons of vectors.
type question struct {
	cause    policy.EvictionCause
	now      cluster.Instant
	free     []cluster.Resources
	nodes    []*cluster.Node
	ports    []int // by node: pods that have the port open
	friends  []int // by node: pods that others like the company of
	queues   map[string]*purse
	g        *lawGang // the beneficiary
	wants    []*cluster.Pod
	request  cluster.Resources
	others   []*lawGang // who holds something, in no meaningful order
	moveFree bool
}

// purse is a queue.
type purse struct {
	name, parent             string
	quota, limit, fair       cluster.Resources
	held, fixed, stuck       cluster.Resources
	reclaimSafe, preemptSafe cluster.Maybe[time.Duration]
}

// lawGang is a gang, as the law sees it.
type lawGang struct {
	state       *ledger.GangState
	name        string
	queue       string
	priority    int32
	preemptible bool
	started     cluster.Instant
	since       cluster.Instant // what it has done since is lost with it
	least       int
	active      int // with what this run gave it
	sets        []cluster.Set
	has         []int          // the same by set
	seats       []seat         // where they are
	body        []*cluster.Pod // those of them that can be evicted
	placed      bool
	units       []unit
}

// seat is a pod's place.
type seat struct {
	pod  *cluster.Pod
	node cluster.NodeID
}

// unit is what a gang gives in one piece.
type unit struct {
	pods []*cluster.Pod
	core bool
	set  bool // all of a set, which has no more than its minimum
}

var shared = []int{cluster.CPU, cluster.RAM, cluster.GPU}

// at is where a pod is once this run's decisions so far have been carried out and who leaves has left; None for nowhere. Who
// is stuck leaves nothing.
func at(view *policy.View, p *cluster.Pod) cluster.NodeID {
	if p.Phase == cluster.Releasing {
		return cluster.None
	}
	return view.NodeOf(p)
}

func ask(s *engine.Session, view *policy.View, g *ledger.GangState, cause policy.EvictionCause) *question {
	q := &question{cause: cause, now: s.Snap.Now, queues: map[string]*purse{}, moveFree: s.Settings().MovedAreFree}
	nodes := map[cluster.NodeID]int{}
	for i, id := range s.Snap.NodeOrder {
		nodes[id] = i
		q.free = append(q.free, s.Snap.Node(id).Allocatable.Clone())
		q.nodes = append(q.nodes, s.Snap.Node(id))
		q.ports, q.friends = append(q.ports, 0), append(q.friends, 0)
	}
	for _, id := range s.Snap.QueueOrder {
		l := s.Snap.Queue(id)
		q.queues[l.Name] = &purse{
			name: l.Name, parent: l.Parent, quota: l.Quota, limit: l.Limit, fair: s.Rules.FairShare(l.ID),
			reclaimSafe: l.ReclaimMinRuntime, preemptSafe: l.PreemptMinRuntime,
		}
	}
	s.Snap.EachPod(func(p *cluster.Pod) {
		n := at(view, p)
		if n == cluster.None {
			return
		}
		q.free[nodes[n]].Sub(p.Class.Requests)
		q.ports[nodes[n]] += len(p.Class.HostPorts)
		if p.Node == n {
			q.friends[nodes[n]] += len(p.Labels)
		}
		v := s.Snap.Gang(p.Gang)
		for _, l := range q.ways(v.Queue) {
			if l.stuck.Add(p.Class.Requests); p.Phase != cluster.StuckReleasing {
				l.stuck.Sub(p.Class.Requests)
				l.held.Add(p.Class.Requests)
			}
			if !v.Preemptible {
				l.fixed.Add(p.Class.Requests)
			}
		}
	})
	s.Ledger.EachGang(func(v *ledger.GangState) {
		it := &lawGang{
			state: v, name: v.Key.String(), queue: v.Queue, priority: v.Priority, preemptible: v.Preemptible, started: v.LastStart,
			since: v.LastStart, sets: v.Sets, has: make([]int, len(v.Sets)),
		}
		if it.since.IsZero() {
			it.since = v.Created
		}
		for _, id := range v.Pods {
			p := s.Snap.Pod(id)
			fate := s.Ledger.Fate(p)
			it.placed = it.placed || fate == ledger.Bind || fate == ledger.Nominate || fate == ledger.Move
			if at(view, p) == cluster.None || p.Phase == cluster.StuckReleasing {
				continue
			}
			it.seats = append(it.seats, seat{p, at(view, p)})
			it.has[p.Set]++
			it.active++
			if fate == "" {
				it.body = append(it.body, p)
			}
		}
		if len(v.Sets) == 2 {
			it.least = int(v.Sets[1].Min)
		}
		live := s.Ledger.LivePods(v)
		rest := it.active
		for len(live) > 0 && rest > it.least {
			it.units = append(it.units, unit{pods: live[:1]})
			live, rest = live[1:], rest-1
		}
		if len(live) > 0 {
			it.units = append(it.units, unit{pods: live, core: true})
		}
		if v == g {
			q.g = it
		} else if len(it.body) > 0 {
			q.others = append(q.others, it)
		}
	})
	ids, request := s.Ledger.Next(g)
	q.request = request.Clone()
	for _, id := range ids {
		q.wants = append(q.wants, s.Snap.Pod(id))
	}
	return q
}

// enough says whether set i of the gang has its minimum with so many pods by set.
func (v *lawGang) enough(i int32, has []int) bool {
	set := &v.sets[i]
	if set.Leaf {
		return has[i] >= int(set.Min)
	}
	n := int32(0)
	for _, c := range set.Children {
		if v.enough(c, has) {
			n++
		}
	}
	return n >= set.Min
}

// open says whether it is open which of its pods come next: it does not need all its sets, or has what it needs.
func (v *lawGang) open() bool {
	return len(v.sets) > 2 && (int(v.sets[0].Min) < len(v.sets)-1 || v.enough(0, v.has))
}

// without is how many pods it has by set when these are gone.
func (v *lawGang) without(gone ...*cluster.Pod) []int {
	has := slices.Clone(v.has)
	for _, p := range gone {
		has[p.Set]--
	}
	return has
}

// ways returns a queue and all above it, leaf first.
func (q *question) ways(name string) []*purse {
	var out []*purse
	for p := q.queues[name]; p != nil; p = q.queues[p.parent] {
		out = append(out, p)
	}
	return out
}

// fork returns the two queues at which the ways from the top part.
func (q *question) fork(a, b string) (*purse, *purse) {
	l, r := q.ways(a), q.ways(b)
	i, j := len(l)-1, len(r)-1
	for i > 0 && j > 0 && l[i] == r[j] {
		i, j = i-1, j-1
	}
	return l[i], r[j]
}

func quota(p *purse, d int) int64 { return p.quota.At(d) }
func limit(p *purse, d int) int64 {
	if d < len(p.limit) {
		return p.limit[d]
	}
	return cluster.Unlimited
}

// growsTo is what a queue may hold without owing anything: its fair share, but at least its quota and at most its limit.
func growsTo(p *purse, d int) int64 {
	if quota(p, d) == cluster.Unlimited {
		return limit(p, d)
	}
	x := max(quota(p, d), p.fair.At(d))
	if l := limit(p, d); l != cluster.Unlimited {
		x = min(x, l)
	}
	return x
}

// given is what queues have lost so far, by name.
type given map[string]cluster.Resources

func (g given) add(q *question, v *lawGang, u unit) {
	for _, p := range q.ways(v.queue) {
		r := g[p.name]
		for _, pod := range u.pods {
			r.Add(pod.Class.Requests)
		}
		g[p.name] = r
	}
}

func (q *question) held(p *purse, lost given, d int) int64 { return p.held.At(d) - lost[p.name].At(d) }

// entitled says whether the gang may disturb others at all by the right.
func (q *question) entitled() bool {
	switch q.cause {
	case policy.Consolidation:
		return q.g.preemptible
	case policy.Reclaim:
		leaf := q.queues[q.g.queue]
		for _, d := range shared {
			if leaf.held.At(d)+q.request.At(d) > leaf.fair.At(d) {
				return false
			}
		}
		if !q.g.preemptible {
			for _, p := range q.ways(q.g.queue) {
				for _, d := range shared {
					if quota(p, d) != cluster.Unlimited && p.fixed.At(d)+q.request.At(d) > quota(p, d) {
						return false
					}
				}
			}
		}
	}
	return true
}

// safeUntil is when the gang's minimum is fair game by the right; 0 for now.
func (q *question) safeUntil(v *lawGang) cluster.Instant {
	if v.started.IsZero() {
		return cluster.Instant{}
	}
	least := time.Duration(0)
	stated := func(ps []*purse, read func(*purse) cluster.Maybe[time.Duration]) time.Duration {
		for _, p := range ps {
			if m := read(p); m.Set {
				return m.Value
			}
		}
		return 0
	}
	switch q.cause {
	case policy.Preempt:
		least = stated(q.ways(v.queue), func(p *purse) cluster.Maybe[time.Duration] { return p.preemptSafe })
	case policy.Reclaim:
		_, theirs := q.fork(q.g.queue, v.queue)
		least = stated(q.ways(theirs.name), func(p *purse) cluster.Maybe[time.Duration] { return p.reclaimSafe })
	}
	if !v.started.Add(least).After(q.now) {
		return cluster.Instant{}
	}
	return v.started.Add(least)
}

// mayTouch is the table of legal victims, for a gang as a whole.
func (q *question) mayTouch(v *lawGang) bool {
	switch {
	case !v.preemptible:
		return false
	case q.cause == policy.Preempt && (v.queue != q.g.queue || v.priority >= q.g.priority):
		return false
	case q.cause == policy.Reclaim && v.queue == q.g.queue:
		return false
	case q.cause == policy.Consolidation:
		if v.priority > q.g.priority {
			return false
		}
		for _, p := range v.body {
			if !p.Recreated {
				return false
			}
		}
	}
	if !q.safeUntil(v).IsZero() {
		for _, u := range v.nexts(0, false) { // order: whether there is one
			if !u.core && !u.set {
				return true
			}
		}
		return false
	}
	return true
}

// mayAsk says whether anything of the gang's queue may be asked for after some are lost: who would exceed its quota asks whoever
// holds more than it may grow to; who would not asks all but those who hold less than their quota of something that is asked
// for, and more of nothing.
func (q *question) mayAsk(v *lawGang, lost given) bool {
	mine, theirs := q.fork(q.g.queue, v.queue)
	if q.exceedsQuota(mine, lost) {
		return q.aboveGrowth(theirs, lost)
	}
	above, below := false, false
	for _, d := range shared {
		if x := q.held(theirs, lost, d); q.request.At(d) > 0 && quota(theirs, d) != cluster.Unlimited {
			above = above || x > quota(theirs, d)
			below = below || x < quota(theirs, d)
		}
	}
	return above || !below
}

func (q *question) exceedsQuota(mine *purse, lost given) bool {
	for _, d := range shared {
		if quota(mine, d) != cluster.Unlimited && q.held(mine, lost, d)+q.request.At(d) > quota(mine, d) {
			return true
		}
	}
	return false
}

func (q *question) aboveGrowth(p *purse, lost given) bool {
	for _, d := range shared {
		if x := growsTo(p, d); x != cluster.Unlimited && q.held(p, lost, d) > x {
			return true
		}
	}
	return false
}

// mayTake is the rule about one more unit after some are lost.
func (q *question) mayTake(lost given, v *lawGang, u unit) bool {
	if u.core && v.placed || (u.core || u.set) && !q.safeUntil(v).IsZero() {
		return false
	}
	if q.cause != policy.Reclaim {
		return true
	}
	if !q.mayAsk(v, lost) && !q.mayAsk(v, nil) { // who may be asked at first may be asked throughout
		return false
	}
	mine, theirs := q.fork(q.g.queue, v.queue)
	if !q.aboveGrowth(theirs, lost) {
		if q.exceedsQuota(mine, lost) {
			return false
		}
		aboveQuota := false
		for _, d := range shared {
			aboveQuota = aboveQuota || quota(theirs, d) != cluster.Unlimited && q.held(theirs, lost, d) > quota(theirs, d)
		}
		if !aboveQuota {
			return false
		}
	}
	var size cluster.Resources
	for _, p := range u.pods {
		size.Add(p.Class.Requests)
	}
	for _, d := range shared {
		if q.request.At(d) == 0 && size.At(d) == 0 {
			continue
		}
		after := q.held(mine, lost, d) + q.request.At(d)
		if after <= mine.fair.At(d) || theirs.fair.At(d) == 0 {
			continue
		}
		if mine.fair.At(d) == 0 {
			return false
		}
		left := max(0, q.held(theirs, lost, d)-size.At(d))
		if big.NewRat(after, mine.fair.At(d)).Cmp(big.NewRat(left, theirs.fair.At(d))) >= 0 {
			return false
		}
	}
	return true
}

// admitted says whether the gang's queue, and those above, may take the request once so much is lost.
func (q *question) admitted(lost given) bool {
	for _, p := range q.ways(q.g.queue) {
		for d := range q.request {
			x := q.request.At(d)
			if d == cluster.Slots || x == 0 {
				continue
			}
			if l := limit(p, d); l != cluster.Unlimited && q.held(p, lost, d)+p.stuck.At(d)+x > l {
				return false
			}
			if !q.g.preemptible && slices.Contains(shared, d) && quota(p, d) != cluster.Unlimited && p.fixed.At(d)+x > quota(p, d) {
				return false
			}
		}
	}
	return true
}

// scopes are those that have to be in one zone of which the pod is one: its gang, its set, or both.
func (v *lawGang) scopes(p *cluster.Pod) (out []int32) {
	for _, i := range []int32{0, p.Set} {
		if v.sets[i].Near.Required != "" {
			out = append(out, i)
		}
	}
	return out
}

// fits says whether the pods have room all together once others are gone. It tries every placement.
func (q *question) fits(pods, gone []*cluster.Pod) bool {
	free, ports, friends := make([]cluster.Resources, len(q.free)), slices.Clone(q.ports), slices.Clone(q.friends)
	at := map[cluster.NodeID]int{}
	for i, n := range q.nodes {
		at[n.ID] = i
		free[i] = q.free[i].Clone()
	}
	for _, p := range gone {
		free[at[p.Node]].Add(p.Class.Requests)
		ports[at[p.Node]] -= len(p.Class.HostPorts)
		friends[at[p.Node]] -= len(p.Labels)
	}
	zones := map[int32]map[string]int{} // by scope of the beneficiary's, how many are where
	for i := range q.g.sets {
		zones[int32(i)] = map[string]int{}
	}
	put := func(p *cluster.Pod, zone string, by int) (apart bool) {
		if p.Gang != q.g.state.ID {
			return false
		}
		for _, i := range q.g.scopes(p) {
			if zones[i][zone] += by; zones[i][zone] == 0 {
				delete(zones[i], zone)
			}
			apart = apart || len(zones[i]) > 1
		}
		return apart
	}
	for _, x := range q.g.seats {
		put(x.pod, q.nodes[at[x.node]].Labels["zone"], 1)
	}
	var place func(k int) bool
	place = func(k int) bool {
		if k == len(pods) {
			return true
		}
		p := pods[k]
		for i, n := range q.nodes {
			if zone := p.Class.NodeSelector["zone"]; zone != "" && zone != n.Labels["zone"] {
				continue
			}
			if !p.Class.Requests.Fits(free[i]) || len(p.Class.HostPorts) > 0 && ports[i] > 0 || p.Class.PodAffinity != nil && friends[i] == 0 {
				continue
			}
			free[i].Sub(p.Class.Requests)
			ports[i] += len(p.Class.HostPorts)
			ok := !put(p, n.Labels["zone"], 1) && place(k+1)
			free[i].Add(p.Class.Requests)
			ports[i] -= len(p.Class.HostPorts)
			put(p, n.Labels["zone"], -1)
			if ok {
				return true
			}
		}
		return false
	}
	return place(0)
}

// choice is a set of units: how many each gang gives, in the order of others.
type choice []int

func (q *question) pods(c choice) []*cluster.Pod {
	var out []*cluster.Pod
	for i, n := range c {
		for _, u := range q.others[i].units[:n] {
			out = append(out, u.pods...)
		}
	}
	return out
}

func (q *question) lost(c choice) given {
	out := given{}
	for i, n := range c {
		for _, u := range q.others[i].units[:n] {
			out.add(q, q.others[i], u)
		}
	}
	return out
}

// suffices says whether the gang may start, and can, when the units are killed.
func (q *question) suffices(c choice) bool {
	return q.admitted(q.lost(c)) && q.fits(q.wants, q.pods(c))
}

// gone is a set of pods that the law allows to take: of each gang, in the order of others, bits of its pods. Which of its pods
// above its minimum a gang gives is open; the others go together.
type gone []uint64

func (s gone) key() string { return fmt.Sprint([]uint64(s)) }

func (q *question) of(s gone) (ls []loss) {
	for i, v := range q.others {
		for k, p := range v.body {
			if s[i]>>k&1 == 1 {
				ls = append(ls, loss{v, unit{pods: []*cluster.Pod{p}}})
			}
		}
	}
	return ls
}

func (q *question) lose(ls []loss) (given, []*cluster.Pod) {
	lost, pods := given{}, []*cluster.Pod(nil)
	for _, l := range ls {
		lost.add(q, l.v, l.u)
		pods = append(pods, l.u.pods...)
	}
	return lost, pods
}

// enough says whether the gang may start, and can, when these are killed.
func (q *question) enough(s gone) bool {
	lost, pods := q.lose(q.of(s))
	return q.admitted(lost) && q.fits(q.wants, pods)
}

// reachable lists every set of pods that the law allows to take, one unit after another in some order, smaller sets first:
// of units with a pod on the node at, or of all if it is None. Pods that are alike stand for each other.
func (q *question) reachable(at cluster.NodeID) []gone {
	all := q.spread(true, func(_ *lawGang, u unit) bool {
		return at == cluster.None || slices.ContainsFunc(u.pods, func(p *cluster.Pod) bool { return p.Node == at })
	})
	slices.SortStableFunc(all, func(a, b gone) int { return cmp.Or(cmp.Compare(a.size(), b.size()), slices.Compare(a, b)) })
	return all
}

// attainable says whether exactly these pods, by UID, can be taken one unit after another in some order.
func (q *question) attainable(killed map[string]bool) bool {
	n := 0
	for _, dies := range killed { // order: a count
		if dies {
			n++
		}
	}
	return slices.ContainsFunc(q.spread(false, func(_ *lawGang, u unit) bool {
		return !slices.ContainsFunc(u.pods, func(p *cluster.Pod) bool { return !killed[p.UID] })
	}), func(s gone) bool { return s.size() == n })
}

// spread lists every set that can be reached by units for which may holds. alike lets pods that are alike stand for each other.
func (q *question) spread(alike bool, may func(*lawGang, unit) bool) []gone {
	touch := make([]bool, len(q.others))
	for i, v := range q.others {
		touch[i] = q.mayTouch(v)
	}
	start := make(gone, len(q.others))
	seen := map[string]bool{start.key(): true}
	all := []gone{start}
	for k := 0; k < len(all); k++ {
		lost, _ := q.lose(q.of(all[k]))
		for i, v := range q.others {
			if !touch[i] {
				continue
			}
			for bits, u := range v.nexts(all[k][i], alike) { // order: each leads to a set of its own
				if !may(v, u) || !q.mayTake(lost, v, u) {
					continue
				}
				next := slices.Clone(all[k])
				next[i] |= bits
				if !seen[next.key()] {
					seen[next.key()] = true
					all = append(all, next)
				}
			}
		}
	}
	return all
}

func (s gone) size() (n int) {
	for _, x := range s {
		n += bits.OnesCount64(x)
	}
	return n
}

// nexts lists what the gang could give when some of it is gone already: one pod of a set that has more than its minimum, all of a
// set that the gang can do without, or, when there is nothing of the kind, all the rest. See spread for alike.
func (v *lawGang) nexts(out uint64, alike bool) map[uint64]unit {
	var gone []*cluster.Pod
	rest, all := unit{core: true}, uint64(0)
	sets := map[int32]unit{}
	bits := map[int32]uint64{}
	for k, p := range v.body {
		if out>>k&1 == 1 {
			gone = append(gone, p)
			continue
		}
		rest.pods, all = append(rest.pods, p), all|1<<k
		sets[p.Set] = unit{pods: append(sets[p.Set].pods, p)}
		bits[p.Set] |= 1 << k
	}
	if all == 0 {
		return nil
	}
	has := v.without(gone...)
	units := map[uint64]unit{}
	type kind struct {
		node cluster.NodeID
		of   *cluster.Class
		port int
		set  int32
	}
	seen := map[kind]bool{}
	for k, p := range v.body {
		like := kind{p.Node, p.Class, len(p.Labels), p.Set}
		if all>>k&1 == 1 && v.enough(0, has) && has[p.Set] > int(v.sets[p.Set].Min) && (!alike || !seen[like]) {
			seen[like] = true
			units[1<<k] = unit{pods: v.body[k : k+1]}
		}
	}
	for set, u := range sets { // order: each on its own
		if has[set] <= int(v.sets[set].Min) && v.enough(0, v.without(append(slices.Clone(gone), u.pods...)...)) {
			u.set = true
			units[bits[set]] = u
		}
	}
	if len(units) == 0 {
		units[all] = rest
	}
	return units
}
