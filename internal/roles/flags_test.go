package roles

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/muster-scheduler/muster/docs/ledgers"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/controllers/admission"
	vcreview "github.com/muster-scheduler/muster/internal/controllers/admission/volcano"
	"github.com/muster-scheduler/muster/internal/controllers/nodescale"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/kube/apply"
)

// same says whether two spellings of a default mean the same: 2m and 2m0s, x and [x].
func same(a, b string) bool {
	x, err1 := time.ParseDuration(a)
	y, err2 := time.ParseDuration(b)
	return a == b || err1 == nil && err2 == nil && x == y || strings.Trim(a, "[]") == strings.Trim(b, "[]")
}

// TestKAIsFlags: each role takes every flag of KAI's program, with KAI's default, and all roles together take all of them.
func TestKAIsFlags(t *testing.T) {
	t.Parallel()
	run := Command("v")
	for _, r := range table() {
		role := r.name
		if r.kai == "" {
			continue // it is no program of KAI's: TestVolcanoFlags
		}
		rows, err := ledgers.Flags(r.kai)
		if err != nil {
			t.Fatal(err)
		}
		commands := []string{role, All}
		if r.apart {
			commands = []string{role}
		}
		for _, name := range commands {
			c, _, err := run.Find([]string{name})
			if err != nil || c.Name() != name {
				t.Fatalf("no command %s: %v", name, err)
			}
			for flag, row := range rows {
				f := c.Flags().Lookup(flag)
				if f == nil {
					t.Errorf("%s does not take --%s", name, flag)
					continue
				}
				if !same(f.DefValue, row.Default) {
					t.Errorf("%s --%s: default %q, KAI's is %q", name, flag, f.DefValue, row.Default)
				}
				if row.Honoured != "" && f.Hidden {
					t.Errorf("%s --%s: the ledger says that it is honoured, but nothing reads it", name, flag)
				}
			}
		}
	}
}

// TestFlagsAreParsed: by cobra, as a user gives them.
func TestFlagsAreParsed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"binder", "--qp=1"}, "binder has no flag --qp; did you mean --qps?"},
		{[]string{"all", "--unheard-of"}, "all has no flag --unheard-of"},
		{[]string{"queue", "--schedule-period=1s"}, "queue has no flag --schedule-period"},
		{[]string{"binder", "extra"}, `unknown command "extra"`},
		{[]string{"scheduler", "--scheduler-name="}, "--scheduler-name: at least one name"},
		{[]string{"scheduler", "--volcano-scheduler-name=kai-scheduler"}, "--volcano-scheduler-name: \"kai-scheduler\" must be a name, and none of --scheduler-name"},
		{[]string{"scheduler", "--kube-batch-scheduler-name=kai-scheduler"}, "--kube-batch-scheduler-name: \"kai-scheduler\" must be a name, and none of --scheduler-name and --volcano-scheduler-name"},
		{[]string{"scheduler", "--volcano-scheduler-name=x", "--kube-batch-scheduler-name=x"}, "--kube-batch-scheduler-name: \"x\" must be a name"},
		{[]string{"scheduler", "--kube-batch-scheduler-conf=/x"}, "--kube-batch-scheduler-conf: there are no gangs of kube-batch's without --kube-batch-scheduler-name"},
		{[]string{"scheduler", "--kube-batch-scheduler-name=x", "--kube-batch-scheduler-conf=/nowhere/at-all", "--kubeconfig=" + newPlane(t, true).kubeconfig()}, "role scheduler: --kube-batch-scheduler-conf: "},
		{[]string{"scheduler", "--scheduler-conf=/nowhere/at-all", "--kubeconfig=" + newPlane(t, true).kubeconfig()}, "role scheduler: --scheduler-conf: open /nowhere/at-all"},
		{[]string{"podgrouper", "--pod-label-selector=x", "--kubeconfig=" + newPlane(t, true).kubeconfig()}, `role podgrouper: --pod-label-selector: "x" is not of the form`},
		{[]string{"binder", "--max-concurrent-reconciles=0", "--kubeconfig=" + newPlane(t, true).kubeconfig()}, "role binder: binder: max-concurrent-reconciles is 0"},
		{[]string{"janitor"}, `unknown command "janitor"`},
	} {
		root := &cobra.Command{Use: "muster", SilenceErrors: true, SilenceUsage: true}
		run := Command("v")
		for _, c := range run.Commands() {
			role := c.Name()
			c.RunE = func(c *cobra.Command, _ []string) error { // as the command does, but without taking over the process's logs
				s, err := tryParse(role, tc.args[1:]...)
				if err != nil {
					return err
				}
				_, err = newProcess(roleNames(role), s, "v", logr.Discard())
				return err
			}
		}
		root.AddCommand(run)
		root.SetArgs(append([]string{"run"}, tc.args...))
		root.SetOut(new(bytes.Buffer))
		root.SetErr(new(bytes.Buffer))
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: got %v, want %q", tc.args, err, tc.want)
		}
	}
}

