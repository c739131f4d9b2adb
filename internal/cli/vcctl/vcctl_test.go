package vcctl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	batch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	bus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	flow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	scheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

var noon = time.Date(2031, 5, 6, 12, 0, 0, 0, time.UTC)

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.NewTime(noon.Add(-3 * time.Hour))}
}

// bench is a cluster for command lines.
type bench struct {
	*testing.T
	client.WithWatch
	// kubeconfig and master are what the last command connected with.
	kubeconfig, master string
	refuse             error
}

func newBench(t *testing.T, objects ...client.Object) *bench {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t}
	b.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Event{}, "involvedObject.name", func(o client.Object) []string { return []string{o.(*corev1.Event).InvolvedObject.Name} }).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, o ...client.ListOption) error {
			if b.refuse != nil {
				return b.refuse
			}
			return c.List(ctx, l, o...)
		}}).Build()
	return b
}

func (b *bench) options() Options {
	return Options{Version: "v1.2.3", Now: func() time.Time { return noon }, Connect: func(kubeconfig, master string) (client.Client, error) {
		b.kubeconfig, b.master = kubeconfig, master
		return b.WithWatch, nil
	}}
}

// run types a command line, and returns what it prints and its error.
func (b *bench) run(line ...string) (string, error) {
	b.Helper()
	c := Named(line[0], b.options())
	if c == nil {
		b.Fatalf("there is no program %s", line[0])
	}
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(line[1:])
	err := c.Execute()
	return out.String(), err
}

// says types a command line that succeeds and prints want.
func (b *bench) says(line, want string) {
	b.Helper()
	out, err := b.run(strings.Fields(line)...)
	if err != nil {
		b.Errorf("%s: %v", line, err)
	} else if out != want {
		b.Errorf("%s prints\n%s\nwant\n%s", line, out, want)
	}
}

// fails types a command line whose error has each of the words.
func (b *bench) fails(line string, words ...string) {
	b.Helper()
	out, err := b.run(strings.Fields(line)...)
	if err == nil {
		b.Errorf("%s: no error; it prints %s", line, out)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			b.Errorf("%s: the error lacks %q: %v", line, w, err)
		}
	}
}

func read1[T any, P interface {
	*T
	client.Object
}](b *bench, namespace, name string) P {
	b.Helper()
	o := P(new(T))
	if err := b.Get(b.Context(), client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
		b.Fatal(err)
	}
	return o
}

func (b *bench) gone(o client.Object) {
	b.Helper()
	if err := b.Get(b.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
		b.Errorf("%s is there yet: %v", o.GetName(), err)
	}
}

// file writes a file for -f.
func (b *bench) file(name, text string) string {
	b.Helper()
	at := filepath.Join(b.TempDir(), name)
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return at
}

func jobs() []client.Object {
	train := &batch.Job{ObjectMeta: named("default", "train"), Spec: batch.JobSpec{
		SchedulerName: "volcano", Queue: "research", MinAvailable: 3, MaxRetry: 5, Plugins: map[string][]string{"svc": nil, "env": nil},
		Tasks: []batch.TaskSpec{{Name: "ps", Replicas: 1}, {Name: "worker", Replicas: 4}},
	}}
	train.Labels = map[string]string{"team": "red", "app": "bert"}
	train.Status = batch.JobStatus{State: batch.JobState{Phase: batch.Running}, Pending: 1, Running: 2, Succeeded: 3, Failed: 4, Unknown: 5, RetryCount: 6, Version: 7}
	infer := &batch.Job{ObjectMeta: named("default", "infer"), Spec: batch.JobSpec{SchedulerName: "other", Queue: "default", Tasks: []batch.TaskSpec{{Replicas: 2}}}}
	infer.Labels = map[string]string{"volcano.sh/job-type": "Service"}
	far := &batch.Job{ObjectMeta: named("far", "train-far"), Spec: batch.JobSpec{SchedulerName: "volcano", Queue: "default"}}
	return []client.Object{train, infer, far}
}

