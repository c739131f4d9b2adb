//go:build lab

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kaikeys "github.com/muster-scheduler/muster/api/kai/keys"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcbus "github.com/muster-scheduler/muster/api/volcano/bus/v1alpha1"
	"github.com/muster-scheduler/muster/api/volcano/crds"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// volcanoFixture is a lab in which Volcano's controllers run. The scheduler's face of Volcano's is off, and the test is the scheduler: it has each moment in its hand. It
// lets a PodGroup in by its phase Inqueue, and puts its pods on nodes by Bindings.
type volcanoFixture struct {
	*fixture
	controllers *process
}

// newVolcanoFixture starts a lab with Volcano's definitions, and the controllers under an account that may do what install.Rules say, and no more.
func newVolcanoFixture(t *testing.T) *volcanoFixture {
	t.Helper()
	return newVolcanoFixtureOn(t, lab.Options{})
}

// newVolcanoFixtureOn is newVolcanoFixture in a lab that is as the options say.
func newVolcanoFixtureOn(t *testing.T, o lab.Options) *volcanoFixture {
	t.Helper()
	for _, f := range crds.All() {
		o.CRDs = append(o.CRDs, f.YAML)
	}
	b := &volcanoFixture{fixture: newFixture(t, 4, o)}
	for _, kind := range []client.Object{&vcbatch.Job{}, &vcscheduling.PodGroup{}, &vcscheduling.Queue{}, &vcbus.Command{}} {
		b.watch(t, kind)
	}
	b.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: vckeys.Namespace}})
	b.controllers = newProcess(t, install.VolcanoControllers, b.as(t, install.VolcanoControllers), "--leader-elect")
	b.controllers.start()
	b.controllers.awaitReady(t)
	return b
}

// as makes the account of a role with its rights, those of its home in its namespace, and returns a kubeconfig whose user is that account.
func (b *volcanoFixture) as(t *testing.T, role string) string {
	t.Helper()
	name, may := install.Name(role), install.Rules(role)
	who := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: kaikeys.Namespace, Name: name}}
	home := metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: name}
	if role != install.VolcanoControllers {
		home.Namespace = kaikeys.Namespace
	}
	b.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: may.Cluster})
	b.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}})
	b.create(t, &rbacv1.Role{ObjectMeta: home, Rules: may.Home})
	b.create(t, &rbacv1.RoleBinding{ObjectMeta: home, Subjects: who, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})
	config, err := clientcmd.LoadFromFile(b.lab.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = "system:serviceaccount:" + kaikeys.Namespace + ":" + name
		user.ImpersonateGroups = []string{"system:serviceaccounts", "system:serviceaccounts:" + kaikeys.Namespace, "system:authenticated"}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(clientcmdapi.Config(*config), file); err != nil {
		t.Fatal(err)
	}
	return file
}

// again kills the controllers and starts them anew.
func (b *volcanoFixture) again(t *testing.T) {
	t.Helper()
	b.controllers.kill()
	b.controllers.start()
}

// volcanoExample reads a Job of Volcano's examples, unchanged but for the namespace.
func volcanoExample(t *testing.T, namespace, name string) *vcbatch.Job {
	t.Helper()
	j := &vcbatch.Job{}
	readVolcanoExample(t, name, j)
	j.Namespace = namespace
	return j
}

// readVolcanoExample reads one of Volcano's examples.
func readVolcanoExample(t *testing.T, name string, into client.Object) {
	t.Helper()
	if err := yaml.UnmarshalStrict(volcanoExampleText(t, name), into); err != nil {
		t.Fatal(err)
	}
}

// job is a Job as the watches have it; nil for none.
func (b *volcanoFixture) job(namespace, name string) *vcbatch.Job {
	for _, j := range list(b.fixture, &vcbatch.JobList{}, client.InNamespace(namespace)).Items {
		if j.Name == name {
			return &j
		}
	}
	return nil
}

// phase is what lacks until a Job is in a phase with so many pods that run and have succeeded.
func (b *volcanoFixture) phase(namespace, name string, want vcbatch.JobPhase, running, succeeded int32) func() string {
	return func() string {
		j := b.job(namespace, name)
		if j == nil {
			return "there is no Job " + name
		}
		if s := &j.Status; s.State.Phase != want || s.Running != running || s.Succeeded != succeeded {
			return fmt.Sprintf("Job %s is %+v with %d running, %d succeeded; want %s, %d, %d", name, s.State, s.Running, s.Succeeded, want, running, succeeded)
		}
		return ""
	}
}

