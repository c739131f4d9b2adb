package ledgers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestThreatModel holds docs/operations/threat-model.md against the tree: each row that names what proves it names tests that
// there are, and each label and annotation of the interface is on the page.
func TestThreatModel(t *testing.T) {
	t.Parallel()
	root := repositoryRoot(t)
	page, err := os.ReadFile(filepath.Join(root, "docs", "operations", "threat-model.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, rows, proof := testFunctions(t, root), 0, -1
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "|") {
			proof = -1
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if last := strings.TrimSpace(cells[len(cells)-1]); last == "test" {
			proof = len(cells) - 1
			continue
		}
		if proof < 0 || strings.HasPrefix(cells[0], "---") {
			continue
		}
		rows++
		if len(cells) != proof+1 {
			t.Errorf("a row of %d cells, its table has %d: %s", len(cells), proof+1, line)
			continue
		}
		proven(t, tests, cells[0], cells[proof])
	}
	if rows < 40 {
		t.Errorf("only %d rows are understood", rows)
	}
	for name, text := range interfaceKeys(t, root) {
		if !strings.Contains(string(page), "`"+text) {
			t.Errorf("%s (%s): nothing is said of who may write it and what follows", text, name)
		}
	}
}

// namedTests finds the names of tests in a table's cell.
var namedTests = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)`")

// proven wants the cell of a row to name tests, and that there are such.
func proven(t *testing.T, tests map[string]bool, row, cell string) {
	t.Helper()
	found := namedTests.FindAllStringSubmatch(cell, -1)
	if len(found) == 0 {
		t.Errorf("%s: no test", strings.TrimSpace(row))
	}
	for _, name := range found {
		if !tests[name[1]] {
			t.Errorf("%s: there is no %s", strings.TrimSpace(row), name[1])
		}
	}
}

// interfaceKeys returns the labels and annotations of api/kai/keys by the names of their constants.
func interfaceKeys(t *testing.T, root string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "api", "kai", "keys", "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no keys: %v", err)
	}
	is := regexp.MustCompile(`(Label|Annotation|LabelPrefix)$|^User$`)
	out := map[string]string{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				lit, ok := spec.Values[i].(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING || !is.MatchString(name.Name) {
					continue
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				out[name.Name] = text
			}
			return true
		})
	}
	if len(out) < 40 {
		t.Fatalf("only %d keys are understood", len(out))
	}
	return out
}
