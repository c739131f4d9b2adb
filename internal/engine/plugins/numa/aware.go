package numa

import (
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// AwareName is the name, in a scheduler file of Volcano's, of the plugin that lets pods say by which policy their node has to align them.
const AwareName = "numa-aware"

const (
	argWeight  = "weight"
	mostWeight = 1000
)

// AwareFactory declares the plugin: a pod that names a policy goes to nodes alone that align by just that policy, give containers CPUs of their own, and have zones that take the pod by
// it. Nodes say so in a Numatopology, or in a NodeResourceTopology, which counts where there are both. The fewer zones a pod is served from the more points a node has, up to 100
// times the argument "weight" (1). Pods that name no policy it has nothing to say of, but keeps account of what they take.
//
// Volcano's description has the rule about policies, and that hints are merged as in the kubelet; the points are Muster's own.
var AwareFactory = policy.Makes(buildAware, ReasonZones, ReasonZonePolicy)

func buildAware(args policy.Arguments) (func(*policy.View) *aware, []string, error) {
	p := plugin{reconstruct: true, sources: []cluster.ObjectKind{cluster.NodeResourceTopologies, cluster.Numatopologies}}
	weight, err := args.Whole(argWeight, 1, mostWeight)
	if err != nil {
		return nil, nil, err
	}
	return func(v *policy.View) *aware { return &aware{p.open(v), weight} }, args.Unknown(argWeight), nil
}

// aware is the zones of one run, for pods that name a policy.
type aware struct {
	*instance
	weight int64
}

// Wants implements policy.NodeFilter.
func (a *aware) Wants(c *cluster.Class) bool { return c.ZonesBy != "" }

// CheckNode implements policy.NodeFilter.
func (a *aware) CheckNode(p *cluster.Pod, n *cluster.Node) policy.Verdict {
	z := a.zones(n.Name)
	no := policy.Verdict{Code: policy.No, Reason: ReasonZonePolicy, Object: string(p.Class.ZonesBy)}
	switch {
	case z == nil || len(z.Zones) == 0:
		no.Detail = "it says nothing of zones"
	case z.Policy != p.Class.ZonesBy:
		no.Detail = "its policy is " + string(z.Policy)
	case z.Shared:
		no.Detail = "its CPU manager is not static"
	default:
		return a.instance.CheckNode(p, n)
	}
	return no
}

// ScoreNode implements policy.NodeScore.
func (a *aware) ScoreNode(c *cluster.Class, n *cluster.Node) int64 {
	if c.ZonesBy == "" {
		return 0
	}
	return a.weight * a.instance.ScoreNode(c, n)
}

// Detail implements policy.Detailer.
func (a *aware) Detail(op ledger.Op, to *policy.Detail) {
	if op.Pod.Class.ZonesBy != "" {
		a.instance.Detail(op, to)
	}
}
