package explain

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/spelling"
)

// This file is what whoever submitted the gang can mend alone: a name that was mistyped, a label that no node has, a pod that no node
// is large enough for, a priority.

// hardware are the words in a label's key that say what a node is, not what it is for. To set such a label makes no other machine.
var hardware = []string{
	"gpu", "gpus", "accelerator", "cuda", "mig", "cpu", "memory", "arch", "os", "instance", "machine", "model", "product", "family", "hostname", "zone", "region", "rack",
	"disk", "nvme", "ssd", "infiniband", "rdma", "nic",
}

// describesHardware says whether a label tells what a machine is or where it stands.
func describesHardware(key string) bool {
	domain, name, found := strings.Cut(key, "/")
	if !found {
		domain, name = "", key
	}
	for _, d := range []string{"nvidia.com", "amd.com", "intel.com", "topology.kubernetes.io", "feature.node.kubernetes.io"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return true
		}
	}
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(hardware, w) })
}

// pair is a demand of a node selector that no node meets, and how many nodes have which other values for the key.
type pair struct {
	key, value string
	have       map[string]int
}

// String prints "gpu=h200, which no node has (they have gpu=a100, gpu=h100)".
func (p *pair) String() string {
	s := p.key + "=" + p.value + ", which no node has"
	if len(p.have) == 0 {
		return s + " (none has the label at all)"
	}
	values := slices.SortedFunc(maps.Keys(p.have), func(a, b string) int { return cmp.Or(cmp.Compare(p.have[b], p.have[a]), cmp.Compare(a, b)) })
	shown := make([]string, 0, 5)
	for _, v := range values[:min(4, len(values))] {
		shown = append(shown, fmt.Sprintf("%s=%s on %d", p.key, v, p.have[v]))
	}
	if n := len(values) - len(shown); n > 0 {
		shown = append(shown, fmt.Sprintf("and %s", some(n, "other", "others")))
	}
	return s + " (there is " + strings.Join(shown, ", ") + ")"
}

// unmetPairs are the pairs of a class's node selector that no node has, by key.
func unmetPairs(snap *cluster.Snapshot, class *cluster.Class) []pair {
	var out []pair
	for _, k := range slices.Sorted(maps.Keys(class.NodeSelector)) {
		p := pair{key: k, value: class.NodeSelector[k], have: map[string]int{}}
		for _, id := range snap.NodeOrder {
			if v, there := snap.Node(id).Labels[k]; there {
				p.have[v]++
			}
		}
		if p.have[p.value] == 0 {
			out = append(out, p)
		}
	}
	return out
}

// Unmet says which labels a class of pods asks for that no node of the cluster has, with the values that nodes do have; "" when there is
// a node for each. O(nodes) for each pair of the selector.
func Unmet(snap *cluster.Snapshot, class *cluster.Class) string {
	if class == nil || len(snap.NodeOrder) == 0 {
		return ""
	}
	var out []string
	for _, p := range unmetPairs(snap, class) {
		out = append(out, p.String())
	}
	if len(out) == 0 {
		return ""
	}
	return "asks for " + strings.Join(out, "; ")
}

// corrections are what is wrong with what the pods of a class ask for, each as one change of the gang.
func (w *trial) corrections(class *cluster.Class, o *outcome) [][]*Change {
	var out [][]*Change
	for _, p := range unmetPairs(o.snap, class) {
		if len(o.snap.NodeOrder) == 0 {
			break
		}
		if near := nearest(p.value, slices.Sorted(maps.Keys(p.have))); near != "" {
			out = append(out, w.one(Change{Kind: CorrectSelector, From: p.key + "=" + p.value, Labels: map[string]string{p.key: near}, Detail: p.String()}))
		}
		out = append(out, w.one(Change{Kind: DropSelector, Labels: map[string]string{p.key: p.value}, Detail: p.String()}))
	}
	for d, x := range class.Requests {
		if x == 0 || d == cluster.Slots {
			continue
		}
		most := int64(0)
		for _, id := range o.snap.NodeOrder {
			most = max(most, o.snap.Node(id).Allocatable.At(d))
		}
		name := o.snap.Dims.Name(d)
		switch {
		case most == 0:
			if near := nearestResource(name, o.snap); near != "" && strings.Contains(name, "/") { // not cpu, memory, gpu, which everybody can spell
				out = append(out, w.one(Change{Kind: CorrectResource, From: name, To: near}))
			}
		case most < x:
			out = append(out, w.one(Change{Kind: ShrinkPods, Dimension: name, bound: x, to: most, From: o.snap.Dims.FormatOne(d, x), To: o.snap.Dims.FormatOne(d, most)}))
		}
	}
	return out
}

