package volcano

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/docs/ledgers"
)

// mostOfValues is how long a values file may be, in bytes.
const mostOfValues = 1 << 20

// Values is what a values file of Volcano's Helm chart comes to.
type Values struct {
	// Chart are the values of Muster's chart that do the same.
	Chart map[string]any `json:"chart"`
	// Taken are the values that are among them, and NoEffect the others; both sorted by path, without those that are as Volcano has them by default.
	Taken    []TakenValue `json:"taken,omitempty"`
	NoEffect []LostValue  `json:"noEffect,omitempty"`
}

// TakenValue is a value of Volcano's that has its effect.
type TakenValue struct {
	// Path is Volcano's, such as custom.controller_replicas.
	Path string `json:"path"`
	// To are the values of Muster's chart that say the same.
	To []string `json:"to"`
}

// LostValue is a value of Volcano's that has no effect.
type LostValue struct {
	Path string `json:"path"`
	// Why says why, and what has the effect instead, if anything has.
	Why string `json:"why"`
}

// ConvertValues reads a values file of Volcano's chart (YAML). The face of Volcano's is switched on in any case. An error is a text that is none or has more than a mebibyte.
func ConvertValues(text []byte) (*Values, error) {
	if len(text) > mostOfValues {
		return nil, fmt.Errorf("the values have %d bytes, of at most %d", len(text), mostOfValues)
	}
	rows, err := ledgers.VolcanoValues()
	if err != nil {
		return nil, err
	}
	var given map[string]any
	if err := yaml.Unmarshal(text, &given); err != nil {
		return nil, fmt.Errorf("read the values: %w", err)
	}
	out := &Values{Chart: map[string]any{}}
	out.set("volcano.enabled", true)
	out.read(rows, "", given)
	return out, nil
}

// read goes through the values at a path.
func (v *Values) read(rows map[string]ledgers.VolcanoValue, above string, values map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value, path := values[key], strings.TrimPrefix(above+"."+key, ".")
		row, known := rows[path]
		inner, isMap := value.(map[string]any)
		switch {
		case known && (value == nil || reflect.DeepEqual(value, row.Default)):
		case known && row.Gate != nil:
			v.gates(path, row.Gate, value)
		case known && len(row.To) > 0:
			for _, to := range row.To {
				v.set(to, value)
			}
			v.Taken = append(v.Taken, TakenValue{path, row.To})
		case known:
			v.NoEffect = append(v.NoEffect, LostValue{path, row.Ignored})
		case isMap && slices.ContainsFunc(slices.Collect(maps.Keys(rows)), func(p string) bool { return strings.HasPrefix(p, path+".") }):
			v.read(rows, path, inner)
		default:
			v.NoEffect = append(v.NoEffect, LostValue{path, "nothing is known of such a value of Volcano's chart"})
		}
	}
}

// gates reads a text of feature gates.
func (v *Values) gates(path string, known map[string]string, value any) {
	for part := range strings.SplitSeq(fmt.Sprint(value), ",") {
		name, on, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch to := known[name]; {
		case name == "":
		case to == "":
			v.NoEffect = append(v.NoEffect, LostValue{path, fmt.Sprintf("there is nothing that the feature gate %.64q switches", name)})
		default:
			v.set(to, on == "true")
			v.Taken = append(v.Taken, TakenValue{path, []string{to}})
		}
	}
}

// set puts a value where a row of the ledger says.
func (v *Values) set(to string, value any) {
	to, flag, isFlag := strings.Cut(to, " ")
	to, key, isList := strings.Cut(to, "[].")
	steps := strings.Split(to, ".")
	at := v.Chart
	for _, step := range steps[:len(steps)-1] {
		below, there := at[step].(map[string]any)
		if !there {
			below = map[string]any{}
			at[step] = below
		}
		at = below
	}
	last := steps[len(steps)-1]
	switch old, _ := at[last].([]any); {
	case isFlag:
		at[last] = append(old, fmt.Sprintf("%s=%v", flag, value))
	case isList:
		at[last] = []any{map[string]any{key: value}}
	default:
		at[last] = value
	}
}

// Text is a values file of Muster's chart, in which comments say what became of each value of Volcano's.
func (v *Values) Text() string {
	var out strings.Builder
	for _, t := range v.Taken {
		fmt.Fprintf(&out, "# %s: %s\n", t.Path, strings.Join(t.To, ", "))
	}
	for _, l := range v.NoEffect {
		fmt.Fprintf(&out, "# %s has no effect: %s\n", comment(l.Path), l.Why)
	}
	body, err := yaml.Marshal(v.Chart)
	if err != nil {
		panic(err) // it came of YAML
	}
	return out.String() + string(body)
}

// comment is a user's text as it may stand in one line.
func comment(s string) string {
	quoted := fmt.Sprintf("%.256q", s)
	return quoted[1 : len(quoted)-1]
}
