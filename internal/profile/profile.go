// Package profile resolves KAI's configuration (its scheduler configuration file, and what a SchedulingShard asks for)
// into an engine profile. It answers "which actions and plugins, in which order, with which arguments"; it refuses
// malformed input with an error that names the key and the rule.
package profile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/usage"
)

// file is KAI's configuration file.
type file struct {
	Actions             *string         `json:"actions,omitempty"`
	Tiers               []tier          `json:"tiers,omitempty"`
	QueueDepthPerAction map[string]int  `json:"queueDepthPerAction,omitempty"`
	UsageDBConfig       json.RawMessage `json:"usageDBConfig,omitempty"`
	ScenarioBudgets     map[string]any  `json:"scenarioSearchBudgets,omitempty"`
}

type tier struct {
	Plugins []pluginUse `json:"plugins"`
}

// pluginUse is one plugin of a tier. The disable* switches are KAI's: it parses them and honours none, and so do we.
type pluginUse struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments,omitempty"`

	DisableJobOrder       bool `json:"disableJobOrder,omitempty"`
	DisableTaskOrder      bool `json:"disableTaskOrder,omitempty"`
	DisablePreemptable    bool `json:"disablePreemptable,omitempty"`
	DisableReclaimable    bool `json:"disableReclaimable,omitempty"`
	DisableQueueOrder     bool `json:"disableQueueOrder,omitempty"`
	DisablePredicate      bool `json:"disablePredicate,omitempty"`
	DisableNodeOrder      bool `json:"disableNodeOrder,omitempty"`
	DisableJobReady       bool `json:"disableJobReady,omitempty"`
	DisableJobPipelined   bool `json:"disableJobPipelined,omitempty"`
	DisableJobEnqueueable bool `json:"disableJobEnqueueable,omitempty"`
}

// fragmentation is the plugin that places by what becomes unusable. It says where parts of GPUs go, so that those which pack
// or spread them are off beside it unless they are asked for.
const fragmentation = "fragmentation"

// budgets is the plugin of PodDisruptionBudgets. KAI knows none and its configuration cannot ask for it, so every profile
// has it as its last plugin unless it says otherwise.
const budgets = "disruptionbudgets"

// BuiltIn returns KAI's built-in profile, and the plugin of budgets: what runs without any configuration, and what its behaviour cases assume.
func BuiltIn() engine.Profile {
	var uses []engine.PluginUse
	for _, name := range []string{
		"predicates", "proportion", "priority", "elastic", "kubeflow", "ray", "nodeavailability", "gpusharingorder",
		"gpupack", "resourcetype", "subgrouporder", "taskorder", "nominatednode", "dynamicresources", "nodeplacement", "minruntime", "topology",
		"snapshot", "sg-nodelocalgreedy", "sg-multinodegang",
	} {
		uses = append(uses, engine.PluginUse{Name: name})
	}
	uses = append(uses, engine.PluginUse{Name: budgets})
	return engine.Profile{Actions: defaultActions(), Tiers: [][]engine.PluginUse{uses}, Settings: engine.DefaultSettings()}
}

// defaultActions returns KAI's order of actions.
func defaultActions() []string {
	return []string{"allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"}
}

// Parse reads KAI's configuration file. What it leaves out is the built-in profile's. Empty input is the built-in profile.
func Parse(text []byte) (engine.Profile, error) {
	p := BuiltIn()
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return p, fmt.Errorf("scheduler configuration: %w", err)
	}
	if f.Actions != nil {
		p.Actions = nil
		for _, a := range strings.Split(*f.Actions, ",") {
			if a = strings.TrimSpace(a); a == "" {
				return p, fmt.Errorf("scheduler configuration: actions: %q has an empty name between commas", *f.Actions)
			}
			p.Actions = append(p.Actions, a)
		}
	}
	if f.Tiers != nil {
		p.Tiers = nil
		for i, t := range f.Tiers {
			var uses []engine.PluginUse
			for j, u := range t.Plugins {
				if u.Name == "" {
					return p, fmt.Errorf("scheduler configuration: tiers[%d].plugins[%d]: name is missing", i, j)
				}
				uses = append(uses, engine.PluginUse{Name: u.Name, Arguments: u.Arguments})
			}
			p.Tiers = append(p.Tiers, uses)
		}
		if !uses(p, budgets) {
			if len(p.Tiers) == 0 {
				p.Tiers = [][]engine.PluginUse{nil}
			}
			last := &p.Tiers[len(p.Tiers)-1]
			*last = append(*last, engine.PluginUse{Name: budgets})
		}
	}
	if _, err := f.usage(); err != nil {
		return p, err
	}
	p.Settings.QueueDepth = f.QueueDepthPerAction
	for action, depth := range f.QueueDepthPerAction {
		if !slices.Contains(p.Actions, action) {
			return p, fmt.Errorf("scheduler configuration: queueDepthPerAction: %q is not an action of this configuration (%s)", action, strings.Join(p.Actions, ", "))
		}
		if depth < 0 {
			return p, fmt.Errorf("scheduler configuration: queueDepthPerAction.%s is %d; it must not be negative", action, depth)
		}
	}
	return p, nil
}

// Usage reads from KAI's configuration file where the history of usage comes from; nil if shares do not look at the past.
// It is no part of the engine's profile: the engine gets usage as data.
func Usage(text []byte) (*usage.Config, error) {
	var f file
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	return f.usage()
}

