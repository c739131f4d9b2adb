package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-scheduler/muster/internal/lab/server"
)

// stockGCPercent is Go's default, which kube-scheduler runs with.
const stockGCPercent = 100

// kubeSchedulerCommand is kube-scheduler as a process of its own, to measure Muster beside it.
func kubeSchedulerCommand() *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use: "kube-scheduler [-- FLAG...]", Short: "Be a stock kube-scheduler with default settings, until a signal; FLAGs are further ones of kube-scheduler",
		RunE: func(cmd *cobra.Command, args []string) error {
			// The lab's own settings would make it faster, and larger, than anybody's is.
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(stockGCPercent)
			}
			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(math.MaxInt64)
			}
			if kubeconfig == "" {
				kubeconfig = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
			}
			if kubeconfig == "" {
				kubeconfig = filepath.Join(defaultDir, "kubeconfig")
			}
			return server.ServeScheduler(cmd.Context(), kubeconfig, args)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "the cluster's kubeconfig `file`; not given: $KUBECONFIG, else the lab that runs in "+defaultDir)
	return cmd
}
