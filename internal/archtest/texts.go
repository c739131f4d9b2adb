package archtest

import (
	"bytes"
	"fmt"
	"go/build/constraint"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// maxLines bounds a hand-written file.
const maxLines = 900

// checkNames is D8.
func checkNames(t *Tree) ([]Violation, error) {
	forbidden := []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "base", "manager"}
	var out []Violation
	for _, p := range t.Packages {
		pos := t.Pos(p.Files[0].Syntax.Name.Pos())
		for _, name := range slices.Compact([]string{p.Name, path.Base(p.Dir)}) {
			if slices.Contains(forbidden, name) {
				out = append(out, Violation{Where: pos, What: fmt.Sprintf("package %s says nothing by the name %q", p.Dir, name)})
			}
			if strings.Contains(name, "_") {
				out = append(out, Violation{Where: pos, What: fmt.Sprintf("the name %q has an underscore", name)})
			}
		}
	}
	return out, nil
}

// checkPackageComments wants one comment above some package clause of each directory.
func checkPackageComments(t *Tree) ([]Violation, error) {
	var out []Violation
	for _, p := range t.Packages {
		documented := func(f *File) bool {
			return f.Syntax.Doc != nil && strings.TrimSpace(f.Syntax.Doc.Text()) != "" && (!f.Test || !p.hasProduct())
		}
		if !slices.ContainsFunc(p.Files, documented) {
			out = append(out, Violation{Where: t.Pos(p.Files[0].Syntax.Package), What: fmt.Sprintf("package %s has no package comment", p.Dir)})
		}
	}
	return out, nil
}

// checkSleep finds time.Sleep in tests. In a bubble of testing/synctest time is fake, and sleeping is how it passes.
func checkSleep(t *Tree) ([]Violation, error) {
	var out []Violation
	for _, f := range t.Files {
		fake := f.imports(func(imp Import) bool { return imp.Path == "testing/synctest" })
		if f.Test && !fake {
			f.mentions("time", "Sleep", func(pos token.Pos) { out = append(out, Violation{Where: t.Pos(pos), What: "uses time.Sleep"}) })
		}
	}
	return out, nil
}

// checkLabTag ties the file name of lab tests to their build tag, both ways, and the use of the lab to both. The lab's own
// packages may test their parts without starting one.
func checkLabTag(t *Tree) ([]Violation, error) {
	var out []Violation
	for _, f := range t.Files {
		if !f.Test {
			continue
		}
		named := path.Base(f.Path) == "lab_test.go" || strings.HasSuffix(f.Path, "_lab_test.go")
		tagged := false
		for _, group := range f.Syntax.Comments {
			for _, c := range group.List {
				if c.Pos() < f.Syntax.Package && constraint.IsGoBuild(c.Text) {
					expr, err := constraint.Parse(c.Text)
					// With no tag set the file is left out, with lab alone it is in.
					tagged = err == nil && !expr.Eval(func(string) bool { return false }) && expr.Eval(func(tag string) bool { return tag == "lab" })
				}
			}
		}
		switch pos := t.Pos(f.Syntax.Package); {
		case named && !tagged:
			out = append(out, Violation{Where: pos, What: "is named as a lab test but lacks //go:build lab"})
		case tagged && !named:
			out = append(out, Violation{Where: pos, What: "has the build tag lab but is not named *_lab_test.go"})
		case !named && !tagged && !under(f.Dir, dirLab) && f.imports(func(imp Import) bool { return imp.Local == dirLab }):
			out = append(out, Violation{Where: pos, What: "imports the lab without being a lab test"})
		}
	}
	return out, nil
}

// checkSize finds files that have grown too long to read.
func checkSize(t *Tree) ([]Violation, error) {
	var out []Violation
	for _, f := range t.Files {
		if !f.Generated && f.Lines > maxLines {
			out = append(out, Violation{Where: token.Position{Filename: f.Path, Line: maxLines + 1}, What: fmt.Sprintf("has %d lines", f.Lines)})
		}
	}
	return out, nil
}

// places matches paths of one machine and hosts of package proxies. It is put together from pieces so that this file passes.
func places() *regexp.Regexp {
	const start = `(?:^|[\s"'=:(<\x60])`
	dirs := start + `/(?:` + strings.Join([]string{"work", "root", `home/\w+`, `Users/\w+`}, "|") + `)/`
	hosts := `\b(?:` + strings.Join([]string{"proxy", "sum"}, "|") + `)\.golang\.` + `org\b|registry\.npmjs\.` + `org\b|\bpypi\.` + `org\b|\bartifactory\b`
	return regexp.MustCompile(dirs + "|" + hosts)
}

// checkPlaces reads every tracked text file up to a megabyte. This package's own test inputs break rules on purpose.
func checkPlaces(t *Tree) ([]Violation, error) {
	files, err := t.tracked()
	if err != nil {
		return nil, err
	}
	re := places()
	var out []Violation
	for _, name := range files {
		if under(name, "internal/archtest/testdata") {
			continue
		}
		full := filepath.Join(t.Root, filepath.FromSlash(name))
		st, err := os.Lstat(full)
		// A tracked file may be deleted in the working tree; links and huge files are not prose or code.
		if err != nil || !st.Mode().IsRegular() || st.Size() > 1<<20 {
			continue
		}
		data, err := os.ReadFile(full)
		if err != nil {
			return nil, err
		}
		if bytes.IndexByte(data, 0) >= 0 {
			continue
		}
		for i, line := range bytes.Split(data, []byte("\n")) {
			if m := re.Find(line); m != nil {
				out = append(out, Violation{Where: token.Position{Filename: name, Line: i + 1}, What: fmt.Sprintf("names %q", strings.TrimSpace(string(m)))})
			}
		}
	}
	return out, nil
}
