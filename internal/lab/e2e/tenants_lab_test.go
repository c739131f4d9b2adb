//go:build lab

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/install"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/tenants"
)

// What the fuzzer's cluster is like, and what is expected of it.
const (
	fuzzRate       = 20 // writes in a second, by all tenants together
	fuzzFor        = 20 * time.Second
	canarySize     = 8
	canaryPatience = 30 * time.Second // for room that is owed, evictions included
	quietWithin    = 30 * time.Second // until charges equal the truth once nobody writes
	fuzzGrace      = 5 * time.Second  // that evicted pods get, or a canary would have to be patient for an hour
)

// TestTenantFuzz lets tenants with the rights that tenants have write whatever Muster reads, beside honest ones, and holds the
// cluster against the promises. With TENANT_FUZZ, a duration, its modes run so long together, and it judges how long honest
// pods wait; with TENANT_SEED it makes other writes; TENANT_MODE chooses one mode; with TENANT_ALL all roles but
// admission are one process; TENANT_LOG is a folder for every write made.
func TestTenantFuzz(t *testing.T) {
	long, seed := false, uint64(1)
	length := fuzzFor
	if text := os.Getenv("TENANT_FUZZ"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("TENANT_FUZZ: %v", err)
		}
		long, length = true, d/2
		if os.Getenv("TENANT_MODE") != "" {
			length = d
		}
	}
	if text := os.Getenv("TENANT_SEED"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("TENANT_SEED: %v", err)
		}
		seed = n
	}
	for _, mode := range []struct {
		name               string
		enforce, authorize bool
		args               []string
	}{
		{"authorized", true, true, []string{"--identity=enforce", "--authorize-queues"}},
		{"default", fuzzDefaultEnforces, false, nil},
	} {
		if only := os.Getenv("TENANT_MODE"); only != "" && only != mode.name {
			continue
		}
		t.Run(mode.name, func(t *testing.T) {
			f := newFuzzing(t, seed, mode.enforce, mode.authorize, mode.args)
			f.long = long
			f.run(t, length)
		})
	}
}

// fuzzDefaultEnforces says whether an installation enforces identity unless told otherwise.
const fuzzDefaultEnforces = true

// fuzzing is a cluster with tenants.
type fuzzing struct {
	*fixture
	seed    uint64
	long    bool
	auditor *tenants.Auditor
	hostile []*tenants.Tenant
	roles   []*process
	log     *os.File

	mu       sync.Mutex
	binds    []time.Duration // how long honest pods waited since the last look
	canaries []time.Duration
	skipped  map[string]int
	memory   map[string][]tenants.Memory // of each role, once a minute
}

// fuzzQueues is the tree: hostile tenants have two queues of a department, of which one has a limit, and the canary is owed
// eight GPUs whenever it asks.
func fuzzQueues() []*queuev2.Queue {
	make := func(name, parent string, quota, limit float64) *queuev2.Queue {
		q := queue(name, parent)
		q.Spec.Resources.GPU = queuev2.QueueResource{Quota: quota, Limit: limit, OverQuotaWeight: 1}
		return q
	}
	return []*queuev2.Queue{
		make("hostile", "root", 8, -1), make("capped", "hostile", 4, 8), make("rich", "hostile", 4, -1), make(keys.DefaultQueue, "hostile", 0, 2),
		make("owed", "root", canarySize, -1), make("canary", "owed", canarySize, -1), make("honest", "root", 0, -1),
	}
}

