package e2e

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	kubebatchcrds "github.com/muster-scheduler/muster/api/kubebatch/crds"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	volcanocrds "github.com/muster-scheduler/muster/api/volcano/crds"
	"github.com/muster-scheduler/muster/deploy/chart"
	review "github.com/muster-scheduler/muster/internal/controllers/admission"
	"github.com/muster-scheduler/muster/internal/install"
)

var update = flag.Bool("update", false, "write the golden files")

// load is the chart, from the files that are embedded.
func load(t testing.TB) *helmchart.Chart {
	t.Helper()
	var files []*loader.BufferedFile
	err := fs.WalkDir(chart.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(chart.Files(), path)
		files = append(files, &loader.BufferedFile{Name: path, Data: text})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := loader.LoadFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render is `helm template`, for a cluster that knows these APIs besides Kubernetes' own: the rendered files by their names, without empty
// ones.
func render(t testing.TB, values string, upgrade bool, apis ...string) (map[string]string, error) {
	t.Helper()
	c := load(t)
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.37.2", Major: "1", Minor: "37"}
	capabilities.APIVersions = append(slices.Clone(capabilities.APIVersions), apis...)
	all, err := chartutil.ToRenderValues(c, given, chartutil.ReleaseOptions{Name: "muster", Namespace: "kai-scheduler", IsInstall: !upgrade, IsUpgrade: upgrade, Revision: 1}, capabilities)
	if err != nil {
		return nil, err
	}
	out, err := engine.Render(c, all)
	for name, text := range out {
		delete(out, name)
		if text = strings.TrimSpace(text); text != "" {
			out[strings.TrimPrefix(name, "muster/templates/")] = text
		}
	}
	return out, err
}

// objects decodes what was rendered, strictly: a field that its kind does not have is an error.
func objects(t *testing.T, rendered map[string]string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for file, text := range rendered {
		if file == "NOTES.txt" {
			continue
		}
		for _, doc := range releaseutil.SplitManifests(text) {
			var head struct {
				Kind     string `json:"kind"`
				Metadata struct {
					Name      string `json:"name"`
					Namespace string `json:"namespace"`
				} `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v\n%s", file, err, doc)
			}
			kinds := map[string]any{
				"Namespace": &corev1.Namespace{}, "ServiceAccount": &corev1.ServiceAccount{}, "Deployment": &appsv1.Deployment{},
				"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{}, "Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
				"PriorityClass": &schedulingv1.PriorityClass{}, "Queue": &queuev2.Queue{}, "Config": &kaiv1.Config{}, "SchedulingShard": &kaiv1.SchedulingShard{},
				"PriorityLevelConfiguration": &flowcontrolv1.PriorityLevelConfiguration{}, "FlowSchema": &flowcontrolv1.FlowSchema{},
				"PodDisruptionBudget": &policyv1.PodDisruptionBudget{}, "Job": &batchv1.Job{}, "DaemonSet": &appsv1.DaemonSet{}, "RuntimeClass": &nodev1.RuntimeClass{},
				"ValidatingAdmissionPolicy": &admissionregv1.ValidatingAdmissionPolicy{}, "ValidatingAdmissionPolicyBinding": &admissionregv1.ValidatingAdmissionPolicyBinding{}, "ConfigMap": &corev1.ConfigMap{},
				"MutatingAdmissionPolicy": &admissionregv1.MutatingAdmissionPolicy{}, "MutatingAdmissionPolicyBinding": &admissionregv1.MutatingAdmissionPolicyBinding{},
				"Service": &corev1.Service{}, "NetworkPolicy": &networkingv1.NetworkPolicy{}, "PrometheusRule": &map[string]any{}, "CustomResourceDefinition": &map[string]any{},
			}
			into := kinds[head.Kind]
			if into == nil {
				t.Fatalf("%s: the chart makes a %q", file, head.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
				t.Fatalf("%s: %s %s: %v\n%s", file, head.Kind, head.Metadata.Name, err, doc)
			}
			key := strings.Trim(head.Kind+" "+head.Metadata.Namespace+"/"+head.Metadata.Name, "/")
			if out[key] != nil {
				t.Errorf("%s is rendered twice", key)
			}
			out[key] = into
		}
	}
	return out
}

// TestGolden: each testdata/NAME.values.yaml is rendered to NAME.golden (-update writes it), but for the rules, which are tested
// where they are made. What the Config and the shard say is accepted by whoever renders the rest.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d cases: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".values.yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			rendered, err := render(t, string(values), false)
			if err != nil {
				t.Fatal(err)
			}
			all := objects(t, rendered)
			config, shard := all["Config /kai-config"].(*kaiv1.Config), all["SchedulingShard /default"].(*kaiv1.SchedulingShard)
			if _, _, err := install.Render(config, []kaiv1.SchedulingShard{*shard}, install.Environment{Repository: "r", Tag: "t"}); err != nil {
				t.Errorf("the operator would refuse it: %v", err)
			}
			delete(rendered, "rbac.yaml")
			var text strings.Builder
			names := make([]string, 0, len(rendered))
			for name := range rendered {
				names = append(names, name)
			}
			slices.Sort(names)
			for _, name := range names {
				fmt.Fprintf(&text, "-- %s --\n%s\n", name, rendered[name])
			}
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), text.String()); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestEveryValueArrives: with everything set, each value that the chart's list says goes into a field of the Config or the shard
// is found there.
func TestEveryValueArrives(t *testing.T) {
	t.Parallel()
	values, err := os.ReadFile("testdata/everything.values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t, string(values), false)
	if err != nil {
		t.Fatal(err)
	}
	var given map[string]any
	specs := map[string]map[string]any{}
	if err := yaml.Unmarshal(values, &given); err != nil {
		t.Fatal(err)
	}
	for prefix, file := range map[string]string{"config": "config.yaml", "shard": "shard.yaml"} {
		var o struct {
			Spec map[string]any `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(rendered[file]), &o); err != nil {
			t.Fatal(err)
		}
		specs[prefix] = o.Spec
	}
	rows, err := chart.Values()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if row.To == "" {
			continue
		}
		if lookup(given, row.Path) == nil {
			t.Errorf("%s is not set in the test's values", row.Path)
		}
		prefix, field, _ := strings.Cut(row.To, ":")
		if spec := specs[prefix]; spec != nil && lookup(spec, strings.Replace(field, "*", "binder", 1)) == nil {
			t.Errorf("%s does not arrive at %s", row.Path, row.To)
		}
	}
}

func lookup(values map[string]any, path string) any {
	var here any = values
	for part := range strings.SplitSeq(path, ".") {
		m, _ := here.(map[string]any)
		here = m[part]
	}
	return here
}

// TestKAIValues: KAI's own examples of values, where they lie beside the checkout, are taken as they are.
func TestKAIValues(t *testing.T) {
	t.Parallel()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		file := filepath.Join(dir, "shared", "compat", "kai", "examples", "docs", "migrationguides", "v0.6.0", "values.yaml")
		if text, err := os.ReadFile(file); err == nil {
			rendered, err := render(t, string(text), false)
			if err != nil {
				t.Fatal(err)
			}
			c := objects(t, rendered)["Config /kai-config"].(*kaiv1.Config)
			if r := c.Spec.Binder.ResourceReservation; *r.Namespace != "runai-reservation" || *r.AppLabel != "runai-reservation" || *c.Spec.Global.QueueLabelKey != "runai/queue" {
				t.Errorf("the values did not arrive: %+v", c.Spec)
			}
			return
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("KAI's examples do not lie beside this checkout: nothing to compare with")
}

// TestUpgrade: queues are made once; all else is rendered again.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	before, err := render(t, "", false)
	if err != nil {
		t.Fatal(err)
	}
	after, err := render(t, "", true)
	if err != nil {
		t.Fatal(err)
	}
	if before["queues.yaml"] == "" || after["queues.yaml"] != "" {
		t.Errorf("queues before: %q, after: %q", before["queues.yaml"], after["queues.yaml"])
	}
	delete(before, "queues.yaml")
	before["NOTES.txt"], after["NOTES.txt"] = "", ""
	if d := cmp.Diff(before, after); d != "" {
		t.Error(d)
	}
}

// TestSwitches: each part that can be switched off goes.
func TestSwitches(t *testing.T) {
	t.Parallel()
	for values, gone := range map[string][]string{
		"defaultPriorityClasses: {enabled: false}":                                {"PriorityClass /train", "PriorityClass /inference"},
		"crds: {upgrade: false}":                                                  {"Job kai-scheduler/muster-crds", "ClusterRole /muster-crds", "ClusterRoleBinding /muster-crds", "ServiceAccount kai-scheduler/muster-crds"},
		"flowControl: {enabled: false}":                                           {"PriorityLevelConfiguration /muster", "FlowSchema /muster", "FlowSchema /muster-leases"},
		"defaultShard: {enabled: false}":                                          {"SchedulingShard /default"},
		"defaultQueue: {createDefaultQueue: false}":                               {"Queue /default-queue", "Queue /default-parent-queue"},
		"global: {resourceReservation: {createNamespace: false}}":                 {"Namespace /kai-resource-reservation"},
		"global: {resourceReservation: {namespace: a}, clusterAutoscaling: true}": {"Namespace /kai-resource-reservation"},
	} {
		usual, err := render(t, "", false)
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := render(t, values, false)
		if err != nil {
			t.Fatalf("%s: %v", values, err)
		}
		before, after := objects(t, usual), objects(t, rendered)
		for _, key := range gone {
			if before[key] == nil || after[key] != nil {
				t.Errorf("%s: %s was there %t, is there %t", values, key, before[key] != nil, after[key] != nil)
			}
		}
	}
}

// TestForgets: an installation that loses what queues used with a pod says so, and how that is mended.
func TestForgets(t *testing.T) {
	t.Parallel()
	const scheduler, server = "LOST with the scheduler's pod", "LOST with the pod of the Prometheus server"
	for values, want := range map[string]string{
		"":                                       "",
		"scheduler: {usageStorage: {size: 5Gi}}": "", // no history
		"scheduler: {usageDBConfig: {clientType: fake}}":                                                                                                    "",
		"scheduler: {usageDBConfig: {clientType: embedded}}":                                                                                                scheduler,
		"scheduler: {usageDBConfig: {clientType: fake-with-history}}":                                                                                       scheduler,
		"scheduler: {usageDBConfig: {usageParams: {windowSize: 1w}}}":                                                                                       scheduler,
		"scheduler: {usageDBConfig: {usageParams: {extraParams: {a: b}}}}":                                                                                  scheduler,
		"scheduler: {usageDBConfig: {clientType: embedded}, usageStorage: {size: 5Gi}}":                                                                     "",
		"scheduler: {usageDBConfig: {usageParams: {extraParams: {persistentVolumeClaim: mine}}}}":                                                           "",
		"{scheduler: {usageDBConfig: {clientType: prometheus}}, prometheus: {enabled: true}}":                                                               "",
		"{scheduler: {usageDBConfig: {clientType: prometheus}}, prometheus: {enabled: true, enablePersistentStorage: false}}":                               server,
		"{scheduler: {usageDBConfig: {clientType: prometheus, connectionString: 'http://p'}}, prometheus: {enabled: true, enablePersistentStorage: false}}": "",
	} {
		rendered, err := render(t, values, false)
		if err != nil {
			t.Fatalf("%s: %v", values, err)
		}
		if notes := rendered["NOTES.txt"]; strings.Contains(notes, "LOST") != (want != "") || !strings.Contains(notes, want) {
			t.Errorf("%s: want %q, got\n%s", values, want, notes)
		}
		for _, o := range objects(t, rendered) {
			if s, ok := o.(*kaiv1.SchedulingShard); ok {
				config := &kaiv1.Config{}
				config.Spec.Prometheus = &kaiv1.Prometheus{Enabled: new(true)}
				if _, _, err := install.Render(config, []kaiv1.SchedulingShard{*s}, install.Environment{}); err != nil && !strings.Contains(values, "{a: b}") {
					t.Errorf("%s: the operator would refuse it: %v", values, err)
				}
			}
		}
	}
}

// TestBadValues: the schema names what is wrong.
func TestBadValues(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"scheduler: {placementStrategy: both}":                           "placementStrategy",
		"scheduler: {goMemLimitRatio: 2}":                                "goMemLimitRatio",
		"operator: {replicaCount: two}":                                  "replicaCount",
		"global: {imagePullSecrets: [one]}":                              "imagePullSecrets",
		"binder: {ports: {metricsPort: 70000}}":                          "metricsPort",
		"global: {resourceReservation: {namespace: 3}}":                  "namespace",
		"global: {fipsMode: maybe}":                                      "fipsMode",
		"global: {digest: latest}":                                       "digest",
		"binder: {extraArgs: [v=4]}":                                     "extraArgs",
		"admission: {replicaCount: 0}":                                   "replicaCount",
		"flowControl: {lendablePercent: 101}":                            "lendablePercent",
		"vm: {enabled: true}":                                            "vm.domainType",
		"vm: {domainType: guess}":                                        "domainType",
		"vm: {enabled: true, nodeSelector: null}":                        "vm.nodeSelector",
		"vm: {dir: here}":                                                "dir",
		"vm: {enabled: true, domainType: kvm, namespace: kai-scheduler}": "vm.namespace",
	} {
		if _, err := render(t, values, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error about %s", values, err, want)
		}
	}
}

// TestRightsOfUsers: whoever may view a namespace reads its gangs, nobody is given a right to write, and Queues are read by those that
// the values name.
func TestRightsOfUsers(t *testing.T) {
	t.Parallel()
	for values, readers := range map[string]int{"": 0, "queues: {readers: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: tenants}]}": 1} {
		rendered, err := render(t, values, false)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, map[string]string{"users.yaml": rendered["users.yaml"]})
		gangs, queues := all["ClusterRole /muster-gang-viewer"].(*rbacv1.ClusterRole), all["ClusterRole /muster-queue-viewer"].(*rbacv1.ClusterRole)
		if gangs.Labels["rbac.authorization.k8s.io/aggregate-to-view"] != "true" || !slices.Contains(gangs.Rules[0].Resources, "podgroups") || slices.Contains(gangs.Rules[0].Resources, "queues") {
			t.Errorf("%+v", gangs)
		}
		for label := range queues.Labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/") {
				t.Errorf("Queues are everybody's: %s", label)
			}
		}
		for _, rule := range slices.Concat(gangs.Rules, queues.Rules) {
			if !slices.Equal(rule.Verbs, []string{"get", "list", "watch"}) {
				t.Errorf("%v", rule)
			}
		}
		if b, ok := all["ClusterRoleBinding /muster-queue-viewer"].(*rbacv1.ClusterRoleBinding); ok != (readers > 0) || ok && (len(b.Subjects) != readers || b.RoleRef.Name != queues.Name) {
			t.Errorf("%q: %v", values, b)
		}
	}
}

