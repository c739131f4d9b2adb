package volcano

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/profile"
)

// The files that Volcano comes with: what is compiled in, what its chart has, and what its own tests run with.
const (
	compiledIn = `actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
`
	chart = `actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack
`
	ci = `actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
  - name: sla
- plugins:
  - name: overcommit
    arguments:
      overcommit-factor: 1.5
  - name: drf
  - name: predicates
    arguments:
      predicate.DynamicResourceAllocationEnable: true
  - name: capacity
    enableHierarchy: true
  - name: nodeorder
  - name: network-topology-aware
`
)

// TestParse: the files that Volcano comes with are read, and are a profile that an engine takes.
func TestParse(t *testing.T) {
	t.Parallel()
	uses := func(names ...string) (out []engine.PluginUse) {
		for _, name := range names {
			out = append(out, engine.PluginUse{Name: name})
		}
		return out
	}
	reclaims := uses("overcommit", "drf", "predicates", "capacity", "nodeorder", "network-topology-aware")
	reclaims[0].Arguments = policy.Arguments{"overcommit-factor": "1.5"}
	reclaims[3].Arguments = policy.Arguments{"enableHierarchy": "true", "reclaim": "true"}
	first := uses("priority", "gang", "conformance")
	less := func(uses []engine.PluginUse, k int) []engine.PluginUse { // one is not asked about preemption
		uses[k].Off = []policy.Point{"preemptable"}
		return uses
	}
	firstOfChart, secondOfChart := less(slices.Clone(first), 1), less(uses("overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack"), 1)
	for text, want := range map[string]engine.Face{
		compiledIn: {Name: Face, Actions: []string{"enqueue", "allocate", "backfill"}, Tiers: [][]engine.PluginUse{first, uses("overcommit", "drf", "predicates", "proportion", "nodeorder")}},
		chart:      {Name: Face, Actions: []string{"enqueue", "allocate", "backfill"}, Tiers: [][]engine.PluginUse{firstOfChart, secondOfChart}},
		ci: {
			Name: Face, Actions: []string{"enqueue", "allocate", "backfill", "reclaim", "preempt"},
			Tiers: [][]engine.PluginUse{slices.Concat(firstOfChart, uses("sla")), reclaims},
		},
	} {
		file, err := Parse([]byte(text), builtin.Registry())
		if err != nil {
			t.Errorf("%v:\n%s", err, text)
			continue
		}
		if d := cmp.Diff(want, file.Face); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		p := profile.BuiltIn()
		p.Faces = []engine.Face{file.Face}
		if _, err := engine.New(p, builtin.Registry()); err != nil {
			t.Error(err)
		}
		if len(file.Told) != 2 || !strings.Contains(file.Told[0].Error(), "is nodeorder, of which is not honoured yet: imagelocality") || !strings.Contains(file.Told[1].Error(), "predicates") {
			t.Errorf("told: %v", file.Told)
		}
	}
}

// TestActionArguments: what gangpreempt and gangreclaim are told reaches them, and nothing of other actions does.
func TestActionArguments(t *testing.T) {
	t.Parallel()
	text := "configurations:\n- name: gangpreempt\n  arguments: {allowWholeBundle: false, maxDomains: 3}\n- name: allocate\n  arguments: {predicateErrorCacheEnable: {}}\nactions: allocate, gangpreempt\n"
	file, err := Parse([]byte(text), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]policy.Arguments{"gangpreempt": {"allowWholeBundle": "false"}}, file.Face.Arguments); d != "" || len(file.Told) != 2 {
		t.Errorf("told %v, -want +got:\n%s", file.Told, d)
	}
	p := profile.BuiltIn()
	p.Faces = []engine.Face{file.Face}
	if _, err := engine.New(p, builtin.Registry()); err != nil {
		t.Error(err)
	}
	p.Faces[0].Arguments["gangpreempt"]["allowWholeBundle"] = "x"
	if _, err := engine.New(p, builtin.Registry()); err == nil || !strings.Contains(err.Error(), "allowWholeBundle") {
		t.Errorf("%v", err)
	}
}

