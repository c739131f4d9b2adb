package archtest

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Tree is one Go module as text and syntax: enough for every rule that needs no types.
type Tree struct {
	// Root is the absolute directory that holds go.mod.
	Root string
	// Module is the module path of go.mod.
	Module string
	// Fset positions every File; names in it are slash paths relative to Root.
	Fset *token.FileSet
	// Files are the module's Go files for every platform and build tag, ordered by path.
	Files []*File
	// Packages are the directories that hold Go files, ordered by Dir.
	Packages []*Package
}

// Package is one directory of Go files. External test packages (name_test) belong to the directory they test.
type Package struct {
	// Dir is the slash path relative to the root; "." for the root itself.
	Dir string
	// Name is the package clause, without a _test suffix.
	Name string
	// Files are ordered by path.
	Files []*File
}

// File is one parsed Go file.
type File struct {
	// Path is relative to the root, with slashes.
	Path string
	// Dir is the directory of Path.
	Dir string
	// Syntax has comments and positions.
	Syntax *ast.File
	// Test is true for *_test.go.
	Test bool
	// Generated is true when the file carries the standard "Code generated … DO NOT EDIT." line.
	Generated bool
	// Lines counts the file's lines.
	Lines int
	// Imports are in source order.
	Imports []Import
}

// Import is one import of one file.
type Import struct {
	// Path is the import path as written.
	Path string
	// Local is the directory of the imported package when it belongs to this module, else empty.
	Local string
	// Name is how the file calls the package: the declared alias, the package's own name when it is in this module, else a guess
	// from the path.
	Name string
	// Pos is the position of the import spec.
	Pos token.Pos
}

// FindRoot walks up from dir to the nearest directory with a go.mod.
func FindRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = parent
	}
}

// Load parses the module rooted at root. A file that does not parse is an error: no rule could be trusted.
func Load(root string) (*Tree, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("read go.mod: %w", err)
	}
	t := &Tree{Root: root, Fset: token.NewFileSet()}
	for line := range strings.Lines(string(mod)) {
		if name, ok := strings.CutPrefix(line, "module "); ok {
			t.Module = strings.TrimSpace(name)
			break
		}
	}
	if t.Module == "" {
		return nil, errors.New("go.mod has no module line")
	}
	err = walk(root, func(rel string) error {
		if !strings.HasSuffix(rel, ".go") {
			return nil
		}
		f, err := t.parse(rel)
		if err != nil {
			return err
		}
		t.Files = append(t.Files, f)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sort.Slice(t.Files, func(i, j int) bool { return t.Files[i].Path < t.Files[j].Path })
	byDir := map[string]*Package{}
	for _, f := range t.Files {
		p := byDir[f.Dir]
		if p == nil {
			p = &Package{Dir: f.Dir}
			byDir[f.Dir] = p
			t.Packages = append(t.Packages, p)
		}
		p.Files = append(p.Files, f)
		if p.Name == "" || !f.Test {
			p.Name = strings.TrimSuffix(f.Syntax.Name.Name, "_test")
		}
	}
	sort.Slice(t.Packages, func(i, j int) bool { return t.Packages[i].Dir < t.Packages[j].Dir })
	for _, f := range t.Files {
		for i, imp := range f.Imports {
			if p := byDir[imp.Local]; p != nil && imp.Name == "" {
				f.Imports[i].Name = p.Name
			}
		}
	}
	return t, nil
}

func (t *Tree) parse(rel string) (*File, error) {
	src, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(rel)))
	if err != nil {
		return nil, err
	}
	syntax, err := parser.ParseFile(t.Fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", rel, err)
	}
	f := &File{
		Path:      rel,
		Dir:       path.Dir(rel),
		Syntax:    syntax,
		Test:      strings.HasSuffix(rel, "_test.go"),
		Generated: ast.IsGenerated(syntax),
		Lines:     bytes.Count(src, []byte("\n")),
	}
	for _, spec := range syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, fmt.Errorf("%s: import %s: %w", rel, spec.Path.Value, err)
		}
		imp := Import{Path: p, Pos: spec.Pos()}
		local, ok := strings.CutPrefix(p, t.Module+"/")
		switch {
		case spec.Name != nil:
			imp.Name = spec.Name.Name
		case !ok:
			imp.Name = importName(p)
		}
		if ok {
			imp.Local = local
		}
		f.Imports = append(f.Imports, imp)
	}
	return f, nil
}

// importName guesses the package name of an unaliased import from outside: its last element, or the one before a major version.
// In k8s.io/api a version is a real package.
func importName(p string) string {
	last := path.Base(p)
	version := len(last) > 1 && last[0] == 'v' && strings.Trim(last[1:], "0123456789") == ""
	if version && !under(p, "k8s.io/api") {
		return path.Base(path.Dir(p))
	}
	return last
}

// Pos turns a position of the tree into one for a Violation.
func (t *Tree) Pos(p token.Pos) token.Position { return t.Fset.Position(p) }

// under reports whether dir is prefix or lies below it.
func under(dir, prefix string) bool {
	return dir == prefix || strings.HasPrefix(dir, prefix+"/")
}

// underAny reports whether dir lies in one of the prefixes.
func underAny(dir string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return under(dir, p) })
}

// skipDir names directories that are never part of the tree: version control, build output, test inputs, third-party code.
func skipDir(name string) bool {
	switch name {
	case ".git", ".lab", "bin", "node_modules", "testdata", "vendor":
		return true
	}
	return false
}

// walk calls visit with every regular file below root, as a slash path relative to root. Nested modules are other houses.
func walk(root string, visit func(rel string) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if p == root {
				return nil
			}
			if skipDir(d.Name()) {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		return visit(filepath.ToSlash(rel))
	})
}

// tracked lists the files that git tracks or would add, or, outside a git checkout (a release archive), every file.
func (t *Tree) tracked() ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = t.Root
	out, err := cmd.Output()
	var files []string
	if err == nil {
		for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
			if name != "" {
				files = append(files, name)
			}
		}
	} else if err := walk(t.Root, func(rel string) error { files = append(files, rel); return nil }); err != nil {
		return nil, err
	}
	sort.Strings(files)
	return files, nil
}
