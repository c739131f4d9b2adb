package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-scheduler/muster/api/crds"
	"github.com/muster-scheduler/muster/internal/lab"
	"github.com/muster-scheduler/muster/internal/lab/operator"
	"github.com/muster-scheduler/muster/internal/lab/server"
	"github.com/muster-scheduler/muster/internal/lab/starter"
)

// defaultDir is where a lab lives when no folder is given; .gitignore knows it.
const defaultDir = ".lab"

type upFlags struct {
	dir, fleet, crds, kubeconfig, output string
	nodes, gpus, racks                   int
	scheduler, durable, detach, leash    bool
	workloads, split, bare, verbose      bool
	apiArgs, managerArgs, schedulerArgs  []string
	programs                             []string
	recorded, advertise, kubernetes      string
	featureGates                         string
}

func upCommand() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a lab, and keep it up until a signal",
		Example: `  muster-lab up --nodes 500 --gpus 8
  muster-lab up --fleet fleet.yaml --crds my-crds --with-kube-scheduler`,
		Long: "Start a lab, and keep it up until a signal. Besides nodes it has what it takes to try something: a tree of queues, priority classes,\n" +
			"the CRDs of Muster and of workloads, and manifests in the folder examples. What exists already in the folder of an earlier lab stays.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.detach {
				return detach(cmd.Context(), cmd.OutOrStdout(), f)
			}
			return up(cmd, f)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.dir, "dir", defaultDir, "the lab's `folder`; everything it writes lies below it")
	fl.StringVar(&f.fleet, "fleet", "", "a fleet `file` with the pools of simulated nodes; instead of --nodes")
	fl.IntVar(&f.nodes, "nodes", 8, "how many simulated nodes (node-0, node-1, …)")
	fl.IntVar(&f.gpus, "gpus", 8, "GPUs per node of --nodes")
	fl.IntVar(&f.racks, "racks", 0, "racks to split the nodes of --nodes into")
	fl.StringVar(&f.crds, "crds", "", "a `folder` of CustomResourceDefinitions to install besides Muster's own")
	fl.BoolVar(&f.bare, "bare", false, "leave out queues, priority classes, the CRDs of workloads and examples")
	fl.BoolVar(&f.workloads, "workload-crds", false, "with --bare: install the CRDs of workloads that come with the lab (PyTorchJob) all the same")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "say how far the start has come")
	fl.StringVar(&f.kubeconfig, "kubeconfig", "", "a further `file` to write the kubeconfig to")
	fl.BoolVar(&f.scheduler, "with-kube-scheduler", false, "run a stock kube-scheduler as well")
	fl.BoolVar(&f.split, "split", false, "run the API server as a process of its own, which is started again when it ends")
	fl.StringVar(&f.advertise, "advertise", "", "the `address` of this machine where the API server listens instead of loopback, so that real nodes can join")
	fl.StringVar(&f.kubernetes, "kubernetes", "", "an older minor `version`, such as 1.34, whose APIs and feature gates the servers are to have; up to three older than they are")
	fl.BoolVar(&f.durable, "durable", false, "have etcd sync to disk, so that the lab survives the machine")
	fl.BoolVar(&f.detach, "detach", false, "return once the lab is ready, and leave it running; end it with muster-lab down")
	fl.StringVar(&f.featureGates, "feature-gates", "", "`gates` of Kubernetes to switch in all servers, such as X=true,Y=false; what is not named is as in a cluster")
	fl.StringArrayVar(&f.apiArgs, "apiserver-arg", nil, "a further `flag` of kube-apiserver, such as --runtime-config=scheduling.k8s.io/v1beta1=true; may be repeated")
	fl.StringArrayVar(&f.managerArgs, "controller-manager-arg", nil, "a further `flag` of kube-controller-manager; may be repeated")
	fl.StringArrayVar(&f.schedulerArgs, "scheduler-arg", nil, "a further `flag` of kube-scheduler; may be repeated")
	fl.StringArrayVar(&f.programs, "program", nil, "run the containers of an image for real, as `IMAGE=PATH` of its entry point; may be repeated")
	fl.StringVar(&f.recorded, "recorded", "", "a JSON `file` with a list of objects that are there from the beginning, with their UIDs, times and statuses")
	fl.StringVarP(&f.output, "output", "o", "text", "text, or json: one line with the lab's state once it is ready")
	fl.BoolVar(&f.leash, "leash", false, "end when standard input ends, so that no lab outlives its user")
	return cmd
}

