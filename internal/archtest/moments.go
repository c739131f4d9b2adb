package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
)

// moment matches the names of moments, alone or at the end of a longer name. "now" alone may be an amount beside one that is free later.
var moment = regexp.MustCompile(`^(until|since|created|deadline)$|(At|Until|Since|Created|Now|Deadline|NotBefore)$`)

// checkMoments finds fields, parameters and results of the model and the engine that have the name of a moment and the type of a number.
func checkMoments(t *Tree) (out []Violation, err error) {
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if f.Test || f.Generated || !under(f.Dir, dirCluster) && !under(f.Dir, dirEngine) {
				continue
			}
			ast.Inspect(f.Syntax, func(n ast.Node) bool {
				field, ok := n.(*ast.Field)
				if !ok {
					return true
				}
				kind, ok := field.Type.(*ast.Ident)
				for _, name := range field.Names {
					if ok && (kind.Name == "int64" || kind.Name == "uint64" || kind.Name == "float64") && moment.MatchString(name.Name) {
						out = append(out, Violation{Where: t.Pos(name.Pos()), What: fmt.Sprintf("%s is a bare %s", name.Name, kind.Name)})
					}
				}
				return true
			})
		}
	}
	return out, nil
}
