//go:build lab

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
)

// desk is a namespace with many Jobs of Volcano's whose scheduler and kubelet the test is: it lets gangs in, and pods are on a node of which nobody else is the kubelet. What is there is
// what the controllers, the API server and the test have written, so that nothing depends on how long anything takes: a pod that is deleted is terminating until the test ends it.
type desk struct {
	*volcanoFixture
	t    *testing.T
	ns   string
	jobs map[string]*deskJob
	did  map[string]bool // what was written, by whom it is about: the watches tell of it later
}

// deskJob is a Job as the watches have it.
type deskJob struct {
	*vcbatch.Job
	group *vcscheduling.PodGroup
	pods  map[string]*corev1.Pod // by what is theirs of the name, such as w-0
	first map[string]types.UID   // who they were when all of them were there
}

// deskNode is the node. It bears no label of the lab's, so that the lab does not play its kubelet.
const deskNode = "desk"

// newDesk opens a desk in a namespace.
func newDesk(t *testing.T, b *volcanoFixture, ns string) *desk {
	t.Helper()
	d := &desk{volcanoFixture: b, t: t, ns: ns, jobs: map[string]*deskJob{}, did: map[string]bool{}}
	b.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	if err := b.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: deskNode}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return d
}

// deskJobSpec is the spec of a Job of one pod v-0, and of so many w-0, w-1 … in partitions of two, all of which start together.
func deskJobSpec(w int32) vcbatch.JobSpec {
	template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "registry.example/train"}},
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // nobody's heartbeat keeps the node ready
	}}
	return vcbatch.JobSpec{
		SchedulerName: vckeys.SchedulerName, Queue: vckeys.DefaultQueue, MinAvailable: 1 + w, MaxRetry: 3,
		Tasks: []vcbatch.TaskSpec{
			{Name: "v", Replicas: 1, MinAvailable: ptr.To[int32](1), Template: template},
			{Name: "w", Replicas: w, MinAvailable: &w, Template: template, PartitionPolicy: partitions(max(1, w/2), min(w, 2), 0)},
		},
	}
}

// add makes such a Job. edit may be nil.
func (d *desk) add(name string, w int32, edit func(*vcbatch.JobSpec)) {
	d.t.Helper()
	j := &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, Name: name}, Spec: deskJobSpec(w)}
	if edit != nil {
		edit(&j.Spec)
	}
	d.create(d.t, j)
	d.jobs[name] = &deskJob{Job: j}
}

// look reads what the watches have.
func (d *desk) look() {
	for _, j := range d.jobs { // order: each on its own
		j.group, j.pods = nil, map[string]*corev1.Pod{}
	}
	for _, o := range list(d.fixture, &vcbatch.JobList{}, client.InNamespace(d.ns)).Items {
		if j := d.jobs[o.Name]; j != nil {
			j.Job = &o
		}
	}
	for _, o := range list(d.fixture, &vcscheduling.PodGroupList{}, client.InNamespace(d.ns)).Items {
		if c := metav1.GetControllerOfNoCopy(&o); c != nil && d.jobs[c.Name] != nil && o.DeletionTimestamp == nil {
			d.jobs[c.Name].group = &o
		}
	}
	for _, p := range d.pods(d.ns) {
		if c := metav1.GetControllerOfNoCopy(&p); c != nil && d.jobs[c.Name] != nil {
			d.jobs[c.Name].pods[strings.TrimPrefix(p.Name, c.Name+"-")] = &p
		}
	}
}

// until waits until nothing is lacking of any Job.
func (d *desk) until(what string, lacking func(name string, j *deskJob) string) {
	d.t.Helper()
	d.must(d.t, guard, func() string {
		d.look()
		n, one := 0, ""
		for name, j := range d.jobs { // order: each on its own
			if text := lacking(name, j); text != "" {
				n++
				one = fmt.Sprintf("%s: %s; it is %s with %d retries, pods %s", name, text, j.Status.State.Phase, j.Status.RetryCount, j.says())
			}
		}
		if n > 0 {
			return fmt.Sprintf("%s: %d of %d Jobs are not there, one of them %s", what, n, len(d.jobs), one)
		}
		return ""
	})
}

// says lists a Job's pods.
func (j *deskJob) says() (out string) {
	for name, p := range j.pods { // order: for people
		out += fmt.Sprintf(" %s:%s/%v", name, p.Status.Phase, p.DeletionTimestamp != nil)
	}
	return out
}

// once says yes the first time that it is asked about something.
func (d *desk) once(what string, uid types.UID) bool {
	key := what + " " + string(uid)
	was := d.did[key]
	d.did[key] = true
	return !was
}

// letIn lets a Job's gang in, as the scheduler does.
func (d *desk) letIn(j *deskJob) {
	d.t.Helper()
	if g := j.group; g != nil && (g.Status.Phase == "" || g.Status.Phase == vcscheduling.PodGroupPending) && d.once("admit", g.UID) {
		d.groupIs(g, vcscheduling.PodGroupInqueue)
	}
}