// TestMonitoring: alerts and dashboards are rendered where the cluster knows Prometheus' operator, or as the values say, and are the
// program's own to the last character.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	const api = "monitoring.coreos.com/v1/PrometheusRule"
	for _, c := range []struct {
		values            string
		apis              []string
		rules, dashboards bool
	}{
		{"", nil, false, false},
		{"", []string{api}, true, true},
		{"{prometheusRule: {enabled: false}, dashboards: {enabled: false}}", []string{api}, false, false},
		{"{prometheusRule: {enabled: true, labels: {release: stack}}, dashboards: {enabled: true}}", nil, true, true},
	} {
		rendered, err := render(t, c.values, false, c.apis...)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, rendered)
		rule, ok := all["PrometheusRule kai-scheduler/muster"].(*map[string]any)
		if ok != c.rules {
			t.Errorf("%q, %q: alerts: %t", c.values, c.apis, ok)
		}
		if ok {
			var own map[string]any
			text, err := fs.ReadFile(chart.Files(), "files/prometheusrule.yaml")
			if err == nil {
				err = yaml.Unmarshal(text, &own)
			}
			if d := cmp.Diff(own["spec"], (*rule)["spec"]); err != nil || d != "" {
				t.Error(err, d)
			}
			if label := lookup(*rule, "metadata.labels.release"); (label == "stack") != strings.Contains(c.values, "stack") {
				t.Errorf("%q: label %v", c.values, label)
			}
		}
		dashboards := 0
		for _, o := range all {
			if m, ok := o.(*corev1.ConfigMap); ok && m.Labels["grafana_dashboard"] == "1" {
				for name, text := range m.Data {
					own, err := fs.ReadFile(chart.Files(), "files/dashboards/"+name)
					if dashboards++; err != nil || strings.TrimSpace(string(own)) != text {
						t.Errorf("%s differs from the program's: %v", name, err)
					}
				}
			}
		}
		if want := map[bool]int{true: 3}[c.dashboards]; dashboards != want {
			t.Errorf("%q, %q: %d dashboards, want %d", c.values, c.apis, dashboards, want)
		}
	}
}

