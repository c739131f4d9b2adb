// Package numa places pods as the topology managers of their nodes will: what a pod's containers must have from few NUMA
// zones (whole CPUs, memory and huge pages of guaranteed pods, devices of all) is taken from zones of a ledger, by the
// node's policy and scope. Nodes that would refuse the pod are filtered out, nodes that serve it from fewer zones score
// higher, and the zones it is expected to get go with the decision.
//
// What is free in a zone is what it can give in all, minus what is on record for the pods there: the placement that the
// node reported for a pod, or else the one that was predicted when the pod was placed. The plugin asks nobody else: nodes
// without a NodeResourceTopology take every pod. docs/concepts/numa.md has the rules.
package numa

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Name is the plugin's name in a profile.
const Name = "numa"

// The plugin's arguments.
const (
	argIgnore      = "ignoreList"
	argReconstruct = "reconstructAvailable"
)

// Factory declares the plugin. Argument "ignoreList" names resources that are not aligned, separated by commas; with
// "reconstructAvailable" false, what a node reports as available counts, instead of what is on record for its pods.
var Factory = policy.Makes(build, ReasonZones)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	p := plugin{ignore: map[string]bool{}, reconstruct: true, sources: []cluster.ObjectKind{cluster.NodeResourceTopologies}}
	for _, name := range strings.Split(args[argIgnore], ",") {
		if name = strings.TrimSpace(name); name != "" {
			p.ignore[dimension(name)] = true
		}
	}
	if text := args[argReconstruct]; text != "" {
		var err error
		if p.reconstruct, err = strconv.ParseBool(text); err != nil {
			return nil, nil, fmt.Errorf("argument %q is %q; it must be true or false", argReconstruct, text)
		}
	}
	return p.open, args.Unknown(argIgnore, argReconstruct), nil
}

// dimension returns the model's name of a resource.
func dimension(resource string) string {
	if resource == "nvidia.com/gpu" {
		return "gpu"
	}
	return resource
}

type plugin struct {
	ignore      map[string]bool
	reconstruct bool
	sources     []cluster.ObjectKind // the kinds that say what zones a node has: of two of one node the first counts
}

// zones are what a node says of its zones; nil for nothing.
func (i *instance) zones(node string) *cluster.NodeZones {
	for _, kind := range i.sources {
		if z, ok := i.snap.Object(kind, node).(*cluster.NodeZones); ok {
			return z
		}
	}
	return nil
}

// instance is the zones of one run. A node's ledger is made when it is first asked for.
type instance struct {
	plugin
	view    *policy.View
	snap    *cluster.Snapshot
	nodes   map[cluster.NodeID]*zoneLedger
	demands map[uint64]*demand // by class
	placed  map[cluster.PodID]placement
	journal []entry
	known   answers
	strict  bool // some node's policy refuses pods
	widest  int  // most zones of any node; 0 when no node has told of zones
}

// open opens the plugin for a run.
func (p plugin) open(v *policy.View) *instance {
	i := &instance{
		plugin: p, view: v, nodes: map[cluster.NodeID]*zoneLedger{}, demands: map[uint64]*demand{}, placed: map[cluster.PodID]placement{},
	}
	i.snap = v.Snapshot()
	for _, kind := range i.sources {
		for _, o := range i.snap.Objects(kind) { // order: maxima
			if z, ok := o.(*cluster.NodeZones); ok {
				i.widest = max(i.widest, len(z.Zones))
				i.strict = i.strict || z.Policy == cluster.ZonesSingle || z.Policy == cluster.ZonesRestricted
			}
		}
	}
	return i
}

// Wants implements policy.NodeFilter.
func (i *instance) Wants(c *cluster.Class) bool { return i.strict && len(i.demand(c).each) > 0 }

// CheckNode implements policy.NodeFilter.
func (i *instance) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	l := i.ledger(n)
	if l == nil || l.policy == cluster.ZonesBestEffort {
		return policy.Verdict{}
	}
	out := policy.Verdict{Code: policy.No, Reason: ReasonZones, Object: string(l.policy)}
	switch _, v := i.place(l, p.Class, i.later(l)); v {
	case short:
	case never:
		out.Detail = "even if it were empty"
	case unknown:
		out.Partial = true
	default:
		return policy.Verdict{}
	}
	return out
}

// CheckStay implements policy.NodeStay: the zones that are on record for the pod have as much of everything as when the run began, or
// all that it had. Of a pod without a record nobody knows its zones; some have to be left.
func (i *instance) CheckStay(p *cluster.Pod, n *cluster.Node) bool {
	l := i.ledger(n)
	if l == nil || l.policy == cluster.ZonesBestEffort {
		return true
	}
	had, known := l.record(p, i.snap.Dims), false
	later := i.later(l)
	for k, x := range had.v {
		if known = known || x > 0; x > 0 && later.v[k]-x < l.short(k) {
			return false
		}
	}
	return known || i.CheckNode(p, n).Yes()
}

// CheckReady implements policy.NodeReady: zones that are still being given back cannot be used at once.
func (i *instance) CheckReady(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	l := i.ledger(n)
	if l == nil || l.policy == cluster.ZonesBestEffort {
		return policy.Verdict{}
	}
	if _, v := i.place(l, p.Class, i.now(l)); v != fits {
		return policy.Verdict{Code: policy.No, Reason: ReasonZones, Object: string(l.policy)}
	}
	return policy.Verdict{}
}

// most is the score of a node that serves a pod from one zone.
const most = 100 * policy.ScorePoint

// ScoreNode implements policy.NodeScore: the fewer zones, the better. A node that aligns nothing, or says nothing of its
// zones, counts as if the pod were spread over all of them.
func (i *instance) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	if i.widest == 0 || len(i.demand(c).each) == 0 {
		return 0
	}
	z := i.zones(n.Name)
	if z == nil || len(z.Zones) == 0 {
		return most / int64(i.widest)
	}
	l := i.ledger(n)
	if l == nil {
		return most / int64(len(z.Zones))
	}
	taken, v := i.place(l, c, i.later(l))
	if v != fits {
		return 0
	}
	if span := taken.span(); span > 0 {
		return most / int64(span)
	}
	return most / int64(len(z.Zones))
}

// Detail implements policy.Detailer: the zones that were chosen go with the decision.
func (i *instance) Detail(op ledger.Op, to *policy.Detail) {
	if at, ok := i.placed[op.Pod.ID]; ok {
		to.Zones = at.on.shares(at.taken, i.snap.Dims)
	}
}