// groupIs gives a PodGroup a phase. The kind has no status of its own.
func (d *desk) groupIs(g *vcscheduling.PodGroup, phase vcscheduling.PodGroupPhase) {
	d.t.Helper()
	d.ask(d.client.Patch(d.t.Context(), g.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase))))
}

// ask takes the answer to a write: that somebody has deleted the object is none of the test's business.
func (d *desk) ask(err error) {
	d.t.Helper()
	if client.IgnoreNotFound(err) != nil {
		d.t.Fatal(err)
	}
}

// up lets the gang in, and has its pods run, those of w with an index from ended on succeed. It says what is lacking.
func (d *desk) up(j *deskJob, ended int) string {
	d.t.Helper()
	d.letIn(j)
	want := int(j.Spec.MinAvailable)
	for name, p := range j.pods { // order: each on its own
		switch {
		case p.Spec.NodeName == "" && d.once("bind", p.UID):
			err := d.client.SubResource("binding").Create(d.t.Context(), p.DeepCopy(), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: deskNode}})
			d.ask(err)
		case p.Spec.NodeName != "" && p.Status.Phase == corev1.PodPending && d.once("run", p.UID):
			phase := corev1.PodRunning
			if strings.HasPrefix(name, "w-") && name >= fmt.Sprintf("w-%d", ended) {
				phase = corev1.PodSucceeded
			}
			d.pod(p, phase, 0, 0)
		}
	}
	if is := &j.Status; is.State.Phase != vcbatch.Running || int(is.Running+is.Succeeded) != want || len(j.pods) != want {
		return fmt.Sprintf("%d run and %d have succeeded, of %d", is.Running, is.Succeeded, want)
	}
	j.first = map[string]types.UID{}
	for name, p := range j.pods { // order: a map
		j.first[name] = p.UID
	}
	return ""
}

// pod gives a pod on the node a phase, as its kubelet.
func (d *desk) pod(p *corev1.Pod, phase corev1.PodPhase, exit, restarts int32) {
	d.t.Helper()
	is := corev1.ContainerStatus{Name: "main", Image: "registry.example/train", RestartCount: restarts, Ready: phase == corev1.PodRunning}
	switch phase {
	case corev1.PodRunning:
		is.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.Now()}
	default:
		is.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: exit, FinishedAt: metav1.Now()}
	}
	text, err := json.Marshal(map[string]any{"status": map[string]any{"phase": phase, "containerStatuses": []corev1.ContainerStatus{is}}})
	if err != nil {
		d.t.Fatal(err)
	}
	d.ask(d.client.Status().Patch(d.t.Context(), p.DeepCopy(), client.RawPatch(types.MergePatchType, text)))
}

// gone ends the pods of a Job that are terminating, as their kubelet. It says what is lacking.
func (d *desk) gone(j *deskJob) string {
	d.t.Helper()
	left := 0
	for _, p := range j.pods { // order: each on its own
		if p.DeletionTimestamp == nil {
			continue
		}
		if left++; d.once("end", p.UID) {
			d.ask(d.client.Delete(d.t.Context(), p.DeepCopy(), client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID}))
		}
	}
	if left > 0 {
		return fmt.Sprintf("%d pods are terminating", left)
	}
	return ""
}

// leaving says what is lacking until all pods of a Job that have not ended are terminating.
func (j *deskJob) leaving() string {
	for name, p := range j.pods { // order: any
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			return "pod " + name + " goes on"
		}
	}
	return ""
}

// commands asks for an action of each Job that there is one for, and waits until all of these are taken.
func (d *desk) commands(what string, of func(name string) vcbus.Action) {
	d.t.Helper()
	for name, j := range d.jobs { // order: each on its own
		if action := of(name); action != "" {
			d.create(d.t, &vcbus.Command{
				ObjectMeta: metav1.ObjectMeta{Namespace: d.ns, GenerateName: strings.ToLower(string(action)) + "-"}, Action: string(action),
				TargetObject: &metav1.OwnerReference{APIVersion: vcbatch.GroupVersion.String(), Kind: "Job", Name: name, UID: j.UID},
			})
		}
	}
	d.must(d.t, guard, func() string {
		all := &vcbus.CommandList{}
		if err := d.client.List(d.t.Context(), all, client.InNamespace(d.ns)); err != nil {
			return err.Error()
		}
		if len(all.Items) > 0 {
			return fmt.Sprintf("%s: %d Commands wait, one of them %s for %s", what, len(all.Items), all.Items[0].Action, all.Items[0].TargetObject.Name)
		}
		return ""
	})
}

// was says whether a Job was in a phase at some time.
func (j *deskJob) was(phase vcbatch.JobPhase) bool {
	for _, c := range j.Status.Conditions {
		if c.Status == phase {
			return true
		}
	}
	return false
}