// TestFlows: requests about Leases are told apart before all others, and all others after what Kubernetes' own accounts ask.
func TestFlows(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, "", false)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, rendered)
	level := all["PriorityLevelConfiguration /muster"].(*flowcontrolv1.PriorityLevelConfiguration)
	bulk, leases := all["FlowSchema /muster"].(*flowcontrolv1.FlowSchema), all["FlowSchema /muster-leases"].(*flowcontrolv1.FlowSchema)
	if l := level.Spec.Limited; *l.NominalConcurrencyShares != 40 || *l.LendablePercent != 50 || *l.BorrowingLimitPercent != 100 || l.LimitResponse.Type != flowcontrolv1.LimitResponseTypeQueue {
		t.Errorf("%+v", l)
	}
	// kube-system's accounts have 900, those of everybody 9000.
	if leases.Spec.MatchingPrecedence >= bulk.Spec.MatchingPrecedence || bulk.Spec.MatchingPrecedence <= 900 || bulk.Spec.MatchingPrecedence >= 9000 {
		t.Errorf("leases %d, all others %d", leases.Spec.MatchingPrecedence, bulk.Spec.MatchingPrecedence)
	}
	if bulk.Spec.PriorityLevelConfiguration.Name != level.Name || leases.Spec.PriorityLevelConfiguration.Name == level.Name {
		t.Errorf("%+v, %+v", bulk.Spec, leases.Spec)
	}
	for _, s := range []*flowcontrolv1.FlowSchema{bulk, leases} {
		if subject := s.Spec.Rules[0].Subjects[0]; subject.ServiceAccount.Namespace != "kai-scheduler" || s.Spec.DistinguisherMethod.Type != flowcontrolv1.FlowDistinguisherMethodByUserType {
			t.Errorf("%s: %+v", s.Name, s.Spec)
		}
	}
}

