package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// checkOrder is D10. It needs real types, so it loads the engine (and nothing else).
func checkOrder(t *Tree) ([]Violation, error) {
	var out []Violation
	err := t.eachTyped("./"+dirEngine+"/...", func(_ string, files []*ast.File, info *types.Info) {
		for _, file := range files {
			if ast.IsGenerated(file) {
				continue
			}
			excused := orderComments(t.Fset, file)
			findUnordered(info, file, func(pos token.Pos, what string) {
				where := t.Pos(pos)
				if !excused[where.Line] && !excused[where.Line-1] {
					out = append(out, Violation{Where: where, What: what})
				}
			})
		}
	})
	return out, err
}

// eachTyped visits those packages of the engine that the pattern needs, with their types, which it has from the compiler's export data.
func (t *Tree) eachTyped(pattern string, visit func(dir string, files []*ast.File, info *types.Info)) error {
	if !slices.ContainsFunc(t.Packages, func(p *Package) bool { return under(p.Dir, dirEngine) && p.hasProduct() }) {
		return nil
	}
	compiled, err := t.export(pattern)
	if err != nil {
		return err
	}
	for _, p := range t.Packages {
		if !under(p.Dir, dirEngine) || !p.hasProduct() {
			continue
		}
		// go list names the files of this platform; the tree has parsed them already.
		listed, ok := compiled[t.Module+"/"+p.Dir]
		if !ok {
			continue
		}
		var files []*ast.File
		for _, f := range p.Files {
			if slices.Contains(listed.GoFiles, path.Base(f.Path)) {
				files = append(files, f.Syntax)
			}
		}
		info := &types.Info{
			Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
			Selections: map[*ast.SelectorExpr]*types.Selection{},
		}
		config := types.Config{Importer: importer.ForCompiler(t.Fset, "gc", func(path string) (io.ReadCloser, error) {
			if real, ok := listed.ImportMap[path]; ok {
				path = real
			}
			if compiled[path].Export == "" {
				return nil, fmt.Errorf("%s was not compiled", path)
			}
			return os.Open(compiled[path].Export)
		})}
		if _, err := config.Check(listed.ImportPath, t.Fset, files, info); err != nil {
			return fmt.Errorf("%s does not compile: %w", p.Dir, err)
		}
		visit(p.Dir, files, info)
	}
	return nil
}

// compiledPackage is the part of `go list -export -json` that type checking needs.
type compiledPackage struct {
	ImportPath string
	Export     string
	GoFiles    []string
	ImportMap  map[string]string
}

// export compiles what the pattern needs (from the build cache as a rule) and says where each package's export data lies.
func (t *Tree) export(pattern string) (map[string]compiledPackage, error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles,ImportMap", pattern)
	cmd.Dir = t.Root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list -export %s: %w: %s", pattern, err, stderr.String())
	}
	out := map[string]compiledPackage{}
	dec := json.NewDecoder(bytes.NewReader(stdout))
	for {
		var p compiledPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list -export %s: %w", pattern, err)
		}
		out[p.ImportPath] = p
	}
}

// findUnordered reports each range over a map and each use of package maps' iterators that is not sorted at once.
func findUnordered(info *types.Info, file *ast.File, add func(token.Pos, string)) {
	sorted := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.RangeStmt:
			if isMap(info.TypeOf(n.X)) {
				add(n.Pos(), fmt.Sprintf("ranges over the map %s, whose order is random", types.ExprString(n.X)))
			}
		case *ast.CallExpr:
			switch path, name := callee(info, n); {
			case path == "slices" && strings.HasPrefix(name, "Sorted") && len(n.Args) > 0:
				sorted[n.Args[0]] = true
			case path == "maps" && (name == "Keys" || name == "Values" || name == "All") && !sorted[n]:
				add(n.Pos(), fmt.Sprintf("iterates %s, whose order is random", types.ExprString(n)))
			}
		}
		return true
	})
}

// isMap is true for maps, named maps, and type parameters all of whose types are maps.
func isMap(typ types.Type) bool {
	if typ == nil {
		return false
	}
	if param, ok := types.Unalias(typ).(*types.TypeParam); ok {
		if iface, ok := param.Constraint().Underlying().(*types.Interface); ok {
			for i := range iface.NumEmbeddeds() {
				if union, ok := iface.EmbeddedType(i).(*types.Union); ok && union.Len() > 0 {
					_, is := union.Term(0).Type().Underlying().(*types.Map)
					return is
				}
			}
		}
		return false
	}
	_, is := typ.Underlying().(*types.Map)
	return is
}

// callee is the package path and name of a called package-level function, or empty.
func callee(info *types.Info, call *ast.CallExpr) (path, name string) {
	fun := call.Fun
	if index, ok := fun.(*ast.IndexExpr); ok {
		fun = index.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	if fn, ok := info.Uses[sel.Sel].(*types.Func); ok && fn.Pkg() != nil {
		return fn.Pkg().Path(), fn.Name()
	}
	return "", ""
}

// orderComments are the lines that end a comment "order: <why>" with a reason.
func orderComments(fset *token.FileSet, file *ast.File) map[int]bool {
	lines := map[int]bool{}
	for _, group := range file.Comments {
		for _, c := range group.List {
			text := strings.TrimSpace(strings.TrimPrefix(c.Text, "//"))
			if why, ok := strings.CutPrefix(text, "order:"); ok && strings.TrimSpace(why) != "" {
				// The reason may run over several lines; what counts is where its comment ends.
				lines[fset.Position(c.Pos()).Line] = true
				lines[fset.Position(group.End()).Line] = true
			}
		}
	}
	return lines
}
