package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// glossary is the page of the words; the cells of its last column name the types that stand for a word.
const glossary = "docs/glossary.md"

// spoken are the folders whose exported types are words that people use of the scheduler.
func spoken(dir string) bool {
	return (under(dir, dirCluster) || under(dir, dirFairshare) || under(dir, dirEngine)) && !under(dir, dirEngine+"/enginetest")
}

// checkWords compares the glossary with the types that it explains, and finds names of a package that only case tells apart.
func checkWords(t *Tree) ([]Violation, error) {
	page, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(glossary)))
	if err != nil {
		return nil, fmt.Errorf("there is no glossary: %w", err)
	}
	explained := map[string]int{}
	code := regexp.MustCompile("`([A-Z][A-Za-z]*)`")
	for i, line := range strings.Split(string(page), "\n") {
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 3 {
			continue
		}
		for _, m := range code.FindAllStringSubmatch(cells[2], -1) {
			explained[m[1]] = i + 1
		}
	}
	var out []Violation
	found := map[string]bool{}
	for _, p := range t.Packages {
		names := map[string]*ast.Ident{}
		for _, f := range p.Files {
			if f.Generated || f.Test {
				continue
			}
			eachPackageName(f, func(id *ast.Ident, isType bool) {
				if isType && id.IsExported() && spoken(f.Dir) {
					found[id.Name] = true
					if explained[id.Name] == 0 {
						out = append(out, Violation{Where: t.Pos(id.Pos()), What: fmt.Sprintf("type %s is not in the glossary", id.Name)})
					}
				}
				folded := strings.ToLower(id.Name)
				if other, ok := names[folded]; ok && other.Name != id.Name { // the same name may stand in files of other build tags
					out = append(out, Violation{Where: t.Pos(id.Pos()), What: fmt.Sprintf("%s differs by case only from the name at %s:%d", id.Name, t.Pos(other.Pos()).Filename, t.Pos(other.Pos()).Line)})
				}
				names[folded] = id
			})
		}
	}
	for name, line := range explained {
		if !found[name] {
			out = append(out, Violation{Where: token.Position{Filename: glossary, Line: line}, What: fmt.Sprintf("there is no type %s", name)})
		}
	}
	return out, nil
}

// eachPackageName visits what a file declares for its package, methods, init and the blank name left out.
func eachPackageName(f *File, visit func(id *ast.Ident, isType bool)) {
	each := func(id *ast.Ident, isType bool) {
		if id.Name != "_" && id.Name != "init" {
			visit(id, isType)
		}
	}
	for _, d := range f.Syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				each(d.Name, false)
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					each(s.Name, true)
				case *ast.ValueSpec:
					for _, id := range s.Names {
						each(id, false)
					}
				}
			}
		}
	}
}
