package explain

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// makeRoom proposes how the class of pods that found no place gets one. In this order: nodes that are there and could be used if
// something about them changed, when they suffice; more room; and, for pods that ask for what no node can be, that they do not.
func (w *trial) makeRoom(have []*Change, o *outcome) []*Change {
	class := o.gang.Diagnosis.Pods
	if class == nil {
		return nil
	}
	if w.own {
		if c := w.corrections(class, o); len(c) > 0 { // facts: whatever else is missing, this is wrong
			return c[0]
		}
	}
	for _, c := range w.openings(class, o) {
		if c = w.fewest(have, c, o); c != nil {
			return c
		}
	}
	if c := w.moreRoom(have, class, o); c != nil {
		return c
	}
	if len(namedNodes(class)) > 0 {
		return w.one(Change{Kind: DropNodeName})
	}
	if class.NodeAffinity != nil && class.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return w.one(Change{Kind: DropAffinity})
	}
	return nil
}

// helped says whether the changes get the gang further than o: it starts, or something other than the place for this class
// stops it.
func (w *trial) helped(changes []*Change, o *outcome) bool {
	next := w.try(changes)
	if next.placed() || next.gang == nil || next.gang.Diagnosis == nil {
		return next.placed()
	}
	was, is := o.gang.Diagnosis, next.gang.Diagnosis
	if is.Pods == nil || is.Pods.Key == was.Pods.Key { // the same pods still have no place: a place for some of them is some help
		return is.Verdict.Reason != was.Verdict.Reason && is.Verdict.Reason.Unblock != policy.UnblockSize
	}
	return is.Verdict.Reason != policy.ReasonGangNoRoom || was.Verdict.Reason != policy.ReasonGangNoRoom || is.Verdict.Have > was.Verdict.Have
}

// opening is one step that makes nodes usable, and the nodes with room for which nothing else is in the way; best node first.
type opening struct {
	nodes  []*cluster.Node
	change Change
}

// openings lists, for a class, the ways to make existing nodes with room usable, each as changes to all nodes it could be done
// to: first the nodes that are one step away, by kind of step; then all of those; then all that could be used at all.
func (w *trial) openings(class *cluster.Class, o *outcome) [][]*Change {
	matches := len(class.RestrictTo) == 0 && slices.ContainsFunc(o.snap.NodeOrder, func(id cluster.NodeID) bool {
		set, absent, ok := wanted(class, o.snap.Node(id).Name, o.snap.Node(id).Labels)
		return ok && len(set)+len(absent) == 0
	})
	var single []*opening
	var any []*Change
	for _, id := range o.snap.NodeOrder {
		n := o.snap.Node(id)
		steps, ok := obstacles(class, n)
		if !ok || len(steps) == 0 || class.Requests.CountIn(n.Later(), 1) == 0 ||
			matches && slices.ContainsFunc(steps, func(c Change) bool { return c.Kind == LabelNode }) {
			continue // when nodes that carry the labels exist, others are meant for something else
		}
		any = merge(any, w.onNode(steps, n))
		if len(steps) > 1 {
			continue
		}
		i := slices.IndexFunc(single, func(op *opening) bool { return op.change.like(&steps[0]) })
		if i < 0 {
			i = len(single)
			single = append(single, &opening{change: steps[0]})
		}
		single[i].nodes = append(single[i].nodes, n)
	}
	rank := []Kind{Uncordon, RemoveTaint, LabelNode, AddToShard, RepairNode}
	slices.SortStableFunc(single, func(a, b *opening) int {
		return cmp.Compare(slices.Index(rank, a.change.Kind), slices.Index(rank, b.change.Kind))
	})
	var out [][]*Change
	var together []*Change
	for _, op := range single {
		slices.SortStableFunc(op.nodes, func(a, b *cluster.Node) int {
			return cmp.Compare(class.Requests.CountIn(b.Later(), manyPods), class.Requests.CountIn(a.Later(), manyPods))
		})
		var all []*Change
		for _, n := range op.nodes {
			all = merge(all, w.onNode([]Change{op.change}, n))
		}
		together = merge(together, all)
		if op.change.Kind == RemoveTaint && len(op.nodes) > 1 { // if one node is not enough, one edit of the gang instead of many of nodes
			out = append(out, []*Change{w.onNode([]Change{op.change}, op.nodes[0])[0]})
			t := op.change
			t.Kind = Tolerate
			out = append(out, w.one(t))
		}
		out = append(out, all)
	}
	if len(single) > 1 {
		out = append(out, together)
	}
	if len(any) > 0 {
		out = append(out, any)
	}
	return out
}

// manyPods bounds counts of pods that ask for nothing.
const manyPods = 1 << 16

