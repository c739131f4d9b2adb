package vchypernode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// Bounds of a configuration.
const (
	longestConfig = 64 << 10 // bytes
	mostTypes     = 16
	mostLevels    = 8  // of a type, the nodes themselves besides
	longestType   = 20 // bytes of a name, as in Volcano
)

// source is the one source of HyperNodes that there is: the labels of nodes.
const source = "label"

// topology is a kind of network, as node labels describe it.
type topology struct {
	name   string
	labels []string // keys from the lowest tier up: the first is tier 1
}

// readConfig reads which topologies are to be discovered. on is false where discovery by labels is not asked for, or switched off.
func readConfig(text string) (types []topology, on bool, err error) {
	if len(text) > longestConfig {
		return nil, false, fmt.Errorf("it has %d bytes, of at most %d", len(text), longestConfig)
	}
	var c struct {
		Discovery []struct {
			Source  string          `json:"source"`
			Enabled bool            `json:"enabled"`
			Config  json.RawMessage `json:"config"`
		} `json:"networkTopologyDiscovery"`
	}
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		return nil, false, fmt.Errorf("it cannot be read: %w", err)
	}
	found := false
	for i, d := range c.Discovery {
		at := fmt.Sprintf("networkTopologyDiscovery[%d]", i)
		switch {
		case d.Source != source:
			if d.Enabled {
				return nil, false, fmt.Errorf("%s.source: %q: there is no such source; known: %s", at, d.Source, source)
			}
			continue
		case found:
			return nil, false, fmt.Errorf("%s.source: %q is there twice", at, d.Source)
		}
		found = true
		if !d.Enabled {
			continue
		}
		on = true
		if types, err = readTypes(d.Config); err != nil {
			return nil, false, fmt.Errorf("%s.config.networkTopologyTypes%w", at, err)
		}
	}
	return types, on, nil
}

// readTypes reads the topologies. An error begins with what of networkTopologyTypes it is about.
func readTypes(text json.RawMessage) (out []topology, err error) {
	var c struct {
		Types map[string][]struct {
			NodeLabel string `json:"nodeLabel"`
		} `json:"networkTopologyTypes"`
	}
	if len(text) > 0 {
		if err := yaml.UnmarshalStrict(text, &c); err != nil {
			return nil, fmt.Errorf(": it cannot be read: %w", err)
		}
	}
	if len(c.Types) > mostTypes {
		return nil, fmt.Errorf(": %d types, of at most %d", len(c.Types), mostTypes)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		levels := c.Types[name]
		if wrong := validation.IsDNS1123Label(strings.ToLower(name)); len(name) > longestType || len(wrong) > 0 {
			return nil, fmt.Errorf("[%.64s]: the name must be of letters, digits and -, and have at most %d bytes", name, longestType)
		}
		if len(levels) < 2 || len(levels) > mostLevels+1 {
			return nil, fmt.Errorf("[%s]: %d labels: from 2 to %d are needed, the last for the nodes themselves", name, len(levels), mostLevels+1)
		}
		t, seen := topology{name: name}, map[string]bool{}
		for i := range levels {
			key := levels[i].NodeLabel
			if len(validation.IsQualifiedName(key)) > 0 || seen[key] {
				return nil, fmt.Errorf("[%s][%d].nodeLabel: %.64q must be the key of a label, and in no other place", name, i, key)
			}
			seen[key] = true
			if i < len(levels)-1 {
				t.labels = slices.Insert(t.labels, 0, key)
			}
		}
		out = append(out, t)
	}
	return out, nil
}
