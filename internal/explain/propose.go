package explain

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// propose names changes that would lift what blocks the gang in o. They may be too many, never knowingly too few; none
// means that nothing is known to help.
func (w *trial) propose(have []*Change, o *outcome) []*Change {
	gang := o.snap.GangByKey(w.key)
	if gang == nil || o.gang == nil || o.gang.Diagnosis == nil {
		return nil
	}
	v := o.gang.Diagnosis.Verdict
	face, _ := cluster.SplitQueue(gang.Queue) // a gang is in no queue of another face
	switch v.Reason.Unblock {
	case policy.UnblockGang:
		return w.one(Change{Kind: EditGang, Detail: v.Detail, sets: assumedTree(o.snap, gang)})
	case policy.UnblockQueue:
		if v.Object == "" {
			if leaf := bestLeaf(&o.trace, "", face); leaf != "" {
				return w.one(Change{Kind: MoveToQueue, Queue: leaf})
			}
			return append(w.one(Change{Kind: CreateQueue, Queue: "default"}), w.one(Change{Kind: MoveToQueue, Queue: "default"})...)
		}
		if near := nearest(v.Object, leaves(&o.trace, face)); near != "" && w.own {
			return w.one(Change{Kind: MoveToQueue, From: v.Object, Queue: near, Detail: "likely a typo"})
		}
		return w.one(Change{Kind: CreateQueue, Queue: v.Object})
	case policy.UnblockLeaf:
		if leaf := bestLeaf(&o.trace, v.Object, face); leaf != "" {
			return w.one(Change{Kind: MoveToQueue, From: v.Object, Queue: leaf})
		}
	case policy.UnblockTree:
		return w.mendTree(o.snap, v.Object)
	case policy.UnblockRetry:
		return w.one(Change{Kind: Retry})
	case policy.UnblockGates:
		return w.one(Change{Kind: LiftGate, Pods: podNames(o.snap, gang, func(p *cluster.Pod) bool { return p.Phase == cluster.Gated })})
	case policy.UnblockSubgroup:
		return w.adopt(o.snap, gang)
	case policy.UnblockPods:
		return w.fill(o.snap, gang)
	case policy.UnblockBind:
		return w.one(Change{Kind: WaitUntil, At: new(v.WakeAt.Time().UTC()), Detail: "when the failed bind is tried again"})
	case policy.UnblockLimit, policy.UnblockQuota:
		return w.raise(o, v)
	case policy.UnblockConfigMap:
		return w.one(Change{Kind: CreateConfigMap, Object: v.Object})
	case policy.UnblockFeature:
		return w.one(Change{Kind: DropFeature, Detail: v.Object})
	case policy.UnblockConstraint:
		return w.one(Change{Kind: EditGang, Detail: v.String(), sets: relaxed(gang, func(c *cluster.Constraint) {
			if c.Topology == v.Object {
				*c = cluster.Constraint{}
			}
		})})
	case policy.UnblockTogether:
		return w.one(Change{Kind: EditGang, Detail: "let it prefer one " + v.Object + " instead of requiring it", sets: relaxed(gang, func(c *cluster.Constraint) {
			c.Preferred, c.Required = cmp.Or(c.Preferred, c.Required), ""
		})})
	case policy.UnblockRoom, policy.UnblockSize, policy.UnblockFirst:
		return w.makeRoom(have, o)
	}
	return nil
}

func (w *trial) one(c Change) []*Change {
	c.gang = w.key
	return []*Change{&c}
}

// relaxed is the gang's tree with other constraints.
func relaxed(g *cluster.Gang, change func(*cluster.Constraint)) []cluster.Set {
	sets := slices.Clone(g.Sets)
	for i := range sets {
		if sets[i].Near != (cluster.Constraint{}) {
			change(&sets[i].Near)
		}
	}
	return sets
}

// assumedTree is a sound tree in place of one that cannot be read: the pods that exist, all of them needed.
func assumedTree(snap *cluster.Snapshot, g *cluster.Gang) []cluster.Set {
	members := map[string]int32{}
	for _, id := range g.Pods {
		if p := snap.Pod(id); p.Ours && p.Phase.Alive() {
			name := p.SetName()
			if name == "" {
				name = cluster.DefaultSet
			}
			members[name]++
		}
	}
	names := slices.Sorted(maps.Keys(members))
	sets := []cluster.Set{{Parent: cluster.None, Min: int32(len(names))}}
	for i, name := range names {
		sets[0].Children = append(sets[0].Children, int32(i+1))
		sets = append(sets, cluster.Set{Name: name, Parent: 0, Leaf: true, Min: members[name]})
	}
	return sets
}

