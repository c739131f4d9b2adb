package dialect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
	"github.com/muster-scheduler/muster/internal/entry"
)

// upstreamFace is what is known of Kubernetes' own groups. Where the API server has none, nothing is.
type upstreamFace struct {
	groups     map[types.NamespacedName]*schedulingv1beta1.PodGroup           // of all shards
	composites map[types.NamespacedName]*schedulingv1alpha3.CompositePodGroup // the same
	below      map[types.NamespacedName]*upstreamBelow                        // what names a composite as its parent, whether it is there or not
	members    map[types.NamespacedName]*upstreamMembers                      // pods of ours that name a group, whether it is there or not
	near       map[cluster.Key][]string                                       // the node labels in which pods of a gang agree
	layouts    map[string]layout                                              // by node label, of those that gangs name

	// What has been told: where each group is, and the queue of those that are gangs by themselves, and of trees, by their root.
	placed map[types.NamespacedName]upstreamPlace
	alone  map[types.NamespacedName]string
	trees  map[types.NamespacedName]string
	// What is to be told anew.
	groupsDirty, treesDirty map[types.NamespacedName]struct{}
}

// upstreamBelow is what names one composite as its parent.
type upstreamBelow struct {
	groups, composites map[types.NamespacedName]struct{}
}

// upstreamPlace is where a group is: by itself, or in a tree.
type upstreamPlace struct {
	root      types.NamespacedName // the zero name for a group by itself
	lacks     types.NamespacedName // the composite that is named and not there, if that is why it is in no tree
	ours      bool                 // of our shard, by the labels of the root, or its own
	going     bool                 // it, or a composite above it, is being deleted
	subgroups string
	problem   string // why it is in no tree although it names a parent
}

func (p *upstreamPlace) inTree() bool { return p.root.Name != "" }

// layout is how many gangs name a node label, and how many nodes have it. There is a topology of it while both do: a label that no node has costs nothing, however many tenants think up.
type layout struct{ gangs, nodes int }

func (l layout) laid() bool { return l.gangs > 0 && l.nodes > 0 }

// upstreamMembers are the pods that name one group.
type upstreamMembers struct {
	pods   map[types.NamespacedName]struct{}
	eldest types.NamespacedName
}

func newUpstreamFace() upstreamFace {
	return upstreamFace{
		groups: map[types.NamespacedName]*schedulingv1beta1.PodGroup{}, composites: map[types.NamespacedName]*schedulingv1alpha3.CompositePodGroup{},
		below: map[types.NamespacedName]*upstreamBelow{}, members: map[types.NamespacedName]*upstreamMembers{},
		near: map[cluster.Key][]string{}, layouts: map[string]layout{}, placed: map[types.NamespacedName]upstreamPlace{},
		alone: map[types.NamespacedName]string{}, trees: map[types.NamespacedName]string{},
		groupsDirty: map[types.NamespacedName]struct{}{}, treesDirty: map[types.NamespacedName]struct{}{},
	}
}

// upstreams returns the group of Kubernetes' own that a pod of ours names; ok is false for one that names none, and for one that names a PodGroup of KAI's besides
// while there is no such group: then that counts, as where there are no groups at all.
func (t *Translator) upstreams(p *v1.Pod) (group types.NamespacedName, ok bool) {
	gang := upstream.Membership(p)
	if gang.Name == "" || !slices.Contains(t.roles.SchedulerNames, p.Spec.SchedulerName) {
		return group, false
	}
	group = types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}
	place, there := t.upstreamPlace(group)
	return group, there && place.ours || p.Annotations[kai.PodGroupAnnotation] == ""
}

// joinUpstream puts a pod into the group that it names, or into none if the group is of another queue than the pod's label says, and says so.
func (t *Translator) joinUpstream(key, group types.NamespacedName, p *v1.Pod, st *cluster.PodState) {
	st.Gang, st.SetName = upstream.GangKey(group.Namespace, group.Name), p.Labels[kai.SubGroupLabel]
	place, there := t.upstreamPlace(group)
	root, waits := place.root, false
	if place.lacks.Name != "" && p.Spec.NodeName != "" { // what it holds is the tree's, which comes later
		root, waits = place.lacks, true
	}
	if root.Name != "" {
		st.Gang = upstream.CompositeKey(root.Namespace, root.Name)
		st.SetName = upstream.SetIn(t.upstream.groups[group], st.SetName, place.going)
	}
	problem := ""
	if there && place.ours && !waits {
		if queue := t.upstreamQueue(group, &place); !upstream.Joins(p, queue, t.queueLabel) {
			st.Gang, st.SetName = cluster.Key{}, ""
			problem = fmt.Sprintf("Pod %s: spec.schedulingGroup names PodGroup %s, which is of queue %s; the pod's label %s makes it one of queue %s, so it is not in the group, and waits",
				key, group.Name, queue, t.queueLabel, upstream.Queue(p.Labels, t.queueLabel))
		}
	}
	if other := p.Annotations[kai.PodGroupAnnotation]; other != "" && problem == "" {
		problem = fmt.Sprintf("Pod %s: annotation %s is overlooked: spec.schedulingGroup names PodGroup %s", key, kai.PodGroupAnnotation, group.Name)
	}
	t.problem(Pods, key, problem)
}

