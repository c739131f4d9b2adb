// Package proportion is the policy of queues: it divides the cluster into fair shares, orders queues by them, keeps queues
// under their limits and non-preemptible work within quota, at every level, and says what one queue may take back from
// another. The maths is package fairshare's.
package proportion

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/fairshare"
)

// Name is the plugin's name in a profile.
const Name = "proportion"

// New builds the plugin. Argument "kValue" (default 1; 0 or less switches it off) says how strongly a queue's past usage
// counts against it; without usage data it has no effect. Argument "relcaimerSaturationMultiplier" (KAI's spelling;
// default 1, and no less) says how much better off than the queue it takes from a queue beyond its fair share may look:
// its part of its fair share counts that many times.
func New(args engine.Arguments) (engine.Plugin, []string, error) {
	p := &plugin{k: 1, saturation: 1}
	for name, into := range map[string]*float64{"kValue": &p.k, "relcaimerSaturationMultiplier": &p.saturation} { // order: independent
		if s, ok := args[name]; ok {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil || v != v {
				return nil, nil, fmt.Errorf("argument %q is %q; it must be a number", name, s)
			}
			*into = v
		}
	}
	return p, args.Unknown("kValue", "relcaimerSaturationMultiplier"), nil
}

type plugin struct {
	k, saturation float64
	divider       fairshare.Divider
}

// core is how many leading dimensions always count: CPU, memory, GPU.
const core = cluster.GPU + 1

type instance struct {
	view   *engine.View
	order  fairshare.Order
	take   fairshare.Reclaim
	states []*fairshare.State   // by queue ID; their ledgers are the session's own, so they follow what is placed
	chains [][]*fairshare.State // by queue ID: the queue and its ancestors, leaf first
}

// Open implements engine.Plugin: O(nodes + queues × dimensions).
func (p *plugin) Open(v *engine.View) engine.Instance {
	i := &instance{view: v}
	if v == nil {
		return i
	}
	snap, queues := v.Snapshot(), v.Queues()
	shared := sharedDims(v)
	unit := make([]int64, snap.Dims.Len())
	for d := range unit {
		unit[d] = 1
	}
	unit[cluster.GPU] = 1000
	total := clusterTotal(snap)
	index := make(map[cluster.QueueID]int32, len(queues))
	in := fairshare.Input{Total: total, Unit: unit, Shared: shared, KValue: fairshare.Fixed(p.k), Queues: make([]fairshare.Queue, len(queues))}
	for k, q := range queues {
		index[q.ID] = int32(k)
		parent := int32(-1)
		if q.Parent != nil {
			parent = index[q.Parent.ID]
		}
		in.Queues[k] = fairshare.Queue{
			Parent: parent, Priority: q.Priority, Created: q.Created, UID: q.UID,
			Quota: quota(q, shared), Limit: q.Limit, Request: q.Requested, Weight: q.Weight,
			Usage: q.Usage,
		}
	}
	shares := p.divider.Divide(&in)
	i.order = fairshare.Order{Total: total, Unit: unit, Shared: shared, Core: core}
	i.take = fairshare.Reclaim{Shared: shared, Core: core, Multiplier: fairshare.Fixed(p.saturation)}
	i.states = make([]*fairshare.State, snap.MaxQueueID())
	i.chains = make([][]*fairshare.State, snap.MaxQueueID())
	for k, q := range queues {
		st := &fairshare.State{
			Priority: q.Priority, Created: q.Created, UID: q.UID, Quota: in.Queues[k].Quota, Limit: q.Limit,
			Fair: slices.Clone(shares.Of(k)), Allocated: q.Allocated, NonPreemptible: q.AllocatedNonPreemptible,
		}
		i.states[q.ID] = st
		i.chains[q.ID] = append(i.chains[q.ID], st)
		if q.Parent != nil {
			i.chains[q.ID] = append(i.chains[q.ID], i.chains[q.Parent.ID]...)
		}
	}
	return i
}