// TestRefused: a bad file is refused whole, and the line, the field and the rule are said.
func TestRefused(t *testing.T) {
	t.Parallel()
	const ok = "actions: enqueue, allocate\n"
	plugin := func(rest string) string { return ok + "tiers:\n- plugins:\n  - name: overcommit\n    " + rest + "\n" }
	for text, want := range map[string]string{
		"":                                  "line 1: the file is empty",
		"# nothing\n":                       "line 1: the file is empty",
		"---\nnull\n":                       "line 1: the file is empty",
		"actions: [":                        "line 1: the file is not YAML",
		"actions: \"a\n\n\tb\n":             "the file is not YAML",
		"just words":                        "line 1: the file must be a mapping",
		"tiers: []":                         "line 1: actions is missing",
		"actions:\n":                        "line 1: actions must be one value",
		"actions: [enqueue]":                "line 1: actions must be one value",
		"actions: ''":                       `line 1: actions names "", which is no action`,
		"\nactions: enqueue, dance\n":       `line 2: actions names "dance", which is no action; the nearest that is one is allocate`,
		"actions: enqueue,\n":               `line 1: actions names ""`,
		ok + "actions: allocate\n":          "line 2: the file.actions is there twice",
		ok + "tiers: 3\n":                   "line 2: tiers must be a list",
		ok + "tiers:\n- 3\n":                "line 3: tiers[0] must be a mapping",
		ok + "tiers:\n- plugins: gang\n":    "line 3: tiers[0].plugins must be a list",
		ok + "tiers:\n- plugins:\n  - 7\n":  "line 4: tiers[0].plugins[0] must be a mapping",
		ok + "tiers:\n- plugins:\n  - {}\n": "line 4: tiers[0].plugins[0].name is missing",
		ok + "tiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: gang\n":                    `line 6: tiers[1].plugins[0].name is "gang", which line 4 has already`,
		ok + "configurations:\n- name: dance\n":                                                    `line 3: configurations[0].name names "dance"`,
		ok + "configurations:\n- name: gangpreempt\n  arguments:\n    maxDomains: 0\n":             `line 5: configurations[0].arguments cannot be: argument "maxDomains" is "0"; it must be a whole number above 0`,
		ok + "configurations:\n- name: gangreclaim\n  arguments:\n    allowWholeBundle: perhaps\n": `line 5: configurations[0].arguments cannot be: argument "allowWholeBundle" is "perhaps"; it must be true or false`,
		ok + "configurations:\n- name: gangreclaim\n  arguments: {allowWholeBundle: [true]}\n":     `line 4: configurations[0].arguments cannot be: argument "allowWholeBundle" is "no one value"`,
		ok + "configurations:\n- arguments: {}\n":                                                  "line 3: configurations[0].name is missing",
		ok + "metrics: 3\n":                                                                         "line 2: metrics must be a mapping",
		plugin("enableJobOrder: maybe"):                                                             `line 5: tiers[0].plugins[0].enableJobOrder is "maybe"; it must be true or false`,
		plugin("enableJobOrder: true\n    enabledJobOrder: false"):                                  "line 6: tiers[0].plugins[0].enabledJobOrder says otherwise",
		plugin("arguments: [1]"):                                                                    "line 5: tiers[0].plugins[0].arguments must be a mapping",
		plugin("arguments:\n      overcommit-factor: much"):                                         `line 6: tiers[0].plugins[0].arguments cannot be: argument "overcommit-factor" is "much"`,
		plugin("arguments:\n      overcommit-factor: [1]"):                                          `line 6: tiers[0].plugins[0].arguments cannot be: argument "overcommit-factor"`,
		ok + "tiers:\n- plugins:\n  - name: sla\n    arguments: {sla-waiting-time: -1h}\n":          `line 5: tiers[0].plugins[0].arguments cannot be: argument "sla-waiting-time" is "-1h"`,
		ok + "tiers:\n- plugins:\n  - name: proportion\n  - name: drf\n    enableHierarchy: true\n": "line 5: tiers[0] has drf with enableHierarchy beside proportion",
		ok + "x: &a [1]\ny: *a\n":                                                                   "line 3: *a is an alias",
		ok + "tiers:" + strings.Repeat("\n- {}", 65):                                                "line 3: tiers has 65 entries",
		ok + "x: " + strings.Repeat("[", 99) + strings.Repeat("]", 99):                              "the file is nested too deeply",
		ok + "# " + strings.Repeat("x", 1<<20):                                                      "line 1: the file has",
	} {
		file, err := Parse([]byte(text), builtin.Registry())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200q: %v, want %s", text, err, want)
		}
		if d := cmp.Diff(File{}, file); d != "" {
			t.Errorf("%.200q: something is left of it: %s", text, d)
		}
	}
	many := ok + "tiers:\n- plugins:\n"
	for i := range MostPlugins + 1 {
		many += fmt.Sprintf("  - name: p%d\n", i)
	}
	if _, err := Parse([]byte(many), builtin.Registry()); err == nil || !strings.Contains(err.Error(), "one plugin too many") {
		t.Errorf("%d plugins: %v", MostPlugins+1, err)
	}
}

