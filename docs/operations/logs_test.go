package operations

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestLogKeys reads the code of the roles: every key of logs.md is logged, and what it means is logged under no other; keys are written
// alike, and a message is a constant: what differs from one object to the next is a key.
func TestLogKeys(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("logs.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| key | what |")
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*`) \\|").FindAllStringSubmatch(table, -1) {
		for _, key := range regexp.MustCompile("`([A-Za-z]+)`").FindAllStringSubmatch(row[1], -1) {
			listed[key[1]] = true
		}
	}
	meant := map[string]string{ // what people also write, in lower case
		"podgroup": "gang", "pod_group": "gang", "pg": "gang", "job": "gang", "workload": "gang", "queuename": "queue", "nodename": "node", "host": "node",
		"bundleid": "bundle", "podname": "pod", "err": "error", "ns": "namespace", "addr": "address", "verb": "action",
	}
	alike := regexp.MustCompile(`^[a-z][A-Za-z]*$`)
	logged := map[string]bool{}
	for _, dir := range []string{"app", "roles", "scheduler", "kube", "controllers", "usage"} {
		err := filepath.WalkDir(filepath.Join("../../internal", dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for at, key := range keysOf(t, path) {
				if logged[key] = true; meant[strings.ToLower(key)] != "" {
					t.Errorf("%s: the key %q is another word for %q, which docs/operations/logs.md promises", at, key, meant[strings.ToLower(key)])
				}
				if !alike.MatchString(key) {
					t.Errorf("%s: the key %q is not written as keys are: %s", at, key, alike)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for key := range listed {
		if !logged[key] {
			t.Errorf("docs/operations/logs.md explains the key %q, which is never logged", key)
		}
	}
}

// keysOf are the keys that a file logs, by their positions.
func keysOf(t *testing.T, path string) map[string]string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		first := map[string]int{"Info": 1, "Error": 2, "WithValues": 0} // the first key
		if !ok || first[sel.Sel.Name] == 0 && sel.Sel.Name != "WithValues" || len(call.Args) < first[sel.Sel.Name] || !aLogger(sel.X) {
			return true
		}
		if m := first[sel.Sel.Name] - 1; m >= 0 {
			if _, ok := call.Args[m].(*ast.BasicLit); !ok {
				t.Errorf("%s: a message that is no constant", set.Position(call.Pos()))
			}
		}
		for i := first[sel.Sel.Name]; i < len(call.Args); i += 2 {
			at := set.Position(call.Args[i].Pos()).String()
			literal, ok := call.Args[i].(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: a key that is no constant", at)
				continue
			}
			if out[at], err = strconv.Unquote(literal.Value); err != nil {
				t.Fatal(err)
			}
		}
		return true
	})
	return out
}

// aLogger guesses from its text whether an expression is a logger.
func aLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.EqualFold(e.Name, "log")
	case *ast.SelectorExpr:
		return strings.EqualFold(e.Sel.Name, "log") || e.Sel.Name == "FromContextOrDiscard"
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok {
			return aLogger(sel) || (sel.Sel.Name == "V" || sel.Sel.Name == "WithValues" || sel.Sel.Name == "WithName") && aLogger(sel.X)
		}
	}
	return false
}
