package vcpodgroup

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
)

// unseen is how long a PodGroup that was made may take to be seen before it is made again, should it have come and gone unnoticed.
const unseen = 10 * time.Second

// plan is what a look at a gang has written, in this order.
type plan struct {
	key key
	// create is the PodGroup to make.
	create *scheduling.PodGroup
	// group is the PodGroup that patch changes, or remove deletes.
	group  *scheduling.PodGroup
	patch  []byte
	remove bool
	// first is the pod whose user is told if there can be no PodGroup.
	first *corev1.Pod
	// mark are the pods that are told their PodGroup.
	mark []*corev1.Pod
}

// decide says what is to be written of a gang. again is when it is to be looked at even without an event.
func (b *book) decide(k key, now time.Time) (p plan, again time.Time) {
	p.key = k
	g := b.gangs[k]
	if g == nil {
		return p, again
	}
	uid := strings.TrimPrefix(k.Name, volcano.GroupPrefix)
	ours := g.group != nil && slices.ContainsFunc(g.group.OwnerReferences, func(o metav1.OwnerReference) bool { return string(o.UID) == uid })
	o := b.owners[types.UID(uid)]
	members := slices.SortedFunc(maps.Values(g.pods), func(x, y *corev1.Pod) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	switch {
	case o != nil && o.replicas != nil && *o.replicas == 0:
		if ours && g.group.DeletionTimestamp == nil {
			p.group, p.remove = g.group, true
		}
		return p, again
	case len(members) == 0, g.group != nil && g.group.DeletionTimestamp != nil:
		return p, again
	case o == nil && read(metav1.GetControllerOf(members[0])):
		return p, again // it is on its way, or gone
	}
	first := members[0]
	if o != nil && o.revision != "" {
		if i := slices.IndexFunc(members, func(m *corev1.Pod) bool { return m.Labels[appsv1.ControllerRevisionHashLabelKey] == o.revision }); i >= 0 {
			first = members[i]
		}
	}
	want := b.groupOf(k, first, o)
	if until := g.made.Add(unseen); g.group == nil && !g.made.IsZero() && now.Before(until) {
		again = until
	} else if g.group == nil {
		p.create, p.first = want, first
	} else if ours && o != nil && o.replicas != nil {
		p.group, p.patch = g.group, change(g.group, want)
	}
	for _, m := range members {
		if m.Annotations[keys.GroupName] != "" {
			continue
		}
		// The scheduler knows without being told, and its Binding says it.
		if until := m.CreationTimestamp.Add(b.nameAfter); m.Spec.NodeName == "" && now.Before(until) {
			if again.IsZero() || until.Before(again) {
				again = until
			}
			continue
		}
		p.mark = append(p.mark, m)
	}
	return p, again
}

// read says whether a controller is of a kind whose annotations are read.
func read(c *metav1.OwnerReference) bool {
	if c == nil {
		return false
	}
	switch c.Kind {
	case "ReplicaSet", "StatefulSet", "DaemonSet":
		return c.APIVersion == appsv1.SchemeGroupVersion.String()
	case "Job":
		return c.APIVersion == batchv1.SchemeGroupVersion.String()
	}
	return false
}

// fromPod are the keys of a pod that go to its PodGroup, besides those of its disruption budget.
var fromPod = []string{keys.Preemptable, keys.CooldownTime, keys.RevocableZone}

// groupOf is the PodGroup of a gang, as its first pod and the pods' controller say. o is nil for a controller whose annotations are not read.
func (b *book) groupOf(k key, p *corev1.Pod, o *owner) *scheduling.PodGroup {
	least := int32(1)
	notes, labels := map[string]string{}, map[string]string{}
	if o != nil {
		if n, err := strconv.ParseInt(o.annotations[keys.GroupMinMember], 10, 32); err == nil && n >= 0 {
			least = int32(n)
		}
		for name, value := range o.annotations { // order: the result is a map
			if b.inherit && strings.HasPrefix(name, keys.OwnPrefix) {
				notes[name] = value
			}
		}
	}
	for _, name := range fromPod {
		if value, ok := p.Annotations[name]; ok {
			notes[name] = value
		}
		if value, ok := p.Labels[name]; ok && name != keys.RevocableZone {
			labels[name] = value
		}
	}
	for _, name := range []string{keys.JDBMinAvailable, keys.JDBMaxUnavailable} {
		if value, ok := p.Annotations[name]; ok {
			notes[name] = value
			break
		}
	}
	room := corev1.ResourceList{}
	volcano.AddTimes(room, volcano.Usage(&p.Spec), int64(least))
	return &scheduling.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, Annotations: notes, Labels: labels, OwnerReferences: ownersOf(p)},
		Spec: scheduling.PodGroupSpec{
			MinMember: least, MinResources: &room, PriorityClassName: p.Spec.PriorityClassName, Queue: cmp.Or(p.Annotations[keys.QueueName], keys.DefaultQueue),
			NetworkTopology: topology(p.Annotations),
		},
	}
}

