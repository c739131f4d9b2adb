package tdm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/ledger"
)

// Victims implements policy.VictimSource: revocable pods that run on nodes of zones that the file names and that are closed, node by node, by name; none that say that they are
// not evicted, nor of a gang that its budget lets give nothing.
func (i *instance) Victims() (out []*cluster.Pod) {
	l, snap := i.nodes(), i.view.Snapshot()
	if l.manyShut == 0 {
		return nil
	}
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		if _, known := i.zones[n.Labels[Label]]; !known || l.shut[id>>6]&(1<<(id&63)) == 0 {
			continue
		}
		at := len(out)
		for _, pod := range n.Pods {
			if p := snap.Pod(pod); p.Ours && p.Class.Revocable && p.Phase == cluster.Running && !p.Kept && i.gives(p) {
				out = append(out, p)
			}
		}
		slices.SortFunc(out[at:], func(a, b *cluster.Pod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
		})
	}
	return out
}

// gives says whether the owner of a pod's gang lets any of it go.
func (i *instance) gives(p *cluster.Pod) bool {
	g := i.view.Gang(p.Gang)
	return g != nil && i.mayGive(g) > 0
}

// Leaves implements policy.VictimSource: what was lent is given back.
func (*instance) Leaves() bool { return true }

// Every implements policy.VictimSource.
func (i *instance) Every() time.Duration { return i.every }

// Why implements policy.VictimSource: pod by pod as many of a gang as its budget says. What goes in one piece, because the gang, or a set of it, cannot do without, goes at once and
// alone, unless the budget says how many pods of the gang stay and fewer would.
func (i *instance) Why(u *ledger.VictimUnit) string {
	b, many, may := u.Gang.Budget, int64(len(u.Pods)), i.mayGive(u.Gang)
	if (many > 1 || u.BelowMinimum) && (b == nil || !b.Left) {
		may = many
	}
	if i.taken[u.Gang.ID]+many > may {
		return ""
	}
	for _, p := range u.Pods {
		n := i.view.Snapshot().Node(p.Node)
		if z, known := i.zones[n.Labels[Label]]; known && !z.open(i.view.Snapshot().Now) {
			return fmt.Sprintf("node %s is lent, and its revocable zone %s is open %s", n.Name, n.Labels[Label], z)
		}
	}
	return ""
}

// MayGo implements policy.VictimSource: nodes of closed zones take nobody anyway.
func (*instance) MayGo(*cluster.Pod, *cluster.Node) bool { return true }
