// Package predicates says which nodes a pod may run on: node condition, taints, node selector and affinity, worker
// labels, how the GPUs are cut into slices, host ports; and which pods can run on no node at all: too big, a missing ConfigMap, a feature this version
// does not schedule. Resources and pod slots are the engine's own business.
package predicates

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Name is the plugin's name in a profile.
const Name = "predicates"

// New builds the plugin; it takes no arguments.
func New(args engine.Arguments) (engine.Plugin, []string, error) {
	return plugin{}, args.Unknown(), nil
}

type plugin struct{}

type instance struct {
	view      *engine.View
	largest   cluster.Resources                       // per dimension, over all nodes
	slices    []cluster.Slice                         // the dimensions that are slices of GPUs
	legacy    bool                                    // somebody has slices by annotation
	came      map[cluster.NodeID][]*cluster.Pod       // in this run, last one last; only those that mind legacy slices
	taints    [][]string                              // by node and taint, in words, as many pods are refused for the same ones
	selectors map[uint64]*selector                    // by class
	last      *selector                               // the one that was asked for last
	ports     map[cluster.NodeID][][]cluster.HostPort // opened by pods that came in this run, last one last
}

// selector is a class's node selection, compiled.
type selector struct {
	class    uint64
	labels   []label
	affinity *nodeaffinity.NodeSelector
	broken   bool // it cannot be parsed and matches nothing
}

// label is one that a node must have.
type label struct{ key, value string }

// Open implements engine.Plugin.
func (plugin) Open(v *engine.View) engine.Instance {
	i := &instance{view: v, selectors: map[uint64]*selector{}, ports: map[cluster.NodeID][][]cluster.HostPort{}, came: map[cluster.NodeID][]*cluster.Pod{}}
	if v == nil {
		return i
	}
	snap := v.Snapshot()
	i.slices, i.legacy = snap.Dims.Slices(), snap.HasLegacySlices()
	i.taints = make([][]string, snap.MaxNodeID())
	i.largest = make(cluster.Resources, snap.Dims.Len())
	for _, id := range snap.NodeOrder {
		for d, x := range snap.Node(id).Allocatable {
			i.largest[d] = max(i.largest[d], x)
		}
	}
	return i
}

// CheckPod implements engine.PodGate.
func (i *instance) CheckPod(c *cluster.Class, namespace string) engine.Verdict {
	if c.Unsupported != "" {
		return engine.Verdict{Code: engine.NoForever, Reason: engine.ReasonUnsupported, Object: c.Unsupported}
	}
	snap := i.view.Snapshot()
	if known := snap.Objects(cluster.ConfigMaps); known != nil {
		for _, name := range c.ConfigMaps {
			if _, ok := known[namespace+"/"+name]; !ok {
				return engine.Verdict{Code: engine.No, Reason: engine.ReasonConfigMapMissing, Object: namespace + "/" + name}
			}
		}
	}
	if len(snap.NodeOrder) == 0 {
		return engine.Verdict{}
	}
	for d, x := range c.Requests {
		if x > i.largest.At(d) {
			return engine.Verdict{Code: engine.No, Reason: engine.ReasonTooBigForAnyNode, Dim: snap.Dims.Name(d), Need: x, Have: i.largest.At(d)}
		}
	}
	if need := int64(c.Share.Devices) * cluster.Whole; need > i.largest.At(cluster.GPU) {
		return engine.Verdict{Code: engine.No, Reason: engine.ReasonTooBigForAnyNode, Dim: "gpu", Need: need, Have: i.largest.At(cluster.GPU)}
	}
	return engine.Verdict{}
}

// CheckStatic implements engine.NodeStatic.
func (i *instance) CheckStatic(c *cluster.Class, n *cluster.Node) engine.Verdict {
	if n.Problem != "" {
		return engine.Verdict{Code: engine.No, Reason: engine.ReasonNodeNotReady, Object: n.Problem}
	}
	for t := range n.Taints {
		taint := &n.Taints[t]
		if taint.Effect != v1.TaintEffectPreferNoSchedule && !tolerated(c.Tolerations, taint) {
			return engine.Verdict{Code: engine.No, Reason: engine.ReasonTaint, Object: i.words(n, t)}
		}
	}
	if len(c.NodeSelector) > 0 || c.NodeAffinity != nil {
		if !i.selector(c).matches(n) {
			return engine.Verdict{Code: engine.No, Reason: engine.ReasonNodeSelector}
		}
	}
	if c.Share.MemoryMiB > 0 && c.Share.Portion == 0 && n.GPUMemoryMiB == 0 && n.Allocatable.At(cluster.GPU) > 0 {
		return engine.Verdict{Code: engine.No, Reason: engine.ReasonNoDeviceMemory}
	}
	if len(c.RestrictTo) > 0 && !hasAny(n.Labels, c.RestrictTo) {
		return engine.Verdict{Code: engine.No, Reason: engine.ReasonRestrictedNode}
	}
	return i.checkSlicing(c, n)
}

func (i *instance) words(n *cluster.Node, t int) string {
	if i.taints[n.ID] == nil {
		i.taints[n.ID] = make([]string, len(n.Taints))
	}
	text := &i.taints[n.ID][t]
	if *text == "" {
		*text = n.Taints[t].ToString()
	}
	return *text
}

