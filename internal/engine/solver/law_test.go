package solver_test

import (
	"cmp"
	"fmt"
	"math/big"
	"math/bits"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// question is one gang's at its turn, as plain numbers, and the law about it in the plainest code that does. Of the engine
// it takes the numbers as they stand (what is free, what queues hold and are entitled to, which pods a gang has, in order)
// and none of the rules. What it shares with what it judges, and why that is harmless:
//
//   - Session.Next, Later, LivePods, SetActive, Fate, the ledgers of queues: numbers before anything is tried, which the auditor
//     of package enginetest checks against the snapshot.
//   - Session.FairShare: a number; package fairshare has an oracle of its own for it.
//   - Session.CompareGangs and CompareGivers, in TestPrefix and TestHarm only: the order is what these take for granted. No
//     question of what is legal, or whether there is a way, asks for it.
//   - Session.Promise, once per question: whether room is idle by now, so that nobody need go.
//   - Session.Filtered and Exact, to sort results into kinds. The filter company is the test's own.
//   - cluster.Resources: sums and comparisons of vectors.
type question struct {
	right    engine.Right
	now      int64
	free     []cluster.Resources
	nodes    []*cluster.Node
	ports    []int // by node: pods that have the port open
	friends  []int // by node: pods that others like the company of
	queues   map[string]*purse
	g        *giver // the beneficiary
	wants    []*cluster.Pod
	request  cluster.Resources
	others   []*giver // who holds something, in no meaningful order
	moveFree bool
}

// purse is a queue.
type purse struct {
	name, parent             string
	quota, limit, fair       cluster.Resources
	held, fixed              cluster.Resources
	reclaimSafe, preemptSafe cluster.Maybe
}

// giver is a gang.
type giver struct {
	state       *engine.GangState
	name        string
	queue       string
	priority    int32
	preemptible bool
	started     int64
	since       int64 // what it has done since is lost with it
	least       int
	active      int // with what this run gave it
	placed      bool
	units       []unit
}

// unit is what a gang gives in one piece.
type unit struct {
	pods []*cluster.Pod
	core bool
}

var shared = []int{cluster.CPU, cluster.RAM, cluster.GPU}

func ask(s *engine.Session, view *engine.View, g *engine.GangState, right engine.Right) *question {
	q := &question{right: right, now: s.Snap.Now, queues: map[string]*purse{}, moveFree: s.Settings().MovedAreFree}
	at := map[cluster.NodeID]int{}
	for i, id := range s.Snap.NodeOrder {
		at[id] = i
		q.free = append(q.free, s.Later(id).Clone())
		q.nodes = append(q.nodes, s.Snap.Node(id))
		q.ports, q.friends = append(q.ports, 0), append(q.friends, 0)
	}
	s.EachGang(func(v *engine.GangState) {
		for l := v.Leaf; l != nil; l = l.Parent {
			q.queues[l.Name] = &purse{
				name: l.Name, parent: l.Queue.Parent, quota: l.Quota, limit: l.Limit, fair: s.FairShare(l.ID),
				held: l.Allocated.Clone(), fixed: l.AllocatedNonPreemptible.Clone(), reclaimSafe: l.ReclaimMinRuntime, preemptSafe: l.PreemptMinRuntime,
			}
		}
		it := &giver{
			state: v, name: v.Key.String(), queue: v.Leaf.Name, priority: v.Priority, preemptible: v.Preemptible, started: v.LastStart,
			least: int(v.Sets[len(v.Sets)-1].Min), active: int(v.SetActive(int32(len(v.Sets) - 1))), since: v.LastStart,
		}
		if it.since == 0 {
			it.since = v.Created
		}
		live := s.LivePods(v)
		for _, id := range v.Pods {
			p := s.Snap.Pod(id)
			fate := s.Fate(p)
			it.placed = it.placed || fate == engine.Bind || fate == engine.Nominate || fate == engine.Move
			if n := view.NodeOf(p); n != cluster.None {
				q.ports[at[n]] += len(p.Class.HostPorts)
				if p.Node == n {
					q.friends[at[n]] += len(p.Labels)
				}
			}
		}
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
		} else if len(it.units) > 0 {
			q.others = append(q.others, it)
		}
	})
	ids, request := s.Next(g)
	q.request = request.Clone()
	for _, id := range ids {
		q.wants = append(q.wants, s.Snap.Pod(id))
	}
	return q
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

func (g given) add(q *question, v *giver, u unit) {
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
	switch q.right {
	case engine.Consolidation:
		return q.g.preemptible
	case engine.Reclaim:
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
func (q *question) safeUntil(v *giver) int64 {
	if v.started == 0 {
		return 0
	}
	least := int64(0)
	stated := func(ps []*purse, read func(*purse) cluster.Maybe) int64 {
		for _, p := range ps {
			if m := read(p); m.Set {
				return m.Value
			}
		}
		return 0
	}
	switch q.right {
	case engine.Preempt:
		least = stated(q.ways(v.queue), func(p *purse) cluster.Maybe { return p.preemptSafe })
	case engine.Reclaim:
		_, theirs := q.fork(q.g.queue, v.queue)
		least = stated(q.ways(theirs.name), func(p *purse) cluster.Maybe { return p.reclaimSafe })
	}
	if v.started+least <= q.now {
		return 0
	}
	return v.started + least
}

// mayTouch is the table of legal victims, for a gang as a whole.
func (q *question) mayTouch(v *giver) bool {
	switch {
	case !v.preemptible:
		return false
	case q.right == engine.Preempt && (v.queue != q.g.queue || v.priority >= q.g.priority):
		return false
	case q.right == engine.Reclaim && v.queue == q.g.queue:
		return false
	case q.right == engine.Consolidation:
		if v.priority > q.g.priority {
			return false
		}
		for _, u := range v.units {
			for _, p := range u.pods {
				if !p.Recreated {
					return false
				}
			}
		}
	}
	if q.safeUntil(v) != 0 && v.active <= v.least {
		return false
	}
	return true
}

// mayAsk says whether anything of the gang's queue may be asked for after some are lost: who would exceed its quota asks whoever
// holds more than it may grow to; who would not asks all but those who hold less than their quota of something that is asked
// for, and more of nothing.
func (q *question) mayAsk(v *giver, lost given) bool {
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
func (q *question) mayTake(lost given, v *giver, u unit) bool {
	if u.core && (v.placed || q.safeUntil(v) != 0) {
		return false
	}
	if q.right != engine.Reclaim {
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
			if l := limit(p, d); l != cluster.Unlimited && q.held(p, lost, d)+x > l {
				return false
			}
			if !q.g.preemptible && slices.Contains(shared, d) && quota(p, d) != cluster.Unlimited && p.fixed.At(d)+x > quota(p, d) {
				return false
			}
		}
	}
	return true
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
			ok := place(k + 1)
			free[i].Add(p.Class.Requests)
			ports[i] -= len(p.Class.HostPorts)
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

// body lists the pods that a gang could give.
func (v *giver) body() []*cluster.Pod {
	var out []*cluster.Pod
	for _, u := range v.units {
		out = append(out, u.pods...)
	}
	return out
}

func (q *question) of(s gone) (ls []loss) {
	for i, v := range q.others {
		for k, p := range v.body() {
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
	all := q.spread(true, func(_ *giver, u unit) bool {
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
	return slices.ContainsFunc(q.spread(false, func(_ *giver, u unit) bool {
		return !slices.ContainsFunc(u.pods, func(p *cluster.Pod) bool { return !killed[p.UID] })
	}), func(s gone) bool { return s.size() == n })
}

// spread lists every set that can be reached by units for which may holds. alike lets pods that are alike stand for each other.
func (q *question) spread(alike bool, may func(*giver, unit) bool) []gone {
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

// nexts lists what the gang could give when some of it is gone already; see spread for alike.
func (v *giver) nexts(out uint64, alike bool) map[uint64]unit {
	body := v.body()
	if v.active-bits.OnesCount64(out) <= v.least {
		rest, set := unit{core: true}, uint64(0)
		for k, p := range body {
			if out>>k&1 == 0 {
				rest.pods, set = append(rest.pods, p), set|1<<k
			}
		}
		if set == 0 {
			return nil
		}
		return map[uint64]unit{set: rest}
	}
	all := map[uint64]unit{}
	type kind struct {
		node cluster.NodeID
		of   *cluster.Class
		port int
	}
	seen := map[kind]bool{}
	for k, p := range body {
		if like := (kind{p.Node, p.Class, len(p.Labels)}); out>>k&1 == 0 && (!alike || !seen[like]) {
			seen[like] = true
			all[1<<k] = unit{pods: body[k : k+1]}
		}
	}
	return all
}
