//go:build mutants

package enginetest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// TestMutants switches every extension point, plugin, field and option off in turn and fails for each that no scenario
// notices; and it fails for every reason key that no scenario pins. It prints who noticed.
func TestMutants(t *testing.T) {
	scs, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	all := slices.Clone(scs) // reasons may be pinned by scenarios that other packages play
	scs = slices.DeleteFunc(scs, func(sc *Scenario) bool { return slices.Contains(sc.Options.Needs, "filters") })
	ms, err := Mutations(builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	row := func(name string, by []string) {
		if len(by) == 0 {
			t.Errorf("no scenario notices: %s", name)
		}
		first := by[:min(3, len(by))]
		fmt.Fprintf(&table, "%-64s %3d  %s\n", name, len(by), strings.Join(first, " "))
	}
	for _, m := range ms {
		var by []string
		for _, sc := range scs {
			if notices(sc, m) {
				by = append(by, sc.Name)
			}
		}
		row(m.Name, by)
	}
	for _, key := range reasons(t) {
		var by []string
		for _, sc := range all {
			if slices.ContainsFunc(sc.archiveWants(), func(w string) bool { return strings.Contains(w, ": "+key) }) {
				by = append(by, sc.Name)
			}
		}
		row("reason "+key, by)
	}
	t.Logf("noticed by (how many, the first three)\n%s", table.String())
}

// TestMutantsOfTheLedger proves the evidence of the ledger of properties: a scenario that a row names goes otherwise when the field of
// that row is taken off.
func TestMutantsOfTheLedger(t *testing.T) {
	text, err := os.ReadFile("../../../docs/ledgers/properties.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rows map[string]map[string]struct {
		Honoured string `json:"honoured"`
	}
	if err := yaml.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	scs, err := Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	ms, err := Mutations(builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	proven := 0
	for crd, kind := range map[string]string{"queues.scheduling.run.ai": "Queue", "podgroups.scheduling.run.ai": "PodGroup"} {
		for path, row := range rows[crd] {
			i := slices.IndexFunc(scs, func(sc *Scenario) bool { return sc.Name == row.Honoured })
			if i < 0 {
				continue // a Go test, or a promise
			}
			k := slices.IndexFunc(ms, func(m Mutation) bool { return m.Name == "field "+kind+"."+path })
			switch {
			case k < 0:
				t.Errorf("%s %s: no mutation takes this field off", crd, path)
			case !notices(scs[i], ms[k]):
				t.Errorf("%s %s: scenario %s does not notice when it is ignored", crd, path, row.Honoured)
			}
			proven++
		}
	}
	if proven < 20 {
		t.Errorf("only %d rows name a scenario", proven)
	}
}

// notices says whether the scenario goes otherwise under the mutation.
func notices(sc *Scenario, m Mutation) bool {
	b, err := NewEngine(&sc.Options, m, nil)
	if err != nil {
		return false // a profile that cannot be built proves nothing
	}
	turns, err := sc.Play(b)
	return err != nil || slices.ContainsFunc(turns, func(t Turn) bool { return !t.OK() })
}

func (sc *Scenario) archiveWants() []string {
	var out []string
	for i := range sc.steps {
		if sc.steps[i].kind == sectionRun {
			out = append(out, string(sc.archive.Files[sc.steps[i].want].Data))
		}
	}
	return out
}

// reasons reads the keys from the engine's source, so that a new one cannot be forgotten. RejectedByFilter belongs to the
// upstream filters, which are not linked here; their package pins it. OtherQueue is said of gangs that nobody asks about: the
// solver passes the queues of another right whole.
func reasons(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "../verdict.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 || !strings.HasPrefix(v.Names[0].Name, "Reason") {
			return true
		}
		if lit, ok := v.Values[0].(*ast.BasicLit); ok {
			if key, err := strconv.Unquote(lit.Value); err == nil && key != "" && key != "RejectedByFilter" && key != "OtherQueue" {
				out = append(out, key)
			}
		}
		return true
	})
	if len(out) < 20 {
		t.Fatalf("found only %d reason keys in verdict.go", len(out))
	}
	return out
}
