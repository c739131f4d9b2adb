package vcjobflow

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/keys"
	"github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
)

// jobFlow is a flow called f of parts, each as NAME or NAME<TARGET,TARGET.
func jobFlow(parts ...string) *flow.JobFlow {
	f := &flow.JobFlow{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "f", UID: "uid-f"}}
	for _, text := range parts {
		name, targets, waits := strings.Cut(text, "<")
		p := flow.Flow{Name: name}
		if waits {
			p.DependsOn = &flow.DependsOn{Targets: strings.Split(targets, ",")}
		}
		f.Spec.Flows = append(f.Spec.Flows, p)
	}
	return f
}

func template(name string) *flow.JobTemplate {
	return &flow.JobTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: batch.JobSpec{Queue: "q", Tasks: []batch.TaskSpec{{Name: "t", Replicas: 2}}}}
}

// job is the Job of a part, in a phase.
func job(t *testing.T, f *flow.JobFlow, part string, phase batch.JobPhase) *batch.Job {
	t.Helper()
	j, err := jobOf(f, &flow.Flow{Name: part}, template(part))
	if err != nil {
		t.Fatal(err)
	}
	j.UID = types.UID("uid-" + j.Name)
	j.Status.State.Phase = phase
	return j
}

// bookOf knows a flow, the templates a, b and c, and Jobs as PART=PHASE.
func bookOf(t *testing.T, f *flow.JobFlow, jobs string) (*book, key) {
	t.Helper()
	b := newBook(volcano.ValidateJobFlow)
	k := b.flowSeen(f, false)[0]
	for _, name := range []string{"a", "b", "c"} {
		b.templateSeen(template(name), false)
	}
	for _, text := range strings.Fields(jobs) {
		part, phase, _ := strings.Cut(text, "=")
		b.jobSeen(job(t, f, part, batch.JobPhase(phase)), false)
	}
	return b, k
}

func names(jobs []*batch.Job) string {
	out := ""
	for _, j := range jobs {
		out += " " + j.Name
	}
	return strings.TrimSpace(out)
}

// TestTurns: which Jobs are made, and in which phase the flow is, for what its Jobs are. Typed from Volcano's description.
func TestTurns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flow, was, jobs, make, phase string }{
		{"a b", "", "", "f-a f-b", "Pending"},
		{"a b<a", "", "", "f-a", "Pending"},
		{"a b<a", "Pending", "a=", "", "Pending"},
		{"a b<a", "Pending", "a=Pending", "", "Pending"},
		{"a b<a", "Pending", "a=Running", "", "Running"},
		{"a b<a", "Running", "a=Completing", "", "Running"},
		{"a b<a", "Running", "a=Restarting", "", "Running"},
		{"a b<a", "Running", "a=Aborted", "", "Running"},
		{"a b<a", "Running", "a=Completed", "f-b", "Running"},
		{"a b<a", "Running", "a=Failed", "", "Failed"},
		{"a b<a", "Pending", "a=Terminated", "", "Failed"},
		{"a b<a", "Failed", "a=Completed", "", "Failed"},
		{"a b<a", "Terminating", "a=Completed", "", ""},
		{"a b c<a,b", "Running", "a=Completed b=Running", "", "Running"},
		{"a b c<a,b", "Running", "a=Completed b=Completed", "f-c", "Running"},
		{"a b c<a,b", "Running", "a=Completed", "f-b", "Running"},
		{"a b<a", "Running", "a=Completed b=Completed", "", "Succeed"},
		{"a b", "Running", "a=Completed b=Failed", "", "Failed"},
		{"", "", "", "", "Pending"},
		{"a a<b b", "", "", "f-b", "Pending"}, // the later of one name counts
	} {
		f := jobFlow(strings.Fields(c.flow)...)
		f.Status.State.Phase = flow.JobFlowPhase(c.was)
		b, k := bookOf(t, f, c.jobs)
		p, again := b.decide(k, time.Time{})
		phase := ""
		if p.status != nil {
			phase = string(p.status.State.Phase)
		}
		if got := names(p.create); got != c.make || phase != c.phase || p.wrong != nil || !again.IsZero() {
			t.Errorf("%s, %s, with %q: makes %q, %s, %v; want %q, %s", c.flow, c.was, c.jobs, got, phase, p.wrong, c.make, c.phase)
		}
	}
}

