package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	kubectl "k8s.io/kubectl/pkg/cmd"

	"github.com/muster-scheduler/muster/internal/lab"
)

// kubectlCommand is Kubernetes' own client, so that a lab can be used on a machine that has none. It ends the process by itself when it
// fails.
func kubectlCommand() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl", Short: "Be kubectl: for the cluster of $KUBECONFIG, else the lab that runs in " + defaultDir, DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" && lab.Running(defaultDir) {
				if err := os.Setenv(clientcmd.RecommendedConfigPathEnvVar, filepath.Join(defaultDir, "kubeconfig")); err != nil {
					return err
				}
			}
			streams := genericiooptions.IOStreams{In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), ErrOut: cmd.ErrOrStderr()}
			k := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
				Arguments: append([]string{"kubectl"}, args...), IOStreams: streams,
				ConfigFlags: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams),
			})
			k.SetArgs(args)
			return k.ExecuteContext(cmd.Context())
		},
	}
}
