package ledgers_test

import (
	"bufio"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/muster-scheduler/muster/api/crds"
)

// evidenceComplete makes TestEvidence fail for names that do not exist, instead of only listing them. It is set once
// every row's scenario or test is there.
const evidenceComplete = true

// capabilities are the words that planned rows may use.
var capabilities = []string{
	"admission", "consolidation", "disruption", "dra", "gpu-sharing", "metrics", "mig", "node-scale", "numa", "operator",
	"podgrouper-kinds", "preemption-delay", "queue-depth", "reclaim", "search-budgets", "simulators", "snapshots",
	"stale-gangs", "topology",
}

// row is one entry of a ledger. Exactly one of Honoured, Accepted and Planned is set.
type row struct {
	Default  *string `json:"default,omitempty"`
	Honoured string  `json:"honoured,omitempty"`
	Accepted string  `json:"accepted,omitempty"`
	Planned  string  `json:"planned,omitempty"`
	Ours     bool    `json:"ours,omitempty"`
}

// ledger is a file's rows by section (CRD or program) and name (path or flag).
type ledger map[string]map[string]row

func readLedger(t *testing.T, file string) ledger {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var l ledger
	if err := yaml.UnmarshalStrict(content, &l); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return l
}

// each calls visit for every row, in a fixed order.
func (l ledger) each(visit func(section, name string, r row)) {
	for _, section := range slices.Sorted(maps.Keys(l)) {
		for _, name := range slices.Sorted(maps.Keys(l[section])) {
			visit(section, name, l[section][name])
		}
	}
}

var (
	scenarioName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	testName     = regexp.MustCompile(`^Test[A-Z][A-Za-z0-9]*$`)
)

// handedOn are the parts of our resources whose inside others define: it goes into a pod, or an autoscaler, or is a list of
// conditions, as it is.
var handedOn = regexp.MustCompile(`(?i)(affinity|securitycontext|tolerations\[\]|resources|vpa|conditions\[\])\.\*{1,2}$`)

// checkRows reports rows that say nothing, say two things, or say them in words of their own.
func checkRows(t *testing.T, file string, l ledger) {
	t.Helper()
	l.each(func(section, name string, r row) {
		at := fmt.Sprintf("%s: %s %s", file, section, name)
		said := 0
		for _, text := range []string{r.Honoured, r.Accepted, r.Planned} {
			if text != "" {
				said++
			}
		}
		switch {
		case said != 1:
			t.Errorf("%s: want exactly one of honoured, accepted and planned", at)
		case r.Honoured != "" && !scenarioName.MatchString(r.Honoured) && !testName.MatchString(r.Honoured):
			t.Errorf("%s: %q is neither the name of a scenario nor of a Go test", at, r.Honoured)
		case r.Honoured != "" && strings.Contains(name, "*") && !handedOn.MatchString(name):
			t.Errorf("%s: an honoured row names one property, or the inside of a part that is handed on as it is", at)
		case r.Accepted != "" && len(strings.Fields(r.Accepted)) < 3:
			t.Errorf("%s: %q is no reason", at, r.Accepted)
		case r.Planned != "" && !slices.Contains(capabilities, r.Planned):
			t.Errorf("%s: unknown capability %q", at, r.Planned)
		}
	})
}

// matches says whether a row's name, which may hold * and a final **, covers a property's path.
func matches(name, path string) bool {
	pattern, steps := strings.Split(name, "."), strings.Split(path, ".")
	for i, want := range pattern {
		if want == "**" && i == len(pattern)-1 {
			return len(steps) > i
		}
		if i >= len(steps) || want != "*" && want != steps[i] {
			return false
		}
	}
	return len(steps) == len(pattern)
}

func TestMatches(t *testing.T) {
	t.Parallel()
	cases := []struct {
		row, path string
		want      bool
	}{
		{"spec.a", "spec.a", true},
		{"spec.a", "spec.a.b", false},
		{"spec.a.b", "spec.a", false},
		{"spec.*.b", "spec.a.b", true},
		{"spec.*.b", "spec.a.c.b", false},
		{"spec.*", "spec.a", true},
		{"spec.*", "spec.a.b", false},
		{"spec.a.**", "spec.a", false},
		{"spec.a.**", "spec.a.b", true},
		{"spec.a.**", "spec.a.b[].c", true},
		{"spec.a[].*", "spec.a[].b", true},
		{"spec.a[].*", "spec.a.b", false},
	}
	for _, c := range cases {
		if got := matches(c.row, c.path); got != c.want {
			t.Errorf("matches(%q, %q) = %v", c.row, c.path, got)
		}
	}
}

