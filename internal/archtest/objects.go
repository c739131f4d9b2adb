package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// checkDialect is D4. A translation shows in its signature: API objects go in and model types come out, or the reverse, and no
// dialect is asked on the way (the feed puts together what dialects tell it). The model itself must not know our CRDs, and a dialect must not reach a client.
func checkDialect(t *Tree) ([]Violation, error) {
	out, err := t.reach("D4", []string{dirDialect}, func(path string) bool { return underAny(path, clients()) })
	if err != nil {
		return nil, err
	}
	t.eachImport(func(dir string) bool { return underAny(dir, []string{dirCluster, dirFairshare, dirEngine}) }, func(f *File, imp Import) {
		if under(imp.Local, dirAPI) && !under(f.Dir, dirEngineTest) {
			out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("%s imports %s: the model would become one face's model", f.Dir, imp.Local)})
		}
	})
	for _, f := range t.Files {
		if f.Test || f.Generated || under(f.Dir, dirDialect) || under(f.Dir, dirEngineTest) {
			continue
		}
		for _, decl := range f.Syntax.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			in, res := f.families(fn.Type.Params), f.families(fn.Type.Results)
			if (in.api && res.model || in.model && res.api) && !f.asksDialect(fn) {
				out = append(out, Violation{Where: t.Pos(fn.Pos()), What: fmt.Sprintf("func %s translates between API objects and the model outside %s", fn.Name.Name, dirDialect)})
			}
		}
	}
	return out, nil
}

// asksDialect reports whether a function calls into a dialect package.
func (f *File) asksDialect(fn *ast.FuncDecl) bool {
	asks := false
	ast.Inspect(fn, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if id, ok := sel.X.(*ast.Ident); ok {
					asks = asks || f.imports(func(imp Import) bool { return imp.Name == id.Name && under(imp.Local, dirDialect) })
				}
			}
		}
		return !asks
	})
	return asks
}

// families says which kinds of types a parameter or result list names.
type families struct{ api, model bool }

func (f *File) families(list *ast.FieldList) families {
	var out families
	if list == nil {
		return out
	}
	ast.Inspect(list, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		id, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		for _, imp := range f.Imports {
			if imp.Name != id.Name {
				continue
			}
			out.model = out.model || under(imp.Local, dirCluster)
			out.api = out.api || under(imp.Local, dirAPI) || under(imp.Path, "k8s.io/api")
		}
		return true
	})
	return out
}

// checkWrites is D5. A write shows in the options that client-go's typed and dynamic clients demand, in controller-runtime's
// writing verbs, in a raw REST verb, or in the use of the kit that wraps these (internal/kube/write). The CLI and the demo act for their user, the lab is the cluster, app owns Leases and events.
func checkWrites(t *Tree) ([]Violation, error) {
	writers := []string{dirApply, dirWrite, dirControllers, dirApp, dirLab, dirKubetest, "internal/cli", "internal/demo", "cmd/muster-lab", "bench"}
	const metav1 = "k8s.io/apimachinery/pkg/apis/meta/v1"
	var out []Violation
	for _, f := range t.Files {
		if f.Test || f.Generated || underAny(f.Dir, writers) || under(f.Dir, dirAPI) {
			continue
		}
		add := func(pos token.Pos, what string) { out = append(out, Violation{Where: t.Pos(pos), What: what}) }
		for _, opt := range []string{"CreateOptions", "UpdateOptions", "PatchOptions", "ApplyOptions", "DeleteOptions"} {
			f.mentions(metav1, opt, func(pos token.Pos) { add(pos, "writes to the API server (metav1."+opt+")") })
		}
		for _, imp := range f.Imports {
			// The package that puts processes together builds the kit and hands it on.
			if under(imp.Local, dirWrite) && !under(f.Dir, dirRoles) {
				add(imp.Pos, "uses the kit that writes to the API server ("+dirWrite+")")
			}
		}
		runtimeClient := f.imports(func(imp Import) bool { return under(imp.Path, "sigs.k8s.io/controller-runtime") })
		clientGo := f.imports(func(imp Import) bool { return under(imp.Path, "k8s.io/client-go") })
		if !runtimeClient && !clientGo {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch sel.Sel.Name {
			case "Create", "Update", "Patch", "Delete", "DeleteAllOf", "Apply":
				if runtimeClient && len(call.Args) >= 2 && isContext(call.Args[0]) {
					add(call.Pos(), "writes to the API server (controller-runtime client's "+sel.Sel.Name+")")
				}
			case "Post", "Put":
				if clientGo && len(call.Args) == 0 {
					add(call.Pos(), "writes to the API server (REST verb "+sel.Sel.Name+")")
				}
			}
			return true
		})
	}
	return out, nil
}

func (f *File) imports(match func(Import) bool) bool {
	return slices.ContainsFunc(f.Imports, match)
}

// isContext guesses by spelling: a variable whose name contains ctx, or a call into package context.
func isContext(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.Contains(strings.ToLower(e.Name), "ctx")
	case *ast.CallExpr:
		if sel, ok := e.Fun.(*ast.SelectorExpr); ok {
			id, ok := sel.X.(*ast.Ident)
			return ok && id.Name == "context"
		}
	case *ast.SelectorExpr:
		return strings.Contains(strings.ToLower(e.Sel.Name), "ctx")
	}
	return false
}
