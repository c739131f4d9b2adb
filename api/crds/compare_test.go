package crds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tightened lists the places where we demand more than KAI, by CRD and path. At each, but where noted, we refuse only what no Go client
// can decode: with KAI's CRDs such an object is stored, and from then on every list of its kind fails.
var tightened = map[string][]string{
	"podgroups.scheduling.run.ai": {".spec.preemptionDelay", ".spec.stalenessGracePeriod"},
	"queues.scheduling.run.ai":    {".spec.preemptMinRuntime", ".spec.reclaimMinRuntime"},
	"configs.kai.scheduler": {
		".spec.numaPlacementExporter.driftResyncInterval", ".spec.numaPlacementExporter.pollInterval",
	},
	"topologies.kai.scheduler": {".spec.levels"}, // what KAI leaves to its webhook
	"schedulingshards.kai.scheduler": {
		".spec.goMemLimit",
		".spec.scenarioSearchBudgets.maxActionSearchDuration", ".spec.scenarioSearchBudgets.maxGeneratorSearchDuration",
		".spec.scenarioSearchBudgets.maxJobSearchDuration", ".spec.scenarioSearchBudgets.minJobSearchDuration",
		".spec.usageDBConfig.usageParams.fetchInterval", ".spec.usageDBConfig.usageParams.halfLifePeriod",
		".spec.usageDBConfig.usageParams.stalenessPeriod", ".spec.usageDBConfig.usageParams.waitTimeout",
	},
}

// shown lists the CRDs of which kubectl shows columns of ours where KAI's have none: nothing is stored otherwise for that.
var shown = []string{"podgroups.scheduling.run.ai"}

// TestDefinitionsContainKAIs holds our CRDs against KAI's, property by property: ours may add properties; they lack
// none, retype none, and demand nothing that KAI does not.
func TestDefinitionsContainKAIs(t *testing.T) {
	t.Parallel()
	own, kai := ownDefinitions(t), kaiDefinitions(t)
	for name, theirs := range kai {
		ours, ok := own[name]
		if !ok {
			t.Errorf("%s: missing", name)
			continue
		}
		for _, difference := range compareDefinitions(ours, theirs) {
			t.Errorf("%s: %s", name, difference)
		}
	}
	for name, paths := range tightened {
		for _, path := range paths {
			if len(rules(at(own[name].schema, path)["x-kubernetes-validations"])) == 0 {
				t.Errorf("%s: %s is listed as tightened, but has no rule", name, path)
			}
		}
	}
}

// at follows a path of property names; nil when there is no such property.
func at(s schema, path string) schema {
	for _, name := range strings.Split(path, ".")[1:] {
		properties, _ := s["properties"].(map[string]any)
		next, _ := properties[name].(map[string]any)
		s = next
	}
	return s
}

func compareDefinitions(ours, theirs definition) []string {
	var differences []string
	report := func(what string, our, their any) {
		if d := cmp.Diff(their, our); d != "" {
			differences = append(differences, fmt.Sprintf("%s (-KAI +ours):\n%s", what, d))
		}
	}
	o, k := ours.typed.Spec, theirs.typed.Spec
	report("group", o.Group, k.Group)
	report("scope", o.Scope, k.Scope)
	report("names", o.Names, k.Names)
	report("conversion", o.Conversion, k.Conversion)
	report("preserveUnknownFields", o.PreserveUnknownFields, k.PreserveUnknownFields)
	ov, kv := o.Versions[0], k.Versions[0]
	report("version", ov.Name, kv.Name)
	report("served", ov.Served, kv.Served)
	report("storage", ov.Storage, kv.Storage)
	report("deprecated", ov.Deprecated, kv.Deprecated)
	report("subresources", ov.Subresources, kv.Subresources)
	if columns := ov.AdditionalPrinterColumns; len(kv.AdditionalPrinterColumns) > 0 || len(columns) > 0 && !slices.Contains(shown, ours.typed.Name) {
		report("printer columns", columns, kv.AdditionalPrinterColumns)
	}
	report("selectable fields", ov.SelectableFields, kv.SelectableFields)
	return append(differences, compareSchemas(ours.typed.Name, "", ours.schema, theirs.schema)...)
}

// compareSchemas lists what ours lacks, changes or demands beyond theirs, below path.
func compareSchemas(crd, path string, ours, theirs schema) []string {
	var differences []string
	report := func(format string, args ...any) {
		at := path
		if at == "" {
			at = "."
		}
		differences = append(differences, at+": "+fmt.Sprintf(format, args...))
	}

	ourChildren := map[string]schema{}
	for _, next := range ours.children() {
		ourChildren[next.step] = next.schema
	}
	for _, next := range theirs.children() {
		our, ok := ourChildren[next.step]
		if !ok {
			report("lacks %s", next.step)
			continue
		}
		differences = append(differences, compareSchemas(crd, path+next.step, our, next.schema)...)
	}

	for keyword, their := range theirs {
		switch keyword {
		case "properties", "items", "description":
		case "additionalProperties":
			if _, isSchema := their.(map[string]any); !isSchema && !cmp.Equal(ours[keyword], their) {
				report("%s is %v, KAI's %v", keyword, ours[keyword], their)
			}
		case "required":
			for _, name := range stringsOf(their) {
				if !slices.Contains(stringsOf(ours[keyword]), name) {
					report("does not require %q", name)
				}
			}
		case "x-kubernetes-validations":
			for _, rule := range rules(their) {
				if !slices.Contains(rules(ours[keyword]), rule) {
					report("lacks the rule %s", rule)
				}
			}
		default:
			if !cmp.Equal(ours[keyword], their) {
				report("%s is %v, KAI's %v", keyword, ours[keyword], their)
			}
		}
	}

	for keyword, our := range ours {
		their, has := theirs[keyword]
		switch keyword {
		case "properties", "items", "description", "additionalProperties":
		case "required":
			for _, name := range stringsOf(our) {
				if !slices.Contains(stringsOf(their), name) {
					report("requires %q, KAI does not", name)
				}
			}
		case "x-kubernetes-validations":
			for _, rule := range rules(our) {
				if !slices.Contains(rules(their), rule) && !slices.Contains(tightened[crd], path) {
					report("has the rule %s, KAI does not", rule)
				}
			}
		default:
			if !has {
				report("demands %s %v, KAI does not", keyword, our)
			}
		}
	}
	slices.Sort(differences)
	return differences
}

