package chart

import (
	"embed"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed all:muster
var embedded embed.FS

// Files is the chart's folder: Chart.yaml, values.yaml, templates and so on.
func Files() fs.FS {
	sub, err := fs.Sub(embedded, "muster")
	if err != nil {
		panic(err) // the folder is embedded above
	}
	return sub
}

// Value is what becomes of one of the chart's values.
type Value struct {
	// Path names the value, such as scheduler.args. It speaks for all below it that has no Value of its own.
	Path string `json:"path"`
	// To is what gets the value: "config:" and a field of the Config's spec, "shard:" and one of the SchedulingShard's, or
	// "chart:" and a part of the chart's own objects. Empty if Ignored is set.
	To string `json:"to,omitempty"`
	// Ignored says why the value has no effect. Empty if To is set.
	Ignored string `json:"ignored,omitempty"`
	// Default is what an ignored value may be without a word being lost about it.
	Default any `json:"default,omitempty"`
}

// Values lists all of them.
func Values() ([]Value, error) {
	text, err := fs.ReadFile(Files(), "files/values.yaml")
	if err != nil {
		return nil, fmt.Errorf("the chart's list of values: %w", err)
	}
	var list struct {
		Values []Value `json:"values"`
	}
	if err := yaml.UnmarshalStrict(text, &list); err != nil {
		return nil, fmt.Errorf("the chart's list of values: %w", err)
	}
	return list.Values, nil
}

// Finding is a value that has no effect.
type Finding struct {
	// Path names the value.
	Path string
	// Why says why it has none.
	Why string
}

// Report says which values of a values file (YAML) have no effect, sorted by their paths: those that are ignored, unless they
// are KAI's default, and those that the chart does not know. An error is a file that is not YAML, or no mapping.
func Report(file []byte) ([]Finding, error) {
	rows, err := Values()
	if err != nil {
		return nil, err
	}
	var given map[string]any
	if err := yaml.Unmarshal(file, &given); err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	var out []Finding
	for _, row := range rows {
		value, found := at(given, row.Path)
		if found && row.Ignored != "" && !reflect.DeepEqual(value, row.Default) {
			out = append(out, Finding{Path: row.Path, Why: row.Ignored})
		}
	}
	if registry, _ := at(given, "global.registry"); registry != nil && strings.HasSuffix(fmt.Sprint(registry), "kai-scheduler") {
		out = append(out, Finding{Path: "global.registry", Why: fmt.Sprintf("the registry %v is KAI's and has no image of Muster's; neither it nor any image tag is taken", registry)})
	}
	out = append(out, unknown(rows, "", given)...)
	slices.SortFunc(out, func(a, b Finding) int { return strings.Compare(a.Path, b.Path) })
	return out, nil
}

// at finds a value by its path.
func at(values map[string]any, path string) (any, bool) {
	var here any = values
	for part := range strings.SplitSeq(path, ".") {
		m, ok := here.(map[string]any)
		if !ok {
			return nil, false
		}
		if here, ok = m[part]; !ok {
			return nil, false
		}
	}
	return here, true
}

// unknown finds the values that no row speaks of.
func unknown(rows []Value, above string, values map[string]any) (out []Finding) {
	for key, value := range values { // order: sorted by the caller
		path := strings.TrimPrefix(above+"."+key, ".")
		if slices.ContainsFunc(rows, func(r Value) bool { return r.Path == path }) {
			continue
		}
		inner, isMap := value.(map[string]any)
		if !slices.ContainsFunc(rows, func(r Value) bool { return strings.HasPrefix(r.Path, path+".") }) {
			out = append(out, Finding{Path: path, Why: "the chart knows no such value"})
		} else if isMap {
			out = append(out, unknown(rows, path, inner)...)
		}
	}
	return out
}
