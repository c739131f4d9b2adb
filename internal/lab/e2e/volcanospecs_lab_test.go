//go:build lab

package e2e

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kaikeys "github.com/muster-scheduler/muster/api/kai/keys"
	vcbatch "github.com/muster-scheduler/muster/api/volcano/batch/v1alpha1"
	vckeys "github.com/muster-scheduler/muster/api/volcano/keys"
	vcscheduling "github.com/muster-scheduler/muster/api/volcano/scheduling/v1beta1"
	vctopology "github.com/muster-scheduler/muster/api/volcano/topology/v1alpha1"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
)

// Volcano has end-to-end suites of its own, of which we know the specs' names. This file and those that begin with its name walk them: each entry is
// what a client can expect by the name of a spec and by what Volcano is documented to do. An entry that passes does not say that the spec of its name does.

// walkEnv makes TestVolcanoSpecs walk all specs; its value is a file for the table of results, or 1. walkOnlyEnv chooses those whose suite and name
// contain one of its parts, which stand between commas.
const (
	walkEnv     = "MUSTER_VOLCANO_SPECS"
	walkOnlyEnv = "MUSTER_VOLCANO_ONLY"
)

// volcanoSpec is a spec of a suite of Volcano's.
type volcanoSpec struct {
	suite, name string
	// file is the scheduler file that rules meanwhile; "" for that of the suites.
	file string
	// sharding is how the scheduler minds NodeShards meanwhile; "" for not at all.
	sharding string
	// quick has it walked with every run of the lab's tests.
	quick bool
	run   func(*stage)
}

// suiteFile is the scheduler file that the suites start with, by the documentation of Volcano's defaults for them.
const suiteFile = `
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
  - name: sla
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
    arguments:
      predicate.DynamicResourceAllocationEnable: true
  - name: proportion
  - name: nodeorder
  - name: binpack
  - name: network-topology-aware
`

// walk is the cluster of the suites: four workers of 4 CPUs, a control plane that takes no pods, a stock scheduler for who asks for it, and Muster in
// Volcano's place.
type walk struct {
	*volcanoFixture
	file     *corev1.ConfigMap
	patience time.Duration
	admits   bool // admissionInForce has returned
	// scheduler is Muster's, mode how it minds NodeShards, and division the ConfigMap by which nodes are divided; nil before the first spec of that.
	scheduler *process
	mode      string
	division  *corev1.ConfigMap

	mu     sync.Mutex
	phases map[types.UID][]vcbatch.JobPhase // that each Job was in, in order
}

// stage is the walk in one spec.
type stage struct {
	*walk
	t      *testing.T
	ns     string
	queues []string
	taken  map[types.UID]int // how many of a Job's phases were asked for
}

