package archtest

import (
	"errors"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// checkState is D9. Go has no constant slices or maps, so a package variable is not wrong by being one: it is wrong when
// something assigns to it, takes its address, or when its type exists only to be changed.
func checkState(t *Tree) ([]Violation, error) {
	var out []Violation
	for _, p := range t.Packages {
		if under(p.Dir, "cmd") {
			continue
		}
		var files []*File
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			for _, decl := range f.Syntax.Decls {
				if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
					out = append(out, Violation{Where: t.Pos(fn.Pos()), What: "declares init(), which runs for everyone who imports the package"})
				}
			}
			if !f.Test {
				files = append(files, f)
			}
		}
		// Scheme builders are variables by Kubernetes' convention.
		if under(p.Dir, dirAPI) || len(files) == 0 {
			continue
		}
		out = append(out, mutableVars(t, p.Dir, files)...)
	}
	return out, nil
}

// mutableVars resolves identifiers with go/types, without loading any import: that is enough to know which names are package
// variables, at no cost.
func mutableVars(t *Tree, dir string, files []*File) []Violation {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{
		Importer:                 noImports{},
		Error:                    func(error) {},
		DisableUnusedImportCheck: true,
		FakeImportC:              true,
	}
	var syntax []*ast.File
	for _, f := range files {
		syntax = append(syntax, f.Syntax)
	}
	pkg, _ := config.Check(t.Module+"/"+dir, t.Fset, syntax, info)
	var out []Violation
	add := func(pos token.Pos, what string) { out = append(out, Violation{Where: t.Pos(pos), What: what}) }
	for _, f := range files {
		for _, decl := range f.Syntax.Decls {
			if gen, ok := decl.(*ast.GenDecl); ok && gen.Tok == token.VAR {
				for _, spec := range gen.Specs {
					if vs, ok := spec.(*ast.ValueSpec); ok {
						declaredMutable(gen, vs, add)
					}
				}
			}
		}
		// target names the package variable that an assignable expression changes, ours or another package's.
		target := func(e ast.Expr) string {
			for {
				switch x := e.(type) {
				case *ast.ParenExpr:
					e = x.X
				case *ast.IndexExpr:
					e = x.X
				case *ast.SliceExpr:
					e = x.X
				case *ast.StarExpr:
					e = x.X
				case *ast.SelectorExpr:
					if id, ok := x.X.(*ast.Ident); ok {
						if _, ok := info.Uses[id].(*types.PkgName); ok {
							return id.Name + "." + x.Sel.Name
						}
					}
					e = x.X
				case *ast.Ident:
					if v, ok := info.Uses[x].(*types.Var); ok && pkg != nil && v.Parent() == pkg.Scope() {
						return x.Name
					}
					return ""
				default:
					return ""
				}
			}
		}
		changes := func(pos token.Pos, e ast.Expr, how string) {
			if name := target(e); name != "" {
				add(pos, how+" package variable "+name)
			}
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, lhs := range n.Lhs {
					changes(n.Pos(), lhs, "assigns to")
				}
			case *ast.IncDecStmt:
				changes(n.Pos(), n.X, "changes")
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					changes(n.Pos(), n.Key, "assigns to")
					changes(n.Pos(), n.Value, "assigns to")
				}
			case *ast.UnaryExpr:
				if _, literal := n.X.(*ast.CompositeLit); n.Op == token.AND && !literal {
					if name := target(n.X); name != "" && !strings.Contains(name, ".") {
						add(n.Pos(), "takes the address of package variable "+name)
					}
				}
			case *ast.CallExpr:
				if id, ok := n.Fun.(*ast.Ident); ok && len(n.Args) > 0 && (id.Name == "delete" || id.Name == "clear" || id.Name == "copy") {
					changes(n.Pos(), n.Args[0], "changes")
				}
			}
			return true
		})
	}
	return out
}

// declaredMutable finds variables whose declaration alone shows that they are meant to change.
func declaredMutable(gen *ast.GenDecl, vs *ast.ValueSpec, add func(token.Pos, string)) {
	embedded := hasEmbed(gen.Doc) || hasEmbed(vs.Doc)
	for i, name := range vs.Names {
		if name.Name == "_" {
			continue
		}
		switch {
		case len(vs.Values) == 0 && !embedded:
			add(name.Pos(), "declares package variable "+name.Name+" without a value, so something must change it")
		case i < len(vs.Values):
			if call, ok := vs.Values[i].(*ast.CallExpr); ok && mutableMaker(call) {
				add(name.Pos(), "declares package variable "+name.Name+", whose value exists to be changed")
			}
		}
	}
}

func hasEmbed(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// mutableMaker knows the constructors of things that exist to be filled or counted later.
func mutableMaker(call *ast.CallExpr) bool {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return fun.Name == "make" || fun.Name == "new"
	case *ast.SelectorExpr:
		id, ok := fun.X.(*ast.Ident)
		if !ok {
			return false
		}
		switch id.Name {
		case "promauto", "flag", "pflag", "expvar":
			return true
		case "prometheus":
			return strings.HasPrefix(fun.Sel.Name, "New") && fun.Sel.Name != "NewDesc"
		case "runtime":
			return fun.Sel.Name == "NewScheme"
		}
	}
	return false
}

// noImports refuses every import; go/types then works with an empty package of that name.
type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not loaded") }