// upstreamQueue is the queue of a group that is there: that of its own label, or, without one, of the label of the first pod that named it. Of one in a tree, it is that of the tree.
func (t *Translator) upstreamQueue(group types.NamespacedName, at *upstreamPlace) string {
	if at.inTree() {
		if queue, told := t.upstream.trees[at.root]; told {
			return queue
		}
		return t.treeQueue(at.root, t.branch(at.root, 1))
	}
	labels := t.upstream.groups[group].Labels
	if m := t.upstream.members[group]; m != nil && labels[t.queueLabel] == "" {
		labels = t.pods[m.eldest].Labels
	}
	return upstream.Queue(labels, t.queueLabel)
}

// readUpstreamGang takes in a group.
func (t *Translator) readUpstreamGang(key types.NamespacedName, pg *schedulingv1beta1.PodGroup) {
	old := t.upstream.groups[key]
	if old != nil && pg != nil && saysTheSame(old, pg) { // a status, which we write ourselves, would have a whole tree told anew
		t.upstream.groups[key] = pg
		return
	}
	if old != nil {
		t.hangGroup(key, old, false)
	}
	if pg == nil {
		delete(t.upstream.groups, key)
	} else {
		t.upstream.groups[key] = pg
		t.hangGroup(key, pg, true)
	}
	t.upstream.groupsDirty[key] = struct{}{}
}

// saysTheSame says whether two states of a group differ in nothing but what is not read: its status, and who wrote what when.
func saysTheSame(a, b *schedulingv1beta1.PodGroup) bool {
	return a.UID == b.UID && a.DeletionTimestamp.Equal(b.DeletionTimestamp) && a.CreationTimestamp.Equal(&b.CreationTimestamp) && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(&a.Spec, &b.Spec)
}

// tellUpstreamGroup tells of a group that may have changed, or may be in another place: of the gang that it is by itself, if it is one.
func (t *Translator) tellUpstreamGroup(key types.NamespacedName, apply func(cluster.Event)) {
	place, there := t.upstreamPlace(key)
	was, had := t.upstream.placed[key]
	if t.upstream.placed[key] = place; !there {
		delete(t.upstream.placed, key)
	}
	if place != was || there != had {
		t.stirUpstream(key)
	}
	for _, at := range []upstreamPlace{was, place} {
		if at.inTree() {
			t.upstream.treesDirty[at.root] = struct{}{}
		}
	}
	gang, pg := upstream.GangKey(key.Namespace, key.Name), t.upstream.groups[key]
	self, theirs := there && !place.inTree(), ""
	if self && !place.ours {
		self, theirs = false, string(pg.UID)
	}
	t.gang(gang, self, theirs)
	if !self {
		delete(t.upstream.alone, key)
		t.lieNear(gang, nil, apply)
		t.problem(UpstreamPodGroups, key, "")
		apply(cluster.GangGone{Key: gang})
		return
	}
	queue := t.upstreamQueue(key, &place)
	if told, was := t.upstream.alone[key]; !was || told != queue {
		t.stirUpstream(key)
	}
	t.upstream.alone[key] = queue
	var st cluster.GangState
	if place.problem != "" {
		if m := t.upstream.members[key]; m != nil && place.lacks.Name != "" {
			for pod := range m.pods { // order: each by itself. What holds room is none of this gang's, before there is one
				if p := t.pods[pod]; p.Spec.NodeName != "" {
					t.tellPod(pod, p, apply)
				}
			}
		}
		st = upstream.Orphan(pg, queue, t.priorities.Value, place.problem)
		t.lieNear(gang, nil, apply)
	} else {
		st = upstream.Gang(pg, queue, t.priorities.Value)
		var near []string
		if label := upstream.TopologyKey(pg); label != "" {
			near = []string{label}
		}
		t.lieNear(gang, near, apply)
	}
	t.problem(UpstreamPodGroups, key, st.Invalid)
	apply(st)
}

// recheckUpstreams tells of the groups and trees that may have changed.
func (t *Translator) recheckUpstreams(apply func(cluster.Event)) {
	for key := range t.upstream.groupsDirty { // order: each by itself
		t.one(UpstreamPodGroups, key, func() { t.tellUpstreamGroup(key, apply) })
	}
	clear(t.upstream.groupsDirty)
	for root := range t.upstream.treesDirty { // order: the same
		t.one(CompositePodGroups, root, func() { t.tellTree(root, apply) })
	}
	clear(t.upstream.treesDirty)
}