// newWalk starts it.
func newWalk(t *testing.T, patience time.Duration) *walk {
	t.Helper()
	const name, key = "integration-scheduler-configmap", "volcano-scheduler-ci.conf"
	dir := t.TempDir()
	programs := map[string]string{}
	for image, script := range map[string]string{ // order: each in a folder of its own
		"busybox": "#!/bin/sh\n[ $# -gt 0 ] || exit 0\nexec /bin/sh \"$@\"\n",
		"nginx":   "#!/bin/sh\n[ $# -gt 0 ] || exec sleep 100000\nexec /bin/sh \"$@\"\n",
	} {
		path := filepath.Join(dir, image, "sh")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		programs[image] = path
	}
	w := &walk{patience: patience, phases: map[types.UID][]vcbatch.JobPhase{}}
	w.volcanoFixture = newVolcanoFixtureOn(t, lab.Options{
		KubeScheduler: true, Programs: programs,
		Fleet: lab.Fleet{Pools: []lab.Pool{
			{Name: "worker", Count: 4, CPU: "4", Memory: "16Gi"},
			{Name: "control-plane", Count: 1, CPU: "4", Memory: "16Gi", Taints: []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}}},
		}},
	})
	w.watch(t, &vctopology.HyperNode{})
	i, err := w.cache.GetInformer(t.Context(), &vcbatch.Job{})
	if err != nil {
		t.Fatal(err)
	}
	saw := func(o any) {
		j := o.(*vcbatch.Job)
		w.mu.Lock()
		defer w.mu.Unlock()
		if p, was := j.Status.State.Phase, w.phases[j.UID]; p != "" && (len(was) == 0 || was[len(was)-1] != p) {
			w.phases[j.UID] = append(was, p)
		}
	}
	if _, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: saw, UpdateFunc: func(_, o any) { saw(o) }}); err != nil {
		t.Fatal(err)
	}
	w.file = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: name}, Data: map[string]string{key: suiteFile}}
	w.scheduler = w.schedule(t, func(b *volcanoFixture) []string {
		b.create(t, w.file)
		account := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: kaikeys.Namespace, Name: install.Name(install.Scheduler)}}
		gates := metav1.ObjectMeta{Name: install.Name(install.VolcanoQueueGates)}
		b.create(t, &rbacv1.ClusterRole{ObjectMeta: gates, Rules: install.Rules(install.VolcanoQueueGates).Cluster})
		b.create(t, &rbacv1.ClusterRoleBinding{ObjectMeta: gates, Subjects: account, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: gates.Name}})
		home := metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: install.Name(install.VolcanoScheduler)}
		b.create(t, &rbacv1.Role{ObjectMeta: home, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name}, Verbs: []string{"get", "list", "watch"}}}})
		b.create(t, &rbacv1.RoleBinding{
			ObjectMeta: home, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: home.Name}, Subjects: account,
		})
		return []string{"--volcano-queue-gates", "--volcano-scheduler-configmap=" + vckeys.Namespace + "/" + name + ":" + key}
	})[0]
	w.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: vckeys.Namespace, Name: vckeys.AdmissionConfig}, Data: map[string]string{vckeys.AdmissionConfigKey: resourceGroups}})
	w.admitVolcanos(t, "--volcano-admission-configmap="+vckeys.Namespace+"/"+vckeys.AdmissionConfig+":"+vckeys.AdmissionConfigKey)
	for name, value := range map[string]int32{"master-pri": 100, "worker-pri": 1} { // order: no matter
		w.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	return w
}

// admitVolcanos starts admission for Volcano's kinds, with what flags it has besides, and returns when it completes Jobs.
func (b *volcanoFixture) admitVolcanos(t *testing.T, flags ...string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	admission := newProcess(t, install.Admission, b.lab.Kubeconfig(), append(flags, "--volcano-scheduler-name="+vckeys.SchedulerName,
		fmt.Sprintf("--webhook-addr=%d", port), fmt.Sprintf("--webhook-url=https://127.0.0.1:%d", port))...)
	admission.start()
	admission.awaitReady(t)
	b.must(t, guard, func() string {
		j := bareJob("default", "probe", "")
		if err := b.client.Create(t.Context(), j, client.DryRunAll); err != nil {
			return err.Error()
		}
		if j.Spec.SchedulerName == "" {
			return "Jobs are not completed by admission"
		}
		return ""
	})
}

// rules has a scheduler file rule, and returns when the scheduler has taken it.
func (w *walk) rules(t *testing.T, text string) {
	t.Helper()
	now := &corev1.ConfigMap{}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(w.file), now); err != nil {
		t.Fatal(err)
	}
	for key := range w.file.Data { // order: there is one
		if now.Data[key] == text {
			return
		}
		now.Data = map[string]string{key: text}
	}
	taken := func() (n int32) {
		for _, e := range list(w.fixture, &corev1.EventList{}, client.InNamespace(vckeys.Namespace)).Items {
			if e.InvolvedObject.Name == w.file.Name && e.Reason == "SchedulerFileTaken" {
				n += max(1, e.Count)
			}
		}
		return n
	}
	before := taken()
	if err := w.client.Update(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	w.must(t, guard, func() string {
		if taken() == before {
			return "the scheduler has not taken the file:\n" + text
		}
		return ""
	})
}

