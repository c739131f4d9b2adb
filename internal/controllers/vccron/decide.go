package vccron

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/entry"
	"github.com/muster-scheduler/muster/internal/kube/control"
)

// late is how long after a time of the schedule it is looked at: clocks that tick apart must not miss it.
const late = 100 * time.Millisecond

// key names a CronJob.
type key = types.NamespacedName

// book is what the controller knows.
type book struct {
	check func(*batch.CronJob) field.ErrorList
	crons map[key]*batch.CronJob
	jobs  map[types.UID]map[key]*batch.Job // by the CronJob that controls them
	of    map[key]types.UID                // a Job's CronJob
	taken map[key]time.Time                // up to when somebody else has Jobs of the names that would be made
}

func newBook(check func(*batch.CronJob) field.ErrorList) *book {
	return &book{check: check, crons: map[key]*batch.CronJob{}, jobs: map[types.UID]map[key]*batch.Job{}, of: map[key]types.UID{}, taken: map[key]time.Time{}}
}

// cronSeen takes in a CronJob.
func (b *book) cronSeen(c *batch.CronJob, gone bool) []key {
	k := client.ObjectKeyFromObject(c)
	if b.crons[k] = c; gone {
		delete(b.crons, k)
		delete(b.taken, k)
	}
	return []key{k}
}

// jobSeen takes in a Job, and returns the CronJob to look at.
func (b *book) jobSeen(j *batch.Job, gone bool) []key {
	k := client.ObjectKeyFromObject(j)
	if was, had := b.of[k]; had {
		delete(b.of, k)
		if delete(b.jobs[was], k); len(b.jobs[was]) == 0 {
			delete(b.jobs, was)
		}
	}
	owner := metav1.GetControllerOf(j)
	if owner == nil || owner.Kind != "CronJob" || owner.APIVersion != batch.GroupVersion.String() {
		return nil
	}
	if !gone {
		b.of[k] = owner.UID
		entry.Put(b.jobs, owner.UID, k, j)
	}
	return []key{{Namespace: j.Namespace, Name: owner.Name}}
}

// plan is what a look at a CronJob has written, in this order.
type plan struct {
	key  key
	cron *batch.CronJob // nil: nothing
	// replaced are Jobs that run and are deleted for the one that is due.
	replaced []*batch.Job
	// create is the Job that is due at the time due. The status follows once it is made.
	create *batch.Job
	due    time.Time
	// status is what the status is to be; nil: as it is. With it notes are told.
	status *batch.CronJobStatus
	notes  []control.Note
	// past are Jobs that have ended and are more than are kept.
	past []*batch.Job
	// wrong is what holds the CronJob up; nil: nothing.
	wrong *control.Note
}

// ended says whether a Job will not go on. An aborted one may be resumed.
func ended(j *batch.Job) bool {
	switch j.Status.State.Phase {
	case batch.Completed, batch.Failed, batch.Terminated:
		return true
	}
	return false
}

// scheduled is when a Job was due.
func scheduled(j *batch.Job) time.Time {
	if t, err := time.Parse(time.RFC3339, j.Annotations[keys.CronScheduled]); err == nil {
		return t
	}
	return j.CreationTimestamp.Time
}

// decide says what is to be written of a CronJob. again is when a Job is due next.
func (b *book) decide(k key, now time.Time) (p plan, again time.Time) {
	p.key = k
	c := b.crons[k]
	if c == nil || c.DeletionTimestamp != nil {
		return p, again
	}
	p.cron = c
	jobs := slices.SortedFunc(maps.Values(b.jobs[c.UID]), func(x, y *batch.Job) int { // the latest first
		return cmp.Or(scheduled(y).Compare(scheduled(x)), cmp.Compare(x.Name, y.Name))
	})
	active := b.review(&p, jobs, now)
	if ptr.Deref(c.Spec.Suspend, false) {
		return p, again
	}
	s, wrong := scheduleOf(c, b.check)
	if wrong != nil {
		p.wrong = wrong
		return p, again
	}
	if next := s.Next(now); !next.IsZero() {
		again = next.Add(late)
	}
	earliest := c.CreationTimestamp.Time
	if last := p.lastDue(); last != nil {
		earliest = last.Time
	}
	if t := b.taken[k]; t.After(earliest) {
		earliest = t
	}
	if limit := c.Spec.StartingDeadlineSeconds; limit != nil {
		if t := now.Add(-time.Duration(min(*limit, int64(1)<<32)) * time.Second); t.After(earliest) {
			earliest = t
		}
	}
	due := latest(s, earliest, now)
	if due.IsZero() {
		return p, again
	}
	p.wrong = missed(s, earliest, now)
	switch {
	case len(active) == 0:
	case c.Spec.ConcurrencyPolicy == batch.ForbidConcurrent:
		p.wrong = &control.Note{Reason: "ForbidConcurrent", Message: fmt.Sprintf("no Job is made for %s while %s runs", due.UTC().Format(time.RFC3339), active[0].Name)}
		return p, again
	case c.Spec.ConcurrencyPolicy == batch.ReplaceConcurrent:
		p.replaced = slices.DeleteFunc(active, func(j *batch.Job) bool { return j.DeletionTimestamp != nil })
	}
	p.create, p.due, p.status, p.notes = jobOf(c, due), due, nil, nil
	return p, again
}

