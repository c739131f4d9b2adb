package demo

import (
	"errors"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/muster-scheduler/muster/internal/app"
)

// Command is `muster demo`.
func Command() *cobra.Command {
	o := DefaultOptions()
	var keep, noWait bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "Start a simulated cluster, run Muster on it and tell a story of gangs, fair shares and who gives way",
		Long: "Start a simulated cluster with muster-lab, run Muster on it and tell a story of gangs, fair shares and who gives way.\n" +
			"Every sentence of it is checked on the cluster before it is printed; the exit status is 1 if one does not hold.\n" +
			"At a terminal the cluster stays up afterwards until Ctrl-C.",
		Example: "  muster demo\n  muster demo --nodes 16 --gpus 4 --no-wait",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if keep && noWait {
				return errors.New("--keep and --no-wait exclude each other")
			}
			o.Out = c.OutOrStdout()
			o.Live = o.Out == os.Stdout && term.IsTerminal(int(os.Stdout.Fd()))
			o.Keep = keep || (!noWait && o.Live && term.IsTerminal(int(os.Stdin.Fd())))
			// The story speaks for itself; what the client libraries have to say when a cluster goes away is no part of it.
			app.InstallLogger(logr.Discard())
			ctx, stop := app.SignalContext(c.Context())
			defer stop()
			return Run(ctx, o)
		},
	}
	fl := c.Flags()
	fl.IntVar(&o.Nodes, "nodes", o.Nodes, "simulated nodes, a multiple of 8 from 16 on")
	fl.IntVar(&o.GPUs, "gpus", o.GPUs, "GPUs of each node")
	fl.StringVar(&o.Dir, "dir", "", "empty or new `folder` for everything the demo writes, kept afterwards; default: a temporary one")
	fl.StringVar(&o.LabBinary, "lab-binary", "", "the muster-lab to run; default: the one beside this program, else the one in $PATH")
	fl.DurationVar(&o.Patience, "timeout", o.Patience, "how long each sentence may take to come true")
	fl.BoolVar(&keep, "keep", false, "leave the cluster up until a signal, terminal or not")
	fl.BoolVar(&noWait, "no-wait", false, "end after the story, even at a terminal")
	return c
}
