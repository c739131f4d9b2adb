package proof

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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	queuev2 "github.com/muster-scheduler/muster/api/scheduling/v2"
	"github.com/muster-scheduler/muster/deploy/chart"
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

// render is `helm template`: the rendered files by their names, without empty ones.
func render(t testing.TB, values string, upgrade bool) (map[string]string, error) {
	t.Helper()
	c := load(t)
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = chartutil.KubeVersion{Version: "v1.36.3", Major: "1", Minor: "36"}
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
		"scheduler: {placementStrategy: both}":          "placementStrategy",
		"scheduler: {goMemLimitRatio: 2}":               "goMemLimitRatio",
		"operator: {replicaCount: two}":                 "replicaCount",
		"global: {imagePullSecrets: [one]}":             "imagePullSecrets",
		"binder: {ports: {metricsPort: 70000}}":         "metricsPort",
		"global: {resourceReservation: {namespace: 3}}": "namespace",
	} {
		if _, err := render(t, values, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error about %s", values, err, want)
		}
	}
}
