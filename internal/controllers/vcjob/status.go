package vcjob

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
)

// Reasons of a Job's state. While it restarts, the reason is the action, and the message says of whom.
const (
	// reasonQueue says that the Job's queue does not exist.
	reasonQueue = "QueueNotFound"
	// reasonClaim says that a claim of the Job's volumes does not exist, or cannot be made.
	reasonClaim = "PVCError"
	// reasonPlugin says that a job plugin, or its arguments, are wrong.
	reasonPlugin = "PluginError"
	// reasonGroup says that the gang waits: to be admitted, or for room.
	reasonGroup = "PodGroupPending"
)

// counted returns the Job's status with the pods as they are.
func (e *entry) counted(own []*member) *batch.JobStatus {
	s := e.job.Status.DeepCopy()
	e.dropRecords(s)
	s.Pending, s.Running, s.Succeeded, s.Failed, s.Terminating, s.Unknown = 0, 0, 0, 0, 0, 0
	s.TaskStatusCount = nil
	for _, m := range own {
		if m.pod.DeletionTimestamp != nil {
			s.Terminating++
			continue
		}
		phase := m.pod.Status.Phase
		switch phase {
		case corev1.PodPending, "":
			s.Pending++
			phase = corev1.PodPending
		case corev1.PodRunning:
			s.Running++
		case corev1.PodSucceeded:
			s.Succeeded++
		case corev1.PodFailed:
			s.Failed++
		default:
			s.Unknown++
		}
		if s.TaskStatusCount == nil {
			s.TaskStatusCount = map[string]batch.TaskState{}
		}
		if s.TaskStatusCount[m.task].Phase == nil {
			s.TaskStatusCount[m.task] = batch.TaskState{Phase: map[corev1.PodPhase]int32{}}
		}
		s.TaskStatusCount[m.task].Phase[phase]++
	}
	return s
}

// What nobody waits for of a status is written once it has stood for trailAfter, so that the counts of pods that start, or end, together come in one write, and
// stands back while pods are made, until none was for makingQuiet, trailLongest at most. In between it is looked at every trailStep. The scheduler has the same
// for PodGroups.
const (
	trailAfter   = time.Second
	makingQuiet  = 500 * time.Millisecond
	trailStep    = 2 * time.Second
	trailLongest = 10 * time.Second
)

// standBack is until when a status is not written; zero: it is written, or says nothing new.
func (b *book) standBack(e *entry, is *batch.JobStatus, now time.Time) time.Time {
	if !trails(&e.job.Status, is) {
		e.trails = time.Time{}
		return time.Time{}
	}
	if e.trails.IsZero() {
		e.trails = now
	}
	due := e.trails.Add(trailAfter)
	if quiet := b.making.Add(makingQuiet); quiet.After(due) && quiet.After(now) {
		due = later(quiet, now.Add(trailStep))
	}
	if last := e.trails.Add(trailLongest); last.Before(due) {
		due = last
	}
	if due.After(now) {
		return due
	}
	e.trails = time.Time{}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// trails says of a status that nobody waits for it: it says only of other numbers of pods that they are in this phase or that, while some of them wait or end, so that more is to come.
func trails(was, is *batch.JobStatus) bool {
	if is.Pending+is.Terminating == 0 {
		return false
	}
	rest := *is
	rest.Pending, rest.Running, rest.Succeeded, rest.Failed, rest.Terminating, rest.Unknown = was.Pending, was.Running, was.Succeeded, was.Failed, was.Terminating, was.Unknown
	rest.TaskStatusCount = was.TaskStatusCount
	return equality.Semantic.DeepEqual(was, &rest) && !equality.Semantic.DeepEqual(was, is)
}

// kept are the counters of a Job that has come to its end: pods that are cleared away later do not change how it ended.
func kept(was, is *batch.JobStatus) {
	if finished(was.State.Phase) && is.Pending+is.Running+is.Terminating+is.Unknown == 0 && was.Pending+was.Running+was.Terminating+was.Unknown == 0 &&
		is.Succeeded <= was.Succeeded && is.Failed <= was.Failed {
		is.Succeeded, is.Failed, is.TaskStatusCount = was.Succeeded, was.Failed, was.TaskStatusCount
	}
}

// stamped gives a status its times if it differs from the one before; nil if it does not.
func stamped(was, is *batch.JobStatus, now time.Time) *batch.JobStatus {
	if equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	at := metav1.NewTime(now.Truncate(time.Second))
	is.State.LastTransitionTime = at
	is.Conditions = slices.DeleteFunc(slices.Clone(is.Conditions), func(c batch.JobCondition) bool { return c.Status == is.State.Phase })
	is.Conditions = append(is.Conditions, batch.JobCondition{Status: is.State.Phase, LastTransitionTime: &at})
	return is
}

// begun is the status after an action: the phase, the retry and the version that it makes, whom it is about, and which Command it obeys, if one.
func (e *entry) begun(own []*member, s step, a answer, command types.UID, now time.Time) *batch.JobStatus {
	j, is := e.job, e.counted(own)
	if command != "" {
		record(is, command, a.action)
	}
	is.MinAvailable = j.Spec.MinAvailable
	if s.next != "" {
		is.State.Phase = s.next
	}
	if s.count {
		is.RetryCount++
	}
	is.State.Reason, is.State.Message = string(a.action), a.target.text()
	if s.op == killJob {
		is.Version++
		ran := batch.Duration(now.Sub(j.CreationTimestamp.Time).Truncate(time.Second).String())
		is.RunningDuration = &ran
	}
	return stamped(&j.Status, is, now)
}

// text says whom a restart is about, for aim to read.
func (t target) text() string {
	switch t.action {
	case bus.RestartTaskAction:
		return "task " + t.task
	case bus.RestartPodAction:
		return "pod " + t.pod + " of task " + t.task
	case bus.RestartPartitionAction:
		return "partition " + t.partition + " of task " + t.task
	}
	return ""
}

// aim reads back whom a restart is about; nobody for any other state.
func aim(s *batch.JobState) target {
	t := target{action: bus.Action(s.Reason)}
	text, ok := s.Message, s.Phase == batch.Restarting
	switch t.action {
	case bus.RestartTaskAction:
		t.task, ok = cutPrefix(text, "task ", ok)
		return only(t, ok)
	case bus.RestartPodAction:
		text, ok = cutPrefix(text, "pod ", ok)
		t.pod, t.task, ok = cut(text, " of task ", ok)
		return only(t, ok)
	case bus.RestartPartitionAction:
		text, ok = cutPrefix(text, "partition ", ok)
		t.partition, t.task, ok = cut(text, " of task ", ok)
		return only(t, ok)
	}
	return target{}
}

func cutPrefix(s, prefix string, ok bool) (string, bool) {
	s, found := strings.CutPrefix(s, prefix)
	return s, found && ok
}

func cut(s, sep string, ok bool) (before, after string, found bool) {
	before, after, found = strings.Cut(s, sep)
	return before, after, found && ok
}

func only(t target, ok bool) target {
	if !ok {
		return target{}
	}
	return t
}

// has says whether a pod is the target's.
func (t target) has(m *member) bool {
	switch t.action {
	case bus.RestartTaskAction:
		return m.task == t.task
	case bus.RestartPodAction:
		return m.pod.Name == t.pod
	case bus.RestartPartitionAction:
		return m.task == t.task && m.partition == t.partition
	}
	return false
}
