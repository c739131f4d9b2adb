package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// pure are the directories that D1 binds.
func pure() []string { return []string{dirCluster, dirFairshare, dirEngine, dirSee} }

// clients are the modules that nothing pure may reach, however far away.
func clients() []string {
	return []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "k8s.io/kubernetes"}
}

// checkPurity is D1: what the pure packages reach, import and call.
func checkPurity(t *Tree) ([]Violation, error) {
	out, err := t.reach("D1", pure(), func(path string) bool { return underAny(path, clients()) })
	if err != nil {
		return nil, err
	}
	impure := []string{"net/http", "net", "os", "math/rand", "crypto/rand", "log", "k8s.io/klog", "github.com/go-logr/logr"}
	t.eachImport(func(dir string) bool { return underAny(dir, pure()) }, func(f *File, imp Import) {
		if !underAny(imp.Path, impure) || imp.Path == "net/netip" || imp.Path == "net/url" {
			return
		}
		// The scenario runner is a test tool: it reads and rewrites scenario files.
		if under(f.Dir, dirEngineTest) && under(imp.Path, "os") {
			return
		}
		out = append(out, Violation{Where: t.Pos(imp.Pos), What: fmt.Sprintf("%s imports %s", f.Dir, imp.Path)})
	})
	for _, f := range t.Files {
		if f.Test || !underAny(f.Dir, pure()) {
			continue
		}
		for _, name := range []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"} {
			f.mentions("time", name, func(pos token.Pos) {
				out = append(out, Violation{Where: t.Pos(pos), What: "uses time." + name + ": the core has no clock"})
			})
		}
	}
	return out, nil
}

// mentions calls visit wherever the file uses the name of an imported package, whatever alias it gave the import.
func (f *File) mentions(path, name string, visit func(token.Pos)) {
	for _, imp := range f.Imports {
		if imp.Path != path {
			continue
		}
		ast.Inspect(f.Syntax, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == name {
				if id, ok := sel.X.(*ast.Ident); ok && id.Name == imp.Name {
					visit(sel.Pos())
				}
			}
			return true
		})
	}
}

// listed is the part of `go list -json` that reach reads.
type listed struct {
	ImportPath string
	Imports    []string
}

// reach finds the packages below dirs from which an import chain leads to a target, and tells the shortest chain to the nearest one.
func (t *Tree) reach(rule string, dirs []string, target func(path string) bool) ([]Violation, error) {
	var patterns []string
	for _, d := range dirs {
		if slices.ContainsFunc(t.Packages, func(p *Package) bool { return under(p.Dir, d) && p.hasProduct() }) {
			patterns = append(patterns, "./"+d+"/...")
		}
	}
	if len(patterns) == 0 {
		return nil, nil
	}
	cmd := exec.Command("go", append([]string{"list", "-e", "-deps", "-json=ImportPath,Imports"}, patterns...)...)
	cmd.Dir = t.Root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list for %s: %w: %s", rule, err, stderr.String())
	}
	imports := map[string][]string{}
	dec := json.NewDecoder(bytes.NewReader(stdout))
	for {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list for %s: %w", rule, err)
		}
		imports[p.ImportPath] = p.Imports
	}
	var out []Violation
	for _, p := range t.Packages {
		if !underAny(p.Dir, dirs) || !p.hasProduct() {
			continue
		}
		if chain := shortestChain(imports, t.Module+"/"+p.Dir, target); chain != nil {
			out = append(out, Violation{
				Where: t.importPos(p, chain[1]),
				What:  fmt.Sprintf("%s reaches %s: %s", p.Dir, chain[len(chain)-1], strings.Join(chain, " → ")),
			})
		}
	}
	return out, nil
}

// shortestChain is a breadth-first search from a package to any target; nil when there is no way.
func shortestChain(imports map[string][]string, from string, target func(path string) bool) []string {
	parent := map[string]string{from: ""}
	queue := []string{from}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if target(p) {
			var chain []string
			for ; p != ""; p = parent[p] {
				chain = append(chain, p)
			}
			slices.Reverse(chain)
			return chain
		}
		for _, next := range imports[p] {
			if _, seen := parent[next]; !seen {
				parent[next] = p
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// hasProduct reports whether the package has a file that is not a test.
func (p *Package) hasProduct() bool {
	return slices.ContainsFunc(p.Files, func(f *File) bool { return !f.Test })
}

// importPos is where a package imports a path, or its first file when go list sees an import that the parser does not.
func (t *Tree) importPos(p *Package, path string) token.Position {
	for _, f := range p.Files {
		for _, imp := range f.Imports {
			if imp.Path == path && !f.Test {
				return t.Pos(imp.Pos)
			}
		}
	}
	return t.Pos(p.Files[0].Syntax.Package)
}
