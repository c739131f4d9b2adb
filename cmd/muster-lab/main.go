// Command muster-lab is what Muster is tried with on one machine: a real Kubernetes control plane with simulated GPU nodes, and, without any
// cluster, simulators and the runner of behaviour cases.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/trial"
)

// The API server makes garbage by the gigabyte and keeps little. A lab trades memory for the processor time that what
// is tested against it needs; GOGC and GOMEMLIMIT overrule this.
const (
	gcPercent   = 600
	memoryLimit = 6 << 30
)

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "muster-lab:", err)
		os.Exit(1)
	}
}

// command is muster-lab with all its commands.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "muster-lab",
		Short:         "A real Kubernetes control plane with simulated GPU nodes, in one process; and simulators that need none",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(upCommand(), statusCommand(), downCommand(), kubectlCommand(), apiServerCommand(), kubeSchedulerCommand(), trial.NewSim(), trial.NewConformance(), trial.NewClimb())
	return root
}
