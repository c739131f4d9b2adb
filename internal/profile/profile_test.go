package profile

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/usage"
)

// names lists the plugins of a profile in the order in which they are asked.
func names(p engine.Profile) []string {
	var out []string
	for _, tier := range p.Tiers {
		for _, u := range tier {
			out = append(out, u.Name)
		}
	}
	return out
}

// arguments returns those of one plugin; ok is false when the profile does not have it.
func arguments(p engine.Profile, plugin string) (args policy.Arguments, ok bool) {
	for _, tier := range p.Tiers {
		for _, u := range tier {
			if u.Name == plugin {
				return u.Arguments, true
			}
		}
	}
	return nil, false
}

func on() *bool     { yes := true; return &yes }
func off() *bool    { no := false; return &no }
func at(n int) *int { return &n }
func resolved(t *testing.T, s Shard) engine.Profile {
	t.Helper()
	p, err := ForShard(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestConfigFile: what a file says holds, what it leaves out is the built-in profile's.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	builtIn := BuiltIn()
	for _, c := range []struct {
		name, text       string
		actions, plugins []string
	}{
		{"empty", "", builtIn.Actions, names(builtIn)},
		{"actions alone", `actions: "allocate, reclaim"`, []string{"allocate", "reclaim"}, names(builtIn)},
		{"plugins alone", "tiers:\n- plugins:\n  - name: priority\n  - name: elastic", builtIn.Actions, []string{"priority", "elastic", "disruptionbudgets"}},
		{"two tiers", "tiers:\n- plugins: [{name: elastic}]\n- plugins: [{name: priority}]", builtIn.Actions, []string{"elastic", "priority", "disruptionbudgets"}},
		{"budgets named", "tiers:\n- plugins: [{name: disruptionbudgets, arguments: {mode: ignore}}]\n- plugins: [{name: priority}]", builtIn.Actions, []string{"disruptionbudgets", "priority"}},
		{"no plugins at all", "tiers: []", builtIn.Actions, []string{"disruptionbudgets"}},
		{"KAI's switches are read and honoured by neither", "tiers:\n- plugins: [{name: priority, disableJobOrder: true, disableNodeOrder: true}]", builtIn.Actions, []string{"priority", "disruptionbudgets"}},
		{"depth and budgets are accepted", "queueDepthPerAction: {allocate: 5}\nusageDBConfig: {clientType: fake}\nscenarioSearchBudgets: {maxJobSearchDuration: 1s}", builtIn.Actions, names(builtIn)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := Parse([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.actions, p.Actions); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.plugins, names(p)); diff != "" {
				t.Errorf("plugins (-want +got):\n%s", diff)
			}
		})
	}
	p, err := Parse([]byte("tiers:\n- plugins: [{name: nodeplacement, arguments: {gpu: spread}}]"))
	if err != nil {
		t.Fatal(err)
	}
	if args, _ := arguments(p, "nodeplacement"); args["gpu"] != "spread" {
		t.Errorf("arguments are %v", args)
	}
}

// TestConfigFileErrors: an error names the key and the rule.
func TestConfigFileErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"actoins: allocate":                                        `unknown field "actoins"`,
		`actions: "allocate,,reclaim"`:                             "actions: \"allocate,,reclaim\" has an empty name between commas",
		`actions: ""`:                                              "actions: \"\" has an empty name",
		"tiers:\n- plugins: [{arguments: {}}]":                     "tiers[0].plugins[0]: name is missing",
		"tiers:\n- plugins: [{name: a, wrong: 1}]":                 "wrong",
		"actions: allocate\nqueueDepthPerAction: {reclaim: 5}":     `queueDepthPerAction: "reclaim" is not an action of this configuration (allocate)`,
		"actions: allocate\nqueueDepthPerAction: {allocate: -1}":   "queueDepthPerAction.allocate is -1; it must not be negative",
		"actions: [allocate]":                                      "actions",
		"tiers:\n- plugins: [{name: a, arguments: {gpu: [1, 2]}}]": "arguments",
		"{": "scheduler configuration",
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "scheduler configuration: ") {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}