// TestSharedFlags: one process, one value: whichever role's flag says it.
func TestSharedFlags(t *testing.T) {
	t.Parallel()
	s := parse(t, All, "--metrics-bind-address=:9", "--scheduler-name=a,b", "--scheduler-name=c", "--max-concurrent-reconciles=3", "--qps=7", "--zap-log-level=4", "--nodepool-label-key=pool")
	po, err := s.podgrouper()
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"a", "b", "c"}
	if s.Listen != ":9" || s.ProbeListen != ":8081" || s.Client.QPS != 7 || s.Client.Burst != 300 || s.Log.Verbosity != 4 {
		t.Errorf("%+v", s)
	}
	for role, got := range map[string][]string{Scheduler: s.feed().SchedulerNames, PodGrouper: po.SchedulerNames, PodGroup: s.podgroup().SchedulerNames} {
		if d := cmp.Diff(names, got); d != "" {
			t.Errorf("%s: %s", role, d)
		}
	}
	if po.NodePoolLabel != "pool" || s.feed().Partition.Key != "pool" {
		t.Error("the node pool's key does not reach both roles")
	}
}

// TestEveryFlagReachesItsRole: a value other than the default changes what the role is given.
func TestEveryFlagReachesItsRole(t *testing.T) {
	t.Parallel()
	given := func(role string, args ...string) any {
		s := parse(t, role, args...)
		switch role {
		case Scheduler:
			o, err := s.statusOptions()
			if err != nil {
				t.Fatal(err)
			}
			return []any{s.feed(), s.loop(), o}
		case Binder:
			o, err := s.binder()
			if err != nil {
				t.Fatal(err)
			}
			devices, err := s.reservation(o.Plugins)
			if err != nil {
				t.Fatal(err)
			}
			return []any{o, devices}
		case PodGrouper:
			o, err := s.podgrouper()
			if err != nil {
				t.Fatal(err)
			}
			return o
		case PodGroup:
			return s.podgroup()
		}
		return s.queue()
	}
	for role, args := range map[string][]string{
		Scheduler: {
			"--scheduler-name=x", "--schedule-period=2s", "--stuck-in-releasing-threshold=1m", "--nodepool-label-key=x", "--partition-label-value=x",
			"--resource-reservation-app-label=x", "--restrict-node-scheduling", "--cpu-worker-node-label-key=x", "--gpu-worker-node-label-key=x",
			"--mig-worker-node-label-key=x", "--queue-label-key=x",
			"--schedule-csi-storage", "--full-hierarchy-fairness=false", "--detailed-fit-errors", "--unschedulable-reason=always",
			"--volcano-scheduler-name=x", "--kube-batch-scheduler-name=x",
		},
		Binder: {
			"--max-concurrent-reconciles=3", "--rate-limiter-base-delay=2", "--rate-limiter-max-delay=9",
			"--resource-reservation-namespace=x", "--resource-reservation-service-account=x", "--resource-reservation-app-label=x",
			"--resource-reservation-pod-image=x", "--resource-reservation-allocation-timeout=3", "--runtime-class-name=x", "--fake-gpu-nodes",
			"--resource-reservation-pod-resources={}", "--resource-reservation-pod-security-context={}",
			"--resource-reservation-container-security-context={}", "--scale-adjust-namespace=x", `--plugins={"hamicore":{"enabled":true}}`,
			`--plugins={"gpusharing":{"arguments":{"cdiEnabled":"true"}}}`, `--plugins={"volumebinding":{"arguments":{"bindTimeoutSeconds":"300"}}}`,
		},
		PodGrouper: {
			"--scheduler-name=x", "--max-concurrent-reconciles=3", "--queue-label-key=x", "--nodepool-label-key=x", "--search-legacy-pg=false",
			"--knative-gang-schedule=false", "--generic-karta-fallback=false",
			"--default-priorities-configmap-name=x", "--default-priorities-configmap-namespace=x", "--pod-label-selector=a=b", "--namespace-label-selector=a=b",
		},
		PodGroup: {"--scheduler-name=x", "--max-concurrent-reconciles=3"},
		Queue:    {"--metrics-namespace=x", "--queue-label-to-metric-label=a=b", "--queue-label-to-default-metric-value=a=b"},
	} {
		usual := given(role)
		for _, arg := range args {
			if reflect.DeepEqual(usual, given(role, arg)) {
				t.Errorf("%s %s changes nothing", role, arg)
			}
		}
	}
}

