package vcjob

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// happened is what has happened to a Job and is not answered yet, in the order in which it is answered: what Commands ask for; that the API
// server goes on refusing; pods that were deleted; tasks that are done or failed, and pods that failed, wait; the gang that lost its
// place; the change of the spec. What is read off the pods is there as long as they are.
func (e *entry) happened(now time.Time, refusals int) []request {
	j := e.job
	out := e.asked()
	if refusals >= 0 && e.refused > refusals {
		out = append(out, request{event: bus.OutOfSyncEvent, action: bus.TerminateJobAction})
	}
	own := e.own()
	running := map[string]bool{}
	for _, m := range own {
		running[m.pod.Name] = m.pod.Status.Phase == corev1.PodRunning && m.version >= j.Status.Version
	}
	for _, name := range slices.Sorted(maps.Keys(e.evicted)) {
		r := e.evicted[name]
		if r.at.IsZero() {
			r.at = now
		}
		if running[name] { // who took its place runs
			delete(e.evicted, name)
			continue
		}
		out = append(out, *r)
	}
	for i := range j.Spec.Tasks {
		out = append(out, e.ofTask(&j.Spec.Tasks[i], own)...)
	}
	for _, m := range own {
		if r, ok := e.ofPod(m, now); ok {
			out = append(out, r)
		}
	}
	if g := e.group(); g != nil && g.Status.Phase == scheduling.PodGroupUnknown {
		out = append(out, request{event: bus.JobUnknownEvent, version: j.Status.Version, at: unknownSince(g, now)})
	}
	if e.updates > e.answered {
		out = append(out, request{event: bus.JobUpdatedEvent, version: j.Status.Version, at: now})
	}
	return out
}

// own are the Job's pods, by name. Those of an earlier Job of its name are not.
func (e *entry) own() []*member {
	var out []*member
	for _, m := range e.pods { // order: sorted below
		if m.owner == e.job.UID {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, byName)
	return out
}

// tells says whether what becomes of a pod is an event: not if the controller is ending it, or an earlier version of the Job made it.
func (e *entry) tells(m *member) bool { return !leaving(m) && m.version >= e.job.Status.Version }

// leaving says whether a pod is to be gone.
func leaving(m *member) bool {
	return m.pod.DeletionTimestamp != nil || m.pod.Annotations[keys.OutOfSync] == "true"
}

// ofTask is what has happened to a task: all of its pods have succeeded, or they were restarted too often. The pod that is named is the
// first by name that counts. One that is ending has not succeeded any more: it may be the answer to that very event, which would otherwise be
// told again of the next pod until it is gone.
func (e *entry) ofTask(t *batch.TaskSpec, own []*member) (out []request) {
	var succeeded, restarts int32
	var done, restarted *member
	for _, m := range own {
		if m.task != t.Name {
			continue
		}
		if m.pod.Status.Phase == corev1.PodSucceeded && !leaving(m) {
			succeeded++
			if done == nil && e.tells(m) {
				done = m
			}
		}
		if n := restartsOf(m.pod); n > 0 && e.tells(m) {
			restarts += n
			if restarted == nil {
				restarted = m
			}
		}
	}
	of := func(event bus.Event, m *member) request {
		return request{event: event, task: t.Name, pod: m.pod.Name, partition: m.partition, version: m.version, at: endedAt(m.pod)}
	}
	if done != nil && succeeded >= t.Replicas {
		out = append(out, of(bus.TaskCompletedEvent, done))
	}
	most := t.MaxRetry
	if most == 0 {
		most = defaultRetries
	}
	if restarted != nil && most > 0 && restarts >= most {
		out = append(out, of(bus.TaskFailedEvent, restarted))
	}
	return out
}

// defaultRetries is how many restarts of containers a task has that says 0.
const defaultRetries = 3

// restartsOf is how often the containers of a pod that runs or waits were restarted.
func restartsOf(p *corev1.Pod) (n int32) {
	if p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodPending {
		return 0
	}
	for _, list := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			n += list[i].RestartCount
		}
	}
	return n
}

// ofPod is what has happened to a pod: it has failed, or it waits.
func (e *entry) ofPod(m *member, now time.Time) (request, bool) {
	if !e.tells(m) {
		return request{}, false
	}
	r := request{task: m.task, pod: m.pod.Name, partition: m.partition, version: m.version}
	switch m.pod.Status.Phase {
	case corev1.PodFailed:
		r.event, r.at = bus.PodFailedEvent, endedAt(m.pod)
		if c := m.pod.Status.ContainerStatuses; len(c) > 0 && c[0].State.Terminated != nil {
			r.exitCode = c[0].State.Terminated.ExitCode
		}
		if r.at.IsZero() { // it does not say when
			if e.failedAt[m.pod.UID].IsZero() {
				e.failedAt[m.pod.UID] = now
			}
			r.at = e.failedAt[m.pod.UID]
		}
		return r, true
	case corev1.PodPending, "":
		r.event, r.at = bus.PodPendingEvent, m.pod.CreationTimestamp.Time
		return r, true
	}
	return request{}, false
}

// endedAt is when the last container of a pod ended; zero if none says so.
func endedAt(p *corev1.Pod) (at time.Time) {
	for i := range p.Status.ContainerStatuses {
		if t := p.Status.ContainerStatuses[i].State.Terminated; t != nil && t.FinishedAt.After(at) {
			at = t.FinishedAt.Time
		}
	}
	return at
}

// unknownSince is when a gang lost its place, as its conditions say.
func unknownSince(g *scheduling.PodGroup, now time.Time) time.Time {
	for i := range g.Status.Conditions {
		if c := &g.Status.Conditions[i]; c.Type == scheduling.PodGroupUnschedulableType && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return now
}

// group is the Job's PodGroup: the one that is named by the Job and its UID, or, from older times, by the Job alone; nil if there is none.
func (e *entry) group() *scheduling.PodGroup {
	for _, name := range []string{groupName(e.job), e.job.Name} {
		if g := e.groups[name]; g != nil && g.DeletionTimestamp == nil {
			if _, uid, _ := ownerJob(g); uid == e.job.UID {
				return g
			}
		}
	}
	return nil
}

// groupName is the name of a Job's PodGroup.
func groupName(j *batch.Job) string { return j.Name + "-" + string(j.UID) }
