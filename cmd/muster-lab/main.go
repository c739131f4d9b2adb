// Command muster-lab runs a real Kubernetes control plane with simulated GPU nodes on this machine.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "muster-lab",
		Short:         "A real Kubernetes control plane with simulated GPU nodes, in one process",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(upCommand(), statusCommand(), downCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "muster-lab:", err)
		os.Exit(1)
	}
}
