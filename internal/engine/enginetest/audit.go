package enginetest

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Audit replays plans on the snapshot they were made for and reports the first breach of what every plan promises, in
// any prefix of it: no node gives more than it has, now for a bind and after releases for a nomination, nor does a zone of one that
// turns pods away for it; no queue rises
// above its limit, nor non-preemptible work above quota, at any level; a pod is decided once; a bundle reaches its gang's
// minimum unless the gang had it, and starts nothing before the minimum needs no release. Whoever is evicted may be, by the
// table of legal victims, and is evicted for somebody: the bundle's own gang fits afterwards, and no victim is left with a
// part that cannot run. Queues are checked when limits is true: a profile without a plugin that gates queues promises
// nothing about them.
//
// What it shares with what it judges is the model: what pods ask for and are charged for (Class.ChargeOn), comparison of vectors
// (Resources.Fits), and the sums of nodes and queues in the snapshot, of which those of nodes are added up again from pods (sums).
// Minimums, ledgers, devices, claims, limits and the table of legal victims it reckons by itself.
func Audit(snap *cluster.Snapshot, plans []engine.Plan, limits bool) error {
	a := newAuditor(snap)
	a.limits = limits
	if err := a.sums(); err != nil {
		return err
	}
	for _, p := range plans {
		for i := range p.Bundles {
			if err := a.bundle(&p.Bundles[i]); err != nil {
				return fmt.Errorf("%s: %w", p.Action, err)
			}
		}
	}
	return nil
}

func (a *auditor) bundle(b *engine.Bundle) error {
	g := a.snap.GangByKey(b.Gang)
	if g == nil || g.UID != b.UID {
		return fmt.Errorf("bundle for gang %s (%s), which does not exist", b.Gang, b.UID)
	}
	said := func(in *engine.Intent, err error) error {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s %s on %s: %w", in.Verb, in.Pod, in.Node, err)
	}
	var victims []*cluster.Gang
	for i := range b.Intents {
		if in := &b.Intents[i]; in.Verb == ledger.Evict {
			v, err := a.evict(g, b.Eviction, in)
			if err != nil {
				return said(in, err)
			}
			if !slices.Contains(victims, v) {
				victims = append(victims, v)
			}
		}
	}
	gets := false
	for i := range b.Intents {
		in := &b.Intents[i]
		switch {
		case in.Verb != ledger.Evict:
			gets = true
			a.placed[g.ID] = a.placed[g.ID] || in.Verb == ledger.Bind
			if err := said(in, a.take(g, *in)); err != nil {
				return err
			}
			if in.Verb == ledger.Bind {
				if err := said(in, a.claims(a.pods[in.UID], in)); err != nil {
					return err
				}
			}
		case in.To != "":
			if err := said(in, a.move(in)); err != nil {
				return err
			}
		}
	}
	if len(victims) > 0 && gets == b.Eviction.Cause.Own() {
		return fmt.Errorf("gang %s: %s, and whether it gets anything is %v", g.Key, b.Eviction.Cause, gets)
	}
	for _, v := range victims {
		if err := a.runs(v); err != nil {
			return fmt.Errorf("victim %s: %w", v.Key, err)
		}
	}
	if !gets {
		return nil
	}
	if err := a.waits(b); err != nil {
		return fmt.Errorf("gang %s: %w", g.Key, err)
	}
	a.settle(b)
	if err := a.whole(g); err != nil {
		return fmt.Errorf("gang %s: %w", g.Key, err)
	}
	return nil
}

// waits says that a bundle that binds nothing waits for nobody: no pod leaves the nodes where it was given room, and no promise that it
// takes was in the way of what is there already.
func (a *auditor) waits(b *engine.Bundle) error {
	for i := range b.Intents {
		in := &b.Intents[i]
		if in.Verb == ledger.Bind {
			return nil
		}
		n := a.snap.NodeByName(in.Node)
		if in.Verb == ledger.Evict || a.left[n.ID] || slices.ContainsFunc(n.Pods, func(id cluster.PodID) bool { return a.snap.Pod(id).Phase == cluster.Releasing }) {
			return nil
		}
	}
	if slices.ContainsFunc(a.broken(b), func(h *cluster.Hold) bool { return a.inTheWay(h, b) }) {
		return nil
	}
	return fmt.Errorf("%s promises room that nobody leaves", b.Intents[0].Node)
}