// TestJobList: the columns, and each of the flags.
func TestJobList(t *testing.T) {
	t.Parallel()
	b := newBench(t, jobs()...)
	const titles, infer, train = "Name   Creation    Phase    JobType  Replicas  Min  Pending  Running  Succeeded  Failed  Unknown  RetryCount\n",
		"infer  2031-05-06  -        Service  2         0    0        0        0          0       0        0\n",
		"train  2031-05-06  Running  Batch    5         3    1        2        3          4       5        6\n"
	const narrow = "Name   Creation    Phase  JobType  Replicas  Min  Pending  Running  Succeeded  Failed  Unknown  RetryCount\n" +
		"infer  2031-05-06  -      Service  2         0    0        0        0          0       0        0\n"
	for _, line := range []string{"vcctl job list", "vjobs", "vcctl job list -n default", "vcctl job list --namespace default", "vjobs -N default"} {
		b.says(line, titles+infer+train)
	}
	for _, line := range []string{"vcctl job list -q research", "vcctl job list --queue research", "vjobs -S volcano", "vcctl job list --scheduler volcano", "vcctl job list --selector rai"} {
		b.says(line, titles+train)
	}
	b.says("vcctl job list -S other", narrow)
	b.says("vcctl job list -n nowhere", "No jobs found.\n")
	b.says("vcctl job list --all-namespaces --selector far -n default", "Namespace  Name       Creation    Phase  JobType  Replicas  Min  Pending  Running  Succeeded  Failed  Unknown  RetryCount\n"+
		"far        train-far  2031-05-06  -      Batch    0         0    0        0        0          0       0        0\n")
	out, err := b.run("vcctl", "job", "list", "-o", "yaml")
	if err != nil || !strings.HasPrefix(out, "apiVersion: v1\nitems:\n- apiVersion: batch.volcano.sh/v1alpha1\n  kind: Job\n") || !strings.HasSuffix(out, "kind: List\n") {
		t.Errorf("as YAML: %v\n%s", err, out)
	}
	if out, err = b.run("vcctl", "job", "list", "-o", "json", "-n", "nowhere"); err != nil || out != "{\n  \"apiVersion\": \"v1\",\n  \"items\": [],\n  \"kind\": \"List\"\n}\n" {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
}

// TestJobView: what there is to tell, and the events of this very job.
func TestJobView(t *testing.T) {
	t.Parallel()
	event := func(name string, uid types.UID, kind, message string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: named("default", name), Type: "Normal", Reason: "Because", Message: message, LastTimestamp: metav1.NewTime(noon.Add(-2 * time.Minute)),
			InvolvedObject: corev1.ObjectReference{Kind: kind, Name: "train", UID: uid}, Source: corev1.EventSource{Component: "vc"},
		}
	}
	all := append(jobs(), event("a", "uid-of-train", "Job", "it is ours"), event("b", "another", "Job", "of an earlier one"), event("c", "uid-of-train", "Pod", "of a pod"))
	b := newBench(t, all...)
	want := `Name:              train
Namespace:         default
Labels:            app=bert
                   team=red
Annotations:       <none>
API Version:       batch.volcano.sh/v1alpha1
Kind:              Job
Created:           2031-05-06 (3h ago)
Queue:             research
Scheduler:         volcano
Priority Class:    -
Min Available:     3
Max Retry:         5
Plugins:           env, svc
Tasks:
  Name:            ps
    Replicas:      1
  Name:            worker
    Replicas:      4
Status:
  Phase:           Running
  Pods:            1 pending, 2 running, 3 succeeded, 4 failed, 0 terminating, 5 unknown
  Retries:         6
  Version:         7
Events:
Type    Reason   Age  From  Message
Normal  Because  2m   vc    it is ours
`
	b.says("vcctl job view -N train", want)
	b.says("vcctl job view --name train --namespace default", want)
	if out, err := b.run("vcctl", "job", "view", "-N", "train", "-o", "yaml"); err != nil || !strings.HasPrefix(out, "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n") {
		t.Errorf("as YAML: %v\n%s", err, out)
	}
	b.fails("vcctl job view -N nobody", "no job nobody in namespace default", "vcctl job list -n default")
}

