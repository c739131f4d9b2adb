package archtest

import (
	"go/ast"
	"go/types"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestWay bounds the way of a gang through Placer.TryGang: whoever reads it goes from function to function in the order of the calls,
// into each the first time that it is called, and stops where the next one is in another file. What other packages do is behind their
// walls: contract.go says it.
func TestWay(t *testing.T) {
	t.Parallel()
	const most = 40
	root, err := FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	err = tree.eachTyped("./"+dirPlacer, func(dir string, files []*ast.File, info *types.Info) {
		if dir != dirPlacer {
			return
		}
		way := stopsOf(tree, files, info, "TryGang")
		t.Logf("%d stops:\n%s", len(way), strings.Join(way, "\n"))
		if len(way) > most || len(way) < 5 {
			t.Errorf("TryGang's way has %d stops, want at most %d", len(way), most)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stopsOf lists the stops of the way from a package's method on, each with the functions that are read there.
func stopsOf(tree *Tree, files []*ast.File, info *types.Info, method string) []string {
	decls := map[*types.Func]*ast.FuncDecl{}
	var from *types.Func
	for _, file := range files {
		for _, d := range file.Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				f := info.Defs[d.Name].(*types.Func)
				if decls[f] = d; d.Name.Name == method {
					from = f
				}
			}
		}
	}
	var way []string
	var enter func(f *types.Func)
	at := ""
	enter = func(f *types.Func) {
		d := decls[f]
		if d == nil {
			return
		}
		delete(decls, f)
		if file := path.Base(tree.Pos(d.Pos()).Filename); file != at {
			at = file
			way = append(way, file+":")
		}
		way[len(way)-1] += " " + f.Name()
		var calls []*ast.CallExpr
		ast.Inspect(d, func(n ast.Node) bool {
			if c, ok := n.(*ast.CallExpr); ok {
				calls = append(calls, c)
			}
			return true
		})
		slices.SortStableFunc(calls, func(a, b *ast.CallExpr) int { return int(a.Rparen - b.Rparen) }) // arguments before what takes them
		for _, c := range calls {
			var name *ast.Ident
			switch f := c.Fun.(type) {
			case *ast.Ident:
				name = f
			case *ast.SelectorExpr:
				name = f.Sel
			}
			if f, ok := info.Uses[name].(*types.Func); ok {
				enter(f)
			}
		}
	}
	enter(from)
	return way
}