// TestVolcanoSpecs walks the most telling specs; with MUSTER_VOLCANO_SPECS all of them (`make prove-volcano`).
func TestVolcanoSpecs(t *testing.T) {
	where, only := os.Getenv(walkEnv), os.Getenv(walkOnlyEnv)
	var specs []volcanoSpec
	for _, group := range [][]volcanoSpec{schedulingActionSpecs(), schedulingBaseSpecs(), jobSequenceSpecs(), jobSpecs(), gangSpecs(), hyperNodeSpecs(), admissionSpecs(), shardingSpecs(), otherSpecs()} {
		for _, s := range group {
			chosen := where != "" || s.quick
			if only != "" {
				chosen = slices.ContainsFunc(strings.Split(only, ","), func(part string) bool { return strings.Contains(s.suite+" "+s.name, part) })
			}
			if chosen {
				specs = append(specs, s)
			}
		}
	}
	if len(specs) == 0 {
		return
	}
	slices.SortStableFunc(specs, func(a, b volcanoSpec) int {
		return cmp.Or(strings.Compare(a.sharding, b.sharding), strings.Compare(a.file, b.file))
	})
	patience := guard
	if where != "" {
		patience = time.Minute
	}
	w := newWalk(t, patience)
	results := map[string]string{}
	for i := range specs {
		s := &specs[i]
		passed := t.Run(s.suite+"/"+s.name, func(t *testing.T) {
			file := s.file
			if file == "" {
				file = suiteFile
			}
			w.shards(t, s.sharding)
			w.rules(t, file)
			on := &stage{walk: w, t: t, ns: fmt.Sprintf("test-%d", i), taken: map[types.UID]int{}}
			w.namespace(t, on.ns)
			defer on.clear()
			s.run(on)
		})
		results[s.suite+"\t"+s.name] = map[bool]string{true: "passed", false: "FAILED"}[passed]
	}
	if where != "" {
		tellSpecs(t, where, results)
	}
}

// tellSpecs logs the table of results, beside the names of all specs where these lie beside the checkout, and writes the figures where it is told.
func tellSpecs(t *testing.T, where string, results map[string]string) {
	t.Helper()
	var names []string
	if text, err := os.ReadFile(beside("conformance", "volcano-e2e.txt")); err == nil {
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				names = append(names, line)
			}
		}
	}
	known := slices.Clone(names)
	for name := range results { // order: sorted below
		if !slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	type figures struct{ named, walked, passed, others, othersPassed int }
	sums := map[string]*figures{}
	var all strings.Builder
	for _, name := range names {
		suite, spec, _ := strings.Cut(name, "\t")
		if sums[suite] == nil {
			sums[suite] = &figures{}
		}
		f, result := sums[suite], results[name]
		walked, passed := &f.walked, &f.passed
		if slices.Contains(known, name) {
			f.named++
		} else {
			walked, passed = &f.others, &f.othersPassed
		}
		switch result {
		case "":
			result = "NOT WALKED"
		case "passed":
			*passed++
			fallthrough
		default:
			*walked++
		}
		fmt.Fprintf(&all, "%-18s %-10s %s\n", suite, result, spec)
	}
	var page strings.Builder
	page.WriteString(specsPage)
	for _, suite := range slices.Sorted(maps.Keys(sums)) {
		f := sums[suite]
		fmt.Fprintf(&page, "| %s | %d | %d | %d | %d | %d |\n", suite, f.named, f.walked, f.passed, f.others, f.othersPassed)
	}
	t.Logf("\n%s\n%s", all.String(), page.String())
	if where != "1" {
		if err := os.WriteFile(where, []byte(page.String()), 0o644); err != nil {
			t.Error(err)
		}
	}
}

// specsPage is the head of the page of results.
const specsPage = `# Specs of Volcano's suites

` + "`make prove-volcano`" + ` walks specs of Volcano's own end-to-end suites, on a simulated cluster of the suites' size with Muster in Volcano's place. What is walked was written
from the names of the specs and from what Volcano is documented to do, not from their source: a spec that passes here says that a client gets what the name promises, no more.
*Named* are the specs of a suite whose names were known; *others* are walked beside them.

| suite | named | walked | passed | others | passed |
|---|---|---|---|---|---|
`

// beside is the path of what lies in the folder shared beside the checkout; one that does not exist where there is none.
func beside(parts ...string) string {
	dir, err := os.Getwd()
	if err != nil {
		return ""
	}
	for range 8 {
		path := filepath.Join(append([]string{dir, "shared"}, parts...)...)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		dir = filepath.Dir(dir)
	}
	return filepath.Join(append([]string{"shared"}, parts...)...)
}