// TestBinderConcurrency, and those below: the flags of the controllers, each with the value it takes there.
func TestBinderConcurrency(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]int{"10": 10, "3": 3} {
		if got, err := parse(t, Binder, "--max-concurrent-reconciles="+arg).binder(); err != nil || got.MaxConcurrentReconciles != want {
			t.Errorf("%s: %d, %v", arg, got.MaxConcurrentReconciles, err)
		}
	}
}

// TestBinderRetryDelays: seconds on the command line.
func TestBinderRetryDelays(t *testing.T) {
	t.Parallel()
	o, err := parse(t, Binder, "--rate-limiter-base-delay=2", "--rate-limiter-max-delay=90").binder()
	if err != nil || o.RateLimiterBaseDelay != 2*time.Second || o.RateLimiterMaxDelay != 90*time.Second {
		t.Errorf("%+v", o)
	}
}

// TestPodGrouperConcurrency: the number of pods worked on at a time.
func TestPodGrouperConcurrency(t *testing.T) {
	t.Parallel()
	if o, err := parse(t, PodGrouper, "--max-concurrent-reconciles=3").podgrouper(); err != nil || o.Workers != 3 {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestPodGroupConcurrency: the number of statuses written at a time.
func TestPodGroupConcurrency(t *testing.T) {
	t.Parallel()
	if o := parse(t, PodGroup, "--max-concurrent-reconciles=3").podgroup(); o.MaxConcurrentReconciles != 3 {
		t.Errorf("%+v", o)
	}
}

// TestPodGrouperSelectors: "k=v,k=v".
func TestPodGrouperSelectors(t *testing.T) {
	t.Parallel()
	o, err := parse(t, PodGrouper, "--pod-label-selector=a=b, c=d", "--namespace-label-selector=e=").podgrouper()
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]map[string]string{{"a": "b", "c": "d"}, {"e": ""}}, []map[string]string{o.PodSelector, o.NamespaceSelector}); d != "" {
		t.Error(d)
	}
}

// TestClientLimits: --qps and --burst bound every client of every role.
func TestClientLimits(t *testing.T) {
	t.Parallel()
	file := newPlane(t, true).kubeconfig()
	for _, role := range everyRole() {
		for _, want := range []struct {
			args  []string
			qps   float32
			burst int
		}{{nil, 50, 300}, {[]string{"--qps=7.5", "--burst=9"}, 7.5, 9}} {
			p, err := newProcess(roleNames(role), parse(t, role, append(want.args, "--kubeconfig="+file)...), "v", logr.Discard())
			if err != nil {
				t.Fatal(err)
			}
			if p.config.QPS != want.qps || p.config.Burst != want.burst {
				t.Errorf("%s %q: %v requests a second, %d at once", role, want.args, p.config.QPS, p.config.Burst)
			}
		}
	}
}