func newFuzzing(t *testing.T, seed uint64, enforce, authorize bool, args []string) *fuzzing {
	w := newFixture(t, 0, lab.Options{Fleet: lab.Fleet{Pools: []lab.Pool{{Name: "n", Count: 4, GPUs: 8, Pods: 500}}}})
	if err := w.client.Delete(t.Context(), queue("team", "")); err != nil {
		t.Fatal(err)
	}
	for _, q := range fuzzQueues() {
		w.create(t, q)
	}
	for name, value := range map[string]int32{
		keys.PriorityClassTrain: 50, keys.PriorityClassBuildPreemptible: 75, keys.PriorityClassBuild: 100, keys.PriorityClassInference: 125,
	} {
		w.create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.ReservationNamespace}})
	w.create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: keys.ReservationNamespace, Name: keys.ReservationNamespace}})
	w.create(t, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: keys.RuntimeClass}, Handler: keys.RuntimeClass})
	for _, ns := range []string{"honest", "canary"} {
		w.tell(ns)
		w.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{keys.QueueLabel: ns}}})
	}
	f := &fuzzing{fixture: w, seed: seed, skipped: map[string]int{}, memory: map[string][]tenants.Memory{}}
	f.enlist(t)
	audit := tenants.Audit{Tenants: map[string][]string{}, Honest: []string{"honest", "canary"}, Enforce: enforce, Authorize: authorize, Charge: fuzzCharge, Risk: fuzzRisk}
	for _, h := range f.hostile {
		audit.Tenants[h.Namespace] = h.Queues
	}
	f.auditor = tenants.NewAuditor(audit)
	f.observe(t)
	f.deploy(t, args)
	if dir := os.Getenv("TENANT_LOG"); dir != "" {
		file, err := os.Create(filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-")+".log"))
		if err != nil {
			t.Fatal(err)
		}
		f.log = file
		t.Cleanup(func() { file.Close() })
	}
	return f
}

// fuzzCharge is the annotation in which a bound pod carries the queue that pays for it.
const fuzzCharge = keys.ChargedAnnotation

// fuzzRisk is the reason of the event by which a PodGroup is told that its pods may lose their room although it reads otherwise.
const fuzzRisk = keys.EventRoomAtRisk

// enlist gives four tenants their rights: two may what the ClusterRole edit allows, one of them PodGroups besides, and two may
// do everything in their namespaces.
func (f *fuzzing) enlist(t *testing.T) {
	t.Helper()
	f.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "everything"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}}})
	f.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "gangs"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"scheduling.run.ai"}, Resources: []string{"podgroups"}, Verbs: []string{"*"}}}})
	for _, q := range []string{"capped", "rich"} {
		f.create(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "use-" + q}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"scheduling.run.ai"}, Resources: []string{"queues"}, ResourceNames: []string{q}, Verbs: []string{"use"}},
		}})
	}
	for _, h := range []struct {
		name   string
		roles  []string
		queues []string
	}{
		{"anna", []string{"edit"}, []string{"capped"}},
		{"boris", []string{"edit", "gangs"}, []string{"rich"}},
		{"carla", []string{"everything"}, []string{"capped", "rich"}},
		{"dmitri", []string{"everything"}, []string{"rich"}},
	} {
		f.namespace(t, h.name)
		who := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: h.name}}
		for _, role := range h.roles {
			f.create(t, &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: h.name, Name: role}, Subjects: who,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			})
		}
		for _, q := range h.queues {
			f.create(t, &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: h.name + "-" + q}, Subjects: who,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "use-" + q},
			})
		}
		config := rest.CopyConfig(f.lab.Config())
		config.Impersonate = rest.ImpersonationConfig{UserName: h.name, Groups: []string{"system:authenticated"}}
		config.WarningHandler = rest.NoWarnings{}
		c, err := client.New(config, client.Options{Scheme: f.client.Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		f.hostile = append(f.hostile, &tenants.Tenant{Name: h.name, Namespace: h.name, Queues: h.queues, Client: c})
	}
}

// observe shows the auditor all that happens.
func (f *fuzzing) observe(t *testing.T) {
	t.Helper()
	see := func(o any, deleted bool) {
		if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		f.auditor.Seen(o.(client.Object), deleted, time.Now())
	}
	for _, o := range []client.Object{&queuev2.Queue{}, &corev1.Node{}, &v2alpha2.PodGroup{}, &v1alpha2.BindRequest{}, &corev1.ConfigMap{}, &corev1.Event{}, &corev1.Pod{}} {
		i, err := f.cache.GetInformer(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		r, err := i.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) { see(o, false) }, UpdateFunc: func(_, o any) { see(o, false) }, DeleteFunc: func(o any) { see(o, true) },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = i.RemoveEventHandler(r) })
	}
	for _, o := range []client.Object{&corev1.Namespace{}, &batchv1.Job{}} { // what the fuzzer reads besides
		if _, err := f.cache.GetInformer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
}