// TestOrderIsTold: a file whose actions are in another order than that in which they are done is told so, with what is the other way round.
func TestOrderIsTold(t *testing.T) {
	t.Parallel()
	for actions, want := range map[string]string{ // order: each for itself
		"enqueue, allocate, backfill":                                    "",
		"enqueue, allocate, backfill, reclaim, preempt":                  "",
		"enqueue, backfill, allocate, shuffle, gangreclaim, gangpreempt": "",
		"allocate, preempt, gangpreempt, gangreclaim":                    "",
		"enqueue, allocate, preempt, reclaim, backfill":                  "has preempt before reclaim",
		"preempt, backfill, allocate":                                    "has preempt before allocate",
		"allocate, enqueue":                                              "has allocate before enqueue",
		"enqueue, shuffle, allocate":                                     "has shuffle before allocate",
		"enqueue, gangreclaim, allocate":                                 "has gangreclaim before allocate",
	} {
		file, err := Parse([]byte("actions: "+actions), builtin.Registry())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range file.Told {
			got += f.Error()
		}
		if want == "" && got != "" || want != "" && (!strings.HasPrefix(got, "line 1: actions "+want) || !strings.Contains(got, "enqueue, allocate, reclaim, preempt, and then those in bundles and shuffle")) {
			t.Errorf("%s: told %q, want %q", actions, got, want)
		}
	}
}

