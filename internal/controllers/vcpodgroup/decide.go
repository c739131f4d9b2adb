package vcpodgroup

import (
	"cmp"
	"slices"
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
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// unseen is how long a PodGroup that was made may take to be seen before it is made again, should it have come and gone unnoticed.
const unseen = 10 * time.Second

// How long the PodGroup of a pod that says all that it would say (volcano.SaysAll) is not made, so that its write delays no bind (ADR 18). Of one that waits: aloneWaits, unless it says before that there is no room for
// it. Of one that was bound: until it runs, trailStep at most, since its status says that; and until no pod was bound for trailQuiet, trailLongest at most: in between trailBusy a second are made, and the others looked at every
// trailStep.
const (
	aloneWaits   = 3 * time.Second
	trailQuiet   = 500 * time.Millisecond
	trailLongest = time.Minute
	trailStep    = 5 * time.Second
	trailBusy    = 10
)

// plan is what a look at a gang has written, in this order.
type plan struct {
	key key
	// tell is the pod that is alone in a gang without a PodGroup that says more than it does; of a Teller.
	tell *corev1.Pod
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
	members := b.members(g)
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
	want := b.groupOf(first, o)
	alone := len(members) == 1 && b.nameAfter > 0 && volcano.SaysAll(first, o.notes())
	if alone && g.group == nil && first.Spec.NodeName == "" && first.Annotations[keys.GroupName] == "" {
		p.tell = first
	}
	switch again = b.until(g, first, alone, now); {
	case !again.IsZero():
	case g.group == nil:
		p.create, p.first = want, first
		if alone && first.Spec.NodeName != "" {
			want.Status = placed(first, now)
		}
	case ours && o != nil && o.replicas != nil:
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

// members are the pods of a gang that have not ended, the eldest first; where there are none, and never was a PodGroup, those that have ended and lack it.
func (b *book) members(g *gang) []*corev1.Pod {
	var live, over []*corev1.Pod
	for _, p := range g.pods { // order: sorted below
		if ended(p) {
			over = append(over, p)
		} else {
			live = append(live, p)
		}
	}
	if len(live) == 0 && !g.had {
		live = over
	}
	slices.SortFunc(live, func(x, y *corev1.Pod) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), cmp.Compare(x.Name, y.Name))
	})
	return live
}

// until is when a PodGroup that is not there may be made; the zero time for now, and for one that is there.
func (b *book) until(g *gang, first *corev1.Pod, alone bool, now time.Time) time.Time {
	if g.group != nil {
		return time.Time{}
	}
	if until := g.made.Add(unseen); !g.made.IsZero() && now.Before(until) {
		return until
	}
	if alone {
		if until := b.trails(first, now); now.Before(until) {
			return until
		}
	}
	return time.Time{}
}

// trails is until when the PodGroup of a pod that is alone, and says all that it would say, is not made.
func (b *book) trails(p *corev1.Pod, now time.Time) time.Time {
	switch {
	case p.Spec.NodeName == "" && unschedulable(p), p.Spec.NodeName != "" && !owed(p):
		return time.Time{} // there is something to say of it, or nobody counts it
	case p.Spec.NodeName == "":
		return p.CreationTimestamp.Add(aloneWaits)
	}
	if until := p.CreationTimestamp.Add(trailStep); p.Status.Phase != corev1.PodRunning && !ended(p) && now.Before(until) {
		return until
	}
	due, last := b.bound.Add(trailQuiet), p.CreationTimestamp.Add(trailLongest)
	if !now.Before(due) || !now.Before(last) || b.pace.AllowN(now, 1) {
		return time.Time{}
	}
	if step := now.Add(trailStep); due.Before(step) {
		due = step
	}
	if last.Before(due) {
		return last
	}
	return due
}

// unschedulable says whether a pod has been told that there is no room for it.
func unschedulable(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse
	})
}

// placed is the status of the PodGroup of one pod, which has a node: as the scheduler would say it, so that it need not.
func placed(p *corev1.Pod, now time.Time) scheduling.PodGroupStatus {
	s := volcano.Status{Phase: scheduling.PodGroupRunning, Placed: true}
	switch p.Status.Phase {
	case corev1.PodRunning:
		s.Running = 1
	case corev1.PodSucceeded:
		s.Phase, s.Succeeded = scheduling.PodGroupCompleted, 1
	case corev1.PodFailed:
		s.Phase, s.Failed = scheduling.PodGroupCompleted, 1
	}
	return s.Fresh(metav1.NewTime(now))
}

// groupOf is the PodGroup of a gang, as its first pod and the pods' controller say. o is nil for a controller whose annotations are not read.
func (b *book) groupOf(p *corev1.Pod, o *owner) *scheduling.PodGroup {
	return volcano.GroupOf(p, o.notes(), b.inherit)
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
	return write.Body(map[string]any{"metadata": meta, "spec": spec})
}