// TestStatusLists: which list of the status a Job is in, by its phase.
func TestStatusLists(t *testing.T) {
	t.Parallel()
	f := jobFlow("a")
	for phase, want := range map[batch.JobPhase]string{
		"": "pending", batch.Pending: "pending", batch.Running: "running", batch.Completed: "completed", batch.Failed: "failed", batch.Terminated: "terminated",
		batch.Aborted: "unknown", batch.Aborting: "unknown", batch.Restarting: "unknown", batch.Completing: "", batch.Terminating: "",
	} {
		b, k := bookOf(t, f, "a="+string(phase))
		p, _ := b.decide(k, time.Time{})
		s, got := p.status, ""
		for list, of := range map[string][]string{
			"pending": s.PendingJobs, "running": s.RunningJobs, "completed": s.CompletedJobs, "failed": s.FailedJobs, "terminated": s.TerminatedJobs, "unknown": s.UnKnowJobs,
		} { // order: one of them
			if len(of) > 0 {
				got += list
			}
		}
		if got != want || s.Conditions["f-a"].Phase != phase || len(s.JobStatusList) != 1 || s.JobStatusList[0].State != phase {
			t.Errorf("%q: in list %q, want %q: %+v", phase, got, want, s)
		}
	}
}

// TestCompletedStays: a Job that was completed stays so for its flow when it is gone, whether that was seen or is said by the status.
func TestCompletedStays(t *testing.T) {
	t.Parallel()
	f := jobFlow("a", "b<a")
	b, k := bookOf(t, f, "a=Completed")
	b.jobSeen(job(t, f, "a", batch.Completed), true)
	p, _ := b.decide(k, time.Time{})
	if names(p.create) != "f-b" || len(p.status.CompletedJobs) != 1 {
		t.Errorf("makes %s: %+v", names(p.create), p.status)
	}
	f = f.DeepCopy()
	f.Status = *p.status
	b, k = bookOf(t, f, "")
	p, _ = b.decide(k, time.Time{})
	if names(p.create) != "f-b" || p.status != nil {
		t.Errorf("makes %s: %+v", names(p.create), p.status)
	}
	b, k = bookOf(t, f, "b=Running")
	b.jobSeen(job(t, f, "b", batch.Running), true)
	if p, _ = b.decide(k, time.Time{}); names(p.create) != "f-b" {
		t.Errorf("of one that ran and is gone: makes %s", names(p.create))
	}
	b.flowSeen(f, true)
	if len(b.jobs)+len(b.of)+len(b.flows) > 0 {
		t.Errorf("left of a flow that is gone: %+v", b)
	}
}

