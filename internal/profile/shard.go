package profile

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/engine"
)

// Shard is what a SchedulingShard says about its profile; zero values mean KAI's defaults.
type Shard struct {
	// GPUStrategy and CPUStrategy are "binpack" (default) or "spread".
	GPUStrategy, CPUStrategy string
	Plugins                  map[string]Override
	Actions                  map[string]Override
	// KValue is passed to the proportion plugin; nil leaves its default.
	KValue *float64
	// PreemptMinRuntime and ReclaimMinRuntime are passed to the minruntime plugin when set: Go durations.
	PreemptMinRuntime, ReclaimMinRuntime string
	// QueueDepth is how many gangs of each queue an action looks at in a cycle, by the action's name.
	QueueDepth map[string]int
	// Usage is where the history of usage comes from; nil for none.
	Usage *kaiv1.UsageDBConfig
	// SearchBudgets are times that searches may take. They are checked and have no effect: see Warnings.
	SearchBudgets *kaiv1.ScenarioSearchBudgets
}

// Override changes one plugin or action of the default list; a name that is not in it is added with priority 0.
type Override struct {
	Enabled  *bool
	Priority *int
	// Arguments, when not nil, replace the default ones wholesale.
	Arguments map[string]string
}

// Of reads what a SchedulingShard says about its profile. What is wrong with it, ForShard says.
func Of(spec *kaiv1.SchedulingShardSpec) Shard {
	s := Shard{
		Plugins: map[string]Override{}, Actions: map[string]Override{}, KValue: spec.KValue,
		QueueDepth: maps.Clone(spec.QueueDepthPerAction), Usage: spec.UsageDBConfig, SearchBudgets: spec.ScenarioSearchBudgets,
	}
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	if p := spec.PlacementStrategy; p != nil {
		s.GPUStrategy, s.CPUStrategy = text(p.GPU), text(p.CPU)
	}
	if m := spec.MinRuntime; m != nil {
		s.PreemptMinRuntime, s.ReclaimMinRuntime = text(m.PreemptMinRuntime), text(m.ReclaimMinRuntime)
	}
	for name, c := range spec.Plugins { // order: each by its own name
		s.Plugins[name] = Override{Enabled: c.Enabled, Priority: c.Priority, Arguments: maps.Clone(c.Arguments)}
	}
	for name, c := range spec.Actions { // order: each by its own name
		s.Actions[name] = Override{Enabled: c.Enabled, Priority: c.Priority}
	}
	return s
}

// Warnings says what the shard asks for and does not get, one sentence each.
func (s *Shard) Warnings() []string {
	if s.SearchBudgets == nil {
		return nil
	}
	return []string{"scenarioSearchBudgets has no effect: a search for victims is bounded in steps, so that the same cluster always gets the same answer"}
}

type entry struct {
	name     string
	priority int
	enabled  bool
	args     map[string]string
}

// ForShard resolves a shard as KAI's operator does: defaults by priority, overrides, higher priority first, ties by name,
// one tier. A spread strategy switches consolidation off, and GPU spread changes the plugins that pack shared GPUs. The plugin
// fragmentation, where it is added, takes their place. An error names the field of the shard and the rule.
func ForShard(s Shard) (engine.Profile, error) {
	p, err := s.resolve()
	if err != nil {
		return engine.Profile{}, fmt.Errorf("spec.%w", err)
	}
	return p, nil
}

// File is the scheduler's configuration file of a shard, in KAI's format. What Parse makes of it is what ForShard makes of
// the shard, and it fails where that fails.
func File(s Shard) ([]byte, error) {
	p, err := ForShard(s)
	if err != nil {
		return nil, err
	}
	f := yamlFile{Actions: new(strings.Join(p.Actions, ", ")), QueueDepthPerAction: s.QueueDepth}
	for _, uses := range p.Tiers {
		var t tier
		for _, u := range uses {
			t.Plugins = append(t.Plugins, pluginUse{Name: u.Name, Arguments: u.Arguments})
		}
		f.Tiers = append(f.Tiers, t)
	}
	if !p.Uses(budgets) { // a file that does not name it has it
		last := &f.Tiers[len(f.Tiers)-1]
		last.Plugins = append(last.Plugins, pluginUse{Name: budgets, Arguments: map[string]string{"mode": "ignore"}})
	}
	if s.Usage != nil {
		if f.UsageDBConfig, err = json.Marshal(s.Usage); err != nil {
			return nil, fmt.Errorf("spec.usageDBConfig: %w", err)
		}
	}
	f.ScenarioBudgets = timesOf(s.SearchBudgets)
	text, err := yaml.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("write the configuration: %w", err)
	}
	return text, nil
}

func (s *Shard) resolve() (engine.Profile, error) {
	gpu, cpu := cmp.Or(s.GPUStrategy, "binpack"), cmp.Or(s.CPUStrategy, "binpack")
	for _, f := range []struct{ field, value string }{{"gpu", gpu}, {"cpu", cpu}} {
		if f.value != "binpack" && f.value != "spread" {
			return engine.Profile{}, fmt.Errorf("placementStrategy.%s is %q; it must be binpack or spread", f.field, f.value)
		}
	}
	for _, f := range []struct{ field, value string }{{"preemptMinRuntime", s.PreemptMinRuntime}, {"reclaimMinRuntime", s.ReclaimMinRuntime}} {
		if f.value == "" {
			continue
		}
		if d, err := time.ParseDuration(f.value); err != nil || d < 0 {
			return engine.Profile{}, fmt.Errorf("minRuntime.%s is %q; it must be a Go duration that is not negative, such as 90s or 1h30m", f.field, f.value)
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
	for _, e := range overridden(plugins, s.Plugins) {
		uses = append(uses, engine.PluginUse{Name: e.name, Arguments: e.args})
	}
	p.Tiers = [][]engine.PluginUse{uses}
	for _, e := range overridden(actions, s.Actions) {
		if e.name == "" || strings.ContainsAny(e.name, ", \t\n") {
			return p, fmt.Errorf("actions: %q is no name of an action", e.name)
		}
		p.Actions = append(p.Actions, e.name)
	}
	for _, u := range uses {
		if u.Name == "" {
			return p, errors.New("plugins: a plugin without a name")
		}
	}
	if len(p.Actions) == 0 {
		return p, errors.New("actions: all are switched off; a scheduler needs at least one")
	}
	if err := checkDepth(s.QueueDepth, p.Actions); err != nil {
		return p, err
	}
	p.Settings.QueueDepth = s.QueueDepth
	if s.Usage != nil {
		text, err := json.Marshal(s.Usage)
		if err != nil {
			return p, fmt.Errorf("usageDBConfig: %w", err)
		}
		if _, err := (&yamlFile{UsageDBConfig: text}).usage(); err != nil {
			return p, err
		}
	}
	return p, timesOf(s.SearchBudgets).check()
}

// overridden applies overrides to a list, drops what is switched off, and orders the rest.
func overridden(entries []entry, overrides map[string]Override) []entry {
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
