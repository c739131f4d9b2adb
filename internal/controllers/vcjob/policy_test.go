package vcjob

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

type podPhase = corev1.PodPhase

func policy(action bus.Action, edit ...func(*batch.LifecyclePolicy)) batch.LifecyclePolicy {
	p := batch.LifecyclePolicy{Action: action}
	for _, e := range edit {
		e(&p)
	}
	return p
}

func on(events ...bus.Event) func(*batch.LifecyclePolicy) {
	return func(p *batch.LifecyclePolicy) {
		if p.Event = events[0]; len(events) > 1 {
			p.Events = events[1:]
		}
	}
}

func code(n int32) func(*batch.LifecyclePolicy) {
	return func(p *batch.LifecyclePolicy) { p.ExitCode = &n }
}

func within(d batch.Duration) func(*batch.LifecyclePolicy) {
	return func(p *batch.LifecyclePolicy) { p.Timeout = &d }
}

// TestEachEventEachLevel: a policy for each event, and one for all, is found at the task and at the Job; the events of controllers are
// answered by none; that a pod waits only by one with a timeout; each action gets its target.
func TestEachEventEachLevel(t *testing.T) {
	t.Parallel()
	user := []bus.Event{
		bus.PodFailedEvent, bus.PodEvictedEvent, bus.PodPendingEvent, bus.JobUnknownEvent, bus.TaskCompletedEvent, bus.TaskFailedEvent, bus.JobUpdatedEvent,
	}
	internal := []bus.Event{bus.PodRunningEvent, bus.OutOfSyncEvent, bus.CommandIssuedEvent, ""}
	ofJob := map[bus.Event]bool{bus.JobUnknownEvent: true, bus.JobUpdatedEvent: true}
	happened := func(e bus.Event) *request {
		r := &request{event: e, task: "w", pod: "j-w-0", partition: "0", version: 2}
		if ofJob[e] {
			r.task, r.pod, r.partition = "", "", ""
		}
		return r
	}
	for _, level := range []string{"task", "job"} {
		for _, named := range append(user, bus.AnyEvent) {
			for _, action := range allActions {
				if action == bus.SyncJobAction {
					continue
				}
				for _, timed := range []bool{false, true} {
					p := policy(action, on(named))
					if timed {
						within("30s")(&p)
					}
					j := &batch.Job{Spec: batch.JobSpec{Tasks: []batch.TaskSpec{{Name: "v"}, {Name: "w"}}}, Status: batch.JobStatus{Version: 2}}
					if level == "task" {
						j.Spec.Tasks[1].Policies = []batch.LifecyclePolicy{p}
					} else {
						j.Spec.Policies = []batch.LifecyclePolicy{p}
					}
					for _, e := range append(user, internal...) {
						want := answer{action: bus.SyncJobAction}
						heard := (e == named || named == bus.AnyEvent) && !(level == "task" && ofJob[e]) && (e != bus.PodPendingEvent || timed)
						for _, i := range internal {
							heard = heard && e != i
						}
						aims := map[bus.Action]target{
							bus.RestartTaskAction:      {action: bus.RestartTaskAction, task: "w"},
							bus.RestartPodAction:       {action: bus.RestartPodAction, task: "w", pod: "j-w-0"},
							bus.RestartPartitionAction: {action: bus.RestartPartitionAction, task: "w", partition: "0"},
						}
						if _, targeted := aims[action]; heard && !(targeted && ofJob[e]) {
							want = answer{action: action, target: aims[action]}
							if timed {
								want.after = 30 * time.Second
							}
						}
						if got := resolve(j, happened(e)); got != want {
							t.Errorf("%s level, %s on %s (timeout %v): %q leads to %+v, want %+v", level, action, named, timed, e, got, want)
						}
					}
				}
			}
		}
	}
}

