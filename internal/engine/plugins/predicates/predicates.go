// Package predicates says which nodes a pod may run on: node condition, taints, node selector and affinity, worker
// labels, how the GPUs are cut into slices, host ports; and which pods can run on no node at all: too big, a missing ConfigMap, a feature this version
// does not schedule. Resources and pod slots are the engine's own business.
package predicates

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "predicates"

// Factory declares the plugin; it takes no arguments.
var Factory = policy.Opens(open,
	ReasonNoDeviceMemory, ReasonNodeNotReady, ReasonTaint, ReasonNodeSelector, ReasonHostPort, ReasonRestrictedNode, ReasonNotInSet, ReasonSlicing,
	ReasonLegacySlices, ReasonTooBigForAnyNode, ReasonConfigMapMissing, ReasonUnsupported,
)

type instance struct {
	view    *policy.View
	largest cluster.Resources                 // per dimension, over all nodes
	slices  []cluster.Slice                   // the dimensions that are slices of GPUs
	legacy  bool                              // somebody has slices by annotation
	came    map[cluster.NodeID][]*cluster.Pod // in this run, last one last; only those that mind legacy slices
	statics statics
	ports   *ports // nil until some pod with ports is asked about, comes or goes
}

// open opens the plugin for a run.
func open(v *policy.View) *instance {
	i := &instance{view: v, came: map[cluster.NodeID][]*cluster.Pod{}}
	snap := v.Snapshot()
	i.slices, i.legacy = snap.Dims.Slices(), snap.HasLegacySlices()
	i.statics.open()
	i.largest = make(cluster.Resources, snap.Dims.Len())
	for _, id := range snap.NodeOrder {
		for d, x := range snap.Node(id).Allocatable {
			i.largest[d] = max(i.largest[d], x)
		}
	}
	return i
}

// CheckPod implements policy.PodGate.
func (i *instance) CheckPod(c *cluster.Class, namespace string) policy.Verdict {
	if c.Unsupported != "" {
		return policy.Verdict{Code: policy.NoForever, Reason: ReasonUnsupported, Object: c.Unsupported}
	}
	snap := i.view.Snapshot()
	if known := snap.Objects(cluster.ConfigMaps); known != nil {
		for _, name := range c.ConfigMaps {
			if _, ok := known[namespace+"/"+name]; !ok {
				return policy.Verdict{Code: policy.No, Reason: ReasonConfigMapMissing, Object: namespace + "/" + name}
			}
		}
	}
	if len(snap.NodeOrder) == 0 {
		return policy.Verdict{}
	}
	for d, x := range c.Requests {
		if x > i.largest.At(d) {
			return policy.Verdict{Code: policy.No, Reason: ReasonTooBigForAnyNode, Dim: snap.Dims.Name(d), Need: x, Have: i.largest.At(d)}
		}
	}
	if need := int64(c.Share.Devices) * cluster.Whole; need > i.largest.At(cluster.GPU) {
		return policy.Verdict{Code: policy.No, Reason: ReasonTooBigForAnyNode, Dim: "gpu", Need: need, Have: i.largest.At(cluster.GPU)}
	}
	return policy.Verdict{}
}

func hasAny(m map[string]string, keys []string) bool {
	for _, k := range keys {
		if _, ok := m[k]; ok {
			return true
		}
	}
	return false
}

// Wants implements policy.NodeFilter: only pods that open host ports need a look at who else does, and those that ask for
// slices one at who has them by annotation, if anybody does.
func (i *instance) Wants(c *cluster.Class) bool {
	return len(c.HostPorts) > 0 || i.mindsLegacy(c)
}

// CheckNode implements policy.NodeFilter. A port that is being released, or is promised with a pod's room, is as good as the
// room is.
func (i *instance) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	if len(p.Class.HostPorts) == 0 {
		return i.checkLegacy(p.Class, n)
	}
	x := i.index()
	if v := x.check(p.Class, n, func(q *cluster.Pod) bool { return i.view.NodeOf(q) == n.ID }); !v.Yes() {
		return v
	}
	for h := range i.view.Held(n.ID) {
		if q := x.snap.Pod(h.Waits); q != nil && q != p && len(q.Class.HostPorts) > 0 {
			set, w := x.set(q.Class), x.wanted(p.Class)
			if k := w.first[set]; k >= 0 {
				return *w.taken(k)
			}
		}
	}
	return i.checkLegacy(p.Class, n)
}

// Refuses implements policy.NodeRefusals, for ports that nobody is promised.
func (i *instance) Refuses(p *cluster.Pod) ([]uint64, *policy.Verdict) {
	if len(p.Class.HostPorts) == 0 {
		return nil, nil
	}
	w := i.index().wanted(p.Class)
	if len(w.ports) > 1 {
		return w.bits, nil
	}
	return w.bits, w.taken(0)
}

// RefusesAll implements policy.NodeRefusals: ports are free when others have gone.
func (i *instance) RefusesAll(*cluster.Pod) bool { return false }

// CheckReady implements policy.NodeReady.
func (i *instance) CheckReady(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	if len(p.Class.HostPorts) == 0 {
		return policy.Verdict{}
	}
	return i.index().ready(p.Class, n)
}

// Done implements policy.Observer: a pod that comes to a node opens its ports there, and one that goes closes them.
func (i *instance) Done(op ledger.Op) {
	if c := op.Pod.Class; len(c.HostPorts) > 0 && op.Gives() != 0 {
		x := i.index()
		x.record(portChange{x.set(c), op.Node, int32(op.Gives())})
		if comes(op) {
			x.came[op.Node] = append(x.came[op.Node], x.set(c))
		}
	}
	if comes(op) && i.mindsLegacy(op.Pod.Class) {
		i.came[op.Node] = append(i.came[op.Node], op.Pod)
	}
}

// Undone implements policy.Observer.
func (i *instance) Undone(op ledger.Op) {
	if c := op.Pod.Class; len(c.HostPorts) > 0 && op.Gives() != 0 {
		x := i.index()
		x.record(portChange{x.set(c), op.Node, -int32(op.Gives())})
		if comes(op) {
			x.came[op.Node] = x.came[op.Node][:len(x.came[op.Node])-1]
		}
	}
	if comes(op) && i.mindsLegacy(op.Pod.Class) {
		i.came[op.Node] = i.came[op.Node][:len(i.came[op.Node])-1]
	}
}

// comes says whether the operation brings a pod to a node that it was not on.
func comes(op ledger.Op) bool { return op.Gives() > 0 && op.Verb != ledger.Spare }
