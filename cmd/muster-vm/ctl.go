package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/vm/ctl"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/spec"
)

// ctlFlags say where a machine is looked for.
type ctlFlags struct {
	client                                              app.ClientOptions
	namespace, container                                string
	nodeNamespace, nodeSelector, nodeContainer, nodeDir string
	nodeProgram, libvirt                                string
}

func (k *ctlFlags) bind(f *pflag.FlagSet) {
	k.client = app.DefaultClientOptions()
	f.StringVar(&k.client.Kubeconfig, "kubeconfig", "", "file that names the API server; empty: the cluster this runs in, else the user's default")
	f.StringVar(&k.client.Context, "context", "", "context of the kubeconfig; empty is its current one")
	f.StringVarP(&k.namespace, "namespace", "n", "default", "the pod's namespace")
	f.StringVarP(&k.container, "container", "c", "", "the pod's container; empty is the one that runs")
	f.StringVar(&k.nodeNamespace, "node-namespace", "muster-vm", "namespace of the pods of muster-vm, one on each node (vnc, virsh)")
	f.StringVar(&k.nodeSelector, "node-selector", "app.kubernetes.io/name=muster-vm", "labels of these pods")
	f.StringVar(&k.nodeContainer, "node-container", "", "container of these pods that has muster-vm; empty is the first")
	f.StringVar(&k.nodeDir, "node-dir", "/var/lib/muster-vm", "folder of muster-vm up there")
	f.StringVar(&k.nodeProgram, "node-program", "/var/lib/muster-vm/bin/muster-vm", "muster-vm there")
	f.StringVar(&k.libvirt, "libvirt-uri", "qemu:///system", "libvirt's connection there")
}

func (k *ctlFlags) open() (ctl.Cluster, error) {
	rest, err := app.RESTConfig(k.client)
	if err != nil {
		return ctl.Cluster{}, err
	}
	c, err := ctl.Open(rest)
	c.Namespace, c.NodeNamespace, c.NodeSelector, c.NodeContainer = k.namespace, k.nodeNamespace, k.nodeSelector, k.nodeContainer
	return c, err
}

// find opens the cluster and finds a pod's machine there.
func (k *ctlFlags) find(ctx context.Context, pod string) (ctl.Cluster, ctl.Machine, error) {
	c, err := k.open()
	if err != nil {
		return c, ctl.Machine{}, err
	}
	m, err := c.Machine(ctx, pod, k.container)
	return c, m, err
}

func ctlCommand() *cobra.Command {
	var k ctlFlags
	c := &cobra.Command{Use: "ctl", Short: "Reach a pod's machine through the cluster: ssh, console, vnc, virsh", Args: cobra.NoArgs, RunE: app.NeedsCommand}
	k.bind(c.PersistentFlags())
	c.AddCommand(sshCommand(&k), consoleCommand(&k), vncCommand(&k), virshCommand(&k), screenCommand(&k))
	return c
}

func sshCommand(k *ctlFlags) *cobra.Command {
	port, program := 22, "ssh"
	c := &cobra.Command{
		Use: "ssh [USER@]POD [-- ARGUMENTS]", Short: "Run ssh to a machine, through a forwarded port; the arguments are ssh's, such as a command", Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			whom, pod, ok := strings.Cut(args[0], "@")
			if !ok {
				whom, pod = "", args[0]
			}
			if port < 1 || port > 65535 {
				return fmt.Errorf("--port %d: must be from 1 to 65535", port)
			}
			cluster, m, err := k.find(c.Context(), pod)
			if err != nil {
				return err
			}
			return cluster.Forward(c.Context(), m, port, c.ErrOrStderr(), func(ctx context.Context, local int) error {
				run := exec.CommandContext(ctx, program, ctl.SSH(m, whom, local, args[1:])...)
				run.Stdin, run.Stdout, run.Stderr = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
				err := run.Run()
				if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
					return asItEnded{ended}
				}
				return err
			})
		},
	}
	c.Flags().IntVar(&port, "port", port, "the machine's port")
	c.Flags().StringVar(&program, "ssh", program, "path of ssh")
	return c
}

