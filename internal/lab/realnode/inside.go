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
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// initCommand is process 1 of the node: it starts `run`, is the parent of whoever loses his, and ends with `run`, which ends the node.
func initCommand() *cobra.Command {
	return &cobra.Command{
		Use: "init", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until the link is there
				return err
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			run, err := os.StartProcess(self, []string{self, "run"}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}, Env: os.Environ()})
			if err != nil {
				return err
			}
			for {
				var status syscall.WaitStatus
				pid, err := syscall.Wait4(-1, &status, 0, nil)
				switch {
				case errors.Is(err, syscall.EINTR):
				case err != nil:
					return fmt.Errorf("wait for children: %w", err)
				case pid == run.Pid:
					return fmt.Errorf("its programs ended with code %d", status.ExitStatus())
				}
			}
		},
	}
}

func runCommand() *cobra.Command {
	return &cobra.Command{
		Use: "run", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := decode()
			if err != nil {
				return err
			}
			if err := o.furnish(); err != nil {
				return err
			}
			return o.run(c.Context())
		},
	}
}

// tunables are settings of the whole machine that a kubelet wants otherwise. The node sees the values it wants in files that are
// mounted over them, and the machine keeps its own.
var tunables = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// furnish makes this process's namespaces a machine: its own folders where programs keep their states, addresses, a name.
func (o *options) furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part from the machine's mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for own, place := range map[string]string{"lib": "/var/lib", "log": "/var/log", "run": "/run"} {
		own = filepath.Join(o.Dir, own)
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(own, place, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", place, err)
		}
	}
	for name, value := range tunables {
		place := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(place); err != nil {
			continue // a kernel without it
		}
		own := filepath.Join(o.Dir, "sys", strings.ReplaceAll(name, "/", "."))
		if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(own, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(own, place, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", place, err)
		}
	}
	// What the kubelet mounts for a pod has to be seen by containerd, and by containers that ask for it.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("share mounts: %w", err)
	}
	if err := unix.Sethostname([]byte(o.Name)); err != nil {
		return fmt.Errorf("set the node's name: %w", err)
	}
	return o.connect()
}

// connect gives the node its addresses.
func (o *options) connect() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	eth, err := netlink.LinkByName("eth0")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(o.address() + "/30")
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(lo), netlink.AddrAdd(eth, address), netlink.LinkSetUp(eth)); err != nil {
		return fmt.Errorf("the node's addresses: %w", err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.ParseIP(o.gateway())}); err != nil {
		return fmt.Errorf("the node's route: %w", err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1\n"), 0o644); err != nil {
		return fmt.Errorf("let the node route: %w", err)
	}
	return nil
}

// service starts a program that lasts as long as the node; its end is told on failed.
func (o *options) service(ctx context.Context, failed chan<- error, name string, argv ...string) error {
	out, err := os.Create(filepath.Join("/var/log", name+".log"))
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer out.Close()
		failed <- fmt.Errorf("%s ended: %w (see its log)", name, c.Wait())
	}()
	return nil
}
