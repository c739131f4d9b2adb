package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMigrateValues: a value without effect is named with the reason, and one with effect is not.
func TestMigrateValues(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("operator: {image: {name: other}}\nglobal: {gpuSharing: true}\nwhatever: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := NewMigrate(Deps{})
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetArgs([]string{"values", file})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := out.String(); !strings.Contains(s, "operator.image.name") || !strings.Contains(s, "whatever") || strings.Contains(s, "gpuSharing") {
		t.Error(s)
	}
}

// TestMigrateVolcanosValues: a values file of Volcano's becomes one of Muster's chart, as text and for programs; another --from is refused.
func TestMigrateVolcanosValues(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("custom: {controller_replicas: 2, vap_enable: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		c := NewMigrate(Deps{})
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(&out)
		c.SetArgs(append([]string{"values", file}, args...))
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := run("--from=volcano")
	if want := "# custom.controller_replicas: volcano.replicaCount\n" +
		"# custom.vap_enable has no effect: what policies of the API server can say, they say in any case\nvolcano:\n  enabled: true\n  replicaCount: 2\n"; err != nil || out != want {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run("--from=volcano", "-o", "json")
	var report struct {
		Chart    map[string]any
		Taken    []struct{ Path string }
		NoEffect []struct{ Path, Why string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &report)
	}
	if err != nil || report.Chart["volcano"] == nil || len(report.Taken) != 1 || len(report.NoEffect) != 1 || report.NoEffect[0].Why == "" {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := run("--from=kueue"); err == nil {
		t.Error("values of Kueue's are taken")
	}
}

const kueueObjects = `apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: any
      resources: [{name: cpu, nominalQuota: 9}, {name: memory, nominalQuota: 1500M}, {name: nvidia.com/gpu, nominalQuota: 2}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {namespace: team-n, name: l}
spec: {clusterQueue: team}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: soon}
value: 60
`

// migrateQueues runs `muster migrate queues` over standard input.
func migrateQueues(t *testing.T, in string, args ...string) (out, told string, err error) {
	t.Helper()
	c := NewMigrate(Deps{})
	var stdout, stderr bytes.Buffer
	c.SetIn(strings.NewReader(in))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(append([]string{"queues", "-f", "-"}, args...))
	c.SilenceUsage, c.SilenceErrors = true, true
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestMigrateQueues: manifests of Kueue's become manifests of Muster's, with labels and losses as comments; or one JSON object.
func TestMigrateQueues(t *testing.T) {
	t.Parallel()
	out, told, err := migrateQueues(t, kueueObjects, "--from", "kueue")
	const want = `# On workloads, besides spec.schedulerName kai-scheduler:
#   kai.scheduler/queue=team instead of kueue.x-k8s.io/queue-name=l (namespace team-n)
#   priorityClassName=soon instead of kueue.x-k8s.io/priority-class=soon
# Gets lost (1):
#   ClusterQueues: spec.resourceGroups[].coveredResources[]: a resource that no quota is of is not limited; Kueue does not admit work that asks for it
#     instead: add it to spec.resources.extended
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata:
  name: team
spec:
  resources:
    cpu:
      limit: 9000
      overQuotaWeight: 1
      quota: 9000
    gpu:
      limit: 2
      overQuotaWeight: 1
      quota: 2
    memory:
      limit: 1500
      overQuotaWeight: 1
      quota: 1500
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: soon
value: 60
`
	if err != nil || told != "" || out != want {
		t.Errorf("%v\n%s\n%s", err, told, out)
	}
	out, _, err = migrateQueues(t, kueueObjects, "--from", "kueue", "-o", "json")
	var plan struct{ Queues, PriorityClasses, Labels, Losses []any }
	if err != nil || json.Unmarshal([]byte(out), &plan) != nil || len(plan.Queues) != 1 || len(plan.PriorityClasses) != 1 || len(plan.Labels) != 2 || len(plan.Losses) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMigrateQueuesRefuses: what cannot be carried over is named, and nothing is printed; so is a wrong flag.
func TestMigrateQueuesRefuses(t *testing.T) {
	t.Parallel()
	loop := kueueObjects + "---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: o}, spec: {parentName: o}}\n"
	out, told, err := migrateQueues(t, loop, "--from", "kueue")
	if !errors.Is(err, errRefused) || out != "" || !strings.Contains(told, "Cohort o: spec.parentName: the cohorts form a loop: o → o") {
		t.Errorf("%v\n%s\n%s", err, told, out)
	}
	same := kueueObjects + "---\n{apiVersion: kueue.x-k8s.io/v1beta2, kind: Cohort, metadata: {name: team}}\n"
	if _, told, err := migrateQueues(t, same, "--from", "kueue"); !errors.Is(err, errRefused) || !strings.Contains(told, "ClusterQueue team: metadata.name: a Queue team is made of Cohort team already") {
		t.Errorf("%v\n%s", err, told)
	}
	if _, told, err := migrateQueues(t, same, "--from", "kueue", "--cohort-prefix", "cohort-"); err != nil {
		t.Errorf("%v\n%s", err, told)
	}
	for _, c := range []struct {
		in, want string
		args     []string
	}{
		{kueueObjects, "--from is \"\"; it must be kueue", nil},
		{kueueObjects, "--output is \"table\"; it must be yaml or json", []string{"--from", "kueue", "-o", "table"}},
		{"apiVersion: v1\nkind: Namespace\nmetadata: {name: team-n}\n", "there is nothing of Kueue's (kueue.x-k8s.io)", []string{"--from", "kueue"}},
		{"a: b: c", "-: document 1: ", []string{"--from", "kueue"}},
	} {
		if out, _, err := migrateQueues(t, c.in, c.args...); err == nil || out != "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: want %q\n%s", err, c.want, out)
		}
	}
}
