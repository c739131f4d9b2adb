package chart

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/served"
	schedulerfile "github.com/muster-scheduler/muster/internal/profile/volcano"
)

// TestGenerated: what the chart has from elsewhere is up to date.
func TestGenerated(t *testing.T) {
	t.Parallel()
	want, err := Generated()
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range want {
		got, err := fs.ReadFile(Files(), name)
		if err != nil || string(got) != string(text) {
			t.Errorf("%s is not up to date (run: make generate): %v\n%s", name, err, cmp.Diff(string(text), string(got)))
		}
	}
	for _, pattern := range GeneratedOnly() {
		there, err := fs.Glob(Files(), pattern)
		if err != nil || len(there) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(there), err)
		}
		for _, name := range there {
			if want[name] == nil {
				t.Errorf("%s is of nothing that there is (run: make generate)", name)
			}
		}
	}
}

// TestOldestKubernetes: the chart refuses the versions of Kubernetes for which nobody says what they lack.
func TestOldestKubernetes(t *testing.T) {
	t.Parallel()
	text, err := fs.ReadFile(Files(), "Chart.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		KubeVersion string `json:"kubeVersion"`
	}
	if err := yaml.Unmarshal(text, &c); err != nil || c.KubeVersion != ">="+served.Minor(served.Oldest)+".0-0" {
		t.Errorf("kubeVersion is %q, %v; the oldest is %s", c.KubeVersion, err, served.Minor(served.Oldest))
	}
}

// TestValues: there is a row for every default value, and no row says two things.
func TestValues(t *testing.T) {
	t.Parallel()
	rows, err := Values()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, row := range rows {
		if (row.To == "") == (row.Ignored == "") || seen[row.Path] {
			t.Errorf("%s: it has one row, which says either where it goes or why it goes nowhere", row.Path)
		}
		seen[row.Path] = true
	}
	text, err := fs.ReadFile(Files(), "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Report(text)
	if err != nil || len(got) > 0 {
		t.Errorf("the chart's own values: %v, %v", got, err)
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ values, want, fails string }{
		{values: "", want: ""},
		{values: "crdupgrader: {}\nglobal: {fipsMode: \"off\"}\ntopologyMigration: {enabled: true}", want: ""},
		{values: "scheduler: {args: {v: '4'}, plugins: {x: {enabled: false}}}", want: ""},
		{values: "topologyMigration: {enabled: false}", want: "topologyMigration: there is nothing to migrate"},
		{values: "global: {fipsMode: \"on\", other: 1}", want: "global.other: the chart knows no such value"},
		{values: "global: {registry: ghcr.io/kai-scheduler/kai-scheduler, tag: v0.17.0}", want: "global.registry: the registry ghcr.io/kai-scheduler/kai-scheduler is KAI's"},
		{values: "binder: {image: {name: mine, tag: x}}\ntypo: {a: 1}", want: "binder.image.name: all roles are one image|typo: the chart knows no such value"},
		{values: "[1]", fails: "read the values"},
		{values: "a: [", fails: "read the values"},
	} {
		found, err := Report([]byte(c.values))
		if (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: got %v, want %q", c.values, err, c.fails)
			continue
		}
		var want []string
		if c.want != "" {
			want = strings.Split(c.want, "|")
		}
		ok := len(found) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = strings.HasPrefix(found[i].Path+": "+found[i].Why, want[i])
		}
		if !ok {
			t.Errorf("%q: got %v, want %q", c.values, found, want)
		}
	}
}

// TestSchedulerFile: the file that the chart gives Volcano's gangs by default is one, and all of it is known.
func TestSchedulerFile(t *testing.T) {
	t.Parallel()
	text, err := fs.ReadFile(Files(), "values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Volcano struct {
			SchedulerConf string `json:"schedulerConf"`
		} `json:"volcano"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	f, err := schedulerfile.Parse([]byte(values.Volcano.SchedulerConf), builtin.Registry())
	if err != nil || !slices.Equal(f.Face.Actions, []string{"enqueue", "allocate", "backfill"}) || len(f.Face.Tiers) != 2 || len(f.Face.Tiers[1]) != 6 {
		t.Errorf("%+v, %v", f.Face, err)
	}
	for _, told := range f.Told {
		if !strings.Contains(told.Rule, "no part of their own") && !strings.Contains(told.Rule, "not honoured") {
			t.Error(told)
		}
	}
}
