package volcano

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/deploy/chart"
	"github.com/muster-scheduler/muster/docs/ledgers"
)

// TestValues: what a values file of Volcano's comes to, and what of it has no effect.
func TestValues(t *testing.T) {
	t.Parallel()
	const given = `
basic: {image_tag_version: v1.15.0, image_pull_policy: Always, image_pull_secret: pull, admission_port: 9443}
custom:
  admission_replicas: 2
  controller_replicas: 1
  controller_worker_threads: 9
  controller_enabled_controllers: "*,-gc-controller"
  scheduler_name: other
  scheduler_schedule_period: 2s
  scheduler_config_override: "actions: \"allocate\"\n"
  scheduler_feature_gates: SchedulingGatesQueueAdmission=true, VolcanoJobSupport=true
  scheduler_resources: {limits: {memory: 4Gi}}
  default_sc: {seccompProfile: {type: RuntimeDefault}, seLinuxOptions: {level: "s0:c123,c456"}}
  default_tolerations: [{key: a, operator: Exists}]
  scheduler_affinity: ~
  vap_enable: true
  colour: red
other: 1
"line\nbreak": 1
`
	got, err := ConvertValues([]byte(given))
	if err != nil {
		t.Fatal(err)
	}
	const want = `# basic.admission_port: admission.ports.webhookPort
# basic.image_pull_secret: global.imagePullSecrets[].name
# custom.admission_replicas: admission.replicaCount
# custom.controller_enabled_controllers: volcano.extraArgs --controllers
# custom.controller_worker_threads: volcano.extraArgs --worker-threads
# custom.default_tolerations: global.tolerations
# custom.scheduler_config_override: volcano.schedulerConf
# custom.scheduler_feature_gates: volcano.queueGates
# custom.scheduler_name: scheduler.args.volcano-scheduler-name, volcano.extraArgs --scheduler-name, admission.extraArgs --volcano-scheduler-name
# custom.scheduler_resources: scheduler.resources
# custom.scheduler_schedule_period: scheduler.args.schedule-period
# basic.image_tag_version has no effect: it is Volcano's version, of which there is no image of Muster's: global.tag
# custom.colour has no effect: nothing is known of such a value of Volcano's chart
# custom.scheduler_feature_gates has no effect: there is nothing that the feature gate "VolcanoJobSupport" switches
# custom.vap_enable has no effect: what policies of the API server can say, they say in any case
# line\nbreak has no effect: nothing is known of such a value of Volcano's chart
# other has no effect: nothing is known of such a value of Volcano's chart
admission:
  extraArgs:
  - --volcano-scheduler-name=other
  ports:
    webhookPort: 9443
  replicaCount: 2
global:
  imagePullSecrets:
  - name: pull
  tolerations:
  - key: a
    operator: Exists
scheduler:
  args:
    schedule-period: 2s
    volcano-scheduler-name: other
  resources:
    limits:
      memory: 4Gi
volcano:
  enabled: true
  extraArgs:
  - --controllers=*,-gc-controller
  - --worker-threads=9
  - --scheduler-name=other
  queueGates: true
  schedulerConf: |
    actions: "allocate"
`
	if d := cmp.Diff(want, got.Text()); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for _, wrong := range []string{"- a", "a: [", strings.Repeat("#", mostOfValues+1)} {
		if _, err := ConvertValues([]byte(wrong)); err == nil {
			t.Errorf("%.20q is taken", wrong)
		}
	}
	if got, err := ConvertValues(nil); err != nil || got.Text() != "volcano:\n  enabled: true\n" {
		t.Errorf("of nothing: %v, %v", got, err)
	}
}

// TestValuesLedger: each row says one thing, and where it goes is a value of Muster's chart that has an effect.
func TestValuesLedger(t *testing.T) {
	t.Parallel()
	rows, err := ledgers.VolcanoValues()
	if err != nil {
		t.Fatal(err)
	}
	for path, row := range rows { // order: each by itself
		said := 0
		for _, is := range []bool{len(row.To) > 0, len(row.Gate) > 0, row.Ignored != ""} {
			if is {
				said++
			}
		}
		if said != 1 {
			t.Errorf("%s: of to, gate and ignored %d are said", path, said)
		}
		v := &Values{Chart: map[string]any{}}
		for _, to := range row.To {
			v.set(to, "x")
		}
		for _, to := range row.Gate { // order: no matter
			v.set(to, true)
		}
		text, err := yaml.Marshal(v.Chart)
		if err != nil {
			t.Fatal(err)
		}
		found, err := chart.Report(text)
		if err != nil || len(found) > 0 {
			t.Errorf("%s: Muster's chart says %v, %v", path, found, err)
		}
	}
}

// TestValuesAreVolcanos: there is a row for each value that Volcano's chart has, with its default, and none for another.
func TestValuesAreVolcanos(t *testing.T) {
	t.Parallel()
	rows, err := ledgers.VolcanoValues()
	if err != nil {
		t.Fatal(err)
	}
	speaksOf := func(path string) (string, bool) {
		for ; path != ""; path = path[:max(strings.LastIndex(path, "."), 0)] {
			if _, there := rows[path]; there {
				return path, true
			}
		}
		return "", false
	}
	n := 0
	for line := range strings.Lines(string(recordedValues(t))) {
		path, text, is := strings.Cut(strings.TrimSpace(line), " = ")
		if !is || path == "custom.key" || strings.HasPrefix(path, "custom.key.") { // these are of a toleration of the agent's
			continue
		}
		n++
		at, there := speaksOf(path)
		if !there {
			t.Errorf("%s has no row", path)
			continue
		}
		var want any
		if err := yaml.Unmarshal([]byte(text), &want); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		have := rows[at].Default
		for step := range strings.SplitSeq(strings.TrimPrefix(strings.TrimPrefix(path, at), "."), ".") {
			if m, ok := have.(map[string]any); ok && step != "" {
				have = m[step]
			}
		}
		if d := cmp.Diff(want, have); d != "" {
			t.Errorf("%s: the default is not Volcano's: -want +got:\n%s", path, d)
		}
	}
	if n < 100 {
		t.Errorf("%d values are recorded", n)
	}
}

// recordedValues are the values of Volcano's chart with their defaults, recorded; the test is skipped where they are not beside the checkout.
func recordedValues(t *testing.T) []byte {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const name = "shared/compat/volcano/values-keys.txt"
	for range 8 {
		if text, err := os.ReadFile(filepath.Join(at, filepath.FromSlash(name))); err == nil {
			return text
		}
		at = filepath.Dir(at)
	}
	t.Skipf("compatibility data %s is not beside this checkout: nothing to compare with", name)
	return nil
}

// FuzzValues: whatever is written, what comes of it is a values file.
func FuzzValues(f *testing.F) {
	f.Add([]byte("custom: {scheduler_name: [1], default_affinity: {a: b}}"))
	f.Add([]byte("basic: 1\ncustom: []\n\"a\\nb: c\": 1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ConvertValues(text)
		if err != nil {
			return
		}
		var back map[string]any
		if err := yaml.Unmarshal([]byte(v.Text()), &back); err != nil {
			t.Fatalf("%v:\n%s", err, v.Text())
		}
		one, _ := yaml.Marshal(back)
		if two, _ := yaml.Marshal(v.Chart); !bytes.Equal(one, two) {
			t.Errorf("%s is not %s", one, two)
		}
	})
}
