package node

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/console"
	"github.com/muster-scheduler/muster/internal/vm/diag"
	"github.com/muster-scheduler/muster/internal/vm/domain"
	"github.com/muster-scheduler/muster/internal/vm/hypervisor/libvirt"
	"github.com/muster-scheduler/muster/internal/vm/image"
	"github.com/muster-scheduler/muster/internal/vm/metrics"
	"github.com/muster-scheduler/muster/internal/vm/network"
	"github.com/muster-scheduler/muster/internal/vm/runtime"
	"github.com/muster-scheduler/muster/internal/vm/socket"
	"github.com/muster-scheduler/muster/internal/vm/spec"
	"github.com/muster-scheduler/muster/internal/vm/store"
	"github.com/muster-scheduler/muster/internal/vm/suspend"
	"github.com/muster-scheduler/muster/internal/vm/volume"
)

// Config says where a runtime process has its things.
type Config struct {
	// Version is this program's.
	Version string
	// Socket is the path of the unix socket that the CRI is served at; a socket that nobody serves is replaced.
	Socket string
	// StateDir is the folder of records, images and disks. QEMU's user has to be able to get to it. It has to outlive a boot.
	StateDir string
	// RunDir is the folder of sockets; its path has at most 70 bytes.
	RunDir string
	// NetSocket is the network process's.
	NetSocket string
	// LibvirtURI is qemu:///system, or qemu+unix:///system?socket=PATH.
	LibvirtURI string
	// DomainType is "kvm" or "qemu". It is never guessed: /dev/kvm can be there and not work.
	DomainType string
	// Emulator is what libvirt runs in QEMU's place: this program as muster-vm-wrap. QEMU is what that becomes. Both are absolute, and QEMU's user can run them.
	Emulator, QEMU string
	// UID and GID are those that libvirt runs QEMU as.
	UID, GID int
	// Virtiofsd serves directories; "" refuses pods that mount any. ShareServer is how this program is called to become it: see volume.Virtiofsd.Self.
	Virtiofsd   string
	ShareServer []string
	// PodsDir is the kubelet's directory of pods.
	PodsDir string
	// RawDevices are patterns of names below /dev that FlexVolumes of type raw may have: see volume.Options.
	RawDevices []string
	// StreamAddress is where Exec, Attach and PortForward are served: a loopback address and a port, 0 for one that is free.
	StreamAddress string
	// Handlers are the names of RuntimeClass handlers that are answered to.
	Handlers []string
	// SystemdCgroups says that the kubelet's cgroup driver is systemd.
	SystemdCgroups bool
	// Limits are what pods may ask for, and what they get that ask for nothing.
	Limits spec.Node
	// Images are the image store's settings; InUse is filled in here.
	Images image.Options
	// SuspendKey seals machines that are suspended: 32 bytes, the same on all nodes that they can be resumed on. nil: one of this node's own, in StateDir.
	SuspendKey []byte
	// DiagSocket is where this process tells of itself, its metrics included: see package diag. "" for nowhere.
	DiagSocket string
	// Ready, if set, is called once calls are answered.
	Ready func()
}

