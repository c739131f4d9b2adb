package see

import (
	"cmp"
	"context"
	"slices"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// DeviceLine is one GPU. Field names are stable.
type DeviceLine struct {
	// Queue is that of who holds it, the largest part's of one that is shared; "" for nobody of ours.
	Queue string `json:"queue,omitempty"`
	// UsedMilli is the part of it that is taken, in thousandths.
	UsedMilli int64 `json:"usedMilli"`
	// Shared says that pods have parts of it; Foreign that it is held by a pod of no queue of ours.
	Shared  bool `json:"shared,omitempty"`
	Foreign bool `json:"foreign,omitempty"`
}

// NodeLine is a node and its GPUs: those that pods have whole, by queue, then those that are shared, those of foreign pods, and those that are free. Which of them is which
// of the node's the kubelet decides, and the scheduler does not know.
type NodeLine struct {
	Name string `json:"name"`
	// Problem says why the node takes no pods, "" if it does: what is free there is of no use.
	Problem string       `json:"problem,omitempty"`
	Devices []DeviceLine `json:"devices"`
}

// NodeList is the nodes of a cycle that have GPUs, by name.
type NodeList struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Cycle      Origin     `json:"cycle"`
	Items      []NodeLine `json:"items"`
	// Bare is how many nodes have no GPUs.
	Bare int `json:"bare"`
}

// maxDevices bounds how many GPUs of one node are listed: a node says itself how many it has.
const maxDevices = 1024

// Nodes lists the nodes that have GPUs, and who holds these. O(nodes and pods).
func Nodes(ctx context.Context, c *Cycle) (*NodeList, error) {
	run, err := c.Look(ctx)
	if err != nil {
		return nil, err
	}
	snap := run.Snapshot()
	out := &NodeList{APIVersion: APIVersion, Kind: "NodeList", Cycle: c.origin(), Items: []NodeLine{}}
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		total := int(min(n.Allocatable.At(cluster.GPU)/cluster.Whole, maxDevices))
		if total == 0 {
			out.Bare++
			continue
		}
		out.Items = append(out.Items, NodeLine{Name: n.Name, Problem: n.Problem, Devices: devices(snap, n, total)})
	}
	slices.SortFunc(out.Items, func(a, b NodeLine) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// devices are the GPUs of a node that has so many.
func devices(snap *cluster.Snapshot, n *cluster.Node, total int) []DeviceLine {
	var held []DeviceLine
	sharers := map[string]map[string]int{} // group, queue: pods
	for _, id := range n.Pods {
		p := snap.Pod(id)
		queue := ""
		if g := snap.GangByKey(p.GangKey()); g != nil && p.Ours {
			queue = g.Queue
		}
		for _, group := range p.Groups {
			if sharers[group] == nil {
				sharers[group] = map[string]int{}
			}
			if p.Ours {
				sharers[group][queue]++
			}
		}
		if len(p.Groups) > 0 {
			continue // it has parts of what is counted below
		}
		for range min(p.Class.Requests.At(cluster.GPU)/cluster.Whole, int64(total)) {
			held = append(held, DeviceLine{Queue: queue, UsedMilli: cluster.Whole, Foreign: !p.Ours})
		}
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		l := DeviceLine{Shared: true, UsedMilli: min(int64(d.Used)*cluster.Whole/int64(n.DeviceUnits()), cluster.Whole)}
		most := 0
		for queue, pods := range sharers[d.Group] { // order: the most, and of those the first by name
			if pods > most || pods == most && queue < l.Queue {
				l.Queue, most = queue, pods
			}
		}
		held = append(held, l)
	}
	slices.SortFunc(held, func(a, b DeviceLine) int {
		return cmp.Or(rankOf(a)-rankOf(b), cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.UsedMilli, a.UsedMilli))
	})
	out := make([]DeviceLine, total)
	copy(out, held) // more than the node has are there for a moment, after it lost some
	return out
}

func rankOf(d DeviceLine) int {
	switch {
	case d.Foreign:
		return 2
	case d.Shared:
		return 1
	}
	return 0
}
