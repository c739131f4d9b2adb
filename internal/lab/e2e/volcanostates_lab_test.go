//go:build lab

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// TestVolcanoStates: on a real API server each action in each phase of a Job, and each policy for each event at each level, does what Volcano's state table says. The table is the file that the
// controller's own test is held against, typed from Volcano's description. All Jobs live at once.
func TestVolcanoStates(t *testing.T) {
	b := newVolcanoFixture(t)
	table := volcanoTable(t)
	t.Run("actions", func(t *testing.T) { everyAction(t, b, table) })
	t.Run("policies", func(t *testing.T) { everyPolicy(t, b, table) })
	t.Run("targets", func(t *testing.T) { everyTarget(t, b) })
}

// transition is what an action does in a phase: what to the pods, whether a retry is counted, and the next phase, "=" for the phase's own rule.
type transition struct {
	op    string
	count bool
	next  vcbatch.JobPhase
}

// volcanoTable reads the state table, by phase and action; the action rest stands for all others.
func volcanoTable(t *testing.T) map[vcbatch.JobPhase]map[vcbus.Action]transition {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "controllers", "vcjob", "testdata", "transitions.txt"))
	if err != nil {
		t.Fatal(err)
	}
	table := map[vcbatch.JobPhase]map[vcbus.Action]transition{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "|")
		op, count := strings.CutSuffix(strings.TrimSpace(cells[2]), " count")
		for _, phase := range strings.Split(strings.TrimSpace(cells[0]), ",") {
			row := table[vcbatch.JobPhase(phase)]
			if row == nil {
				row = map[vcbus.Action]transition{}
				table[vcbatch.JobPhase(phase)] = row
			}
			for _, action := range strings.Split(strings.TrimSpace(cells[1]), ",") {
				row[vcbus.Action(action)] = transition{op: op, count: count, next: vcbatch.JobPhase(strings.TrimSpace(cells[3]))}
			}
		}
	}
	return table
}

// does is what an action does in a phase.
func does(table map[vcbatch.JobPhase]map[vcbus.Action]transition, phase vcbatch.JobPhase, action vcbus.Action) transition {
	if s, named := table[phase][action]; named {
		return s
	}
	return table[phase]["rest"]
}

// outcome is where a phase leads by itself once no pod is left that is terminating and, after a restart, the gang has not been let in again.
func outcome(phase vcbatch.JobPhase) vcbatch.JobPhase {
	return map[vcbatch.JobPhase]vcbatch.JobPhase{
		vcbatch.Pending: vcbatch.Pending, vcbatch.Running: vcbatch.Running, vcbatch.Restarting: vcbatch.Pending, vcbatch.Aborting: vcbatch.Aborted, vcbatch.Aborted: vcbatch.Aborted,
		vcbatch.Terminating: vcbatch.Terminated, vcbatch.Terminated: vcbatch.Terminated, vcbatch.Completing: vcbatch.Completed, vcbatch.Completed: vcbatch.Completed, vcbatch.Failed: vcbatch.Failed,
	}[phase]
}

// targeted says whether an action restarts a part of a Job.
func targeted(action vcbus.Action) bool {
	return action == vcbus.RestartTaskAction || action == vcbus.RestartPodAction || action == vcbus.RestartPartitionAction
}

// volcanoActions are those that users may ask for, two that controllers ask for, and one that nobody knows.
var volcanoActions = []vcbus.Action{
	vcbus.AbortJobAction, vcbus.RestartJobAction, vcbus.RestartTaskAction, vcbus.RestartPodAction, vcbus.RestartPartitionAction, vcbus.TerminateJobAction,
	vcbus.CompleteJobAction, vcbus.ResumeJobAction, vcbus.SyncJobAction, vcbus.EnqueueJobAction, "Dance",
}