// TestCRDHook: for as long as the hook runs it may change our CRDs, each by its name, and no others.
func TestCRDHook(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, "{global: {registry: registry.example/m, tag: v1, fipsMode: 'on'}}", true)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, map[string]string{"crds.yaml": rendered["crds.yaml"]})
	var want []string
	for _, f := range crds.All() {
		var crd struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal(f.YAML, &crd); err != nil {
			t.Fatal(err)
		}
		want = append(want, crd.Metadata.Name)
	}
	rules := all["ClusterRole /muster-crds"].(*rbacv1.ClusterRole).Rules
	if len(rules) != 1 || !slices.Equal(rules[0].ResourceNames, want) || !slices.Equal(rules[0].Resources, []string{"customresourcedefinitions"}) || !slices.Equal(rules[0].Verbs, []string{"create", "patch"}) {
		t.Errorf("%v, want %v", rules, want)
	}
	job := all["Job kai-scheduler/muster-crds"].(*batchv1.Job)
	c := job.Spec.Template.Spec.Containers[0]
	if c.Image != "registry.example/m/muster:v1" || !slices.Equal(c.Args, []string{"crds", "apply"}) || len(c.Env) != 1 || c.Env[0].Value != "fips140=on" {
		t.Errorf("%+v", c)
	}
	for key, o := range all {
		notes := o.(interface{ GetAnnotations() map[string]string }).GetAnnotations()
		if notes["helm.sh/hook"] != "pre-install,pre-upgrade" || notes["helm.sh/hook-delete-policy"] != "before-hook-creation,hook-succeeded" || key == "Job kai-scheduler/muster-crds" && notes["helm.sh/hook-weight"] != "-1" {
			t.Errorf("%s: %v", key, notes)
		}
	}
}