func up(cmd *cobra.Command, f upFlags) error {
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	fleet, err := fleetOf(f, cmd.Flags().Changed("nodes"))
	if err != nil {
		return err
	}
	sizes, err := sizesOf(fleet)
	if err != nil {
		return err
	}
	installed := append(crds.Documents(), lab.NodeCRDs()...)
	if f.crds != "" {
		more, err := lab.ReadCRDs(f.crds)
		if err != nil {
			return err
		}
		installed = append(installed, more...)
	}
	if f.workloads || !f.bare {
		installed = append(installed, operator.CRDs()...)
	}
	if f.leash {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	}
	out := cmd.OutOrStdout()
	programs, err := programsOf(f.programs)
	if err != nil {
		return err
	}
	recorded, err := recordedOf(f.recorded)
	if err != nil {
		return err
	}
	c := server.Config{
		Recorded: recorded,
		Programs: programs,
		Dir:      f.dir, Fleet: fleet, CRDs: installed, Scheduler: f.scheduler, Durable: f.durable, Split: f.split, Kubeconfig: f.kubeconfig, Advertise: f.advertise, Kubernetes: f.kubernetes,
		FeatureGates:  f.featureGates,
		APIServerArgs: f.apiArgs, ControllerManagerArgs: f.managerArgs, SchedulerArgs: f.schedulerArgs,
	}
	if !f.bare {
		if c.Objects, err = starter.Objects(sizes); err != nil {
			return err
		}
		if err := starter.Write(filepath.Join(f.dir, "examples"), sizes); err != nil {
			return err
		}
	}
	switch f.output {
	case "json":
		c.Progress = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
		c.Ready = func(s lab.State) { _ = json.NewEncoder(out).Encode(s) }
	case "text":
		c.Progress = func(string, ...any) {}
		if f.verbose {
			c.Progress = func(format string, args ...any) { fmt.Fprintf(out, "  "+format+"\n", args...) }
		}
		fmt.Fprintf(out, "Starting Kubernetes with %d simulated nodes and %d GPUs.\n", sizes.Nodes, sizes.GPUs)
		c.Ready = func(s lab.State) { fmt.Fprint(out, next(s.Serves(), s.Kubeconfig, f, "Ctrl-C or ")) }
	default:
		return fmt.Errorf("--output: %q is neither text nor json", f.output)
	}
	return server.Run(ctx, c)
}

func programsOf(flags []string) (map[string]string, error) {
	out := map[string]string{}
	for _, text := range flags {
		image, path, ok := strings.Cut(text, "=")
		if !ok || image == "" || path == "" {
			return nil, fmt.Errorf("--program: %q is not of the form IMAGE=PATH", text)
		}
		if _, err := exec.LookPath(path); err != nil {
			return nil, fmt.Errorf("--program: %w", err)
		}
		out[image] = path
	}
	return out, nil
}

// next says what to type once a lab of that version of Kubernetes is ready; by is a further way to end it.
func next(version, kubeconfig string, f upFlags, by string) string {
	self := os.Args[0]
	muster := "muster"
	if i := strings.LastIndex(self, "/"); i >= 0 {
		muster = self[:i+1] + muster
	}
	folder := ""
	if f.dir != defaultDir {
		folder = " --dir " + f.dir
	}
	lines := [][2]string{{"export KUBECONFIG=" + kubeconfig, ""}, {muster + " run all", "schedules, until Ctrl-C: a terminal of its own"}}
	if !f.bare {
		lines = append(lines, [2]string{self + " kubectl apply -f " + filepath.Join(f.dir, "examples", starter.Examples()[0]), "a gang of four"})
	}
	lines = append(lines, [2]string{muster + " status", "nodes, queues, gangs, and why they wait"})
	var b strings.Builder
	fmt.Fprintf(&b, "Kubernetes %s is ready. Next:\n\n", version)
	for _, l := range lines {
		if l[1] != "" {
			fmt.Fprintf(&b, "  # %s\n", l[1])
		}
		fmt.Fprintf(&b, "  %s\n", l[0])
	}
	fmt.Fprintf(&b, "\n%s`%s down%s` ends it.\n", by, self, folder)
	return b.String()
}

// sizesOf counts what a fleet has.
func sizesOf(fleet lab.Fleet) (s starter.Sizes, err error) {
	nodes, err := fleet.Nodes()
	if err != nil {
		return s, err
	}
	s.Nodes = len(nodes)
	for i := range nodes {
		q := nodes[i].Status.Allocatable["nvidia.com/gpu"]
		s.PerNode = max(s.PerNode, int(q.Value()))
		s.GPUs += int(q.Value())
	}
	return s, nil
}

func fleetOf(f upFlags, counted bool) (lab.Fleet, error) {
	if f.fleet != "" {
		if counted {
			return lab.Fleet{}, errors.New("--fleet and --nodes exclude each other")
		}
		return lab.ReadFleet(f.fleet)
	}
	fleet := lab.Fleet{Pools: []lab.Pool{{Name: "gpu", Prefix: "node-", Count: f.nodes, GPUs: f.gpus, Racks: f.racks}}}
	if _, err := fleet.Nodes(); err != nil {
		return lab.Fleet{}, err
	}
	return fleet, nil
}

// detach runs the same command again as a process of its own and returns when that lab is ready.
func detach(ctx context.Context, out io.Writer, f upFlags) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(f.dir, "logs"), 0o700); err != nil {
		return fmt.Errorf("make the lab's folder: %w", err)
	}
	said, err := os.Create(filepath.Join(f.dir, "logs", "up.log"))
	if err != nil {
		return fmt.Errorf("open the lab's log: %w", err)
	}
	defer said.Close()
	var args []string
	for _, a := range os.Args[1:] {
		if a != "--detach" && a != "--detach=true" {
			args = append(args, a)
		}
	}
	fmt.Fprintf(out, "Starting Kubernetes; its logs are in %s.\n", filepath.Join(f.dir, "logs"))
	cmd := exec.Command(self, append(args, "--output=json")...)
	cmd.Stderr = said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the lab: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the lab: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	var s lab.State
	if err := json.NewDecoder(ready).Decode(&s); err != nil {
		_ = cmd.Wait()
		words, _ := os.ReadFile(said.Name())
		return fmt.Errorf("the lab did not come up:\n%s", words)
	}
	fmt.Fprint(out, next(s.Serves(), s.Kubeconfig, f, ""))
	return cmd.Process.Release()
}

// recordedOf reads a list of objects; an empty name means none.
func recordedOf(name string) ([]*unstructured.Unstructured, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--recorded: %w", err)
	}
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(text); err != nil {
		return nil, fmt.Errorf("--recorded: %s: %w", name, err)
	}
	out := make([]*unstructured.Unstructured, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}