// clear removes what a spec has made, as the suites do: Jobs with what they own, the namespace, the queues.
func (s *stage) clear() {
	ctx := s.t.Context()
	if s.t.Failed() {
		s.t.Log(s.say())
	}
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	if err := s.client.DeleteAllOf(ctx, &vcbatch.CronJob{}, client.InNamespace(s.ns), foreground); err != nil {
		s.t.Error(err)
	}
	if err := s.client.DeleteAllOf(ctx, &vcbatch.Job{}, client.InNamespace(s.ns), foreground); err != nil {
		s.t.Error(err)
	}
	if err := s.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.ns}}, foreground); err != nil {
		s.t.Error(err)
	}
	s.must(s.t, guard, func() string {
		if pods, jobs := len(s.pods(s.ns)), len(list(s.fixture, &vcbatch.JobList{}, client.InNamespace(s.ns)).Items); pods+jobs > 0 {
			return fmt.Sprintf("%d pods and %d Jobs are left in %s", pods, jobs, s.ns)
		}
		return ""
	})
	for _, q := range slices.Backward(s.queues) {
		s.must(s.t, guard, func() string { // one below it may still be on its way out
			if err := s.client.Delete(ctx, &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: q}}, foreground); err != nil && !apierrors.IsNotFound(err) {
				return fmt.Sprintf("queue %s: %v", q, err)
			}
			return ""
		})
	}
	if err := s.client.DeleteAllOf(ctx, &vctopology.HyperNode{}); err != nil {
		s.t.Error(err)
	}
}

// say tells what there is, of a spec that failed.
func (s *stage) say() string {
	var out strings.Builder
	s.mu.Lock()
	seen := maps.Clone(s.phases)
	s.mu.Unlock()
	for _, j := range list(s.fixture, &vcbatch.JobList{}, client.InNamespace(s.ns)).Items {
		fmt.Fprintf(&out, "Job %s has been %v; status %+v\n", j.Name, seen[j.UID], j.Status)
	}
	out.WriteString(s.sayGroups(s.ns))
	for _, p := range s.pods(s.ns) {
		fmt.Fprintf(&out, "\n  pod %s on %q is %s, deleted %v", p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp)
		for _, c := range p.Status.Conditions {
			if c.Status == corev1.ConditionFalse {
				fmt.Fprintf(&out, "; not %s: %s %s", c.Type, c.Reason, c.Message)
			}
		}
	}
	for _, e := range list(s.fixture, &corev1.EventList{}, client.InNamespace(s.ns)).Items {
		fmt.Fprintf(&out, "\n  event of %s %s: %s %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Type, e.Reason, e.Message)
	}
	for _, q := range list(s.fixture, &vcscheduling.QueueList{}).Items {
		fmt.Fprintf(&out, "\n  queue %s: weight %d, %s, allocated %v", q.Name, q.Spec.Weight, q.Status.State, q.Status.Allocated)
	}
	return out.String()
}

// until waits for what lacks.
func (s *stage) until(lacking func() string) {
	s.t.Helper()
	s.must(s.t, s.patience, lacking)
}

// amounts is a list of resources, of name and quantity by turns.
func amounts(pairs ...string) corev1.ResourceList {
	r := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		r[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return r
}

// The suites think in slots of a CPU. The workers have 16 of them.
var (
	oneCPU  = amounts("cpu", "1")
	halfCPU = amounts("cpu", "500m")
)

const slots = 16

// part is a task of a Job as the suites say it.
type part struct {
	name        string
	image       string // nginx, which runs until it is ended, unless said otherwise
	command     string // for the shell
	rep, min    int32  // min: rep, unless said
	req         corev1.ResourceList
	priority    string
	policies    []vcbatch.LifecyclePolicy
	restart     corev1.RestartPolicy
	maxRetry    int32
	after       []string
	partitions  *vcbatch.PartitionPolicySpec
	alter       func(*corev1.PodTemplateSpec)
	preemptable string
}

// asked is a Job as the suites say it.
type asked struct {
	name, queue, priority string
	min                   int32 // the sum of the parts' minimums, unless said
	policies              []vcbatch.LifecyclePolicy
	plugins               map[string][]string
	parts                 []part
	alter                 func(*vcbatch.Job)
}

// build makes a Job of what is asked.
func (s *stage) build(a asked) *vcbatch.Job {
	j := &vcbatch.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.name}, Spec: vcbatch.JobSpec{
		SchedulerName: vckeys.SchedulerName, Queue: a.queue, PriorityClassName: a.priority, MinAvailable: a.min, Policies: a.policies, Plugins: a.plugins,
	}}
	for i, p := range a.parts {
		if p.image == "" {
			p.image = "nginx"
		}
		if p.restart == "" {
			p.restart = corev1.RestartPolicyOnFailure
		}
		if p.name == "" {
			p.name = fmt.Sprintf("task-%d", i)
		}
		if p.min == 0 {
			p.min = p.rep
		}
		c := corev1.Container{Name: p.name, Image: p.image, Resources: corev1.ResourceRequirements{Requests: p.req}}
		if p.command != "" {
			c.Command = []string{"sh", "-c", p.command}
		}
		template := corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: p.restart, PriorityClassName: p.priority, Containers: []corev1.Container{c}, TerminationGracePeriodSeconds: ptr.To[int64](1)}}
		if p.preemptable != "" {
			template.Annotations = map[string]string{vckeys.Preemptable: p.preemptable}
		}
		if p.alter != nil {
			p.alter(&template)
		}
		task := vcbatch.TaskSpec{Name: p.name, Replicas: p.rep, MinAvailable: &p.min, Template: template, Policies: p.policies, MaxRetry: p.maxRetry, PartitionPolicy: p.partitions}
		if len(p.after) > 0 {
			task.DependsOn = &vcbatch.DependsOn{Name: p.after}
		}
		j.Spec.Tasks = append(j.Spec.Tasks, task)
		if a.min == 0 {
			j.Spec.MinAvailable += p.min
		}
	}
	if a.alter != nil {
		a.alter(j)
	}
	return j
}

