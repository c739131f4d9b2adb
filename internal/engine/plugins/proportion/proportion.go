// Package proportion is the policy of queues: it divides the cluster into fair shares, orders queues by them, keeps queues
// under their limits and non-preemptible work within quota, at every level, and says what one queue may take back from
// another. The maths is package fairshare's.
package proportion

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/fairshare"
)

// Name is the plugin's name in a profile.
const Name = "proportion"

// Factory declares the plugin. Argument "kValue" (default 1; 0 or less switches it off) says how strongly a queue's past usage
// counts against it; without usage data it has no effect. Argument "relcaimerSaturationMultiplier" (KAI's spelling;
// default 1, and no less) says how much better off than the queue it takes from a queue beyond its fair share may look:
// its part of its fair share counts that many times.
var Factory = policy.Makes(build, ReasonOverLimit, ReasonNonPreemptibleOverQuota, ReasonOverFairShare)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
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
	return p.open, args.Unknown("kValue", "relcaimerSaturationMultiplier"), nil
}

type plugin struct {
	k, saturation float64
	divider       fairshare.Divider
}

// core is how many leading dimensions always count: CPU, memory, GPU.
const core = cluster.GPU + 1

type instance struct {
	view   *policy.View
	order  fairshare.Order
	take   fairshare.Reclaim
	states []*fairshare.State   // by queue ID; their ledgers are the session's own, so they follow what is placed
	chains [][]*fairshare.State // by queue ID: the queue and its ancestors, leaf first
	takes  []distilled          // by queue ID: its place among those who are served
	gives  []distilled          // by queue ID: its place among those who give; nil until somebody has to
}

// distilled is a queue's key, as long as it holds what it held then and its next is the same: most comparisons are of queues
// for which neither has changed.
type distilled struct {
	charges int // 1 more than the ledger's
	dims    int // of next
	next    [keptDims]int64
	key     fairshare.Key
}

// keptDims is of how many dimensions the next is kept; keys of more are distilled each time.
const keptDims = 8

// key distils the state of a queue whose next gang asks for next, or which gives next.
func (i *instance) key(id cluster.QueueID, next cluster.Resources, gives bool) *fairshare.Key {
	all := &i.takes
	if gives {
		if all = &i.gives; i.gives == nil {
			i.gives = make([]distilled, len(i.takes))
		}
	}
	d, charges := &(*all)[id], i.view.Queue(id).Charges+1
	if d.charges == charges && slices.Equal(d.next[:d.dims], next) {
		return &d.key
	}
	d.charges = 0
	if len(next) <= keptDims {
		d.charges, d.dims = charges, copy(d.next[:], next)
	}
	if gives {
		d.key = i.order.Key(i.states[id], nil, next)
	} else {
		d.key = i.order.Key(i.states[id], next, nil)
	}
	return &d.key
}

// open opens the plugin for a run: O(nodes + queues × dimensions).
func (p *plugin) open(v *policy.View) *instance {
	i := &instance{view: v}
	snap, queues := v.Snapshot(), v.Queues()
	shared := sharedDims(v)
	unit := make([]int64, snap.Dims.Len())
	for d := range unit {
		unit[d] = 1
	}
	unit[cluster.GPU] = 1000
	total := clusterTotal(snap)
	index := make([]int32, v.MaxQueueID())
	in := fairshare.Input{Total: total, Unit: unit, Shared: shared, KValue: fairshare.Fixed(p.k), Queues: make([]fairshare.Queue, len(queues))}
	quotas := make([]int64, len(queues)*len(unit)) // one piece for all queues, as further down
	for k, q := range queues {
		index[q.ID] = int32(k)
		parent := int32(-1)
		if q.Parent != nil {
			parent = index[q.Parent.ID]
		}
		in.Queues[k] = fairshare.Queue{
			Parent: parent, Priority: q.Priority, Created: q.Created.UnixNano(), UID: q.UID,
			Quota: quota(quotas[k*len(unit):(k+1)*len(unit):(k+1)*len(unit)], q), Limit: q.Limit, Request: q.Queue.Requested, Weight: q.Weight,
			Usage: q.Usage, Held: q.Allocated, Served: cluster.Earliest(q.Served, snap.Now).UnixNano(),
		}
	}
	p.divider.AddUp(in.Queues)
	fair := p.divide(&in, queues)
	i.order = fairshare.Order{Total: total, Unit: unit, Shared: shared, Core: core}
	i.take = fairshare.Reclaim{Shared: shared, Core: core, Multiplier: fairshare.Fixed(p.saturation)}
	i.states = make([]*fairshare.State, v.MaxQueueID())
	i.chains = make([][]*fairshare.State, v.MaxQueueID())
	i.takes = make([]distilled, v.MaxQueueID())
	states, links := make([]fairshare.State, len(queues)), 0
	for _, q := range queues {
		links += q.Depth + 1
	}
	room := make([]*fairshare.State, 0, links)
	for k, q := range queues {
		st := &states[k]
		*st = fairshare.State{
			Priority: q.Priority, Created: q.Created.UnixNano(), UID: q.UID, Quota: in.Queues[k].Quota, Limit: q.Limit,
			Fair: fair(k), Allocated: q.Allocated, NonPreemptible: q.AllocatedNonPreemptible,
			Stuck: q.Stuck, StuckNonPreemptible: q.StuckNonPreemptible, Holding: q.Holding, HoldingNonPreemptible: q.HoldingNonPreemptible,
		}
		i.states[q.ID] = st
		from := len(room)
		if room = append(room, st); q.Parent != nil {
			room = append(room, i.chains[q.Parent.ID]...)
		}
		i.chains[q.ID] = room[from:len(room):len(room)]
	}
	return i
}

