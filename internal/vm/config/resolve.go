package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Node is what VirtletConfigMapping objects choose nodes by.
type Node struct {
	Name   string
	Labels map[string]string
}

// Mapping is a VirtletConfigMapping object.
type Mapping struct {
	// Name is the object's.
	Name string `json:"name"`
	// NodeName is the only node that it is for; "" for any.
	NodeName string `json:"nodeName,omitempty"`
	// NodeSelector are labels that the node must have, all of them.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Priority: the higher one counts.
	Priority int64 `json:"priority,omitempty"`
	// Config has values by field.
	Config map[string]any `json:"config,omitempty"`
}

// For says whether the object is for a node.
func (m Mapping) For(n Node) bool {
	if m.NodeName != "" && m.NodeName != n.Name {
		return false
	}
	for key, value := range m.NodeSelector { // order: all have to hold
		if have, ok := n.Labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

// Input is what there is to resolve.
type Input struct {
	// Defaults are values by field.
	Defaults map[string]string
	Mappings []Mapping
	Node     Node
	// File is the text of the node's file, YAML or JSON: a map by field; FileName is for errors and sources. Empty: there is none.
	File     []byte
	FileName string
	// Flags are the flags that were given, by name, Virtlet's or our own.
	Flags map[string]string
	// Env has the environment's variables, NAME=value. An empty value is none.
	Env []string
}

// Value is a key with what it is.
type Value struct {
	Key  Key
	Text string
	// Source is "default", or "VirtletConfigMapping NAME", "file PATH", "flag --NAME", "env NAME".
	Source string
}

// Default says that nobody has set it.
func (v Value) Default() bool { return v.Source == sourceDefault }

const sourceDefault = "default"

// maxFile bounds the node's file and an object's settings, in bytes.
const maxFile = 1 << 20

// layer is one source with its values by field.
type layer struct {
	source func(k Key) string
	values map[string]string
}

// Resolve gives every key, in the order of Keys. Its errors are of kind Invalid, and all there are.
func Resolve(in Input) ([]Value, error) {
	var errs []error
	layers := in.mappings(&errs)
	if len(in.File) > 0 {
		name := "file " + in.FileName
		values, err := file(in.File)
		if err != nil {
			errs = append(errs, vm.Errorf(vm.Invalid, "%s: %w", name, err))
		}
		layers = append(layers, layer{func(Key) string { return name }, known(name, values, &errs)})
	}
	layers = append(layers, in.flags(&errs), in.env())
	var out []Value
	for _, k := range Keys() {
		v := Value{Key: k, Text: in.Defaults[k.Field], Source: sourceDefault}
		for _, l := range layers {
			text, ok := l.values[k.Field]
			if !ok {
				continue
			}
			source := l.source(k)
			judged, err := k.judge(text)
			if err != nil {
				errs = append(errs, vm.Errorf(vm.Invalid, "%s: %s %.128q: %w", source, k.Field, text, err))
				continue
			}
			v.Text, v.Source = judged, source
		}
		out = append(out, v)
	}
	return out, errors.Join(errs...)
}

func (k Key) judge(text string) (string, error) {
	if len(text) > maxValue {
		return "", fmt.Errorf("has %d bytes; at most %d are taken", len(text), maxValue)
	}
	return k.rule(text)
}

// mappings are the layers of the objects for the node, the least important first.
func (in Input) mappings(errs *[]error) (out []layer) {
	mine := slices.DeleteFunc(slices.Clone(in.Mappings), func(m Mapping) bool { return !m.For(in.Node) })
	slices.SortStableFunc(mine, func(a, b Mapping) int {
		switch {
		case a.Priority < b.Priority:
			return -1
		case a.Priority > b.Priority:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, m := range mine {
		name := "VirtletConfigMapping " + m.Name
		values, err := texts(m.Config)
		if err != nil {
			*errs = append(*errs, vm.Errorf(vm.Invalid, "%s: %w", name, err))
		}
		out = append(out, layer{func(Key) string { return name }, known(name, values, errs)})
	}
	return out
}

// flags are the flags that were given. A key may be given by both of its names if they agree.
func (in Input) flags(errs *[]error) layer {
	names, values := map[string]string{}, map[string]string{}
	for _, k := range Keys() {
		for _, name := range []string{k.Flag, k.Own} {
			text, ok := in.Flags[name]
			if name == "" || !ok || names[k.Field] == name {
				continue
			}
			if name == k.Own {
				text = k.FromOwn(text)
			}
			if before, twice := values[k.Field]; twice && before != text {
				*errs = append(*errs, vm.Errorf(vm.Invalid, "flags --%s and --%s: they are one setting, %s, and say different things", names[k.Field], name, k.Field))
			}
			names[k.Field], values[k.Field] = name, text
		}
	}
	return layer{func(k Key) string { return "flag --" + names[k.Field] }, values}
}

func (in Input) env() layer {
	set := map[string]string{}
	for _, v := range in.Env {
		name, value, _ := strings.Cut(v, "=")
		if _, ok := set[name]; !ok { // as libc reads it
			set[name] = value
		}
	}
	values := map[string]string{}
	for _, k := range Keys() {
		if text := set[k.Env]; k.Env != "" && text != "" {
			values[k.Field] = text
		}
	}
	return layer{func(k Key) string { return "env " + k.Env }, values}
}

// known leaves out values of fields that there are not, and says so.
func known(source string, values map[string]string, errs *[]error) map[string]string {
	for _, field := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(Keys(), func(k Key) bool { return k.Field == field }) {
			*errs = append(*errs, vm.Errorf(vm.Invalid, "%s: %.128q: there is no such key", source, field))
			delete(values, field)
		}
	}
	return values
}

// file reads a map of plain values.
func file(text []byte) (map[string]string, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("has more than %d bytes", maxFile)
	}
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(asJSON))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("must be a map of keys: %w", err)
	}
	return texts(values)
}

// texts gives plain values as flags would have them. What is not plain is left out, and in the error.
func texts(values map[string]any) (map[string]string, error) {
	out := map[string]string{}
	var errs []error
	for _, field := range slices.Sorted(maps.Keys(values)) {
		switch v := values[field].(type) {
		case nil:
		case string:
			out[field] = v
		case bool, json.Number, int64, int:
			out[field] = fmt.Sprint(v)
		case float64:
			if v != float64(int64(v)) {
				errs = append(errs, fmt.Errorf("%.128q: must be a whole number", field))
				continue
			}
			out[field] = fmt.Sprint(int64(v))
		default:
			errs = append(errs, fmt.Errorf("%.128q: must be a text, a number or true or false", field))
		}
	}
	return out, errors.Join(errs...)
}