type auditor struct {
	snap            *cluster.Snapshot
	pods            map[string]*cluster.Pod
	idle, later     map[cluster.NodeID]cluster.Resources
	devices         map[cluster.NodeID]map[string]*sharedDevice
	held, fixed     map[string]*cluster.Resources // by queue name, the subtree's allocation and its non-preemptible part
	full, fullFixed map[string]cluster.Resources  // what pods have now, leaving or not, and what is bound beside them
	fixedAtFirst    map[string]cluster.Resources
	now, then       map[cluster.GangID][]int32 // pods with room by set: at once, and after releases
	decided         map[string]bool
	placed          map[cluster.GangID]bool // got something by these plans
	limits          bool
	tenants         tenants
	zones           zoned
	left            map[cluster.NodeID]bool // nodes that somebody was evicted from
	promised        promises
}

func newAuditor(snap *cluster.Snapshot) *auditor {
	a := &auditor{
		snap: snap, pods: map[string]*cluster.Pod{}, idle: map[cluster.NodeID]cluster.Resources{}, later: map[cluster.NodeID]cluster.Resources{},
		held: map[string]*cluster.Resources{}, fixed: map[string]*cluster.Resources{}, now: map[cluster.GangID][]int32{}, then: map[cluster.GangID][]int32{},
		decided: map[string]bool{}, placed: map[cluster.GangID]bool{}, devices: map[cluster.NodeID]map[string]*sharedDevice{},
		tenants: tenantsOf(snap), zones: zonesOf(snap), promised: promisesOf(snap), left: map[cluster.NodeID]bool{},
	}
	snap.EachPod(func(p *cluster.Pod) { a.pods[p.UID] = p })
	for _, id := range snap.NodeOrder {
		a.idle[id], a.later[id], a.devices[id] = snap.Node(id).Idle(), snap.Node(id).Later(), map[string]*sharedDevice{}
	}
	snap.EachPod(a.seat)
	for _, id := range snap.QueueOrder {
		a.held[snap.Queue(id).Name], a.fixed[snap.Queue(id).Name] = &cluster.Resources{}, &cluster.Resources{}
	}
	for _, id := range snap.QueueOrder {
		q := snap.Queue(id)
		for _, name := range a.chain(q.Name) {
			a.held[name].Add(q.Allocated)
			a.fixed[name].Add(q.AllocatedNonPreemptible)
		}
	}
	a.full, a.fullFixed = map[string]cluster.Resources{}, map[string]cluster.Resources{}
	snap.EachPod(func(p *cluster.Pod) {
		if g := snap.Gang(p.Gang); g != nil && p.Ours && p.Phase.Holds() && p.NodeName != "" {
			a.have(g, p.Class.ChargeOn(snap.Node(p.Node)), !g.Preemptible || p.Charged().Fixed)
		}
	})
	a.fixedAtFirst = map[string]cluster.Resources{}
	for name, sum := range a.fixed { // order: a map again
		a.fixedAtFirst[name] = sum.Clone()
	}
	return a
}

// chain lists the queue and everything above it, as far as it exists.
func (a *auditor) chain(name string) []string {
	var out []string
	for range len(a.held) + 1 {
		q := a.snap.QueueByName(name)
		if q == nil {
			break
		}
		out = append(out, name)
		name = q.Parent
	}
	return out
}

// counts returns the gang's pods with room by set, as the snapshot has them at first; those of no set of the tree come last.
func (a *auditor) counts(m map[cluster.GangID][]int32, g *cluster.Gang) []int32 {
	if m[g.ID] == nil {
		m[g.ID] = make([]int32, len(g.Sets)+1)
		for _, id := range g.Pods {
			if p := a.snap.Pod(id); p.Ours && p.Phase.Active() {
				m[g.ID][at(g, p)]++
			}
		}
	}
	return m[g.ID]
}

// at is where a pod counts.
func at(g *cluster.Gang, p *cluster.Pod) int {
	if p.Set == cluster.None {
		return len(g.Sets)
	}
	return int(p.Set)
}