// TestJobCommands: suspend and resume send a Command that belongs to the job, and delete deletes it.
func TestJobCommands(t *testing.T) {
	t.Parallel()
	for line, action := range map[string]string{
		"vcctl job suspend -N train -n default": "AbortJob", "vcctl job resume --name train": "ResumeJob", "vsuspend -n train -N default": "AbortJob", "vresume -n train": "ResumeJob",
	} {
		b := newBench(t, jobs()...)
		said := map[string]string{"AbortJob": "suspend", "ResumeJob": "resume"}[action] + " job train successfully\n"
		b.says(line, said)
		b.sent(action, "default", "batch.volcano.sh/v1alpha1", "Job", "train")
	}
	for _, line := range []string{"vcctl job delete -N train -n default", "vcctl job delete --name train --namespace default", "vcancel -n train -N default"} {
		b := newBench(t, jobs()...)
		b.says(line, "delete job train successfully\n")
		b.gone(&batch.Job{ObjectMeta: named("default", "train")})
	}
	b := newBench(t)
	for _, verb := range []string{"suspend", "resume", "delete", "view"} {
		b.fails("vcctl job "+verb, "which job?", "--name", "vcctl job list")
		b.fails("vcctl job "+verb+" -N nobody", "no job nobody", "vcctl job list -n default")
	}
}

// sent sees to it that there is one Command, and what it says.
func (b *bench) sent(action, namespace, apiVersion, kind, name string) {
	b.Helper()
	var all bus.CommandList
	if err := b.List(b.Context(), &all); err != nil {
		b.Fatal(err)
	}
	if len(all.Items) != 1 {
		b.Fatalf("there are %d Commands", len(all.Items))
	}
	c := &all.Items[0]
	if c.Action != action || c.Namespace != namespace || !strings.HasPrefix(c.Name, name+"-"+strings.ToLower(action)+"-") {
		b.Errorf("the Command %s/%s is to %s", c.Namespace, c.Name, c.Action)
	}
	if len(c.OwnerReferences) != 1 || c.TargetObject == nil {
		b.Fatalf("the Command has owners %v and target %v", c.OwnerReferences, c.TargetObject)
	}
	for _, r := range []metav1.OwnerReference{c.OwnerReferences[0], *c.TargetObject} {
		if r.APIVersion != apiVersion || r.Kind != kind || r.Name != name || r.UID != types.UID("uid-of-"+name) || r.Controller == nil || !*r.Controller || r.BlockOwnerDeletion != nil {
			b.Errorf("the Command is about %+v", r)
		}
	}
}