func (i *instance) selector(c *cluster.Class) *selector {
	if i.last != nil && i.last.class == c.ID { // a class is asked about node by node
		return i.last
	}
	s := i.selectors[c.ID]
	if s == nil {
		s = &selector{class: c.ID}
		for k, v := range c.NodeSelector { // order: all must match
			s.labels = append(s.labels, label{k, v})
		}
		if a := c.NodeAffinity; a != nil && a.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			var err error
			s.affinity, err = nodeaffinity.NewNodeSelector(a.RequiredDuringSchedulingIgnoredDuringExecution)
			s.broken = err != nil
		}
		i.selectors[c.ID] = s
	}
	i.last = s
	return s
}

func (s *selector) matches(n *cluster.Node) bool {
	if s.broken {
		return false
	}
	for _, want := range s.labels {
		if have, ok := n.Labels[want.key]; !ok || have != want.value {
			return false
		}
	}
	if s.affinity == nil {
		return true
	}
	node := v1.Node{}
	node.Name, node.Labels = n.Name, n.Labels
	return s.affinity.Match(&node)
}

// tolerated says whether one of the tolerations covers the taint. An operator this code does not know tolerates nothing.
func tolerated(ts []v1.Toleration, taint *v1.Taint) bool {
	for k := range ts {
		t := &ts[k]
		if t.Effect != "" && t.Effect != taint.Effect || t.Key != "" && t.Key != taint.Key {
			continue
		}
		switch t.Operator {
		case v1.TolerationOpExists:
			return true
		case "", v1.TolerationOpEqual:
			if t.Key != "" && t.Value == taint.Value {
				return true
			}
		}
	}
	return false
}

func hasAny(m map[string]string, keys []string) bool {
	for _, k := range keys {
		if _, ok := m[k]; ok {
			return true
		}
	}
	return false
}

// Wants implements engine.NodeFilter: only pods that open host ports need a look at who else does, and those that ask for
// slices one at who has them by annotation, if anybody does.
func (i *instance) Wants(c *cluster.Class) bool {
	return len(c.HostPorts) > 0 || i.mindsLegacy(c)
}

// CheckNode implements engine.NodeFilter. A port that is being released, or is promised with a pod's room, is as good as the
// room is.
func (i *instance) CheckNode(p *cluster.Pod, n *cluster.Node) engine.Verdict {
	if v := i.checkPorts(p.Class, n, false); !v.Yes() {
		return v
	}
	snap := i.view.Snapshot()
	for _, want := range p.Class.HostPorts {
		for h := range i.view.Held(n.ID) {
			if q := snap.Pod(h.Waits); q != nil && q != p && conflict(want, q.Class.HostPorts) {
				return taken(want)
			}
		}
		for _, ports := range i.ports[n.ID] {
			if conflict(want, ports) {
				return taken(want)
			}
		}
	}
	return i.checkLegacy(p.Class, n)
}

// CheckReady implements engine.NodeReady.
func (i *instance) CheckReady(p *cluster.Pod, n *cluster.Node) engine.Verdict {
	return i.checkPorts(p.Class, n, true)
}

// checkPorts asks who is on the node and was not evicted; now, also of those that are leaving, and of those that this run evicts.
func (i *instance) checkPorts(c *cluster.Class, n *cluster.Node, now bool) engine.Verdict {
	for _, want := range c.HostPorts {
		for _, id := range n.Pods {
			q := i.view.Snapshot().Pod(id)
			if conflict(want, q.Class.HostPorts) && (now || q.Phase != cluster.Releasing && i.view.NodeOf(q) == n.ID) {
				return taken(want)
			}
		}
	}
	return engine.Verdict{}
}

func taken(port cluster.HostPort) engine.Verdict {
	return engine.Verdict{Code: engine.No, Reason: engine.ReasonHostPort, Object: port.Protocol + "/" + strconv.Itoa(int(port.Port))}
}

func conflict(want cluster.HostPort, open []cluster.HostPort) bool {
	for _, o := range open {
		if want.Conflicts(o) {
			return true
		}
	}
	return false
}

// Done implements engine.Observer: a pod that comes to a node opens its ports there. Who of the node's own pods is still
// there is the view's to say.
func (i *instance) Done(op engine.Op) {
	if ports := op.Pod.Class.HostPorts; comes(op) && len(ports) > 0 {
		i.ports[op.Node] = append(i.ports[op.Node], ports)
	}
	if comes(op) && i.mindsLegacy(op.Pod.Class) {
		i.came[op.Node] = append(i.came[op.Node], op.Pod)
	}
}

// Undone implements engine.Observer.
func (i *instance) Undone(op engine.Op) {
	if comes(op) && len(op.Pod.Class.HostPorts) > 0 {
		i.ports[op.Node] = i.ports[op.Node][:len(i.ports[op.Node])-1]
	}
	if comes(op) && i.mindsLegacy(op.Pod.Class) {
		i.came[op.Node] = i.came[op.Node][:len(i.came[op.Node])-1]
	}
}

// comes says whether the operation brings a pod to a node that it was not on.
func comes(op engine.Op) bool { return op.Gives() > 0 && op.Verb != engine.Spare }
