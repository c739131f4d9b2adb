package binder

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
)

// Names of the plugins of KAI's binder.
const (
	PluginVolumeBinding    = "volumebinding"
	PluginDynamicResources = "dynamicresources"
	PluginGPUSharing       = "gpusharing"
	PluginHAMiCore         = "hamicore"
)

// Arguments of the plugins.
const (
	// ArgumentBindTimeout, of volumebinding and dynamicresources, is how long they may take, in seconds.
	ArgumentBindTimeout = "bindTimeoutSeconds"

	// ArgumentCDI, of gpusharing, says whether devices are named as the Container Device Interface names them.
	ArgumentCDI = "cdiEnabled"
)

// Plugin is what the configuration says about one of the binder's plugins.
type Plugin struct {
	Name      string
	Enabled   bool
	Priority  int // those with a higher one work first
	Arguments map[string]string
}

// DefaultPlugins are KAI's, first things first.
func DefaultPlugins() []Plugin {
	return []Plugin{
		{Name: PluginVolumeBinding, Enabled: true, Priority: 300, Arguments: map[string]string{ArgumentBindTimeout: "120"}},
		{Name: PluginDynamicResources, Enabled: true, Priority: 200, Arguments: map[string]string{ArgumentBindTimeout: "120"}},
		{Name: PluginGPUSharing, Enabled: true, Priority: 100, Arguments: map[string]string{ArgumentCDI: "false"}},
		{Name: PluginHAMiCore, Priority: 50},
	}
}

// ParsePlugins reads flag --plugins: a JSON object of what differs from the defaults, by plugin. Arguments replace all
// default ones. Empty text changes nothing. A plugin that is not known is an error, and so is an argument that cannot be
// read.
func ParsePlugins(text string) ([]Plugin, error) {
	list := DefaultPlugins()
	changes := map[string]kaiv1.PluginConfig{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &changes); err != nil {
			return nil, fmt.Errorf("plugins: %w", err)
		}
	}
	for i := range list {
		p := &list[i]
		c, ok := changes[p.Name]
		if !ok {
			continue
		}
		delete(changes, p.Name)
		if c.Enabled != nil {
			p.Enabled = *c.Enabled
		}
		if c.Priority != nil {
			p.Priority = *c.Priority
		}
		if c.Arguments != nil {
			p.Arguments = c.Arguments
		}
		if _, err := p.Timeout(0); err != nil {
			return nil, err
		}
		if _, err := p.CDI(); err != nil {
			return nil, err
		}
	}
	if len(changes) > 0 {
		unknown, known := slices.Sorted(maps.Keys(changes)), []string(nil)
		for _, p := range list {
			known = append(known, p.Name)
		}
		return nil, fmt.Errorf("plugins: no plugin is called %s; there are %s", strings.Join(unknown, ", "), strings.Join(known, ", "))
	}
	sharing, hami := Find(list, PluginGPUSharing), Find(list, PluginHAMiCore)
	switch {
	case hami.Enabled && !sharing.Enabled:
		return nil, fmt.Errorf("plugins: %s needs %s, which is disabled", PluginHAMiCore, PluginGPUSharing)
	case hami.Enabled && sharing.Priority <= hami.Priority:
		return nil, fmt.Errorf("plugins: %s has priority %d, %s needs it to be higher than its own, %d", PluginGPUSharing, sharing.Priority, PluginHAMiCore, hami.Priority)
	}
	slices.SortStableFunc(list, func(a, b Plugin) int { return cmp.Compare(b.Priority, a.Priority) })
	return list, nil
}

// Find returns the plugin of that name, a disabled one if there is none.
func Find(list []Plugin, name string) Plugin {
	for _, p := range list {
		if p.Name == name {
			return p
		}
	}
	return Plugin{Name: name}
}

// Timeout is the plugin's ArgumentBindTimeout, usual if it has none.
func (p Plugin) Timeout(usual time.Duration) (time.Duration, error) {
	text, ok := p.Arguments[ArgumentBindTimeout]
	if !ok {
		return usual, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("plugins: %s: argument %s is %q, must be a whole number of seconds above 0", p.Name, ArgumentBindTimeout, text)
	}
	return time.Duration(n) * time.Second, nil
}

// CDI is the plugin's ArgumentCDI, false if it has none.
func (p Plugin) CDI() (bool, error) {
	text, ok := p.Arguments[ArgumentCDI]
	if !ok {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("plugins: %s: argument %s is %q, must be true or false", p.Name, ArgumentCDI, text)
	}
	return on, nil
}

// preparerOf is the name of the preparer that does a plugin's work. Devices are reserved first, whatever the order of
// plugins: as in KAI, that is no plugin's work.
func preparerOf(plugin string) string {
	switch plugin {
	case PluginVolumeBinding:
		return "volumes"
	case PluginDynamicResources:
		return "claims"
	}
	return ""
}

// arrange puts preparers into the order in which they work, without those whose plugin is disabled. Those that belong to
// no plugin come first.
func arrange(ps []Preparer, plugins []Plugin) []Preparer {
	var out []Preparer
	named := map[string]bool{}
	for _, plugin := range plugins {
		if name := preparerOf(plugin.Name); name != "" {
			named[name] = true
		}
	}
	for _, p := range ps {
		if !named[p.Name()] {
			out = append(out, p)
		}
	}
	for _, plugin := range plugins {
		for _, p := range ps {
			if plugin.Enabled && p.Name() == preparerOf(plugin.Name) {
				out = append(out, p)
			}
		}
	}
	return out
}
