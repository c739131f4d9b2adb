package dialect

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/upstream"
)

// upstreamFace is what is known of Kubernetes' own groups. Where the API server has none, nothing is.
type upstreamFace struct {
	groups  map[types.NamespacedName]*schedulingv1beta1.PodGroup // of our shard
	members map[types.NamespacedName]*upstreamMembers            // pods of ours that name a group, whether it is there or not
	near    map[types.NamespacedName]string                      // the node label in which the pods of a group agree
	layouts map[string]layout                                    // by node label, of those that groups name
}

// layout is how many groups name a node label, and how many nodes have it. There is a topology of it while both do: a label that no node has costs nothing, however many tenants think up.
type layout struct{ groups, nodes int }

func (l layout) laid() bool { return l.groups > 0 && l.nodes > 0 }

// upstreamMembers are the pods that name one group.
type upstreamMembers struct {
	pods   map[types.NamespacedName]struct{}
	eldest types.NamespacedName
}

func newUpstreamFace() upstreamFace {
	return upstreamFace{
		groups: map[types.NamespacedName]*schedulingv1beta1.PodGroup{}, members: map[types.NamespacedName]*upstreamMembers{},
		near: map[types.NamespacedName]string{}, layouts: map[string]layout{},
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
	return group, t.upstream.groups[group] != nil || p.Annotations[kai.PodGroupAnnotation] == ""
}

// joinUpstream puts a pod into the group that it names, or into none if the group is of another queue than the pod's label says, and says so.
func (t *Translator) joinUpstream(key, group types.NamespacedName, p *v1.Pod, st *cluster.PodState) {
	st.Gang, st.SetName = upstream.GangKey(group.Namespace, group.Name), p.Labels[kai.SubGroupLabel]
	pg, problem := t.upstream.groups[group], ""
	if pg != nil {
		if queue := t.upstreamQueue(group, pg); !upstream.Joins(p, queue, t.queueLabel) {
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

// upstreamQueue is the queue of a group: that of its own label, or, without one, of the label of the first pod that named it.
func (t *Translator) upstreamQueue(group types.NamespacedName, pg *schedulingv1beta1.PodGroup) string {
	if m := t.upstream.members[group]; m != nil && pg.Labels[t.queueLabel] == "" {
		return upstream.Queue(t.pods[m.eldest].Labels, t.queueLabel)
	}
	return upstream.Queue(pg.Labels, t.queueLabel)
}

// readUpstreamGang takes in a group.
func (t *Translator) readUpstreamGang(key types.NamespacedName, pg *schedulingv1beta1.PodGroup, apply func(cluster.Event)) {
	theirs := ""
	if pg != nil && !t.partition.Includes(pg.Labels) {
		theirs, pg = string(pg.UID), nil
	}
	gang := upstream.GangKey(key.Namespace, key.Name)
	t.gang(gang, pg != nil, theirs)
	was, had := t.upstream.groups[key]
	queue := ""
	if had {
		queue = t.upstreamQueue(key, was)
	}
	if pg == nil {
		delete(t.upstream.groups, key)
		t.lieNear(key, "", apply)
		t.problem(UpstreamPodGroups, key, "")
		if had {
			t.stirUpstream(key)
		}
		apply(cluster.GangGone{Key: gang})
		return
	}
	t.upstream.groups[key] = pg
	if !had || t.upstreamQueue(key, pg) != queue {
		t.stirUpstream(key)
	}
	t.lieNear(key, upstream.TopologyKey(pg), apply)
	st := upstream.Gang(pg, t.upstreamQueue(key, pg), t.priorities.Value)
	t.problem(UpstreamPodGroups, key, st.Invalid)
	apply(st)
}

// stirUpstream has the pods that name a group told anew.
func (t *Translator) stirUpstream(group types.NamespacedName) {
	if m := t.upstream.members[group]; m != nil {
		for pod := range m.pods { // order: each pod on its own
			t.dirty[pod] = struct{}{}
		}
	}
}

// lieNear notes in which node label the pods of a group agree, "" for none. A label that no group named before costs a look at each node.
func (t *Translator) lieNear(group types.NamespacedName, label string, apply func(cluster.Event)) {
	was := t.upstream.near[group]
	if was == label {
		return
	}
	if was != "" {
		delete(t.upstream.near, group)
		l := t.upstream.layouts[was]
		t.layOut(was, layout{l.groups - 1, l.nodes}, apply)
	}
	if label != "" {
		t.upstream.near[group] = label
		l := t.upstream.layouts[label]
		if l.groups == 0 {
			for _, n := range t.nodes { // order: a sum
				if _, has := n.Labels[label]; has {
					l.nodes++
				}
			}
		}
		t.layOut(label, layout{l.groups + 1, l.nodes}, apply)
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
				t.layOut(label, layout{l.groups, l.nodes + by}, apply)
			}
		}
	}
	count(old, labels, -1)
	count(labels, old, 1)
}

// layOut notes how many name a label and have it, and tells of the topology that it is when that comes or goes.
func (t *Translator) layOut(label string, is layout, apply func(cluster.Event)) {
	was := t.upstream.layouts[label]
	if t.upstream.layouts[label] = is; is.groups == 0 {
		delete(t.upstream.layouts, label)
	}
	switch {
	case is.laid() && !was.laid():
		apply(upstream.Topology(label))
	case was.laid() && !is.laid():
		apply(cluster.TopologyGone{Name: upstream.TopologyName(label)})
	}
}

// followUpstream keeps which pods name which groups when a pod changes from old to p, which is in pods already; nil is no pod. A group whose queue is another now is told anew.
func (t *Translator) followUpstream(key types.NamespacedName, old, p *v1.Pod, apply func(cluster.Event)) {
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
			t.retellUpstream(was, apply)
		}
	}
	if is.Name == "" {
		return
	}
	m := t.upstream.members[is]
	if m == nil {
		m = &upstreamMembers{pods: map[types.NamespacedName]struct{}{}, eldest: key}
		t.upstream.members[is] = m
	}
	m.pods[key] = struct{}{}
	if before := m.eldest; before == key || t.elder(key, before) {
		m.eldest = key
	}
	if m.eldest == key || was == is {
		t.retellUpstream(is, apply)
	}
}

// retellUpstream tells of a group anew, and of the pods that name it, as its queue may be another: that of a group without a label.
func (t *Translator) retellUpstream(group types.NamespacedName, apply func(cluster.Event)) {
	if pg := t.upstream.groups[group]; pg != nil && pg.Labels[t.queueLabel] == "" {
		t.stirUpstream(group)
		apply(upstream.Gang(pg, t.upstreamQueue(group, pg), t.priorities.Value))
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
