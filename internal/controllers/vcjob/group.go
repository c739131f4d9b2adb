package vcjob

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/dialect/volcano"
	"github.com/muster-scheduler/muster/internal/kube/write"
)

// groupFor makes a Job's PodGroup, or brings one up to date; nil: it is. Of one that exists the priority class, the minimums and the
// subgroups follow the Job; its queue, labels, annotations and topology stay as they were made.
func (b *book) groupFor(j *batch.Job, have *scheduling.PodGroup) *groupWrite {
	want := b.groupSpec(j)
	if have == nil {
		return &groupWrite{group: &scheduling.PodGroup{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: j.Namespace, Name: groupName(j), Labels: maps.Clone(j.Labels), Annotations: maps.Clone(j.Annotations), OwnerReferences: ownedBy(j),
			},
			Spec: want,
		}}
	}
	change := map[string]any{}
	if have.Spec.PriorityClassName != want.PriorityClassName {
		change["priorityClassName"] = want.PriorityClassName
	}
	if have.Spec.MinMember != want.MinMember || !equality.Semantic.DeepEqual(have.Spec.MinResources, want.MinResources) {
		change["minMember"] = want.MinMember
		change["minResources"] = volcano.Replaced(have.Spec.MinResources, *want.MinResources)
	}
	tasks := map[string]int32{}
	for name, n := range want.MinTaskMember { // order: the result is a map
		if was, ok := have.Spec.MinTaskMember[name]; !ok || was != n {
			tasks[name] = n
		}
	}
	if len(tasks) > 0 {
		change["minTaskMember"] = tasks
	}
	if !equality.Semantic.DeepEqual(have.Spec.SubGroupPolicy, want.SubGroupPolicy) {
		change["subGroupPolicy"] = want.SubGroupPolicy
	}
	if len(change) == 0 {
		return nil
	}
	return &groupWrite{group: have, patch: write.Body(map[string]any{"metadata": map[string]any{"uid": have.UID}, "spec": change})}
}

// groupSpec is what a Job's PodGroup asks for.
func (b *book) groupSpec(j *batch.Job) scheduling.PodGroupSpec {
	least := b.minResources(&j.Spec)
	s := scheduling.PodGroupSpec{
		MinMember: j.Spec.MinAvailable, MinTaskMember: map[string]int32{}, Queue: j.Spec.Queue, PriorityClassName: j.Spec.PriorityClassName, MinResources: &least,
		NetworkTopology: topology(j.Spec.NetworkTopology),
	}
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		s.MinTaskMember[t.Name] = minimum(t)
		if p := t.PartitionPolicy; p != nil {
			size, groups := p.PartitionSize, p.MinPartitions
			s.SubGroupPolicy = append(s.SubGroupPolicy, scheduling.SubGroupPolicySpec{
				Name: t.Name, SubGroupSize: &size, MinSubGroups: &groups, NetworkTopology: topology(p.NetworkTopology),
				LabelSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{keys.TaskSpec: t.Name}},
				MatchLabelKeys: []string{keys.PartitionID},
			})
		}
	}
	return s
}

// topology is a constraint as PodGroups have it: of two tiers that exclude each other, the number.
func topology(n *batch.NetworkTopologySpec) *scheduling.NetworkTopologySpec {
	if n = n.DeepCopy(); n != nil && n.HighestTierAllowed != nil {
		n.HighestTierName = ""
	}
	return n
}

// minResources is what the Job's minimum uses: of the tasks in order of their priority, the minimum of each, and then more of them up to the
// Job's; or, if the Job's is below the sum, as many pods as it says.
func (b *book) minResources(j *batch.JobSpec) corev1.ResourceList {
	tasks := b.byPriority(j)
	sum := corev1.ResourceList{}
	left := int64(j.MinAvailable)
	take := func(t *batch.TaskSpec, n int64) {
		if n = min(n, left); n > 0 {
			left -= n
			volcano.AddTimes(sum, volcano.Usage(&t.Template.Spec), n)
		}
	}
	if left < minimums(j) {
		for _, t := range tasks {
			take(t, int64(t.Replicas))
		}
		return sum
	}
	for _, t := range tasks {
		take(t, int64(minimum(t)))
	}
	for _, t := range tasks {
		take(t, int64(t.Replicas)-int64(minimum(t)))
	}
	return sum
}

// byPriority are the tasks in order of their priority, the highest first.
func (b *book) byPriority(j *batch.JobSpec) []*batch.TaskSpec {
	tasks := make([]*batch.TaskSpec, len(j.Tasks))
	for i := range j.Tasks {
		tasks[i] = &j.Tasks[i]
	}
	slices.SortStableFunc(tasks, func(x, y *batch.TaskSpec) int { return cmp.Compare(b.priority(y, j), b.priority(x, j)) })
	return tasks
}

// priority is that of a task's pods.
func (b *book) priority(t *batch.TaskSpec, j *batch.JobSpec) int32 {
	if c := b.classes[cmp.Or(t.Template.Spec.PriorityClassName, j.PriorityClassName)]; c != nil {
		return c.Value
	}
	return 0
}

// fieldName is a task's name as names of variables and files have it.
func fieldName(task string) string { return strings.ReplaceAll(task, "-", "_") }