// TestPolicyOrder: which of several policies is the one.
func TestPolicyOrder(t *testing.T) {
	t.Parallel()
	failed := func(exit int32) request {
		return request{event: bus.PodFailedEvent, task: "w", pod: "j-w-0", exitCode: exit}
	}
	abort, restart, complete := bus.AbortJobAction, bus.RestartJobAction, bus.CompleteJobAction
	for _, c := range []struct {
		what      string
		task, job []batch.LifecyclePolicy
		r         request
		version   int32
		want      bus.Action
	}{
		{"none", nil, nil, failed(1), 0, bus.SyncJobAction},
		{"the first", nil, []batch.LifecyclePolicy{policy(abort, on(bus.PodFailedEvent)), policy(restart, on(bus.PodFailedEvent))}, failed(1), 0, abort},
		{"the task's before the Job's", []batch.LifecyclePolicy{policy(restart, on(bus.PodFailedEvent))}, []batch.LifecyclePolicy{policy(abort, on(bus.PodFailedEvent))}, failed(1), 0, restart},
		{"the Job's, where the task's is for something else", []batch.LifecyclePolicy{policy(restart, on(bus.PodEvictedEvent))}, []batch.LifecyclePolicy{policy(abort, on(bus.PodFailedEvent))}, failed(1), 0, abort},
		{"one of several events", nil, []batch.LifecyclePolicy{policy(abort, on(bus.PodEvictedEvent, bus.PodFailedEvent))}, failed(1), 0, abort},
		{"an exit code", nil, []batch.LifecyclePolicy{policy(abort, code(2)), policy(restart, code(3))}, failed(3), 0, restart},
		{"an exit code before an event", nil, []batch.LifecyclePolicy{policy(abort, code(3)), policy(restart, on(bus.PodFailedEvent))}, failed(3), 0, abort},
		{"an exit code of 0 is none", nil, []batch.LifecyclePolicy{policy(abort, code(0))}, failed(0), 0, bus.SyncJobAction},
		{"a pod of an earlier version", nil, []batch.LifecyclePolicy{policy(abort, on(bus.PodFailedEvent))}, failed(1), 1, bus.SyncJobAction},
		{"a Command, whatever the version", nil, []batch.LifecyclePolicy{policy(abort, on(bus.AnyEvent))}, request{event: bus.CommandIssuedEvent, action: complete}, 1, complete},
		{"a timeout that is none", nil, []batch.LifecyclePolicy{policy(abort, on(bus.PodFailedEvent), within("soon")), policy(restart, on(bus.PodFailedEvent))}, failed(1), 0, restart},
	} {
		j := &batch.Job{Spec: batch.JobSpec{Policies: c.job, Tasks: []batch.TaskSpec{{Name: "w", Policies: c.task}}}, Status: batch.JobStatus{Version: c.version}}
		if got := resolve(j, &c.r); got.action != c.want {
			t.Errorf("%s: %s, want %s", c.what, got.action, c.want)
		}
	}
}

// TestChosen: of what has happened, the first that is answered at once or long enough ago is; else it is said when the next is due.
func TestChosen(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	j := &batch.Job{Spec: batch.JobSpec{Policies: []batch.LifecyclePolicy{
		policy(bus.RestartPodAction, on(bus.PodPendingEvent), within("10m")), policy(bus.AbortJobAction, on(bus.PodFailedEvent), within("1m")),
		policy(bus.RestartJobAction, on(bus.PodEvictedEvent)),
	}, Tasks: []batch.TaskSpec{{Name: "w"}}}}
	ago := func(e bus.Event, d time.Duration) request {
		return request{event: e, task: "w", pod: fmt.Sprintf("j-w-%v", d), at: now.Add(-d)}
	}
	for _, c := range []struct {
		what     string
		requests []request
		want     bus.Action
		again    time.Duration
	}{
		{"nothing", nil, "", 0},
		{"one that nobody answers", []request{ago(bus.TaskCompletedEvent, 0)}, "", 0},
		{"not yet", []request{ago(bus.PodPendingEvent, time.Minute), ago(bus.PodFailedEvent, 20*time.Second)}, "", 40 * time.Second},
		{"just now", []request{ago(bus.PodPendingEvent, time.Minute), ago(bus.PodFailedEvent, time.Minute)}, bus.AbortJobAction, 9 * time.Minute},
		{"the first", []request{ago(bus.PodEvictedEvent, 0), ago(bus.PodFailedEvent, time.Hour)}, bus.RestartJobAction, 0},
	} {
		_, a, again := chosen(j, c.requests, now)
		if a.action != c.want || c.again != 0 && !again.Equal(now.Add(c.again)) || c.again == 0 && !again.IsZero() {
			t.Errorf("%s: %s, again at %v", c.what, a.action, again)
		}
	}
}
