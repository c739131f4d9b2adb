package archtest

import (
	"go/ast"
	"strings"
)

// checkAside is D12. What cannot be seen from the syntax is judged by the file: one that starts goroutines also says what of them is
// guarded.
func checkAside(t *Tree) ([]Violation, error) {
	var out []Violation
	for _, f := range t.Files {
		if f.Test || f.Generated || !underAny(f.Dir, []string{dirControllers, "internal/kube", "internal/roles"}) || under(f.Dir, "internal/kube/aside") {
			continue
		}
		guards, wraps := false, false
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && strings.HasSuffix(strings.ToLower(last(s.X)), "guard") {
				guards = guards || s.Sel.Name == "Do" || s.Sel.Name == "Catch"
			}
			if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Cache" {
				wraps = wraps || strings.HasSuffix(strings.ToLower(last(s.X)), "guard") || last(s.X) == "aside"
			}
			return true
		})
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if k, ok := n.Key.(*ast.Ident); ok && k.Name == "Reconciler" && !isAside(n.Value) {
					out = append(out, Violation{Where: t.Pos(n.Pos()), What: "a reconciler that is not made by aside.Reconciler"})
				}
			case *ast.GoStmt:
				if !guards {
					out = append(out, Violation{Where: t.Pos(n.Pos()), What: "starts a goroutine, and guards nothing"})
				}
			case *ast.CallExpr:
				s, ok := n.Fun.(*ast.SelectorExpr)
				if ok && s.Sel.Name == "Go" && len(n.Args) == 1 && !guards {
					out = append(out, Violation{Where: t.Pos(n.Pos()), What: "starts a goroutine, and guards nothing"})
				}
				if ok && s.Sel.Name == "New" && last(s.X) == "cache" && !wraps {
					out = append(out, Violation{Where: t.Pos(n.Pos()), What: "makes a cache whose handlers are not guarded"})
				}
			}
			return true
		})
	}
	return out, nil
}

// last is the last name of an expression such as c.deps.Guard.
func last(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

func isAside(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Reconciler" && last(s.X) == "aside"
}