// TestTold: what has no effect is told, with its line; the rest is read all the same. Both spellings of switches are.
func TestTold(t *testing.T) {
	t.Parallel()
	file, err := Parse([]byte(`actions: enqueue, allocate, enqueue
colour: red
tiers:
- plugins:
  - name: overcomit
  - name: proportion
    enabledJobEnqueued: false
    enableTheCat: true
    arguments: {whim: 1}
  - name: capacity
    enableJobEnqueued: true
  - name: usage
    arguments: {thresholds: {cpu: 80}}
  - name: rescheduling
    arguments: {strategies: [{name: offlineOnly}]}
  comment: none
configurations:
- name: allocate
  arguments: {predicateErrorCacheEnable: false}
metrics: {type: prometheus}
`), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, f := range file.Told {
		told = append(told, f.Error())
	}
	for i, want := range []string{
		"line 2: colour is no key of a scheduler file",
		"line 19: configurations[0].arguments.predicateErrorCacheEnable has no effect yet",
		"line 20: metrics has no effect without type and address",
		`line 5: tiers[0].plugins[0].name is "overcomit", which is no plugin, and is left out; the nearest that is one is overcommit`,
		"line 8: tiers[0].plugins[1].enableTheCat is no key of a plugin",
		"line 9: tiers[0].plugins[1].arguments.whim is no argument of plugin proportion",
		"line 15: tiers[0].plugins[4].arguments.strategies[0].name=offlineOnly is nothing that plugin rescheduling knows, and has no effect",
		"line 16: tiers[0].comment is no key of a tier",
		"line 12: tiers name plugin usage, which has no opinion without metrics of type prometheus and with an address",
	} {
		if i >= len(told) || !strings.Contains(told[i], want) {
			t.Errorf("%d: want %s, told:\n%s", i, want, strings.Join(told, "\n"))
		}
	}
	if len(told) != 9 {
		t.Errorf("told %d things", len(told))
	}
	uses := file.Face.Tiers[0]
	if len(uses) != 4 || !slices.Equal(uses[0].Off, []policy.Point{"admission-vote"}) || uses[1].Off != nil || len(file.Face.Actions) != 2 {
		t.Errorf("%+v", file.Face)
	}
}

// TestMetrics: of a Prometheus server address and interval are read where a plugin looks at it; what of it has no effect is told, and what is no URL or no duration is refused without
// being repeated.
func TestMetrics(t *testing.T) {
	t.Parallel()
	plugins := "actions: allocate\ntiers: [{plugins: [{name: usage}]}]\nmetrics: "
	for text, want := range map[string]struct {
		metrics *Metrics
		told    string
		err     string
	}{
		plugins + "{type: prometheus, address: 'https://u:secret@p:9090/x'}":                          {metrics: &Metrics{"https://u:secret@p:9090/x", 30 * time.Second}},
		plugins + "{type: prometheus, address: 'http://p', interval: 1m}":                             {metrics: &Metrics{"http://p", time.Minute}},
		plugins + "{type: prometheus, address: 'http://p', interval: 1s}":                             {&Metrics{"http://p", 5 * time.Second}, "line 3: metrics.interval is 1s; the source is asked every 5s", ""},
		plugins + "{type: prometheus, address: 'http://p', interval: 6m}":                             {&Metrics{"http://p", 6 * time.Minute}, "plugin usage has no opinion", ""},
		plugins + "{type: prometheus, address: 'http://p', tls: {insecureSkipVerify: true}}":          {&Metrics{"http://p", 30 * time.Second}, "metrics.tls has no effect: the certificate", ""},
		plugins + "{type: prometheus, address: 'http://p', colour: red}":                              {&Metrics{"http://p", 30 * time.Second}, "metrics.colour is no key of metrics", ""},
		plugins + "{type: elasticsearch, address: 'http://p', elasticsearch: {index: x}}":             {nil, "metrics.type is elasticsearch and has no effect", ""},
		plugins + "{type: prometheus_adaptor}":                                                        {nil, "metrics.type is prometheus_adaptor and has no effect", ""},
		plugins + "{type: oracle, address: 'http://p'}":                                               {nil, `metrics.type is "oracle", which is no source`, ""},
		plugins + "{type: prometheus}":                                                                {nil, "metrics has no effect without type and address", ""},
		"actions: allocate\ntiers: [{plugins: [{name: usage}]}]\n":                                    {nil, "line 2: tiers name plugin usage, which has no opinion", ""},
		"actions: allocate\nmetrics: {type: prometheus, address: 'http://p'}\n":                       {nil, "line 2: metrics has no effect: of the plugins only usage", ""},
		plugins + "{type: prometheus, address: 'u:secret@p'}":                                         {err: "line 3: metrics.address must be a URL"},
		plugins + "{type: prometheus, address: 'ftp://secret'}":                                       {err: "line 3: metrics.address must be a URL"},
		plugins + "{type: prometheus, address: 'http://p', interval: often}":                          {err: `line 3: metrics.interval is "often"; it must be a duration`},
		plugins + "{type: prometheus, address: [1]}":                                                  {err: "line 3: metrics.address must be one value"},
		"actions: allocate\ntiers: [{plugins: [{name: usage, arguments: {thresholds: {cpu: 101}}}]}]": {err: `tiers[0].plugins[0].arguments cannot be: argument "thresholds": cpu is "101"; it must be a number from 0 to 100`},
		"actions: allocate\ntiers: [{plugins: [{name: usage, arguments: {estimator: {burst_ratio: 0.5}}}]}]\nmetrics: {type: prometheus, address: 'http://p'}": {
			&Metrics{"http://p", 30 * time.Second}, "estimator.burst_ratio has no effect", "",
		},
	} { // order: each on its own
		file, err := Parse([]byte(text), builtin.Registry())
		if (err != nil) != (want.err != "") || err != nil && (!strings.Contains(err.Error(), want.err) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if d := cmp.Diff(want.metrics, file.Metrics); d != "" {
			t.Errorf("%s: %s", text, d)
		}
		told := ""
		for _, f := range file.Told {
			told += f.Error() + "\n"
		}
		if want.told == "" && told != "" || !strings.Contains(told, want.told) || strings.Contains(told, "secret") {
			t.Errorf("%s: told %s", text, told)
		}
	}
}

// FuzzParse: whatever a file says, it is read or refused with a line and a field, and what is read is a profile that an engine takes; the same each time.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{compiledIn, chart, ci, "", "actions: [", "actions: enqueue\ntiers:\n- plugins: [{name: sla, arguments: {sla-waiting-time: 1h}}]\n", "a: &a [*a]"} {
		f.Add([]byte(seed))
	}
	known := builtin.Registry()
	f.Fuzz(func(t *testing.T, text []byte) {
		file, err := Parse(text, known)
		again, err2 := Parse(text, known)
		if d := cmp.Diff(file, again); d != "" || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("read twice: %v, %v: %s", err, err2, d)
		}
		if err != nil {
			if f, ok := err.(Fault); !ok || f.Line < 1 || f.Field == "" || f.Rule == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		p := profile.BuiltIn()
		p.Faces = []engine.Face{file.Face}
		if _, err := engine.New(p, known); err != nil {
			t.Fatalf("the engine refuses what was read: %v", err)
		}
	})
}