// TestVolcanoFace: nothing of Volcano's is there unless it is asked for; then the hook brings Volcano's definitions, each by its name, and none of the
// operator's rights grow.
func TestVolcanoFace(t *testing.T) {
	t.Parallel()
	without, err := render(t, "", false)
	if err != nil {
		t.Fatal(err)
	}
	with, err := render(t, "volcano: {enabled: true}", false)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range without {
		if strings.Contains(text, "volcano") {
			t.Errorf("%s speaks of Volcano", name)
		}
	}
	if d := cmp.Diff(without["rbac.yaml"], with["rbac.yaml"]); d != "" {
		t.Errorf("the operator's rights: %s", d)
	}
	all := objects(t, map[string]string{"crds.yaml": with["crds.yaml"], "volcano.yaml": with["volcano.yaml"]})
	const role = "kai-scheduler/muster-vc-controller-manager"
	pod := all["Deployment "+role].(*appsv1.Deployment).Spec.Template
	service, guard := all["Service "+role].(*corev1.Service), all["NetworkPolicy "+role].(*networkingv1.NetworkPolicy)
	for key, value := range service.Spec.Selector { // order: each for itself
		if pod.Labels[key] != value || guard.Spec.PodSelector.MatchLabels[key] != value {
			t.Errorf("%s=%s selects no pod of %v", key, value, pod.Labels)
		}
	}
	if p := service.Spec.Ports[0]; service.Labels["app.kubernetes.io/part-of"] != install.PartOf || p.Name != install.PortMetrics || p.TargetPort.StrVal != pod.Spec.Containers[0].Ports[0].Name || len(service.Spec.Selector) != 2 {
		t.Errorf("no ServiceMonitor of the control plane finds %+v", service)
	}
	if ports := guard.Spec.Ingress[0].Ports; len(ports) != 2 || ports[0].Port.IntVal != pod.Spec.Containers[0].Ports[0].ContainerPort || ports[1].Port.IntVal != pod.Spec.Containers[0].Ports[1].ContainerPort {
		t.Errorf("%+v", ports)
	}
	shard := objects(t, map[string]string{"shard.yaml": with["shard.yaml"]})["SchedulingShard /default"].(*kaiv1.SchedulingShard)
	if bound := all["ClusterRoleBinding /muster-scheduler-volcano"].(*rbacv1.ClusterRoleBinding).Subjects[0].Name; shard.Spec.Args["volcano-scheduler-name"] != "volcano" || bound != install.Name(install.Scheduler) {
		t.Errorf("the scheduler is told %v, and %s may read Volcano's kinds", shard.Spec.Args, bound)
	}
	if d := cmp.Diff(install.Rules(install.VolcanoScheduler).Cluster, all["ClusterRole /muster-scheduler-volcano"].(*rbacv1.ClusterRole).Rules); d != "" {
		t.Errorf("what the scheduler may do besides: %s", d)
	}
	gates, err := render(t, "volcano: {enabled: true, queueGates: true}", false)
	if err != nil {
		t.Fatal(err)
	}
	lifts := objects(t, map[string]string{"volcano.yaml": gates["volcano.yaml"]})
	if d := cmp.Diff(install.Rules(install.VolcanoQueueGates).Cluster, lifts["ClusterRole /muster-scheduler-volcano-gates"].(*rbacv1.ClusterRole).Rules); d != "" || !strings.Contains(gates["shard.yaml"], `volcano-queue-gates: "true"`) {
		t.Errorf("where queues let pods in the scheduler may: %s\n%s", d, gates["shard.yaml"])
	}
	if strings.Contains(with["volcano.yaml"], "volcano-gates") || strings.Contains(with["shard.yaml"], "queue-gates") {
		t.Error("the scheduler may patch pods, and no queue lets any in")
	}
	const file = "kai-scheduler/" + install.VolcanoSchedulerFile
	conf := all["ConfigMap "+file].(*corev1.ConfigMap).Data["volcano-scheduler.conf"]
	if !strings.HasPrefix(conf, "actions: \"enqueue, allocate, backfill\"\ntiers:\n- plugins:\n  - name: priority\n") || shard.Spec.Args["volcano-scheduler-configmap"] != file+":volcano-scheduler.conf" {
		t.Errorf("the scheduler is told %v, and the file says\n%s", shard.Spec.Args, conf)
	}
	if d := cmp.Diff(install.Rules(install.VolcanoScheduler).Home, all["Role kai-scheduler/muster-scheduler-volcano"].(*rbacv1.Role).Rules); d != "" {
		t.Errorf("what the scheduler may read: %s", d)
	}
	filed, err := render(t, "volcano: {enabled: true, schedulerConfigMap: volcano-system/theirs}", false)
	if err != nil {
		t.Fatal(err)
	}
	other := objects(t, map[string]string{"volcano.yaml": filed["volcano.yaml"]})
	if r := other["Role volcano-system/muster-scheduler-volcano"].(*rbacv1.Role).Rules; len(r) != 1 || !slices.Equal(r[0].ResourceNames, []string{"theirs"}) || other["ConfigMap "+file] != nil || !strings.Contains(filed["shard.yaml"], `volcano-scheduler-configmap: "volcano-system/theirs"`) {
		t.Errorf("of a ConfigMap that there is the scheduler may %+v:\n%s", r, filed["shard.yaml"])
	}
	bare, err := render(t, `volcano: {enabled: true, schedulerConf: ""}`, false)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(bare["volcano.yaml"], install.VolcanoSchedulerFile) || strings.Contains(bare["shard.yaml"], "configmap") {
		t.Error("without a file there is one")
	}
	config := objects(t, map[string]string{"config.yaml": with["config.yaml"]})["Config /kai-config"].(*kaiv1.Config)
	if bound := all["ClusterRoleBinding /muster-admission-volcano"].(*rbacv1.ClusterRoleBinding).Subjects[0].Name; bound != install.Name(install.Admission) || !strings.Contains(config.Annotations[install.AnnotationRoles], `"--volcano-scheduler-name=volcano"`) {
		t.Errorf("admission is told %s, and %s may look at Volcano's queues", config.Annotations[install.AnnotationRoles], bound)
	}
	if d := cmp.Diff(install.Rules(install.VolcanoAdmission).Cluster, all["ClusterRole /muster-admission-volcano"].(*rbacv1.ClusterRole).Rules); d != "" {
		t.Errorf("what admission may do besides: %s", d)
	}
	groups := all["Role volcano-system/muster-admission-volcano"].(*rbacv1.Role)
	if d := cmp.Diff(install.Rules(install.VolcanoAdmission).Home, groups.Rules); d != "" || !strings.Contains(config.Annotations[install.AnnotationRoles], "--volcano-admission-configmap=volcano-system/"+groups.Rules[0].ResourceNames[0]+":volcano-admission.conf") {
		t.Errorf("what admission may do with resource groups: %s", d)
	}
	theirs, err := render(t, "volcano: {enabled: true, admission: false}", false)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(theirs["volcano.yaml"], "admission-volcano") || theirs["config.yaml"] != without["config.yaml"] {
		t.Error("Volcano's own webhooks judge its kinds, and so do Muster's")
	}
	beside, err := render(t, "volcano: {enabled: true, scheduler: false}", false)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(beside["volcano.yaml"], "scheduler-volcano") || beside["shard.yaml"] != without["shard.yaml"] {
		t.Error("Volcano's own scheduler places its pods, and so does Muster's")
	}
	for leave, wrong := range map[string]string{ // order: each on its own
		"- --queue-allocated=false": "two say what queues hold, or nobody", "- --group-name-after=0": "Volcano's scheduler waits for the names of PodGroups, or Muster's has them written",
	} {
		if !strings.Contains(beside["volcano.yaml"], leave) || strings.Contains(with["volcano.yaml"], leave) {
			t.Error(wrong)
		}
	}
	const kind = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	for values, want := range map[string][]string{
		"volcano: {enabled: true}": {review.PolicyVolcanoResourceGroups}, "volcano: {enabled: true, queueGates: true}": {review.PolicyVolcanoGate, review.PolicyVolcanoResourceGroups},
		"volcano: {enabled: true, queueGates: true, admission: false}": nil, "volcano: {enabled: true, admissionConfigMap: a/b:c}": {review.PolicyVolcanoResourceGroups},
	} { // order: each on its own
		rendered, err := render(t, values, false, kind)
		if err != nil {
			t.Fatal(err)
		}
		some := objects(t, map[string]string{"volcano.yaml": rendered["volcano.yaml"]})
		var got []string
		for _, name := range []string{review.PolicyVolcanoGate, review.PolicyVolcanoResourceGroups} {
			if some["MutatingAdmissionPolicy /"+name] != nil && some["MutatingAdmissionPolicyBinding /"+name] != nil {
				got = append(got, name)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: policies that change pods: %s", values, d)
		}
		if b, ok := some["MutatingAdmissionPolicyBinding /"+review.PolicyVolcanoResourceGroups].(*admissionregv1.MutatingAdmissionPolicyBinding); ok && some["Role "+b.Spec.ParamRef.Namespace+"/muster-admission-volcano"] == nil {
			t.Errorf("%s: the templates are in %s, where admission may not write them", values, b.Spec.ParamRef.Namespace)
		}
	}
	able, err := render(t, "volcano: {enabled: true}", false, kind)
	if err != nil {
		t.Fatal(err)
	}
	if note := "has no MutatingAdmissionPolicy"; !strings.Contains(with["NOTES.txt"], note) || strings.Contains(able["NOTES.txt"], note) || strings.Contains(theirs["NOTES.txt"], note) {
		t.Error("the notes do not say where pods cannot be changed, or say it elsewhere")
	}
	names := all["ClusterRole /muster-crds"].(*rbacv1.ClusterRole).Rules[0].ResourceNames
	if job := all["Job kai-scheduler/muster-crds"].(*batchv1.Job); !slices.Equal(job.Spec.Template.Spec.Containers[0].Args, []string{"crds", "apply", "--volcano"}) {
		t.Errorf("%q", job.Spec.Template.Spec.Containers[0].Args)
	}
	var want []string
	for _, f := range slices.Concat(volcanoDefinitions(), crds.Documents()) {
		var crd struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		if err := yaml.Unmarshal(f, &crd); err != nil {
			t.Fatal(err)
		}
		want = append(want, crd.Metadata.Name)
	}
	slices.Sort(want)
	if d := cmp.Diff(want, slices.Sorted(slices.Values(names))); d != "" {
		t.Errorf("definitions that the hook may write (-want +got):\n%s", d)
	}
}

// TestKubeBatchFace: nothing of kube-batch's is there unless it is asked for; then the hook brings its definitions, each by its name, the default shard is told of its pods, and the scheduler's account, by whichever name, may
// besides what the rules of the face say.
func TestKubeBatchFace(t *testing.T) {
	t.Parallel()
	without, err := render(t, "", false)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range without {
		if strings.Contains(text, "kube-batch") {
			t.Errorf("%s speaks of it", name)
		}
	}
	for values, account := range map[string]string{"kubeBatch: {enabled: true}": install.Name(install.Scheduler), "kubeBatch: {enabled: true}\nkaiNames: true": "scheduler"} {
		with, err := render(t, values, false)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, map[string]string{"crds.yaml": with["crds.yaml"], "kubebatch.yaml": with["kubebatch.yaml"], "shard.yaml": with["shard.yaml"]})
		if d := cmp.Diff(install.Rules(install.KubeBatchScheduler).Cluster, all["ClusterRole /muster-scheduler-kube-batch"].(*rbacv1.ClusterRole).Rules); d != "" {
			t.Error(d)
		}
		if bound := all["ClusterRoleBinding /muster-scheduler-kube-batch"].(*rbacv1.ClusterRoleBinding).Subjects[0].Name; bound != account {
			t.Errorf("%s may, want %s", bound, account)
		}
		for _, flag := range []string{`kube-batch-scheduler-name: "kube-batch"`, `kube-batch-default-queue: "default"`} {
			if !strings.Contains(with["shard.yaml"], flag) {
				t.Errorf("the shard lacks %s:\n%s", flag, with["shard.yaml"])
			}
		}
		names := all["ClusterRole /muster-crds"].(*rbacv1.ClusterRole).Rules[0].ResourceNames
		for _, f := range kubebatchcrds.All() {
			group, plural, _ := strings.Cut(strings.TrimSuffix(f.Name, ".yaml"), "_")
			if !slices.Contains(names, plural+"."+group) {
				t.Errorf("the hook may not write %s.%s", plural, group)
			}
		}
		if job := all["Job kai-scheduler/muster-crds"].(*batchv1.Job); !slices.Equal(job.Spec.Template.Spec.Containers[0].Args, []string{"crds", "apply", "--kube-batch"}) {
			t.Errorf("%q", job.Spec.Template.Spec.Containers[0].Args)
		}
		if d := cmp.Diff(without["rbac.yaml"], with["rbac.yaml"]); account == install.Name(install.Scheduler) && d != "" {
			t.Errorf("the operator's rights: %s", d)
		}
	}
	for values, want := range map[string]string{ // order: each by itself
		"{enabled: true}": "",
		"{enabled: false, schedulerConf: x, schedulerConfigMap: 'rules:key'}": "",
		"{enabled: true, schedulerConf: x, schedulerConfigMap: 'rules:key'}":  "rules:key",
		"{enabled: true, schedulerConf: \"actions: allocate\\n\"}":            "muster-kube-batch-f1ba1aacd0:kube-batch.conf",
	} {
		with, err := render(t, "kubeBatch: "+values, false)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, map[string]string{"kubebatch.yaml": with["kubebatch.yaml"], "shard.yaml": with["shard.yaml"]})
		if said := all["SchedulingShard /default"].(*kaiv1.SchedulingShard).Annotations[install.AnnotationKubeBatchFile]; said != want {
			t.Errorf("%s: the shard is told of %q, want %q", values, said, want)
		}
		name, key, _ := strings.Cut(want, ":")
		if m, made := all["ConfigMap kai-scheduler/"+name].(*corev1.ConfigMap); made != strings.HasPrefix(name, "muster-") || made && strings.TrimSpace(m.Data[key]) != "actions: allocate" {
			t.Errorf("%s: the ConfigMap is %v", values, m)
		}
	}
}

