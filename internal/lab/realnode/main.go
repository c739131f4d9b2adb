package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 {
		// Kubernetes' programs read their flags themselves.
		switch command := os.Args[1]; command {
		case "kubelet":
			c := kubelet.NewKubeletCommand(ctx)
			c.SetArgs(os.Args[2:])
			os.Exit(cli.Run(c))
		case "kube-proxy":
			c := kubeproxy.NewProxyCommand()
			c.SetArgs(os.Args[2:])
			os.Exit(cli.Run(c))
		}
	}
	root := &cobra.Command{Use: "realnode", Short: "A real node for a lab", SilenceUsage: true, SilenceErrors: true}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(upCommand(), missingCommand(), initCommand(), runCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "realnode:", err)
		stop()
		os.Exit(1)
	}
}

// options say which node.
type options struct {
	Name       string   // of the node
	Dir        string   // everything it writes lies below it
	Kubeconfig string   // administrator's, of the cluster to join
	GPUs       int      // simulated ones that it offers
	Images     []string // NAME=FILE
	Network    string   // first three bytes of its addresses: .1 is the machine's, .2 the node's, pods have the next network's
	Services   []string // NAME=COMMAND
	CRI        string   // the socket that the kubelet is given; "" for containerd's
}

// cri is the socket that the kubelet is given.
func (o *options) cri() string { return cmp.Or(o.CRI, containerdSocket) }

// gateway is the machine's address, as the node and its pods reach it.
func (o *options) gateway() string { return o.Network + ".1" }

// address is the node's.
func (o *options) address() string { return o.Network + ".2" }

// pods is the network of the node's pods.
func (o *options) pods() string { return o.Network + ".128/25" }

func (o *options) cgroup() string { return "/muster-lab-" + o.Name }

func upCommand() *cobra.Command {
	var o options
	var leash bool
	c := &cobra.Command{
		Use: "up", Short: "Start the node and keep it up until a signal, or until a part of it fails", Args: cobra.NoArgs,
		Long: "Prints, once the machine has its link to the node, one line of JSON: {\"gateway\": ADDRESS, \"address\": ADDRESS}. The first is the\n" +
			"address of this machine that pods reach (the lab's --advertise). The cluster may be started after that: the node waits for\n" +
			"the kubeconfig to be there.",
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithCancel(c.Context())
			defer cancel()
			if leash {
				go func() {
					_, _ = io.Copy(io.Discard, os.Stdin)
					cancel()
				}()
			}
			if list := missing(); len(list) > 0 {
				return errors.New(strings.Join(list, "; "))
			}
			return up(ctx, o, func() error {
				return json.NewEncoder(c.OutOrStdout()).Encode(map[string]string{"gateway": o.gateway(), "address": o.address()})
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.Name, "name", "real-1", "`name` of the node")
	f.StringVar(&o.Dir, "dir", "", "the node's `folder`: what it writes lies below it, and is removed at the end but for its logs")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "administrator's kubeconfig `file` of the cluster to join, waited for if it is not there")
	f.IntVar(&o.GPUs, "gpus", 0, "simulated GPUs that the node offers as nvidia.com/gpu")
	f.StringArrayVar(&o.Images, "image", nil, "an image to load, as `NAME=FILE` of an OCI archive; may be repeated")
	f.StringArrayVar(&o.Services, "service", nil, "a program that the node has besides, as `NAME=COMMAND` of a shell: it is started when containerd answers, and lasts as long as the node; may be repeated")
	f.StringVar(&o.CRI, "cri", "", "`socket` that the kubelet is given in place of containerd's, waited for")
	f.StringVar(&o.Network, "network", "10.86.0", "the first three bytes of the node's and its pods' addresses")
	for _, name := range []string{"dir", "kubeconfig"} {
		if err := c.MarkFlagRequired(name); err != nil {
			panic(err) // no flag of that name
		}
	}
	f.BoolVar(&leash, "leash", false, "end when standard input ends, so that no node outlives its user")
	return c
}

func missingCommand() *cobra.Command {
	return &cobra.Command{
		Use: "missing", Short: "Say what a real node lacks on this machine, a line each; nothing if it can run", Args: cobra.NoArgs,
		Run: func(c *cobra.Command, _ []string) {
			for _, line := range missing() {
				fmt.Fprintln(c.OutOrStdout(), line)
			}
		},
	}
}

// decode reads the options that up hands to its children in the environment.
func decode() (o options, err error) {
	if err := json.Unmarshal([]byte(os.Getenv(envOptions)), &o); err != nil {
		return o, fmt.Errorf("$%s: %w", envOptions, err)
	}
	return o, nil
}

// envOptions is how the inner processes are told which node they are.
const envOptions = "REALNODE_OPTIONS"