// TestJobRun: what flags describe, by each flag, and what a file describes.
func TestJobRun(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.says("vcctl job run -N plain", "run job plain successfully\n")
	j := read1[batch.Job](b, "default", "plain")
	pod := j.Spec.Tasks[0].Template.Spec
	if j.Spec.SchedulerName != "volcano" || j.Spec.Queue != "default" || j.Spec.MinAvailable != 1 || len(j.Spec.Tasks) != 1 || j.Spec.Tasks[0].Replicas != 1 ||
		pod.Containers[0].Image != "busybox" || len(pod.Containers[0].Command) != 0 || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("by default: %+v", j.Spec)
	}
	for _, r := range []corev1.ResourceList{pod.Containers[0].Resources.Requests, pod.Containers[0].Resources.Limits} {
		if len(r) != 2 || r.Cpu().MilliValue() != 1000 || r.Memory().Value() != 100<<20 {
			t.Errorf("by default amounts are %v", r)
		}
	}
	for i, line := range []string{
		"vcctl job run -n far -N %s -i nginx -r 4 -m 2 -R cpu=500m -L cpu=2,nvidia.com/gpu=1 -S other -c env",
		"vcctl job run --namespace far --name %s --image nginx --replicas 4 --min 2 --requests cpu=500m --limits cpu=2,nvidia.com/gpu=1 --scheduler other --command env",
		"vsub -N far -n %s -i nginx -r 4 -m 2 -R cpu=500m -L cpu=2,nvidia.com/gpu=1 -S other -c env",
	} {
		name := "j" + string(rune('a'+i))
		b.says(strings.Replace(line, "%s", name, 1), "run job "+name+" successfully\n")
		j := read1[batch.Job](b, "far", name)
		ct := j.Spec.Tasks[0].Template.Spec.Containers[0]
		gpus := ct.Resources.Limits["nvidia.com/gpu"]
		if j.Spec.SchedulerName != "other" || j.Spec.MinAvailable != 2 || j.Spec.Tasks[0].Replicas != 4 || ct.Image != "nginx" || !slices.Equal(ct.Command, []string{"sh", "-c", "env"}) ||
			ct.Resources.Requests.Cpu().MilliValue() != 500 || ct.Resources.Limits.Cpu().MilliValue() != 2000 || gpus.Value() != 1 {
			t.Errorf("%s: %+v", line, j.Spec)
		}
	}
	const job = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {name: filed}\nspec: {minAvailable: 7}\n"
	b.says("vcctl job run -n far -f "+b.file("j.yaml", "# a job\n---\n"+job), "run job filed successfully\n")
	if j := read1[batch.Job](b, "far", "filed"); j.Spec.MinAvailable != 7 {
		t.Errorf("of the file: %+v", j.Spec)
	}
	inFar := strings.Replace(job, "name: filed", "name: own, namespace: far", 1)
	b.says("vcctl job run --filename "+b.file("j.yml", inFar), "run job own successfully\n")
	read1[batch.Job](b, "far", "own")
	at := b.file("j.yaml", strings.Replace(job, "{minAvailable: 7}", "{minAvailable: 7, tusks: 1}", 1))
	if out, err := b.run("vcctl", "job", "run", "-f", at); err != nil || !strings.Contains(out, "warning: ") || !strings.Contains(out, "tusks") {
		t.Errorf("a field that there is not: %v, %s", err, out)
	}

	b.fails("vcctl job run", "--name", "--filename")
	b.fails("vcctl job run -N plain", "already exists", "another name")
	b.fails("vcctl job run -N x -r 0", "--replicas is 0")
	b.fails("vcctl job run -N x -r 2 -m 3", "--min is 3", "--replicas, which is 2")
	b.fails("vcctl job run -N x -m -1", "--min is -1")
	b.fails("vcctl job run -N x -R cpu", `--requests has "cpu"`, "name=quantity")
	b.fails("vcctl job run -N x -L cpu=-1", `--limits has "cpu=-1"`)
	b.fails("vcctl job run -N x -L cpu=1,cpu=1", "names cpu twice")
	b.fails("vcctl job run -f j.txt", ".yaml or .yml")
	b.fails("vcctl job run -f /nowhere/j.yaml", "/nowhere/j.yaml")
	b.fails("vcctl job run -f "+b.file("j.yaml", ""), "no Job in it")
	b.fails("vcctl job run -f "+b.file("j.yaml", job+"---\n"+job), "2 Jobs", "kubectl create -f")
	b.fails("vcctl job run -f "+b.file("j.yaml", "kind: Pod\napiVersion: v1\n"), `document 1 is a "Pod" of "v1"`, "batch.volcano.sh/v1alpha1")
	b.fails("vcctl job run -f "+b.file("j.yaml", "kind: [\n"), "document 1")
	b.fails("vcctl job run -f "+b.file("j.yaml", strings.Replace(job, "name: filed", "labels: {}", 1)), "metadata.name is missing")
	b.fails("vcctl job run -f "+b.file("j.yaml", strings.Replace(job, "minAvailable: 7", "minAvailable: x", 1)), "document 1")
	b.fails("vcctl job run -f "+b.file("j.yaml", strings.Repeat("#", maxFile+1)), "more than")
	b.fails("vcctl job run -n other -f "+b.file("j.yaml", inFar), "namespace far", "--namespace is other")
}