func consoleCommand(k *ctlFlags) *cobra.Command {
	return &cobra.Command{
		Use: "console POD", Short: "Use a machine's serial console; Ctrl-] leaves it", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cluster, m, err := k.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			if in, ok := c.InOrStdin().(*os.File); ok && m.Stdin && term.IsTerminal(int(in.Fd())) {
				before, err := term.MakeRaw(int(in.Fd()))
				if err != nil {
					return err
				}
				defer func() { _ = term.Restore(int(in.Fd()), before) }()
			}
			return cluster.Console(c.Context(), m, ctl.Streams{In: c.InOrStdin(), Out: c.OutOrStdout(), Err: c.ErrOrStderr()})
		},
	}
}

func vncCommand(k *ctlFlags) *cobra.Command {
	return &cobra.Command{
		Use: "vnc POD [PORT]", Short: "Serve a machine's screen at a port of 127.0.0.1, for a VNC viewer, until Ctrl-C", Args: cobra.RangeArgs(1, 2),
		Long: "The pod must have asked for a screen (annotation " + spec.OwnVNC + "). The screen's socket is on the machine's node: whoever uses this needs the right to exec in the pods of\n" +
			"muster-vm, which rules the node. Every program of this host can connect to the port.",
		RunE: func(c *cobra.Command, args []string) error {
			port := 0
			if len(args) > 1 {
				n, err := strconv.ParseUint(args[1], 10, 16)
				if err != nil {
					return fmt.Errorf("port %q: must be from 0 to 65535", args[1])
				}
				port = int(n)
			}
			cluster, m, err := k.find(c.Context(), args[0])
			if err != nil {
				return err
			}
			if m.Annotations[spec.OwnVNC] != "true" {
				return fmt.Errorf("pod %s/%s: it has no screen: annotation %s must be \"true\" when it is made", m.Namespace, m.Pod, spec.OwnVNC)
			}
			argv := []string{k.nodeProgram, "host", "--", "muster-vm", "ctl", "screen", "--node-dir=" + k.nodeDir, m.ID}
			return cluster.Relay(c.Context(), m.Node, argv, port, c.ErrOrStderr(), func(port int) {
				fmt.Fprintf(c.OutOrStdout(), "screen of %s/%s at 127.0.0.1:%d\n", m.Namespace, m.Pod, port)
			})
		},
	}
}

// screenCommand is what vnc runs on the node.
func screenCommand(k *ctlFlags) *cobra.Command {
	return &cobra.Command{
		Use: "screen ID", Hidden: true, Short: "Connect input and output with the screen of a container's machine: what vnc runs on the node", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			path := runtime.DiskFolders{Sockets: filepath.Join(k.nodeDir, "run", "s")}.Screen(args[0])
			conn, err := (&net.Dialer{}).DialContext(c.Context(), "unix", path)
			if err != nil {
				return fmt.Errorf("screen of container %s: %w", args[0], err)
			}
			defer conn.Close()
			stop := context.AfterFunc(c.Context(), func() { _ = conn.Close() })
			defer stop()
			go func() {
				_, _ = io.Copy(conn, c.InOrStdin())
				_ = conn.(*net.UnixConn).CloseWrite()
			}()
			_, err = io.Copy(c.OutOrStdout(), conn)
			if errors.Is(err, net.ErrClosed) {
				err = nil
			}
			return err
		},
	}
}

func virshCommand(k *ctlFlags) *cobra.Command {
	return &cobra.Command{
		Use: "virsh COMMAND -- @POD [ARGUMENTS]", Short: "Run virsh on a machine's node; @POD stands for the machine", Args: cobra.MinimumNArgs(1),
		Long: "virsh is run in the pod of muster-vm on that node, which takes the right to exec there. What it changes behind muster-vm's back is put right again, or not: look, and do\n" +
			"not touch.",
		RunE: func(c *cobra.Command, args []string) error {
			var cluster ctl.Cluster
			var m ctl.Machine
			argv, err := ctl.Virsh(args, func(pod string) (_ string, err error) {
				cluster, m, err = k.find(c.Context(), pod)
				return domain.UUID(m.ID, &spec.Spec{Machine: spec.Machine{UUID: m.Annotations[spec.KeySystemUUID]}}), err
			})
			if err != nil {
				return err
			}
			return cluster.OnNode(c.Context(), m.Node, append([]string{k.nodeProgram, "host", "--", "virsh", "--connect", k.libvirt}, argv...), ctl.Streams{Out: c.OutOrStdout(), Err: c.ErrOrStderr()})
		},
	}
}
