// Command muster is the control plane in one binary: every role, and the command line of its users. By argv[0] it is vcctl, or another of
// Volcano's command lines.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/cli"
	"github.com/muster-scheduler/muster/internal/cli/vcctl"
	"github.com/muster-scheduler/muster/internal/demo"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/kube/filters"
	"github.com/muster-scheduler/muster/internal/roles"
)

// version is set at link time.
var version = "dev"

// gcPercent trades a little processor time for memory: most of what the roles hold are caches that live on. Filling 500
// nodes with 4,000 one-GPU Jobs peaked at 215 MB with it and at 234 MB with 80, when caches held more; the collector took 2.6 % of the
// processor time and not 1.1 %. It peaks at 150 MiB now, 60 of them the program's own file. GOGC overrules it.
const gcPercent = 50

// scalingPod is what pods run that are made to have a cluster autoscaler add a node: once they run, they have served their
// purpose.
func scalingPod() *cobra.Command {
	return &cobra.Command{
		Use: "scalingpod", Short: "End at once with success (what scaling pods run)", Hidden: true, Args: cobra.NoArgs,
		Run: func(*cobra.Command, []string) {},
	}
}

// command is muster with all its commands.
func command() *cobra.Command {
	root := &cobra.Command{
		Use: "muster", Short: "A Kubernetes-native scheduling platform for AI and batch work", Version: version,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs, RunE: app.NeedsCommand,
	}
	root.AddCommand(roles.Command(version), scalingPod(), demo.Command())
	deps := cli.Deps{Version: version, SchedulerFlags: roles.FlagNames(roles.Scheduler), Registry: func(storageCapacity bool) engine.Registry {
		return filters.Register(builtin.Registry(), filters.Options{StorageCapacity: storageCapacity})
	}}
	root.AddCommand(cli.New(deps)...)
	root.AddCommand(cli.NewReplay(deps)...)
	root.AddCommand(cli.NewMigrate(deps), cli.NewCRDs(deps), vcctl.New(vcctl.Options{Version: version}))
	return root
}

// called is the command line for a program of that path: one of Volcano's by its name, else muster, which calls itself `kubectl muster` where it is kubectl's plugin.
func called(argv0 string) *cobra.Command {
	if c := vcctl.Named(filepath.Base(argv0), vcctl.Options{Version: version}); c != nil {
		return c
	}
	c := command()
	if base, _, _ := strings.Cut(filepath.Base(argv0), "."); base == "kubectl-muster" {
		c.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl muster"}
	}
	return c
}

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	c := called(os.Args[0])
	if err := c.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", c.Name(), err)
		var says interface{ ExitCode() int }
		if errors.As(err, &says) {
			os.Exit(says.ExitCode())
		}
		os.Exit(1)
	}
}