func queues() []client.Object {
	research := &scheduling.Queue{ObjectMeta: named("", "research"), Spec: scheduling.QueueSpec{Weight: 4, Parent: "root"}, Status: scheduling.QueueStatus{State: "Open", Pending: 99}}
	plain := &scheduling.Queue{ObjectMeta: named("", "default"), Spec: scheduling.QueueSpec{Weight: 1}}
	all := []client.Object{research, plain}
	group := func(name, queue string, phase scheduling.PodGroupPhase) {
		all = append(all, &scheduling.PodGroup{ObjectMeta: named("ns-of-"+name, name), Spec: scheduling.PodGroupSpec{Queue: queue}, Status: scheduling.PodGroupStatus{Phase: phase}})
	}
	for n, phase := range []scheduling.PodGroupPhase{"Inqueue", "Pending", "Running", "Unknown", "Completed"} {
		for i := range n + 1 {
			group(strings.ToLower(string(phase))+string(rune('a'+i)), "research", phase)
		}
	}
	group("new", "", "")
	return all
}

// TestQueueTables: gangs are counted by phase, whatever the queue's status says.
func TestQueueTables(t *testing.T) {
	t.Parallel()
	b := newBench(t, queues()...)
	const titles, plain, research = "Name      Weight  State  Parent  Inqueue  Pending  Running  Unknown  Completed\n",
		"default   1       -      -       0        1        0        0        0\n",
		"research  4       Open   root    1        2        3        4        5\n"
	b.says("vcctl queue list", titles+plain+research)
	b.says("vcctl queue get -n research", titles+research)
	b.says("vcctl queue get --name research", titles+research)
	b.says("vqueues", "Name      Weight  State  Inqueue  Pending  Running  Unknown\n"+
		"default   1       -      0        1        0        0\nresearch  4       Open   1        2        3        4\n")
	b.says("vqueues -n research", "Name      Weight  State  Inqueue  Pending  Running  Unknown\nresearch  4       Open   1        2        3        4\n")
	if out, err := b.run("vcctl", "queue", "get", "-n", "research", "-o", "yaml"); err != nil || !strings.Contains(out, "    completed: 5\n") || !strings.Contains(out, "    pending: 2\n") {
		t.Errorf("as YAML: %v\n%s", err, out)
	}
	newBench(t).says("vcctl queue list", "No queues found.\n")
	b.fails("vcctl queue get", "which queue?", "vcctl queue list")
	b.fails("vcctl queue get -n nobody", "there is no queue nobody: vcctl queue list")
	b.fails("vcctl queue list -o wide", "table, json or yaml")
}

