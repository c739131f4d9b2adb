package vcjob

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

// request is something that happened to a Job, or that somebody asks of it.
type request struct {
	event bus.Event
	// action is what a Command, or the controller itself, asks for; empty: policies say.
	action bus.Action
	// command is the Command that asks; empty: none.
	command types.UID
	// task, pod and partition say to whom; empty: to the Job.
	task, pod, partition string
	// exitCode is that of a failed pod's first container; 0 for none.
	exitCode int32
	// version is the Job's version that the pod was made under.
	version int32
	// at is when it happened: timeouts count from then.
	at time.Time
}

// target is whom a targeted restart is about.
type target struct {
	action               bus.Action // RestartTask, RestartPod or RestartPartition; empty: nobody
	task, pod, partition string
}

// answer is what a request leads to.
type answer struct {
	action bus.Action
	target target
	// after is the policy's timeout; 0 is at once.
	after time.Duration
}

// resolve says what a request leads to: what it asks for itself; else what the first policy says that matches, the task's before the
// Job's; else SyncJob. Policies do not answer what pods did that an earlier version of the Job made.
func resolve(j *batch.Job, r *request) answer {
	sync := answer{action: bus.SyncJobAction}
	if r.action != "" {
		return aimed(answer{action: r.action}, r)
	}
	switch r.event {
	case bus.OutOfSyncEvent, bus.CommandIssuedEvent, bus.PodRunningEvent, "":
		return sync
	}
	if r.version < j.Status.Version {
		return sync
	}
	for i := range j.Spec.Tasks {
		if t := &j.Spec.Tasks[i]; r.task != "" && t.Name == r.task {
			if a, ok := firstMatch(t.Policies, r); ok {
				return aimed(a, r)
			}
		}
	}
	if a, ok := firstMatch(j.Spec.Policies, r); ok {
		return aimed(a, r)
	}
	return sync
}

// firstMatch is what the first policy says that a request matches. One whose timeout is no duration matches nothing: admission refuses it.
func firstMatch(policies []batch.LifecyclePolicy, r *request) (answer, bool) {
	for i := range policies {
		p := &policies[i]
		if !matches(p, r) {
			continue
		}
		a := answer{action: p.Action}
		if p.Timeout != nil {
			after, err := p.Timeout.Value()
			if err != nil {
				continue
			}
			a.after = max(after, 0)
		}
		return a, true
	}
	return answer{}, false
}

// matches says whether a policy is for a request. That a pod waits is for policies with a timeout alone.
func matches(p *batch.LifecyclePolicy, r *request) bool {
	if r.event == bus.PodPendingEvent && p.Timeout == nil {
		return false
	}
	named := func(e bus.Event) bool { return e == r.event || e == bus.AnyEvent }
	if named(p.Event) || slices.ContainsFunc(p.Events, named) {
		return true
	}
	return p.ExitCode != nil && r.exitCode != 0 && *p.ExitCode == r.exitCode
}

// aimed gives a targeted restart its target. One without (a Command, or what happened to the whole Job) has nobody to restart, and is SyncJob.
func aimed(a answer, r *request) answer {
	t := target{action: a.action}
	switch a.action {
	case bus.RestartTaskAction:
		t.task = r.task
	case bus.RestartPodAction:
		t.task, t.pod = r.task, r.pod
	case bus.RestartPartitionAction:
		t.task, t.partition = r.task, r.partition
	default:
		return a
	}
	if r.task == "" || a.action == bus.RestartPodAction && r.pod == "" || a.action == bus.RestartPartitionAction && r.partition == "" {
		return answer{action: bus.SyncJobAction}
	}
	a.target = t
	return a
}

// chosen is the first of several requests that leads to more than SyncJob and is due; the time when the next of the others is due, zero
// for never.
func chosen(j *batch.Job, requests []request, now time.Time) (best *request, a answer, again time.Time) {
	for i := range requests {
		r := &requests[i]
		got := resolve(j, r)
		if got.action == bus.SyncJobAction {
			continue
		}
		if due := r.at.Add(got.after); got.after > 0 && due.After(now) {
			again = sooner(again, due)
			continue
		}
		if best == nil {
			best, a = r, got
		}
	}
	return best, a, again
}

// sooner is the earlier of two times, of which zero is never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// byName orders pods, for decisions that are the same each time.
func byName(a, b *member) int { return cmp.Compare(a.pod.Name, b.pod.Name) }