// TestSwitches: a plugin that is switched off at a hook is not asked there; arguments that have fields reach it as JSON.
func TestSwitches(t *testing.T) {
	t.Parallel()
	file, err := Parse([]byte(`actions: allocate
tiers:
- plugins:
  - name: drf
    enableHierarchy: true
    enableJobOrder: false
    enableTaskOrder: false
    enableQueueOrder: false
    enabledAllocatable: false
  - name: resource-strategy-fit
    enablePredicate: false
    enabledNodeOrder: false
    arguments:
      resources:
        nvidia.com/gpu: {type: MostAllocated, weight: 2}
  - name: binpack
    enableNodeOrder: true
    enableJobEnqueued: false
`), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	want := []engine.PluginUse{
		{Name: "drf", Off: []policy.Point{"gang-order", "pod-order", "leaf-order", "queue-gate"}, Arguments: policy.Arguments{"enableHierarchy": "true"}},
		{Name: "resource-strategy-fit", Off: []policy.Point{"node-filter", "node-ready", "node-score", "company-score", "pod-bonus"}, Arguments: policy.Arguments{"resources": `{"nvidia.com/gpu":{"type":"MostAllocated","weight":2}}`}},
		{Name: "binpack", Off: []policy.Point{"admission-vote"}},
	}
	if d := cmp.Diff(want, file.Face.Tiers[0]); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestSwitchesOfPredicates: each check of nodes that a file switches off stays on, and is told with why; what is no switch is refused.
func TestSwitchesOfPredicates(t *testing.T) {
	t.Parallel()
	text := "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n    arguments:\n"
	names := []string{
		"NodeAffinityEnable", "NodePortsEnable", "TaintTolerationEnable", "PodAffinityEnable", "NodeVolumeLimitsEnable", "VolumeZoneEnable", "PodTopologySpreadEnable",
		"VolumeBindingEnable", "DynamicResourceAllocationEnable",
	}
	for _, name := range names {
		text += "      predicate." + name + ": false\n"
	}
	file, err := Parse([]byte(text+"      predicate.CacheEnable: true\n      volumebinding.weight: 2\n      whim: 1\n"), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, f := range file.Told {
		told = append(told, f.Error())
	}
	said := strings.Join(told, "\n")
	for i, name := range names {
		if want := fmt.Sprintf("line %d: tiers[0].plugins[0].arguments.predicate.%s is false and has no effect: ", 6+i, name); !strings.Contains(said, want) {
			t.Errorf("%s is not told:\n%s", name, said)
		}
	}
	for _, want := range []string{"line 16: tiers[0].plugins[0].arguments.volumebinding.weight has no effect", "line 17: tiers[0].plugins[0].arguments.whim is no argument of plugin predicates"} {
		if !strings.Contains(said, want) {
			t.Errorf("want %s:\n%s", want, said)
		}
	}
	if len(told) != len(names)+3 { // and that the plugin has no part of its own
		t.Errorf("%d are told:\n%s", len(told), said)
	}
	_, err = Parse([]byte(strings.ReplaceAll(text, "PodAffinityEnable: false", "PodAffinityEnable: no way")), builtin.Registry())
	if want := `line 9: tiers[0].plugins[0].arguments cannot be: argument "predicate.PodAffinityEnable" is "no way"; it must be true or false`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
