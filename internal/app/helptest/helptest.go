// Package helptest checks what a command line says of itself.
package helptest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// placeholder is what may stand for a flag's value: one word, or a form of its own in capitals.
var placeholder = regexp.MustCompile(`^([a-zA-Z0-9]+|[A-Z][A-Z=]* ?[A-Z…]*)$`)

// Check reports what is wrong with the help of a command and all below it: a command or flag without words, and a flag whose value is
// called by something that is no name of a value. The library takes a word in back quotes for that name.
func Check(t testing.TB, root *cobra.Command) {
	t.Helper()
	if root.Short == "" && root.Deprecated == "" {
		t.Errorf("%s: its help says nothing", root.CommandPath())
	}
	root.LocalFlags().VisitAll(func(f *pflag.Flag) {
		value, usage := pflag.UnquoteUsage(f)
		at := root.CommandPath() + " --" + f.Name
		switch {
		case strings.TrimSpace(usage) == "":
			t.Errorf("%s: its help says nothing", at)
		case f.Value.Type() == "bool" && value != "":
			t.Errorf("%s: it takes no value, and the help calls one %q", at, value)
		case value != "" && !placeholder.MatchString(value):
			t.Errorf("%s: the help calls its value %q", at, value)
		case strings.Contains(usage, "`"):
			t.Errorf("%s: back quotes are left in %q", at, usage)
		}
	})
	for _, c := range root.Commands() {
		Check(t, c)
	}
}