// deploy starts the roles, each as a process of its own with the rights of its account and no more. Admission alone runs as
// the administrator, because without an operator it makes its own webhooks and policies. They do not elect leaders: a role that
// ends is to end for no other reason than what tenants wrote.
func (f *fuzzing) deploy(t *testing.T, args []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	more := map[string][]string{
		install.Binder:    {"--fake-gpu-nodes"},
		install.Scheduler: {"--max-eviction-grace=" + fuzzGrace.String()},
		install.Admission: append([]string{"--gpu-sharing-enabled", fmt.Sprintf("--webhook-addr=%d", port), fmt.Sprintf("--webhook-url=https://127.0.0.1:%d", port)}, args...),
	}
	if slices.Contains(args, "--authorize-queues") { // as an installation tells both
		more[install.PodGrouper] = []string{"--authorize-queues"}
	}
	roles, administrator := []string{install.Admission, install.Scheduler, install.Binder, install.PodGrouper, install.PodGroup, install.Queue}, f.admission(t)
	if os.Getenv("TENANT_ALL") != "" {
		roles, more["all"] = []string{install.Admission, "all"}, slices.Concat(more[install.Binder], more[install.Scheduler], more[install.PodGrouper])
	}
	for _, role := range roles {
		kubeconfig := administrator
		if role != install.Admission && role != "all" {
			kubeconfig = f.roleAccount(t, role)
		}
		p := newProcess(t, role, kubeconfig, more[role]...)
		p.start()
		f.roles = append(f.roles, p)
	}
	for _, p := range f.roles {
		p.awaitReady(t)
	}
	f.awaitAdmission(t)
}

