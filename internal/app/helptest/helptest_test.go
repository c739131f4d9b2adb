package helptest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// heard keeps what a check complains of.
type heard struct {
	testing.TB
	said []string
}

// Helper does nothing.
func (h *heard) Helper() {}

// Errorf keeps the complaint.
func (h *heard) Errorf(format string, args ...any) {
	h.said = append(h.said, fmt.Sprintf(format, args...))
}

// TestCheck: each kind of help line that misleads is complained of, and no other.
func TestCheck(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "x", Short: "X"}
	below := &cobra.Command{Use: "y"}
	root.AddCommand(below)
	fs := root.Flags()
	fs.String("good", "", "the `folder` of it")
	fs.String("form", "", "such as `IMAGE=PATH ARG…`")
	fs.Bool("plain", false, "do it")
	fs.Bool("detach", false, "end it with `down`")
	fs.Int("cycle", 0, "of those that `x list --all` names")
	fs.Bool("mute", false, "")
	h := &heard{TB: t}
	Check(h, root)
	want := []string{`x --cycle: the help calls its value "x list --all"`, `x --detach: it takes no value`, `x --mute: its help says nothing`, `x y: its help says nothing`}
	for i, w := range want {
		if len(h.said) != len(want) || !strings.HasPrefix(h.said[i], w) {
			t.Fatalf("said %q, want %q", h.said, want)
		}
	}
}
