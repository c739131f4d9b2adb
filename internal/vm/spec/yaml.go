package spec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// The bounds of a YAML text. They are far above what a ConfigMap can hold of honest data.
const (
	maxYAMLBytes = 1 << 20
	maxYAMLDepth = 32
	maxYAMLNodes = 1 << 16 // counted after aliases are followed: a text of a few lines can name billions
)

// ParseYAML reads one YAML document, or JSON, which is YAML too. Maps come as map[string]any, lists as []any, scalars as string, bool,
// int64, uint64, float64 or nil. Plain yes, no, on and off are booleans, as the guest's cloud-init reads them. Of a key that stands twice
// the last counts. It is an error for a text to be larger than 1 MiB, deeper than 32 levels, to grow above 65536 nodes by its
// aliases, to contain itself, or to have a map or list as a key.
func ParseYAML(text []byte) (any, error) {
	if len(text) > maxYAMLBytes {
		return nil, fmt.Errorf("must be at most %d bytes, has %d", maxYAMLBytes, len(text))
	}
	if !utf8.Valid(text) {
		return nil, errors.New("must be UTF-8")
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if doc.Kind == 0 {
		return nil, nil
	}
	r := yamlReader{left: maxYAMLNodes}
	return r.value(&doc, 0)
}

// ParseYAMLMap is ParseYAML for texts that have to be a map. An empty text is an empty map.
func ParseYAMLMap(text []byte) (map[string]any, error) {
	v, err := ParseYAML(text)
	if err != nil {
		return nil, err
	}
	switch m := v.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return m, nil
	}
	return nil, errors.New("must be a map of keys to values")
}

// yamlReader turns nodes into values, within a budget.
type yamlReader struct{ left int }

func (r *yamlReader) value(n *yaml.Node, depth int) (any, error) {
	if r.left--; r.left < 0 {
		return nil, fmt.Errorf("must have at most %d nodes with its aliases followed", maxYAMLNodes)
	}
	if depth > maxYAMLDepth { // a text that contains itself ends here
		return nil, fmt.Errorf("line %d: must not be deeper than %d levels", n.Line, maxYAMLDepth)
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) == 0 {
			return nil, nil
		}
		return r.value(n.Content[0], depth)
	case yaml.AliasNode:
		return r.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		out := make([]any, 0, min(len(n.Content), r.left+1))
		for _, child := range n.Content {
			v, err := r.value(child, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	case yaml.MappingNode:
		return r.mapping(n, depth)
	}
	return scalar(n), nil
}

func (r *yamlReader) mapping(n *yaml.Node, depth int) (any, error) {
	out := make(map[string]any, min(len(n.Content)/2, r.left+1))
	inherited := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, child := n.Content[i], n.Content[i+1]
		for hops := 0; key.Kind == yaml.AliasNode && hops < maxYAMLDepth; hops++ {
			key = key.Alias
		}
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key must be a plain value", key.Line)
		}
		v, err := r.value(child, depth+1)
		if err != nil {
			return nil, err
		}
		if key.ShortTag() == "!!merge" {
			if err := inherit(inherited, v); err != nil {
				return nil, fmt.Errorf("line %d: %w", key.Line, err)
			}
			continue
		}
		out[key.Value] = v
	}
	for k, v := range inherited {
		if _, ok := out[k]; !ok {
			out[k] = v
		}
	}
	return out, nil
}

// inherit is YAML's merge key: a map, or a list of maps of which the first that has a key wins.
func inherit(into map[string]any, v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, one := range list {
		m, ok := one.(map[string]any)
		if !ok {
			return errors.New("what is merged must be a map")
		}
		for k, v := range m {
			if _, ok := into[k]; !ok {
				into[k] = v
			}
		}
	}
	return nil
}

func scalar(n *yaml.Node) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool", "!!int", "!!float":
		var v any
		if err := n.Decode(&v); err != nil {
			return n.Value
		}
		switch v := v.(type) {
		case int:
			return int64(v)
		case float64:
			if math.IsNaN(v) || math.IsInf(v, 0) { // JSON has neither
				return n.Value
			}
		}
		return v
	case "!!binary":
		if b, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(n.Value), "")); err == nil && utf8.Valid(b) {
			return string(b)
		}
	case "!!str":
		if n.Style == 0 {
			switch n.Value {
			case "yes", "Yes", "YES", "on", "On", "ON":
				return true
			case "no", "No", "NO", "off", "Off", "OFF":
				return false
			}
		}
	}
	return n.Value
}

// Merge lays over onto base, as user-data is merged: maps key by key, lists appended, everything else replaced. Neither is changed, and
// the result shares no map with them.
func Merge(base, over map[string]any) map[string]any {
	out := make(map[string]any, len(base)+len(over))
	for k, v := range base {
		out[k] = clone(v)
	}
	for k, v := range over {
		switch b := out[k].(type) {
		case map[string]any:
			if o, ok := v.(map[string]any); ok {
				out[k] = Merge(b, o)
				continue
			}
		case []any:
			if o, ok := v.([]any); ok {
				out[k] = append(b, clone(o).([]any)...)
				continue
			}
		}
		out[k] = clone(v)
	}
	return out
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return Merge(v, nil)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = clone(v[i])
		}
		return out
	}
	return v
}