// evict checks that the pod may be evicted for g, and gives its room back.
func (a *auditor) evict(g *cluster.Gang, c *engine.EvictionRecord, in *engine.Intent) (*cluster.Gang, error) {
	p, n := a.pods[in.UID], a.snap.NodeByName(in.Node)
	switch {
	case c == nil:
		return nil, fmt.Errorf("there is no record of why")
	case p == nil || !p.Ours || !p.Phase.Active() || p.Gang == cluster.None:
		return nil, fmt.Errorf("it is no pod of ours that holds room")
	case n == nil || p.Node != n.ID:
		return nil, fmt.Errorf("it is not there")
	case a.decided[in.UID]:
		return nil, fmt.Errorf("it was decided before")
	}
	a.decided[in.UID] = true
	v := a.snap.Gang(p.Gang)
	if err := a.legal(c.Cause, g, v); err != nil {
		return nil, err
	}
	if in.To == "" && c.Cause == policy.Consolidation {
		return nil, fmt.Errorf("consolidation moves, and it has nowhere to go")
	}
	if in.To != "" && (!p.Recreated || p.Set == cluster.None || v.Key.Remnant()) {
		return nil, fmt.Errorf("nobody would make it anew elsewhere")
	}
	later := a.later[n.ID]
	later.Add(p.Class.Requests)
	a.later[n.ID] = later
	if err := a.devicesOf(n, p.Class, p.Groups, 0, -1); err != nil {
		return nil, err
	}
	a.zones.add(n.ID, p.Zones, -1)
	a.left[n.ID] = true
	a.counts(a.then, v)[at(v, p)]--
	a.counts(a.now, v)[at(v, p)]--
	for _, name := range a.chain(v.Queue) {
		a.held[name].Sub(p.Class.ChargeOn(n))
		if !v.Preemptible || p.Charged().Fixed {
			a.fixed[name].Sub(p.Class.ChargeOn(n))
		}
	}
	return v, nil
}

// legal is the table of docs/concepts/disruption.md, as far as objects alone decide it.
func (a *auditor) legal(r policy.EvictionCause, g, v *cluster.Gang) error {
	switch {
	case r.Own():
		if v != g {
			return fmt.Errorf("%s of gang %s evicts a pod of %s", r, g.Key, v.Key)
		}
		return nil
	case v == g:
		return fmt.Errorf("a gang is no victim of itself")
	case !v.Preemptible && (r == policy.Consolidation || !a.tooMuchFixed(v)):
		return fmt.Errorf("gang %s is not preemptible", v.Key)
	case r == policy.Reclaim && v.Queue == g.Queue:
		return fmt.Errorf("a queue reclaims from itself")
	case r == policy.Preempt && (v.Queue != g.Queue || v.Priority >= g.Priority):
		return fmt.Errorf("priority %d of queue %s preempts %d of queue %s", g.Priority, g.Queue, v.Priority, v.Queue)
	case r == policy.Consolidation && (v.Priority > g.Priority || !g.Preemptible):
		return fmt.Errorf("priority %d is consolidated for %d (preemptible: %v)", v.Priority, g.Priority, g.Preemptible)
	case !slices.Contains([]policy.EvictionCause{policy.Reclaim, policy.Preempt, policy.Consolidation}, r):
		return fmt.Errorf("%q is no cause", r)
	}
	return nil
}

// tooMuchFixed says whether the gang began as preemptible, and the snapshot had more non-preemptible work than quota in its
// queue, or in one above it.
func (a *auditor) tooMuchFixed(v *cluster.Gang) bool {
	if !slices.ContainsFunc(v.Pods, func(id cluster.PodID) bool { return !a.snap.Pod(id).Charged().Fixed }) {
		return false
	}
	if !a.leaf(v.Queue) { // it is as one without quota
		return true
	}
	for _, name := range a.chain(v.Queue) {
		q := a.snap.QueueByName(name)
		for d := range a.snap.Dims.Len() {
			if quota := q.Quota.At(d); quota != cluster.Unlimited && a.fixedAtFirst[name].At(d) > quota && (d <= cluster.GPU || quota > 0 || q.LimitAt(d) != cluster.Unlimited || q.Weight.At(d) > 0) {
				return true
			}
		}
	}
	return false
}

// leaf says whether work can ask for room in the queue: it is there, as are all above it, and it has none below.
func (a *auditor) leaf(name string) bool {
	for _, id := range a.snap.QueueOrder {
		if a.snap.Queue(id).Parent == name {
			return false
		}
	}
	for range len(a.held) + 1 {
		q := a.snap.QueueByName(name)
		if q == nil {
			return false
		}
		if name = q.Parent; name == "" {
			return true
		}
	}
	return false // in a circle
}