// divide returns the fair share of each queue, which the trace keeps beyond the next division. Where several faces share the cluster, what each has a claim
// on is the quota of its root, so that the quotas which another face hands out take nothing of it; of a face without a root each of its top queues has its own part of the claim.
func (p *plugin) divide(in *fairshare.Input, queues []*ledger.QueueLedger) func(k int) cluster.Resources {
	of, faces := split(queues)
	if of == nil {
		shares := p.divider.Divide(in).Clone()
		return func(k int) cluster.Resources { return shares.Of(k) }
	}
	fair, claims := p.divideFaces(in, of, faces)
	tops := map[string]int{}
	for k := range in.Queues {
		if in.Queues[k].Parent < 0 {
			tops[of[k]]++
		}
	}
	for k := range in.Queues {
		if of[k] == "" || in.Queues[k].Parent >= 0 {
			continue
		}
		claim := claims[of[k]]
		if tops[of[k]] > 1 {
			claim = fair(k)
		}
		for d := range in.Queues[k].Quota {
			if d < len(in.Shared) && in.Shared[d] && d < len(claim) {
				in.Queues[k].Quota[d] = claim[d]
			}
		}
	}
	return fair
}

// sharedDims marks CPU, memory, GPU, and every further dimension for which some queue states a quota, limit or weight.
func sharedDims(v *policy.View) []bool {
	shared := make([]bool, v.Snapshot().Dims.Len())
	shared[cluster.CPU], shared[cluster.RAM], shared[cluster.GPU] = true, true, true
	for d := cluster.Slots + 1; d < len(shared); d++ {
		shared[d] = slices.ContainsFunc(v.Queues(), func(q *ledger.QueueLedger) bool { return names(q, d) })
	}
	return shared
}

// names says whether the queue states anything about a further dimension.
func names(q *ledger.QueueLedger, d int) bool {
	return q.Quota.At(d) != 0 || q.LimitAt(d) != cluster.Unlimited || q.Weight.At(d) != 0
}

// quota fills out with the queue's quota; of further dimensions that it does not name it may have what it likes.
func quota(out []int64, q *ledger.QueueLedger) []int64 {
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
			for d, have := range n.Allocatable { // what others ask for beyond what the node has takes nothing from other nodes
				total[d] = min(cluster.MaxSum, total[d]+min(cluster.MaxSum, have)-max(0, min(have, n.Foreign.At(d))))
			}
			total[cluster.GPU] += n.ClaimGPUs
		}
	}
	total[cluster.GPU] += snap.Dims.SlicedGPUs(total)
	return total
}

// CompareQueues implements policy.QueueOrder.
func (i *instance) CompareQueues(l, r cluster.QueueID, lNext, rNext cluster.Resources) int {
	return fairshare.Compare(i.key(l, lNext, false), i.key(r, rNext, false))
}

// FairShare implements policy.QueueShares.
func (i *instance) FairShare(id cluster.QueueID) cluster.Resources {
	if int(id) >= len(i.states) || i.states[id] == nil {
		return nil
	}
	return i.states[id].Fair
}

// CheckQueue implements policy.QueueGate.
func (i *instance) CheckQueue(g *ledger.GangState, request cluster.Resources, now bool) policy.Verdict {
	overLimit, overQuota := fairshare.OverLimit, fairshare.OverQuota
	if now {
		overLimit, overQuota = fairshare.OverLimitNow, fairshare.OverQuotaNow
	}
	chain := i.chains[g.Leaf.ID]
	if e, over := overLimit(chain, request); over {
		return i.beside(chain[e.Level].Holding, chain[e.Level].Allocated, e, i.verdict(ReasonOverLimit, g.Leaf, e))
	}
	if !g.Preemptible {
		if e, over := overQuota(chain, request, i.order.Shared); over {
			st := chain[e.Level]
			return i.beside(st.HoldingNonPreemptible, st.NonPreemptible, e, i.verdict(ReasonNonPreemptibleOverQuota, g.Leaf, e))
		}
	}
	return policy.Verdict{}
}

// beside adds to a no what pods that are leaving have to do with it: without them the queue could take the request.
func (i *instance) beside(holding, allocated []int64, e fairshare.Excess, v policy.Verdict) policy.Verdict {
	if leaving := holding[e.Dim] - allocated[e.Dim]; leaving > 0 && e.Asked <= e.Bound-allocated[e.Dim] {
		v.Detail = "pods that are leaving hold " + i.view.Snapshot().Dims.FormatOne(e.Dim, leaving) + " until they have gone"
	}
	return v
}

// OverFixed implements policy.FixedQuota.
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

func (i *instance) verdict(reason *policy.Reason, leaf *ledger.QueueLedger, e fairshare.Excess) policy.Verdict {
	q := leaf
	for range e.Level {
		q = q.Parent
	}
	return policy.Verdict{
		Code: policy.No, Reason: reason, Object: q.Name, Dim: i.view.Snapshot().Dims.Name(e.Dim),
		Need: e.Asked, Have: e.Have(),
	}
}
