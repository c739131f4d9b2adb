package dynamicresources

import (
	"crypto/sha256"
	"encoding/json"
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Most nodes of a cluster publish the same devices, each under its own name. Where nobody has got any of them, what the allocator
// said to a class on one of these twins it says on all: thousands of claims that no device satisfies, no two of which are alike,
// are then tried on each sort of node and not on each node. A yes is not shared, as it names devices.

// twin is a sort of nodes, by what they publish; the zero twin is a sort of its own for each node.
type twin [sha256.Size]byte

// denied is a no that holds for a sort of nodes whose devices are all there.
type denied struct {
	class   uint64
	of      twin
	byClaim string // what extended resources are given as devices there
	side    side
}

// twin returns the sort of a node: O(what it publishes) once, until some slice changes.
func (c *catalog) twin(node string) twin {
	if len(c.shared) > 0 { // they may be there for some nodes and not for others
		return twin{}
	}
	out, known := c.twins[node]
	if known {
		return out
	}
	specs := make([]resourceapi.ResourceSliceSpec, len(c.byNode[node]))
	pools := map[poolKey]string{}
	for i, s := range c.byNode[node] {
		specs[i] = s.Spec
		key := poolKey{s.Spec.Driver, s.Spec.Pool.Name}
		if _, met := pools[key]; !met {
			pools[key] = string(rune('0' + len(pools)))
		}
		specs[i].NodeName, specs[i].Pool.Name = nil, pools[key]
	}
	if text, err := json.Marshal(specs); err == nil {
		out = sha256.Sum256(text)
	}
	c.twins[node] = out
	return out
}

// intact says whether nobody has got anything of what a node publishes.
func (l *ledger) intact(node string, s side) bool {
	for _, slice := range l.catalog.byNode[node] {
		if l.used[s].pools[poolKey{slice.Spec.Driver, slice.Spec.Pool.Name}] != 0 {
			return false
		}
	}
	return true
}

// sort names the sort of a node for a question; false if its answer may be its own.
func (l *ledger) sort(q question, n *cluster.Node) (denied, bool) {
	of := l.catalog.twin(n.Name)
	return denied{q.class, of, strings.Join(n.ByClaim, ","), q.side}, of != twin{} && l.intact(n.Name, q.side)
}

// own says whether the words of an answer name something of the node's own.
func (l *ledger) own(a answer, node string) bool {
	for _, slice := range l.catalog.byNode[node] {
		if strings.Contains(a.verdict.Detail, slice.Spec.Pool.Name) {
			return true
		}
	}
	return strings.Contains(a.verdict.Detail, node)
}