// everyAction brings a Job into each phase for each action, by Commands and by what the scheduler and the kubelet do, and asks for the action by another Command. Where the phase lasts as long as a
// pod is terminating, one is. Two of three pods run and one has succeeded, which tells what is retained.
func everyAction(t *testing.T, b *volcanoFixture, table map[vcbatch.JobPhase]map[vcbus.Action]transition) {
	d := newDesk(t, b, "actions")
	// by which Command a Job gets there; with pods, or while it waits for its gang to be let in.
	type way struct {
		by   vcbus.Action
		pods bool
	}
	ways := map[vcbatch.JobPhase]way{
		vcbatch.Pending: {}, vcbatch.Running: {pods: true}, vcbatch.Restarting: {vcbus.RestartJobAction, true}, vcbatch.Aborting: {vcbus.AbortJobAction, true}, vcbatch.Aborted: {by: vcbus.AbortJobAction},
		vcbatch.Terminating: {vcbus.TerminateJobAction, true}, vcbatch.Terminated: {by: vcbus.TerminateJobAction}, vcbatch.Completing: {vcbus.CompleteJobAction, true}, vcbatch.Completed: {by: vcbus.CompleteJobAction},
		vcbatch.Failed: {by: vcbus.RestartJobAction}, // the last one
	}
	type question struct {
		way
		phase  vcbatch.JobPhase
		action vcbus.Action
		want   transition
	}
	of := map[string]question{}
	for phase, w := range ways { // order: each on its own
		for _, action := range volcanoActions {
			q := question{w, phase, action, does(table, phase, action)}
			if targeted(action) { // a Command has no target, and nobody is restarted: a row of the ledger
				q.want = does(table, phase, vcbus.SyncJobAction)
			}
			name := strings.ToLower(fmt.Sprintf("%s-%s", phase, action))
			of[name] = q
			d.add(name, 2, func(j *vcbatch.JobSpec) {
				if phase == vcbatch.Failed {
					j.MaxRetry = 1
				}
			})
		}
	}
	d.until("they start", func(name string, j *deskJob) string {
		switch {
		case of[name].pods:
			return d.up(j, 1)
		case j.Status.State.Phase != vcbatch.Pending || j.group == nil:
			return "it is not pending"
		}
		return ""
	})
	d.commands("into the phase", func(name string) vcbus.Action { return of[name].by })
	d.until("they are in the phase", func(name string, j *deskJob) string {
		q := of[name]
		if j.Status.State.Phase != q.phase {
			return "it is not " + string(q.phase)
		}
		if q.by != "" {
			return j.leaving()
		}
		return ""
	})
	d.commands("the action", func(name string) vcbus.Action { return of[name].action })
	d.until("where it leads at once", func(name string, j *deskJob) string {
		q := of[name]
		now := q.want.next
		if now == "=" {
			now = q.phase
		}
		if !q.pods { // nothing keeps it there
			now = outcome(now)
		}
		if j.Status.State.Phase != now {
			return "it is not " + string(now)
		}
		return ""
	})
	d.until("where it leads in the end", func(name string, j *deskJob) string {
		q := of[name]
		if q.pods && (q.by != "" || q.want.op != "SyncJob") {
			if text := j.leaving(); text != "" {
				return text
			}
			if text := d.gone(j); text != "" {
				return text
			}
		}
		now := outcome(q.phase)
		if q.want.next != "=" {
			now = outcome(q.want.next)
		}
		if j.Status.State.Phase != now {
			return "it is not " + string(now)
		}
		return ""
	})
	for name, j := range d.jobs { // order: each on its own
		q := of[name]
		var retries, version int32
		var left []string // of the pods that there were
		if q.pods {
			left = []string{"v-0", "w-0", "w-1"}
		}
		keep := func(op string) {
			left = slices.DeleteFunc(left, func(pod string) bool { return op == "KillJob(None)" || op == "KillJob(Soft)" && pod != "w-1" })
		}
		if q.by != "" {
			way := does(table, vcbatch.Running, q.by)
			version++
			if way.count {
				retries++
			}
			keep(way.op)
		}
		if q.want.next != "=" {
			version++
			if !j.was(q.want.next) {
				t.Errorf("%s: no condition says that it was %s: %+v", name, q.want.next, j.Status.Conditions)
			}
		}
		if q.want.count {
			retries++
		}
		keep(q.want.op)
		if j.Status.RetryCount != retries || j.Status.Version != version {
			t.Errorf("%s: %d retries in version %d, want %d in %d", name, j.Status.RetryCount, j.Status.Version, retries, version)
		}
		if pods := d.same(j); !slices.Equal(pods, left) || len(j.pods) != len(left) {
			t.Errorf("%s: pods %v of %d are those that there were, want %v", name, pods, len(j.pods), left)
		}
	}
}

