package spec

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of annotations into its page")

// TestPage: the page of annotations has the table as it is here. -update writes it anew.
func TestPage(t *testing.T) {
	t.Parallel()
	const (
		file  = "../../../docs/operations/vm-annotations.md"
		begin = "<!-- annotations: written by go test ./internal/vm/spec -update -->\n"
		end   = "<!-- end of annotations -->\n"
	)
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s has no place for the table: %q … %q", file, begin, end)
	}
	want := before + begin + "\n" + Table() + "\n" + end + after
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(want, string(page)); d != "" {
		t.Errorf("%s differs (-table +page); if the table is right, run with -update\n%s", file, d)
	}
}

// TestTable: each key once, and each tells what it is.
func TestTable(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, a := range Annotations() {
		if seen[a.Key] || a.Holds == "" || a.Does == "" {
			t.Errorf("row %+v", a)
		}
		seen[a.Key] = true
		if strings.HasPrefix(a.Key, Own) && a.Differs != "" {
			t.Errorf("%s cannot differ from Virtlet's", a.Key)
		}
	}
}