// leaves waits until a Job is not in a phase any more.
func (b *volcanoFixture) leaves(t *testing.T, namespace, name string, phase vcbatch.JobPhase) {
	t.Helper()
	b.must(t, 20*time.Second, func() string {
		if j := b.job(namespace, name); j == nil || j.Status.State.Phase == phase {
			return fmt.Sprintf("Job %s is %s", name, phase)
		}
		return ""
	})
}

// group is a Job's PodGroup; nil for none.
func (b *volcanoFixture) group(j *vcbatch.Job) *vcscheduling.PodGroup {
	for _, g := range list(b.fixture, &vcscheduling.PodGroupList{}, client.InNamespace(j.Namespace)).Items {
		if g.Name == j.Name+"-"+string(j.UID) {
			return &g
		}
	}
	return nil
}

// admit lets a Job's PodGroup in, as the scheduler does, and returns it as it was then. The kind has no status of its own.
func (b *volcanoFixture) admit(t *testing.T, namespace, name string) *vcscheduling.PodGroup {
	t.Helper()
	var g *vcscheduling.PodGroup
	b.must(t, 20*time.Second, func() string {
		if j := b.job(namespace, name); j != nil && j.Status.State.Phase == vcbatch.Pending {
			g = b.group(j)
		}
		if g == nil || g.DeletionTimestamp != nil {
			return "there is no PodGroup of Job " + name
		}
		return ""
	})
	g = g.DeepCopy()
	if err := b.client.Patch(t.Context(), g, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Inqueue"}}`))); err != nil {
		t.Fatal(err)
	}
	return g
}

// place is what lacks until n pods of a namespace, all that there are, are on nodes. It puts them there; with notes on how the lab plays them.
func (b *volcanoFixture) place(t *testing.T, namespace string, n int, notes map[string]string) func() string {
	return func() string {
		pods := b.pods(namespace)
		for i := range pods {
			p := &pods[i]
			if p.Spec.NodeName != "" || p.Spec.SchedulerName != vckeys.SchedulerName || p.DeletionTimestamp != nil {
				continue
			}
			binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Annotations: notes}, Target: corev1.ObjectReference{Kind: "Node", Name: fmt.Sprintf("n-%d", i%4)}}
			if err := b.client.SubResource("binding").Create(t.Context(), p.DeepCopy(), binding); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
		}
		if have := b.bound(namespace); have != n || len(pods) != n {
			return fmt.Sprintf("%d pods of %s are on nodes, of %d; want %d", have, namespace, len(pods), n)
		}
		return ""
	}
}

// command asks for an action, and waits until it is taken.
func (b *volcanoFixture) command(t *testing.T, namespace, apiVersion, kind string, target client.Object, action vcbus.Action) {
	t.Helper()
	c := &vcbus.Command{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: strings.ToLower(string(action)) + "-"}, Action: string(action),
		TargetObject: &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: target.GetName(), UID: target.GetUID()},
	}
	b.create(t, c)
	b.must(t, 20*time.Second, func() string {
		for _, other := range list(b.fixture, &vcbus.CommandList{}, client.InNamespace(namespace)).Items {
			if other.Name == c.Name {
				return "Command " + c.Name + " is still there"
			}
		}
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(c), &vcbus.Command{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("Command %s: %v", c.Name, err)
		}
		return ""
	})
}

