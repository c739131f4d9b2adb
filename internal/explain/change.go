package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// Kind is what somebody would do.
type Kind string

// The kinds of changes, each with the fields of Change it uses.
const (
	AddRoom         Kind = "AddRoom"         // Count places for one pod each: Resources, Labels, Detail, Object: the shard; on Node when only that one will do
	Uncordon        Kind = "Uncordon"        // Nodes
	RepairNode      Kind = "RepairNode"      // Nodes, and Detail: what is wrong with them
	RemoveTaint     Kind = "RemoveTaint"     // Nodes, Detail: the taint
	Tolerate        Kind = "Tolerate"        // Detail: the taint that the gang's pods would tolerate
	LabelNode       Kind = "LabelNode"       // Nodes, Labels
	AddToShard      Kind = "AddToShard"      // Nodes, Object: the shard that the gang's pods keep to
	RaiseLimit      Kind = "RaiseLimit"      // Queue, Dimension, From, To
	RaiseQuota      Kind = "RaiseQuota"      // Queue, Dimension, From, To
	CreateQueue     Kind = "CreateQueue"     // Queue
	MoveToQueue     Kind = "MoveToQueue"     // From, Queue
	FixParent       Kind = "FixParent"       // Queue, which would become a top-level queue
	CreateConfigMap Kind = "CreateConfigMap" // Object: namespace/name
	LiftGate        Kind = "LiftGate"        // Pods
	AddPods         Kind = "AddPods"         // Count, Subgroup
	SetSubgroup     Kind = "SetSubgroup"     // Pods, Subgroup
	EditGang        Kind = "EditGang"        // Detail: the rule that its spec breaks, or what it could ask for instead
	DropFeature     Kind = "DropFeature"     // Detail: what the gang's pods would no longer ask for
	DropNodeName    Kind = "DropNodeName"    // nothing: the gang's pods would no longer ask for a node by its name
	DropAffinity    Kind = "DropAffinity"    // nothing: the gang's pods would no longer have a required node affinity, which no node can meet
	RaisePriority   Kind = "RaisePriority"   // From, To: the gang's; Object: the PriorityClass that has it
	MakePreemptible Kind = "MakePreemptible" // nothing: the gang may be preempted, and so needs no quota
	CorrectSelector Kind = "CorrectSelector" // From: the pair that no node has, Labels: the one that was likely meant, Detail
	DropSelector    Kind = "DropSelector"    // Labels: what the gang's pods would no longer ask of a node; Detail: what nodes have instead
	CorrectResource Kind = "CorrectResource" // From, To: names of resources
	ShrinkPods      Kind = "ShrinkPods"      // Dimension, From, To: what the largest pod that fits asks for
	Retry           Kind = "Retry"           // nothing: forget the failed attempt that stopped the gang
	WaitUntil       Kind = "WaitUntil"       // At, Detail: what happens then
)

