//go:build lab

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaikeys "github.com/muster-scheduler/muster/api/kai/keys"
	kbcrds "github.com/muster-scheduler/muster/api/kubebatch/crds"
	kbkeys "github.com/muster-scheduler/muster/api/kubebatch/keys"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vcflow "github.com/muster-scheduler/muster/api/volcano/flow/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vcshard "github.com/muster-scheduler/muster/api/volcano/shard/v1alpha1"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// volcanoFile is one of Volcano's example files, and what must be seen once it is applied unchanged.
type volcanoFile struct {
	name string
	see  string // one line for people
	// refused are parts of the API server's answer; nil where it takes the file.
	refused []string
	jobs    []exampleJob
	// lacking is what is still to be seen besides the Jobs, "" for nothing; nil for nothing at all.
	lacking func(*exampleStage) string
}

// exampleJob is a Job of an example: so many pods run at once, and where a task is named its pods are ended then, which completes the Job.
type exampleJob struct {
	name string
	pods int32
	ends string
}

// volcanoPlay is files that belong together. They are applied in their order, on a cluster on which nothing else of the examples is, and then withdrawn.
type volcanoPlay struct {
	// needs is what the files expect of a user's cluster besides.
	needs string
	files []volcanoFile
	// waits has the play applied before all others and looked at after them.
	waits bool
}

// exampleStage is the cluster on which the examples are played.
type exampleStage struct {
	*volcanoFixture
	t       *testing.T
	root    string
	applied []*unstructured.Unstructured // of the play, in order
	argo    map[string]*argoNode
	mu      sync.Mutex
	history []string // of Jobs: "made NAME" and "completed NAME"
}

// cronName begins the names of what the example CronJob makes, while others are played.
const cronName = "volcano-cronjob-example"

// exampleCluster is what the examples are played on: a node of the name that one asks for, and some of 8 GPUs.
func exampleCluster() lab.Options {
	o := lab.Options{
		KubeScheduler: true, FeatureGates: "GenericWorkload=true", APIServerArgs: []string{"--runtime-config=scheduling.k8s.io/v1beta1=true"},
		Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 4, GPUs: 8}, {Name: "named", Prefix: "192.168.23.", First: 24, Count: 1, CPU: "16"}}},
		CRDs: [][]byte{
			playedCRD("argoproj.io", "v1alpha1", "Workflow"), playedCRD("argoproj.io", "v1alpha1", "WorkflowTemplate"), playedCRD("sparkoperator.k8s.io", "v1beta1", "SparkApplication"),
		},
	}
	for _, f := range kbcrds.All() {
		o.CRDs = append(o.CRDs, f.YAML)
	}
	return o
}

// newExampleStage starts a lab with all faces: KAI's, Volcano's, kube-batch's and Kubernetes' own, with Volcano's admission and a stock scheduler beside.
func newExampleStage(t *testing.T, root string) *exampleStage {
	t.Helper()
	x := &exampleStage{volcanoFixture: newVolcanoFixtureOn(t, exampleCluster()), t: t, root: root}
	for _, kind := range []client.Object{&appsv1.ReplicaSet{}, &vcflow.JobFlow{}, &vcbatch.CronJob{}, &vcshard.NodeShard{}} {
		x.watch(t, kind)
	}
	i, err := x.cache.GetInformer(t.Context(), &vcbatch.Job{})
	if err != nil {
		t.Fatal(err)
	}
	saw := func(o any) {
		j := o.(*vcbatch.Job)
		x.mu.Lock()
		defer x.mu.Unlock()
		tell := func(what string) {
			if !slices.Contains(x.history, what+j.Name) {
				x.history = append(x.history, what+j.Name)
			}
		}
		tell("made ")
		if j.Status.State.Phase == vcbatch.Completed {
			tell("completed ")
		}
	}
	if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, o any) { saw(o) }}); err != nil {
		t.Fatal(err)
	}
	x.schedule(t, func(b *volcanoFixture) []string {
		added := metav1.ObjectMeta{Name: install.Name(install.KubeBatchScheduler)}
		b.create(t, &rbacv1.ClusterRole{ObjectMeta: added, Rules: install.Rules(install.KubeBatchScheduler).Cluster})
		b.create(t, &rbacv1.ClusterRoleBinding{
			ObjectMeta: added, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: added.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: kaikeys.Namespace, Name: install.Name(install.Scheduler)}},
		})
		b.controllers.args = append(b.controllers.args, "--controllers=*") // that of shards is off by default
		b.again(t)
		return []string{"--kube-batch-scheduler-name=" + kbkeys.SchedulerName}
	})
	x.admitVolcanos(t)
	return x
}