// admission returns a kubeconfig of an administrator of its own: the role believes the user that it runs as, who must not be the one
// that the lab's controllers are, or what tenants write into templates would be believed, too.
func (f *fuzzing) admission(t *testing.T) string {
	t.Helper()
	file, err := clientcmd.LoadFromFile(f.lab.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range file.AuthInfos { // order: all of them
		who.Impersonate, who.ImpersonateGroups = "admission", []string{"system:masters"}
	}
	path := filepath.Join(t.TempDir(), "admission.kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// roleAccount makes a role's service account, with its rights, and returns a kubeconfig with its token.
func (w *fixture) roleAccount(t *testing.T, role string) string {
	t.Helper()
	may := install.Rules(role)
	path, err := w.lab.AddAccount(t.Context(), lab.Account{
		Namespace: keys.Namespace, Name: install.Name(role), Cluster: may.Cluster,
		In: map[string][]rbacv1.PolicyRule{keys.Namespace: may.Home, keys.ReservationNamespace: may.Reserved},
	})
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// fuzzer makes one of this cluster's tenants.
func (f *fuzzing) fuzzer(harmless bool) *tenants.Fuzzer {
	o := tenants.Options{
		Seed: f.seed, Tenants: f.hostile, Read: f.cache, Queues: []string{"capped", "rich", "canary", "honest"}, Honest: []string{"honest", "canary"},
		Rate: fuzzRate, Harmless: harmless, Auditor: f.auditor,
	}
	if f.log != nil {
		o.Log = f.log
	}
	return tenants.New(o)
}

// run makes the writes, and says what came of them.
func (f *fuzzing) run(t *testing.T, length time.Duration) {
	calm := f.phase(t, f.fuzzer(true), max(5*time.Second, length/6), false)
	fuzzer := f.fuzzer(false)
	f.auditor.Asks(func(words ...string) []string { return fuzzer.Last(12, words...) })
	hostile := f.phase(t, fuzzer, length, true)

	began := time.Now()
	for d := f.auditor.Equal(); d != ""; d = f.auditor.Equal() {
		if time.Since(began) > quietWithin {
			f.auditor.Blame("charge", "at rest", "not the truth when nobody writes any more, after %s: %s", quietWithin, d)
			t.Log(f.holders())
			break
		}
		f.pause(t.Context(), 200*time.Millisecond)
	}
	t.Logf("charges equalled the truth %s after the last write; %s", time.Since(began).Round(100*time.Millisecond), f.auditor.Figures())
	t.Logf("honest pods, create to bind: beside harmless writes %s; beside hostile ones %s", waits(calm), waits(hostile))
	if what := tenants.Slower(calm, hostile); what != "" && f.long {
		f.auditor.Blame("fair", "honest pods", "%s", what)
	}
	t.Logf("canaries that got their %d GPUs: %s; not owed: %v", canarySize, waits(f.canaries), f.skipped)
	f.health(t, fuzzer.Writes())
	t.Logf("seed %d\n%s", f.seed, fuzzer.Table())
	kinds := map[string]int{}
	for _, v := range f.auditor.Violations() {
		kinds[v.Kind()]++
		if kinds[v.Kind()] <= 2 {
			writes, after := fuzzer.Until(v.At)
			t.Errorf("after %s and %d writes: %s", after.Round(100*time.Millisecond), writes, v)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		t.Errorf("%d × %s", kinds[kind], kind)
	}
}

// holders says what PodGroups and Queues say that they hold, and which pods are on nodes: where a charge comes from that is not the truth.
func (f *fuzzing) holders() string {
	var b strings.Builder
	fmt.Fprintln(&b, "who says what it holds:")
	for _, q := range list(f.fixture, &queuev2.QueueList{}).Items {
		fmt.Fprintf(&b, "  Queue %s: %v, annotations %v\n", q.Name, q.Status.Allocated, q.Annotations)
	}
	for _, g := range list(f.fixture, &v2alpha2.PodGroupList{}).Items {
		if held := g.Status.ResourcesStatus.Allocated; len(held) > 0 {
			fmt.Fprintf(&b, "  PodGroup %s/%s of queue %s: %v\n", g.Namespace, g.Name, g.Spec.Queue, held)
		}
	}
	for _, p := range list(f.fixture, &corev1.PodList{}).Items {
		if p.Spec.NodeName != "" {
			fmt.Fprintf(&b, "  pod %s/%s on %s, %s, deleted %v, annotations %v, labels %v\n", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp, p.Annotations, p.Labels)
		}
	}
	return b.String()
}

// phase runs a fuzzer beside honest tenants and returns how long their pods waited.
func (f *fuzzing) phase(t *testing.T, fuzzer *tenants.Fuzzer, length time.Duration, canaries bool) []time.Duration {
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	f.binds = nil
	var all sync.WaitGroup
	all.Go(func() { fuzzer.Run(ctx) })
	all.Go(func() { f.honest(ctx) })
	if canaries {
		all.Go(func() { f.sing(ctx) })
		all.Go(func() {
			told := 0
			for n := 1; f.pause(ctx, time.Minute); n++ {
				for _, v := range f.auditor.Violations()[told:] { // whole at the end
					t.Logf("%.300s", v)
					told++
				}
				f.mu.Lock()
				waited, sung := slices.Clone(f.binds), len(f.canaries)
				f.mu.Unlock()
				t.Logf("%d min: %d writes, %d violations, %d canaries, honest pods %s; %s", n, fuzzer.Writes(), len(f.auditor.Violations()), sung, waits(waited), f.memories(t))
			}
		})
	}
	all.Go(func() {
		for f.pause(ctx, time.Second) {
			f.auditor.Check(time.Now())
		}
	})
	all.Wait()
	return f.binds
}

// pause waits, and says whether ctx goes on.
func (f *fuzzing) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// honest submits a pod that needs little, again and again, and keeps account of how long each waits for its node.
func (f *fuzzing) honest(ctx context.Context) {
	for n := 0; f.pause(ctx, 300*time.Millisecond); n++ {
		p := fractionPod("honest", "", map[string]string{})
		p.GenerateName, p.Labels = "pod-", map[string]string{keys.QueueLabel: "honest"}
		p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
		since := time.Now()
		if err := f.client.Create(ctx, p); err != nil {
			if ctx.Err() == nil {
				f.auditor.Blame("honest", "pods", "an honest pod is refused: %v", err)
			}
			continue
		}
		bound := false
		for !bound && f.pause(ctx, 5*time.Millisecond) {
			var now corev1.Pod
			bound = f.cache.Get(ctx, client.ObjectKeyFromObject(p), &now) == nil && now.Spec.NodeName != ""
		}
		waited := time.Since(since)
		if bound || waited > time.Second { // who waits still when all is over has waited, too
			f.mu.Lock()
			f.binds = append(f.binds, waited)
			f.mu.Unlock()
		}
		if waited > canaryPatience {
			f.auditor.Blame("fair", "honest/"+p.Name, "it waited %s for room that there is (bound: %t)", waited.Round(time.Second), bound)
		}
		_ = f.client.Delete(context.WithoutCancel(ctx), p)
	}
}

// sing submits a gang that is owed its room, again and again.
func (f *fuzzing) sing(ctx context.Context) {
	for n := 0; f.pause(ctx, 4*time.Second); n++ {
		j := gang("canary", fmt.Sprintf("canary-%d", n), canarySize, "")
		j.Labels[keys.QueueLabel], j.Spec.Template.Labels[keys.QueueLabel] = "canary", "canary"
		size, owed := canarySize, func() string {
			why, _ := f.auditor.Owed("canary", canarySize)
			return why
		}
		if n%2 == 1 { // a whole node
			size = 1
			j.Spec.Parallelism, j.Spec.Completions, j.Annotations = ptr.To[int32](1), ptr.To[int32](1), nil
			j.Spec.Template.Spec.Containers[0].Resources.Limits[lab.GPUResource] = *resource.NewQuantity(canarySize, resource.DecimalSI)
			enough := owed
			owed = func() string {
				if why := enough(); why != "" || f.auditor.OwedNode("canary") != "" {
					return why
				}
				return "no whole node is to be had"
			}
		}
		if err := f.client.Create(ctx, j); err != nil {
			if ctx.Err() == nil {
				f.auditor.Blame("honest", "canary", "an honest Job is refused: %v", err)
			}
			continue
		}
		began := time.Now()
		unowed, why := began, ""
		bound := 0
		over := context.WithoutCancel(ctx) // who asked in time is served in time
		for f.pause(over, 100*time.Millisecond) {
			if bound = f.bound("canary"); bound == size {
				f.mu.Lock()
				f.canaries = append(f.canaries, time.Since(began))
				f.mu.Unlock()
				break
			}
			if w := owed(); w != "" {
				unowed, why = time.Now(), w
			}
			if waited := time.Since(unowed); waited > canaryPatience {
				f.auditor.Starved("canary/"+j.Name, waited, f.told("canary"), time.Now())
				break
			}
			if time.Since(began) > 3*canaryPatience {
				f.mu.Lock()
				f.skipped[why]++
				f.mu.Unlock()
				break
			}
		}
		_ = f.client.Delete(over, j, client.PropagationPolicy(metav1.DeletePropagationBackground))
		_ = f.client.DeleteAllOf(over, &corev1.Pod{}, client.InNamespace("canary"))
		for len(f.pods("canary")) > 0 && f.pause(ctx, 50*time.Millisecond) {
		}
	}
}

// told is what waiting gangs of a namespace are told.
func (f *fuzzing) told(namespace string) string {
	var out []string
	for _, g := range list(f.fixture, &v2alpha2.PodGroupList{}, client.InNamespace(namespace)).Items {
		for _, c := range g.Status.SchedulingConditions {
			out = append(out, c.Message)
		}
	}
	return strings.Join(out, "; ")
}

// health looks at the processes, and at what they left.
func (f *fuzzing) health(t *testing.T, writes int) {
	t.Log(f.memories(t))
	for _, p := range f.roles {
		if p.started != 1 || !p.running() {
			f.auditor.Blame("alive", p.role, "it has ended: %v", p.exit())
			continue
		}
		if what := tenants.Unbounded(f.memory[p.role]); what != "" {
			f.auditor.Blame("memory", p.role, "%s", what)
		}
		text, err := os.ReadFile(p.log)
		if err != nil {
			t.Error(err)
		}
		if what := tenants.Complaint(string(text)); what != "" {
			f.auditor.Blame("alive", p.role, "it says: %s", what)
		}
	}
	if what := tenants.Flood(len(list(f.fixture, &corev1.EventList{}).Items), writes); what != "" {
		f.auditor.Blame("events", "events", "%s", what)
	}
}

// memories takes note of what each role holds, and says it.
func (f *fuzzing) memories(t *testing.T) string {
	var out []string
	for _, p := range f.roles {
		if p.running() {
			is := tenants.Memory{Now: resident(t, p, "VmRSS"), Most: resident(t, p, "VmHWM")}
			f.memory[p.role] = append(f.memory[p.role], is)
			out = append(out, fmt.Sprintf("%s %d/%d", p.role, is.Now, is.Most))
		}
	}
	return "MiB now/most: " + strings.Join(out, ", ")
}

// waits says how long some waited.
func waits(ds []time.Duration) string {
	if len(ds) == 0 {
		return "none"
	}
	s := slices.Sorted(slices.Values(ds))
	at := func(percent int) time.Duration { return s[(len(s)-1)*percent/100].Round(10 * time.Millisecond) }
	return fmt.Sprintf("%d, median %v, p95 %v, worst %v", len(s), at(50), at(95), at(100))
}
