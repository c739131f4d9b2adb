package archtest

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
)

// checkParts keeps the walls between the parts of a session that are types of one package: each knows those before it, and what is
// unexported of a part is its own. What embeds a part belongs to it, as does what makes one.
func checkParts(t *Tree) ([]Violation, error) {
	parts := []string{"Rules", "Recorder", "Placer", "Session"} // the last holds the others, and its own members are the package's
	session := len(parts) - 1
	var out []Violation
	err := t.eachTyped("./"+dirEngine, func(dir string, files []*ast.File, info *types.Info) {
		if dir != dirEngine {
			return
		}
		for _, file := range files {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok {
					continue
				}
				own := partOf(parts, owner(info.Defs[f.Name].Type().(*types.Signature)))
				ast.Inspect(f, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					if !ok || info.Selections[sel] == nil {
						return true
					}
					member := info.Selections[sel].Obj()
					of := partOf(parts, info.Selections[sel].Recv())
					if f, ok := member.(*types.Func); ok { // an embedded one's, perhaps
						of = partOf(parts, f.Signature().Recv().Type())
					}
					switch {
					case of < 0 || of == own:
					case own >= 0 && of > own:
						out = append(out, Violation{Where: t.Pos(sel.Sel.Pos()), What: fmt.Sprintf("%s uses %s of %s, which it must not know", parts[own], member.Name(), parts[of])})
					case of != session && !member.Exported():
						out = append(out, Violation{Where: t.Pos(sel.Sel.Pos()), What: fmt.Sprintf("%s is %s's own", member.Name(), parts[of])})
					}
					return true
				})
			}
		}
	})
	return out, err
}

// owner is the type that a function belongs to: that of its receiver, or what it makes; nil for none.
func owner(f *types.Signature) types.Type {
	switch {
	case f.Recv() != nil:
		return f.Recv().Type()
	case f.Results().Len() == 1:
		return f.Results().At(0).Type()
	}
	return nil
}

// partOf is the index of the part that a type is, or embeds; -1 for none.
func partOf(parts []string, typ types.Type) int {
	if p, ok := typ.(*types.Pointer); ok {
		typ = p.Elem()
	}
	named, ok := typ.(*types.Named)
	if !ok {
		return -1
	}
	if i := slices.Index(parts, named.Obj().Name()); i >= 0 {
		return i
	}
	s, ok := named.Underlying().(*types.Struct)
	for i := 0; ok && i < s.NumFields(); i++ {
		if f := s.Field(i); f.Embedded() {
			if at := partOf(parts, f.Type()); at >= 0 {
				return at
			}
		}
	}
	return -1
}