// TestQueueCommands: queues are made, opened, closed, changed and deleted.
func TestQueueCommands(t *testing.T) {
	t.Parallel()
	b := newBench(t, queues()...)
	b.says("vcctl queue create", "create queue test successfully\n")
	if q := read1[scheduling.Queue](b, "", "test"); q.Spec.Weight != 1 {
		t.Errorf("by default: %+v", q.Spec)
	}
	b.says("vcctl queue create -n q -w 7 -S Open", "create queue q successfully\n")
	b.says("vcctl queue create --name r --weight 7 --state Open", "create queue r successfully\n")
	if q, r := read1[scheduling.Queue](b, "", "q"), read1[scheduling.Queue](b, "", "r"); q.Spec.Weight != 7 || r.Spec.Weight != 7 {
		t.Errorf("by flags: %+v, %+v", q.Spec, r.Spec)
	}
	b.says("vcctl queue operate -n research -a update -w 9", "update queue research successfully\n")
	if q := read1[scheduling.Queue](b, "", "research"); q.Spec.Weight != 9 || q.Spec.Parent != "root" {
		t.Errorf("changed: %+v", q.Spec)
	}
	b.says("vcctl queue delete -n q", "delete queue q successfully\n")
	b.says("vcctl queue delete --name r", "delete queue r successfully\n")
	b.gone(&scheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q"}})
	for line, action := range map[string]string{"vcctl queue operate -n research -a open": "OpenQueue", "vcctl queue operate --name research --action close": "CloseQueue"} {
		b := newBench(t, queues()...)
		b.says(line, strings.ToLower(strings.TrimSuffix(action, "Queue"))+" queue research successfully\n")
		b.sent(action, "default", "scheduling.volcano.sh/v1beta1", "Queue", "research")
	}

	b.fails("vcctl queue create", "already exists")
	b.fails("vcctl queue create -n x -w 0", "--weight is 0", "65535")
	b.fails("vcctl queue create -n x -S Shut", `--state is "Shut"`, "Open, Closed")
	b.fails("vcctl queue operate -n research", `--action is ""`, "open, close, update")
	b.fails("vcctl queue operate -n research -a update", "--weight N")
	b.fails("vcctl queue operate -n research -a update -w 70000", "--weight is 70000")
	b.fails("vcctl queue operate -n research -a close --weight 2", "--weight is for --action update")
	b.fails("vcctl queue operate -a open", "which queue?")
	b.fails("vcctl queue operate -n nobody -a open", "there is no queue nobody")
	b.fails("vcctl queue delete", "which queue?")
	b.fails("vcctl queue delete -n nobody", "there is no queue nobody")
}

// TestQueueCreateClosed: a queue that is to be closed is closed by a Command, for no new object has a status.
func TestQueueCreateClosed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.says("vcctl queue create -n q -S Closed", "create queue q successfully\n")
	var all bus.CommandList
	if err := b.List(b.Context(), &all); err != nil || len(all.Items) != 1 || all.Items[0].Action != "CloseQueue" || all.Items[0].TargetObject.Name != "q" {
		t.Errorf("%v, %+v", err, all.Items)
	}
}