// TestUI: nothing of the role ui is there unless it is asked for. Then its Service and its policy lead to its pods, it may what its rules say, the Config has schedulers serve their cycles,
// and the scheduler's account, by whichever name, may ask who reads them; the operator's rights do not grow.
func TestUI(t *testing.T) {
	t.Parallel()
	without, err := render(t, "", false)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range without {
		if strings.Contains(text, "muster-ui") || strings.Contains(text, "muster.dev/ui") || strings.Contains(text, "auth-delegator") {
			t.Errorf("%s speaks of it", name)
		}
	}
	for values, account := range map[string]string{"ui: {enabled: true}": install.Name(install.Scheduler), "ui: {enabled: true}\nkaiNames: true": "scheduler"} {
		with, err := render(t, values, false)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(with["config.yaml"], `muster.dev/ui: "true"`) || cmp.Diff(without["rbac.yaml"], with["rbac.yaml"]) != "" {
			t.Errorf("the Config, or the operator's rights: %s", with["config.yaml"])
		}
		all := objects(t, map[string]string{"ui.yaml": with["ui.yaml"]})
		const role = "kai-scheduler/muster-ui"
		pod := all["Deployment "+role].(*appsv1.Deployment).Spec.Template
		service, guard := all["Service "+role].(*corev1.Service), all["NetworkPolicy "+role].(*networkingv1.NetworkPolicy)
		for key, value := range install.Selector(install.Name(install.UI)) { // order: each for itself
			if pod.Labels[key] != value || guard.Spec.PodSelector.MatchLabels[key] != value || service.Spec.Selector[key] != value {
				t.Errorf("%s=%s selects no pod of %v, or is not what policies of schedulers name", key, value, pod.Labels)
			}
		}
		for i, p := range guard.Spec.Ingress[0].Ports {
			if p.Port.IntVal != pod.Spec.Containers[0].Ports[i].ContainerPort {
				t.Errorf("%+v", p)
			}
		}
		if d := cmp.Diff(install.Rules(install.UI).Cluster, all["ClusterRole /muster-ui"].(*rbacv1.ClusterRole).Rules); d != "" {
			t.Errorf("what it may do: %s", d)
		}
		if d := cmp.Diff(install.Rules(install.UI).Home, all["Role "+role].(*rbacv1.Role).Rules); d != "" {
			t.Errorf("what it may do at home: %s", d)
		}
		asks := all["ClusterRoleBinding /muster-scheduler-cycles"].(*rbacv1.ClusterRoleBinding)
		if asks.RoleRef.Name != "system:auth-delegator" || asks.Subjects[0].Name != account {
			t.Errorf("%+v", asks)
		}
		if v := pod.Spec.Volumes; len(v) != 1 || v[0].EmptyDir == nil || v[0].EmptyDir.SizeLimit.String() != "2560Mi" || pod.Spec.Containers[0].VolumeMounts[0].Name != v[0].Name || pod.Spec.SecurityContext != nil && pod.Spec.SecurityContext.FSGroup != nil {
			t.Errorf("the journal's volume: %+v", v)
		}
	}
	with, err := render(t, "ui: {enabled: true, journal: {claim: kept}}", false)
	if err != nil {
		t.Fatal(err)
	}
	claimed := objects(t, map[string]string{"ui.yaml": with["ui.yaml"]})["Deployment kai-scheduler/muster-ui"].(*appsv1.Deployment).Spec
	if v := claimed.Template.Spec.Volumes; len(v) != 1 || v[0].PersistentVolumeClaim == nil || v[0].PersistentVolumeClaim.ClaimName != "kept" || claimed.Strategy.Type != appsv1.RecreateDeploymentStrategyType || *claimed.Template.Spec.SecurityContext.FSGroup != 10000 {
		t.Errorf("a claim: %+v", claimed)
	}
	if _, err := render(t, "ui: {enabled: true, replicaCount: 2, journal: {claim: kept}}", false); err == nil || !strings.Contains(err.Error(), "ui.journal.claim") {
		t.Errorf("two pods with one claim: %v", err)
	}
	off, err := render(t, "ui: {enabled: true, journal: {enabled: false}}", false)
	if err != nil || strings.Contains(off["ui.yaml"], "journal") {
		t.Errorf("without a journal: %v\n%s", err, off["ui.yaml"])
	}
}