// TestHistories: the phases of a Job are told one after the other, the latest of them.
func TestHistories(t *testing.T) {
	t.Parallel()
	f := jobFlow("a")
	at := func(second int64) metav1.Time { return metav1.Unix(second, 0) }
	j := job(t, f, "a", batch.Pending)
	j.CreationTimestamp = at(1)
	for i, phase := range []batch.JobPhase{batch.Pending, batch.Running, batch.Running, batch.Completed} {
		j.Status.State = batch.JobState{Phase: phase, LastTransitionTime: at(int64(10 * i))}
		j.Status.RetryCount = 2
		f.Status = *statusOf(f, partsOf(f), map[string]*batch.Job{"f-a": j})
	}
	want := []flow.JobStatus{{Name: "f-a", State: batch.Completed, StartTimestamp: at(1), EndTimestamp: at(30), RestartCount: 2, RunningHistories: []flow.JobRunningHistory{
		{State: batch.Pending, StartTimestamp: at(1), EndTimestamp: at(10)}, {State: batch.Running, StartTimestamp: at(10), EndTimestamp: at(30)}, {State: batch.Completed, StartTimestamp: at(30)},
	}}}
	if d := cmp.Diff(want, f.Status.JobStatusList); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for i := range 50 {
		j.Status.State = batch.JobState{Phase: []batch.JobPhase{batch.Restarting, batch.Running}[i%2], LastTransitionTime: at(int64(100 + i))}
		f.Status = *statusOf(f, partsOf(f), map[string]*batch.Job{"f-a": j})
	}
	if n := len(f.Status.JobStatusList[0].RunningHistories); n != histories {
		t.Errorf("%d phases are told", n)
	}
}

// TestToldWhatHolds: a flow that waits for what will not come says so: a cycle, a target that is none, a template that is missing, a task that is none, a patch that does not fit.
func TestToldWhatHolds(t *testing.T) {
	t.Parallel()
	probed := jobFlow("a", "b<a")
	probed.Spec.Flows[1].DependsOn.Probe = &flow.Probe{TaskStatusList: []flow.TaskStatus{{TaskName: "none", Phase: "Running"}}}
	for want, f := range map[string]*flow.JobFlow{
		"InvalidJobFlow: spec.flows: Invalid value: \"a -> b -> a\": Jobs wait for each other by dependsOn": jobFlow("a<b", "b<a", "c"),
		"InvalidJobFlow: spec.flows[0].dependsOn.targets[0]: Not found: \"z\"":                              jobFlow("a<z"),
		"JobTemplateNotFound: there is no JobTemplate gone, of which a Job is to be made":                   jobFlow("b", "gone"),
		"ProbeTaskNotFound: b waits for task \"none\", which none of the Jobs has that it depends on":       probed,
	} {
		b, k := bookOf(t, f, "a=Running")
		if p, _ := b.decide(k, time.Time{}); p.wrong == nil || p.wrong.Reason+": "+p.wrong.Message != want || !p.wrong.Warning {
			t.Errorf("%+v, want %s", p.wrong, want)
		} else if strings.HasPrefix(want, "Invalid") && len(p.create) > 0 {
			t.Errorf("%s: makes %s", want, names(p.create))
		}
	}
	b, k := bookOf(t, jobFlow("gone"), "")
	if due := b.templateSeen(template("gone"), false); len(due) != 1 || due[0] != k {
		t.Errorf("a template comes: %v are due", due)
	}
	if due := b.templateSeen(template("another"), false); len(due) != 0 {
		t.Errorf("another template comes: %v are due", due)
	}
}

