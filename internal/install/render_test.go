package install

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// golden is one testdata/*.txtar: a Config and shards, and what they are rendered to.
type golden struct {
	config  kaiv1.Config
	shards  []kaiv1.SchedulingShard
	env     Environment
	archive *txtar.Archive
	file    string
}

func read(t *testing.T, file string) *golden {
	t.Helper()
	a, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{archive: a, file: file, env: testEnvironment()}
	for _, f := range a.Files {
		switch {
		case f.Name == "config.yaml":
			err = yaml.UnmarshalStrict(f.Data, &g.config)
		case f.Name == "foreign":
			for _, kind := range strings.Fields(string(f.Data)) {
				g.env.Kinds[schema.ParseGroupKind(kind)] = true
			}
		case strings.HasPrefix(f.Name, "shard"):
			var s kaiv1.SchedulingShard
			err = yaml.UnmarshalStrict(f.Data, &s)
			g.shards = append(g.shards, s)
		case strings.HasPrefix(f.Name, "want"):
		default:
			t.Fatalf("%s: what is %s?", file, f.Name)
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", file, f.Name, err)
		}
	}
	return g
}

func testEnvironment() Environment {
	return Environment{
		Repository: "registry.example/muster", Tag: "v1", Kinds: map[schema.GroupKind]bool{},
		SchedulerFlags: []string{"v", "schedule-period", "leader-elect", "listen-address", "detailed-fit-errors", "kube-batch-scheduler-name"},
	}
}

// TestKAINames: with KAI's names, what monitors, network policies, rights and scripts go by is called as KAI has it, and everything that
// refers to it follows.
func TestKAINames(t *testing.T) {
	t.Parallel()
	config := &kaiv1.Config{ObjectMeta: metav1.ObjectMeta{Name: kaiv1.ConfigName, Annotations: map[string]string{AnnotationKAINames: "true"}}}
	shards := []kaiv1.SchedulingShard{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}}
	objects, warnings, err := Render(config, shards, testEnvironment())
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	var deployments, accounts, services []string
	named := map[string]bool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *corev1.ServiceAccount:
			if o.Namespace == "kai-scheduler" {
				accounts = append(accounts, o.Name)
			}
			named[o.Name] = true
		case *corev1.Service:
			services = append(services, o.Name)
		case *appsv1.Deployment:
			deployments = append(deployments, o.Name)
			if pod := o.Spec.Template; o.Labels[LabelManagedBy] != "kai-operator" || pod.Labels[LabelApp] != o.Name || !named[pod.Spec.ServiceAccountName] {
				t.Errorf("%s: managed by %s, pods labelled %s with account %s", o.Name, o.Labels[LabelManagedBy], pod.Labels[LabelApp], pod.Spec.ServiceAccountName)
			}
		case *rbacv1.ClusterRoleBinding:
			if !strings.HasPrefix(o.Name, "muster-") || !named[o.Subjects[0].Name] {
				t.Errorf("%s binds %s", o.Name, o.Subjects[0].Name)
			}
		case *admissionregv1.ValidatingAdmissionPolicy:
			for _, c := range o.Spec.MatchConditions {
				if strings.Contains(c.Expression, ":muster-") && !strings.Contains(c.Expression, ":muster-operator") {
					t.Errorf("policy %s is about an account that is not there: %s", o.Name, c.Expression)
				}
			}
		}
	}
	for what, c := range map[string][2][]string{
		"Deployments": {deployments, {"admission", "binder", "kai-scheduler-default", "node-scale-adjuster", "pod-grouper", "podgroup-controller", "queue-controller"}},
		"accounts":    {accounts, {"admission", "binder", "node-scale-adjuster", "pod-grouper", "podgroup-controller", "queue-controller", "scheduler"}},
		"Services":    {services, {"admission", "binder", "kai-scheduler-default", "node-scale-adjuster", "pod-grouper", "podgroup-controller", "queue-controller"}},
	} {
		if d := cmp.Diff(c[1], c[0]); d != "" {
			t.Errorf("%s: %s", what, d)
		}
	}
	config.Annotations[AnnotationKAINames] = "yes"
	if _, warnings, err := Render(config, shards, testEnvironment()); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), `is "yes", must be true or false`) {
		t.Errorf("%v, %v", warnings, err)
	}
}

// TestRenderedObjects compares what the Configs and shards of testdata are rendered to with the files' want sections. -update writes
// them anew.
func TestRenderedObjects(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			g := read(t, file)
			objects, warnings, err := Render(&g.config, g.shards, g.env)
			var documents []string
			for _, o := range objects {
				documents = append(documents, document(t, o))
			}
			var said []string
			for _, w := range warnings {
				said = append(said, "warning: "+w.String())
			}
			for _, name := range slices.Sorted(maps.Keys(ShardErrors(err))) {
				said = append(said, "error: "+(&ShardError{Shard: name, Err: ShardErrors(err)[name]}).Error())
			}
			got := map[string]string{"want": strings.Join(documents, "---\n"), "want-said": strings.Join(append(said, ""), "\n")}
			if *update {
				g.archive.Files = slices.DeleteFunc(g.archive.Files, func(f txtar.File) bool { return strings.HasPrefix(f.Name, "want") })
				for _, name := range []string{"want-said", "want"} {
					g.archive.Files = append(g.archive.Files, txtar.File{Name: name, Data: []byte(got[name])})
				}
				if err := os.WriteFile(file, txtar.Format(g.archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, f := range g.archive.Files {
				if want, ok := got[f.Name]; ok {
					if diff := cmp.Diff(string(f.Data), want); diff != "" {
						t.Errorf("%s: %s differs (-file +now); if it is right, run with -update\n%s", file, f.Name, diff)
					}
					delete(got, f.Name)
				}
			}
			if len(got) > 0 {
				t.Errorf("%s: no section %v; run with -update", file, slices.Sorted(maps.Keys(got)))
			}
		})
	}
}

