package helptest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// TestPagesFinds: what a page shows and the program does not take is complained of, and no other.
func TestPagesFinds(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "x"}
	run := &cobra.Command{Use: "run ROLE", Run: func(*cobra.Command, []string) {}}
	run.Flags().StringP("output", "o", "", "")
	run.Flags().Bool("dry", false, "")
	group := &cobra.Command{Use: "group"}
	group.AddCommand(run)
	other := &cobra.Command{Use: "other", DisableFlagParsing: true}
	root.AddCommand(group, other)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	page := "`x group run it --dry -o json`, `x other --any`, `bin/x group walk` and `x group run --wet=1`, x group fly, `x fly`\n" +
		"`x group run a -- --b`, `y z`, `A=b x group run -q`\n```console\n$ x group run it --dry 2> log | x --b\n$ x group --dry\nx help-less\n```\n"
	for name, text := range map[string]string{"README.md": "`x nothing`\n", "docs/a.md": page} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := &heard{TB: t}
	Pages(h, root, dir)
	var got []string
	for _, said := range h.said {
		got = append(got, regexp.MustCompile(`^.*/(README|a)\.md:(\d+): (.*): correct.*$`).ReplaceAllString(said, "$1:$2 $3"))
	}
	want := []string{
		"README:1 x has no command nothing", "a:1 x group has no command walk", "a:1 x group run has no flag --wet", "a:1 x has no command fly", "a:2 x group run has no flag -q", "a:5 x group has no flag --dry", "a:6 x has no command help-less",
	}
	if !slices.Equal(got, want) {
		t.Errorf("said %q, want %q", got, want)
	}
}