// TestShardDefaults: a shard that says nothing has KAI's plugins by priority, and everything that packs.
func TestShardDefaults(t *testing.T) {
	t.Parallel()
	p := resolved(t, Shard{})
	want := []string{
		"predicates", "proportion", "priority", "nodeavailability", "resourcetype", "podaffinity", "elastic", "kubeflow", "ray",
		"subgrouporder", "taskorder", "nominatednode", "dynamicresources", "minruntime", "topology", "snapshot", "sg-nodelocalgreedy", "sg-multinodegang",
		"gpupack", "nodeplacement", "gpusharingorder", "disruptionbudgets",
	}
	if diff := cmp.Diff(want, names(p)); diff != "" {
		t.Errorf("plugins (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"}, p.Actions); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// TestShardStrategies: spreading switches consolidation off, for whichever resource; spreading GPUs also changes who
// places shared GPUs.
func TestShardStrategies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		gpu, cpu                       string
		consolidation, packing, spread bool
	}{
		{"", "", true, true, false},
		{"binpack", "binpack", true, true, false},
		{"spread", "", false, false, true},
		{"", "spread", false, true, false},
		{"spread", "spread", false, false, true},
	} {
		p := resolved(t, Shard{GPUStrategy: c.gpu, CPUStrategy: c.cpu})
		_, pack := arguments(p, "gpupack")
		_, order := arguments(p, "gpusharingorder")
		_, spread := arguments(p, "gpuspread")
		if slices.Contains(p.Actions, "consolidation") != c.consolidation || pack != c.packing || order != c.packing || spread != c.spread {
			t.Errorf("gpu %q, cpu %q: actions %v, plugins %v", c.gpu, c.cpu, p.Actions, names(p))
		}
		args, _ := arguments(p, "nodeplacement")
		if (args["gpu"] == "spread") != (c.gpu == "spread") || (args["cpu"] == "spread") != (c.cpu == "spread") {
			t.Errorf("gpu %q, cpu %q: arguments %v", c.gpu, c.cpu, args)
		}
	}
	for field, s := range map[string]Shard{"placementStrategy.gpu": {GPUStrategy: "heap"}, "placementStrategy.cpu": {CPUStrategy: "heap"}} {
		if _, err := ForShard(s); err == nil || !strings.Contains(err.Error(), field+` is "heap"; it must be binpack or spread`) {
			t.Errorf("%s: error %v", field, err)
		}
	}
}

// TestShardOverrides: a shard switches off and on, reorders, adds, and replaces arguments as a whole.
func TestShardOverrides(t *testing.T) {
	t.Parallel()
	p := resolved(t, Shard{
		Plugins: map[string]Override{
			"elastic":           {Enabled: off()},
			"disruptionbudgets": {Enabled: off()},
			"gpuspread":         {Enabled: on()},
			"taskorder":         {Priority: at(5000)},
			"ray":               {Priority: at(1200)}, // as kubeflow: ties go by name
			"mine":              {Arguments: map[string]string{"a": "b"}},
			"nodeplacement":     {Arguments: map[string]string{"cpu": "spread"}},
			"minruntime":        {Arguments: map[string]string{}},
		},
		Actions: map[string]Override{"reclaim": {Priority: at(900)}, "preempt": {Enabled: off()}},
	})
	got := names(p)
	if slices.Contains(got, "elastic") || slices.Contains(got, "disruptionbudgets") || !slices.Contains(got, "gpuspread") {
		t.Errorf("switched wrongly: %v", got)
	}
	if got[0] != "taskorder" || got[len(got)-1] != "mine" {
		t.Errorf("order: %v", got)
	}
	if k := slices.Index(got, "kubeflow"); k < 0 || got[k+1] != "ray" {
		t.Errorf("kubeflow and ray: %v", got)
	}
	if diff := cmp.Diff([]string{"reclaim", "allocate", "consolidation", "stalegangeviction"}, p.Actions); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	for plugin, want := range map[string]policy.Arguments{"nodeplacement": {"cpu": "spread"}, "mine": {"a": "b"}, "minruntime": {}, "priority": nil} {
		args, _ := arguments(p, plugin)
		if diff := cmp.Diff(want, args); diff != "" {
			t.Errorf("arguments of %s (-want +got):\n%s", plugin, diff)
		}
	}
}