// lastDue is when a Job was last due and made, as the status is to say.
func (p *plan) lastDue() *metav1.Time {
	if p.status != nil {
		return p.status.LastScheduleTime
	}
	return p.cron.Status.LastScheduleTime
}

// review plans the status and what goes of the past, and returns the Jobs that have not ended.
func (b *book) review(p *plan, jobs []*batch.Job, now time.Time) (active []*batch.Job) {
	was := &p.cron.Status
	want := was.DeepCopy()
	want.Active = nil
	limits := map[bool]*int32{true: p.cron.Spec.SuccessfulJobsHistoryLimit, false: p.cron.Spec.FailedJobsHistoryLimit}
	kept := map[bool]int32{}
	phases := map[types.UID]batch.JobPhase{}
	for _, j := range jobs {
		if t := scheduled(j); j.Annotations[keys.CronScheduled] != "" && !t.After(now) && (want.LastScheduleTime == nil || t.After(want.LastScheduleTime.Time)) {
			want.LastScheduleTime = ptr.To(metav1.NewTime(t).Rfc3339Copy())
		}
		if !ended(j) {
			active = append(active, j)
			continue
		}
		phases[j.UID] = j.Status.State.Phase
		done := j.Status.State.Phase == batch.Completed
		if at := j.Status.State.LastTransitionTime; done && !at.IsZero() && (want.LastSuccessfulTime == nil || want.LastSuccessfulTime.Before(&at)) {
			want.LastSuccessfulTime = &at
		}
		if j.DeletionTimestamp != nil {
			continue
		}
		if kept[done]++; limits[done] != nil && kept[done] > *limits[done] {
			p.past = append(p.past, j)
		}
	}
	runs := map[types.UID]bool{}
	for _, j := range slices.Backward(active) {
		want.Active = append(want.Active, reference(j))
		runs[j.UID] = true
	}
	if equality.Semantic.DeepEqual(was, want) {
		return active
	}
	p.status = want
	for _, r := range was.Active {
		if phase, has := phases[r.UID]; has {
			p.notes = append(p.notes, control.Note{Reason: "SawCompletedJob", Message: fmt.Sprintf("Job %s ended as %s", r.Name, phase)})
		} else if !runs[r.UID] {
			p.notes = append(p.notes, control.Note{Reason: "StaleReference", Message: fmt.Sprintf("Job %s ran, and is there no more", r.Name)})
		}
	}
	return active
}

// reference names a Job.
func reference(j *batch.Job) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: batch.GroupVersion.String(), Kind: "Job", Namespace: j.Namespace, Name: j.Name, UID: j.UID}
}

// jobOf is the Job that a CronJob has due at a time.
func jobOf(c *batch.CronJob, due time.Time) *batch.Job {
	notes := map[string]string{}
	maps.Copy(notes, c.Spec.JobTemplate.Annotations)
	notes[keys.CronScheduled] = due.Format(time.RFC3339)
	return &batch.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: c.Namespace, Name: fmt.Sprintf("%s-%d", c.Name, due.Unix()/60), Labels: maps.Clone(c.Spec.JobTemplate.Labels), Annotations: notes,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: batch.GroupVersion.String(), Kind: "CronJob", Name: c.Name, UID: c.UID, Controller: ptr.To(true),
			}},
		},
		Spec: *c.Spec.JobTemplate.Spec.DeepCopy(),
	}
}