// TestVolcanoExamples applies all of Volcano's example files as they are, as `make prove-volcano` asks for: what runs there runs, what is there to be refused is, and so is what no API server takes
// any more.
func TestVolcanoExamples(t *testing.T) {
	if os.Getenv(walkEnv) == "" {
		t.Skip("a proof of its own: make prove-volcano")
	}
	root := beside("compat", "volcano", "examples")
	if _, err := os.Stat(root); err != nil {
		t.Skip("NOT CHECKED: Volcano's examples do not lie beside this checkout")
	}
	plays := volcanoPlays()
	everyExample(t, root, plays)
	if only := os.Getenv(walkOnlyEnv); only != "" {
		plays = slices.DeleteFunc(plays, func(p volcanoPlay) bool {
			return !slices.ContainsFunc(p.files, func(f volcanoFile) bool {
				return slices.ContainsFunc(strings.Split(only, ","), func(part string) bool { return strings.HasPrefix("examples "+f.name, part) })
			})
		})
	}
	if len(plays) == 0 {
		return
	}
	x := newExampleStage(t, root)
	x.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argo"}})
	waiting := map[int]bool{}
	for i, p := range plays {
		if p.waits {
			x.begin(t, p)
			waiting[i] = true
		}
	}
	for i, p := range plays {
		if !waiting[i] {
			x.begin(t, p)
			x.withdraw(t)
		}
	}
	for i, p := range plays {
		if waiting[i] {
			for _, f := range p.files {
				t.Run(f.name+" later", func(t *testing.T) { x.look(t, f) })
			}
		}
	}
	if rejected, err := x.lab.Rejected(t.Context()); err != nil || len(rejected) > 0 {
		t.Errorf("kubelets turned away %v (%v): a node was overcommitted", rejected, err)
	}
}

