// Command install does what `helm install muster CHART --namespace NAMESPACE --create-namespace` does, with the chart's default values, by
// Helm's own library: for measurements of what people get, on machines without Helm.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"k8s.io/cli-runtime/pkg/genericclioptions"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file of the cluster")
	namespace := flag.String("namespace", "kai-scheduler", "namespace of the release, made if it is not there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := install(ctx, *kubeconfig, *namespace, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		stop()
		os.Exit(1)
	}
}

func install(ctx context.Context, kubeconfig, namespace, folder string) error {
	chart, err := loader.LoadDir(folder)
	if err != nil {
		return fmt.Errorf("load the chart %q: %w", folder, err)
	}
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	var c action.Configuration
	if err := c.Init(flags, namespace, "secret", func(string, ...any) {}); err != nil {
		return err
	}
	i := action.NewInstall(&c)
	i.ReleaseName, i.Namespace, i.CreateNamespace = "muster", namespace, true
	release, err := i.RunWithContext(ctx, chart, nil)
	if err != nil {
		return err
	}
	fmt.Println(release.Info.Notes)
	return nil
}
