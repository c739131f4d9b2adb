// Command muster-vm is the VM runtime's program on nodes: each of its subcommands is a process of its own. As muster-vm-wrap, by argv[0], it is what
// libvirt runs in QEMU's place.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/vm/flexvolume"
)

// version is set at link time.
var version = "dev"

// wrapName is the name by which libvirt runs the program: it gives QEMU's arguments, so that a subcommand cannot be among them.
const wrapName = "muster-vm-wrap"

func main() {
	os.Exit(run(os.Args))
}

func run(argv []string) int {
	if args, yes := flexvolume.Called(argv); yes { // a kubelet wants JSON for an answer, whatever happens
		return flexvolume.Run(args, flexvolume.Machine{}, os.Stdout)
	}
	name := "muster-vm"
	err := error(nil)
	switch {
	case len(argv) > 0 && filepath.Base(argv[0]) == wrapName:
		name = wrapName
		err = wrapped(context.Background(), argv)
	case len(argv) > 1 && argv[1] == "wrap":
		name = wrapName
		err = wrapped(context.Background(), argv[1:])
	default:
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		c := root()
		if len(argv) > 0 {
			c.SetArgs(argv[1:])
		}
		err = c.ExecuteContext(ctx)
	}
	return exitCode(name, err, os.Stderr)
}

// asItEnded is how a program ended that was run for a person, and has said what it had to say.
type asItEnded struct{ *exec.ExitError }

// exitCode says an error, and what it ends the program with.
func exitCode(name string, err error, to io.Writer) int {
	if err == nil {
		return 0
	}
	if ended := (asItEnded{}); errors.As(err, &ended) && ended.ExitCode() > 0 {
		return ended.ExitCode()
	}
	fmt.Fprintf(to, "%s: %v\n", name, err)
	return 1
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use: "muster-vm", Short: "Pods that are virtual machines", Version: version,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs, RunE: app.NeedsCommand,
	}
	c.AddCommand(upCommand(), networkCommand(), runtimeCommand(), proxyCommand(), configCommand(), diagCommand(), validateCommand(), ctlCommand(), hostCommand(), shareCommand(), &cobra.Command{
		Use: "wrap [QEMU's arguments]", Short: "Become QEMU with the pod's network cards: what libvirt runs as a domain's emulator",
		Long: "Fetches the taps that VIRTLET_NET_KEY names, adds them to QEMU's arguments and becomes VIRTLET_EMULATOR; without that variable QEMU is run\n" +
			"as it is, for libvirt to ask what it can do. The program does the same when it is called " + wrapName + ". All arguments are QEMU's.",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			return wrapped(c.Context(), append([]string{"wrap"}, args...))
		},
	})
	return c
}