// leaves lists the properties below spec and status that have no parts. Lists and maps of plain values count as one.
func leaves(t *testing.T, content []byte) (name string, paths []string) {
	t.Helper()
	var definition struct {
		Metadata struct{ Name string }
		Spec     struct {
			Versions []struct {
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := yaml.Unmarshal(content, &definition); err != nil {
		t.Fatal(err)
	}
	parts := func(node map[string]any) map[string]map[string]any {
		all := map[string]map[string]any{}
		if properties, ok := node["properties"].(map[string]any); ok {
			for name, property := range properties {
				all["."+name] = property.(map[string]any)
			}
		}
		if items, ok := node["items"].(map[string]any); ok {
			all["[]"] = items
		}
		if values, ok := node["additionalProperties"].(map[string]any); ok {
			all["{}"] = values
		}
		return all
	}
	var walk func(path string, node map[string]any)
	walk = func(path string, node map[string]any) {
		all := parts(node)
		plain := true
		for step, part := range all {
			plain = plain && step[0] != '.' && len(parts(part)) == 0
		}
		if plain {
			paths = append(paths, path)
			return
		}
		for step, part := range all {
			walk(path+step, part)
		}
	}
	for _, version := range definition.Spec.Versions {
		for step, part := range parts(version.Schema.OpenAPIV3Schema) {
			if step == ".spec" || step == ".status" {
				walk(step[1:], part)
			}
		}
	}
	slices.Sort(paths)
	return definition.Metadata.Name, paths
}

// TestProperties compares properties.yaml with the CRDs.
func TestProperties(t *testing.T) {
	t.Parallel()
	const file = "properties.yaml"
	l := readLedger(t, file)
	checkRows(t, file, l)
	used := map[string]bool{}
	for _, definition := range crds.All() {
		crd, paths := leaves(t, definition.YAML)
		if len(paths) == 0 {
			t.Errorf("%s: no properties found", definition.Name)
		}
		for _, path := range paths {
			if _, ok := l[crd][path]; ok {
				used[crd+" "+path] = true
				continue
			}
			var covering []string
			for name := range l[crd] {
				if matches(name, path) {
					covering = append(covering, name)
					used[crd+" "+name] = true
				}
			}
			switch len(covering) {
			case 0:
				t.Errorf("%s: %s: no row for %s", file, crd, path)
			case 1:
			default:
				slices.Sort(covering)
				t.Errorf("%s: %s: several rows for %s: %s", file, crd, path, strings.Join(covering, ", "))
			}
		}
	}
	l.each(func(crd, name string, _ row) {
		if !used[crd+" "+name] {
			t.Errorf("%s: %s: %s is left over: there is no such property", file, crd, name)
		}
	})
}

// TestOursAreAdded compares the rows marked as ours with KAI's CRDs: they are what those lack.
func TestOursAreAdded(t *testing.T) {
	t.Parallel()
	folder := sharedFolder(t, "compat/kai/crds")
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	kai := map[string]map[string]bool{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd, paths := leaves(t, content)
		kai[crd] = map[string]bool{}
		for _, path := range paths {
			kai[crd][path] = true
		}
	}
	l := readLedger(t, "properties.yaml")
	l.each(func(crd, name string, r row) {
		if r.Ours && kai[crd][name] {
			t.Errorf("%s %s is marked as ours, but KAI has it", crd, name)
		}
		if !r.Ours && !strings.Contains(name, "*") && !kai[crd][name] {
			t.Errorf("%s %s is not marked as ours, but KAI does not have it", crd, name)
		}
	})
}

// TestFlags compares flags.yaml with the list of KAI's flags and defaults.
func TestFlags(t *testing.T) {
	t.Parallel()
	const file, list = "flags.yaml", "testdata/kai-flags.txt"
	l := readLedger(t, file)
	checkRows(t, file, l)
	content, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(string(content)))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 3 {
			t.Fatalf("%s: %q is not: program flag default", list, lines.Text())
		}
		program, flag, value := fields[0], fields[1], fields[2]
		if value == "-" {
			value = ""
		}
		known[program+" "+flag] = true
		r, ok := l[program][flag]
		switch {
		case !ok:
			t.Errorf("%s: no row for %s --%s", file, program, flag)
		case r.Default == nil:
			t.Errorf("%s: %s --%s: no default given", file, program, flag)
		case *r.Default != value:
			t.Errorf("%s: %s --%s: default %q, KAI's is %q", file, program, flag, *r.Default, value)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	l.each(func(program, flag string, _ row) {
		if !known[program+" "+flag] {
			t.Errorf("%s: %s --%s is left over: KAI has no such flag", file, program, flag)
		}
	})
}

// TestEvidence looks for the scenario or Go test that each honoured row names.
func TestEvidence(t *testing.T) {
	t.Parallel()
	root := repositoryRoot(t)
	tests := testFunctions(t, root)
	missing := map[string]bool{}
	for _, file := range []string{"properties.yaml", "flags.yaml"} {
		readLedger(t, file).each(func(section, name string, r row) {
			if r.Honoured == "" || tests[r.Honoured] {
				return
			}
			if _, err := os.Stat(filepath.Join(root, "scenarios", r.Honoured+".txtar")); err == nil {
				return
			}
			missing[r.Honoured] = true
			if evidenceComplete {
				t.Errorf("%s: %s %s: there is no scenarios/%s.txtar and no Go test of that name", file, section, name, r.Honoured)
			}
		})
	}
	if len(missing) > 0 {
		t.Logf("%d names without evidence yet:\n%s", len(missing), strings.Join(slices.Sorted(maps.Keys(missing)), "\n"))
	}
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)\(`)

// testFunctions collects the names of all Go tests of the module.
func testFunctions(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, match := range testFunction.FindAllSubmatch(content, -1) {
			names[string(match[1])] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// repositoryRoot is the folder of go.mod.
func repositoryRoot(t *testing.T) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if _, err := os.Stat(filepath.Join(at, "go.mod")); err == nil {
			return at
		}
		at = filepath.Dir(at)
	}
	t.Fatal("no go.mod above this package")
	return ""
}

// sharedFolder finds a folder of the compatibility data, which lies beside the checkout. A test without it is
// skipped.
func sharedFolder(t *testing.T, name string) string {
	t.Helper()
	at := repositoryRoot(t)
	for range 6 {
		folder := filepath.Join(at, "shared", filepath.FromSlash(name))
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			return folder
		}
		at = filepath.Dir(at)
	}
	t.Skipf("compatibility data shared/%s is not beside this checkout: nothing to compare with", name)
	return ""
}