// everyExample holds the table against the folder: each file is in it once.
func everyExample(t *testing.T, root string, plays []volcanoPlay) {
	t.Helper()
	var have, want []string
	for _, p := range plays {
		for _, f := range p.files {
			have = append(have, f.name)
		}
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			var name string
			name, err = filepath.Rel(root, path)
			want = append(want, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the table has the files\n  %s\nand the folder\n  %s", strings.Join(have, "\n  "), strings.Join(want, "\n  "))
	}
}

// begin applies the files of a play one after the other, and looks at each, unless the play waits.
func (x *exampleStage) begin(t *testing.T, p volcanoPlay) {
	t.Helper()
	x.applied, x.argo = nil, map[string]*argoNode{}
	if p.needs != "" {
		if err := x.apply(t, manifestsOf(t, "what is needed", []byte(p.needs))); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range p.files {
		t.Run(f.name, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(x.root, f.name))
			if err != nil {
				t.Fatal(err)
			}
			err = x.apply(t, manifestsOf(t, f.name, text))
			if len(f.refused) > 0 {
				for _, part := range f.refused {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("the answer is %v, without %q", err, part)
					}
				}
				t.Logf("refused: %s: %v", f.see, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !p.waits {
				x.look(t, f)
			}
		})
	}
}

// apply creates objects as kubectl does, with strict validation; those that do not say otherwise are of namespace default. It ends at the first that is not taken.
func (x *exampleStage) apply(t *testing.T, objects []*unstructured.Unstructured) error {
	t.Helper()
	for _, o := range objects {
		namespaced, err := x.client.IsObjectNamespaced(o)
		if meta.IsNoMatchError(err) { // kubectl ends here too; the API server itself says it so
			body, _ := o.MarshalJSON()
			path := "/apis/" + o.GetAPIVersion() + "/" + strings.ToLower(o.GetKind()) + "es"
			return errors.Join(err, x.lab.Client().CoreV1().RESTClient().Post().AbsPath(path).Body(body).Do(t.Context()).Error())
		} else if err != nil {
			t.Fatal(err)
		}
		if namespaced && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		if err := x.client.Create(t.Context(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
			return err
		}
		x.applied = append(x.applied, o)
	}
	return nil
}

// look waits for what a file is there to show. The limit of what waits by the clock is that of its schedule, five minutes, besides.
func (x *exampleStage) look(t *testing.T, f volcanoFile) {
	t.Helper()
	since := time.Now()
	for _, j := range f.jobs {
		x.must(t, guard, func() string { return x.jobRuns(j) })
	}
	for _, j := range f.jobs {
		if j.ends == "" {
			continue
		}
		x.must(t, guard, func() string {
			x.end(t, func(p *corev1.Pod) bool {
				return p.Labels[vckeys.JobName] == j.name && p.Labels[vckeys.TaskSpec] == j.ends
			})
			if o := x.job(metav1.NamespaceDefault, j.name); o == nil || o.Status.State.Phase != vcbatch.Completed {
				return fmt.Sprintf("Job %s is not completed, though task %s has ended: %+v", j.name, j.ends, o)
			}
			return ""
		})
	}
	if f.lacking != nil {
		x.t = t
		x.must(t, guard+5*time.Minute, func() string { return f.lacking(x) })
	}
	t.Logf("seen after %v: %s", time.Since(since).Round(time.Millisecond), f.see)
}

// jobRuns is what lacks until a Job and its PodGroup run with all pods.
func (x *exampleStage) jobRuns(j exampleJob) string {
	if text := x.phase(metav1.NamespaceDefault, j.name, vcbatch.Running, j.pods, 0)(); text != "" {
		return text + x.sayGroups(metav1.NamespaceDefault)
	}
	if g := x.group(x.job(metav1.NamespaceDefault, j.name)); g == nil || g.Status.Phase != vcscheduling.PodGroupRunning || g.Status.Running != j.pods || !condition(g, vcscheduling.PodGroupScheduled) {
		return "the PodGroup of Job " + j.name + " does not run:" + x.sayGroups(metav1.NamespaceDefault)
	}
	return x.podsRun(vckeys.JobName, j.name, int(j.pods), vckeys.SchedulerName)
}

// podsRun is what lacks until n pods of a label, all that there are, run, each for a scheduler.
func (x *exampleStage) podsRun(label, value string, n int, scheduler string) string {
	run, all := 0, 0
	for _, p := range x.pods(metav1.NamespaceDefault) {
		if p.Labels[label] != value {
			continue
		}
		all++
		if p.Status.Phase == corev1.PodRunning && p.Spec.SchedulerName == scheduler {
			run++
		}
	}
	if run != n || all != n {
		return fmt.Sprintf("%d of %d pods with %s=%s run for %s; want %d", run, all, label, value, scheduler, n)
	}
	return ""
}

// bareRun is podsRun for pods of Volcano's scheduler that no Job made: they are in one PodGroup, which was made for them, in a queue, and runs.
func (x *exampleStage) bareRun(label, value string, n int, queue string) string {
	if text := x.podsRun(label, value, n, vckeys.SchedulerName); text != "" {
		return text + x.sayGroups(metav1.NamespaceDefault)
	}
	for _, p := range x.pods(metav1.NamespaceDefault) {
		if p.Labels[label] != value {
			continue
		}
		in := slices.IndexFunc(list(x.fixture, &vcscheduling.PodGroupList{}, client.InNamespace(p.Namespace)).Items, func(g vcscheduling.PodGroup) bool {
			return g.Name == p.Annotations[vckeys.GroupName] && g.Spec.Queue == queue && g.Status.Phase == vcscheduling.PodGroupRunning && int(g.Status.Running) == n
		})
		if in < 0 {
			return fmt.Sprintf("no PodGroup %q of pod %s runs in queue %s:%s", p.Annotations[vckeys.GroupName], p.Name, queue, x.sayGroups(p.Namespace))
		}
	}
	return ""
}

// end has the containers of pods that run end well, as the programs in them would: here containers are only played.
func (x *exampleStage) end(t *testing.T, which func(*corev1.Pod) bool) {
	t.Helper()
	for _, p := range list(x.fixture, &corev1.PodList{}).Items {
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil || p.Annotations[lab.AnnotationRunFor] != "" || !which(&p) {
			continue
		}
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "1ms"}}}`, lab.AnnotationRunFor))
		if err := x.client.Patch(t.Context(), p.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// ofImage is for end: pods whose program ends by itself.
func ofImage(image string) func(*corev1.Pod) bool {
	return func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == image }
}

// pluginsMake is what lacks until there are the objects of the plugins svc and ssh.
func (x *exampleStage) pluginsMake(job string) string {
	for name, o := range map[string]client.Object{job: &corev1.Service{}, job + "-svc": &corev1.ConfigMap{}, job + "-ssh": &corev1.Secret{}} { // order: any that is missing
		if err := x.client.Get(x.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: name}, o); err != nil {
			return err.Error()
		}
	}
	if err := x.client.Get(x.t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: job}, &networkingv1.NetworkPolicy{}); err != nil {
		return err.Error()
	}
	return ""
}

// queuesOpen is what lacks until queues are open with what their file says of them.
func (x *exampleStage) queuesOpen(names ...string) string {
	open := map[string]bool{}
	for _, q := range list(x.fixture, &vcscheduling.QueueList{}).Items {
		open[q.Name] = q.Status.State == vcscheduling.QueueStateOpen && q.Spec.Weight == 1
	}
	for _, name := range names {
		if !open[name] {
			return "queue " + name + " is not open"
		}
	}
	return ""
}

// flowEnds is what lacks until a JobFlow has succeeded, each Job made when those that it depends on were completed, and deleted in the end.
func (x *exampleStage) flowEnds(name string, dependsOn map[string]string) string {
	x.end(x.t, ofImage("nginx:1.14.2"))
	for _, f := range list(x.fixture, &vcflow.JobFlowList{}, client.InNamespace(metav1.NamespaceDefault)).Items {
		if f.Name == name && f.Status.State.Phase != vcflow.Succeed {
			return fmt.Sprintf("JobFlow %s is %+v", name, f.Status)
		}
	}
	for _, j := range list(x.fixture, &vcbatch.JobList{}, client.InNamespace(metav1.NamespaceDefault)).Items {
		if strings.HasPrefix(j.Name, name+"-") {
			return "Job " + j.Name + " of the flow is still there"
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for part, before := range dependsOn { // order: each by itself
		made := slices.Index(x.history, "made "+name+"-"+part)
		if made < 0 {
			return "Job " + name + "-" + part + " was not made"
		}
		for _, other := range before {
			if done := slices.Index(x.history, "completed "+name+"-"+string(other)); done < 0 || done > made {
				x.t.Fatalf("%s was made before %c was completed: %v", part, other, x.history)
			}
		}
	}
	return ""
}

// cronMakes is what lacks until a CronJob has made a Job, and that is completed.
func (x *exampleStage) cronMakes() string {
	x.end(x.t, ofImage("busybox:latest"))
	for _, c := range list(x.fixture, &vcbatch.CronJobList{}, client.InNamespace(metav1.NamespaceDefault)).Items {
		if c.Name == cronName && c.Status.LastScheduleTime != nil && c.Status.LastSuccessfulTime != nil {
			return ""
		}
	}
	return "no Job of the CronJob is completed"
}

// shardsDivide is what lacks until each scheduler of a sharding configuration has nodes, and each node a scheduler.
func (x *exampleStage) shardsDivide(names ...string) string {
	nodes := 0
	for _, s := range list(x.fixture, &vcshard.NodeShardList{}).Items {
		if slices.Contains(names, s.Name) && len(s.Spec.NodesDesired) > 0 {
			nodes += len(s.Spec.NodesDesired)
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == s.Name })
		}
	}
	if have := len(list(x.fixture, &corev1.NodeList{}).Items); nodes != have || len(names) > 0 {
		return fmt.Sprintf("%d of %d nodes are in NodeShards; %v have none", nodes, have, names)
	}
	return ""
}

// withdraw deletes what a play has applied, and waits until nothing is left of it.
func (x *exampleStage) withdraw(t *testing.T) {
	t.Helper()
	cron := func(o client.Object) bool {
		return strings.HasPrefix(o.GetName(), cronName) || strings.HasPrefix(o.GetLabels()[vckeys.JobName], cronName)
	}
	var last []*unstructured.Unstructured // queues and rights, when nothing is in them any more
	for _, o := range slices.Backward(x.applied) {
		if ns := o.GetNamespace(); ns == "" || strings.HasPrefix(o.GetAPIVersion(), rbacv1.GroupName) {
			last = append(last, o)
			continue
		}
		if err := x.client.Delete(t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationBackground)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
	x.must(t, guard, func() string {
		left := len(list(x.fixture, &appsv1.ReplicaSetList{}).Items)
		for _, j := range list(x.fixture, &vcbatch.JobList{}).Items {
			if !cron(&j) {
				left++
			}
		}
		owned := left > 0
		for _, p := range list(x.fixture, &corev1.PodList{}).Items {
			if cron(&p) {
				continue
			}
			left++
			if !owned && p.DeletionTimestamp == nil { // now rather than when the garbage collector comes by
				if err := x.client.Delete(t.Context(), p.DeepCopy()); client.IgnoreNotFound(err) != nil {
					t.Fatal(err)
				}
			}
		}
		for _, g := range list(x.fixture, &vcscheduling.PodGroupList{}).Items {
			if !strings.HasPrefix(g.Name, cronName) {
				left++
			}
		}
		if left > 0 {
			return fmt.Sprintf("%d objects are left of %v", left, x.applied[0].GetName())
		}
		return ""
	})
	for _, o := range last {
		if err := x.client.Delete(t.Context(), o); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}
