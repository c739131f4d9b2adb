package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// RealNodeOptions say which real node.
type RealNodeOptions struct {
	// Program is the path of the built realnode (internal/lab/realnode, a module of its own: make bin/realnode).
	Program string
	// Name is the node's.
	Name string
	// Dir is the node's folder. What the node writes lies below it, and is removed at its end but for the logs, in DIR/log.
	Dir string
	// GPUs counts the simulated GPUs that the node offers.
	GPUs int
	// Images are loaded besides those that every real node has: OCI archives, by the whole name of the image.
	Images map[string]string
	// Services are programs that the node has besides, by name: commands of a shell, which are started when containerd answers and last as long as the node. One that ends, ends the node.
	// What they write is in DIR/log.
	Services map[string]string
	// CRI is the socket, in the node, that the kubelet is given in place of containerd's; it is waited for. "" for containerd's.
	CRI string
}

// RealNode is a real node: containerd, runc and a kubelet beside a lab's simulated nodes. It is started before its lab, because the
// lab has to listen where the node finds it, and waits for it:
//
//	n, err := lab.StartRealNode(ctx, …)
//	l, err := lab.Start(ctx, lab.Options{Advertise: n.Gateway(), …})
//	err = n.Join(l)
//
// A pod that is not to run on simulated nodes must be kept away from them, by taints for example.
type RealNode struct {
	dir     string
	gateway string
	cmd     *exec.Cmd
	leash   io.Closer
	said    bytes.Buffer  // by the program to standard error; complete when ended is closed
	ended   chan struct{} // closed when the process has ended
	err     error         // how, valid then
}

// RealNodeLacks says what a real node lacks on this machine, such as root or a program, each with where to get it. It is empty if
// a node can run here. An error is a program that cannot be run.
func RealNodeLacks(ctx context.Context, program string) ([]string, error) {
	out, err := exec.CommandContext(ctx, program, "missing").Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s what a real node lacks here: %w", program, err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), nil
}

// StartRealNode starts a node and returns when this machine is linked to it, which takes about a second. When ctx ends, the node
// ends. Call Stop to end it earlier. There is one at a time on a machine.
func StartRealNode(ctx context.Context, o RealNodeOptions) (*RealNode, error) {
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start a real node: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("start a real node: %w", err)
	}
	n := &RealNode{dir: dir, ended: make(chan struct{})}
	args := []string{"up", "--leash", "--name", o.Name, "--dir", dir, "--kubeconfig", n.kubeconfig(), "--gpus", strconv.Itoa(o.GPUs)}
	for name, path := range o.Images {
		args = append(args, "--image", name+"="+path)
	}
	for name, command := range o.Services { // order: none waits for another
		args = append(args, "--service", name+"="+command)
	}
	if o.CRI != "" {
		args = append(args, "--cri", o.CRI)
	}
	n.cmd = exec.CommandContext(ctx, o.Program, args...)
	n.cmd.Cancel = func() error { return n.cmd.Process.Signal(syscall.SIGTERM) }
	n.cmd.WaitDelay = stopGrace
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as in Start
	n.cmd.Stderr = &n.said
	if n.leash, err = n.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start a real node: %w", err)
	}
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start a real node: %w", err)
	}
	if err := n.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a real node: %w", err)
	}
	var link struct {
		Gateway string `json:"gateway"`
	}
	err = json.NewDecoder(out).Decode(&link)
	n.gateway = link.Gateway
	go func() {
		_, _ = io.Copy(io.Discard, out)
		if err := n.cmd.Wait(); !n.cmd.ProcessState.Success() {
			n.err = fmt.Errorf("the real node: %w: %s", err, strings.TrimSpace(n.said.String()))
		}
		close(n.ended)
	}()
	if err != nil {
		return nil, fmt.Errorf("start a real node: it has no link: %w", errors.Join(err, n.Stop()))
	}
	return n, nil
}

// kubeconfig is the file that the node waits for.
func (n *RealNode) kubeconfig() string { return filepath.Join(n.dir, "kubeconfig") }

// Gateway is the address of this machine that the node and its pods reach: the lab's Options.Advertise.
func (n *RealNode) Gateway() string { return n.gateway }

// Join tells the node which lab it belongs to. Its Node is ready some seconds later.
func (n *RealNode) Join(l *Lab) error {
	text, err := os.ReadFile(l.Kubeconfig())
	if err != nil {
		return fmt.Errorf("join a real node: %w", err)
	}
	fresh := n.kubeconfig() + ".new" // so that the node never sees half of it
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return fmt.Errorf("join a real node: %w", err)
	}
	if err := os.Rename(fresh, n.kubeconfig()); err != nil {
		return fmt.Errorf("join a real node: %w", err)
	}
	return nil
}

// Log is the end of what one of the node's programs (node, containerd, kubelet, kube-proxy, and services by their names) has logged: so many lines, as far as there
// are any.
func (n *RealNode) Log(program string, lines int) string {
	text, err := os.ReadFile(filepath.Join(n.dir, "log", program+".log"))
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Done is closed when the node has ended, by Stop or otherwise.
func (n *RealNode) Done() <-chan struct{} { return n.ended }

// Stop ends the node and with it all its pods, and waits until its process is gone (killing it after a grace of 30 s). It returns how
// the node ended, if that was no end as it should be. Further calls return the same.
func (n *RealNode) Stop() error {
	n.leash.Close()
	kill := time.AfterFunc(stopGrace, func() { _ = n.cmd.Process.Kill() })
	<-n.ended
	kill.Stop()
	return n.err
}
