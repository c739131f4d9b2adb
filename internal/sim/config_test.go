package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// TestConfig: KAI's defaults, keys in any case, and what is ours.
func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		want       settings
	}{
		{"nothing", "", settings{step: time.Minute, cycles: 100, window: 5}},
		{
			"KAI's keys in any case",
			"CYCLES: 7\nwindowsize: 9\nHalfLifePeriod: 2.5\nkvalue: 0\nNODES: [{gpus: 4}, {GPUS: 8, count: 2}]\nqueues: [{NAME: q}]\njobs: {q: {gpus: 0.5, NUMPODS: 2, numjobs: 3}}",
			settings{step: time.Minute, cycles: 7, window: 9, halfLife: 2.5, gpus: 20000, streams: []Stream{{Name: "q", Queue: "q", Count: 3, Pods: 2, Priority: 50, Requests: Room(500, 0, 0, 1)}}},
		},
		{"JSON", `{"Cycles": 3}`, settings{step: time.Minute, cycles: 3, window: 5}},
		{
			"times", "step: 10m\nduration: 365d\nwindowSize: 1w\nhalfLifePeriod: 1.5d\ngrace: 30s",
			settings{step: 10 * time.Minute, cycles: 52560, window: 1008, halfLife: 216, grace: 30 * time.Second},
		},
		{
			"jobs as a list", "queues: [{name: q}]\njobs: {q: [{gpus: 1, every: 5m, duration: 3}, {gpus: 2, minPods: 1, numPods: 4, start: 2h, every: 1m, numJobs: 2, random: true, priority: 100}]}",
			settings{step: time.Minute, cycles: 100, window: 5, streams: []Stream{
				{Name: "q-0", Queue: "q", Every: 5 * time.Minute, Pods: 1, Priority: 50, Requests: Room(1000, 0, 0, 1), Duration: 3 * time.Minute},
				{Name: "q-1", Queue: "q", First: 2 * time.Hour, Every: time.Minute, Count: 2, Random: true, Pods: 4, Min: 1, Priority: 100, Fixed: true, Requests: Room(2000, 0, 0, 1)},
			}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := parse(t, c.text).resolve()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, *got, cmp.AllowUnexported(settings{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestConfigErrors: an error names the key and the rule.
func TestConfigErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cycles: [":            "yaml",
		"cycles: 1\ncycles: 2": `"cycles" already set`,
		"cycels: 1":            `unknown field "cycels"`,
		"queues: [{nam: a}]":   `unknown field "nam"`,
		"{queues: [{name: a}], jobs: {a: {gpu: 1}}}":   `unknown field "gpu"`,
		"{queues: [{name: a}], jobs: {a: [{gpu: 1}]}}": `unknown field "gpu"`,
		"cycles: many":                               "cycles",
		"cycles: 0":                                  "there are 0 cycles; there must be between 1 and 5300000",
		"cycles: -5":                                 "there are -5 cycles",
		"{cycles: 5, duration: 3d}":                  "cycles and duration are both given",
		"duration: 300000d":                          `"300000d" is not a time`,
		"{step: 1ms, duration: 80000d}":              "there are 5300001 cycles",
		"step: 10":                                   "step must be a time of at least a millisecond",
		"step: 0s":                                   "step must be a time of at least a millisecond",
		"step: soon":                                 `"soon" is not a time such as 10m, 6h, 7d or 2w`,
		"step: true":                                 "true is neither a number of cycles nor a time",
		"windowSize: 0":                              "windowSize is 0 cycles; it must be at least one",
		"windowSize: -1":                             "windowSize is -1 cycles of 1m0s; it must be between 0 and",
		"halfLifePeriod: -1h":                        "halfLifePeriod is -60 cycles of 1m0s",
		"kValue: -1":                                 "kValue is -1; it must be between 0 and 1000",
		"grace: -1s":                                 "grace is",
		"nodes: [{gpus: -1}]":                        "nodes[0]: there are 1 nodes of -1 GPUs; both must be between",
		"nodes: [{gpus: 1, count: 9999999}]":         "nodes[0]: there are 9999999 nodes",
		"queues: [{parent: a}]":                      "queues[0]: name is missing",
		"queues: [{name: a}, {name: a}]":             `queues[1]: there are two queues called "a"`,
		"queues: [{name: a, weight: -1}]":            `queue "a": weight is -1; it must be between 0 and 1000000000`,
		"queues: [{name: a, deservedGPUs: -2}]":      `queue "a": deservedGPUs is -2; it must be between 0 and 1000000000, or -1 for unlimited`,
		"queues: [{name: a, limitGPUs: -2}]":         `queue "a": limitGPUs is -2`,
		"queues: [{name: a, priority: 99999999999}]": `queue "a": priority is 99999999999`,
		"queues: [{name: a, parent: b}]":             `queue "a": parent "b" is no queue`,
		"queues: [{name: a, parent: a}]":             `queue "a": its parents form a cycle`,
		"queues: [{name: a, parent: b}, {name: b, parent: a}, {name: c, parent: a}]": "its parents form a cycle",
		"jobs: {a: {gpus: 1}}": `jobs: "a" is no queue`,
		"{queues: [{name: a}, {name: b, parent: a}], jobs: {a: {gpus: 1}}}": `jobs: queue "a" has the child "b"`,
		"{queues: [{name: a}], jobs: {a: {gpus: -1}}}":                      `jobs of queue "a": gpus is -1; it must be between 0 and 1000000`,
		"{queues: [{name: a}], jobs: {a: {gpus: 1, numPods: 0}}}":           "numPods is 0; it must be between 1 and 100000",
		"{queues: [{name: a}], jobs: {a: {gpus: 1, minPods: 2}}}":           "minPods is 2; it must be between 0 and numPods, which is 1",
		"{queues: [{name: a}], jobs: {a: {gpus: 1, numJobs: -1}}}":          "numJobs is -1",
		"{queues: [{name: a}], jobs: {a: {gpus: 1, duration: -1s}}}":        "duration is -1s; it must not be negative",
		"{queues: [{name: a}], jobs: {a: {gpus: 1, every: 1ms}}}":           "every is 1ms; it must be at least a second",
		"{queues: [{name: a}], jobs: {a: {gpus: 1, priority: -1}}}":         "priority is -1; it must not be negative",
	} {
		if _, err := ParseConfig([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// TestConfigNeverFalls: whatever is written, it is played or refused.
func TestConfigNeverFalls(t *testing.T) {
	t.Parallel()
	words := []string{"0", "1", "-1", "1e300", "-0.5", "1s", "3d", `""`, "null", "true", "[]", "{}", "[1]", ".nan", ".inf", "99999999999999999999"}
	keys := []string{"cycles", "windowSize", "halfLifePeriod", "kValue", "step", "duration", "grace", "seed", "nodes", "queues", "jobs"}
	rapid.Check(t, func(t *rapid.T) {
		word := func() string { return rapid.SampledFrom(words).Draw(t, "word") }
		var b strings.Builder
		for _, k := range keys {
			if rapid.IntRange(0, 3).Draw(t, "says") == 0 {
				fmt.Fprintf(&b, "%s: %s\n", k, word())
			}
		}
		if rapid.Bool().Draw(t, "sound") {
			b.Reset()
			fmt.Fprintf(&b, "cycles: 9\nnodes: [{gpus: %s, count: 2}]\nqueues: [{name: a, weight: %s, limitGPUs: %s, deservedGPUs: %s}]\n", word(), word(), word(), word())
			fmt.Fprintf(&b, "jobs: {a: {gpus: %s, numPods: %s, numJobs: %s, every: %s, duration: %s, start: %s, random: true}}\n", word(), word(), word(), word(), word(), word())
		}
		c, err := ParseConfig([]byte(b.String()))
		if err != nil {
			return
		}
		if set, err := c.resolve(); err != nil || set.cycles > 1000 || set.gpus > 100_000 {
			return
		}
		if _, err := Timeshare(context.Background(), c, builtin.Registry(), nil); err != nil {
			t.Fatal(err)
		}
	})
}