// onNode makes steps changes to one node.
func (w *trial) onNode(steps []Change, n *cluster.Node) []*Change {
	var out []*Change
	for _, c := range steps {
		c.Nodes = []string{n.Name}
		out = append(out, w.one(c)...)
	}
	return out
}

// fewest returns as much of the opening as gets the gang further, nil when all of it does not.
func (w *trial) fewest(have, opening []*Change, o *outcome) []*Change {
	if !w.helped(merge(have, opening), o) {
		return nil
	}
	if len(opening) != 1 || len(opening[0].Nodes) < 2 {
		return opening
	}
	c := opening[0]
	none, most := 0, len(c.Nodes)
	for most-none > 1 {
		mid := (none + most) / 2
		d := *c
		d.Nodes = c.Nodes[:mid]
		if w.helped(merge(have, []*Change{&d}), o) {
			most = mid
		} else {
			none = mid
		}
	}
	d := *c
	d.Nodes = slices.Clone(c.Nodes[:most])
	return []*Change{&d}
}

// obstacles lists what would have to change about a node for pods of the class to be let on it; ok is false when
// nobody could change it.
func obstacles(class *cluster.Class, n *cluster.Node) (steps []Change, ok bool) {
	switch n.Problem {
	case "", cluster.NoWorkerLabel: // of which the label that it needs follows
	case "Unschedulable":
		steps = append(steps, Change{Kind: Uncordon})
	default:
		steps = append(steps, Change{Kind: RepairNode, Detail: n.Problem})
	}
	for i := range n.Taints {
		t := &n.Taints[i]
		if t.Effect != v1.TaintEffectPreferNoSchedule && !policy.Tolerates(class.Tolerations, t) {
			steps = append(steps, Change{Kind: RemoveTaint, Detail: t.ToString(), taint: t})
		}
	}
	if !n.In(class.Within) {
		steps = append(steps, Change{Kind: AddToShard, Object: class.Within})
	}
	labels, absent, ok := wanted(class, n.Name, n.Labels)
	if !ok {
		return nil, false
	}
	for k := range labels { // order: any one of them
		if describesHardware(k) {
			return nil, false
		}
	}
	if slices.ContainsFunc(absent, describesHardware) {
		return nil, false
	}
	if len(labels)+len(absent) > 0 {
		steps = append(steps, Change{Kind: LabelNode, Labels: labels, absent: absent})
	}
	return steps, true
}

// wanted returns the labels that a node called name with labels have lacks for the class, and those that must go. ok is false
// when labels cannot do it.
func wanted(class *cluster.Class, name string, have map[string]string) (set map[string]string, absent []string, ok bool) {
	set = map[string]string{}
	for k, v := range class.NodeSelector { // order: a map
		if x, there := have[k]; !there || x != v {
			set[k] = v
		}
	}
	if len(class.RestrictTo) > 0 && !slices.ContainsFunc(class.RestrictTo, func(k string) bool { _, there := have[k]; return there }) {
		set[class.RestrictTo[0]] = ""
	}
	if class.NodeAffinity == nil || class.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return set, nil, true
	}
	best, bestAbsent, found := map[string]string(nil), []string(nil), false
	for _, term := range class.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			continue // matches nothing
		}
		s, a, fits := forTerm(&term, name, have, class.NodeSelector)
		if fits && (!found || len(s)+len(a) < len(best)+len(bestAbsent)) {
			best, bestAbsent, found = s, a, true
		}
	}
	maps.Copy(set, best)
	return set, bestAbsent, found
}

// forTerm returns what a node lacks for one term of a required affinity. fixed are labels that something else needs as they are.
func forTerm(term *v1.NodeSelectorTerm, name string, have, fixed map[string]string) (set map[string]string, absent []string, ok bool) {
	for _, f := range term.MatchFields {
		if f.Key != "metadata.name" || (f.Operator == v1.NodeSelectorOpIn) != slices.Contains(f.Values, name) {
			return nil, nil, false
		}
	}
	set = map[string]string{}
	for _, e := range term.MatchExpressions {
		x, there := have[e.Key]
		y, taken := fixed[e.Key]
		if z, over := set[e.Key]; over {
			y, taken = z, true
		}
		if taken {
			x, there = y, true
		}
		value, remove, good := forExpression(&e, x, there)
		if !good || taken && (remove || value != y) { // it contradicts another demand
			return nil, nil, false
		}
		switch {
		case remove && there:
			absent = append(absent, e.Key)
		case !remove && (value != x || !there):
			set[e.Key] = value
		}
	}
	slices.Sort(absent)
	return set, slices.Compact(absent), true
}