// sharedDims marks CPU, memory, GPU, and every further dimension for which some queue states a quota, limit or weight.
func sharedDims(v *engine.View) []bool {
	shared := make([]bool, v.Snapshot().Dims.Len())
	shared[cluster.CPU], shared[cluster.RAM], shared[cluster.GPU] = true, true, true
	for d := cluster.Slots + 1; d < len(shared); d++ {
		shared[d] = slices.ContainsFunc(v.Queues(), func(q *engine.QueueLedger) bool { return names(q, d) })
	}
	return shared
}

// names says whether the queue states anything about a further dimension.
func names(q *engine.QueueLedger, d int) bool {
	return q.Quota.At(d) != 0 || q.LimitAt(d) != cluster.Unlimited || q.Weight.At(d) != 0
}

// quota returns the queue's quota; of further dimensions that it does not name it may have what it likes.
func quota(q *engine.QueueLedger, shared []bool) []int64 {
	out := make([]int64, len(shared))
	for d := range out {
		out[d] = q.Quota.At(d)
		if d >= cluster.Slots && !names(q, d) {
			out[d] = fairshare.Unlimited
		}
	}
	return out
}

// clusterTotal is what there is to divide: the allocatable of the nodes that take pods now, less what pods of other
// schedulers hold there. Slices of GPUs count as the GPUs that queues are charged for them.
func clusterTotal(snap *cluster.Snapshot) cluster.Resources {
	total := make(cluster.Resources, snap.Dims.Len())
	for _, id := range snap.NodeOrder {
		if n := snap.Node(id); n.Problem == "" {
			free := n.Allocatable.Clone()
			for d := range free { // what others ask for beyond what the node has takes nothing from other nodes
				free[d] -= max(0, min(free[d], n.Foreign.At(d)))
			}
			total.AddCapped(free)
			total[cluster.GPU] += n.ClaimGPUs
		}
	}
	total[cluster.GPU] += snap.Dims.SlicedGPUs(total)
	return total
}

// CompareQueues implements engine.QueueOrder.
func (i *instance) CompareQueues(l, r cluster.QueueID, lNext, rNext cluster.Resources) int {
	lk, rk := i.order.Key(i.states[l], lNext, nil), i.order.Key(i.states[r], rNext, nil)
	return fairshare.Compare(&lk, &rk)
}

// FairShare implements engine.QueueShares.
func (i *instance) FairShare(id cluster.QueueID) cluster.Resources {
	if int(id) >= len(i.states) || i.states[id] == nil {
		return nil
	}
	return i.states[id].Fair
}

// CheckQueue implements engine.QueueGate.
func (i *instance) CheckQueue(g *engine.GangState, request cluster.Resources) engine.Verdict {
	chain := i.chains[g.Leaf.ID]
	if e, over := fairshare.OverLimit(chain, request); over {
		return i.verdict(engine.ReasonOverLimit, g.Leaf, e)
	}
	if !g.Preemptible {
		if e, over := fairshare.OverQuota(chain, request, i.order.Shared); over {
			return i.verdict(engine.ReasonNonPreemptibleOverQuota, g.Leaf, e)
		}
	}
	return engine.Verdict{}
}

// OverFixed implements engine.FixedQuota.
func (i *instance) OverFixed(id cluster.QueueID, freed cluster.Resources) bool {
	if int(id) >= len(i.states) || i.states[id] == nil {
		return false
	}
	st := i.states[id]
	for d, x := range st.NonPreemptible {
		if bound := st.Quota[d]; d < len(i.order.Shared) && i.order.Shared[d] && bound != fairshare.Unlimited && x-freed.At(d) > bound {
			return true
		}
	}
	return false
}

func (i *instance) verdict(reason engine.Reason, leaf *engine.QueueLedger, e fairshare.Excess) engine.Verdict {
	q := leaf
	for range e.Level {
		q = q.Parent
	}
	return engine.Verdict{
		Code: engine.No, Reason: reason, Object: q.Name, Dim: i.view.Snapshot().Dims.Name(e.Dim),
		Need: e.Asked, Have: e.Have(),
	}
}
