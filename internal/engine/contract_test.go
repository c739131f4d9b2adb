package engine

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestContract: contract.go names every exported method of the session and its parts, and no others; and the session stays small.
func TestContract(t *testing.T) {
	t.Parallel()
	const mostLines, mostMethods, mostFields = 150, 25, 8
	text, err := os.ReadFile("contract.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), "\n"); n > mostLines {
		t.Errorf("contract.go has %d lines, want at most %d", n, mostLines)
	}
	want := map[string][]string{}
	part := ""
	row := regexp.MustCompile(`^//\t(\w+) {3,}`)
	names := regexp.MustCompile(`\b[A-Z]\w+`)
	_, table, _ := strings.Cut(string(text), "# The parts")
	for line := range strings.Lines(table) {
		if m := row.FindStringSubmatch(line); m != nil {
			part = m[1]
			want[part] = []string{}
		} else if strings.HasPrefix(line, "//\t  ") {
			want[part] = append(want[part], names.FindAllString(line, -1)...)
		}
	}
	have, all := map[string][]string{}, map[string]int{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [...]string{"ledger", "rules", "recorder", "placer"} {
		more, err := filepath.Glob(part + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	fields := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					continue
				}
				of := receiver(d)
				if all[of]++; d.Name.IsExported() {
					have[of] = append(have[of], d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if s, ok := s.(*ast.TypeSpec); ok && s.Name.Name == "Session" {
						for _, field := range s.Type.(*ast.StructType).Fields.List {
							fields += len(field.Names)
						}
					}
				}
			}
		}
	}
	if all["Session"] > mostMethods || fields > mostFields || fields == 0 {
		t.Errorf("Session has %d methods and %d fields, want at most %d and %d", all["Session"], fields, mostMethods, mostFields)
	}
	if len(want) != 6 {
		t.Errorf("contract.go names %d parts, want 6", len(want))
	}
	for part, list := range want { // order: each on its own
		slices.Sort(list)
		slices.Sort(have[part])
		if !slices.Equal(list, have[part]) {
			t.Errorf("%s: contract.go says\n%v, the code\n%v", part, list, have[part])
		}
	}
}

// receiver names the type that a method is of.
func receiver(d *ast.FuncDecl) string {
	of := d.Recv.List[0].Type
	if p, ok := of.(*ast.StarExpr); ok {
		of = p.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}
