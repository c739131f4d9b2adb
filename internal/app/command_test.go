package app

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestNeedsCommand: a command that only holds others fails, and says on standard error which there are.
func TestNeedsCommand(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "root", SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs, RunE: NeedsCommand}
	root.AddCommand(&cobra.Command{Use: "child", Short: "Do it", RunE: func(*cobra.Command, []string) error { return nil }})
	for _, c := range []struct {
		args            []string
		fails, out, err string
	}{
		{nil, `"root" is told no command`, "", "Do it"},
		{[]string{"other"}, `unknown command "other"`, "", ""},
		{[]string{"--help"}, "", "Do it", ""},
		{[]string{"child"}, "", "", ""},
	} {
		var out, said bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&said)
		root.SetArgs(c.args)
		err := root.Execute()
		if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
			t.Errorf("%q: %v, want %q", c.args, err, c.fails)
		}
		for _, x := range []struct{ got, want string }{{out.String(), c.out}, {said.String(), c.err}} {
			if (x.got == "") != (x.want == "") || !strings.Contains(x.got, x.want) {
				t.Errorf("%q says %q, want %q", c.args, x.got, x.want)
			}
		}
	}
}