// Run is the runtime process: it serves the CRI until ctx ends. Machines, their networks and their disks stay when it ends. It returns nil when it was
// ended, and an error where it cannot begin or go on.
func Run(ctx context.Context, c Config, log logr.Logger) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("runtime process: %w", err)
		}
	}()
	libvirtOptions, err := libvirtAt(c.LibvirtURI)
	if err != nil {
		return err
	}
	libvirtOptions.Log = log
	for _, p := range []struct{ name, path string }{
		{"Socket", c.Socket}, {"StateDir", c.StateDir}, {"RunDir", c.RunDir}, {"NetSocket", c.NetSocket}, {"Emulator", c.Emulator}, {"QEMU", c.QEMU},
	} {
		if !filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path {
			return vm.Errorf(vm.Invalid, "%s %q: must be an absolute path, without '..'", p.name, p.path)
		}
	}
	for _, dir := range []string{c.StateDir, c.RunDir} {
		if err := passable(dir); err != nil {
			return err
		}
	}
	records, err := store.Open(filepath.Join(c.StateDir, "runtime.db")) // its lock says that this is the only process
	if err != nil {
		return err
	}
	defer func() { _ = records.Close() }()
	// The server says which images are in use, and needs the store. Before it is there nothing may go.
	var server *runtime.Server
	made := make(chan struct{})
	c.Images.InUse = func() ([]image.Digest, error) {
		select {
		case <-made:
			return server.ImagesInUse()
		default:
			return nil, vm.Errorf(vm.Unavailable, "the records are not read yet")
		}
	}
	images, err := image.Open(filepath.Join(c.StateDir, "images"), c.Images)
	if err != nil {
		return err
	}
	defer func() { _ = images.Close() }()
	folders, err := runtime.OpenFolders(runtime.DiskFolders{
		Dir: filepath.Join(c.StateDir, "containers"), Sockets: filepath.Join(c.RunDir, "s"), UID: c.UID, GID: c.GID,
	})
	if err != nil {
		return err
	}
	if err := console.Probe(folders.Dir); err != nil {
		return err
	}
	if c.SuspendKey == nil {
		if c.SuspendKey, err = suspend.LoadKey(filepath.Join(c.StateDir, "suspend.key")); err != nil {
			return err
		}
	}
	machines := libvirt.Open(ctx, libvirtOptions)
	defer machines.Close()
	consoles := NewConsoles(&console.Owner{UID: c.UID, GID: c.GID}, log)
	defer consoles.End()
	volumes, err := c.volumes(libvirt.Secrets{Of: machines})
	if err != nil {
		return err
	}
	hypervisor := Machines{Of: machines}
	counts := metrics.New("runtime")
	options := runtime.Options{
		Version: c.Version, Handlers: c.Handlers, Limits: c.Limits, SystemdCgroups: c.SystemdCgroups, Streams: runtime.Streaming(c.StreamAddress), Called: counts.Call, Discarded: discarded(counts),
		Domain: domain.Node{DomainType: c.DomainType, Emulator: c.Emulator, QEMU: c.QEMU, CgroupV2: unified(), Virtiofsd: c.Virtiofsd},
	}
	server, err = runtime.New(ctx, runtime.Parts{
		Hypervisor: hypervisor, Agent: hypervisor, Networks: Networks{network.Client{Socket: c.NetSocket}}, Images: images, Volumes: volumes, Folders: folders,
		Consoles: consoles, States: suspend.Store{Key: c.SuspendKey}, Cgroups: Cgroups{runtime.KernelCgroups{Systemd: c.SystemdCgroups, Log: log}, volumes.Manager.Processes}, Host: runtime.Node{}, Records: Records{records},
		Clock: time.Now, IDs: runtime.RandomID,
	}, options, log)
	if err != nil {
		return err
	}
	close(made)
	show(counts, server, images, volumes)
	if err := os.MkdirAll(filepath.Dir(c.Socket), 0o755); err != nil { //nolint:gosec // as /run
		return err
	}
	l, err := socket.Listen(c.Socket, 0o600)
	if err != nil {
		return err
	}
	var beside sync.WaitGroup
	defer beside.Wait()
	own, end := context.WithCancel(ctx)
	defer end()
	beside.Go(func() { sweepImages(own, images, gcEvery, log) })
	if c.DiagSocket != "" {
		beside.Go(func() {
			if err := diag.Serve(own, c.DiagSocket, look(server, images, counts), nil); err != nil {
				log.Error(err, "this process does not tell of itself", "socket", c.DiagSocket)
			}
		})
	}
	log.Info("The CRI is served", "socket", c.Socket, "records", filepath.Join(c.StateDir, "runtime.db"))
	if c.Ready != nil {
		c.Ready()
	}
	return server.Serve(ctx, l)
}

// volumes opens the disks.
func (c Config) volumes(keys volume.Secrets) (Volumes, error) {
	dir := filepath.Join(c.StateDir, "volumes")
	o := volume.Options{Dir: dir, SocketDir: filepath.Join(c.RunDir, "f"), PodsDir: c.PodsDir, RawDevices: c.RawDevices, Secrets: keys, QEMU: &volume.Owner{UID: c.UID, GID: c.GID}}
	if err := passable(o.SocketDir); err != nil {
		return Volumes{}, err
	}
	if c.Virtiofsd != "" {
		o.Daemons = volume.Virtiofsd{Program: c.Virtiofsd, Self: c.ShareServer}
	}
	m, err := volume.Open(o)
	return Volumes{Manager: m, Dir: dir}, err
}

// passable makes a folder that QEMU's user gets through, and nobody reads.
func passable(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // it is passed through
		return err
	}
	return os.Chmod(dir, 0o711) //nolint:gosec // whatever the process's umask
}

// libvirtAt reads a URI. Machines of a user's session and of other hosts are not this node's.
func libvirtAt(uri string) (libvirt.Options, error) {
	bad := vm.Errorf(vm.Invalid, "libvirt URI %q: must be qemu:///system or qemu+unix:///system?socket=PATH, the path absolute", uri)
	u, err := url.Parse(uri)
	if err != nil || u.Host != "" || u.Path != "/system" || u.User != nil {
		return libvirt.Options{}, bad
	}
	socket := u.Query().Get("socket")
	switch {
	case u.Scheme == "qemu" && u.RawQuery == "":
	case u.Scheme == "qemu+unix" && (u.RawQuery == "" || filepath.IsAbs(socket)):
	default:
		return libvirt.Options{}, bad
	}
	return libvirt.Options{Socket: socket}, nil
}