func volcanoDefinitions() (out [][]byte) {
	for _, f := range volcanocrds.All() {
		out = append(out, f.YAML)
	}
	return out
}

// TestRoles: what all roles get and what one gets stand in the Config's annotation, as whoever renders the rest reads it, and in the
// operator's own pod.
func TestRoles(t *testing.T) {
	t.Parallel()
	rendered, err := render(t, `{
		global: {registry: registry.example/m, tag: v1, digest: "sha256:`+strings.Repeat("a", 64)+`", nodeDigest: "sha256:`+strings.Repeat("b", 64)+`",
			fipsMode: "only", extraEnv: [{name: A, value: all}], podAnnotations: {team: x}, logLevel: debug},
		operator: {extraArgs: [--hung-after=1m], extraEnv: [{name: A, value: own}], podAnnotations: {team: own}, replicaCount: 2},
		queuecontroller: {logLevel: 3, extraArgs: [--max-concurrent-reconciles=2], extraEnv: [{name: GODEBUG, value: mine}], podAnnotations: {a: b}},
		binder: {image: {digest: "sha256:`+strings.Repeat("c", 64)+`"}},
	}`, false)
	if err != nil {
		t.Fatal(err)
	}
	all := objects(t, rendered)
	config := all["Config /kai-config"].(*kaiv1.Config)
	rest, warnings, err := install.Render(config, nil, install.Environment{Repository: "registry.example/m", Tag: "v1"})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	pods := map[string]*corev1.PodTemplateSpec{"operator": &all["Deployment kai-scheduler/muster-operator"].(*appsv1.Deployment).Spec.Template}
	for _, o := range rest {
		if d, ok := o.(*appsv1.Deployment); ok {
			pods[d.Spec.Template.Spec.Containers[0].Name] = &d.Spec.Template
		}
	}
	for role, want := range map[string]struct{ env, team, level, image string }{
		"operator": {"A=own GODEBUG=fips140=only", "own", "debug", "registry.example/m/muster:v1@sha256:" + strings.Repeat("a", 64)},
		"binder":   {"A=all GODEBUG=fips140=only", "x", "debug", "registry.example/m/muster:v1@sha256:" + strings.Repeat("c", 64)},
		"queue":    {"A=all GODEBUG=mine", "x", "3", "registry.example/m/muster:v1"},
	} {
		c := pods[role].Spec.Containers[0]
		var env []string
		for _, v := range c.Env {
			if v.Name == "A" || v.Name == "GODEBUG" {
				env = append(env, v.Name+"="+v.Value)
			}
		}
		slices.Sort(env)
		if got := strings.Join(env, " "); got != want.env || pods[role].Annotations["team"] != want.team || !slices.Contains(c.Args, "--zap-log-level="+want.level) || c.Image != want.image {
			t.Errorf("%s: %s, %v, %q, %s", role, got, pods[role].Annotations, c.Args, c.Image)
		}
	}
	if args := pods["queue"].Spec.Containers[0].Args; args[len(args)-1] != "--max-concurrent-reconciles=2" || pods["queue"].Annotations["a"] != "b" {
		t.Errorf("%q, %v", args, pods["queue"].Annotations)
	}
	own := pods["operator"].Spec
	for name, want := range map[string]string{"MS_DIGEST": "sha256:" + strings.Repeat("a", 64), "MS_NODE_DIGEST": "sha256:" + strings.Repeat("b", 64)} {
		if !slices.Contains(own.Containers[0].Env, corev1.EnvVar{Name: name, Value: want}) {
			t.Errorf("%s is missing: %v", name, own.Containers[0].Env)
		}
	}
	if args := own.Containers[0].Args; !slices.Contains(args, "--hung-after=1m") || !slices.Contains(args, "--qps=-1") || len(own.TopologySpreadConstraints) != 2 {
		t.Errorf("%q, %v", args, own.TopologySpreadConstraints)
	}
	if all["PodDisruptionBudget kai-scheduler/muster-operator"] == nil {
		t.Error("two operators have no budget")
	}
	if own.PriorityClassName != "system-cluster-critical" || config.Spec.Global.PriorityClassName != "system-cluster-critical" {
		t.Errorf("priority classes %q and %q", own.PriorityClassName, config.Spec.Global.PriorityClassName)
	}
}