// start makes a Job.
func (s *stage) start(a asked) *vcbatch.Job {
	s.t.Helper()
	j := s.build(a)
	s.create(s.t, j)
	return j
}

// simple is a Job of one task: so many pods, of which so many start together, in a queue.
func (s *stage) simple(name, queue string, rep, least int32, req corev1.ResourceList) *vcbatch.Job {
	s.t.Helper()
	return s.start(asked{name: name, queue: queue, min: least, parts: []part{{rep: rep, min: least, req: req}}})
}

// of counts a Job's pods that fulfil a condition.
func (s *stage) of(j *vcbatch.Job, is func(*corev1.Pod) bool) (n int) {
	for i, all := 0, s.pods(s.ns); i < len(all); i++ {
		if p := &all[i]; p.Labels[vckeys.JobName] == j.Name && is(p) {
			n++
		}
	}
	return n
}

func works(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded)
}

// ready waits until at least n pods of a Job run or have ended well.
func (s *stage) ready(j *vcbatch.Job, n int) {
	s.t.Helper()
	s.until(func() string {
		if have := s.of(j, works); have < n {
			return fmt.Sprintf("%d of %d pods of Job %s are ready", have, n, j.Name)
		}
		return ""
	})
}

// exactly waits until n pods of a Job run, and no others of it are there but such as wait.
func (s *stage) exactly(j *vcbatch.Job, n int) {
	s.t.Helper()
	s.until(func() string {
		if have, going := s.of(j, works), s.of(j, func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }); have != n || going > 0 {
			return fmt.Sprintf("%d pods of Job %s are ready, and %d leave; want %d", have, j.Name, going, n)
		}
		return ""
	})
}

// waits waits until a Job's PodGroup says that it cannot start, and sees to it that none of its pods is on a node.
func (s *stage) waits(j *vcbatch.Job) {
	s.t.Helper()
	s.until(func() string {
		g := s.group(j)
		if g == nil {
			return "there is no PodGroup of Job " + j.Name
		}
		if !condition(g, vcscheduling.PodGroupUnschedulableType) {
			return "Job " + j.Name + " does not say that it cannot start"
		}
		return ""
	})
	if n := s.of(j, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }); n > 0 {
		s.t.Errorf("%d pods of Job %s, which has to wait, are on nodes", n, j.Name)
	}
}