// TestKubeconfigFlag: the server is the one of the file.
func TestKubeconfigFlag(t *testing.T) {
	t.Parallel()
	for _, role := range everyRole() {
		server := newPlane(t, true)
		p, err := newProcess(roleNames(role), parse(t, role, "--kubeconfig="+server.kubeconfig()), "v1", logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		if p.config.Host != server.URL || p.config.UserAgent != "muster/v1" {
			t.Errorf("%s talks to %s as %s", role, p.config.Host, p.config.UserAgent)
		}
		if _, err := newProcess(roleNames(role), parse(t, role, "--kubeconfig=/nowhere/at-all"), "v", logr.Discard()); err == nil {
			t.Errorf("%s took a file that is not there", role)
		}
	}
}

// logged is what a role's logger makes of a line of each level.
func logged(t *testing.T, role string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	log, err := app.Logger(&out, parse(t, role, args...).Log)
	if err != nil {
		t.Fatal(err)
	}
	for v := range 6 {
		log.V(v).Info("line", "v", v)
	}
	return out.String()
}

// TestLogVerbosity: --v is the highest level that is written.
func TestLogVerbosity(t *testing.T) {
	t.Parallel()
	for _, role := range []string{Scheduler, All} {
		for arg, want := range map[string]int{"--v=0": 1, "--v=3": 4, "--v=5": 6, "--version": 4} {
			if got := strings.Count(logged(t, role, arg), "\n"); got != want {
				t.Errorf("%s %s: %d lines, want %d", role, arg, got, want)
			}
		}
	}
}

// TestLogJSON: --log-json makes every line an object.
func TestLogJSON(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]bool{"--log-json": true, "--log-json=false": false} {
		if got := strings.HasPrefix(logged(t, Scheduler, arg), "{"); got != want {
			t.Errorf("%s: JSON %t", arg, got)
		}
	}
}

// TestConfigFile: --scheduler-conf names a file in KAI's format.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	for text, want := range map[string]string{
		`{actions: "allocate", tiers: [{plugins: [{name: predicates}, {name: priority}]}]}`: "",
		`{actions: "allocate, dance"}`: "dance",
		`{actoins: "allocate"}`:        "actoins",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := parse(t, Scheduler, "--scheduler-conf="+file, "--kubeconfig="+newPlane(t, true).kubeconfig())
		_, err := newProcess([]string{Scheduler}, s, "v", logr.Discard())
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
		if want == "" {
			if p, err := s.profile(); err != nil || !slices.Equal(p.Actions, []string{"allocate"}) || len(p.Tiers[0]) != 3 { // the budgets come by themselves
				t.Errorf("%+v, %v", p, err)
			}
		}
	}
}

