package volcano

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/core"
)

// Face is the name of this API family in cluster.Key, and in the names of queues.
const Face = "volcano"

// QueueName is what the model calls the queue of that name; default if it is "".
func QueueName(name string) string { return cluster.QueueName(Face, cmp.Or(name, keys.DefaultQueue)) }

const (
	// weightUnit is a queue's weight 1 in the model.
	weightUnit = 1000
	// millionths are the unit of the weights of a path.
	millionths = 1_000_000
	// rootPriority is that of root, beside which are the queues of other faces: as theirs that say none.
	rootPriority = 100
)

// Root is the queue above all of Volcano's, as it is where there is no object of the name.
func Root() cluster.QueueState {
	st, _ := Queue(&v1beta1.Queue{})
	st.Name, st.Parent, st.Display, st.Priority = QueueName(keys.RootQueue), "", keys.RootQueue, rootPriority
	return st
}

// Queue returns the event that makes the model know q as it is, and what is wrong with its numbers ("" for nothing).
//
// The larger of deserved and guarantee is its quota, what is guaranteed its guarantee, capability its limit, weight its weight over quota in every dimension. A queue whose parent is not said is
// below root. Its affinity are the groups of nodes that it speaks of. Nothing is taken back from one whose reclaimable is false. It takes nothing new unless its state is Open, or not said yet. A negative amount counts as 0.
//
// Not honoured yet are that a guarantee is kept free while nobody asks for it, and extendClusters; see docs/ledgers/volcano.yaml.
func Queue(q *v1beta1.Queue) (cluster.QueueState, string) {
	st := cluster.QueueState{
		Name: QueueName(q.Name), UID: string(q.UID), Display: q.Name, Parent: QueueName(cmp.Or(q.Spec.Parent, keys.RootQueue)),
		Priority: q.Spec.Priority, Created: core.Nanoseconds(&q.CreationTimestamp), Closed: closed(q),
		NotReclaimable: q.Spec.Reclaimable != nil && !*q.Spec.Reclaimable, Path: path(q),
		InOrder: q.Spec.DequeueStrategy == v1beta1.DequeueStrategyFIFO,
	}
	if q.Name == keys.RootQueue {
		st.Parent, st.Priority = "", rootPriority
	}
	var problems []string
	st.NodeGroups, problems = groups(q.Spec.Affinity)
	read := func(field string, list corev1.ResourceList) map[string]int64 {
		out := map[string]int64{}
		for name, amount := range list { // order: the result is a map, the problems are sorted
			if amount.Sign() < 0 {
				problems = append(problems, fmt.Sprintf("%s[%s] is %s; it must not be negative", field, brief(string(name)), amount.String()))
				amount = resource.Quantity{}
			}
			out[core.Dimension(name)] = 0
		}
		for _, one := range core.Amounts(list) {
			out[one.Name] = one.Value
		}
		return out
	}
	deserved, guarantee, limit := read("spec.deserved", q.Spec.Deserved), read("spec.guarantee.resource", q.Spec.Guarantee.Resource), read("spec.capability", q.Spec.Capability)
	weight := int64(cmp.Or(q.Spec.Weight, 1))
	if weight < 0 {
		problems, weight = append(problems, fmt.Sprintf("spec.weight is %d; it must be at least 1", weight)), 1
	}
	for _, dim := range dimensions(deserved, guarantee, limit) {
		if d := max(deserved[dim], guarantee[dim]); d > 0 {
			st.Quota = append(st.Quota, cluster.Quantity{Name: dim, Value: d})
		}
		if x := guarantee[dim]; x > 0 {
			st.Guarantee = append(st.Guarantee, cluster.Quantity{Name: dim, Value: x})
		}
		if x, bounded := limit[dim]; bounded {
			st.Limit = append(st.Limit, cluster.Quantity{Name: dim, Value: x})
		}
		st.Weight = append(st.Weight, cluster.Quantity{Name: dim, Value: min(weight, math.MaxInt32) * weightUnit})
	}
	if len(problems) == 0 {
		return st, ""
	}
	slices.Sort(problems)
	return st, "Queue " + q.Name + ": " + strings.Join(problems, "; ")
}

// mostGroups bounds each list of groups of nodes.
const mostGroups = 256

// groups are what a queue says of groups of nodes, nil for nothing; of a list that is too long the first count.
func groups(a *v1beta1.Affinity) (*cluster.NodeGroups, []string) {
	if a == nil {
		return nil, nil
	}
	var problems []string
	read := func(of *v1beta1.NodeGroupAffinity, field string) (required, preferred []string) {
		if of == nil {
			return nil, nil
		}
		cut := func(list []string, which string) []string {
			if len(list) > mostGroups {
				problems = append(problems, fmt.Sprintf("spec.affinity.%s.%s names %d groups; the first %d count", field, which, len(list), mostGroups))
				list = list[:mostGroups]
			}
			return slices.Clone(list)
		}
		return cut(of.RequiredDuringSchedulingIgnoredDuringExecution, "requiredDuringSchedulingIgnoredDuringExecution"),
			cut(of.PreferredDuringSchedulingIgnoredDuringExecution, "preferredDuringSchedulingIgnoredDuringExecution")
	}
	g := cluster.NodeGroups{}
	g.Required, g.Preferred = read(a.NodeGroupAffinity, "nodeGroupAffinity")
	if g.Refused, g.Avoided = read(a.NodeGroupAntiAffinity, "nodeGroupAntiAffinity"); len(g.Required)+len(g.Preferred)+len(g.Refused)+len(g.Avoided) == 0 {
		return nil, nil
	}
	return &g, problems
}

// closed says why nothing new starts in q; "" if it does. The state is what the controller of queues says; nobody has said anything of a new one.
func closed(q *v1beta1.Queue) string {
	switch s := q.Status.State; s {
	case "", v1beta1.QueueStateOpen:
		return ""
	default:
		return fmt.Sprintf("its state is %s, and work starts only in a queue that is Open", brief(string(s)))
	}
}

// The bounds of a path: how many steps of it are read, and how long it is at the most.
const (
	mostSteps = 32
	mostPath  = 4096
)

// path is what the annotations say of a hierarchy: a queue's way from the root, which is left out, with the weights of its steps. A weight that is none, or below 1, is 1.
func path(q *v1beta1.Queue) (out []cluster.Step) {
	text, weights := q.Annotations[keys.Hierarchy], strings.Split(q.Annotations[keys.HierarchyWeights], "/")
	if text == "" || len(text) > mostPath {
		return nil
	}
	for i, name := range strings.SplitN(text, "/", mostSteps) {
		step := cluster.Step{Name: name, Weight: millionths}
		if i < len(weights) {
			if w, err := strconv.ParseFloat(weights[i], 64); err == nil && w > 1 {
				step.Weight = int64(min(w, math.MaxInt32) * millionths)
			}
		}
		if i > 0 || name != keys.RootQueue {
			out = append(out, step)
		}
	}
	return out
}

// dimensions are cpu, memory and gpu, and then, sorted, all others of the lists.
func dimensions(lists ...map[string]int64) []string {
	out := []string{"cpu", "memory", "gpu"}
	for _, l := range lists {
		for name := range l { // order: sorted below
			if !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out[3:])
	return out
}

// brief cuts a user's text to a length fit for a sentence.
func brief(s string) string {
	const most = 32
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
