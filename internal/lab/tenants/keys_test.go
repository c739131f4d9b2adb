package tenants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestEveryKey: each constant of api/kai/keys is a key that the fuzzer writes, or a name that is known to be none. Whoever adds
// one says here which it is.
func TestEveryKey(t *testing.T) {
	files, err := filepath.Glob("../../../api/kai/keys/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	known := map[string]Key{}
	for _, k := range Keys() {
		if _, twice := known[k.Const]; twice {
			t.Errorf("%s has two rows", k.Const)
		}
		known[k.Const] = k
	}
	fset := token.NewFileSet()
	for _, file := range files {
		f, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range v.Names {
				k, isKey := known[name.Name]
				delete(known, name.Name)
				switch {
				case isKey == isName(name.Name):
					t.Errorf("%s of %s must be either a row of Keys, with where it is read and who writes it, or one of Names", name.Name, file)
				case isKey:
					lit, ok := v.Values[i].(*ast.BasicLit)
					if !ok {
						continue
					}
					if text, err := strconv.Unquote(lit.Value); err != nil || text != k.Text {
						t.Errorf("the row of %s has the key %q, the constant is %q", name.Name, k.Text, text)
					}
				}
			}
			return true
		})
	}
	for name := range known {
		t.Errorf("the row %s has no constant", name)
	}
}

func isName(constant string) bool {
	for _, n := range Names() {
		if n == constant || (n == "Event" || n == "Reason" || n == "Lease" || n == "PriorityClass") && strings.HasPrefix(constant, n) && constant != "PriorityClassLabel" {
			return true
		}
	}
	return false
}
