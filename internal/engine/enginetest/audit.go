package enginetest

import (
	"fmt"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Audit replays plans on the snapshot they were made for and reports the first breach of what every plan promises, in
// any prefix of it: no node gives more than it has, now for a bind and after releases for a nomination; no queue rises
// above its limit, nor non-preemptible work above quota, at any level; a pod is decided once; a bundle reaches its gang's
// minimum unless the gang had it, and starts nothing before the minimum needs no release. Queues are checked when limits
// is true: a profile without a plugin that gates queues promises nothing about them.
func Audit(snap *cluster.Snapshot, plans []engine.Plan, limits bool) error {
	a := newAuditor(snap)
	a.limits = limits
	for _, p := range plans {
		for i := range p.Bundles {
			b := &p.Bundles[i]
			g := snap.GangByKey(b.Gang)
			if g == nil || g.UID != b.UID {
				return fmt.Errorf("%s: bundle for gang %s (%s), which does not exist", p.Action, b.Gang, b.UID)
			}
			for _, in := range b.Intents {
				if err := a.take(g, in); err != nil {
					return fmt.Errorf("%s: %s %s on %s: %w", p.Action, in.Verb, in.Pod, in.Node, err)
				}
			}
			if err := a.whole(g); err != nil {
				return fmt.Errorf("%s: gang %s: %w", p.Action, g.Key, err)
			}
		}
	}
	return nil
}

type auditor struct {
	snap        *cluster.Snapshot
	pods        map[string]*cluster.Pod
	idle, later map[cluster.NodeID]cluster.Resources
	held, fixed map[string]*cluster.Resources // by queue name, the subtree's allocation and its non-preemptible part
	now, then   map[cluster.GangID][]int32    // pods with room by set: at once, and after releases
	decided     map[string]bool
	limits      bool
}

func newAuditor(snap *cluster.Snapshot) *auditor {
	a := &auditor{
		snap: snap, pods: map[string]*cluster.Pod{}, idle: map[cluster.NodeID]cluster.Resources{}, later: map[cluster.NodeID]cluster.Resources{},
		held: map[string]*cluster.Resources{}, fixed: map[string]*cluster.Resources{}, now: map[cluster.GangID][]int32{}, then: map[cluster.GangID][]int32{},
		decided: map[string]bool{},
	}
	snap.EachPod(func(p *cluster.Pod) { a.pods[p.UID] = p })
	for _, id := range snap.NodeOrder {
		a.idle[id], a.later[id] = snap.Node(id).Idle(), snap.Node(id).Later()
	}
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

// counts returns the gang's pods with room by set, as the snapshot has them at first.
func (a *auditor) counts(m map[cluster.GangID][]int32, g *cluster.Gang) []int32 {
	if m[g.ID] == nil {
		m[g.ID] = make([]int32, len(g.Sets))
		for _, id := range g.Pods {
			if p := a.snap.Pod(id); p.Ours && p.Set != cluster.None && p.Phase.Active() {
				m[g.ID][p.Set]++
			}
		}
	}
	return m[g.ID]
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
	r := p.Class.Requests
	a.counts(a.then, g)[p.Set]++
	a.counts(a.now, g)
	later := a.later[n.ID]
	if in.Verb == engine.Bind {
		a.now[g.ID][p.Set]++
		idle := a.idle[n.ID]
		if !r.Fits(idle) {
			return fmt.Errorf("asks for %s, idle is %s", a.snap.Dims.Format(r), a.snap.Dims.Format(idle))
		}
		idle.Sub(r)
		a.idle[n.ID] = idle
	}
	if !r.Fits(later) {
		return fmt.Errorf("asks for %s, after releases there is %s", a.snap.Dims.Format(r), a.snap.Dims.Format(later))
	}
	later.Sub(r)
	a.later[n.ID] = later
	for _, name := range a.chain(g.Queue) {
		a.held[name].Add(r)
		if !g.Preemptible {
			a.fixed[name].Add(r)
		}
		if !a.limits {
			continue
		}
		if err := a.within(a.snap.QueueByName(name), r, g.Preemptible); err != nil {
			return err
		}
	}
	return nil
}

// within checks the dimensions that a placement of r raised.
func (a *auditor) within(q *cluster.Queue, r cluster.Resources, preemptible bool) error {
	for d, x := range r {
		if x == 0 || d == cluster.Slots {
			continue
		}
		if limit := q.LimitAt(d); limit != cluster.Unlimited && a.held[q.Name].At(d) > limit {
			return fmt.Errorf("queue %s holds %d of %s, above its limit of %d", q.Name, a.held[q.Name].At(d), a.snap.Dims.Name(d), limit)
		}
		quota := q.Quota.At(d)
		if d > cluster.GPU && quota == 0 { // a further dimension without a quota is not divided
			continue
		}
		if !preemptible && quota != cluster.Unlimited && a.fixed[q.Name].At(d) > quota {
			return fmt.Errorf("queue %s holds %d of %s for non-preemptible work, above its quota of %d", q.Name, a.fixed[q.Name].At(d), a.snap.Dims.Name(d), quota)
		}
	}
	return nil
}

// whole checks the gang after a bundle for it.
func (a *auditor) whole(g *cluster.Gang) error {
	before := a.counts(map[cluster.GangID][]int32{}, g)
	if satisfied(g, 0, before) {
		return nil
	}
	if !satisfied(g, 0, a.then[g.ID]) {
		return fmt.Errorf("the bundle leaves it below its minimum")
	}
	bound := false
	for i := range before {
		bound = bound || a.now[g.ID][i] > before[i]
	}
	if bound && !satisfied(g, 0, a.now[g.ID]) {
		return fmt.Errorf("pods are bound while its minimum waits for a release")
	}
	return nil
}

func satisfied(g *cluster.Gang, i int32, counts []int32) bool {
	s := &g.Sets[i]
	if s.Leaf {
		return counts[i] >= s.Min
	}
	n := int32(0)
	for _, c := range s.Children {
		if satisfied(g, c, counts) {
			n++
		}
	}
	return n >= s.Min
}
