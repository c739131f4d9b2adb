package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/spf13/cobra"
)

// TestWatch: a list that is watched is printed when it is another one, and not when it is the same; an error later is told and forgotten, one at first ends it.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var out, notes bytes.Buffer
		c := &cobra.Command{}
		c.SetOut(&out)
		c.SetErr(&notes)
		says, n := []string{"a\n", "a\n", "", "b\n", "b\n", "a\n"}, 0
		err := again(ctx, c, func() error {
			if n == len(says) {
				cancel()
				return ctx.Err()
			}
			said := says[n]
			if n++; said == "" {
				return errors.New("nobody there")
			}
			_, err := fmt.Fprint(c.OutOrStdout(), said)
			return err
		})
		if out.String() != "a\nb\na\n" || notes.String() != "nobody there\n" || err != nil {
			t.Errorf("%q, %q, %v", out.String(), notes.String(), err)
		}
		if err := again(t.Context(), c, func() error { return errors.New("no right") }); err == nil {
			t.Error("the first error is lost")
		}
	})
}