// Change is one thing that somebody can do, or wait for. Which fields are set is said by Kind.
type Change struct {
	Kind Kind `json:"kind"`
	// Text is the change as one sentence for people.
	Text string `json:"text"`

	Count     int               `json:"count,omitempty"`
	Nodes     []string          `json:"nodes,omitempty"`
	Node      string            `json:"node,omitempty"`
	Pods      []string          `json:"pods,omitempty"`
	Subgroup  string            `json:"subgroup,omitempty"`
	Queue     string            `json:"queue,omitempty"`
	Dimension string            `json:"dimension,omitempty"`
	From      string            `json:"from,omitempty"`
	To        string            `json:"to,omitempty"`
	Object    string            `json:"object,omitempty"`
	Detail    string            `json:"detail,omitempty"`
	Resources map[string]string `json:"resources,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	At        *time.Time        `json:"at,omitempty"`

	gang      cluster.Key
	gangs     []cluster.Key      // Submit
	told      []cluster.Event    // Submit
	bound, to int64              // From and To in base units of the dimension
	classes   []priorityClass    // RaisePriority: those that the gang could have, lowest first
	requests  []cluster.Quantity // Resources, exactly
	absent    []string           // AddRoom and LabelNode: label keys that must not be there
	template  *cluster.PodState  // AddPods: what each new pod is like
	taint     *v1.Taint          // RemoveTaint and Tolerate
	sets      []cluster.Set      // EditGang: the tree that is assumed instead
	same      string             // AddRoom: the class of the pods, so that two changes for one class become one
}

// Apply makes the change in a store: the what-if of this package. now is the moment of the what-if in Unix nanoseconds; the
// result is the moment from which the change is felt, which is later only for WaitUntil.
func (c *Change) Apply(store *cluster.Store, now cluster.Instant) cluster.Instant {
	later, events := c.events(store.Snapshot(now), now)
	store.Apply(events...)
	return later
}

// events are what the cluster would report once the change is made in snap.
func (c *Change) events(snap *cluster.Snapshot, now cluster.Instant) (cluster.Instant, []cluster.Event) {
	var out []cluster.Event
	gang := snap.GangByKey(c.gang)
	switch c.Kind {
	case WaitUntil:
		return cluster.Latest(now, cluster.InstantOf(*c.At)), nil
	case AddRoom:
		return now, c.roomEvents(snap)
	case Uncordon, RepairNode, RemoveTaint, LabelNode, AddToShard:
		for _, name := range c.Nodes {
			if n := snap.NodeByName(name); n != nil {
				out = append(out, c.mend(n.State(snap.Dims)))
			}
		}
	case RaiseLimit, RaiseQuota:
		if q := snap.QueueByName(c.Queue); q != nil {
			st := q.State(snap.Dims)
			if c.Kind == RaiseLimit {
				st.Limit = put(st.Limit, c.Dimension, c.to)
			} else {
				st.Quota = put(st.Quota, c.Dimension, c.to)
			}
			out = append(out, st)
		}
	case CreateQueue:
		if snap.QueueByName(c.Queue) == nil {
			out = append(out, cluster.QueueState{Name: c.Queue, UID: "new/" + c.Queue, Created: now})
		}
	case FixParent:
		if q := snap.QueueByName(c.Queue); q != nil {
			st := q.State(snap.Dims)
			st.Parent = ""
			out = append(out, st)
		}
	case CreateConfigMap:
		ns, name, _ := strings.Cut(c.Object, "/")
		out = append(out, cluster.ObjectState{
			Kind: cluster.ConfigMaps, Key: c.Object,
			Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}},
		})
	case MoveToQueue, EditGang, Retry, MakePreemptible, RaisePriority:
		if gang != nil {
			out = append(out, c.editGang(gang))
		}
	case LiftGate, SetSubgroup, Tolerate, DropFeature, DropNodeName, DropAffinity, CorrectSelector, DropSelector, CorrectResource, ShrinkPods:
		out = c.editPods(snap, gang)
	case SetQuota, SetLimit, SetWeight, SetPriority, AddNodes, Cordon, DeleteGang, Submit:
		return now, c.setEvents(snap)
	case AddPods:
		for i := range c.Count {
			p := *c.template
			p.UID = "new/" + c.Subgroup + "/" + strconv.Itoa(i)
			p.Name = p.Name + "-new-" + strconv.Itoa(i)
			out = append(out, p)
		}
	}
	return now, out
}

// mend changes one node.
func (c *Change) mend(st cluster.NodeState) cluster.Event {
	switch c.Kind {
	case Uncordon, RepairNode:
		st.Problem = ""
	case RemoveTaint:
		st.Taints = slices.DeleteFunc(slices.Clone(st.Taints), func(t v1.Taint) bool { return t.MatchTaint(c.taint) && t.Value == c.taint.Value })
	case AddToShard:
		st.Sets = []string{c.Object}
	case LabelNode:
		st.Labels = relabel(st.Labels, c.Labels, c.absent)
		if st.Problem == cluster.NoWorkerLabel { // the label for this class is among them, as obstacles has it
			st.Problem = ""
		}
	}
	return st
}

// relabel returns labels with some set and others gone.
func relabel(have, set map[string]string, absent []string) map[string]string {
	out := make(map[string]string, len(have)+len(set))
	maps.Copy(out, have)
	maps.Copy(out, set)
	for _, k := range absent {
		delete(out, k)
	}
	return out
}

// put sets one dimension of named quantities.
func put(qs []cluster.Quantity, dim string, to int64) []cluster.Quantity {
	out := slices.Clone(qs)
	for i := range out {
		if out[i].Name == dim {
			out[i].Value = to
			return out
		}
	}
	return append(out, cluster.Quantity{Name: dim, Value: to})
}

// roomEvents are the new nodes, each of exactly the size of one pod, or the one node grown.
func (c *Change) roomEvents(snap *cluster.Snapshot) []cluster.Event {
	if c.Node != "" {
		st := cluster.NodeState{Name: c.Node, Labels: c.Labels, Sets: c.shard()}
		if n := snap.NodeByName(c.Node); n != nil {
			st = n.State(snap.Dims)
		}
		for _, q := range c.requests {
			dim, _ := snap.Dims.Index(q.Name)
			have := int64(0)
			for _, a := range st.Allocatable {
				if a.Name == q.Name {
					have = a.Value
				}
			}
			if n := snap.NodeByName(c.Node); n != nil { // what others overcommitted has to be made good first
				have = max(have, have-n.Later().At(dim))
			}
			st.Allocatable = put(st.Allocatable, q.Name, have+q.Value*int64(c.Count))
		}
		return []cluster.Event{st}
	}
	slicing := cluster.Unsliced
	if slices.ContainsFunc(c.requests, func(q cluster.Quantity) bool { return cluster.SliceGPUs(q.Name) > 0 }) {
		slicing = cluster.SlicedAnyhow
	}
	out := make([]cluster.Event, 0, c.Count)
	for i := range c.Count {
		out = append(out, cluster.NodeState{Name: c.placeName(i), Labels: c.Labels, Sets: c.shard(), Slicing: slicing, Allocatable: c.requests})
	}
	return out
}

// shard is the set of nodes that new room is in, if it must be in one.
func (c *Change) shard() []string {
	if c.Object == "" {
		return nil
	}
	return []string{c.Object}
}

// placeName names a place as no node can be named.
func (c *Change) placeName(i int) string { return "new/" + c.same + "/" + strconv.Itoa(i) }

func (c *Change) editGang(g *cluster.Gang) cluster.Event {
	st := g.GangState
	switch c.Kind {
	case MoveToQueue:
		st.Queue = c.Queue
	case EditGang:
		st.Invalid, st.Sets = "", c.sets
	case Retry:
		st.GaveUp = false
	case MakePreemptible:
		st.Preemptible = true
	case RaisePriority:
		st.Priority = int32(c.to)
	}
	return st
}

// editPods changes the waiting pods of the gang that the change is about.
func (c *Change) editPods(snap *cluster.Snapshot, g *cluster.Gang) []cluster.Event {
	if g == nil {
		return nil
	}
	var out []cluster.Event
	for _, id := range g.Pods {
		p := snap.Pod(id)
		if p.Phase != cluster.Pending && p.Phase != cluster.Gated {
			continue
		}
		st := p.State(snap.Dims)
		switch c.Kind {
		case LiftGate:
			if !slices.Contains(c.Pods, p.Name) {
				continue
			}
			st.Phase = cluster.Pending
		case SetSubgroup:
			if !slices.Contains(c.Pods, p.Name) {
				continue
			}
			st.SetName = c.Subgroup
		case Tolerate:
			st.Spec.Tolerations = append(slices.Clone(st.Spec.Tolerations), v1.Toleration{
				Key: c.taint.Key, Operator: v1.TolerationOpEqual,
				Value: c.taint.Value, Effect: c.taint.Effect,
			})
		case DropFeature:
			if st.Spec.Unsupported != c.Detail {
				continue
			}
			st.Spec.Unsupported = ""
		case DropNodeName:
			st.Spec.NodeAffinity = anyName(st.Spec.NodeAffinity)
		case DropAffinity:
			st.Spec.NodeAffinity = nil
		case CorrectSelector:
			st.Spec.NodeSelector = relabel(st.Spec.NodeSelector, c.Labels, nil)
		case DropSelector:
			st.Spec.NodeSelector = relabel(st.Spec.NodeSelector, nil, slices.Collect(maps.Keys(c.Labels)))
		case CorrectResource:
			st.Requests, st.Charge = rename(st.Requests, c.From, c.To), rename(st.Charge, c.From, c.To)
		case ShrinkPods:
			st.Requests, st.Charge = atMost(st.Requests, c.Dimension, c.to), atMost(st.Charge, c.Dimension, c.to)
		}
		out = append(out, st)
	}
	return out
}

// anyName returns an affinity without its demands on the name of the node. A term that demands nothing else lets every node in.
func anyName(a *v1.NodeAffinity) *v1.NodeAffinity {
	if a == nil || a.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return a
	}
	out := a.DeepCopy()
	terms := out.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i := range terms {
		if len(terms[i].MatchFields) > 0 && len(terms[i].MatchExpressions) == 0 {
			out.RequiredDuringSchedulingIgnoredDuringExecution = nil
			return out
		}
		terms[i].MatchFields = nil
	}
	return out
}

// Parts returns every change that does one unit less than c: a list without one entry, a number smaller by one. nil in it
// means that c is one unit, and without it nothing is left.
func (c *Change) Parts() []*Change {
	var out []*Change
	less := func(f func(*Change)) {
		d := *c
		f(&d)
		out = append(out, &d)
	}
	switch {
	case c.Kind == RaiseLimit || c.Kind == RaiseQuota:
		out = append(out, nil)
		less(func(d *Change) { d.to-- })
	case c.Kind == RaisePriority:
		out = append(out, nil)
		if i := slices.IndexFunc(c.classes, func(p priorityClass) bool { return int64(p.value) == c.to }); i > 0 {
			less(func(d *Change) { d.to = int64(d.classes[i-1].value) })
		}
	case c.Count > 1:
		less(func(d *Change) { d.Count-- })
	case len(c.Nodes) > 1:
		for i := range c.Nodes {
			less(func(d *Change) { d.Nodes = slices.Delete(slices.Clone(c.Nodes), i, i+1) })
		}
	case len(c.Pods) > 1:
		for i := range c.Pods {
			less(func(d *Change) { d.Pods = slices.Delete(slices.Clone(c.Pods), i, i+1) })
		}
	default:
		out = append(out, nil)
	}
	return out
}

// describe fills in Text and To.
func (c *Change) describe(dims cluster.Dims) {
	amount := func(x int64) string {
		d, ok := dims.Index(c.Dimension)
		if !ok {
			d = dims.Len()
		}
		return dims.FormatOne(d, x)
	}
	switch c.Kind {
	case AddRoom:
		place := fmt.Sprintf("room for %s of %s", some(c.Count, "pod", "pods"), formatMap(c.Resources, dims))
		if c.Count > 1 {
			place = fmt.Sprintf("room for %d pods of %s each", c.Count, formatMap(c.Resources, dims))
		}
		switch {
		case c.Node != "":
			place += " on node " + c.Node
		case len(c.Labels) > 0:
			place += " on nodes with " + formatMap(c.Labels, dims)
		}
		if c.Node == "" && c.Object != "" {
			place += " in shard " + c.Object
		}
		c.Text = strings.TrimSpace("add or free " + place + " " + c.Detail)
	case Uncordon:
		c.Text = "uncordon " + names("node", c.Nodes)
	case RepairNode:
		c.Text = fmt.Sprintf("bring back %s (%s)", names("node", c.Nodes), c.Detail)
	case RemoveTaint:
		c.Text = fmt.Sprintf("remove taint %s from %s", c.Detail, names("node", c.Nodes))
	case Tolerate:
		c.Text = "recreate the gang's pods with a toleration for " + c.Detail
	case AddToShard:
		c.Text = fmt.Sprintf("add %s to shard %s", names("node", c.Nodes), c.Object)
	case LabelNode:
		c.Text = "label " + names("node", c.Nodes) + " " + formatMap(c.Labels, dims)
		if len(c.Labels) == 0 {
			c.Text = "change " + names("node", c.Nodes)
		}
		if len(c.absent) > 0 {
			c.Text += " and remove label " + strings.Join(c.absent, ", ")
		}
	case RaiseLimit:
		c.To = amount(c.to)
		c.Text = fmt.Sprintf("raise the %s limit of queue %s from %s to %s", c.Dimension, c.Queue, c.From, c.To)
	case RaiseQuota:
		c.To = amount(c.to)
		c.Text = fmt.Sprintf("raise the %s quota of queue %s from %s to %s", c.Dimension, c.Queue, c.From, c.To)
	case CreateQueue:
		c.Text = "create queue " + c.Queue
	case MoveToQueue:
		c.Text = "move the gang to queue " + c.Queue
		if c.Detail != "" {
			c.Text = fmt.Sprintf("move the gang to queue %s: did you mean that by %q?", c.Queue, c.From)
		} else if c.From != "" {
			c.Text = fmt.Sprintf("move the gang from queue %s to queue %s", c.From, c.Queue)
		}
	case FixParent:
		c.Text = fmt.Sprintf("give queue %s a parent that leads to the top, or none (its parent %s is below itself)", c.Queue, c.From)
	case CreateConfigMap:
		c.Text = "create ConfigMap " + c.Object
	case LiftGate:
		c.Text = "remove the scheduling gates of " + names("pod", c.Pods)
	case AddPods:
		c.Text = fmt.Sprintf("create %s", some(c.Count, "more pod", "more pods"))
		if c.Subgroup != "" {
			c.Text += " in subgroup " + c.Subgroup
		}
	case SetSubgroup:
		set := c.Subgroup
		if set == "" {
			set = cluster.DefaultSet
		}
		c.Text = fmt.Sprintf("recreate %s in subgroup %s", names("pod", c.Pods), set)
	case EditGang:
		c.Text = "correct the gang: " + c.Detail
	case DropFeature:
		c.Text = "recreate the gang's pods without " + c.Detail
	case DropNodeName:
		c.Text = "recreate the gang's pods without asking for a node by its name"
	case DropAffinity:
		c.Text = "recreate the gang's pods without their required node affinity: no labels of a node meet it and the node selector"
	case MakePreemptible:
		c.Text = "make the gang preemptible: only work that is not needs quota"
	case Retry:
		c.Text = "delete the gang's Unschedulable condition: schedulingBackoff stopped it after a failed attempt"
	case RaisePriority:
		c.From, c.To = quote(c.bound), quote(c.to)
		c.Text = fmt.Sprintf("give the gang the PriorityClass %s: priority %s instead of %s", c.Object, c.To, c.From)
	case CorrectSelector:
		c.Text = fmt.Sprintf("recreate the gang's pods with the node selector %s: did you mean that by %s?", formatMap(c.Labels, dims), c.Detail)
	case DropSelector:
		c.Text = "recreate the gang's pods without the node selector " + c.Detail
	case CorrectResource:
		c.Text = fmt.Sprintf("recreate the gang's pods with the resource %s: did you mean that by %q?", c.To, c.From)
	case ShrinkPods:
		c.Text = fmt.Sprintf("recreate the gang's pods with at most %s %s each instead of %s: no node has more", c.To, c.Dimension, c.From)
	case WaitUntil:
		c.Text = "wait until " + c.At.UTC().Format(time.RFC3339) + ", " + c.Detail
	}
}

func some(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// names lists at most four names.
func names(what string, list []string) string {
	if len(list) == 1 {
		return what + " " + list[0]
	}
	shown := list
	more := ""
	if len(list) > 5 {
		shown, more = list[:4], fmt.Sprintf(", and %d more", len(list)-4)
	}
	return fmt.Sprintf("%d %ss (%s%s)", len(list), what, strings.Join(shown, ", "), more)
}

// formatMap prints k=v pairs: known dimensions in table order, the rest by name.
func formatMap(m map[string]string, dims cluster.Dims) string {
	rank := func(k string) int {
		if i, ok := dims.Index(k); ok {
			return i
		}
		return dims.Len()
	}
	keys := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		if c := rank(a) - rank(b); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = k
		if m[k] != "" {
			parts[i] += "=" + m[k]
		}
	}
	return strings.Join(parts, " ")
}
