package vcjobflow

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
)

// histories is how many of a Job's phases a status tells, the latest.
const histories = 20

// statusOf is what a flow's status is to be. A Job that was completed is, also when it is gone.
func statusOf(f *flow.JobFlow, parts []*flow.Flow, jobs map[string]*batch.Job) *flow.JobFlowStatus {
	s := &flow.JobFlowStatus{}
	was := map[string]*flow.JobStatus{}
	for i := range f.Status.JobStatusList {
		was[f.Status.JobStatusList[i].Name] = &f.Status.JobStatusList[i]
	}
	for _, part := range parts {
		name := jobName(f, part.Name)
		j := jobs[name]
		if j == nil && !slices.Contains(f.Status.CompletedJobs, name) {
			continue
		}
		if s.Conditions == nil {
			s.Conditions = map[string]flow.Condition{}
		}
		if j == nil {
			s.CompletedJobs = append(s.CompletedJobs, name)
			if last := was[name]; last != nil {
				s.JobStatusList = append(s.JobStatusList, *last.DeepCopy())
			}
			if c, ok := f.Status.Conditions[name]; ok {
				s.Conditions[name] = *c.DeepCopy()
			}
			continue
		}
		if list := listOf(s, j.Status.State.Phase); list != nil {
			*list = append(*list, name)
		}
		s.JobStatusList = append(s.JobStatusList, entryOf(j, was[name]))
		c := j.DeepCopy()
		s.Conditions[name] = flow.Condition{
			Phase: c.Status.State.Phase, CreateTime: c.CreationTimestamp, RunningDuration: c.Status.RunningDuration, TaskStatusCount: c.Status.TaskStatusCount,
		}
	}
	s.State.Phase = phaseOf(f.Status.State.Phase, len(s.RunningJobs), len(s.CompletedJobs), len(s.FailedJobs)+len(s.TerminatedJobs), len(parts))
	return s
}

// phaseOf is a flow's phase after was, with so many Jobs of its parts that run, are completed, and have failed or were terminated. Who has failed, or succeeded, stays so.
func phaseOf(was flow.JobFlowPhase, running, completed, failed, parts int) flow.JobFlowPhase {
	switch {
	case was != "" && was != flow.Pending && was != flow.Running:
		return was
	case failed > 0:
		return flow.Failed
	case parts > 0 && completed == parts:
		return flow.Succeed
	case running+completed > 0 || was == flow.Running:
		return flow.Running
	}
	return flow.Pending
}

// listOf is the list of a status that has the Jobs of a phase; nil for none.
func listOf(s *flow.JobFlowStatus, phase batch.JobPhase) *[]string {
	switch phase {
	case "", batch.Pending:
		return &s.PendingJobs
	case batch.Running:
		return &s.RunningJobs
	case batch.Completed:
		return &s.CompletedJobs
	case batch.Failed:
		return &s.FailedJobs
	case batch.Terminated:
		return &s.TerminatedJobs
	case batch.Aborted, batch.Aborting, batch.Restarting:
		return &s.UnKnowJobs
	}
	return nil
}

// entryOf says more of a Job; was is what was said of it before, nil for nothing.
func entryOf(j *batch.Job, was *flow.JobStatus) flow.JobStatus {
	state := &j.Status.State
	e := flow.JobStatus{Name: j.Name, State: state.Phase, StartTimestamp: j.CreationTimestamp, RestartCount: j.Status.RetryCount}
	switch state.Phase {
	case batch.Completed, batch.Failed, batch.Terminated:
		e.EndTimestamp = state.LastTransitionTime
	}
	begun := j.CreationTimestamp
	if was != nil && was.StartTimestamp.Equal(&j.CreationTimestamp) {
		e.RunningHistories = slices.Clone(was.RunningHistories)
	}
	if n := len(e.RunningHistories); n > 0 {
		if e.RunningHistories[n-1].State == state.Phase {
			return e
		}
		begun = state.LastTransitionTime
		e.RunningHistories[n-1].EndTimestamp = begun
	}
	e.RunningHistories = append(e.RunningHistories, flow.JobRunningHistory{State: state.Phase, StartTimestamp: begun, EndTimestamp: metav1.Time{}})
	e.RunningHistories = e.RunningHistories[max(0, len(e.RunningHistories)-histories):]
	return e
}