// gpuNames are what the model's dimension "gpu" is called in manifests.
var gpuNames = [...]string{"nvidia.com/gpu", "amd.com/gpu"}

// nearestResource is the resource that some node has whose name was perhaps meant.
func nearestResource(name string, snap *cluster.Snapshot) string {
	var there []string
	for d := range snap.Dims.Len() {
		if d == cluster.Slots || !slices.ContainsFunc(snap.NodeOrder, func(id cluster.NodeID) bool { return snap.Node(id).Allocatable.At(d) > 0 }) {
			continue
		}
		if d == cluster.GPU {
			there = append(there, gpuNames[:]...)
		} else if strings.Contains(snap.Dims.Name(d), "/") {
			there = append(there, snap.Dims.Name(d))
		}
	}
	return nearest(name, there)
}

// rename changes the name of a resource that a pod asks for, the amount from whole units to those of the model.
func rename(qs []cluster.Quantity, from, to string) []cluster.Quantity {
	i := slices.IndexFunc(qs, func(q cluster.Quantity) bool { return q.Name == from })
	if i < 0 {
		return qs
	}
	x := qs[i].Value
	qs = slices.Delete(slices.Clone(qs), i, i+1)
	if slices.Contains(gpuNames[:], to) {
		to = "gpu"
		x = min(x, math.MaxInt64/cluster.Whole) * cluster.Whole
	}
	for _, q := range qs {
		if q.Name == to {
			x += q.Value
		}
	}
	return put(qs, to, x)
}

// atMost bounds what a pod asks for of a resource.
func atMost(qs []cluster.Quantity, name string, most int64) []cluster.Quantity {
	for _, q := range qs {
		if q.Name == name && q.Value > most {
			return put(qs, name, most)
		}
	}
	return qs
}

// leaves are the names of the queues of a face that work may be given to, sorted.
func leaves(t *engine.Trace, face string) []string {
	inner := map[string]bool{}
	for i := range t.Queues {
		inner[t.Queues[i].Parent] = true
	}
	var out []string
	for i := range t.Queues {
		if of, _ := cluster.SplitQueue(t.Queues[i].Name); !inner[t.Queues[i].Name] && of == face {
			out = append(out, t.Queues[i].Name)
		}
	}
	slices.Sort(out)
	return out
}

// nearest is the name of a list that was most likely meant by one that is not in it; "" when none is near.
func nearest(name string, among []string) string {
	return spelling.Nearest(name, among, min(max(1, len(name)/4), len(name)-1))
}

// class is a PriorityClass that a gang may be given.
type priorityClass struct {
	name  string
	value int32
}

// maxPreemptible is the highest priority that does not make a gang non-preemptible by itself.
const maxPreemptible = 99

// higher are the PriorityClasses of the cluster above a gang's priority, lowest first: one for each value, those of the system left out, and
// for a gang that may be preempted those that would make it fixed too.
func higher(snap *cluster.Snapshot, g *cluster.Gang) []priorityClass {
	var out []priorityClass
	for _, x := range snap.Objects(cluster.PriorityClasses) { // order: sorted below
		c, ok := x.(*schedulingv1.PriorityClass)
		if ok && c.Value > g.Priority && !strings.HasPrefix(c.Name, "system-") && (c.Value <= maxPreemptible || !g.Preemptible) {
			out = append(out, priorityClass{c.Name, c.Value})
		}
	}
	slices.SortFunc(out, func(a, b priorityClass) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.name, b.name))
	})
	return slices.CompactFunc(out, func(a, b priorityClass) bool { return a.value == b.value })
}

// maxClasses bounds how many PriorityClasses are tried.
const maxClasses = 32

// promote finds the lowest PriorityClass with which the gang starts once the changes are made; nil when there is none.
func (w *trial) promote(changes []*Change) []*Change {
	g := w.base.GangByKey(w.key)
	classes := higher(w.base, g)
	if len(classes) == 0 {
		return nil
	}
	top := classes[len(classes)-1]
	with := merge(changes, w.one(Change{Kind: RaisePriority, bound: int64(g.Priority), to: int64(top.value), Object: top.name, classes: classes[max(0, len(classes)-maxClasses):]}))
	if !w.enough(with) {
		return nil
	}
	w.shrink(with, len(with)-1)
	return with
}

// quote prints a priority.
func quote(x int64) string { return strconv.FormatInt(x, 10) }
