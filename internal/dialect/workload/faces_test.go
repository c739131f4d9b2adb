package workload

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestFacesKeysStay: every key that the dialect of Volcano's or of kube-batch's names is Known, so that its annotation is still there when the scheduler looks. A key that is forgotten
// works in every test of the dialect, and never in a cluster.
func TestFacesKeysStay(t *testing.T) {
	t.Parallel()
	values := map[string]string{}
	for _, dir := range []string{"../../../api/volcano/keys", "../../../api/kubebatch/keys"} {
		eachFile(t, dir, func(f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok {
					for i, name := range spec.Names {
						if lit, ok := spec.Values[i].(*ast.BasicLit); ok {
							values[name.Name], _ = strconv.Unquote(lit.Value)
						}
					}
				}
				return true
			})
		})
	}
	elsewhere := map[string]string{ // keys that no pod, owner or PodGroup has
		"Hierarchy": "queues have it, and they are kept whole", "HierarchyWeights": "as Hierarchy",
		"OwnPrefix": "it begins keys of controllers of bare pods, which package feed keeps by it",
	}
	seen := 0
	for _, dir := range []string{"../volcano", "../kubebatch"} {
		eachFile(t, dir, func(f *ast.File) {
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := s.X.(*ast.Ident)
				if !ok || !strings.HasSuffix(x.Name, "keys") || !strings.Contains(values[s.Sel.Name], "/") {
					return true
				}
				seen++
				if elsewhere[s.Sel.Name] == "" && !Known(values[s.Sel.Name]) {
					t.Errorf("%s reads %s (%s), which Known does not name: it would be trimmed away", dir, s.Sel.Name, values[s.Sel.Name])
				}
				return true
			})
		})
	}
	if seen < 10 {
		t.Errorf("%d uses of keys were found", seen)
	}
}

// eachFile parses the files of a package that are no tests.
func eachFile(t *testing.T, dir string, do func(*ast.File)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", dir, len(names), err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		do(f)
	}
}
