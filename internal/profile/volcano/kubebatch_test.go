package volcano

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
)

// TestKubeBatchsFile: the file that kube-batch comes with, and its sample with every switch and an argument, are read as they are meant, and the engine takes them.
func TestKubeBatchsFile(t *testing.T) {
	t.Parallel()
	weights := policy.Arguments{"nodeaffinity.weight": "1", "podaffinity.weight": "1", "tainttoleration.weight": "0", "imagelocality.weight": "0", "podtopologyspread.weight": "0"}
	said := policy.Arguments{"nodeaffinity.weight": "3", "podaffinity.weight": "1", "tainttoleration.weight": "0", "imagelocality.weight": "0", "podtopologyspread.weight": "0"}
	use := func(name string) engine.PluginUse { return engine.PluginUse{Name: name} }
	gang := engine.PluginUse{Name: "gang", Off: []policy.Point{"starving"}}
	for text, want := range map[string]engine.Face{
		KubeBatchDefault: {Name: KubeBatchFace, Actions: []string{"allocate", "backfill"}, Tiers: [][]engine.PluginUse{
			{use("priority"), gang}, {use("drf"), use("predicates"), {Name: "proportion", Off: []policy.Point{"queue-gate"}}, {Name: "nodeorder", Arguments: weights}},
		}},
		`actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
    enableJobOrder: false
    enableTaskOrder: true
  - name: gang
    enableJobReady: true
    enableJobPipelined: true
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
    enableReclaimable: false
  - name: predicates
    enablePredicate: true
  - name: proportion
    enableQueueOrder: false
  - name: nodeorder
    enableNodeOrder: true
    arguments: {nodeaffinity.weight: 3}
`: {Name: KubeBatchFace, Actions: []string{"reclaim", "allocate", "backfill", "preempt"}, Tiers: [][]engine.PluginUse{
			{{Name: "priority", Off: []policy.Point{"gang-order"}}, {Name: "gang", Off: []policy.Point{"starving", "preemptable"}}, use("conformance")},
			{
				{Name: "drf", Off: []policy.Point{"reclaimable"}},
				use("predicates"),
				{Name: "proportion", Arguments: policy.Arguments{"reclaim": "true"}, Off: []policy.Point{"queue-gate", "leaf-order"}},
				{Name: "nodeorder", Arguments: said},
			},
		}},
	} {
		f, err := ParseKubeBatch([]byte(text), builtin.Registry())
		if err != nil {
			t.Errorf("%v in\n%s", err, text)
			continue
		}
		if d := cmp.Diff(want, f.Face); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		p := engine.Profile{Faces: []engine.Face{f.Face}}
		if _, err := engine.New(p, builtin.Registry()); err != nil {
			t.Error(err)
		}
	}
}

// TestKubeBatchsFaults: an action that kube-batch has not is refused with its line, a plugin, a switch or a key that it has not is told, and an argument is one value.
func TestKubeBatchsFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"actions: enqueue, allocate": `line 1: actions names "enqueue"`,
		"tiers: []":                  "line 1: actions is missing",
		"actions: allocate\ntiers:\n- plugins:\n  - name: nodeorder\n    arguments:\n      nodeaffinity.weight: [1]": "line 6: tiers[0].plugins[0].arguments.nodeaffinity.weight must be one value",
		"actions: allocate\ntiers:\n- plugins:\n  - name: nodeorder\n    arguments:\n      nodeaffinity.weight: x":   "line 6: tiers[0].plugins[0].arguments cannot be",
	} {
		_, err := ParseKubeBatch([]byte(text), builtin.Registry())
		var fault Fault
		if !errors.As(err, &fault) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	f, err := ParseKubeBatch([]byte("actions: allocate\nconfigurations: []\ntiers:\n- plugins:\n  - name: binpack\n  - name: gang\n    enableJobStarving: false"), builtin.Registry())
	var told []string
	for _, one := range f.Told {
		told = append(told, one.Error())
	}
	text := strings.Join(told, "\n")
	for _, want := range []string{"line 2: configurations is no key", `line 5: tiers[0].plugins[0].name is "binpack", which is no plugin`, "line 7: tiers[0].plugins[1].enableJobStarving is no key"} {
		if err != nil || !strings.Contains(text, want) {
			t.Errorf("%v: told\n%s\nwant %s", err, text, want)
		}
	}
}

// FuzzKubeBatch: whatever a file says, it is refused with a line of it, or what the engine takes.
func FuzzKubeBatch(f *testing.F) {
	f.Add(KubeBatchDefault)
	f.Add("actions: reclaim\ntiers:\n- plugins:\n  - {name: gang, enableJobReady: no, arguments: {a: b}}")
	f.Add("actions: [allocate]")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := ParseKubeBatch([]byte(text), builtin.Registry())
		if err != nil {
			var fault Fault
			if !errors.As(err, &fault) || fault.Line < 1 {
				t.Errorf("%v", err)
			}
			return
		}
		if _, err := engine.New(engine.Profile{Faces: []engine.Face{file.Face}}, builtin.Registry()); err != nil {
			t.Errorf("the engine refuses it: %v", err)
		}
	})
}
