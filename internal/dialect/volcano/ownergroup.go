package volcano

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ours "github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// fromPod are the keys of a pod that go to its PodGroup, besides those of its disruption budget.
var fromPod = []string{keys.Preemptable, keys.CooldownTime, keys.RevocableZone}

// GroupOf returns the PodGroup of bare pods as the first of them and the annotations of their controller say (fact sheet, 2.8); nil for a controller whose annotations are not read. inherit has it get
// those of the controller's annotations that begin with volcano.sh/.
func GroupOf(p *corev1.Pod, owner map[string]string, inherit bool) *v1beta1.PodGroup {
	notes, labels := map[string]string{}, map[string]string{}
	for name, value := range owner { // order: the result is a map
		if inherit && strings.HasPrefix(name, keys.OwnPrefix) {
			notes[name] = value
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
	least, room := leastOf(owner), corev1.ResourceList{}
	AddTimes(room, Usage(&p.Spec), int64(least))
	return &v1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: GroupOfOwner(p), Annotations: notes, Labels: labels, OwnerReferences: ownersOf(p)},
		Spec: v1beta1.PodGroupSpec{
			MinMember: least, MinResources: &room, PriorityClassName: p.Spec.PriorityClassName, Queue: cmp.Or(p.Annotations[keys.QueueName], keys.DefaultQueue),
			NetworkTopology: topologyOf(p.Annotations),
		},
	}
}

// leastOf is how many pods of a controller start together, 1 if it does not say, or not a number.
func leastOf(owner map[string]string) int32 {
	if n, err := strconv.ParseInt(owner[keys.GroupMinMember], 10, 32); err == nil && n >= 0 {
		return int32(n)
	}
	return 1
}

// ownersOf are those with which a pod's PodGroup goes: the pod's own, if one is its controller, or the pod. None is held up by it, so that no
// right to its finalizers is needed.
func ownersOf(p *corev1.Pod) []metav1.OwnerReference {
	if metav1.GetControllerOfNoCopy(p) == nil {
		yes := true
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: &yes}}
	}
	out := slices.Clone(p.OwnerReferences)
	for i := range out {
		out[i].BlockOwnerDeletion = nil
	}
	return out
}

// topologyOf is the constraint that a pod's annotations ask for; nil for none. A mode that is none is hard, and a tier that is none is not there.
func topologyOf(notes map[string]string) *v1beta1.NetworkTopologySpec {
	mode, hasMode := notes[keys.NetworkTopologyMode]
	tier, hasTier := notes[keys.NetworkTopologyHighestTier]
	if !hasMode && !hasTier {
		return nil
	}
	t := &v1beta1.NetworkTopologySpec{Mode: v1beta1.HardNetworkTopologyMode}
	if mode == string(v1beta1.SoftNetworkTopologyMode) {
		t.Mode = v1beta1.SoftNetworkTopologyMode
	}
	if n, err := strconv.ParseInt(tier, 10, 32); err == nil && n >= 0 {
		highest := int(n)
		t.HighestTierAllowed = &highest
	}
	return t
}

// A pod that is alone in its gang, and whose PodGroup says nothing that the pod does not say, need not wait for it (ADR 18): what the PodGroup will be follows from the pod. That its controller adds nothing only
// the controller's annotations show; who has seen them says it to the scheduler in this text, which the Binding brings to the pod. It names no more than the pod, so whoever else wrote it would gain
// nothing but that the annotations of his own workload do not count.

// SaysAll says whether the PodGroup of a pod and its controller follows from the pod alone. That the queue is the pod's own word is part of it: a namespace may name another one for PodGroups in the queue default.
func SaysAll(p *corev1.Pod, owner map[string]string) bool {
	if queue := p.Annotations[keys.QueueName]; queue == "" || queue == keys.DefaultQueue || p.UID == "" || topologyOf(p.Annotations) != nil || leastOf(owner) != 1 {
		return false
	}
	for name := range owner { // order: any will do
		if strings.HasPrefix(name, keys.OwnPrefix) {
			return false
		}
	}
	return true
}

// OwnText is what a pod of which SaysAll was found true is told, and says in its annotation keys.OwnGangAnnotation of KAI's face once it is bound.
func OwnText(p *corev1.Pod) string { return `{"pod":"` + string(p.UID) + `","face":"` + Face + `"}` }

// Own returns the PodGroup that a pod, as it says, does without as long as there is none of the name; nil if it says no such thing. There is no object of it: its UID is that of what it is named after.
func Own(p *corev1.Pod) *v1beta1.PodGroup {
	if !SaysOwn(p) {
		return nil
	}
	g := GroupOf(p, nil, false)
	g.UID, g.CreationTimestamp = types.UID(strings.TrimPrefix(g.Name, GroupPrefix)), p.CreationTimestamp
	return g
}

// SaysOwn says whether Own of a pod, which may be nil, is one.
func SaysOwn(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	text := p.Annotations[ours.OwnGangAnnotation]
	if text == "" || text != OwnText(p) {
		return false
	}
	named := p.Annotations[keys.GroupName]
	return (named == "" || named == GroupOfOwner(p)) && SaysAll(p, nil)
}
