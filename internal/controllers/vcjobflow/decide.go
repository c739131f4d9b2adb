package vcjobflow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// period is how long after pods that were not ready they are asked again.
const period = 10 * time.Second

// plan is what a look at a JobFlow has written, in this order.
type plan struct {
	key  key
	flow *flow.JobFlow // nil: nothing
	// create are the Jobs whose turn it is. The status follows once they are made.
	create []*batch.Job
	// status is what the status is to be; nil: as it is.
	status *flow.JobFlowStatus
	// remove are the Jobs of a flow that is done, where none are kept.
	remove []*batch.Job
	// ask are the parts whose pods are asked whether they are ready.
	ask []asked
	// wrong is what holds the flow up; nil: nothing.
	wrong *control.Note
}

// asked is a part of a flow that waits for pods of Jobs to answer.
type asked struct {
	part  string
	jobs  []*batch.Job
	probe *flow.Probe
}

// partsOf are the parts of a flow. Of two of one name the later counts.
func partsOf(f *flow.JobFlow) (parts []*flow.Flow) {
	at := map[string]int{}
	for i := range f.Spec.Flows {
		p := &f.Spec.Flows[i]
		if n, twice := at[p.Name]; twice {
			parts[n] = p
			continue
		}
		at[p.Name] = len(parts)
		parts = append(parts, p)
	}
	return parts
}

// jobName is what a part's Job is called.
func jobName(f *flow.JobFlow, part string) string { return f.Name + "-" + part }

// decide says what is to be written of a JobFlow. again is when it is to be looked at even without an event.
func (b *book) decide(k key, now time.Time) (p plan, again time.Time) {
	p.key = k
	f := b.flows[k]
	if f == nil || f.DeletionTimestamp != nil {
		return p, again
	}
	p.flow = f
	jobs := b.jobs[f.UID]
	switch f.Status.State.Phase {
	case flow.Succeed:
		if f.Spec.JobRetainPolicy == flow.Delete {
			for _, name := range slices.Sorted(maps.Keys(jobs)) {
				if jobs[name].DeletionTimestamp == nil {
					p.remove = append(p.remove, jobs[name])
				}
			}
		}
		return p, again
	case flow.Terminating:
		return p, again
	}
	parts := partsOf(f)
	want := statusOf(f, parts, jobs)
	if !equality.Semantic.DeepEqual(&f.Status, want) {
		p.status = want
	}
	if wrong := b.check(f); len(wrong) > 0 {
		p.wrong = &control.Note{Warning: true, Reason: "InvalidJobFlow", Message: wrong.ToAggregate().Error()}
		return p, again
	}
	if want.State.Phase == flow.Failed || want.State.Phase == flow.Succeed {
		return p, again
	}
	done := map[string]bool{}
	for _, name := range want.CompletedJobs {
		done[name] = true
	}
	for _, part := range parts {
		if name := jobName(f, part.Name); jobs[name] == nil && !done[name] {
			b.turn(&p, part, jobs, done)
		}
	}
	if len(p.ask) > 0 {
		again = now.Add(period)
	}
	return p, again
}

// turn plans a part whose Job is not there: whether it is its turn, or who is to be asked.
func (b *book) turn(p *plan, part *flow.Flow, jobs map[string]*batch.Job, done map[string]bool) {
	open, all, waits, lost := []*batch.Job{}, []*batch.Job{}, false, false
	if part.DependsOn != nil {
		for _, target := range part.DependsOn.Targets {
			name := jobName(p.flow, target)
			j := jobs[name]
			if j != nil {
				all = append(all, j)
			}
			switch {
			case done[name]:
				lost = lost || j == nil
			case j == nil:
				waits = true
			default:
				open = append(open, j)
			}
		}
	}
	if waits {
		return
	}
	if len(open) > 0 {
		probe := part.DependsOn.Probe
		if probe == nil || len(probe.TaskStatusList)+len(probe.HTTPGetList)+len(probe.TCPSocketList) == 0 {
			return
		}
		if task := unknownTask(probe, all, lost); task != "" {
			p.wrong = cmp.Or(p.wrong, &control.Note{Warning: true, Reason: "ProbeTaskNotFound", Message: fmt.Sprintf("%s waits for task %q, which none of the Jobs has that it depends on", part.Name, task)})
			return
		}
		if !inPhase(probe, open) {
			return
		}
		if len(probe.HTTPGetList)+len(probe.TCPSocketList) > 0 && !b.answered[p.flow.UID][part.Name] {
			p.ask = append(p.ask, asked{part.Name, open, probe})
			return
		}
	}
	t := b.templates[key{Namespace: p.flow.Namespace, Name: part.Name}]
	if t == nil {
		p.wrong = cmp.Or(p.wrong, &control.Note{Warning: true, Reason: "JobTemplateNotFound", Message: fmt.Sprintf("there is no JobTemplate %s, of which a Job is to be made", part.Name)})
		return
	}
	j, err := jobOf(p.flow, part, t)
	if err != nil {
		p.wrong = cmp.Or(p.wrong, &control.Note{Warning: true, Reason: "InvalidPatch", Message: fmt.Sprintf("the patch of %s does not fit its JobTemplate: %v", part.Name, err)})
		return
	}
	p.create = append(p.create, j)
}

// taskOf is a Job's task of a name; nil for none.
func taskOf(j *batch.Job, name string) *batch.TaskSpec {
	for i := range j.Spec.Tasks {
		if j.Spec.Tasks[i].Name == name {
			return &j.Spec.Tasks[i]
		}
	}
	return nil
}

// unknownTask is a task that a probe names and no Job has; "" for none. Of a Job that is done and was lost nobody knows the tasks.
func unknownTask(probe *flow.Probe, jobs []*batch.Job, lost bool) string {
	names := []string{}
	for _, one := range probe.TaskStatusList {
		names = append(names, one.TaskName)
	}
	for _, one := range probe.HTTPGetList {
		names = append(names, one.TaskName)
	}
	for _, one := range probe.TCPSocketList {
		names = append(names, one.TaskName)
	}
	for _, name := range names {
		if !lost && !slices.ContainsFunc(jobs, func(j *batch.Job) bool { return taskOf(j, name) != nil }) {
			return name
		}
	}
	return ""
}

// inPhase says whether the tasks that a probe names are in their phases, all pods of each.
func inPhase(probe *flow.Probe, jobs []*batch.Job) bool {
	for _, one := range probe.TaskStatusList {
		for _, j := range jobs {
			if t := taskOf(j, one.TaskName); t != nil && j.Status.TaskStatusCount[t.Name].Phase[corev1.PodPhase(one.Phase)] < t.Replicas {
				return false
			}
		}
	}
	return true
}

// jobOf is the Job of a part.
func jobOf(f *flow.JobFlow, part *flow.Flow, t *flow.JobTemplate) (*batch.Job, error) {
	spec, err := patched(&t.Spec, part.Patch)
	if err != nil {
		return nil, err
	}
	notes := map[string]string{keys.CreatedByJobFlow: f.Namespace + "." + f.Name, keys.CreatedByJobTemplate: t.Namespace + "." + t.Name}
	labels := maps.Clone(notes)
	maps.DeleteFunc(labels, func(_, value string) bool { return len(validation.IsValidLabelValue(value)) > 0 }) // names may be longer
	return &batch.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.Namespace, Name: jobName(f, part.Name), Annotations: notes, Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: flow.GroupVersion.String(), Kind: "JobFlow", Name: f.Name, UID: f.UID, Controller: ptr.To(true)}},
		},
		Spec: *spec,
	}, nil
}