// move gives an evicted pod's successor its room.
func (a *auditor) move(in *engine.Intent) error {
	p, n := a.pods[in.UID], a.snap.NodeByName(in.To)
	if n == nil || n.Problem != "" || n.ID == p.Node && (p.Class.Share.None() || slices.Equal(in.ToGroups, p.Groups)) && (len(in.Zones) == 0 || reflect.DeepEqual(in.Zones, p.Zones)) {
		return fmt.Errorf("node %s takes it from nowhere else", in.To)
	}
	v := a.snap.Gang(p.Gang)
	a.counts(a.then, v)[p.Set]++
	if err := a.zones.give(n, in); err != nil {
		return err
	}
	return a.fill(n, v, p.Class, in.ToGroups, 0)
}

// runs says whether a victim still has its minimum, what waits for room included, or nothing.
func (a *auditor) runs(v *cluster.Gang) error {
	had := a.counts(map[cluster.GangID][]int32{}, v)
	left := a.counts(a.then, v)
	if a.satisfied(v, 0, left) {
		return nil
	}
	if a.placed[v.ID] {
		return fmt.Errorf("it was placed by the same run, and loses its minimum")
	}
	if !a.satisfied(v, 0, had) {
		return nil
	}
	for _, id := range v.Pods {
		if p := a.snap.Pod(id); p.Ours && p.Phase.Active() && p.Node != cluster.None && !a.decided[p.UID] {
			return fmt.Errorf("pod %s stays, below the minimum", p.Name)
		}
	}
	return nil
}

func (a *auditor) take(g *cluster.Gang, in engine.Intent) error {
	p, n := a.pods[in.UID], a.snap.NodeByName(in.Node)
	switch {
	case p == nil || p.Phase != cluster.Pending || p.Gang != g.ID || p.Set == cluster.None:
		return fmt.Errorf("it is no waiting pod of gang %s", g.Key)
	case n == nil || n.Problem != "":
		return fmt.Errorf("the node takes no pods")
	case a.decided[in.UID]:
		return fmt.Errorf("it was decided before")
	}
	a.decided[in.UID] = true
	if err := a.zones.give(n, &in); err != nil {
		return err
	}
	r, now := p.Class.Requests, int64(0)
	a.counts(a.then, g)[p.Set]++
	a.counts(a.now, g)
	if in.Verb == ledger.Bind {
		a.now[g.ID][p.Set]++
		idle := a.idle[n.ID]
		if !r.Fits(idle) {
			return fmt.Errorf("asks for %s, idle is %s", a.snap.Dims.Format(r), a.snap.Dims.Format(idle))
		}
		idle.Sub(r)
		a.idle[n.ID], now = idle, 1
		if err := a.binds(g, p.Class.ChargeOn(n)); err != nil {
			return err
		}
	}
	return a.fill(n, g, p.Class, in.Groups, now)
}

// fill takes room on a node for a pod of g, from what there is after releases, and adds it to g's queue. Of the devices it
// takes it at once if now is 1.
func (a *auditor) fill(n *cluster.Node, g *cluster.Gang, c *cluster.Class, groups []string, now int64) error {
	r, later := c.Requests, a.later[n.ID]
	if !r.Fits(later) {
		return fmt.Errorf("asks for %s, after releases there is %s", a.snap.Dims.Format(r), a.snap.Dims.Format(later))
	}
	later.Sub(r)
	a.later[n.ID] = later
	if err := a.devicesOf(n, c, groups, now, 1); err != nil {
		return err
	}
	r = c.ChargeOn(n)
	for _, name := range a.chain(g.Queue) {
		a.held[name].Add(r)
		if !g.Preemptible {
			a.fixed[name].Add(r)
		}
		if !a.limits {
			continue
		}
		if err := a.within(a.snap.QueueByName(name), r, g.Preemptible, a.held[name], a.fixed[name]); err != nil {
			return err
		}
	}
	return nil
}

// have notes that a pod of the gang has room now.
func (a *auditor) have(g *cluster.Gang, charge cluster.Resources, fixed bool) {
	for _, name := range a.chain(g.Queue) {
		sum := a.full[name]
		sum.Add(charge)
		a.full[name] = sum
		if fixed {
			sum := a.fullFixed[name]
			sum.Add(charge)
			a.fullFixed[name] = sum
		}
	}
}

