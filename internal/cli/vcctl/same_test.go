package vcctl

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/muster-scheduler/muster/docs/ledgers"
)

// TestSameCommands: testdata/commands.txt has each command of Volcano's vcctl with its flags, their types and defaults. Ours has the same, and
// what it has otherwise, or besides, the ledger tells.
func TestSameCommands(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/commands.txt")
	if err != nil {
		t.Fatal(err)
	}
	flagForm := regexp.MustCompile(`^(?:-(\w) )?--([a-z-]+) \((\w+)(?:, default (.+))?\)$`)
	// different are flags whose type is another than the list says.
	different := map[string]string{"vcctl --v": "`-v`", "vcctl --vmodule": "`--vmodule`"}
	// ours are flags that the list does not have.
	ours := map[string]string{"output": "`--output`", "command": "`--command`"}
	known := map[string]bool{}
	root := New(Options{})
	lines := 0
	for line := range strings.Lines(string(text)) {
		path, flags, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		lines++
		c, rest, err := root.Find(strings.Fields(path)[1:])
		if err != nil || len(rest) > 0 || c.CommandPath() != path {
			t.Errorf("there is no %s: %v", path, err)
			continue
		}
		c.InitDefaultHelpFlag()
		for f := range strings.SplitSeq(flags, "; ") {
			m := flagForm.FindStringSubmatch(strings.TrimSpace(f))
			if m == nil {
				t.Fatalf("%s: the list has %q", path, f)
			}
			known[path+" --"+m[2]] = true
			got := c.LocalFlags().Lookup(m[2])
			if got == nil {
				t.Errorf("%s has no --%s", path, m[2])
				continue
			}
			if word := different[path+" --"+m[2]]; word != "" {
				told(t, word)
				if got.Value.Type() == m[3] {
					t.Errorf("%s --%s is as the list says", path, m[2])
				}
				continue
			}
			kind, value := got.Value.Type(), strings.Trim(m[4], `"`)
			if kind == "int32" && m[3] == "int" { // the same on the command line, but for its bounds
				kind = "int"
			}
			if value == "" {
				value = map[string]string{"bool": "false", "int32": "0"}[m[3]]
			}
			if got.Shorthand != m[1] || kind != m[3] || got.DefValue != value {
				t.Errorf("%s --%s is -%s %s %q; the list has %s", path, m[2], got.Shorthand, kind, got.DefValue, f)
			}
		}
	}
	if lines != 29 {
		t.Errorf("the list has %d commands", lines)
	}
	for _, c := range leaves(root) {
		c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if known[c.CommandPath()+" --"+f.Name] {
				return
			}
			if ours[f.Name] == "" {
				t.Errorf("%s has --%s, and the list has not", c.CommandPath(), f.Name)
				return
			}
			told(t, ours[f.Name])
		})
	}
}

// told sees to it that a row of the ledger has a word.
func told(t *testing.T, word string) {
	t.Helper()
	all, err := ledgers.Volcano()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(all["vcctl"], func(r ledgers.VolcanoRow) bool { return strings.Contains(r.What, word) }) {
		t.Errorf("docs/ledgers/volcano.yaml says nothing of %s under vcctl", word)
	}
}
