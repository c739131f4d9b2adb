package vcjob

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

// transitions is Volcano's state table, which the file explains.
//
//go:embed testdata/transitions.txt
var transitions string

var allPhases = []batch.JobPhase{
	"", "Weird", batch.Pending, batch.Running, batch.Restarting, batch.Aborting, batch.Aborted, batch.Terminating, batch.Terminated, batch.Completing,
	batch.Completed, batch.Failed,
}

var allActions = []bus.Action{
	bus.AbortJobAction, bus.RestartJobAction, bus.RestartTaskAction, bus.RestartPodAction, bus.RestartPartitionAction, bus.TerminateJobAction,
	bus.CompleteJobAction, bus.ResumeJobAction, bus.SyncJobAction, bus.EnqueueJobAction, "Dance",
}

// TestTransitions: each action in each phase does what the table says.
func TestTransitions(t *testing.T) {
	t.Parallel()
	want := map[string]string{} // by phase and action
	for line := range strings.Lines(strings.TrimSpace(transitions)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		for _, phase := range strings.Split(cells[0], ",") {
			for _, action := range strings.Split(cells[1], ",") {
				want[phase+" "+action] = cells[2] + " " + cells[3]
			}
		}
	}
	for _, phase := range allPhases {
		for _, action := range allActions {
			name := string(phase)
			if name == "" {
				name = "-"
			}
			expected, ok := want[name+" "+string(action)]
			if !ok {
				expected = want[name+" rest"]
			}
			s := stepOf(phase, action)
			got := map[operation]string{syncJob: "SyncJob", killJob: "KillJob(None)", killTarget: "KillTarget"}[s.op]
			if s.soft {
				got = strings.Replace(got, "None", "Soft", 1)
			}
			if s.count {
				got += " count"
			}
			if s.next == "" {
				s.next = "="
			}
			if got += " " + string(s.next); got != expected || expected == "" {
				t.Errorf("%s in phase %s: %s, want %q", action, name, got, expected)
			}
		}
	}
}

