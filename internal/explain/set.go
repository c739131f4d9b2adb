package explain

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// The kinds of changes that nobody proposes and somebody may think of, each with the fields of Change it uses.
const (
	SetQuota    Kind = "SetQuota"    // Queue, Dimension, To
	SetLimit    Kind = "SetLimit"    // Queue, Dimension, To
	SetWeight   Kind = "SetWeight"   // Queue, Dimension, To
	SetPriority Kind = "SetPriority" // Queue, To: the priority of a queue
	AddNodes    Kind = "AddNodes"    // Count nodes like Node
	Cordon      Kind = "Cordon"      // Nodes
	DeleteGang  Kind = "DeleteGang"  // Object: namespace/name; its pods go with it
	Submit      Kind = "Submit"      // Detail: the new gangs, each as namespace/name; Count: their pods
)

// OfQueue sets a bound of a queue (SetQuota, SetLimit, or SetWeight) in base units of the dimension (weights in thousandths), or its priority,
// for which dimension is "".
func OfQueue(kind Kind, queue, dimension string, to int64) *Change {
	c := &Change{Kind: kind, Queue: queue, Dimension: dimension, to: to}
	if kind == SetPriority {
		c.To = strconv.FormatInt(to, 10)
	}
	return c
}

// MoreNodes adds so many nodes that are like one that exists.
func MoreNodes(like string, count int) *Change {
	return &Change{Kind: AddNodes, Node: like, Count: count}
}

// CordonNodes has nodes take no more pods. What runs there stays.
func CordonNodes(names ...string) *Change { return &Change{Kind: Cordon, Nodes: names} }

// WithoutGang deletes a gang, and its pods.
func WithoutGang(gang cluster.Key) *Change {
	return &Change{Kind: DeleteGang, Object: gang.Namespace + "/" + gang.Name, gang: gang}
}

// NewGangs submits gangs that are not there, with their pods: what a store is told of them.
func NewGangs(gangs []cluster.Key, pods int, events []cluster.Event) *Change {
	var list []string
	for _, g := range gangs {
		list = append(list, g.String())
	}
	return &Change{Kind: Submit, Count: pods, Detail: strings.Join(list, ", "), gangs: gangs, told: events}
}

// Submitted are the gangs that the change brings; nil for every kind but [Submit].
func (c *Change) Submitted() []cluster.Key { return c.gangs }

// Gang is the gang that the change is about; the zero key for none.
func (c *Change) Gang() cluster.Key { return c.gang }

// setEvents are what the cluster would report of a change that somebody thought of.
func (c *Change) setEvents(snap *cluster.Snapshot) []cluster.Event {
	var out []cluster.Event
	switch c.Kind {
	case SetQuota, SetLimit, SetWeight, SetPriority:
		q := snap.QueueByName(c.Queue)
		if q == nil {
			return nil
		}
		st := q.State(snap.Dims)
		switch c.Kind {
		case SetQuota:
			st.Quota = put(st.Quota, c.Dimension, c.to)
		case SetLimit:
			st.Limit = put(st.Limit, c.Dimension, c.to)
		case SetWeight:
			st.Weight = put(st.Weight, c.Dimension, c.to)
		case SetPriority:
			st.Priority = int32(c.to)
		}
		out = append(out, st)
	case Submit:
		return c.told
	case AddNodes:
		n := snap.NodeByName(c.Node)
		if n == nil {
			return nil
		}
		for i := range c.Count {
			st := n.State(snap.Dims)
			st.Name, st.UID = fmt.Sprintf("%s-like-%d", c.Node, i+1), ""
			if st.Problem == "Unschedulable" {
				st.Problem = ""
			}
			out = append(out, st)
		}
	case Cordon:
		for _, name := range c.Nodes {
			if n := snap.NodeByName(name); n != nil {
				st := n.State(snap.Dims)
				if st.Problem == "" {
					st.Problem = "Unschedulable"
				}
				out = append(out, st)
			}
		}
	case DeleteGang:
		if g := snap.GangByKey(c.gang); g != nil {
			for _, id := range g.Pods {
				out = append(out, cluster.PodGone{UID: snap.Pod(id).UID})
			}
			out = append(out, cluster.GangGone{Key: c.gang})
		}
	}
	return out
}

// Describe fills in Text, and To where it is an amount.
func (c *Change) Describe(dims cluster.Dims) {
	if d, ok := dims.Index(c.Dimension); ok && c.To == "" {
		c.To = dims.FormatOne(d, c.to)
		if c.Kind == SetWeight {
			c.To = strconv.FormatFloat(float64(c.to)/1000, 'f', -1, 64)
		}
	}
	switch c.Kind {
	case SetQuota:
		c.Text = fmt.Sprintf("set the %s quota of queue %s to %s", c.Dimension, c.Queue, c.To)
	case SetLimit:
		c.Text = fmt.Sprintf("set the %s limit of queue %s to %s", c.Dimension, c.Queue, c.To)
	case SetWeight:
		c.Text = fmt.Sprintf("set the %s weight of queue %s to %s", c.Dimension, c.Queue, c.To)
	case SetPriority:
		c.Text = fmt.Sprintf("set the priority of queue %s to %s", c.Queue, c.To)
	case AddNodes:
		c.Text = fmt.Sprintf("add %s like %s", some(c.Count, "node", "nodes"), c.Node)
	case Cordon:
		c.Text = "cordon " + names("node", c.Nodes)
	case DeleteGang:
		c.Text = "delete gang " + c.Object
	case Submit:
		c.Text = fmt.Sprintf("submit %s with %s: %s", some(len(c.gangs), "gang", "gangs"), some(c.Count, "pod", "pods"), c.Detail)
	default:
		c.describe(dims)
	}
}