func (f *file) usage() (*usage.Config, error) {
	if f.UsageDBConfig == nil || string(f.UsageDBConfig) == "null" {
		return nil, nil
	}
	c, err := usage.Parse(f.UsageDBConfig)
	if err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	return &c, nil
}

// uses says whether the profile names a plugin.
func uses(p engine.Profile, plugin string) bool {
	return slices.ContainsFunc(slices.Concat(p.Tiers...), func(u engine.PluginUse) bool { return u.Name == plugin })
}

// Shard is what a SchedulingShard says about its profile; zero values mean KAI's defaults.
type Shard struct {
	// GPUStrategy and CPUStrategy are "binpack" (default) or "spread".
	GPUStrategy, CPUStrategy string
	Plugins                  map[string]Override
	Actions                  map[string]Override
	// KValue is passed to the proportion plugin; nil leaves its default.
	KValue *float64
	// PreemptMinRuntime and ReclaimMinRuntime are passed to the minruntime plugin when set.
	PreemptMinRuntime, ReclaimMinRuntime string
}

// Override changes one plugin or action of the default list; a name that is not in it is added with priority 0.
type Override struct {
	Enabled  *bool
	Priority *int
	// Arguments, when not nil, replace the default ones wholesale.
	Arguments map[string]string
}

type entry struct {
	name     string
	priority int
	enabled  bool
	args     map[string]string
}

// ForShard resolves a shard as KAI's operator does: defaults by priority, overrides, higher priority first, ties by name,
// one tier. A spread strategy switches consolidation off, and GPU spread changes the plugins that pack shared GPUs. The plugin
// fragmentation, where it is added, takes their place.
func ForShard(s Shard) (engine.Profile, error) {
	gpu, cpu := cmp.Or(s.GPUStrategy, "binpack"), cmp.Or(s.CPUStrategy, "binpack")
	for field, v := range map[string]string{"gpu": gpu, "cpu": cpu} {
		if v != "binpack" && v != "spread" {
			return engine.Profile{}, fmt.Errorf("shard: placementStrategy.%s is %q; it must be binpack or spread", field, v)
		}
	}
	o, descends := s.Plugins[fragmentation]
	descends = descends && (o.Enabled == nil || *o.Enabled)
	plugins := []entry{
		{"predicates", 1900, true, nil},
		{"proportion", 1800, true, nil},
		{"priority", 1700, true, nil},
		{"nodeavailability", 1600, true, nil},
		{"resourcetype", 1500, true, nil},
		{"podaffinity", 1400, true, nil},
		{"elastic", 1300, true, nil},
		{"kubeflow", 1200, true, nil},
		{"ray", 1100, true, nil},
		{"subgrouporder", 1000, true, nil},
		{"taskorder", 900, true, nil},
		{"nominatednode", 800, true, nil},
		{"dynamicresources", 700, true, nil},
		{"minruntime", 600, true, nil},
		{"topology", 500, true, nil},
		{"snapshot", 400, true, nil},
		{"sg-nodelocalgreedy", 360, true, nil},
		{"sg-multinodegang", 350, true, nil},
		{"gpupack", 300, gpu == "binpack" && !descends, nil},
		{"gpuspread", 300, gpu == "spread" && !descends, nil},
		{"nodeplacement", 200, true, map[string]string{"gpu": gpu, "cpu": cpu}},
		{"gpusharingorder", 100, gpu == "binpack" && !descends, nil},
		{budgets, 50, true, nil},
	}
	for i := range plugins {
		switch e := &plugins[i]; {
		case e.name == "proportion" && s.KValue != nil:
			e.args = map[string]string{"kValue": strconv.FormatFloat(*s.KValue, 'f', -1, 64)}
		case e.name == "minruntime" && s.PreemptMinRuntime+s.ReclaimMinRuntime != "":
			e.args = map[string]string{}
			if s.PreemptMinRuntime != "" {
				e.args["defaultPreemptMinRuntime"] = s.PreemptMinRuntime
			}
			if s.ReclaimMinRuntime != "" {
				e.args["defaultReclaimMinRuntime"] = s.ReclaimMinRuntime
			}
		}
	}
	packed := gpu == "binpack" && cpu == "binpack"
	actions := []entry{
		{"allocate", 500, true, nil},
		{"consolidation", 400, packed, nil},
		{"reclaim", 300, true, nil},
		{"preempt", 200, true, nil},
		{"stalegangeviction", 100, true, nil},
	}
	p := engine.Profile{Settings: engine.DefaultSettings()}
	var uses []engine.PluginUse
	for _, e := range resolve(plugins, s.Plugins) {
		uses = append(uses, engine.PluginUse{Name: e.name, Arguments: e.args})
	}
	p.Tiers = [][]engine.PluginUse{uses}
	for _, e := range resolve(actions, s.Actions) {
		p.Actions = append(p.Actions, e.name)
	}
	return p, nil
}

func resolve(entries []entry, overrides map[string]Override) []entry {
	for name, o := range overrides { // order: sorted below
		i := slices.IndexFunc(entries, func(e entry) bool { return e.name == name })
		if i < 0 {
			i = len(entries)
			entries = append(entries, entry{name: name, enabled: true})
		}
		if o.Enabled != nil {
			entries[i].enabled = *o.Enabled
		}
		if o.Priority != nil {
			entries[i].priority = *o.Priority
		}
		if o.Arguments != nil {
			entries[i].args = o.Arguments
		}
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool { return !e.enabled })
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.name, b.name))
	})
	return entries
}