// TestProbes: with a probe a part need not wait until its targets are completed: the phases that it names are counted, and pods are asked.
func TestProbes(t *testing.T) {
	t.Parallel()
	status := flow.Probe{TaskStatusList: []flow.TaskStatus{{TaskName: "t", Phase: "Running"}}}
	network := flow.Probe{TCPSocketList: []flow.TCPSocket{{TaskName: "t", Port: 80}}}
	both := flow.Probe{TaskStatusList: status.TaskStatusList, HTTPGetList: []flow.HTTPGet{{TaskName: "t", Port: 80}}}
	for name, c := range map[string]struct {
		probe   flow.Probe
		phase   batch.JobPhase
		running int32
		answers bool
		want    string
	}{
		"no pod runs":                     {status, batch.Running, 0, false, ""},
		"one of two":                      {status, batch.Running, 1, false, ""},
		"both":                            {status, batch.Running, 2, false, "makes f-b"},
		"the target is completed":         {status, batch.Completed, 0, false, "makes f-b"},
		"they are asked":                  {network, batch.Pending, 0, false, "asks b"},
		"they answered":                   {network, batch.Running, 0, true, "makes f-b"},
		"nobody is asked before it runs":  {both, batch.Running, 1, false, ""},
		"then they are asked":             {both, batch.Running, 2, false, "asks b"},
		"nobody is asked of what is done": {both, batch.Completed, 0, false, "makes f-b"},
		"an empty probe is none":          {flow.Probe{}, batch.Running, 2, false, ""},
		"nothing after a failure":         {status, batch.Failed, 2, false, ""},
	} {
		f := jobFlow("a", "b<a")
		f.Spec.Flows[1].DependsOn.Probe = &c.probe
		b, k := bookOf(t, f, "")
		j := job(t, f, "a", c.phase)
		j.Status.TaskStatusCount = map[string]batch.TaskState{"t": {Phase: map[corev1.PodPhase]int32{corev1.PodRunning: c.running}}}
		b.jobSeen(j, false)
		if c.answers {
			b.answered[f.UID] = map[string]bool{"b": true}
		}
		p, again := b.decide(k, time.Unix(0, 0))
		got := ""
		if len(p.create) > 0 {
			got = "makes " + names(p.create)
		}
		for _, a := range p.ask {
			got += fmt.Sprintf("asks %s", a.part)
		}
		if got != c.want || again.IsZero() != (len(p.ask) == 0) {
			t.Errorf("%s: %q, again %v, want %q", name, got, again, c.want)
		}
	}
}

// TestPatched: a patch changes what it gives and nothing else.
func TestPatched(t *testing.T) {
	t.Parallel()
	spec := &batch.JobSpec{
		Queue: "q", MaxRetry: 7, MinAvailable: 2, Plugins: map[string][]string{"env": {}},
		Tasks: []batch.TaskSpec{{Name: "t", Replicas: 2, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"x": "y"}},
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}, Containers: []corev1.Container{
				{Name: "main", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}}, {Name: "side", Image: "s"},
			}},
		}}, {Name: "u", Replicas: 1}},
	}
	before := spec.DeepCopy()
	patch := &flow.Patch{Spec: batch.JobSpec{
		Queue: keys.DefaultQueue, MaxRetry: 3, PriorityClassName: "high", Plugins: map[string][]string{"svc": {}},
		Tasks: []batch.TaskSpec{
			{Name: "t", Replicas: 5, MinAvailable: ptr.To[int32](4), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "B", Value: "3"}}}}}}},
			{Name: "w", Replicas: 1, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}},
		},
	}}
	want := spec.DeepCopy()
	want.PriorityClassName, want.Plugins = "high", map[string][]string{"env": {}, "svc": {}}
	want.Tasks[0].Replicas, want.Tasks[0].MinAvailable, want.Tasks[0].Template.Spec.Containers[0].Env[1].Value = 5, ptr.To[int32](4), "3"
	want.Tasks = append(want.Tasks, patch.Spec.Tasks[1])
	got, err := patched(spec, patch)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff(before, spec); d != "" {
		t.Errorf("the template itself is changed:\n%s", d)
	}
	if got, err := patched(spec, nil); err != nil || cmp.Diff(spec, got) != "" {
		t.Errorf("without a patch: %v", err)
	}
}

// TestWhatAJobSays: a Job names its flow and its template, by labels only where a label may be so long.
func TestWhatAJobSays(t *testing.T) {
	t.Parallel()
	f := jobFlow("a")
	f.Name = strings.Repeat("x", 60)
	j := job(t, f, "a", "")
	if j.Labels[keys.CreatedByJobTemplate] != "default.a" || j.Annotations[keys.CreatedByJobTemplate] != "default.a" || j.Annotations[keys.CreatedByJobFlow] != "default."+f.Name ||
		len(j.Labels) != 1 || !metav1.IsControlledBy(j, f) || j.Spec.Queue != "q" {
		t.Errorf("%+v", j)
	}
}
