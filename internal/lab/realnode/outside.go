package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// programs are the machine's that a node needs, and where Debian has each.
var programs = [...][2]string{
	{"containerd", "containerd"},
	{"ctr", "containerd"},
	{"runc", "runc"},
	{"iptables", "iptables"},
	{busybox, "busybox-static"},
	{filepath.Join(cniPlugins, "bridge"), "containernetworking-plugins"},
}

const (
	busybox    = "/bin/busybox"
	cniPlugins = "/usr/lib/cni"
	cgroups    = "/sys/fs/cgroup"
)

// missing says what a node lacks here.
func missing() (out []string) {
	if os.Geteuid() != 0 {
		return []string{"root"}
	}
	for _, p := range programs {
		if _, err := exec.LookPath(p[0]); err != nil {
			out = append(out, fmt.Sprintf("the program %s (Debian: %s)", p[0], p[1]))
		}
	}
	hierarchies, err := hierarchies()
	if err != nil {
		return append(out, "cgroups: "+err.Error())
	}
	for _, h := range hierarchies {
		if unix.Access(h, unix.W_OK) != nil {
			out = append(out, "a writable cgroup hierarchy "+h)
		}
	}
	return out
}

// hierarchies are where the cgroup controllers are mounted: one place of version 2, several of version 1.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		return []string{cgroups}, nil
	}
	entries, err := os.ReadDir(cgroups)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if path := filepath.Join(cgroups, e.Name()); e.IsDir() {
			if _, err := os.Stat(filepath.Join(path, "cgroup.procs")); err == nil {
				out = append(out, path)
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("none is mounted below " + cgroups)
	}
	return out, nil
}

// up makes the node, says so when the machine is linked to it, and takes everything away when ctx ends or the node does.
func up(ctx context.Context, o options, linked func() error) (err error) {
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return fmt.Errorf("the node's folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(o.Dir, "log"), 0o755); err != nil {
		return fmt.Errorf("the node's folder: %w", err)
	}
	defer func() { err = errors.Join(err, o.sweep()) }()
	paths, err := hierarchies()
	if err != nil {
		return err
	}
	defer func() {
		for _, h := range paths {
			err = errors.Join(err, removeCgroup(filepath.Join(h, o.cgroup())))
		}
	}()
	for _, h := range paths {
		// Of an earlier node that was killed, if it is there.
		if err := removeCgroup(filepath.Join(h, o.cgroup())); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(h, o.cgroup()), 0o755); err != nil {
			return fmt.Errorf("the node's cgroup: %w", err)
		}
		// On a machine of its own the kubelet's cgroup of all pods has these shares of the processors. Here the node's stands above it,
		// and would have those of one thread. (Version 2 has no such file, and gives a new cgroup more than a kubelet would.)
		shares := filepath.Join(h, o.cgroup(), "cpu.shares")
		if _, err := os.Stat(shares); err != nil {
			continue
		}
		if err := os.WriteFile(shares, fmt.Append(nil, 1024*runtime.NumCPU()), 0o644); err != nil {
			return fmt.Errorf("the node's cgroup: %w", err)
		}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	said, err := os.Create(filepath.Join(o.Dir, "log", "node.log"))
	if err != nil {
		return fmt.Errorf("the node's log: %w", err)
	}
	defer said.Close()
	node := exec.Command(self, "init")
	node.Env = append(os.Environ(), envOptions+"="+string(text))
	node.Stdout, node.Stderr = said, said
	node.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		Setpgid:    true, Pdeathsig: syscall.SIGKILL,
	}
	start, err := node.StdinPipe() // the node begins when it is closed
	if err != nil {
		return err
	}
	begun, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the signal of a parent's death comes when the thread that started the child ends
		err := node.Start()
		begun <- err
		if err == nil {
			ended <- node.Wait()
		}
	}()
	if err := <-begun; err != nil {
		return fmt.Errorf("start the node: %w", err)
	}
	over := false
	defer func() {
		if !over {
			_ = node.Process.Kill() // fails only if it has just ended; its end is that of every process of the node
			<-ended
		}
	}()
	unlink, err := o.link(node.Process.Pid)
	if err != nil {
		return err
	}
	defer unlink()
	if err := start.Close(); err != nil {
		return err
	}
	if err := linked(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		over = true
		words, _ := os.ReadFile(said.Name())
		return fmt.Errorf("the node ended: %w\n%s", err, words)
	}
}

// link gives the node its only device, the machine the other end of it, and the route to the node's pods.
func (o *options) link(pid int) (remove func(), err error) {
	host := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "muster-lab"}, PeerName: "eth0", PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(host); errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("another real node runs on this machine: the link %s is there", host.Name)
	} else if err != nil {
		return nil, fmt.Errorf("link the node: %w", err)
	}
	remove = func() { _ = netlink.LinkDel(host) } // it goes with the node's network anyway
	defer func() {
		if err != nil {
			remove()
		}
	}()
	address, err := netlink.ParseAddr(o.gateway() + "/30")
	if err != nil {
		return nil, fmt.Errorf("link the node: %w", err)
	}
	if err := netlink.AddrAdd(host, address); err != nil {
		return nil, fmt.Errorf("link the node: %w", err)
	}
	if err := netlink.LinkSetUp(host); err != nil {
		return nil, fmt.Errorf("link the node: %w", err)
	}
	_, pods, err := net.ParseCIDR(o.pods())
	if err != nil {
		return nil, fmt.Errorf("link the node: %w", err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: host.Attrs().Index, Dst: pods, Gw: net.ParseIP(o.address())}); err != nil {
		return nil, fmt.Errorf("route to the node's pods: %w", err)
	}
	return remove, nil
}

// sweep removes what the node wrote, but for its logs.
func (o *options) sweep() error {
	for _, name := range []string{"etc", "lib", "run", "sys"} {
		if err := os.RemoveAll(filepath.Join(o.Dir, name)); err != nil {
			return fmt.Errorf("remove what the node wrote: %w", err)
		}
	}
	return nil
}

// removeCgroup removes a cgroup and those below it, in which no process is left. The kernel may take a moment to see that.
func removeCgroup(path string) error {
	var below []string
	err := filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			below = append(below, p)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("remove the node's cgroup: %w", err)
	}
	for i := len(below) - 1; i >= 0; i-- {
		for attempt := 0; ; attempt++ {
			err := unix.Rmdir(below[i])
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || attempt == 100 {
				return fmt.Errorf("remove the node's cgroup %s: %w", below[i], err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	return nil
}