// same are the pods of a Job that are those that ran at first, and nobody ends.
func (d *desk) same(j *deskJob) (out []string) {
	for name, p := range j.pods { // order: sorted
		if j.first[name] == p.UID && p.DeletionTimestamp == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// volcanoEvents are the events that users may name, with how each comes about in a Job that runs, whose task w has the policy or the Job. They are about w-0, or the whole Job.
func volcanoEvents(d *desk) map[vcbus.Event]func(j *deskJob) {
	pod := func(phase corev1.PodPhase, exit, restarts int32) func(j *deskJob) {
		return func(j *deskJob) { d.pod(j.pods["w-0"], phase, exit, restarts) }
	}
	return map[vcbus.Event]func(j *deskJob){
		vcbus.PodFailedEvent: pod(corev1.PodFailed, 3, 0),
		vcbus.AnyEvent:       pod(corev1.PodFailed, 3, 0),
		vcbus.PodEvictedEvent: func(j *deskJob) {
			d.ask(d.client.Delete(d.t.Context(), j.pods["w-0"].DeepCopy(), client.GracePeriodSeconds(0)))
		},
		vcbus.PodPendingEvent: func(*deskJob) {}, // with a timeout that is over at once: a pod that is not placed is enough
		vcbus.JobUnknownEvent: func(j *deskJob) { d.groupIs(j.group, vcscheduling.PodGroupUnknown) },
		vcbus.TaskCompletedEvent: func(j *deskJob) {
			for _, name := range []string{"w-0", "w-1", "w-2", "w-3"} {
				d.pod(j.pods[name], corev1.PodSucceeded, 0, 0)
			}
		},
		vcbus.TaskFailedEvent: pod(corev1.PodRunning, 0, 3), // as often as a task may that says nothing
		vcbus.JobUpdatedEvent: func(j *deskJob) {
			d.ask(d.client.Patch(d.t.Context(), j.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minAvailable":4}}`))))
		},
	}
}

// everyPolicy has a Job that runs for each event, level and action of a policy, and the event come about.
func everyPolicy(t *testing.T, b *volcanoFixture, table map[vcbatch.JobPhase]map[vcbus.Action]transition) {
	d := newDesk(t, b, "policies")
	type question struct {
		event   vcbus.Event
		action  vcbus.Action
		waits   bool // the event is that pods wait
		heard   bool
		want    transition
		targets []string
	}
	of := map[string]question{}
	events := volcanoEvents(d)
	for event := range events { // order: each on its own
		for _, level := range []string{"job", "task"} {
			for _, action := range volcanoActions[:8] { // those that users may name
				whole := event == vcbus.JobUnknownEvent || event == vcbus.JobUpdatedEvent
				q := question{event: event, action: action, waits: event == vcbus.PodPendingEvent, want: does(table, vcbatch.Running, action)}
				q.heard = q.want.next != "=" && !(whole && (level == "task" || targeted(action)))
				switch action {
				case vcbus.RestartTaskAction:
					q.targets = []string{"w-0", "w-1", "w-2", "w-3"}
				case vcbus.RestartPartitionAction:
					q.targets = []string{"w-0", "w-1"}
				case vcbus.RestartPodAction:
					q.targets = []string{"w-0"}
				}
				name := strings.ToLower(fmt.Sprintf("%s-%s-%s", strings.ReplaceAll(string(event), "*", "any"), level, action))
				of[name] = q
				d.add(name, 4, func(j *vcbatch.JobSpec) {
					p := vcbatch.LifecyclePolicy{Event: event, Action: action}
					if q.waits {
						p.Timeout, j.MaxRetry = ptr.To(vcbatch.Duration("1s")), 1000 // it comes about again and again
					}
					if level == "job" {
						j.Policies = []vcbatch.LifecyclePolicy{p}
					} else {
						j.Tasks[1].Policies = []vcbatch.LifecyclePolicy{p}
					}
				})
			}
		}
	}
	d.until("they run", func(name string, j *deskJob) string {
		if of[name].waits {
			d.letIn(j)
			return ""
		}
		return d.up(j, 4)
	})
	for name, j := range d.jobs { // order: each on its own
		events[of[name].event](j)
	}
	d.commands("after what is not heard", func(name string) vcbus.Action {
		if of[name].heard {
			return ""
		}
		return "Dance"
	})
	d.until("what is heard", func(name string, j *deskJob) string {
		q := of[name]
		switch {
		case q.waits:
			d.letIn(j)
			if q.heard && !j.was(q.want.next) {
				return "it was never " + string(q.want.next)
			}
			return ""
		case !q.heard:
			return ""
		case !j.was(q.want.next):
			return "it was never " + string(q.want.next)
		}
		if text := d.gone(j); text != "" {
			return text
		}
		if now := outcome(q.want.next); j.Status.State.Phase != now {
			return "it is not " + string(now)
		}
		for _, target := range q.targets {
			if p := j.pods[target]; p == nil || p.UID == j.first[target] {
				return "pod " + target + " is the one that it was"
			}
		}
		return ""
	})
	for name, j := range d.jobs { // order: each on its own
		q, is := of[name], &j.Status
		if q.waits {
			if q.heard && q.want.count != (is.RetryCount > 0) {
				t.Errorf("%s: %d retries", name, is.RetryCount)
			}
			continue
		}
		var retries, version int32
		left := []string{"v-0", "w-0", "w-1", "w-2", "w-3"}
		if q.event == vcbus.PodEvictedEvent {
			left = slices.DeleteFunc(left, func(pod string) bool { return pod == "w-0" })
		}
		if q.heard {
			if q.want.count {
				retries = 1
			}
			over := map[vcbus.Event]string{vcbus.PodFailedEvent: "w-0", vcbus.AnyEvent: "w-0", vcbus.TaskCompletedEvent: "w-"}[q.event] // prefix of those that have ended
			left = slices.DeleteFunc(left, func(pod string) bool {
				switch q.want.op {
				case "KillTarget":
					return slices.Contains(q.targets, pod)
				case "KillJob(Soft)":
					return over == "" || !strings.HasPrefix(pod, over)
				}
				return true
			})
			if q.want.op != "KillTarget" {
				version = 1
			}
		} else {
			for _, c := range is.Conditions {
				if c.Status != vcbatch.Pending && c.Status != vcbatch.Running {
					t.Errorf("%s: it was %s", name, c.Status)
				}
			}
		}
		if is.RetryCount != retries || is.Version != version {
			t.Errorf("%s: %d retries in version %d, want %d in %d", name, is.RetryCount, is.Version, retries, version)
		}
		if pods := d.same(j); !slices.Equal(pods, left) {
			t.Errorf("%s: pods %v are those that there were, want %v", name, pods, left)
		}
	}
}

// everyTarget has each targeted restart asked for while another is under way, whose pods are terminating: both parts are restarted, and one retry is counted.
func everyTarget(t *testing.T, b *volcanoFixture) {
	d := newDesk(t, b, "targets")
	type question struct {
		first string   // whose containers are restarted too often at first; then w-2's are
		want  []string // whom that restarts
	}
	of := map[string]question{}
	for action, q := range map[vcbus.Action]question{ // order: each on its own
		vcbus.RestartTaskAction:      {"v-0", []string{"v-0", "w-0", "w-1", "w-2", "w-3"}},
		vcbus.RestartPodAction:       {"v-0", []string{"v-0", "w-2"}},
		vcbus.RestartPartitionAction: {"w-0", []string{"w-0", "w-1", "w-2", "w-3"}},
	} {
		name := strings.ToLower(string(action))
		of[name] = q
		d.add(name, 4, func(j *vcbatch.JobSpec) {
			j.Policies = []vcbatch.LifecyclePolicy{{Event: vcbus.TaskFailedEvent, Action: action}}
		})
	}
	d.until("they run", func(_ string, j *deskJob) string { return d.up(j, 4) })
	for name, j := range d.jobs { // order: each on its own
		d.pod(j.pods[of[name].first], corev1.PodRunning, 0, 3)
	}
	ends := func(what string, one string) {
		d.until(what, func(name string, j *deskJob) string {
			p := j.pods[one]
			if one == "" {
				p = j.pods[of[name].first]
			}
			if j.Status.State.Phase != vcbatch.Restarting || p == nil || p.DeletionTimestamp == nil {
				return "it is not restarting, or the pod goes on"
			}
			return ""
		})
	}
	ends("one part is restarted", "")
	for _, j := range d.jobs { // order: each on its own
		d.pod(j.pods["w-2"], corev1.PodRunning, 0, 3)
	}
	ends("another part is restarted", "w-2")
	d.until("both are restarted", func(name string, j *deskJob) string {
		if text := d.gone(j); text != "" {
			return text
		}
		for _, pod := range of[name].want {
			if p := j.pods[pod]; p == nil || p.UID == j.first[pod] {
				return "pod " + pod + " is the one that it was"
			}
		}
		if j.Status.State.Phase != vcbatch.Pending {
			return "it is not pending"
		}
		return ""
	})
	for name, j := range d.jobs { // order: each on its own
		for pod, uid := range j.first { // order: each on its own
			if p := j.pods[pod]; !slices.Contains(of[name].want, pod) && (p == nil || p.UID != uid) {
				t.Errorf("%s: pod %s is not the one that it was", name, pod)
			}
		}
		if j.Status.RetryCount != 1 {
			t.Errorf("%s: %d retries, want 1", name, j.Status.RetryCount)
		}
	}
}
