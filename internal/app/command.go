package app

import (
	"fmt"

	"github.com/spf13/cobra"
)

// NeedsCommand is the RunE of a command that only holds others. It writes to standard error which there are, and fails, because nothing was
// done: a container that is not told what to run must not look like one that has run to a good end.
func NeedsCommand(c *cobra.Command, _ []string) error {
	c.SetOut(c.ErrOrStderr())
	if err := c.Help(); err != nil {
		return err
	}
	return fmt.Errorf("%q is told no command to run", c.CommandPath())
}
