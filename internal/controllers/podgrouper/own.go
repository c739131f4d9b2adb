package podgrouper

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/dialect/workload"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// ownPatience is how long a pod may wait without a PodGroup. A scheduler that does not know of gangs without one, as the version before,
// has placed nobody by then.
const ownPatience = time.Minute

// toldPatience is how long what gang a pod is by itself is told to the roles of the process alone: most pods have a node by then, and it comes
// with that. Who waits longer has it written, for those who do not hear (ADR 18).
const toldPatience = 15 * time.Second

// own says whether a pod is to be its gang by itself, without a PodGroup (ADR 18), and brings what was decided when it became that into the
// grouping. It is so for as long as the pod is the only one that there is, or was, of a gang that could do with one; there is no such
// PodGroup; and nobody has anything to say of it: reasons why a gang waits are in its PodGroup.
func (g *grouper) own(ctx context.Context, pod *corev1.Pod, grouping *workload.Grouping, former *derivation) (bool, error) {
	wanted := grouping.PodGroup
	if before := kai.OwnGang(pod); before != nil && before.Name == wanted.Name {
		// As of a PodGroup that is there: see workload.UpdatePatch.
		wanted.Spec.Queue, wanted.Spec.MarkUnschedulable, wanted.Spec.SchedulingBackoff = before.Spec.Queue, before.Spec.MarkUnschedulable, before.Spec.SchedulingBackoff
	}
	if !g.options.OwnGangs || grouping.Anew || pod.Annotations[keys.PodGroupAnnotation] != "" || waitsInVain(pod) || g.untilVain(pod) < 0 {
		return false, nil
	}
	if former != nil && former.alone != "" && former.alone != pod.UID && !grouping.EachPod {
		return false, nil // what befell the former pod is the gang's past, which a PodGroup keeps
	}
	if !grouping.EachPod {
		nearest := pod.OwnerReferences[0].UID
		if len(wanted.OwnerReferences) != 1 || wanted.OwnerReferences[0].UID != nearest {
			return false, nil // pods of other owners may be in it
		}
		pods, err := g.podsOf(nearest)
		if err != nil || len(pods) != 1 {
			return false, err
		}
	}
	if kai.WriteOwnGang(pod, wanted, g.options.NodePoolLabel) == "" {
		return false, nil
	}
	exists, err := g.exists(ctx, client.ObjectKeyFromObject(wanted))
	return !exists, err
}

// known says whether who sees a pod knows without being told that it is in the group of this name and queue, without a subgroup: it is its
// owner's (kai.GangOfOwner). A pod that waits for long is told all the same, as is one that is bound, by its Binding.
func (g *grouper) known(pod *corev1.Pod, group, queue, subgroup string) bool {
	own := pod.Labels[g.options.QueueLabel]
	return g.options.OwnGangs && kai.GangOfOwner(pod) == group && subgroup == "" && (own == "" || own == queue) && g.untilVain(pod) >= 0
}

// waitsInVain says whether the scheduler has told the pod that there is no room for it.
func waitsInVain(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return pod.Spec.NodeName == "" && c.Status == corev1.ConditionFalse && c.Reason != corev1.PodReasonSchedulingGated
		}
	}
	return false
}

// untilVain is how long the pod may go on waiting without a PodGroup; 0 for one that does not wait, below 0 for no longer.
func (g *grouper) untilVain(pod *corev1.Pod) time.Duration {
	if pod.Spec.NodeName != "" || pod.CreationTimestamp.IsZero() {
		return 0
	}
	left := pod.CreationTimestamp.Add(ownPatience).Sub(g.clock.Now())
	if left == 0 {
		left = -1
	}
	return left
}

// tell has the scheduler of this process know what gang a pod is, and returns for how long that is enough; 0: it has to be written. pod is
// as the cache had it.
func (g *grouper) tell(ctx context.Context, pod *corev1.Pod, own *v2alpha2.PodGroup) time.Duration {
	now := g.clock.Now()
	since, ok := g.links.Tell(pod, own.Labels, kai.WriteOwnGang(pod, own, g.options.NodePoolLabel), now)
	if !ok {
		return 0
	}
	is, key := &corev1.Pod{}, client.ObjectKeyFromObject(pod)
	if err := g.cached.Get(ctx, key, is, client.UnsafeDisableDeepCopy); err == nil && is.UID == pod.UID {
		g.links.Saw(is)
	} else {
		g.links.Gone(key, pod.UID) // and no event comes of it
	}
	return since.Add(toldPatience).Sub(now)
}

// ownPatch is the merge patch that makes the pod the gang by itself; nil when it is that already.
func (g *grouper) ownPatch(pod *corev1.Pod, own *v2alpha2.PodGroup) []byte {
	text := kai.WriteOwnGang(pod, own, g.options.NodePoolLabel)
	if pod.Annotations[keys.OwnGangAnnotation] == text {
		return nil
	}
	return write.Body(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "annotations": map[string]string{keys.OwnGangAnnotation: text},
	}})
}
