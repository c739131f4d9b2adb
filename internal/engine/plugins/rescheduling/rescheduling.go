package rescheduling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// Factory declares the plugin.
var Factory = policy.Makes(build)

func build(args policy.Arguments) (func(*policy.View) *instance, []string, error) {
	low, every, unknown, err := read(args)
	if err != nil {
		return nil, nil, err
	}
	return func(v *policy.View) *instance {
		if low == nil {
			return nil
		}
		i := &instance{view: v, every: every, spared: low.spared(v.Snapshot())}
		for _, b := range low.of {
			if dim, ok := policy.Dimension(v.Snapshot().Dims, b.name); ok {
				i.of = append(i.of, bound{b, dim})
			}
		}
		return i
	}, unknown, nil
}

// spared is the priority from which on nobody goes: that of the class, or where the cluster has none of the name that of the lowest of the system's.
func (u *utilization) spared(snap *cluster.Snapshot) int32 {
	const critical, node = 2_000_000_000, "system-node-critical"
	if u.sparing == node {
		return critical + 1000
	}
	if c, ok := snap.Objects(cluster.PriorityClasses)[u.sparing].(*schedulingv1.PriorityClass); ok {
		return c.Value
	}
	return critical
}

// bound are the bounds of a dimension.
type bound struct {
	bounds
	dim int
}

type instance struct {
	view   *policy.View
	every  time.Duration
	of     []bound
	spared int32
	few    map[cluster.NodeID]bool // nodes of which little is used, when Victims was asked
}

// exceeds says whether more than so many percent of a dimension of a node are used, once all that is leaving has gone and more has come. Of what a node does not have nothing is
// used.
func (i *instance) exceeds(n *cluster.Node, b bound, more, percent int64) bool {
	of := n.Allocatable.At(b.dim)
	return of > 0 && compare(of-i.view.Later(n.ID).At(b.dim)+more, of, percent) > 0
}

// compare compares x of y with a percentage, without overflow: negative when it is less.
func compare(x, y, percent int64) int {
	if y > math.MaxInt64/200 {
		x, y = x/200, y/200
	}
	return cmp.Compare(x*100, y*percent)
}

// much says whether much of the node is used of something that a pod there asks for; "" for not.
func (i *instance) much(p *cluster.Pod, n *cluster.Node) string {
	for _, b := range i.of {
		if p.Class.Requests.At(b.dim) > 0 && i.exceeds(n, b, 0, b.much) {
			return b.name
		}
	}
	return ""
}

// little says whether little of the node is used.
func (i *instance) little(n *cluster.Node) bool {
	return n.Problem == "" && !slices.ContainsFunc(i.of, func(b bound) bool {
		of := n.Allocatable.At(b.dim)
		return of > 0 && compare(of-i.view.Later(n.ID).At(b.dim), of, b.little) >= 0
	})
}

// priority is that of a pod's gang.
func (i *instance) priority(p *cluster.Pod) int32 {
	if g := i.view.Snapshot().Gang(p.Gang); g != nil {
		return g.Priority
	}
	return 0
}

// Victims implements policy.VictimSource. It costs O(nodes), and where some node is used much and another little O(pods of those).
func (i *instance) Victims() (out []*cluster.Pod) {
	snap := i.view.Snapshot()
	i.few = map[cluster.NodeID]bool{}
	var over []*cluster.Node
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		if i.little(n) {
			i.few[id] = true
		}
		if slices.ContainsFunc(i.of, func(b bound) bool { return i.exceeds(n, b, 0, b.much) }) {
			over = append(over, n)
		}
	}
	if len(i.few) == 0 {
		return nil
	}
	for _, n := range over {
		at := len(out)
		for _, id := range n.Pods {
			if p := snap.Pod(id); p.Ours && !p.Kept && p.Phase == cluster.Running && max(p.Priority, i.priority(p)) < i.spared && i.much(p, n) != "" {
				out = append(out, p)
			}
		}
		slices.SortFunc(out[at:], func(a, b *cluster.Pod) int {
			return cmp.Or(cmp.Compare(i.priority(a), i.priority(b)), cmp.Compare(a.Priority, b.Priority), b.Created.Compare(a.Created), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
	}
	return out
}

// Leaves implements policy.VictimSource: nobody goes who has nowhere to go.
func (*instance) Leaves() bool { return false }

// Every implements policy.VictimSource.
func (i *instance) Every() time.Duration { return i.every }

// Why implements policy.VictimSource.
func (i *instance) Why(u *ledger.VictimUnit) (rule string) {
	for _, p := range u.Pods {
		n := i.view.Snapshot().Node(p.Node)
		of := i.much(p, n)
		if of == "" {
			return ""
		}
		if rule == "" {
			rule = fmt.Sprintf("of the %s of node %s more is asked for than %d percent, and other nodes have room", of, n.Name, i.target(of))
		}
	}
	return rule
}

// target is how much of a resource is not much.
func (i *instance) target(name string) int64 {
	at := slices.IndexFunc(i.of, func(b bound) bool { return b.name == name })
	return i.of[at].much
}

// MayGo implements policy.VictimSource.
func (i *instance) MayGo(p *cluster.Pod, n *cluster.Node) bool {
	return i.few[n.ID] && !slices.ContainsFunc(i.of, func(b bound) bool { return i.exceeds(n, b, p.Class.Requests.At(b.dim), b.much) })
}