// bestLeaf returns the leaf queue of a face below a queue ("" for all) that has most GPUs left under its limit, and then under its
// quota; ties go to the name. "" when there is none.
func bestLeaf(t *engine.Trace, below, face string) string {
	parent := make(map[string]string, len(t.Queues))
	inner := map[string]bool{}
	for i := range t.Queues {
		parent[t.Queues[i].Name] = t.Queues[i].Parent
		inner[t.Queues[i].Parent] = true
	}
	best, bestRoom := "", [2]int64{}
	for i := range t.Queues {
		q := &t.Queues[i]
		under := below == ""
		for at := q.Parent; at != "" && !under; at = parent[at] {
			under = at == below
		}
		if of, _ := cluster.SplitQueue(q.Name); inner[q.Name] || !under || of != face {
			continue
		}
		left := func(bound int64) int64 {
			if bound == cluster.Unlimited {
				return cluster.MaxQuantity
			}
			return bound - q.Allocated.At(cluster.GPU)
		}
		limit := cluster.Unlimited
		if len(q.Limit) > cluster.GPU {
			limit = q.Limit[cluster.GPU]
		}
		room := [2]int64{left(limit), left(q.Quota.At(cluster.GPU))}
		if best == "" || room[0] > bestRoom[0] || room[0] == bestRoom[0] && room[1] > bestRoom[1] {
			best, bestRoom = q.Name, room
		}
	}
	return best
}

// mendTree finds what is wrong above a queue: a parent that does not exist is created; of a cycle, one queue becomes a top
// queue, chosen so that the gang's queue stays the leaf it is meant to be.
func (w *trial) mendTree(snap *cluster.Snapshot, name string) []*Change {
	seen := map[string]bool{}
	at := snap.QueueByName(name)
	for at != nil && !seen[at.Name] && at.Parent != "" {
		seen[at.Name] = true
		next := snap.QueueByName(at.Parent)
		if next == nil {
			return w.one(Change{Kind: CreateQueue, Queue: at.Parent})
		}
		if seen[next.Name] { // at closes the cycle, seen from the gang's queue
			return w.one(Change{Kind: FixParent, Queue: at.Name, From: at.Parent})
		}
		at = next
	}
	return nil
}

// podNames returns the names of a gang's pods, sorted.
func podNames(snap *cluster.Snapshot, g *cluster.Gang, want func(*cluster.Pod) bool) []string {
	var out []string
	for _, id := range g.Pods {
		if p := snap.Pod(id); p.Ours && want(p) {
			out = append(out, p.Name)
		}
	}
	slices.Sort(out)
	return out
}

// raise lifts one bound to what the queue holds plus what the gang asks for.
func (w *trial) raise(o *outcome, v engine.Verdict) []*Change {
	dim, ok := o.snap.Dims.Index(v.Dim)
	i := slices.IndexFunc(o.trace.Queues, func(q engine.QueueTrace) bool { return q.Name == v.Object })
	if !ok || i < 0 {
		return nil
	}
	q := &o.trace.Queues[i]
	c := Change{Kind: RaiseLimit, Queue: v.Object, Dimension: v.Dim}
	if v.Reason.Unblock == policy.UnblockLimit {
		c.bound, c.to = q.Limit[dim], q.Taken.At(dim)+v.Need
	} else {
		c.Kind, c.bound, c.to = RaiseQuota, q.Quota.At(dim), q.TakenNonPreemptible.At(dim)+v.Need
	}
	c.From = o.snap.Dims.FormatOne(dim, c.bound)
	return w.one(c)
}

// census counts, per set of a gang's tree, what is there.
type census struct {
	snap  *cluster.Snapshot
	gang  *cluster.Gang
	alive []int32
	done  []int32 // finished members
	stray []*cluster.Pod
}