// goes waits until a Job has been in the phases, in this order and since those that were asked for before.
func (s *stage) goes(j *vcbatch.Job, phases ...vcbatch.JobPhase) {
	s.t.Helper()
	for _, want := range phases {
		s.until(func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			seen := s.phases[j.UID]
			if i := slices.Index(seen[s.taken[j.UID]:], want); i >= 0 {
				s.taken[j.UID] += i + 1
				return ""
			}
			return fmt.Sprintf("Job %s has been %v, of which %d were looked at; want %s", j.Name, seen, s.taken[j.UID], want)
		})
	}
}

// now is a Job as the API server has it.
func (s *stage) now(j *vcbatch.Job) *vcbatch.Job {
	s.t.Helper()
	o := &vcbatch.Job{}
	if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(j), o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// update changes a Job as a client does that writes it whole.
func (s *stage) update(j *vcbatch.Job, change func(*vcbatch.Job)) error {
	for {
		o := s.now(j)
		change(o)
		if err := s.client.Update(s.t.Context(), o); !apierrors.IsConflict(err) {
			return err
		}
	}
}

// says waits until a Job's status is as asked.
func (s *stage) says(j *vcbatch.Job, what string, is func(*vcbatch.JobStatus) bool) {
	s.t.Helper()
	s.until(func() string {
		o := s.job(j.Namespace, j.Name)
		if o == nil {
			return "there is no Job " + j.Name
		}
		if !is(&o.Status) {
			return fmt.Sprintf("Job %s: %s; status %+v", j.Name, what, o.Status)
		}
		return ""
	})
}

// remove deletes objects in the foreground, as the suites do.
func (s *stage) remove(objects ...client.Object) {
	s.t.Helper()
	for _, o := range objects {
		if err := s.client.Delete(s.t.Context(), o, client.PropagationPolicy(metav1.DeletePropagationForeground)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// gone waits until a Job and its pods are no more.
func (s *stage) gone(j *vcbatch.Job) {
	s.t.Helper()
	s.until(func() string {
		if n := s.of(j, func(*corev1.Pod) bool { return true }); n > 0 || s.job(j.Namespace, j.Name) != nil {
			return fmt.Sprintf("%d pods are left of Job %s, or it itself", n, j.Name)
		}
		return ""
	})
}

// queue makes a queue, and waits until it is open.
func (s *stage) queue(name string, spec vcscheduling.QueueSpec) {
	s.t.Helper()
	if spec.Weight == 0 {
		spec.Weight = 1
	}
	s.create(s.t, &vcscheduling.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	s.queues = append(s.queues, name)
	s.queueIs(name, "Open", func(q *vcscheduling.Queue) bool { return q.Status.State == vcscheduling.QueueStateOpen })
}

// queueIs waits until a queue is as asked.
func (s *stage) queueIs(name, what string, is func(*vcscheduling.Queue) bool) {
	s.t.Helper()
	s.until(func() string {
		for _, q := range list(s.fixture, &vcscheduling.QueueList{}).Items {
			if q.Name == name && is(&q) {
				return ""
			} else if q.Name == name {
				return fmt.Sprintf("queue %s is not %s: %+v, %+v", name, what, q.Spec, q.Status)
			}
		}
		return "there is no queue " + name
	})
}

// event waits until an object has an event of a reason whose message has a part.
func (s *stage) event(kind, name, reason, part string) {
	s.t.Helper()
	s.until(func() string {
		for _, e := range list(s.fixture, &corev1.EventList{}, client.InNamespace(s.ns)).Items {
			if e.InvolvedObject.Kind == kind && strings.HasPrefix(e.InvolvedObject.Name, name) && e.Reason == reason && strings.Contains(e.Message, part) {
				return ""
			}
		}
		return fmt.Sprintf("no event %s of %s %s says %q", reason, kind, name, part)
	})
}

// groupIs waits until the PodGroup of a Job is in a phase.
func (s *stage) groupIs(j *vcbatch.Job, phase vcscheduling.PodGroupPhase) {
	s.t.Helper()
	s.until(func() string {
		if g := s.group(j); g == nil || g.Status.Phase != phase {
			return fmt.Sprintf("the PodGroup of Job %s is not %s:%s", j.Name, phase, s.sayGroups(s.ns))
		}
		return ""
	})
}