// binds checks that a pod that is bound leaves its queues within their limits with everybody in them who has not gone yet.
func (a *auditor) binds(g *cluster.Gang, charge cluster.Resources) error {
	a.have(g, charge, !g.Preemptible)
	if !a.limits {
		return nil
	}
	for _, name := range a.chain(g.Queue) {
		held, fixed := a.full[name], a.fullFixed[name]
		if err := a.within(a.snap.QueueByName(name), charge, g.Preemptible, &held, &fixed); err != nil {
			return fmt.Errorf("beside what has not gone yet: %w", err)
		}
	}
	return nil
}

// within checks the dimensions that a placement of r raised.
func (a *auditor) within(q *cluster.Queue, r cluster.Resources, preemptible bool, held, fixed *cluster.Resources) error {
	for d, x := range r {
		if x == 0 || d == cluster.Slots {
			continue
		}
		if limit := q.LimitAt(d); limit != cluster.Unlimited && held.At(d) > limit {
			return fmt.Errorf("queue %s holds %d of %s, above its limit of %d", q.Name, held.At(d), a.snap.Dims.Name(d), limit)
		}
		quota := q.Quota.At(d)
		if d > cluster.GPU && quota == 0 { // a further dimension without a quota is not divided
			continue
		}
		if !preemptible && quota != cluster.Unlimited && fixed.At(d) > quota {
			return fmt.Errorf("queue %s holds %d of %s for non-preemptible work, above its quota of %d", q.Name, fixed.At(d), a.snap.Dims.Name(d), quota)
		}
	}
	return nil
}

// whole checks the gang after a bundle for it.
func (a *auditor) whole(g *cluster.Gang) error {
	before := a.counts(map[cluster.GangID][]int32{}, g)
	if a.satisfied(g, 0, before) {
		return nil
	}
	if !a.satisfied(g, 0, a.then[g.ID]) {
		return fmt.Errorf("the bundle leaves it below its minimum")
	}
	bound := false
	for i := range before {
		bound = bound || a.now[g.ID][i] > before[i]
	}
	if bound && !a.satisfied(g, 0, a.now[g.ID]) {
		return fmt.Errorf("pods are bound while its minimum waits for a release")
	}
	return nil
}

// satisfied says whether set i has its minimum with these pods that have room. Members that have ended well and are on record
// make up what those that live lack, but never take the place of one that lives.
func (a *auditor) satisfied(g *cluster.Gang, i int32, counts []int32) bool {
	s := &g.Sets[i]
	if s.Leaf {
		live, ended := a.members(g, i)
		return counts[i] >= s.Min || live < s.Min && counts[i]+ended >= s.Min
	}
	n, pods, live, ended := int32(0), int32(0), int32(0), int32(0)
	for _, c := range s.Children {
		if a.satisfied(g, c, counts) {
			n++
		}
		p, l, e := a.below(g, c, counts, true)
		pods, live, ended = pods+p, live+l, ended+e
	}
	return n >= s.Min && (s.Pods == 0 || pods >= s.Pods || live < s.Pods && pods+ended >= s.Pods)
}

// below counts the pods of set c that have room, that live, and that ended well. Of what is further below than a direct leaf only sets count that have
// their minimum.
func (a *auditor) below(g *cluster.Gang, c int32, counts []int32, direct bool) (pods, live, ended int32) {
	if g.Sets[c].Leaf {
		live, ended = a.members(g, c)
		if direct || a.satisfied(g, c, counts) {
			pods = counts[c]
		}
		return pods, live, ended
	}
	for _, k := range g.Sets[c].Children {
		p, l, e := a.below(g, k, counts, false)
		pods, live, ended = pods+p, live+l, ended+e
	}
	return pods, live, ended
}

// members counts the pods of a leaf that live, and those that ended well and are on record.
func (a *auditor) members(g *cluster.Gang, leaf int32) (live, ended int32) {
	for _, id := range g.Pods {
		switch p := a.snap.Pod(id); {
		case !p.Ours || p.Set != leaf:
		case p.Phase == cluster.Succeeded:
			if p.State(a.snap.Dims).DeletedAt.IsZero() {
				ended++
			}
		case p.Phase != cluster.Gated && p.Phase <= cluster.Running:
			live++
		}
	}
	return live, ended
}
