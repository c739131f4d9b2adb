package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-scheduler/muster/internal/app"
)

// A list that is watched is looked at again after lookPause, and after lookRest times as long as the look took: looks list all of the cluster.
const (
	lookPause = 2 * time.Second
	lookRest  = 4
)

// fromTop has a terminal begin at its top.
const fromTop = "\x1b[H\x1b[2J"

// watched gives a command that prints a list the flag -w.
func watched(c *cobra.Command) {
	var watch bool
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print the list again whenever it is another one, until interrupted")
	once := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if !watch {
			return once(c, args)
		}
		ctx, stop := app.SignalContext(c.Context())
		defer stop()
		return again(ctx, c, func() error { return once(c, args) })
	}
}

// again runs a command over and over, and prints what it prints where that differs from the time before. The first error is the command's; later ones are told, and it goes on.
func again(ctx context.Context, c *cobra.Command, once func() error) error {
	out, whole := c.OutOrStdout(), fromTop
	if f, ok := out.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		whole = ""
	}
	c.SetContext(ctx)
	defer c.SetOut(out)
	var last []byte
	for first := true; ; first = false {
		var now bytes.Buffer
		c.SetOut(&now)
		began := time.Now()
		err := once()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			fmt.Fprintln(c.ErrOrStderr(), err)
		case first || !bytes.Equal(now.Bytes(), last):
			last = now.Bytes()
			if _, err := io.WriteString(out, whole+now.String()); err != nil {
				return fmt.Errorf("print the list: %w", err)
			}
		}
		pause := time.NewTimer(max(lookPause, lookRest*time.Since(began)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil
		}
	}
}