// TestGuards: how tenants are guarded by default, and that each value of it arrives.
func TestGuards(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]map[string]string{
		"": {install.AnnotationIdentity: "enforce", install.AnnotationAuthorizeQueues: "false", install.AnnotationTrustedUsers: "", install.AnnotationForbidForeignGPUs: "", install.AnnotationClientCA: ""},
		"admission: {identity: warn, authorizeQueues: true, trustedUsers: [a, b], forbidForeignGPUs: true, clientCAConfigMap: callers}": {
			install.AnnotationIdentity: "warn", install.AnnotationAuthorizeQueues: "true", install.AnnotationTrustedUsers: "a,b", install.AnnotationForbidForeignGPUs: "true", install.AnnotationClientCA: "callers",
		},
	} {
		rendered, err := render(t, values, false)
		if err != nil {
			t.Fatal(err)
		}
		notes := objects(t, rendered)["Config /kai-config"].(*kaiv1.Config).Annotations
		for key, value := range want {
			if notes[key] != value {
				t.Errorf("%q: %s is %q, want %q", values, key, notes[key], value)
			}
		}
	}
}

// TestOpenShift: the chart's own containers name no user, and the agent on nodes may use the constraint that the values name.
func TestOpenShift(t *testing.T) {
	t.Parallel()
	for values, bound := range map[string]string{
		"openshift: true": "system:openshift:scc:hostmount-anyuid",
		"{openshift: true, numaPlacementExporter: {securityContextConstraint: mine}}": "system:openshift:scc:mine",
		"{openshift: true, numaPlacementExporter: {enabled: false}}":                  "",
	} {
		rendered, err := render(t, values, false)
		if err != nil {
			t.Fatal(err)
		}
		all := objects(t, rendered)
		for _, pod := range []corev1.PodSpec{
			all["Deployment kai-scheduler/muster-operator"].(*appsv1.Deployment).Spec.Template.Spec, all["Job kai-scheduler/muster-crds"].(*batchv1.Job).Spec.Template.Spec,
		} {
			if pod.SecurityContext != nil || pod.Containers[0].SecurityContext != nil {
				t.Errorf("%s: %+v", values, pod)
			}
		}
		b, ok := all["RoleBinding kai-scheduler/muster-numa-exporter-scc"].(*rbacv1.RoleBinding)
		if ok != (bound != "") || ok && (b.RoleRef.Name != bound || b.Subjects[0].Name != install.Name(install.Exporter)) {
			t.Errorf("%s: %+v", values, b)
		}
	}
}