// TestFlows: flows and templates are made of files, shown and deleted.
func TestFlows(t *testing.T) {
	t.Parallel()
	f := &flow.JobFlow{ObjectMeta: named("default", "old"), Status: flow.JobFlowStatus{State: flow.JobFlowState{Phase: flow.Running}}}
	far := &flow.JobFlow{ObjectMeta: named("far", "away")}
	b := newBench(t, f, far, &flow.JobTemplate{ObjectMeta: named("default", "old")})
	b.says("vcctl jobflow list", "Name  Namespace  Phase    Age\nold   default    Running  3h\n")
	b.says("vcctl jobflow get -N old", "Name  Namespace  Phase    Age\nold   default    Running  3h\n")
	b.says("vcctl jobflow list --namespace far", "Name  Namespace  Phase  Age\naway  far        -      3h\n")
	b.says("vcctl jobflow list --all-namespaces", "Name  Namespace  Phase    Age\nold   default    Running  3h\naway  far        -        3h\n")
	b.says("vcctl jobflow list -n nowhere", "No jobflows found.\n")
	b.says("vcctl jobtemplate list", "Name  Namespace\nold   default\n")
	b.says("vcctl jobtemplate get --name old --namespace default", "Name  Namespace\nold   default\n")
	for _, kind := range []string{"JobFlow", "JobTemplate"} {
		use := strings.ToLower(kind)
		text := "apiVersion: flow.volcano.sh/v1alpha1\nkind: " + kind + "\nmetadata: {name: a}\n---\napiVersion: flow.volcano.sh/v1alpha1\nkind: " + kind + "\nmetadata: {name: b, namespace: far}\n"
		at := b.file("f.yaml", text)
		b.says("vcctl "+use+" create -f "+at, "create "+use+" default/a successfully\ncreate "+use+" far/b successfully\n")
		b.fails("vcctl "+use+" create --file "+at, use+" default/a", "already exists")
		for _, line := range []string{" describe -N a", " describe --name a --namespace default --format yaml", " describe -N a -n default -o yaml"} {
			out, err := b.run(strings.Fields("vcctl " + use + line)...)
			if err != nil || !strings.HasPrefix(out, "apiVersion: flow.volcano.sh/v1alpha1\nkind: "+kind+"\nmetadata:\n  name: a\n") {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		}
		if out, err := b.run("vcctl", use, "describe", "-N", "a", "-o", "json"); err != nil || !strings.HasPrefix(out, "{\n") || !strings.Contains(out, `"kind": "`+kind+`"`) {
			t.Errorf("as JSON: %v\n%s", err, out)
		}
		b.says("vcctl "+use+" delete --file "+at, "delete "+use+" default/a successfully\ndelete "+use+" far/b successfully\n")
		b.says("vcctl "+use+" delete -N old -n default", "delete "+use+" default/old successfully\n")
		b.fails("vcctl "+use+" delete --name old --namespace default", "there is no "+use+" old in namespace default", "vcctl "+use+" list -n default")
		b.fails("vcctl "+use+" delete -f "+at, "there is no "+use+" a in namespace default")
		b.fails("vcctl "+use+" delete", "which "+use+"?")
		b.fails("vcctl "+use+" delete -N a -f "+at, "leave one of them out")
		b.fails("vcctl "+use+" create", "--file FILE")
		b.fails("vcctl "+use+" create -f "+b.file("f.yaml", strings.Replace(text, "kind: "+kind, "kind: Job", 1)), `a "Job"`, "must be a "+kind)
		b.fails("vcctl "+use+" get", "which "+use+"?")
		b.fails("vcctl "+use+" describe -N gone -o yaml", "there is no "+use+" gone")
		b.fails("vcctl "+use+" describe -N gone -o xml", `--format is "xml"`)
	}
}

// TestWideTable: names lose their ends where a terminal is too narrow, and nowhere else.
func TestWideTable(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", 150)
	rows := [][]string{{name, "1"}}
	if got := table([]string{"Name", "Min"}, rows, false); got != "Name"+strings.Repeat(" ", 148)+"Min\n"+name+"  1\n" {
		t.Errorf("in a file:\n%s", got)
	}
	for line := range strings.Lines(table([]string{"Name", "Min"}, rows, true)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > 100 {
			t.Errorf("on a terminal a line has %d characters: %s", n, line)
		}
	}
	if terminal(&bytes.Buffer{}) {
		t.Error("memory is no terminal")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if terminal(f) {
		t.Error("a file is no terminal")
	}
}

// TestPodList: the columns, which pods, and the word for what a pod is about.
func TestPodList(t *testing.T) {
	t.Parallel()
	pod := func(namespace, name, job, queue string, s corev1.PodStatus) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: named(namespace, name), Spec: corev1.PodSpec{Containers: make([]corev1.Container, 2)}, Status: s}
		p.Labels = map[string]string{"volcano.sh/job-name": job, "volcano.sh/queue-name": queue}
		return p
	}
	state := func(waiting, terminated string) corev1.ContainerState {
		s := corev1.ContainerState{}
		if waiting != "" {
			s.Waiting = &corev1.ContainerStateWaiting{Reason: waiting}
		}
		if terminated != "" {
			s.Terminated = &corev1.ContainerStateTerminated{Reason: terminated}
		}
		return s
	}
	bare := pod("default", "bare", "", "", corev1.PodStatus{Phase: corev1.PodPending})
	bare.Annotations = map[string]string{"scheduling.volcano.sh/queue-name": "red"}
	b := newBench(t,
		pod("default", "a-0", "a", "red", corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Ready: true, RestartCount: 2}, {RestartCount: 1, State: state("", "Completed")}}}),
		pod("default", "b-0", "b", "blue", corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{State: state("ImagePullBackOff", "")}}}),
		pod("default", "b-1", "b", "blue", corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{{State: state("", "Error")}}}),
		pod("default", "b-2", "b", "blue", corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{{State: state("", "Completed")}}}),
		pod("far", "c-0", "c", "green", corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}), bare)
	const titles, a, blues = "Name  Ready  Status            Restart  Age\n", "a-0   1/2    Running           3        3h\n",
		"b-0   0/2    ImagePullBackOff  0        3h\nb-1   0/2    Init:Error        0        3h\nb-2   0/2    Completed         0        3h\n"
	b.says("vcctl pod list", titles+a+blues+"bare  0/2    Pending           0        3h\n")
	for _, line := range []string{"vcctl pod list -j b", "vcctl pod list --job b -n default", "vcctl pod list -q blue", "vcctl pod list --queue blue --namespace default"} {
		b.says(line, titles+blues)
	}
	b.says("vcctl pod list -q red", "Name  Ready  Status   Restart  Age\na-0   1/2    Running  3        3h\nbare  0/2    Pending  0        3h\n")
	b.says("vcctl pod list --all-namespaces -j c", "Namespace  Name  Ready  Status   Restart  Age\nfar        c-0   0/2    Evicted  0        3h\n")
	b.says("vcctl pod list -n nowhere", "No pods found.\n")
	if out, err := b.run("vcctl", "pod", "list", "-o", "json", "-j", "a"); err != nil || !strings.Contains(out, `"kind": "Pod"`) {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	leaving := metav1.NewTime(noon)
	if got := podStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &leaving}}); got != "Terminating" {
		t.Errorf("a pod that is being ended is %s", got)
	}
}

