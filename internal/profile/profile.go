package profile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/usage"
)

// yamlFile is KAI's configuration file.
type yamlFile struct {
	Actions             *string         `json:"actions,omitempty"`
	Tiers               []tier          `json:"tiers,omitempty"`
	QueueDepthPerAction map[string]int  `json:"queueDepthPerAction,omitempty"`
	UsageDBConfig       json.RawMessage `json:"usageDBConfig,omitempty"`
	ScenarioBudgets     *budgetsOfTime  `json:"scenarioSearchBudgets,omitempty"`
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
	var f yamlFile
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
	if err := f.ScenarioBudgets.check(); err != nil {
		return p, fmt.Errorf("scheduler configuration: %w", err)
	}
	p.Settings.QueueDepth = f.QueueDepthPerAction
	if err := checkDepth(f.QueueDepthPerAction, p.Actions); err != nil {
		return p, fmt.Errorf("scheduler configuration: %w", err)
	}
	return p, nil
}

// checkDepth refuses depths of what is no action of the profile, and negative ones.
func checkDepth(depths map[string]int, actions []string) error {
	for _, action := range slices.Sorted(maps.Keys(depths)) {
		if !slices.Contains(actions, action) {
			return fmt.Errorf("queueDepthPerAction: %q is not an action of this configuration (%s)", action, strings.Join(actions, ", "))
		}
		if depths[action] < 0 {
			return fmt.Errorf("queueDepthPerAction.%s is %d; it must not be negative", action, depths[action])
		}
	}
	return nil
}

// Usage reads from KAI's configuration file where the history of usage comes from; nil if shares do not look at the past.
// It is no part of the engine's profile: the engine gets usage as data.
func Usage(text []byte) (*usage.Config, error) {
	var f yamlFile
	if err := yaml.UnmarshalStrict(text, &f); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	return f.usage()
}

func (f *yamlFile) usage() (*usage.Config, error) {
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
