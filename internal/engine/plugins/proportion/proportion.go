// Package proportion is the policy of queues: it divides the cluster into fair shares, orders queues by them, and keeps
// queues under their limits and non-preemptible work within quota, at every level. The maths is package fairshare's.
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
// counts against it; without usage data it has no effect. "relcaimerSaturationMultiplier" is KAI's spelling of a
// setting of reclaim; it is read and checked here.
func New(args engine.Arguments) (engine.Plugin, []string, error) {
	p := &plugin{k: 1}
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

type instance struct {
	view   *engine.View
	dims   []int // the snapshot's dimensions that queues divide: CPU, memory, GPU, and those that some queue names
	order  fairshare.Order
	states []*fairshare.State // by queue ID
	chains [][]*fairshare.State
	lead   bool // dims are just the leading three, so that vectors need no picking
	buf    [2][]int64
}

// Open implements engine.Plugin: O(nodes + queues × dimensions).
func (p *plugin) Open(v *engine.View) engine.Instance {
	i := &instance{view: v}
	if v == nil {
		return i
	}
	snap := v.Snapshot()
	i.dims = dividedDims(v)
	i.lead = len(i.dims) == 3
	unit := make([]int64, len(i.dims))
	for k, d := range i.dims {
		unit[k] = 1
		if d == cluster.GPU {
			unit[k] = 1000
		}
	}
	total := i.pick(clusterTotal(snap), nil)
	queues := v.Queues()
	index := make(map[cluster.QueueID]int32, len(queues))
	in := fairshare.Input{Total: total, Unit: unit, KValue: fairshare.Fixed(p.k), Queues: make([]fairshare.Queue, len(queues))}
	for k, q := range queues {
		index[q.ID] = int32(k)
		parent := int32(-1)
		if q.Parent != nil {
			parent = index[q.Parent.ID]
		}
		weight := i.pick(q.Weight, nil)
		for d := range weight {
			weight[d] *= fairshare.One / 1000
		}
		in.Queues[k] = fairshare.Queue{Parent: parent, Priority: q.Priority, Created: q.Created, UID: q.UID,
			Quota: i.quota(q), Limit: i.limit(q), Request: i.pick(q.Requested, nil), Weight: weight}
	}
	shares := p.divider.Divide(&in)
	i.order = fairshare.Order{Total: total, Unit: unit, Core: 3}
	i.states = make([]*fairshare.State, snap.MaxQueueID())
	i.chains = make([][]*fairshare.State, snap.MaxQueueID())
	for k, q := range queues {
		st := &fairshare.State{Priority: q.Priority, Created: q.Created, UID: q.UID, Quota: in.Queues[k].Quota, Limit: in.Queues[k].Limit,
			Fair: slices.Clone(shares.Of(k)), Allocated: i.live(q.Allocated), NonPreemptible: i.live(q.AllocatedNonPreemptible)}
		i.states[q.ID] = st
		chain := []*fairshare.State{st}
		if q.Parent != nil {
			chain = append(chain, i.chains[q.Parent.ID]...)
		}
		i.chains[q.ID] = chain
	}
	return i
}

// dividedDims lists CPU, memory, GPU, and every further dimension for which some queue states a quota, limit or weight.
func dividedDims(v *engine.View) []int {
	dims := []int{cluster.CPU, cluster.RAM, cluster.GPU}
	for d := cluster.Slots + 1; d < v.Snapshot().Dims.Len(); d++ {
		for _, q := range v.Queues() {
			if q.Quota.At(d) != 0 || q.LimitAt(d) != cluster.Unlimited || q.Weight.At(d) != 0 {
				dims = append(dims, d)
				break
			}
		}
	}
	return dims
}

// clusterTotal is what there is to divide: the allocatable of the nodes that take pods now, less what pods of other
// schedulers hold there.
func clusterTotal(snap *cluster.Snapshot) cluster.Resources {
	total := make(cluster.Resources, snap.Dims.Len())
	for _, id := range snap.NodeOrder {
		if n := snap.Node(id); n.Problem == "" {
			total.Add(n.Allocatable)
			total.Sub(n.Foreign)
		}
	}
	for d := range total {
		total[d] = max(0, total[d])
	}
	return total
}

// pick projects a vector on the divided dimensions.
func (i *instance) pick(r cluster.Resources, into []int64) []int64 {
	into = into[:0]
	for _, d := range i.dims {
		into = append(into, r.At(d))
	}
	return into
}

// live returns a projection that follows the session's ledger: the leading part of it when that is all that is divided.
func (i *instance) live(r cluster.Resources) []int64 {
	if i.lead {
		return r[:3:3]
	}
	return nil
}

// quota and limit: a queue that does not name a further dimension has no opinion on it.
func (i *instance) quota(q *engine.QueueLedger) []int64 {
	out := i.pick(q.Quota, nil)
	for k, d := range i.dims {
		if d > cluster.Slots && q.Quota.At(d) == 0 && q.LimitAt(d) == cluster.Unlimited && q.Weight.At(d) == 0 {
			out[k] = fairshare.Unlimited
		}
	}
	return out
}

func (i *instance) limit(q *engine.QueueLedger) []int64 {
	out := make([]int64, len(i.dims))
	for k, d := range i.dims {
		out[k] = q.LimitAt(d)
	}
	return out
}

// state returns a queue's state with what it holds now.
func (i *instance) state(id cluster.QueueID) *fairshare.State {
	st := i.states[id]
	if !i.lead {
		q := i.view.Queue(id)
		st.Allocated, st.NonPreemptible = i.pick(q.Allocated, st.Allocated), i.pick(q.AllocatedNonPreemptible, st.NonPreemptible)
	}
	return st
}

func (i *instance) request(r cluster.Resources, slot int) []int64 {
	if i.lead {
		return r[:min(3, len(r))]
	}
	i.buf[slot] = i.pick(r, i.buf[slot])
	return i.buf[slot]
}

// CompareQueues implements engine.QueueOrder.
func (i *instance) CompareQueues(l, r cluster.QueueID, lNext, rNext cluster.Resources) int {
	lk := i.order.Key(i.state(l), i.request(lNext, 0), nil)
	rk := i.order.Key(i.state(r), i.request(rNext, 1), nil)
	return fairshare.Compare(&lk, &rk)
}

// FairShare implements engine.QueueShares.
func (i *instance) FairShare(id cluster.QueueID) cluster.Resources {
	if int(id) >= len(i.states) || i.states[id] == nil {
		return nil
	}
	out := make(cluster.Resources, i.dims[len(i.dims)-1]+1)
	for k, d := range i.dims {
		out[d] = i.states[id].Fair[k]
	}
	return out
}

// CheckQueue implements engine.QueueGate.
func (i *instance) CheckQueue(g *engine.GangState, request cluster.Resources) engine.Verdict {
	chain := i.chains[g.Leaf.ID]
	if !i.lead {
		for q := g.Leaf; q != nil; q = q.Parent {
			i.state(q.ID)
		}
	}
	req := i.request(request, 0)
	if e, over := fairshare.OverLimit(chain, req); over {
		return i.verdict(engine.ReasonOverLimit, g.Leaf, e)
	}
	if !g.Preemptible {
		if e, over := fairshare.OverQuota(chain, req); over {
			return i.verdict(engine.ReasonNonPreemptibleOverQuota, g.Leaf, e)
		}
	}
	return engine.Verdict{}
}

func (i *instance) verdict(reason engine.Reason, leaf *engine.QueueLedger, e fairshare.Excess) engine.Verdict {
	q := leaf
	for range e.Level {
		q = q.Parent
	}
	return engine.Verdict{Code: engine.No, Reason: reason, Object: q.Name, Dim: i.view.Snapshot().Dims.Name(i.dims[e.Dim]),
		Need: e.Asked, Have: e.Have()}
}