func stringsOf(list any) []string {
	values, _ := list.([]any)
	all := make([]string, 0, len(values))
	for _, value := range values {
		all = append(all, value.(string))
	}
	return all
}

// rules returns the expressions of CEL validations; their messages may differ.
func rules(list any) []string {
	values, _ := list.([]any)
	all := make([]string, 0, len(values))
	for _, value := range values {
		rule, _ := value.(map[string]any)["rule"].(string)
		all = append(all, strings.Join(strings.Fields(rule), " "))
	}
	return all
}

// TestComparisonNotices breaks a copy of a schema in every way that the comparison is there to find, and asks that the
// message names the place.
func TestComparisonNotices(t *testing.T) {
	t.Parallel()
	base := func() schema {
		return schema{"type": "object", "required": []any{"a"}, "properties": map[string]any{
			"a": map[string]any{"type": "string", "enum": []any{"x", "y"}, "default": "x", "nullable": true},
			"b": map[string]any{
				"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": float64(3),
				"items":                    map[string]any{"type": "integer", "minimum": float64(0)},
				"x-kubernetes-validations": []any{map[string]any{"rule": "size(self) > 0", "message": "m"}},
			},
			"c": map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string", "pattern": "^a"}},
		}}
	}
	part := func(s schema, names ...string) map[string]any {
		node := map[string]any(s)
		for _, name := range names {
			node = node[name].(map[string]any)
		}
		return node
	}
	cases := []struct {
		name   string
		change func(ours schema)
		want   string
	}{
		{"lacks a property", func(s schema) { delete(part(s, "properties"), "b") }, ".: lacks .b"},
		{"lacks items", func(s schema) { delete(part(s, "properties", "b"), "items") }, ".b: lacks []"},
		{"lacks values", func(s schema) { delete(part(s, "properties", "c"), "additionalProperties") }, ".c: lacks {}"},
		{"retypes", func(s schema) { part(s, "properties", "b", "items")["type"] = "string" }, ".b[]: type is string"},
		{"changes a default", func(s schema) { part(s, "properties", "a")["default"] = "y" }, ".a: default is y"},
		{"drops a default", func(s schema) { delete(part(s, "properties", "a"), "default") }, ".a: default is <nil>"},
		{"narrows an enum", func(s schema) { part(s, "properties", "a")["enum"] = []any{"x"} }, ".a: enum is [x]"},
		{"forbids null", func(s schema) { delete(part(s, "properties", "a"), "nullable") }, ".a: nullable is"},
		{"raises a minimum", func(s schema) { part(s, "properties", "b", "items")["minimum"] = float64(1) }, ".b[]: minimum is 1"},
		{"adds a maximum", func(s schema) { part(s, "properties", "b", "items")["maximum"] = float64(9) }, ".b[]: demands maximum 9"},
		{"changes a pattern", func(s schema) { part(s, "properties", "c", "additionalProperties")["pattern"] = "^b" }, ".c{}: pattern is ^b"},
		{"drops a list type", func(s schema) { delete(part(s, "properties", "b"), "x-kubernetes-list-type") }, ".b: x-kubernetes-list-type is"},
		{"requires more", func(s schema) { s["required"] = []any{"a", "b"} }, `.: requires "b"`},
		{"requires less", func(s schema) { delete(s, "required") }, `.: does not require "a"`},
		{"drops a rule", func(s schema) { delete(part(s, "properties", "b"), "x-kubernetes-validations") }, ".b: lacks the rule size(self) > 0"},
		{"adds a rule", func(s schema) {
			part(s, "properties", "a")["x-kubernetes-validations"] = []any{map[string]any{"rule": "self != 'z'"}}
		}, ".a: has the rule self != 'z'"},
	}
	for _, c := range cases {
		ours := base()
		c.change(ours)
		got := compareSchemas("c", "", ours, base())
		if len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
			t.Errorf("%s: got %q, want one difference that begins with %q", c.name, got, c.want)
		}
	}

	ours := base()
	part(ours, "properties")["d"] = map[string]any{"type": "string"}
	part(ours, "properties", "b")["x-kubernetes-validations"] = []any{map[string]any{"rule": "size(self)  >  0", "message": "another"}}
	if got := compareSchemas("c", "", ours, base()); len(got) != 0 {
		t.Errorf("an added property or another message is reported: %q", got)
	}
}
