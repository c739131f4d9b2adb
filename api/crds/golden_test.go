package crds_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite testdata/schema.txt")

// quantityPattern is what controller-gen writes for a resource.Quantity.
const quantityPattern = `^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`

// TestSchemaListing compares our CRDs with the listing in testdata, which stands for the compatibility data where that
// is missing: a change of any property, type or constraint shows up there as a changed line.
func TestSchemaListing(t *testing.T) {
	t.Parallel()
	const golden = "testdata/schema.txt"
	own := ownDefinitions(t)
	var listing bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(own)) {
		list(&listing, own[name])
	}
	if *update {
		if err := os.WriteFile(golden, listing.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(listing.String(), "\n")); diff != "" {
		t.Errorf("the CRDs differ from %s; if that is meant, run this test with -update (-want +got):\n%s", golden, diff)
	}
}

// list writes one line per property: path, type, constraints. A subtree that has appeared before in the same CRD is
// written as a reference to the first one.
func list(out *bytes.Buffer, d definition) {
	spec, version := d.typed.Spec, d.typed.Spec.Versions[0]
	fmt.Fprintf(out, "%s %s %s %s", d.typed.Name, version.Name, spec.Names.Kind, spec.Scope)
	if len(spec.Names.ShortNames) > 0 {
		fmt.Fprintf(out, " short=%s", strings.Join(spec.Names.ShortNames, ","))
	}
	if version.Subresources != nil && version.Subresources.Status != nil {
		fmt.Fprint(out, " status")
	}
	fmt.Fprintln(out)
	for _, column := range version.AdditionalPrinterColumns {
		fmt.Fprintf(out, "  column %s %s %s\n", column.Name, column.Type, column.JSONPath)
	}

	seen := map[string]string{}
	var walk func(path string, node schema)
	walk = func(path string, node schema) {
		fmt.Fprintf(out, "  %s%s", path, facts(node))
		all := node.children()
		if len(all) > 0 {
			shape := shape(node)
			if first, ok := seen[shape]; ok && len(shape) > 200 {
				fmt.Fprintf(out, " parts as %s\n", first)
				return
			}
			seen[shape] = path
		}
		fmt.Fprintln(out)
		for _, next := range all {
			walk(path+next.step, next.schema)
		}
	}
	for _, next := range d.schema.children() {
		walk(next.step, next.schema)
	}
}

// facts renders everything a schema node says besides its description and its parts.
func facts(node schema) string {
	if node["x-kubernetes-int-or-string"] == true && node["pattern"] == quantityPattern && len(node.children()) == 0 {
		return " quantity"
	}
	var text strings.Builder
	if kind, ok := node["type"]; ok {
		fmt.Fprintf(&text, " %v", kind)
	}
	for _, keyword := range slices.Sorted(maps.Keys(node)) {
		value := node[keyword]
		switch keyword {
		case "type", "description", "properties", "items":
			continue
		case "additionalProperties":
			if _, isSchema := value.(map[string]any); isSchema {
				continue
			}
		case "x-kubernetes-validations":
			value = rules(value)
		}
		raw, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(&text, " %s=%s", keyword, raw)
	}
	return text.String()
}

// shape renders a subtree for comparison with others.
func shape(node schema) string {
	var text strings.Builder
	text.WriteString(facts(node))
	for _, next := range node.children() {
		text.WriteString("(" + next.step + shape(next.schema) + ")")
	}
	return text.String()
}