// TestVolcanoControllers: on a real API server, under the rights that an installation gives it, the process of Volcano's controllers takes Volcano's
// example Jobs through their lives, while it is killed between: no pod before the gang is let in, the objects of plugins, Pending to Running to
// Completed as the pods do, abort and resume by Command, a retry that is counted once, and the end when the Job's time is up.
func TestVolcanoControllers(t *testing.T) {
	b := newVolcanoFixture(t)
	const ns = "nginx"
	b.namespace(t, ns)
	b.create(t, volcanoExample(t, ns, "job.yaml"))

	g := b.admit(t, ns, "test-job")
	if g.Spec.MinMember != 3 || g.Spec.Queue != vckeys.DefaultQueue || g.Spec.MinTaskMember["default-nginx"] != 6 || g.Spec.MinResources == nil {
		t.Errorf("PodGroup %+v", g.Spec)
	}
	b.must(t, 20*time.Second, func() string {
		if n := len(b.pods(ns)); n != 6 {
			return fmt.Sprintf("%d of 6 pods are made", n)
		}
		return ""
	})
	for _, p := range b.pods(ns) { // nobody has changed one yet: its version is that of its birth
		if order, err := resourceversion.CompareResourceVersion(p.ResourceVersion, g.ResourceVersion); err != nil || order < 0 {
			t.Errorf("pod %s was made before its gang was let in: %v", p.Name, err)
		}
	}
	for _, o := range []client.Object{
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "test-job"}}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "test-job-svc"}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "test-job-ssh"}}, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "test-job"}},
	} {
		if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: o.GetName()}, o); err != nil {
			t.Error(err)
		}
	}
	b.controllers.kill()
	b.must(t, 20*time.Second, b.place(t, ns, 6, nil))
	b.must(t, 20*time.Second, b.allRunning(ns, 6))
	b.controllers.start()
	b.must(t, 20*time.Second, b.phase(ns, "test-job", vcbatch.Running, 6, 0))

	b.command(t, ns, vcbatch.GroupVersion.String(), "Job", b.job(ns, "test-job"), vcbus.AbortJobAction)
	b.leaves(t, ns, "test-job", vcbatch.Running)
	// An event that its process did not get to write before it was killed is gone, so it is waited for here, and not after the Command below.
	b.must(t, 3*time.Minute, func() string {
		told := map[string]bool{}
		for _, e := range list(b.fixture, &corev1.EventList{}, client.InNamespace(ns)).Items {
			told[e.Source.Component+" "+e.Reason] = true
		}
		if !told["vc-controller-manager CommandIssued"] {
			return fmt.Sprintf("no event tells of Commands: %v", told)
		}
		return ""
	})
	b.again(t)
	b.must(t, 30*time.Second, b.phase(ns, "test-job", vcbatch.Aborted, 0, 0))
	b.must(t, 20*time.Second, func() string {
		if n := len(b.pods(ns)); n > 0 || b.group(b.job(ns, "test-job")) != nil {
			return fmt.Sprintf("%d pods are left of the Job that was aborted, or its PodGroup", n)
		}
		return ""
	})

	b.command(t, ns, vcbatch.GroupVersion.String(), "Job", b.job(ns, "test-job"), vcbus.ResumeJobAction)
	b.leaves(t, ns, "test-job", vcbatch.Aborted)
	b.again(t)
	b.admit(t, ns, "test-job")
	b.must(t, 20*time.Second, b.place(t, ns, 6, map[string]string{lab.AnnotationRunFor: "3s"}))
	b.must(t, 30*time.Second, func() string {
		if j := b.job(ns, "test-job"); j.Status.State.Phase == vcbatch.Running || j.Status.State.Phase == vcbatch.Completed {
			return ""
		}
		return b.phase(ns, "test-job", vcbatch.Running, 6, 0)()
	})
	b.again(t)
	b.must(t, 30*time.Second, b.phase(ns, "test-job", vcbatch.Completed, 0, 6))
	j := b.job(ns, "test-job")
	if j.Status.RetryCount != 1 {
		t.Errorf("one resume counts as %d retries", j.Status.RetryCount)
	}
	seen := map[vcbatch.JobPhase]bool{}
	for _, c := range j.Status.Conditions {
		seen[c.Status] = true
	}
	for _, want := range []vcbatch.JobPhase{vcbatch.Pending, vcbatch.Running, vcbatch.Aborting, vcbatch.Aborted, vcbatch.Restarting, vcbatch.Completed} {
		if !seen[want] {
			t.Errorf("no condition tells of %s: %+v", want, j.Status.Conditions)
		}
	}
	j = j.DeepCopy()
	before := j.DeepCopy()
	j.Spec.TTLSecondsAfterFinished = ptr.To[int32](1)
	if err := b.client.Patch(t.Context(), j, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	b.again(t)
	b.must(t, 30*time.Second, func() string {
		if n := len(b.pods(ns)); n > 0 || b.job(ns, "test-job") != nil {
			return fmt.Sprintf("%d pods are left of the Job whose time is up, or it itself", n)
		}
		return ""
	})
}

