package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLifeOfACycle: what doc.go tells of a cycle by name is there: methods of the engine's types and of the interfaces of actions and
// plugins, and functions by their package.
func TestLifeOfACycle(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, cycle, _ := strings.Cut(string(text), "# One cycle")
	cycle, _, found := strings.Cut(cycle, "# Proof")
	if !found {
		t.Fatal("doc.go has no part between # One cycle and # Proof")
	}
	there := map[string]bool{}
	for _, dir := range []string{".", "ledger", "rules", "recorder", "placer", "policy"} {
		files, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					of := f.Name.Name
					if n.Recv != nil {
						of = receiver(n)
					}
					there[of+"."+n.Name.Name] = true
				case *ast.TypeSpec:
					if i, ok := n.Type.(*ast.InterfaceType); ok {
						for _, m := range i.Methods.List {
							for _, name := range m.Names {
								there[n.Name.Name+"."+name.Name] = true
							}
						}
					}
				}
				return true
			})
		}
	}
	names := regexp.MustCompile(`\b[A-Za-z]\w*\.[A-Za-z]\w+`).FindAllString(cycle, -1)
	for _, name := range names {
		if !there[name] && !strings.HasSuffix(name, ".go") {
			t.Errorf("doc.go tells of %s in the life of a cycle, and there is none", name)
		}
	}
	if len(names) < 20 {
		t.Errorf("doc.go tells of %d functions in the life of a cycle; where is the rest?", len(names))
	}
}