// stirUpstream has the pods that name a group told anew.
func (t *Translator) stirUpstream(group types.NamespacedName) {
	if m := t.upstream.members[group]; m != nil {
		for pod := range m.pods { // order: each pod on its own
			t.dirty[pod] = struct{}{}
		}
	}
}

// lieNear notes in which node labels pods of a gang agree, each once, sorted. A label that no gang named before costs a look at each node.
func (t *Translator) lieNear(gang cluster.Key, labels []string, apply func(cluster.Event)) {
	was := t.upstream.near[gang]
	if slices.Equal(was, labels) {
		return
	}
	if t.upstream.near[gang] = labels; len(labels) == 0 {
		delete(t.upstream.near, gang)
	}
	for _, label := range was {
		if !slices.Contains(labels, label) {
			l := t.upstream.layouts[label]
			t.layOut(label, layout{l.gangs - 1, l.nodes}, apply)
		}
	}
	for _, label := range labels {
		if slices.Contains(was, label) {
			continue
		}
		l := t.upstream.layouts[label]
		if l.gangs == 0 {
			for _, n := range t.nodes { // order: a sum
				if _, has := n.Labels[label]; has {
					l.nodes++
				}
			}
		}
		t.layOut(label, layout{l.gangs + 1, l.nodes}, apply)
	}
}

// labelled takes in that a node of ours has other labels than it had.
func (t *Translator) labelled(old, labels map[string]string, apply func(cluster.Event)) {
	if len(t.upstream.layouts) == 0 {
		return
	}
	count := func(of, other map[string]string, by int) {
		for label := range of { // order: each on its own
			l, named := t.upstream.layouts[label]
			if _, both := other[label]; named && !both {
				t.layOut(label, layout{l.gangs, l.nodes + by}, apply)
			}
		}
	}
	count(old, labels, -1)
	count(labels, old, 1)
}

// layOut notes how many name a label and have it, and tells of the topology that it is when that comes or goes.
func (t *Translator) layOut(label string, is layout, apply func(cluster.Event)) {
	was := t.upstream.layouts[label]
	if t.upstream.layouts[label] = is; is.gangs == 0 {
		delete(t.upstream.layouts, label)
	}
	switch {
	case is.laid() && !was.laid():
		apply(upstream.Topology(label))
	case was.laid() && !is.laid():
		apply(cluster.TopologyGone{Name: upstream.TopologyName(label)})
	}
}

// followUpstream keeps which pods name which groups when a pod changes from old to p, which is in pods already; nil is no pod. A group whose queue may be another now is told anew.
func (t *Translator) followUpstream(key types.NamespacedName, old, p *v1.Pod) {
	named := func(p *v1.Pod) (group types.NamespacedName) {
		if p == nil || !slices.Contains(t.roles.SchedulerNames, p.Spec.SchedulerName) {
			return group
		}
		gang := upstream.Membership(p)
		return types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}
	}
	was, is := named(old), named(p)
	if was == is && (is.Name == "" || old.UID == p.UID && old.Labels[t.queueLabel] == p.Labels[t.queueLabel]) {
		return
	}
	if was.Name != "" {
		m := t.upstream.members[was]
		first := m.eldest == key
		if delete(m.pods, key); len(m.pods) == 0 {
			delete(t.upstream.members, was)
		} else if first {
			t.electUpstream(m)
		}
		if first && was != is {
			t.retellUpstream(was)
		}
	}
	if is.Name == "" {
		return
	}
	m := entry.Or(t.upstream.members, is, func() *upstreamMembers {
		return &upstreamMembers{pods: map[types.NamespacedName]struct{}{}, eldest: key}
	})
	m.pods[key] = struct{}{}
	if before := m.eldest; before == key || t.elder(key, before) {
		m.eldest = key
	}
	if m.eldest == key || was == is {
		t.retellUpstream(is)
	}
}

// retellUpstream has a group, or the tree that it is in, told anew, as its queue may be another: that of one without a label.
func (t *Translator) retellUpstream(group types.NamespacedName) {
	place, there := t.upstreamPlace(group)
	switch {
	case !there:
	case !place.inTree() && t.upstream.groups[group].Labels[t.queueLabel] == "":
		t.upstream.groupsDirty[group] = struct{}{}
	case place.inTree() && t.upstream.composites[place.root].Labels[t.queueLabel] == "":
		t.upstream.treesDirty[place.root] = struct{}{}
	}
}

// electUpstream finds the eldest of pods anew. It costs a look at each.
func (t *Translator) electUpstream(m *upstreamMembers) {
	m.eldest = types.NamespacedName{}
	for pod := range m.pods { // order: minimum
		if m.eldest.Name == "" || t.elder(pod, m.eldest) {
			m.eldest = pod
		}
	}
}

// elder says whether a pod was made before another; of two of one second it is the one with the lesser UID.
func (t *Translator) elder(a, b types.NamespacedName) bool {
	x, y := t.pods[a], t.pods[b]
	return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.UID, y.UID), cmp.Compare(a.String(), b.String())) < 0
}
