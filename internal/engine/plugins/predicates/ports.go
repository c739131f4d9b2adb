package predicates

import (
	"slices"
	"strconv"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// ports knows, for a run, on which nodes the host ports of a pod are taken. Sets of ports are compared, once each, and not pods: a pod
// may open a thousand ports, and a thousand gangs may ask for one of them each.
type ports struct {
	snap  *cluster.Snapshot
	sets  []portSet                // of pods that were on nodes, came, or are promised room
	of    map[uint64]int           // sets by class
	named map[string]int           // sets by what is in them
	open  map[portKey][]opening    // the sets that a port is in
	words map[string]portKey       // protocols, numbered
	asked []*wanted                // what is asked for
	asks  map[uint64]*wanted       // by class
	same  map[string]*wanted       // by what is in it
	log   []portChange             // who came and went in this run
	read  int                      // how much of the log somebody has read
	came  map[cluster.NodeID][]int // sets of who came in this run, last one last
}

// portKey is what is compared of a port besides its address: the protocol's number, and the port.
type portKey uint64

// portSet is what pods of a class open.
type portSet struct {
	ports []cluster.HostPort
	nodes []cluster.NodeID // where such a pod was when the run began, and was not leaving; one for each
}

// opening is a port of a set.
type opening struct {
	ip  string
	set int
}

// portChange is one pod that came to a node (+1) or left it (-1).
type portChange struct {
	set  int
	node cluster.NodeID
	by   int32
}

// wanted is where the ports of a set are taken.
type wanted struct {
	ports  []cluster.HostPort
	first  []int32           // by set: the first of the ports that is in that set too; -1 for none
	counts []int32           // by node ID: pods that open one of the ports
	bits   []uint64          // the nodes that have any
	read   int               // how much of the log is in the counts
	says   []*policy.Verdict // that a port is taken, by port; nil until it is said
}

// index returns the ports as the run finds them: O(pods, and the ports of each of their classes), once.
func (i *instance) index() *ports {
	if i.ports != nil {
		return i.ports
	}
	x := &ports{
		snap: i.view.Snapshot(), of: map[uint64]int{}, named: map[string]int{}, open: map[portKey][]opening{}, words: map[string]portKey{},
		asks: map[uint64]*wanted{}, same: map[string]*wanted{}, came: map[cluster.NodeID][]int{},
	}
	i.ports = x
	for _, id := range x.snap.NodeOrder {
		for _, pid := range x.snap.Node(id).Pods {
			p := x.snap.Pod(pid)
			if len(p.Class.HostPorts) == 0 {
				continue
			}
			if k := x.set(p.Class); p.Phase != cluster.Releasing {
				x.sets[k].nodes = append(x.sets[k].nodes, id)
			}
		}
	}
	return x
}

func (x *ports) key(p cluster.HostPort) portKey {
	n, known := x.words[p.Protocol]
	if !known {
		n = portKey(len(x.words)) << 32
		x.words[p.Protocol] = n
	}
	return n | portKey(uint32(p.Port))
}

// name tells sets of ports apart.
func (x *ports) name(c *cluster.Class) string {
	var name []byte
	for _, p := range c.HostPorts {
		name = append(append(strconv.AppendUint(name, uint64(x.key(p)), 36), p.IP...), ' ')
	}
	return string(name)
}

// set returns the number of the set of ports that pods of a class open.
func (x *ports) set(c *cluster.Class) int {
	k, known := x.of[c.ID]
	if known {
		return k
	}
	name := x.name(c)
	if k, known = x.named[name]; !known {
		k = len(x.sets)
		x.sets, x.named[name] = append(x.sets, portSet{ports: c.HostPorts}), k
		for _, p := range c.HostPorts {
			key := x.key(p)
			x.open[key] = append(x.open[key], opening{p.IP, k})
		}
		for _, w := range x.asked {
			w.first = append(w.first, w.meet(c.HostPorts))
		}
	}
	x.of[c.ID] = k
	return k
}

// meet returns the first of the ports that cannot be opened beside others; -1 for none.
func (w *wanted) meet(others []cluster.HostPort) int32 {
	for n, want := range w.ports {
		if slices.ContainsFunc(others, want.Conflicts) {
			return int32(n)
		}
	}
	return -1
}

// wanted returns where the ports of a class are taken as things stand, but for promises: O(nodes, and who opens the same), once, and
// what has happened since later on.
func (x *ports) wanted(c *cluster.Class) *wanted {
	w := x.asks[c.ID]
	if w == nil {
		name := x.name(c)
		if w = x.same[name]; w == nil {
			w = x.ask(c.HostPorts)
			x.same[name], x.asked = w, append(x.asked, w)
		}
		x.asks[c.ID] = w
	}
	for ; w.read < len(x.log); w.read++ {
		if c := &x.log[w.read]; w.first[c.set] >= 0 {
			w.count(c.node, c.by)
		}
	}
	x.read = len(x.log)
	return w
}

func (x *ports) ask(ps []cluster.HostPort) *wanted {
	w := &wanted{
		ports: ps, first: make([]int32, len(x.sets)), says: make([]*policy.Verdict, len(ps)),
		counts: make([]int32, x.snap.MaxNodeID()), bits: make([]uint64, (x.snap.MaxNodeID()+63)/64),
	}
	for k := range w.first {
		w.first[k] = -1
	}
	for n, want := range w.ports {
		for _, o := range x.open[x.key(want)] {
			if w.first[o.set] >= 0 || !want.Conflicts(cluster.HostPort{IP: o.ip, Protocol: want.Protocol, Port: want.Port}) {
				continue
			}
			w.first[o.set] = int32(n)
			for _, id := range x.sets[o.set].nodes {
				w.count(id, 1)
			}
		}
	}
	return w
}

func (w *wanted) count(n cluster.NodeID, by int32) {
	w.counts[n] += by
	if w.counts[n] > 0 {
		w.bits[n>>6] |= 1 << (n & 63)
	} else {
		w.bits[n>>6] &^= 1 << (n & 63)
	}
}

// record notes that a pod came or went. What is undone before anybody has read of it leaves nothing to read.
func (x *ports) record(c portChange) {
	if last := len(x.log) - 1; last >= x.read && x.log[last] == (portChange{c.set, c.node, -c.by}) {
		x.log = x.log[:last]
		return
	}
	x.log = append(x.log, c)
}

// check says which of a class's ports, the first of them, is taken on a node. stays says of a pod of the node whether it is there still.
func (x *ports) check(c *cluster.Class, n *cluster.Node, stays func(*cluster.Pod) bool) policy.Verdict {
	w := x.wanted(c)
	if w.counts[n.ID] == 0 {
		return policy.Verdict{}
	}
	first := int32(len(w.ports) - 1)
	if first > 0 {
		for _, id := range n.Pods {
			if q := x.snap.Pod(id); len(q.Class.HostPorts) > 0 && q.Phase != cluster.Releasing {
				if k := w.first[x.set(q.Class)]; k >= 0 && k < first && stays(q) {
					first = k
				}
			}
		}
		for _, set := range x.came[n.ID] {
			if k := w.first[set]; k >= 0 {
				first = min(first, k)
			}
		}
	}
	return *w.taken(first)
}

// ready says whether nobody has one of the class's ports on a node, those included that are leaving, or that this run evicts.
func (x *ports) ready(c *cluster.Class, n *cluster.Node) policy.Verdict {
	w, first := x.wanted(c), int32(-1)
	for _, id := range n.Pods {
		if q := x.snap.Pod(id).Class; len(q.HostPorts) > 0 {
			if k := w.first[x.set(q)]; k >= 0 && (first < 0 || k < first) {
				first = k
			}
		}
	}
	if first < 0 {
		return policy.Verdict{}
	}
	return *w.taken(first)
}

// taken is what is said of the k-th of the ports when it is.
func (w *wanted) taken(k int32) *policy.Verdict {
	if w.says[k] == nil {
		p := w.ports[k]
		w.says[k] = &policy.Verdict{Code: policy.No, Reason: ReasonHostPort, Object: p.Protocol + "/" + strconv.Itoa(int(p.Port))}
	}
	return w.says[k]
}
