package vcjob

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// Makes is what the controller makes for a Job that the API server has, in this order, once its gang is admitted: what its plugins need, its
// PodGroup, and those of its pods that wait for no other task. It is for those who compare the controller with what the API server takes;
// its status is not in it.
func Makes(j *batch.Job) (all []client.Object) {
	b, k, o := newBook(), client.ObjectKeyFromObject(j), rules{refusals: -1, scheduler: DefaultOptions().SchedulerName}
	q := &scheduling.Queue{}
	q.Name = j.Spec.Queue
	b.queueSeen(q, false)
	b.jobSeen(j, false)
	p, _ := b.decide(k, time.Time{}, o)
	for _, c := range p.claims {
		all = append(all, c)
	}
	for i := range p.objects {
		all = append(all, p.objects[i].Object)
	}
	if p.group == nil {
		return all
	}
	g := p.group.group.DeepCopy()
	all = append(all, p.group.group)
	g.Status.Phase = scheduling.PodGroupInqueue
	b.groupSeen(g, false)
	p, _ = b.decide(k, time.Time{}, o)
	for _, pod := range p.make {
		all = append(all, pod)
	}
	return all
}
