package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

func renderCommand(t *testing.T, stdin string, args ...string) (out, said string, err error) {
	t.Helper()
	c := newRender(Deps{Registry: func(bool) engine.Registry { return builtin.Registry() }, SchedulerFlags: []string{"v"}})
	var stdout, stderr bytes.Buffer
	c.SetArgs(args)
	c.SetIn(strings.NewReader(stdin))
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SilenceUsage = true
	err = c.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

const manifest = `# The installation.
---
apiVersion: kai.scheduler/v1
kind: Config
metadata: {name: kai-config}
spec: {prometheus: {enabled: true}}
---
apiVersion: kai.scheduler/v1
kind: SchedulingShard
metadata: {name: a}
spec: {partitionLabelValue: a, args: {nosuch: "1"}, plugins: {predicates: {enabled: false}, podaffinity: {enabled: false}, dynamicresources: {enabled: false}}}
`

// TestRenderPrints the objects of files and of standard input, and tells what has no effect.
func TestRenderPrints(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "b.yaml")
	if err := os.WriteFile(file, []byte(strings.NewReplacer("name: a", "name: b", "Value: a", "Value: b").Replace(manifest[strings.LastIndex(manifest, "---"):])), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, err := renderCommand(t, manifest, "-f", "-,"+file, "--repository=r.example", "--tag=v3", "--with=Prometheus")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: muster-scheduler-a", "name: muster-scheduler-b", "image: r.example/muster:v3", "kind: Prometheus", "- --partition-label-value=b"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in the output", want)
		}
	}
	if !strings.HasPrefix(out, "---\napiVersion: ") || strings.Contains(out, "kind: ServiceMonitor") {
		t.Errorf("output begins %.40q", out)
	}
	for _, want := range []string{"warning: SchedulingShard a: spec.args.nosuch is left out", "asks for a ServiceMonitor"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %q", want, said)
		}
	}
}

// TestRenderRefuses what it cannot read, by file, document and rule, and prints nothing then.
func TestRenderRefuses(t *testing.T) {
	t.Parallel()
	const shard = "apiVersion: kai.scheduler/v1\nkind: SchedulingShard\nmetadata: {name: a}\n"
	for name, c := range map[string]struct {
		in, want string
		args     []string
	}{
		"no file":      {"", "-f is missing", []string{}},
		"absent":       {"", "-f: open /nowhere/x", []string{"-f", "/nowhere/x"}},
		"no YAML":      {"a: b: c", "-: document 1", nil},
		"another kind": {"apiVersion: v1\nkind: Pod", "-: document 1: v1 Pod: only Config", nil},
		"a typo":       {shard + "spec: {kvalue: 1, KValu: 2}", `-: document 1: SchedulingShard:`, nil},
		"twice":        {shard + "---\n" + shard, `-: document 2: SchedulingShard: metadata.name is "a"`, nil},
		"other name":   {"apiVersion: kai.scheduler/v1\nkind: Config\nmetadata: {name: mine}", "only kai-config counts", nil},
		"bad shard":    {shard + "spec: {placementStrategy: {cpu: pile}}", `SchedulingShard a: spec.placementStrategy.cpu is "pile"`, nil},
		"bad plugin":   {shard + "spec: {plugins: {minruntim: {}}}", "plugins.minruntim is the name of no plugin; the nearest that is known is minruntime", nil},
		"bad kind":     {shard, `--with: "Pod" is none of`, []string{"-f", "-", "--with=Pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := c.args
			if args == nil {
				args = []string{"-f", "-"}
			}
			out, _, err := renderCommand(t, c.in, args...)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(out, "---") {
				t.Errorf("error %v, want %q; output %.50q", err, c.want, out)
			}
		})
	}
}
