package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/muster-scheduler/muster/internal/vm/metrics"
	"github.com/muster-scheduler/muster/internal/vm/network/dhcp"
	"github.com/muster-scheduler/muster/internal/vm/socket"
)

// socketMode: anybody may connect; the kernel says who does, and that decides.
const socketMode = 0o666

// Config says where a network process has its things.
type Config struct {
	// Socket is the path of the unix socket; whatever socket is there is replaced.
	Socket string
	// StateDir is the folder of the database and of CNI's cache. It should outlive a boot of the node, so that what CNI keeps on disk for
	// pods of before is given back.
	StateDir string
	// NetnsDir is the folder of the pods' network namespaces; it is this process's alone.
	NetnsDir string
	// CNIBinDirs are the folders of CNI plugins, CNIConfDir that of their configuration.
	CNIBinDirs []string
	CNIConfDir string
	// NetworksAreOurs says that no other runtime of the node adds pods to the networks of CNIConfDir. Only then are plugins told which
	// attachments there are (CNI's GC): beside containerd, they would take the addresses of its pods away.
	NetworksAreOurs bool
	// AdminUIDs are the users that may call everything. Empty: the one that runs this process.
	AdminUIDs []uint32
	// GetUIDs are the users that may Get taps besides: the one that libvirt runs QEMU as.
	GetUIDs []uint32
	// Lease is how long DHCP gives an address for. 0: a day.
	Lease time.Duration
	// FallbackDNS is told to guests of pods that have no resolver of IPv4.
	FallbackDNS []netip.Addr
	// MaxPods bounds the pods of the node. 0: 1024.
	MaxPods int
	// CNITimeout bounds an ADD, a DEL and the like. 0: a minute.
	CNITimeout time.Duration
	// Grace is how long calls under way have to end when the process is told to. 0: ten seconds.
	Grace time.Duration
	// Metrics has this process's calls, pods, and what guests ask by DHCP. nil: nobody counts.
	Metrics *metrics.Set `json:"-"`
	// Ready, if set, is called once calls are answered.
	Ready func() `json:"-"`
}

// whole fills in defaults, and says what is missing.
func (c Config) whole() (Config, error) {
	for _, f := range []struct{ name, value string }{{"Socket", c.Socket}, {"StateDir", c.StateDir}, {"NetnsDir", c.NetnsDir}, {"CNIConfDir", c.CNIConfDir}} {
		if f.value == "" {
			return c, fmt.Errorf("network process: %s is needed", f.name)
		}
	}
	if len(c.CNIBinDirs) == 0 {
		return c, errors.New("network process: CNIBinDirs: at least one folder is needed")
	}
	if c.Lease != 0 && c.Lease < time.Minute {
		return c, fmt.Errorf("network process: Lease %s: it must be a minute or more", c.Lease)
	}
	if c.MaxPods < 0 || c.CNITimeout < 0 || c.Grace < 0 {
		return c, fmt.Errorf("network process: MaxPods %d, CNITimeout %s, Grace %s: none may be negative", c.MaxPods, c.CNITimeout, c.Grace)
	}
	for _, dir := range []*string{&c.StateDir, &c.NetnsDir} {
		abs, err := filepath.Abs(*dir)
		if err != nil {
			return c, fmt.Errorf("network process: %w", err)
		}
		*dir = abs
	}
	if len(c.AdminUIDs) == 0 {
		c.AdminUIDs = []uint32{uint32(os.Geteuid())}
	}
	for _, d := range []struct {
		value *time.Duration
		is    time.Duration
	}{{&c.Lease, 24 * time.Hour}, {&c.CNITimeout, time.Minute}, {&c.Grace, 10 * time.Second}} {
		if *d.value == 0 {
			*d.value = d.is
		}
	}
	if c.MaxPods == 0 {
		c.MaxPods = 1024
	}
	return c, nil
}

// Run is the network process: it puts in order what it finds, and answers calls until ctx ends. Namespaces, links, taps and addresses
// stay when it ends; only DHCP is not answered until it runs again.
func Run(ctx context.Context, c Config, log logr.Logger) error {
	c, err := c.whole()
	if err != nil {
		return err
	}
	for _, dir := range []string{c.StateDir, c.NetnsDir, filepath.Dir(c.Socket)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("network process: %w", err)
		}
	}
	// Its lock says that this is the only process; what follows may touch what another would own.
	db, err := openRecords(filepath.Join(c.StateDir, "network.db"))
	if err != nil {
		return fmt.Errorf("network process: %w", err)
	}
	defer func() { _ = db.close() }()
	m := newManager(c, &linux{dir: c.NetnsDir}, newCNI(c), db, log)
	defer m.silence()
	m.heard = c.Metrics.Counter("muster_vm_dhcp_events_total", "What guests asked by DHCP, by what became of it.", "event", dhcp.Events()...)
	c.Metrics.Gauge("muster_vm_networks", "Pods that have a network, or are getting or losing one.", "", func() map[string]float64 {
		m.mu.Lock()
		defer m.mu.Unlock()
		return map[string]float64{"": float64(m.count)}
	})
	// Calls outlive ctx for the grace.
	ops, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(c.Grace)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-ops.Done():
		}
	})
	defer stop()
	if err := m.reconcile(ops); err != nil {
		return fmt.Errorf("network process: %w", err)
	}
	l, err := socket.Listen(c.Socket, socketMode)
	if err != nil {
		return fmt.Errorf("network process: %w", err)
	}
	defer func() { _ = l.Close() }()
	shut := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer shut()
	var background sync.WaitGroup
	defer background.Wait()
	tidying, endTidying := context.WithCancel(ctx)
	defer endTidying()
	background.Go(func() { m.janitor(tidying, ops, time.Minute) })
	if c.Ready != nil {
		c.Ready()
	}
	s := &server{manager: m, admins: c.AdminUIDs, getters: c.GetUIDs, log: log, who: peer, called: c.Metrics.Call}
	if err := s.serve(ops, l.UnixListener); err != nil {
		return fmt.Errorf("network process: %w", err)
	}
	return nil
}

func newManager(c Config, machine machine, plugins plugins, records records, log logr.Logger) *Manager {
	return &Manager{
		machine: machine, plugins: plugins, records: records, netnsDir: c.NetnsDir, lease: c.Lease, fallback: c.FallbackDNS, maxPods: c.MaxPods,
		timeout: 2 * c.CNITimeout, log: log, locks: map[string]*podLock{}, dhcp: map[string]*dhcp.Server{},
	}
}