// ownersOf are those with which a pod's PodGroup goes: the pod's own, if one is its controller, or the pod. None is held up by it, so that no
// right to its finalizers is needed.
func ownersOf(p *corev1.Pod) []metav1.OwnerReference {
	if metav1.GetControllerOf(p) == nil {
		yes := true
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &yes}}
	}
	out := slices.Clone(p.OwnerReferences)
	for i := range out {
		out[i].BlockOwnerDeletion = nil
	}
	return out
}

// topology is the constraint that a pod's annotations ask for; nil for none. A mode that is none is hard, and a tier that is none is not there.
func topology(notes map[string]string) *scheduling.NetworkTopologySpec {
	mode, hasMode := notes[keys.NetworkTopologyMode]
	tier, hasTier := notes[keys.NetworkTopologyHighestTier]
	if !hasMode && !hasTier {
		return nil
	}
	t := &scheduling.NetworkTopologySpec{Mode: scheduling.HardNetworkTopologyMode}
	if mode == string(scheduling.SoftNetworkTopologyMode) {
		t.Mode = scheduling.SoftNetworkTopologyMode
	}
	if n, err := strconv.ParseInt(tier, 10, 32); err == nil && n >= 0 {
		highest := int(n)
		t.HighestTierAllowed = &highest
	}
	return t
}

// change is the patch that makes a PodGroup what it is to be; nil if it is. What others put beside it stays.
func change(have, want *scheduling.PodGroup) []byte {
	spec, meta := map[string]any{}, map[string]any{}
	if have.Spec.MinMember != want.Spec.MinMember || !equality.Semantic.DeepEqual(have.Spec.MinResources, want.Spec.MinResources) {
		spec["minMember"], spec["minResources"] = want.Spec.MinMember, volcano.Replaced(have.Spec.MinResources, *want.Spec.MinResources)
	}
	if have.Spec.PriorityClassName != want.Spec.PriorityClassName {
		spec["priorityClassName"] = want.Spec.PriorityClassName
	}
	if have.Spec.Queue != want.Spec.Queue {
		spec["queue"] = want.Spec.Queue
	}
	if !equality.Semantic.DeepEqual(have.Spec.NetworkTopology, want.Spec.NetworkTopology) {
		spec["networkTopology"] = nil
		if t := want.Spec.NetworkTopology; t != nil {
			spec["networkTopology"] = map[string]any{"mode": t.Mode, "highestTierAllowed": t.HighestTierAllowed, "highestTierName": nil}
		}
	}
	for field, pair := range map[string][2]map[string]string{"annotations": {have.Annotations, want.Annotations}, "labels": {have.Labels, want.Labels}} { // order: the result is a map
		lacks := map[string]string{}
		for name, value := range pair[1] { // order: the same
			if is, ok := pair[0][name]; !ok || is != value {
				lacks[name] = value
			}
		}
		if len(lacks) > 0 {
			meta[field] = lacks
		}
	}
	if len(spec)+len(meta) == 0 {
		return nil
	}
	meta["uid"] = have.UID
	body, err := json.Marshal(map[string]any{"metadata": meta, "spec": spec})
	if err != nil {
		panic(fmt.Sprintf("a PodGroup does not encode: %v", err))
	}
	return body
}