func document(t *testing.T, o client.Object) string {
	t.Helper()
	text, err := YAML(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestRenderChangesNothing: what is given is as it was, and asking again gives the same.
func TestRenderChangesNothing(t *testing.T) {
	t.Parallel()
	g := read(t, "testdata/everything.txtar")
	config, shards := g.config.DeepCopy(), []kaiv1.SchedulingShard{*g.shards[0].DeepCopy()}
	first, _, err := Render(&g.config, g.shards[:1], g.env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*config, g.config); diff != "" {
		t.Errorf("the Config was changed:\n%s", diff)
	}
	if diff := cmp.Diff(shards, g.shards[:1]); diff != "" {
		t.Errorf("the shard was changed:\n%s", diff)
	}
	second, _, err := Render(&g.config, g.shards[:1], g.env)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("asked again:\n%s", diff)
	}
}

// TestBadShard: a shard that cannot run is an error that names field and rule, and hinders no other.
func TestBadShard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ spec, want string }{
		"strategy":  {"placementStrategy: {gpu: pile}", `placementStrategy.gpu is "pile"`},
		"depth":     {"queueDepthPerAction: {allocate: -1}", "queueDepthPerAction.allocate is -1"},
		"no action": {"queueDepthPerAction: {reclaim: 1}\nactions: {reclaim: {enabled: false}}", `queueDepthPerAction: "reclaim" is not an action`},
		"partition": {"partitionLabelValue: 'a b'", "spec.partitionLabelValue is"},
		"memory":    {"goMemLimit: '-1'", "spec.goMemLimit is -1"},
		"ratio":     {"goMemLimitRatio: 2", "spec.goMemLimitRatio is 2"},
		"runtime":   {"minRuntime: {preemptMinRuntime: soon}", "spec.minRuntime.preemptMinRuntime"},
		"budget":    {"scenarioSearchBudgets: {maxActionSearchDuration: {allocate: 1m}}", `maxActionSearchDuration: "allocate"`},
		"budgets":   {"scenarioSearchBudgets: {minJobSearchDuration: 5m}", "minJobSearchDuration is 5m0s"},
		"negative":  {"scenarioSearchBudgets: {maxGeneratorSearchDuration: {x: -1s}}", `maxGeneratorSearchDuration.x is "-1s"`},
		"no store":  {"usageDBConfig: {clientType: prometheus}", "connectionString is missing"},
		"window":    {"usageDBConfig: {clientType: embedded, usageParams: {windowType: tumbling}}", "tumblingWindowStartTime is missing"},
		"folder":    {"usageDBConfig: {clientType: embedded, connectionString: here}", "absolute path"},
		"variable":  {"usageDBConfig: {clientType: prometheus, connectionStringEnvVar: 'a=b'}", "connectionStringEnvVar"},
		"refused":   {"plugins: {nosuch: {}}", "plugin nosuch makes no sense"},
		"action":    {"queueDepthPerAction: {nosuch: 1}", `"nosuch" is not an action`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, bad := kaiv1.SchedulingShard{}, kaiv1.SchedulingShard{}
			good.Name, bad.Name = "good", "bad"
			good.Spec.PartitionLabelValue = "good"
			if err := yaml.UnmarshalStrict([]byte(c.spec), &bad.Spec); err != nil {
				t.Fatal(err)
			}
			env := testEnvironment()
			env.Check = refuse("nosuch")
			objects, _, err := Render(&kaiv1.Config{}, []kaiv1.SchedulingShard{bad, good}, env)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "SchedulingShard bad: spec") {
				t.Errorf("error %v, want one of SchedulingShard bad with %q", err, c.want)
			}
			var one *ShardError
			if !errors.As(err, &one) || ShardErrors(err)["bad"] == nil || len(ShardErrors(err)) != 1 {
				t.Errorf("the error is not the shard's: %v", err)
			}
			var schedulers []string
			for _, o := range objects {
				if shard := o.GetLabels()[LabelShard]; shard != "" && o.GetObjectKind().GroupVersionKind().Kind == "Deployment" {
					schedulers = append(schedulers, shard)
				}
			}
			if diff := cmp.Diff([]string{"good"}, schedulers); diff != "" {
				t.Errorf("schedulers (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnePartitionOneShard: of two shards with the same part of the cluster, the elder has it.
func TestOnePartitionOneShard(t *testing.T) {
	t.Parallel()
	a, b := kaiv1.SchedulingShard{}, kaiv1.SchedulingShard{}
	a.Name, b.Name = "a", "b"
	a.CreationTimestamp.Time = a.CreationTimestamp.AddDate(2000, 0, 1)
	b.CreationTimestamp.Time = b.CreationTimestamp.AddDate(2000, 0, 0)
	_, _, err := Render(&kaiv1.Config{}, []kaiv1.SchedulingShard{a, b}, testEnvironment())
	if errs := ShardErrors(err); len(errs) != 1 || errs["a"] == nil || !strings.Contains(errs["a"].Error(), "SchedulingShard b's already") {
		t.Errorf("errors %v, want that of the younger", errs)
	}
}