// TestUnknownPlugin: a scheduler whose configuration names a plugin that it does not have goes on without it, as KAI's does, says so with what
// was probably meant, and shows it in a metric.
func TestUnknownPlugin(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(`{actions: "allocate", tiers: [{plugins: [{name: predicates}, {name: priorty}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	p, err := newProcess([]string{Scheduler}, parse(t, Scheduler, "--scheduler-conf="+file, "--kubeconfig="+newPlane(t, true).kubeconfig()), "v", log)
	if err != nil {
		t.Fatal(err)
	}
	const want = "tiers[0].plugins.priorty is the name of no plugin; the nearest that is known is priority"
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
		t.Errorf("no line says %s: %q", want, lines)
	}
	if err := testutil.GatherAndCompare(p.registry, strings.NewReader(`
# HELP muster_profile_unknown_plugins Plugins of the scheduler's configuration that it does not know and leaves out.
# TYPE muster_profile_unknown_plugins gauge
muster_profile_unknown_plugins 1
`), "muster_profile_unknown_plugins"); err != nil {
		t.Error(err)
	}
	prof := p.recorder.Profile()
	if prof.Uses("priorty") || !prof.Uses("predicates") {
		t.Errorf("the recorder has another profile: %+v", prof)
	}
}

func TestHome(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "namespace")
	if err := os.WriteFile(file, []byte("pods-own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := func(string) (string, bool) { return "told", true }
	unset := func(string) (string, bool) { return "", false }
	for i, tc := range []struct {
		lookup     func(string) (string, bool)
		file, want string
	}{{set, file, "told"}, {unset, file, "pods-own"}, {unset, "/nowhere/at-all", "kai-scheduler"}} {
		if got := home(tc.lookup, tc.file); got != tc.want {
			t.Errorf("%d: %s, want %s", i, got, tc.want)
		}
	}
}

// TestShardPool: the shard's value is its name in scheduling conditions.
func TestShardPool(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"": kai.DefaultPool, "gold": "gold"} {
		if got, err := parse(t, Scheduler, "--partition-label-value="+value).statusOptions(); err != nil || got.Pool != want {
			t.Errorf("%q: pool %s, %v", value, got.Pool, err)
		}
	}
}

// TestSettingsAreRead: no field of Settings is there for nothing.
func TestSettingsAreRead(t *testing.T) {
	t.Parallel()
	fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
	s := &Settings{}
	for _, role := range slices.Concat(Names(), Apart()) {
		if err := s.flags(role, fs); err != nil {
			t.Fatal(err)
		}
	}
	var text strings.Builder
	for _, file := range []string{"options.go", "run.go", "scheduler.go", "ports.go", "table.go", "volcano.go", "volcanoshards.go", "kubebatch.go", "cycles.go", "ui.go"} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(content)
	}
	settings := reflect.TypeOf(*s)
	for i := range settings.NumField() {
		name := settings.Field(i).Name
		if !strings.Contains(text.String(), "s."+name) && !strings.Contains(text.String(), "p."+name) {
			t.Errorf("nothing reads Settings.%s", name)
		}
	}
}

// TestPodGroups: gangs that need one have a PodGroup, unless the flag asks for one for each.
func TestPodGroups(t *testing.T) {
	t.Parallel()
	for flag, own := range map[string]bool{"needed": true, "all": false} {
		if o, err := parse(t, PodGrouper, "--podgroups="+flag).podgrouper(); err != nil || o.OwnGangs != own {
			t.Errorf("--podgroups=%s: %+v, %v", flag, o, err)
		}
	}
	if o, err := parse(t, PodGrouper).podgrouper(); err != nil || !o.OwnGangs {
		t.Errorf("the default: %+v, %v", o, err)
	}
	if _, err := parse(t, PodGrouper, "--podgroups=none").podgrouper(); err == nil || !strings.Contains(err.Error(), `"none" is neither needed nor all`) {
		t.Error(err)
	}
}

// TestBindRequests: pods that stand alone are bound by the scheduler, unless the flag asks for BindRequests of all.
func TestBindRequests(t *testing.T) {
	t.Parallel()
	for flag, alone := range map[string]bool{"needed": true, "all": false} {
		if o, err := parse(t, Scheduler, "--bind-requests="+flag).binds(); err != nil || o.Alone != alone {
			t.Errorf("--bind-requests=%s: %+v, %v", flag, o, err)
		}
	}
	if o, err := parse(t, Scheduler).binds(); err != nil || !o.Alone {
		t.Errorf("the default: %+v, %v", o, err)
	}
	if _, err := parse(t, Scheduler, "--bind-requests=none").binds(); err == nil || !strings.Contains(err.Error(), `"none" is neither needed nor all`) {
		t.Error(err)
	}
}

// TestDisruptionFlags: the flags that rule evictions reach the engine and whoever carries them out.
func TestDisruptionFlags(t *testing.T) {
	t.Parallel()
	settings := func(args ...string) engine.Settings {
		p, err := parse(t, Scheduler, args...).profile()
		if err != nil {
			t.Fatal(err)
		}
		return p.Settings
	}
	usual := settings()
	if d := cmp.Diff(engine.DefaultSettings(), engine.Settings{ConsolidationVictims: usual.ConsolidationVictims, MovedAreFree: usual.MovedAreFree, StaleGrace: usual.StaleGrace, SearchSteps: usual.SearchSteps}); d != "" {
		t.Errorf("the defaults: %s", d)
	}
	got := settings("--max-consolidation-preemptees=-1", "--allow-consolidating-reclaim=false", "--default-staleness-grace-period=-1s")
	if got.ConsolidationVictims != -1 || got.MovedAreFree || got.StaleGrace != -time.Second {
		t.Errorf("%+v", got)
	}
	o, err := parse(t, Scheduler, "--eviction-mode=delete", "--update-pod-eviction-condition", "--max-eviction-grace=90s").evictions()
	if err != nil || o.Mode != apply.ByDelete || !o.Mark || o.MaxGrace != 90*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse(t, Scheduler).evictions(); err != nil || o.Mode != apply.ByEviction || o.Mark || o.MaxGrace != time.Hour {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"-1s", "10ms"} {
		if _, err := parse(t, Scheduler, "--max-eviction-grace="+bad).evictions(); err == nil || !strings.Contains(err.Error(), "must be 0 or at least a second") {
			t.Error(err)
		}
	}
	for flag, want := range map[string]apply.Unschedulable{"": apply.UnschedulableAuto, "always": apply.UnschedulableAlways, "if-nodes-help": apply.UnschedulableIfNodesHelp} {
		var args []string
		if flag != "" {
			args = append(args, "--unschedulable-reason="+flag)
		}
		if o, err := parse(t, Scheduler, args...).statusOptions(); err != nil || o.Unschedulable != want {
			t.Errorf("--unschedulable-reason=%s: %+v, %v", flag, o, err)
		}
	}
	if _, err := parse(t, Scheduler, "--unschedulable-reason=never").statusOptions(); err == nil || !strings.Contains(err.Error(), `"never" is neither auto nor always nor if-nodes-help`) {
		t.Error(err)
	}
	if _, err := parse(t, Scheduler, "--eviction-mode=shoot").evictions(); err == nil || !strings.Contains(err.Error(), `"shoot" is neither eviction nor delete`) {
		t.Error(err)
	}
}

// TestAdmissionFlags: they reach the rules by which pods are judged, and the objects that the role keeps.
func TestAdmissionFlags(t *testing.T) {
	t.Parallel()
	want := admission.DefaultOptions()
	given := func(args ...string) admission.Options {
		o, err := parse(t, Admission, args...).admission()
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	if d := cmp.Diff(want, given()); d != "" {
		t.Errorf("the defaults: %s", d)
	}
	want = admission.Options{
		Rules:     admission.Rules{SchedulerNames: []string{"a", "b"}, GPUSharing: true, MemoryLimits: true, GuardDevices: true, RuntimeClass: "r", Quotas: true, Volcano: []string{"volcano", "v"}, VolcanoQueues: vcreview.QueueRules{MaxDepth: 7, KeepBusy: true}},
		Namespace: "n", Port: 1, URL: "https://u:1", Secret: "s", Mutating: "m", Validating: "v", QueueWebhook: "qw", PodGroupWebhook: "gw",
		PodSelector: map[string]string{"p": "1"}, NamespaceSelector: map[string]string{"q": "2"}, QueueLabelSelector: true, QueueLabel: "ql",
		ReservationApp: "ra", Identity: admission.Enforce, Trusted: []string{"x", "y"}, TrustedNamespaces: []string{"rn"}, AuthorizeQueues: true, KAINames: true, ClientCA: "ca.pem",
	}
	got := given("--scheduler-name=a,b", "--gpu-sharing-enabled", "--hami-core-enabled", "--block-nvidia-visible-devices", "--gpu-fraction-runtime-class-name=r",
		"--namespace=n", "--webhook-addr=1", "--webhook-url=https://u:1", "--webhook-secret=s", "--mutating-webhook-configuration=m", "--validating-webhook-configuration=v",
		"--enable-quota-validation", "--queue-webhook-configuration=qw", "--podgroup-webhook-configuration=gw", "--pod-label-selector=p=1", "--namespace-label-selector=q=2",
		"--queue-label-selector", "--queue-label-key=ql", "--resource-reservation-app-label=ra", "--resource-reservation-namespace=rn",
		"--identity=enforce", "--trusted-users=x,y", "--authorize-queues", "--kai-names", "--webhook-client-ca-file=ca.pem",
		"--volcano-scheduler-name=volcano,v", "--max-queue-depth=7", "--enable-root-queue-protection=false", "--enable-queue-allocated-pods-check")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if got := given("--enable-webhook=false", "--enable-podgroup-webhook=false"); got.QueueWebhook != "" || got.PodGroupWebhook != "" {
		t.Errorf("webhooks that are switched off: %q, %q", got.QueueWebhook, got.PodGroupWebhook)
	}
}

// TestRuntimeClassFlags: the newer flag has precedence over the older if it is given, even if it is empty.
func TestRuntimeClassFlags(t *testing.T) {
	t.Parallel()
	const newer, older = "--gpu-fraction-runtime-class-name=", "--gpu-pod-runtime-class-name="
	for want, rows := range map[string][][]string{
		"nvidia": {{}, {newer + "nvidia"}, {older + "nvidia"}, {older + "x", newer + "nvidia"}},
		"x":      {{newer + "x"}, {older + "x"}, {newer + "x", older + "y"}, {older + "y", newer + "x"}},
		"":       {{newer}, {older}, {newer, older + "y"}},
	} {
		for _, args := range rows {
			o, err := parse(t, Admission, args...).admission()
			if err != nil {
				t.Fatal(err)
			}
			if got := o.RuntimeClass; got != want {
				t.Errorf("%q: %q, want %q", args, got, want)
			}
		}
	}
}

// TestAutoscaled: that nodes are bought is known by Karpenter's kinds, and by showing demand oneself; an API server that does not
// answer may have them.
func TestAutoscaled(t *testing.T) {
	t.Parallel()
	asks := func(server *plane, names ...string) bool {
		t.Helper()
		p, err := newProcess(names, parse(t, All, quiet(All, "--kubeconfig="+server.kubeconfig())...), "v", logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		return p.autoscaled()
	}
	plain, bought, gone := newPlane(t, true), newPlane(t, true), newPlane(t, true)
	bought.groups[schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}] = []metav1.APIResource{{Name: "nodepools", Kind: "NodePool", Verbs: metav1.Verbs{"get"}}}
	gone.Close()
	for what, c := range map[string]struct {
		server *plane
		names  []string
		want   bool
	}{
		"nothing":   {plain, []string{Scheduler}, false},
		"karpenter": {bought, []string{Scheduler}, true},
		"nodescale": {plain, []string{Scheduler, NodeScale}, true},
		"no answer": {gone, []string{Scheduler}, true},
	} {
		if got := asks(c.server, c.names...); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestNodeScaleFlags: they reach the options by which nodes are asked for.
func TestNodeScaleFlags(t *testing.T) {
	t.Parallel()
	if d := cmp.Diff(nodescale.DefaultOptions(), parse(t, NodeScale).nodescale()); d != "" {
		t.Errorf("without flags: %s", d)
	}
	got := parse(t, NodeScale, "--scheduler-name=a,b", "--scaling-pod-image=i", "--scale-adjust-namespace=n", "--scaling-pod-app-label=l",
		"--scaling-pod-service-account=s", "--gpu-memory-to-fraction-ratio=0.5", "--nodepool-label-key=p").nodescale()
	want := nodescale.Options{SchedulerNames: []string{"a", "b"}, Namespace: "n", App: "l", ServiceAccount: "s", Image: "i", MemoryRatio: 0.5, NodePoolLabel: "p"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, flag := range []string{"scale-adjust-namespace=A_b", "gpu-memory-to-fraction-ratio=2", "scaling-pod-app-label=a b"} {
		name, _, _ := strings.Cut(flag, "=")
		s := parse(t, NodeScale, "--kubeconfig="+newPlane(t, true).kubeconfig(), "--"+flag)
		if _, err := newProcess([]string{NodeScale}, s, "v", logr.Discard()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("--%s: %v", flag, err)
		}
	}
}

// TestNodeScaleBesideOthers: with all roles in one process it runs only if asked for.
func TestNodeScaleBesideOthers(t *testing.T) {
	t.Parallel()
	for _, on := range []bool{false, true} {
		args := []string{"--kubeconfig=" + newPlane(t, true).kubeconfig()}
		if on {
			args = append(args, "--nodescale")
		}
		p, err := newProcess(Names(), parse(t, All, args...), "v", logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		families, err := p.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		there := false
		for _, f := range families {
			there = there || f.GetName() == "muster_scaling_pods"
		}
		if there != on {
			t.Errorf("--nodescale=%v: there %v", on, there)
		}
	}
}