// TestShardFragmentation: what descends the fragmentation says where parts of GPUs go, unless somebody wants it otherwise.
func TestShardFragmentation(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		shard Shard
		want  []string
	}{
		"added":        {Shard{Plugins: map[string]Override{"fragmentation": {}}}, []string{"fragmentation"}},
		"over spread":  {Shard{GPUStrategy: "spread", Plugins: map[string]Override{"fragmentation": {Enabled: on()}}}, []string{"fragmentation"}},
		"switched off": {Shard{Plugins: map[string]Override{"fragmentation": {Enabled: off()}}}, []string{"gpupack", "gpusharingorder"}},
		"with packing": {Shard{Plugins: map[string]Override{"fragmentation": {}, "gpupack": {Enabled: on()}}}, []string{"gpupack", "fragmentation"}},
	} {
		got := slices.DeleteFunc(names(resolved(t, c.shard)), func(n string) bool {
			return !slices.Contains([]string{"fragmentation", "gpupack", "gpuspread", "gpusharingorder"}, n)
		})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestShardNumbers: kValue and minimal run times become arguments of the plugins that use them.
func TestShardNumbers(t *testing.T) {
	t.Parallel()
	k := 0.25
	p := resolved(t, Shard{KValue: &k, PreemptMinRuntime: "10m"})
	if args, _ := arguments(p, "proportion"); args["kValue"] != "0.25" {
		t.Errorf("proportion: %v", args)
	}
	args, _ := arguments(p, "minruntime")
	if diff := cmp.Diff(policy.Arguments{"defaultPreemptMinRuntime": "10m"}, args); diff != "" {
		t.Errorf("minruntime (-want +got):\n%s", diff)
	}
}

// TestProfileMeetsRegistry: what a profile asks for and the registry does not have is an error that names it; an argument that
// a plugin does not know is a warning.
func TestProfileMeetsRegistry(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"unknown plugin", "tiers:\n- plugins: [{name: nosuch}]", `unknown plugin "nosuch"; known: `},
		{"unknown action", "actions: nosuch", `unknown action "nosuch"; known: allocate, `},
		{"plugin twice", "tiers:\n- plugins: [{name: elastic}]\n- plugins: [{name: elastic}]", `plugin "elastic" is listed twice`},
		{"action twice", "actions: allocate,allocate", `action "allocate" is listed twice`},
		{"bad argument", "tiers:\n- plugins: [{name: nodeplacement, arguments: {gpu: heap}}]", `plugin "nodeplacement": argument "gpu" is "heap"; it must be "binpack" or "spread"`},
		{"bad mode", "tiers:\n- plugins: [{name: disruptionbudgets, arguments: {mode: block}}]", `plugin "disruptionbudgets": argument "mode" is "block"; it must be order or ignore`},
		{"bad number", "tiers:\n- plugins: [{name: proportion, arguments: {kValue: much}}]", `plugin "proportion": argument "kValue" is "much"; it must be a number`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p, err := Parse([]byte(c.text))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := engine.New(p, builtin.Registry()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	p, err := Parse([]byte("actions: allocate,reclaim\ntiers:\n- plugins: [{name: sg-nodelocalgreedy}, {name: elastic, arguments: {speed: fast}}]"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(p, builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`plugin "elastic" does not know argument "speed"; it has no effect`,
	}
	if diff := cmp.Diff(want, e.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	for _, p := range []engine.Profile{BuiltIn(), resolved(t, Shard{})} {
		if _, err := engine.New(p, builtin.Registry()); err != nil {
			t.Error(err)
		}
	}
}

// TestUsage: the history's configuration is read from the same file, beside the profile, and refused with it.
func TestUsage(t *testing.T) {
	t.Parallel()
	for text, client := range map[string]usage.Client{
		"actions: allocate": "", "usageDBConfig:": "", "usageDBConfig: {}": usage.Embedded,
		"usageDBConfig: {clientType: fake}": usage.Fake, "usageDBConfig: {clientType: fake-with-history}": usage.Embedded,
		"usageDBConfig: {clientType: prometheus, connectionString: 'http://p:9090', usageParams: {windowType: tumbling, tumblingWindowStartTime: 2026-01-01T00:00:00Z}}": usage.Prometheus,
	} {
		c, err := Usage([]byte(text))
		switch {
		case err != nil:
			t.Errorf("%s: %v", text, err)
		case c == nil && client != "":
			t.Errorf("%s: nothing", text)
		case c != nil && c.Client != client:
			t.Errorf("%s: client %q, want %q", text, c.Client, client)
		}
		if _, err := Parse([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, text := range []string{"usageDBConfig: {clientType: influx}", "usageDBConfig: {usageParams: {windowSize: 1.5d}}", "usageDBConfig: 3"} {
		if _, err := Usage([]byte(text)); err == nil {
			t.Errorf("%s: accepted", text)
		}
		if _, err := Parse([]byte(text)); err == nil {
			t.Errorf("%s: accepted with the profile", text)
		}
	}
}
