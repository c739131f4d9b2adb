package helptest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Pages reports the command lines of a program, in README.md and the pages of docs below a folder, that its tree of commands does not know:
// a command that is not there, and a flag that the command lacks. A command line begins with the program's name, or bin/ and the name,
// and stands in a code block or in backticks; what follows " -- ", "|", "#", "<", ">" or "&" is not the program's.
func Pages(t testing.TB, root *cobra.Command, folder string) {
	t.Helper()
	pages := []string{filepath.Join(folder, "README.md")}
	err := filepath.WalkDir(filepath.Join(folder, "docs"), func(at string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Ext(at) == ".md" {
			pages = append(pages, at)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, page := range pages {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		fenced := false
		for i, line := range strings.Split(string(data), "\n") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				fenced = !fenced
				continue
			}
			if strings.Contains(line, "planned") {
				continue
			}
			for j, part := range strings.Split(line, "`") {
				if fenced != (j%2 == 1) {
					if wrong := unknown(root, part); wrong != "" {
						t.Errorf("%s:%d: %s: correct the page by `%s --help`", page, i+1, wrong, root.Name())
					}
				}
			}
		}
	}
}

// end is where a command line stops to be the program's.
var end = regexp.MustCompile(` -- |[|#<>&]| 2>`)

// variables may stand before a command line.
var variables = regexp.MustCompile(`^(?:[A-Z_]+=\S* )*`)

// unknown says what a command line has that the tree of commands does not; "" where nothing, or where it is not of the tree's program.
func unknown(root *cobra.Command, line string) string {
	line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
	line = strings.TrimPrefix(line[len(variables.FindString(line)):], "bin/")
	if at := end.FindStringIndex(line); at != nil {
		line = line[:at[0]]
	}
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != root.Name() {
		return ""
	}
	at := root
	for i, word := range words[1:] {
		if at.DisableFlagParsing { // the rest is another program's
			return ""
		}
		if strings.HasPrefix(word, "-") && strings.Trim(word, "-") != "" {
			name, _, _ := strings.Cut(strings.TrimRight(word, ".,;"), "=")
			if !has(at, name) {
				return at.CommandPath() + " has no flag " + name
			}
			continue
		}
		var next *cobra.Command
		for _, c := range at.Commands() {
			if c.Name() == word || c.HasAlias(word) {
				next = c
			}
		}
		switch {
		case next != nil:
			at = next
		case !at.HasSubCommands() || strings.Contains(at.Use, " "): // an argument
		case i > 0 && strings.HasPrefix(words[i], "--") && !strings.Contains(words[i], "="): // a flag's value
		case regexp.MustCompile(`^[a-z][a-z-]*$`).MatchString(word):
			return at.CommandPath() + " has no command " + word
		}
	}
	return ""
}

// has reports whether a command takes a flag, as --name or -n.
func has(c *cobra.Command, name string) bool {
	bare, long := strings.CutPrefix(name, "--")
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	for _, fs := range []*pflag.FlagSet{c.Flags(), c.PersistentFlags(), c.InheritedFlags()} {
		if long && fs.Lookup(bare) != nil || !long && len(name) == 2 && fs.ShorthandLookup(name[1:]) != nil {
			return true
		}
	}
	return false
}
