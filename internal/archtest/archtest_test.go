package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// TestArchitecture runs every rule over this repository.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	root, err := FindRoot(".")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	exceptions := Exceptions()
	used := make([]map[int]bool, len(Rules()))
	t.Run("rules", func(t *testing.T) {
		for i, rule := range Rules() {
			t.Run(rule.ID, func(t *testing.T) {
				t.Parallel()
				violations, u, err := Run(rule, tree, exceptions)
				if err != nil {
					t.Fatal(err)
				}
				used[i] = u
				for _, v := range violations {
					t.Error(rule.Text(v))
				}
			})
		}
	})
	for i, e := range exceptions {
		needed := false
		for _, u := range used {
			needed = needed || u[i]
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(e.File))); err == nil && !needed {
			t.Errorf("exception %s %s (%q) excuses nothing: delete its row in exceptions.go", e.Rule, e.File, e.What)
		}
		if strings.TrimSpace(e.Why) == "" {
			t.Errorf("exception %s %s gives no reason", e.Rule, e.File)
		}
	}
}

// TestRulesCanFail runs each rule over the small trees of testdata, named RULE.txtar. The file "want" of an archive lists what the
// rule must find, as "file:line: text"; "..." stands for the rest of a line. Everything else in the archive is the tree.
func TestRulesCanFail(t *testing.T) {
	t.Parallel()
	for _, rule := range Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(filepath.Join("testdata", rule.ID+".txtar"))
			if err != nil {
				t.Fatalf("every rule needs a tree that breaks it: %v", err)
			}
			root, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			write(t, root, "go.mod", "module example.test/house\n\ngo 1.26\n")
			var want []string
			for _, f := range archive.Files {
				if f.Name == "want" {
					want = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
					continue
				}
				write(t, root, f.Name, string(f.Data))
			}
			if len(want) == 0 {
				t.Fatal("the archive wants no violation: it proves nothing")
			}
			tree, err := Load(root)
			if err != nil {
				t.Fatal(err)
			}
			violations, _, err := Run(rule, tree, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i, v := range violations {
				line := fmt.Sprintf("%s:%d: %s", v.Where.Filename, v.Where.Line, v.What)
				if i < len(want) {
					if head, ok := strings.CutSuffix(want[i], "..."); ok && strings.HasPrefix(line, head) {
						line = want[i]
					}
				}
				got = append(got, line)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("rule %s (-want +got):\n%s", rule.ID, d)
			}
		})
	}
}

// TestExceptions proves that an exception excuses its violation and no other.
func TestExceptions(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "go.mod", "module example.test/house\n")
	write(t, root, "internal/a/a_test.go", "package a\n\nimport \"C\"\n")
	write(t, root, "internal/b/b.go", "package b\n\nimport \"C\"\n")
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range Rules() {
		if rule.ID != "D11" {
			continue
		}
		violations, used, err := Run(rule, tree, []Exception{{Rule: "D11", File: "internal/b/b.go", What: `imports "C"`, Why: "test"}, {Rule: "D9", File: "internal/a/a_test.go"}})
		if err != nil {
			t.Fatal(err)
		}
		if len(violations) != 1 || violations[0].Where.Filename != "internal/a/a_test.go" {
			t.Errorf("left %v, want only internal/a/a_test.go", violations)
		}
		if d := cmp.Diff(map[int]bool{0: true}, used); d != "" {
			t.Errorf("exceptions used (-want +got):\n%s", d)
		}
		text := rule.Text(violations[0])
		for _, part := range []string{"internal/a/a_test.go:3: D11:", "rule:", "instead:"} {
			if !strings.Contains(text, part) {
				t.Errorf("message lacks %q:\n%s", part, text)
			}
		}
	}
}

func write(t *testing.T, root, name, content string) {
	t.Helper()
	full := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