// forExpression returns the value a label should have for an expression, or that it should not be there.
func forExpression(e *v1.NodeSelectorRequirement, x string, there bool) (value string, remove, ok bool) {
	switch e.Operator {
	case v1.NodeSelectorOpIn:
		if there && slices.Contains(e.Values, x) {
			return x, false, true
		}
		if len(e.Values) == 0 {
			return "", false, false
		}
		return e.Values[0], false, true
	case v1.NodeSelectorOpExists:
		return x, false, true
	case v1.NodeSelectorOpNotIn:
		return x, !there || slices.Contains(e.Values, x), true // not there is as good as gone
	case v1.NodeSelectorOpDoesNotExist:
		return "", true, true
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(e.Values) != 1 {
			return "", false, false
		}
		bound, err := strconv.ParseInt(e.Values[0], 10, 64)
		if err != nil {
			return "", false, false
		}
		if have, err := strconv.ParseInt(x, 10, 64); there && err == nil && (e.Operator == v1.NodeSelectorOpGt) == (have > bound) && have != bound {
			return x, false, true
		}
		if e.Operator == v1.NodeSelectorOpGt {
			return strconv.FormatInt(bound+1, 10), false, true
		}
		return strconv.FormatInt(bound-1, 10), false, true
	}
	return "", false, false
}

// moreRoom proposes the fewest places, each for one pod of the class, that get the gang further.
func (w *trial) moreRoom(have []*Change, class *cluster.Class, o *outcome) []*Change {
	for _, p := range w.places(class, o) {
		c := p.room
		with := func() []*Change { return append(slices.Clone(p.first), &c) }
		most := 1
		for ; ; most *= 2 {
			c.Count = most
			if w.helped(merge(have, with()), o) {
				break
			}
			if most > 2*len(o.snap.GangByKey(w.key).Pods)+2 {
				most = 0
				break
			}
		}
		if most == 0 {
			continue
		}
		none := most / 2
		for most-none > 1 {
			mid := (none + most) / 2
			c.Count = mid
			if w.helped(merge(have, with()), o) {
				most = mid
			} else {
				none = mid
			}
		}
		c.Count = most
		return with()
	}
	return nil
}

// place is a kind of room, and what has to be done first to the node it is on.
type place struct {
	first []*Change
	room  Change
}

// places lists the kinds of room that could do for the class: a new node with just the labels that are asked for; for pods whose
// place depends on what runs nearby, one with the labels of a node that exists; and the very node that is asked for.
func (w *trial) places(class *cluster.Class, o *outcome) []place {
	c := Change{Kind: AddRoom, gang: w.key, Resources: map[string]string{}, Object: class.Within, same: class.Key}
	for d, x := range class.Requests {
		if x == 0 {
			continue
		}
		c.requests = append(c.requests, cluster.Quantity{Name: o.snap.Dims.Name(d), Value: x})
		if d != cluster.Slots {
			c.Resources[o.snap.Dims.Name(d)] = o.snap.Dims.FormatOne(d, x)
		}
	}
	if class.NodeAffinity != nil && class.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		c.Detail = "matching its node affinity"
	}
	var out []place
	if labels, _, ok := wanted(class, c.placeName(0), nil); ok {
		plain := c
		plain.Labels = labels
		out = append(out, place{room: plain})
		if class.NeedsFilters() {
			out = append(out, twins(c, class, o.snap)...)
		}
	}
	for _, name := range namedNodes(class) {
		p := place{room: c}
		p.room.Node, p.room.Detail, p.room.same = name, "", c.same+"\x00"+name
		if n := o.snap.NodeByName(name); n != nil {
			steps, ok := obstacles(class, n)
			if !ok {
				continue
			}
			p.first = w.onNode(steps, n)
		} else if labels, _, ok := wanted(class, name, nil); ok {
			p.room.Labels = labels
		} else {
			continue
		}
		out = append(out, p)
	}
	return out
}

// twins are new nodes with the labels of usable ones, one for each of the first few different sets of labels.
func twins(c Change, class *cluster.Class, snap *cluster.Snapshot) []place {
	const most = 8
	var out []place
	shapes := map[string]bool{}
	for _, id := range snap.NodeOrder {
		n := snap.Node(id)
		steps, ok := obstacles(class, n)
		shape := formatMap(n.Labels, snap.Dims)
		if !ok || len(steps) > 0 || shapes[shape] || len(shapes) == most {
			continue
		}
		shapes[shape] = true
		twin := c
		twin.Labels, twin.same = n.Labels, c.same+"\x00"+shape
		out = append(out, place{room: twin})
	}
	return out
}

// namedNodes returns the nodes that the class asks for by name.
func namedNodes(class *cluster.Class) []string {
	if class.NodeAffinity == nil || class.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	var out []string
	for _, term := range class.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == "metadata.name" && f.Operator == v1.NodeSelectorOpIn {
				out = append(out, f.Values...)
			}
		}
	}
	return out
}
