package archtest

import (
	"fmt"
	"go/ast"
	"regexp"
)

// Names of what has a unit of its own, alone or at the end of a longer name. "now" alone may be an amount beside one that is free later.
// Amounts in vectors are not looked at: a Resources has the unit of its place.
var (
	moment = regexp.MustCompile(`^(until|since|created|deadline)$|(At|Until|Since|Created|Now|Deadline|NotBefore)$`)
	part   = regexp.MustCompile(`^(portion|mib|units)$|(Portion|MiB|Units)$`)
)

// checkUnits finds fields, parameters and results of the model and the engine that have the name of a moment, or of a part of a device, and
// the type of a number.
func checkUnits(t *Tree) (out []Violation, err error) {
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
					if ok && (kind.Name == "int64" || kind.Name == "uint64" || kind.Name == "float64") && (moment.MatchString(name.Name) || part.MatchString(name.Name)) {
						out = append(out, Violation{Where: t.Pos(name.Pos()), What: fmt.Sprintf("%s is a bare %s", name.Name, kind.Name)})
					}
				}
				return true
			})
		}
	}
	return out, nil
}