// TestVolcanoOrder: the tasks of Volcano's example of dependencies start one after the other, each when the pods before it are ready, and vcctl closes and
// opens a queue, shows the Job, suspends and deletes it, while the controllers are killed between.
func TestVolcanoOrder(t *testing.T) {
	b := newVolcanoFixture(t)
	const ns = "order"
	b.namespace(t, ns)
	j := volcanoExample(t, ns, "task-start-dependency/job.yaml")
	for i := range j.Spec.Tasks { // what Volcano's admission adds, of which there is none here yet
		j.Spec.Tasks[i].MinAvailable = ptr.To(j.Spec.Tasks[i].Replicas)
	}
	b.create(t, j)
	b.admit(t, ns, "job")
	for _, n := range []int{1, 6, 11} {
		b.must(t, 30*time.Second, b.place(t, ns, n, nil))
		b.again(t)
	}
	b.must(t, 30*time.Second, b.phase(ns, "job", vcbatch.Running, 11, 0))

	spare := &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "spare"}}
	b.create(t, spare)
	state := func(want vcscheduling.QueueState) func() string {
		return func() string {
			for _, q := range list(b.fixture, &vcscheduling.QueueList{}).Items {
				if q.Name == spare.Name && q.Status.State == want && q.Spec.Parent == vckeys.RootQueue {
					return ""
				}
			}
			return "the queue is not " + string(want) + " below root"
		}
	}
	b.must(t, 20*time.Second, state(vcscheduling.QueueStateOpen))
	b.vcctl(t, "queue", "operate", "-n", "spare", "-a", "close")
	b.must(t, 20*time.Second, state(vcscheduling.QueueStateClosed))
	b.again(t)
	b.vcctl(t, "queue", "operate", "-n", "spare", "-a", "open")
	b.must(t, 20*time.Second, state(vcscheduling.QueueStateOpen))

	if row := strings.Fields(strings.Split(b.vcctl(t, "job", "list", "-n", ns), "\n")[1]); len(row) != 12 || row[0] != "job" || row[2] != "Running" || row[7] != "11" {
		t.Errorf("job list says %q", row)
	}
	b.vcctl(t, "job", "suspend", "-n", ns, "-N", "job")
	b.must(t, 30*time.Second, b.phase(ns, "job", vcbatch.Aborted, 0, 0))
	if said := b.vcctl(t, "job", "view", "-n", ns, "-N", "job"); !strings.Contains(said, "Aborted") || !strings.Contains(said, "CommandIssued") {
		t.Errorf("job view says\n%s", said)
	}
	b.vcctl(t, "job", "delete", "-n", ns, "-N", "job")
	b.must(t, 30*time.Second, func() string {
		if b.job(ns, "job") != nil {
			return "the Job that was deleted is there"
		}
		return ""
	})
}

// TestVolcanoBarePods: the pods of Volcano's example of a Deployment get a PodGroup in the queue that they name, though the controllers are killed when it
// is made; it goes when the Deployment has no replicas any more, and no old ReplicaSet leaves one.
func TestVolcanoBarePods(t *testing.T) {
	b := newVolcanoFixture(t)
	const ns = "deployment"
	b.namespace(t, ns)
	b.create(t, &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: "test"}})
	d := &appsv1.Deployment{}
	readVolcanoExample(t, "deployment/deployment.yaml", d)
	d.Namespace = ns
	b.create(t, d)
	groups := func(want int) func() string {
		return func() string {
			all := list(b.fixture, &vcscheduling.PodGroupList{}, client.InNamespace(ns)).Items
			if len(all) != want {
				return fmt.Sprintf("there are %d PodGroups, want %d", len(all), want)
			}
			for i := range all {
				if g := &all[i]; g.Spec.Queue != "test" || g.Spec.MinMember != 1 || g.Spec.MinResources.Cpu().MilliValue() != 300 || !strings.HasPrefix(g.Name, "podgroup-") {
					return fmt.Sprintf("PodGroup %s: %+v", g.Name, g.Spec)
				}
			}
			return ""
		}
	}
	b.must(t, 20*time.Second, groups(1))
	b.again(t)
	b.must(t, 20*time.Second, b.place(t, ns, 1, nil)) // by a Binding that does not tell it
	b.must(t, 3*time.Minute, func() string {
		for _, p := range b.pods(ns) {
			if p.Annotations[vckeys.GroupName] != list(b.fixture, &vcscheduling.PodGroupList{}, client.InNamespace(ns)).Items[0].Name {
				return "pod " + p.Name + " does not know its PodGroup"
			}
		}
		return ""
	})
	b.must(t, 20*time.Second, b.allRunning(ns, 1))
	change := func(text string) {
		if err := b.client.Patch(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: d.Name}}, client.RawPatch("application/merge-patch+json", []byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	change(`{"spec": {"template": {"metadata": {"labels": {"version": "2"}}}}}`)
	b.must(t, 20*time.Second, groups(2))
	b.must(t, 30*time.Second, b.place(t, ns, 1, nil)) // the new pod runs, and the old one goes
	b.again(t)
	b.must(t, 20*time.Second, groups(1))
	change(`{"spec": {"replicas": 0}}`)
	b.must(t, 20*time.Second, groups(0))
}

// vcctl runs the program under the name vcctl, and returns what it says.
func (b *volcanoFixture) vcctl(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv(binaryEnv), append(args, "--kubeconfig", b.lab.Kubeconfig())...)
	cmd.Args[0] = "vcctl"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("vcctl %q: %v\n%s", args, err, out)
	}
	return string(out)
}