// TestSettled: where a phase leads by itself, for pods as counted.
func TestSettled(t *testing.T) {
	t.Parallel()
	one, two := int32(1), int32(2)
	// A Job of three pods: task a of 2, task b of 1.
	job := func(minAvailable int32, edit ...func(*batch.Job)) *batch.Job {
		j := &batch.Job{Spec: batch.JobSpec{MinAvailable: minAvailable, MaxRetry: 3, Tasks: []batch.TaskSpec{{Name: "a", Replicas: 2}, {Name: "b", Replicas: 1}}}}
		for _, e := range edit {
			e(j)
		}
		return j
	}
	status := func(phase batch.JobPhase, pending, running, succeeded, failed, terminating int32) *batch.JobStatus {
		return &batch.JobStatus{State: batch.JobState{Phase: phase}, Pending: pending, Running: running, Succeeded: succeeded, Failed: failed, Terminating: terminating, MinAvailable: 3}
	}
	success := func(n int32) func(*batch.Job) { return func(j *batch.Job) { j.Spec.MinSuccess = &n } }
	stated := func(j *batch.Job) { j.Spec.Tasks[0].MinAvailable, j.Spec.Tasks[1].MinAvailable = &two, &one }
	none := func(j *batch.Job) { j.Spec.Tasks[0].Replicas, j.Spec.Tasks[1].Replicas = 0, 0 }
	byTask := func(s *batch.JobStatus, a, b int32) *batch.JobStatus {
		s.TaskStatusCount = map[string]batch.TaskState{"a": {Phase: map[podPhase]int32{"Succeeded": a}}, "b": {Phase: map[podPhase]int32{"Succeeded": b}}}
		return s
	}
	retried := func(s *batch.JobStatus, n int32) *batch.JobStatus { s.RetryCount = n; return s }
	for i, c := range []struct {
		j    *batch.Job
		s    *batch.JobStatus
		want batch.JobPhase
	}{
		{job(3), status("", 0, 0, 0, 0, 0), batch.Pending},
		{job(0), status(batch.Pending, 0, 0, 0, 0, 0), batch.Running},
		{job(3), status(batch.Pending, 1, 2, 0, 0, 0), batch.Pending},
		{job(3), status(batch.Pending, 0, 1, 1, 1, 0), batch.Running},
		{job(3), status(batch.Pending, 0, 2, 0, 0, 1), batch.Pending},

		{job(0, none), status(batch.Running, 0, 0, 0, 0, 0), batch.Running},
		{job(2, success(1)), status(batch.Running, 0, 2, 1, 0, 0), batch.Completed},
		{job(2, success(3)), status(batch.Running, 0, 0, 2, 1, 0), batch.Failed},
		{job(2), status(batch.Running, 0, 0, 2, 1, 0), batch.Completed},
		{job(3), status(batch.Running, 0, 0, 2, 1, 0), batch.Failed},
		{job(3, stated), byTask(status(batch.Running, 0, 0, 3, 0, 0), 2, 1), batch.Completed},
		{job(3, stated), byTask(status(batch.Running, 0, 0, 2, 1, 0), 2, 0), batch.Failed},
		{job(2, stated), byTask(status(batch.Running, 0, 0, 2, 1, 0), 2, 0), batch.Completed},
		{job(2), status(batch.Running, 1, 2, 0, 0, 0), batch.Running},
		{job(2), status(batch.Running, 2, 1, 0, 0, 0), batch.Pending},
		{job(3), status(batch.Running, 1, 2, 0, 0, 0), batch.Pending},
		{job(3), status(batch.Running, 0, 2, 0, 0, 1), batch.Running},

		{job(3), retried(status(batch.Restarting, 0, 0, 0, 0, 1), 1), batch.Restarting},
		{job(3), retried(status(batch.Restarting, 0, 0, 0, 0, 0), 1), batch.Pending},
		{job(3), retried(status(batch.Restarting, 0, 0, 0, 0, 3), 3), batch.Failed},
		{job(3), retried(status(batch.Restarting, 0, 2, 0, 1, 0), 2), batch.Pending},

		{job(3), status(batch.Aborting, 0, 0, 1, 1, 1), batch.Aborting},
		{job(3), status(batch.Aborting, 0, 0, 1, 1, 0), batch.Aborted},
		{job(3), status(batch.Terminating, 1, 0, 0, 0, 0), batch.Terminating},
		{job(3), status(batch.Terminating, 0, 0, 0, 0, 0), batch.Terminated},
		{job(3), status(batch.Completing, 0, 1, 0, 0, 0), batch.Completing},
		{job(3), status(batch.Completing, 0, 0, 3, 0, 0), batch.Completed},
		{job(3), status(batch.Aborted, 0, 0, 0, 0, 0), batch.Aborted},
		{job(3), status(batch.Terminated, 0, 0, 0, 0, 0), batch.Terminated},
		{job(3), status(batch.Completed, 0, 0, 0, 0, 0), batch.Completed},
		{job(3), status(batch.Failed, 0, 0, 0, 0, 0), batch.Failed},
	} {
		if got := settled(c.j, c.s); got != c.want {
			t.Errorf("case %d: from %q to %s, want %s", i, c.s.State.Phase, got, c.want)
		}
	}
}

// TestAim: what is written of whom a restart is about is read back, and nothing else is.
func TestAim(t *testing.T) {
	t.Parallel()
	for _, want := range []target{
		{action: bus.RestartTaskAction, task: "w"},
		{action: bus.RestartPodAction, task: "w", pod: "j-w-0"},
		{action: bus.RestartPartitionAction, task: "w", partition: "3"},
	} {
		s := batch.JobState{Phase: batch.Restarting, Reason: string(want.action), Message: want.text()}
		if got := aim(&s); got != want {
			t.Errorf("%+v became %+v", want, got)
		}
		if s.Phase = batch.Pending; aim(&s) != (target{}) {
			t.Errorf("%+v is read in another phase", want)
		}
	}
	for _, s := range []batch.JobState{
		{Reason: "RestartJob"}, {Reason: "RestartTask"}, {Reason: "RestartPod", Message: "pod x"}, {Reason: "RestartPartition", Message: "task w"}, {Message: "task w"},
	} {
		if s.Phase = batch.Restarting; aim(&s) != (target{}) {
			t.Errorf("%v aims at %+v", fmt.Sprint(s), aim(&s))
		}
	}
}
