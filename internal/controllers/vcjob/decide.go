package vcjob

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// plan is what a look at a Job has written, in the order of its fields. What fails keeps the status from being written: it says what is done.
type plan struct {
	key key
	// job is the Job as it was looked at; nil: nothing is written.
	job *batch.Job

	// take are Commands that are done, and deleted.
	take []*bus.Command
	// patch is a JSON patch of the Job itself.
	patch []byte
	// claims and objects are made unless they exist.
	claims  []*corev1.PersistentVolumeClaim
	objects []object
	// group is made, or changed by its patch, or deleted.
	group *groupWrite
	// kill are pods that are marked as out of sync and deleted.
	kill []*corev1.Pod
	// make are pods.
	make []*corev1.Pod
	// status is what the Job's status is to be; nil: as it is.
	status *batch.JobStatus
	// tell are events for the Job's user.
	tell []note
	// hosts is what the ConfigMap of plugin svc says then.
	hosts string
	// heard is answered by all that.
	heard heard
	// again is when the Job is due again by itself; zero for never.
	again time.Time
	// wrong is what keeps the Job from being worked at. It counts as a refusal.
	wrong error
}

// note is an event on the Job.
type note struct {
	warning         bool
	reason, message string
}

// groupWrite is what is done to a PodGroup.
type groupWrite struct {
	group  *scheduling.PodGroup
	patch  []byte // nil: it is made
	remove bool
}

const (
	// batchSize is how many pods are made, or ended, in one look: the next follows at once.
	batchSize = 500
)

// rules are what the process says of all Jobs.
type rules struct {
	// refusals is how many times in turn what is to be written may be refused before the Job is terminated; below 0: without end.
	refusals int
	// scheduler is what pods name whose Job names none.
	scheduler string
}

// decide says what is to be written of a Job, and when it is due again by itself.
func (b *book) decide(k key, now time.Time, o rules) (plan, time.Time) {
	e := b.jobs[k]
	p := plan{key: k}
	if e == nil || e.job == nil || e.job.DeletionTimestamp != nil {
		p.take = e.orders() // a Command for a Job that is none is cleared away
		return p, time.Time{}
	}
	p.job, p.hosts = e.job, e.hosts
	if p.take = e.done(); len(p.take) > 0 {
		return p, time.Time{} // their end is an event, after which the Job is looked at again
	}
	own := e.own()
	if !e.busy(own) {
		requests := e.happened(now, o.refusals)
		r, a, again := chosen(e.job, requests, now)
		var s step
		begins := false
		if r != nil {
			s = stepOf(e.job.Status.State.Phase, a.action)
			begins = e.begins(own, s, a)
		}
		if p.take = e.idle(requests, r, begins); len(p.take) > 0 {
			return p, time.Time{}
		}
		p.heard = e.heard(requests, r)
		p.again = again
		if r != nil {
			if begins {
				p.status = e.begun(own, s, a, r.command, now)
				p.tell = append(p.tell, note{reason: "ExecuteAction", message: "Start to execute action " + string(a.action)})
				return p, time.Time{}
			}
		}
	}
	b.work(e, own, &p, now, o)
	if len(p.kill) == batchSize || len(p.make) == batchSize {
		p.again = now
	}
	return p, p.again
}

// busy says whether a restart is under way of which pods are not deleted yet: nothing else is answered before.
func (e *entry) busy(own []*member) bool {
	return e.job.Status.State.Phase == batch.Restarting && slices.ContainsFunc(own, func(m *member) bool { return m.pod.DeletionTimestamp == nil && e.victim(m) })
}

// begins says whether an action leads to another phase, or, while the Job restarts, is about pods that the restart was not about.
func (e *entry) begins(own []*member, s step, a answer) bool {
	if s.next != "" {
		return true
	}
	return e.job.Status.State.Phase == batch.Restarting && slices.ContainsFunc(own, func(m *member) bool {
		return m.pod.DeletionTimestamp == nil && (s.op == killJob && m.version >= e.job.Status.Version || s.op == killTarget && a.target.has(m))
	})
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// heard is what happened once and needs no further answer when the plan is carried out.
type heard struct {
	updates int
	evicted []*request
}

// heard returns what has happened once and is answered now, or has no answer: deleted pods that no timeout is about; changes of the spec. Nothing of that is, while
// a Command is obeyed: it comes after it.
func (e *entry) heard(requests []request, answered *request) heard {
	if answered != nil && answered.command != "" {
		return heard{}
	}
	h := heard{updates: e.updates}
	for i := range requests {
		r := &requests[i]
		if was := e.evicted[r.pod]; r.event == bus.PodEvictedEvent && was != nil && (r == answered || resolve(e.job, r).after == 0) {
			h.evicted = append(h.evicted, was)
		}
	}
	return h
}

// forgetHeard drops what a plan has answered, now that it is carried out.
func (e *entry) forgetHeard(h heard) {
	e.answered = max(e.answered, h.updates)
	for _, r := range h.evicted {
		if e.evicted[r.pod] == r {
			delete(e.evicted, r.pod)
		}
	}
}

// victim says whether a pod is to be ended in the phase that the Job is in.
func (e *entry) victim(m *member) bool {
	s := &e.job.Status
	over := m.pod.Status.Phase == corev1.PodSucceeded || m.pod.Status.Phase == corev1.PodFailed
	old := m.version < s.Version
	switch {
	case s.State.Phase == batch.Restarting:
		soft := e.lastRetry() || s.State.Reason == string(bus.ResumeJobAction)
		return aim(&s.State).has(m) && m.retries < s.RetryCount || old && !(over && soft) || m.pod.Annotations[keys.OutOfSync] == "true"
	case !works(s.State.Phase):
		return !over
	}
	return m.pod.Annotations[keys.OutOfSync] == "true" || old && !over
}

// lastRetry says whether the restart that is under way is one too many: pods that have ended are retained, for people to look at.
func (e *entry) lastRetry() bool { return e.job.Status.RetryCount >= e.job.Spec.MaxRetry }
