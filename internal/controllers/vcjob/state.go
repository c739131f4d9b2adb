package vcjob

import (
	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

// operation is what is done to the pods of a Job.
type operation uint8

const (
	syncJob    operation = iota // missing pods are made, needless ones are ended
	killJob                     // all pods are ended, but for what is retained
	killTarget                  // the pods of the target are ended
)

// step is what an action does to a Job in a phase.
type step struct {
	op operation
	// soft retains pods that have succeeded or failed.
	soft bool
	// count raises the retry count.
	count bool
	// next is the phase after it; empty: the phase's own rule says, in settled.
	next batch.JobPhase
}

// other stands for every action that a phase's row does not name.
const other bus.Action = ""

// active is the row of Pending and of Running.
var active = map[bus.Action]step{
	bus.RestartJobAction:       {op: killJob, count: true, next: batch.Restarting},
	bus.RestartTaskAction:      {op: killTarget, count: true, next: batch.Restarting},
	bus.RestartPodAction:       {op: killTarget, count: true, next: batch.Restarting},
	bus.RestartPartitionAction: {op: killTarget, count: true, next: batch.Restarting},
	bus.AbortJobAction:         {op: killJob, soft: true, next: batch.Aborting},
	bus.CompleteJobAction:      {op: killJob, soft: true, next: batch.Completing},
	bus.TerminateJobAction:     {op: killJob, soft: true, next: batch.Terminating},
	other:                      {op: syncJob},
}

// aborting is the row of Aborting and of Aborted.
var aborting = map[bus.Action]step{
	bus.ResumeJobAction: {op: killJob, soft: true, count: true, next: batch.Restarting},
	other:               {op: killJob, soft: true},
}

// ending is the row of phases that nothing leads out of but the end of the last pod.
var ending = map[bus.Action]step{other: {op: killJob, soft: true}}

// table says what each action does in each phase. A phase that is not in it is treated as Pending.
var table = map[batch.JobPhase]map[bus.Action]step{
	batch.Pending: active,
	batch.Running: active,
	batch.Restarting: {
		bus.SyncJobAction:          {op: syncJob},
		bus.EnqueueJobAction:       {op: syncJob},
		bus.RestartTaskAction:      {op: killTarget},
		bus.RestartPodAction:       {op: killTarget},
		bus.RestartPartitionAction: {op: killTarget},
		other:                      {op: killJob},
	},
	batch.Aborting:    aborting,
	batch.Aborted:     aborting,
	batch.Terminating: ending,
	batch.Completing:  ending,
	batch.Terminated:  ending,
	batch.Completed:   ending,
	batch.Failed:      ending,
}

// stepOf is what an action does in a phase.
func stepOf(phase batch.JobPhase, action bus.Action) step {
	row, known := table[phase]
	if !known {
		row = active
	}
	if s, named := row[action]; named {
		return s
	}
	return row[other]
}

// finished says whether a phase is the end: no pod of the Job is made any more.
func finished(phase batch.JobPhase) bool {
	return phase == batch.Terminated || phase == batch.Completed || phase == batch.Failed
}

// works says whether a Job's pods are made and kept in a phase. The empty phase is that of a Job nobody looked at.
func works(phase batch.JobPhase) bool {
	_, known := table[phase]
	return !known || phase == batch.Pending || phase == batch.Running
}

// settled is the phase that a Job is in when its pods are as counted.
func settled(j *batch.Job, s *batch.JobStatus) batch.JobPhase {
	live := s.Pending > 0 || s.Running > 0 || s.Terminating > 0
	switch s.State.Phase {
	case batch.Running:
		return running(&j.Spec, s)
	case batch.Restarting:
		switch total := replicas(&j.Spec); {
		case s.RetryCount >= j.Spec.MaxRetry:
			return batch.Failed
		case total-int64(s.Terminating) >= int64(s.MinAvailable):
			return batch.Pending
		}
		return batch.Restarting
	case batch.Aborting, batch.Terminating, batch.Completing:
		if live {
			return s.State.Phase
		}
		return map[batch.JobPhase]batch.JobPhase{
			batch.Aborting: batch.Aborted, batch.Terminating: batch.Terminated, batch.Completing: batch.Completed,
		}[s.State.Phase]
	case batch.Aborted, batch.Terminated, batch.Completed, batch.Failed:
		return s.State.Phase
	}
	if j.Spec.MinAvailable <= s.Running+s.Succeeded+s.Failed {
		return batch.Running
	}
	return batch.Pending
}

// running is the phase after Running.
func running(j *batch.JobSpec, s *batch.JobStatus) batch.JobPhase {
	total := replicas(j)
	enough := j.MinSuccess != nil && s.Succeeded >= *j.MinSuccess
	switch {
	case total == 0:
		return batch.Running
	case enough:
		return batch.Completed
	case int64(s.Succeeded)+int64(s.Failed) == total:
		if int64(j.MinAvailable) >= minimums(j) && taskFellShort(j, s) || j.MinSuccess != nil || s.Succeeded < j.MinAvailable {
			return batch.Failed
		}
		return batch.Completed
	case int64(s.Pending) > total-int64(j.MinAvailable):
		return batch.Pending
	}
	return batch.Running
}

// taskFellShort says whether fewer pods of a task have succeeded than the minimum that it states.
func taskFellShort(j *batch.JobSpec, s *batch.JobStatus) bool {
	for i := range j.Tasks {
		t := &j.Tasks[i]
		if t.MinAvailable != nil && s.TaskStatusCount[t.Name].Phase["Succeeded"] < *t.MinAvailable {
			return true
		}
	}
	return false
}

// replicas is how many pods a Job has.
func replicas(j *batch.JobSpec) (n int64) {
	for i := range j.Tasks {
		n += int64(j.Tasks[i].Replicas)
	}
	return n
}

// minimum is how many pods of a task start together.
func minimum(t *batch.TaskSpec) int32 {
	switch p := t.PartitionPolicy; {
	case t.MinAvailable != nil:
		return *t.MinAvailable
	case p != nil && p.MinPartitions > 0:
		return int32(min(int64(p.MinPartitions)*int64(p.PartitionSize), int64(t.Replicas))) //nolint:gosec // at most the replicas
	}
	return t.Replicas
}

// minimums is their sum over the tasks.
func minimums(j *batch.JobSpec) (n int64) {
	for i := range j.Tasks {
		n += int64(minimum(&j.Tasks[i]))
	}
	return n
}