// TestTrouble: an error of the API server comes with what to do about it.
func TestTrouble(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	resource := schema.GroupResource{Group: "batch.volcano.sh", Resource: "jobs"}
	for _, c := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(resource, "", errors.New("no")), "for a role that may"},
		{apierrors.NewUnauthorized("who?"), "log in again"},
		{apierrors.NewGenericServerResponse(404, "get", resource, "", "", 0, true), "install Volcano's CustomResourceDefinitions"},
	} {
		b.refuse = c.err
		b.fails("vcctl job list", c.want)
	}
	b.fails("vcctl job list --nmespace x", "unknown flag", "vcctl job list --help")
	b.fails("vcctl job", "command")
	b.fails("vcctl job lst", "lst")
	b.fails("vcctl job list x", "unknown command")
	bad := Named("vcctl", Options{})
	bad.SetArgs([]string{"job", "list", "--kubeconfig", b.file("k", "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], contexts: [{name: c, context: {cluster: c}}]}")})
	if err := bad.Execute(); err == nil || !strings.Contains(err.Error(), "nothing answers there") {
		t.Errorf("without an API server: %v", err)
	}
}

// TestConnection: every command takes a kubeconfig and a master, and what Volcano's logging library has.
func TestConnection(t *testing.T) {
	t.Parallel()
	b := newBench(t, jobs()...)
	b.says("vcctl version", "vcctl of Muster v1.2.3\n")
	b.says("vcctl job list -n nowhere -k file -s http://host", "No jobs found.\n")
	if b.kubeconfig != "file" || b.master != "http://host" {
		t.Errorf("connects with %q and %q", b.kubeconfig, b.master)
	}
	b.says("vcctl -v 4 --vmodule a=1 --log-flush-frequency 1s queue list --kubeconfig k --master m", "No queues found.\n")
	if b.kubeconfig != "k" || b.master != "m" {
		t.Errorf("connects with %q and %q", b.kubeconfig, b.master)
	}
}

// TestNames: each program of one purpose is there, and no other.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range append(Names(), "vcctl") {
		if c := Named(name, Options{}); c == nil || c.Name() != name {
			t.Errorf("%s is %v", name, c)
		} else if p, n := c.Flags().Lookup("namespace"), c.Flags().Lookup("name"); name != "vcctl" && (n != nil && n.Shorthand != "n" || p != nil && p.Shorthand != "N") {
			t.Errorf("%s: -n and -N are not swapped", name)
		}
	}
	if c := Named("muster", Options{}); c != nil {
		t.Errorf("muster is %s", c.Name())
	}
}

// leaves are the commands below c, and c.
func leaves(c *cobra.Command) (all []*cobra.Command) {
	all = append(all, c)
	for _, below := range c.Commands() {
		all = append(all, leaves(below)...)
	}
	return all
}