func newCensus(snap *cluster.Snapshot, g *cluster.Gang) *census {
	c := &census{snap: snap, gang: g, alive: make([]int32, len(g.Sets)), done: make([]int32, len(g.Sets))}
	for _, id := range g.Pods {
		p := snap.Pod(id)
		switch {
		case p.Finished() && p.Set != cluster.None:
			c.done[p.Set]++
		case !p.Ours || !p.Phase.Alive():
		case p.Set == cluster.None:
			c.stray = append(c.stray, p)
		case p.Phase == cluster.Gated:
		default:
			c.alive[p.Set]++
		}
	}
	slices.SortFunc(c.stray, func(a, b *cluster.Pod) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// missing returns, leaf by leaf, how many pods have to appear below set i for its minimum, choosing the children that need fewest.
func (c *census) missing(i int32) (map[int32]int32, int32) {
	set := &c.gang.Sets[i]
	if set.Leaf {
		n := max(0, set.Need(c.alive[i], c.done[i])-c.alive[i])
		return map[int32]int32{i: n}, n
	}
	type child struct {
		leaves map[int32]int32
		total  int32
	}
	all := make([]child, 0, len(set.Children))
	for _, k := range set.Children {
		leaves, total := c.missing(k)
		all = append(all, child{leaves, total})
	}
	slices.SortStableFunc(all, func(a, b child) int { return int(a.total) - int(b.total) })
	out, total := map[int32]int32{}, int32(0)
	for _, k := range all[:min(int(max(0, set.Min)), len(all))] {
		maps.Copy(out, k.leaves)
		total += k.total
	}
	return out, total
}

// shortLeaves lists the leaves that miss pods, in tree order.
func (c *census) shortLeaves() ([]int32, map[int32]int32) {
	missing, _ := c.missing(0)
	var leaves []int32
	for i, n := range missing { // order: sorted below
		if n > 0 {
			leaves = append(leaves, i)
		}
	}
	slices.Sort(leaves)
	return leaves, missing
}

// subgroup is the name by which people call a leaf; the default one has none.
func subgroup(g *cluster.Gang, leaf int32) string {
	if name := g.Sets[leaf].Name; name != cluster.DefaultSet {
		return name
	}
	return ""
}

// adopt gives pods of unknown subgroups to those that miss some.
func (w *trial) adopt(snap *cluster.Snapshot, g *cluster.Gang) []*Change {
	c := newCensus(snap, g)
	leaves, missing := c.shortLeaves()
	if len(leaves) == 0 { // nobody is short: they can only add to a subgroup
		for i := range g.Sets {
			if g.Sets[i].Leaf {
				leaves, missing = []int32{int32(i)}, map[int32]int32{int32(i): 1}
				break
			}
		}
	}
	var out []*Change
	stray := c.stray
	for _, leaf := range leaves {
		n := min(int(missing[leaf]), len(stray))
		if n == 0 {
			continue
		}
		change := Change{Kind: SetSubgroup, Subgroup: subgroup(g, leaf)}
		for _, p := range stray[:n] {
			change.Pods = append(change.Pods, p.Name)
		}
		stray = stray[n:]
		out = append(out, w.one(change)...)
	}
	return out
}

// fill adds the pods that are missing, each like one that is there: of its own subgroup, or else any.
func (w *trial) fill(snap *cluster.Snapshot, g *cluster.Gang) []*Change {
	c := newCensus(snap, g)
	leaves, missing := c.shortLeaves()
	var out []*Change
	for _, leaf := range leaves {
		like := model(snap, g, leaf)
		if like == nil {
			return nil
		}
		p := like.State(snap.Dims)
		p.Phase, p.NodeName, p.Nominated, p.DeletedAt = cluster.Pending, "", "", cluster.Instant{}
		p.SetName, p.Created, p.Name = subgroup(g, leaf), snap.Now, g.Key.Name
		out = append(out, w.one(Change{Kind: AddPods, Count: int(missing[leaf]), Subgroup: subgroup(g, leaf), template: &p})...)
	}
	return out
}

// model picks the pod that a new pod of a leaf would be like.
func model(snap *cluster.Snapshot, g *cluster.Gang, leaf int32) *cluster.Pod {
	var best *cluster.Pod
	for _, id := range g.Pods {
		p := snap.Pod(id)
		if !p.Ours {
			continue
		}
		if best == nil || (p.Set == leaf) != (best.Set == leaf) && p.Set == leaf || (p.Set == leaf) == (best.Set == leaf) && p.Name < best.Name {
			best = p
		}
	}
	return best
}
