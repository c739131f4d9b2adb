package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
)

// TestRealPod is a pod on a real kernel, with real plugins: its guest leases, answers on its address and on the node's port, and no DHCP
// leaves it or enters it.
func TestRealPod(t *testing.T) {
	t.Parallel()
	if !onNode(t) {
		return
	}
	ctx, n := t.Context(), newNode(t)
	n.start()
	must(t, n.Status(ctx))
	a, err := n.Add(ctx, Pod{
		ID: "pod1", Namespace: "team-a", Name: "web-0", UID: "u1", PortMappings: []PortMapping{{Protocol: "tcp", ContainerPort: 80, HostPort: 12080}},
		DNS: vm.DNS{Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10")}, Search: []string{"team-a.svc.cluster.local"}},
	})
	must(t, err)
	i := a.Network.Interfaces[0]
	if len(a.Network.Interfaces) != 1 || i.Name != "eth0" || i.MTU != 1450 || fmt.Sprint(i.Addresses) != "[10.89.0.2/24 fd00:89::2/64]" {
		t.Fatalf("network %s", text(t, a.Network))
	}
	router := net.IP{10, 89, 0, 1}
	// Before its address has been asked for, the node hears nothing of the pod but what it was told to hear.
	node := tapInto(t, "cni0")
	g := n.guest(a)
	if g.mac.String() != i.MAC {
		t.Errorf("the tap is for %s, the network says %s", g.mac, i.MAC)
	}
	ack := g.lease()
	mask, _ := ack.SubnetMask().Size()
	if ack.YourIPAddr.String() != "10.89.0.2" || mask != 24 || !ack.Router()[0].Equal(router) || ack.ServerIdentifier().String() != "169.254.254.2" ||
		ack.HostName() != "web-0" || ack.DomainName() != "team-a.svc.cluster.local" || ack.DNS()[0].String() != "10.96.0.10" {
		t.Errorf("leased %s", ack.Summary())
	}
	l, err := n.List(ctx)
	must(t, err)
	if len(l) != 1 || len(l[0].Leases) != 1 || l[0].Leases[0].Address.String() != "10.89.0.2" {
		t.Errorf("listed %s", text(t, l))
	}

	t.Run("a renewal that goes to the router is answered in the pod", func(t *testing.T) {
		// A guest sends to 169.254.254.2 by its default route: to the router's MAC.
		cni0, err := netlink.LinkByName("cni0")
		must(t, err)
		again := g.ask(cni0.Attrs().HardwareAddr, "10.89.0.2", "169.254.254.2", dhcpv4.MessageTypeRequest, dhcpv4.WithClientIP(ack.YourIPAddr))
		if again.MessageType() != dhcpv4.MessageTypeAck {
			t.Errorf("renewed %s", again.Summary())
		}
	})
	t.Run("another address is refused", func(t *testing.T) {
		no := g.ask(everybody(), "0.0.0.0", "255.255.255.255", dhcpv4.MessageTypeRequest, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IP{192, 168, 1, 5})))
		if no.MessageType() != dhcpv4.MessageTypeNak {
			t.Errorf("answered %s", no.Summary())
		}
	})
	t.Run("no DHCP leaves the pod", func(t *testing.T) {
		// A guest that answers others' questions is no better than one that asks.
		g.send(udpFrame(everybody(), g.mac, "10.89.0.2", "255.255.255.255", 67, 68, []byte("rogue")))
		g.send(udpFrame(everybody(), g.mac, "0.0.0.0", "255.255.255.255", 68, 67, []byte("no message")))
		g.send(udpFrame(everybody(), g.mac, "10.89.0.2", "255.255.255.255", 4000, 4001, []byte("marker")))
		node.until(func(f []byte) bool {
			if isUDP(f, 67) || isUDP(f, 68) {
				t.Errorf("the node hears %x", f[:42])
			}
			return isUDP(f, 4001)
		})
	})
	t.Run("it is the filter that keeps it, and it is put back", func(t *testing.T) {
		must(t, inside(a.Netns, func() error {
			k, err := netlink.LinkByName("tap0")
			if err != nil {
				return err
			}
			return netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: k.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
		}))
		g.send(udpFrame(everybody(), g.mac, "0.0.0.0", "255.255.255.255", 68, 67, []byte("no message")))
		node.until(func(f []byte) bool { return isUDP(f, 67) })
		_, err := n.Recover(ctx, "pod1")
		must(t, err)
		g.send(udpFrame(everybody(), g.mac, "0.0.0.0", "255.255.255.255", 68, 67, []byte("no message")))
		g.send(udpFrame(everybody(), g.mac, "10.89.0.2", "255.255.255.255", 4000, 4001, []byte("marker")))
		node.until(func(f []byte) bool {
			if isUDP(f, 67) {
				t.Error("a recovered pod has no filter")
			}
			return isUDP(f, 4001)
		})
	})
	t.Run("no DHCP enters the pod", func(t *testing.T) {
		outside := tapInto(t, "cni0")
		from := net.HardwareAddr{2, 0, 0, 0, 0, 7}
		outside.send(udpFrame(everybody(), from, "10.89.0.9", "255.255.255.255", 67, 68, []byte("rogue offer")))
		outside.send(udpFrame(everybody(), from, "0.0.0.0", "255.255.255.255", 68, 67, []byte("another pod's question")))
		outside.send(udpFrame(everybody(), from, "10.89.0.9", "255.255.255.255", 4000, 4001, []byte("marker")))
		g.until(func(f []byte) bool {
			if isUDP(f, 67) || isUDP(f, 68) {
				t.Errorf("the guest hears %x", f[:42])
			}
			return isUDP(f, 4001)
		})
	})
	t.Run("the guest answers", func(t *testing.T) {
		netns := g.boots(netip.MustParsePrefix("10.89.0.2/24"), netip.MustParseAddr("10.89.0.1"))
		var server net.Listener
		must(t, inside(netns, func() (err error) {
			server, err = net.Listen("tcp4", "10.89.0.2:80")
			return err
		}))
		defer server.Close()
		go func() {
			for {
				c, err := server.Accept()
				if err != nil {
					return
				}
				_, _ = io.WriteString(c, "guest\n")
				_ = c.Close()
			}
		}()
		for _, at := range []string{"10.89.0.2:80", "10.89.0.1:12080"} {
			d := net.Dialer{Timeout: patience}
			c, err := d.DialContext(ctx, "tcp4", at)
			if err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			b, err := io.ReadAll(c)
			_ = c.Close()
			if err != nil || string(b) != "guest\n" {
				t.Errorf("%s said %q, %v", at, b, err)
			}
		}
	})
	must(t, n.Release(ctx, "pod1"))
}

// TestRealIPv6 is a guest that has nothing but what its card tells it: its kernel takes the router of an advertisement, DHCPv6 gives it the
// address that the pod's status has, and both reach what is behind the gateway, also when the gateway has got another MAC. None of it is
// heard outside, and the network's own routers are not heard inside.
func TestRealIPv6(t *testing.T) {
	t.Parallel()
	if !onNode(t) {
		return
	}
	ctx, n := t.Context(), newNode(t)
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0o644))
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("fd00:77::1/128"))}))
	n.start()
	a, err := n.Add(ctx, Pod{ID: "pod1", Namespace: "team-a", Name: "web-0", UID: "u1", DNS: vm.DNS{Servers: []netip.Addr{netip.MustParseAddr("fd00:96::10")}}})
	must(t, err)
	node := tapInto(t, "cni0")
	g := n.guest(a)
	reply := g.lease6()
	ia := reply.Options.OneIANA()
	if len(ia.Options.Addresses()) != 1 || ia.Options.OneAddress().IPv6Addr.String() != "fd00:89::2" || fmt.Sprint(reply.Options.DNS()) != "[fd00:96::10]" {
		t.Errorf("leased %s", reply.Summary())
	}
	l, err := n.List(ctx)
	must(t, err)
	if len(l) != 1 || len(l[0].Leases) != 1 || l[0].Leases[0].Address.String() != "fd00:89::2" {
		t.Errorf("listed %s", text(t, l))
	}
	t.Run("nothing of it leaves the pod", func(t *testing.T) {
		g.send(udpFrame6(g.mac, "ff02::1:2", 546, 547, []byte("no message")))
		for _, kind := range []byte{133, 134} {
			f := udpFrame6(g.mac, "ff02::2", 0, 0, make([]byte, 8))
			f[20], f[54] = 58, kind
			g.send(f)
		}
		g.send(udpFrame6(g.mac, "ff02::1", 4000, 4001, []byte("marker")))
		node.until(func(f []byte) bool {
			if isUDP6(f, 546) || isUDP6(f, 547) || icmp6(f) == 133 || icmp6(f) == 134 {
				t.Errorf("the node hears %x", f)
			}
			return isUDP6(f, 4001)
		})
	})
	t.Run("nothing of it enters the pod", func(t *testing.T) {
		outside := tapInto(t, "cni0")
		f := udpFrame6(net.HardwareAddr{2, 0, 0, 0, 0, 7}, "ff02::1", 0, 0, make([]byte, 8))
		f[20], f[54] = 58, 134
		outside.send(f)
		outside.send(udpFrame6(net.HardwareAddr{2, 0, 0, 0, 0, 7}, "ff02::1", 4000, 4001, []byte("marker")))
		g.until(func(f []byte) bool {
			if icmp6(f) == 134 && net.HardwareAddr(f[6:12]).String() == "02:00:00:00:00:07" {
				t.Errorf("the guest hears another router: %x", f)
			}
			return isUDP6(f, 4001)
		})
	})
	netns := g.boots(netip.MustParsePrefix("fd00:89::2/128"), netip.Addr{})
	// dials fetches what a server at the far side says, from within the guest.
	server, err := net.Listen("tcp6", "[fd00:77::1]:80")
	must(t, err)
	defer server.Close()
	go func() {
		for {
			c, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, c.RemoteAddr().(*net.TCPAddr).IP.String())
			_ = c.Close()
		}
	}()
	dials := func() (said string, err error) {
		tick := time.NewTicker(100 * time.Millisecond) // between two attempts of a guest whose kernel is still asking
		defer tick.Stop()
		for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
			err = inside(netns, func() error {
				d := net.Dialer{Timeout: 2 * time.Second}
				c, err := d.DialContext(ctx, "tcp6", "[fd00:77::1]:80")
				if err != nil {
					return err
				}
				defer c.Close()
				b, err := io.ReadAll(c)
				said = string(b)
				return err
			})
			if err == nil {
				return said, nil
			}
		}
		return "", err
	}
	routes := func() string {
		var out string
		must(t, inside(netns, func() error {
			k, err := netlink.LinkByName("card")
			if err != nil {
				return err
			}
			all, err := netlink.RouteList(k, netlink.FAMILY_V6)
			neighbours, _ := netlink.NeighList(k.Attrs().Index, netlink.FAMILY_V6)
			out = fmt.Sprint(all, neighbours)
			return err
		}))
		return out
	}
	said, err := dials()
	if err != nil || said != "fd00:89::2" {
		t.Fatalf("the far side sees %q: %v; the guest has %s", said, err, routes())
	}
	if all := routes(); !strings.Contains(all, "fe80::a9fe:fe02:0:1") {
		t.Errorf("the guest's routes are %s", all)
	}
	if links := func() (out string) {
		must(t, inside(netns, func() error {
			k, err := netlink.LinkByName("card")
			if err != nil {
				return err
			}
			all, err := netlink.AddrList(k, netlink.FAMILY_V6)
			for _, a := range all {
				if !a.IP.IsLinkLocalUnicast() {
					out += a.IPNet.String() + " "
				}
			}
			return err
		}))
		return out
	}(); links != "fd00:89::2/128 " {
		t.Errorf("the guest made addresses of its own: %s", links)
	}
	// The gateway's link is made anew, or another node takes over: its MAC is another.
	cni0, err := netlink.LinkByName("cni0")
	must(t, err)
	must(t, netlink.LinkSetHardwareAddr(cni0, net.HardwareAddr{2, 0, 0, 0, 0x99, 0x99}))
	if said, err := dials(); err != nil || said != "fd00:89::2" {
		t.Errorf("after the gateway has moved, the far side sees %q: %v; the guest has %s", said, err, routes())
	}
	must(t, n.Release(ctx, "pod1"))
}

// TestRealRestart kills the network process. The tap that a machine holds goes on carrying frames meanwhile, DHCP is answered afterwards,
// nobody else gets the tap, and the next machine of the pod does when the first has gone.
func TestRealRestart(t *testing.T) {
	t.Parallel()
	if !onNode(t) {
		return
	}
	ctx, n := t.Context(), newNode(t)
	n.start()
	a, err := n.Add(ctx, Pod{ID: "pod1", Namespace: "team-a", Name: "web-0", UID: "u1"})
	must(t, err)
	waiting, err := n.Add(ctx, Pod{ID: "pod2", Namespace: "team-a", Name: "web-1", UID: "u2"})
	must(t, err)
	g := n.guest(a)
	first := g.lease()
	n.kill()
	must(t, os.WriteFile(filepath.Join(n.config.NetnsDir, "nobody"), nil, 0o644))
	node := tapInto(t, "cni0")
	g.send(udpFrame(everybody(), g.mac, "10.89.0.2", "255.255.255.255", 4000, 4001, []byte("marker")))
	node.until(func(f []byte) bool { return isUDP(f, 4001) })
	if _, err := n.List(ctx); vm.KindOf(err) != vm.Unavailable {
		t.Errorf("a process that is gone is %v", err)
	}
	n.start()
	if again := g.lease(); !again.YourIPAddr.Equal(first.YourIPAddr) {
		t.Errorf("leased %s, was %s", again.YourIPAddr, first.YourIPAddr)
	}
	if _, err := os.Stat(filepath.Join(n.config.NetnsDir, "nobody")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a namespace of nobody's is still there: %v", err)
	}
	b, err := n.Recover(ctx, "pod1")
	must(t, err)
	if d := cmp.Diff(a.Network, b.Network, cmp.Comparer(func(x, y netip.Addr) bool { return x == y }), cmp.Comparer(func(x, y netip.Prefix) bool { return x == y })); d != "" {
		t.Errorf("recovered another network (-added +recovered):\n%s", d)
	}
	_, _, err = n.Get(ctx, "pod1", b.Token)
	kind(t, err, vm.Conflict)
	// The machine ends. It was hostile, and took the tap with it.
	raw, err := g.tap.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) { must(t, unix.IoctlSetInt(int(fd), unix.TUNSETPERSIST, 0)) }))
	must(t, g.tap.Close())
	next := n.guest(b)
	if got := next.lease(); !got.YourIPAddr.Equal(first.YourIPAddr) {
		t.Errorf("the next machine leased %s, the first %s", got.YourIPAddr, first.YourIPAddr)
	}
	// A pod whose taps nobody had fetched yet.
	if got := n.guest(waiting).lease(); got.YourIPAddr.String() != "10.89.0.3" {
		t.Errorf("the pod that waited leased %s", got.YourIPAddr)
	}
	must(t, n.Release(ctx, "pod1"))
	must(t, n.Release(ctx, "pod2"))
}

// TestRealComings has pods come and go, several at once, and compares what is there before and after.
func TestRealComings(t *testing.T) {
	t.Parallel()
	if !onNode(t) {
		return
	}
	pods := 8
	if s := os.Getenv(podsEnv); s != "" {
		var err error
		pods, err = strconv.Atoi(s)
		must(t, err)
	}
	ctx, n := t.Context(), newNode(t)
	n.start()
	life := func(i int) error {
		id := fmt.Sprint("pod", i)
		a, err := n.Add(ctx, Pod{ID: id, Namespace: "team-a", Name: id, UID: id, PortMappings: []PortMapping{{Protocol: "tcp", ContainerPort: 80, HostPort: 13000 + i}}})
		if err != nil {
			return err
		}
		_, files, err := n.Get(ctx, id, a.Token)
		if err != nil {
			return err
		}
		// The machine may still be there when its pod goes.
		defer func() {
			for _, f := range files {
				_ = f.Close()
			}
		}()
		return n.Release(ctx, id)
	}
	// The first makes what plugins keep: the bridge, their chains, their folders; and what a process opens once.
	must(t, life(0))
	before := n.inventory()
	var all sync.WaitGroup
	room := make(chan struct{}, 4)
	for i := 1; i <= pods; i++ {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			if err := life(i); err != nil {
				t.Errorf("pod %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if d := cmp.Diff(before, n.inventory()); d != "" {
		t.Errorf("%d pods left (-before +after):\n%s", pods, d)
	}
	t.Logf("%d pods came and went", pods)
}

// killer forbids every change of a process from one of them on, which is as if it had been killed before it.
type killer struct {
	mu     sync.Mutex
	count  int
	killAt int
	last   string
}

func (k *killer) may(change string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.count++
	if k.killAt > 0 && k.count >= k.killAt {
		if k.count == k.killAt {
			k.last = change
		}
		return errKilled
	}
	return nil
}

type killedRecords struct {
	*boltRecords
	k *killer
}

func (r killedRecords) put(rec record) error {
	if err := r.k.may("write " + rec.Phase); err != nil {
		return err
	}
	return r.boltRecords.put(rec)
}

func (r killedRecords) remove(id string) error {
	if err := r.k.may("delete record"); err != nil {
		return err
	}
	return r.boltRecords.remove(id)
}

type killedPlugins struct {
	*cni
	k *killer
}

func (p killedPlugins) add(ctx context.Context, conf []byte, a attachment) (*types100.Result, error) {
	if err := p.k.may("ADD"); err != nil {
		return nil, err
	}
	return p.cni.add(ctx, conf, a)
}

func (p killedPlugins) del(ctx context.Context, conf []byte, a attachment) error {
	if err := p.k.may("DEL"); err != nil {
		return err
	}
	return p.cni.del(ctx, conf, a)
}

// TestRealKills ends the process before each of its changes to a real machine, and starts it again: the pod is whole or gone, and after
// its release nothing is left.
func TestRealKills(t *testing.T) {
	t.Parallel()
	if !onNode(t) {
		return
	}
	ctx, n := t.Context(), newNode(t)
	dir := filepath.Dir(n.config.Socket)
	// Port mappings have no part in this, and take their time.
	must(t, os.WriteFile(filepath.Join(n.config.CNIConfDir, "10-podnet.conflist"), fmt.Appendf(nil, conflist, false, filepath.Join(dir, "leases"), ""), 0o644))
	config, err := n.config.whole()
	must(t, err)
	must(t, os.MkdirAll(config.StateDir, 0o755))
	process := func(k *killer, act func(m *Manager)) {
		db, err := openRecords(filepath.Join(config.StateDir, "network.db"))
		must(t, err)
		db.db.NoSync = true
		defer func() { must(t, db.close()) }()
		m := newManager(config, &linux{dir: config.NetnsDir, fault: k.may}, killedPlugins{newCNI(config), k}, killedRecords{db, k}, logr.Discard())
		defer m.silence()
		act(m)
	}
	life := func(m *Manager) {
		if a, err := m.Add(ctx, Pod{ID: "p", Namespace: "ns", Name: "p", UID: "u"}); err == nil {
			_, fds, _ := m.Get(ctx, "p", a.Token)
			closeAll(fds)
			_ = m.Release(ctx, "p")
		}
	}
	whole := &killer{}
	process(whole, life)
	before := n.inventory()
	if whole.count < 30 {
		t.Fatalf("a life has %d changes; the test counts too few", whole.count)
	}
	lived := 0
	for at := 1; at <= whole.count; at++ {
		k := &killer{killAt: at}
		process(k, life)
		process(&killer{}, func(m *Manager) {
			if err := m.reconcile(ctx); err != nil {
				t.Fatalf("killed before %q: %v", k.last, err)
			}
			l, err := m.List()
			must(t, err)
			if len(l) == 0 {
				return
			}
			lived++
			a, err := m.Recover(ctx, "p")
			if err != nil {
				t.Fatalf("killed before %q: %v", k.last, err)
			}
			_, fds, err := m.Get(ctx, "p", a.Token)
			if err != nil {
				t.Fatalf("killed before %q: %v", k.last, err)
			}
			closeAll(fds)
			if err := m.Release(ctx, "p"); err != nil {
				t.Fatalf("killed before %q: %v", k.last, err)
			}
		})
		if d := cmp.Diff(before, n.inventory()); d != "" {
			t.Fatalf("killed before %q: left (-before +after):\n%s", k.last, d)
		}
	}
	t.Logf("killed before each of %d changes; after %d of them the pod lived on", whole.count, lived)
	if lived == 0 {
		t.Error("no pod lived on")
	}
}

// TestRealInterfaces: a pod with two interfaces, of which the result names one, has two cards, each with its own tap and lease; a link
// that cannot be joined is refused by name.
func TestRealInterfaces(t *testing.T) {
	t.Parallel()
	if !onNode(t) {
		return
	}
	l := &linux{dir: t.TempDir()}
	path := filepath.Join(l.dir, "p")
	must(t, l.makeNetns(path))
	defer func() { must(t, l.removeNetns(path)) }()
	if !l.alive(path) {
		t.Fatal("a new namespace is not there")
	}
	must(t, inside(path, func() error {
		for i, name := range []string{"eth0", "net1"} {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = name
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "peer" + name}); err != nil {
				return err
			}
			for _, end := range []string{name, "peer" + name} {
				k, err := netlink.LinkByName(end)
				if err != nil {
					return err
				}
				if err := netlink.LinkSetUp(k); err != nil {
					return err
				}
				if end == name {
					if err := netlink.AddrAdd(k, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix(fmt.Sprintf("10.%d.0.2/24", i+1)))}); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}))
	links, err := l.links(path)
	must(t, err)
	// The far ends are in the namespace too; they are not the plugin's doing.
	var near []Link
	for _, k := range links {
		if k.Name == "eth0" || k.Name == "net1" {
			near = append(near, k)
		}
	}
	result := &types100.Result{IPs: []*types100.IPConfig{{Address: net.IPNet{IP: net.IP{10, 1, 0, 2}, Mask: net.CIDRMask(24, 32)}}}}
	cs, err := cards(result, near, newMAC)
	must(t, err)
	if len(cs) != 2 || cs[1].Name != "net1" || fmt.Sprint(cs[1].Addresses) != "[10.2.0.2/24]" {
		t.Fatalf("cards %s", text(t, cs))
	}
	ports, err := l.join(path, cs)
	must(t, err)
	again, err := l.join(path, cs)
	must(t, err)
	if d := cmp.Diff(ports, again); d != "" || ports[0].Tap == ports[1].Tap {
		t.Errorf("joined again, it is not the same (-first +second):\n%s", d)
	}
	fds, err := l.open(path, cs)
	must(t, err)
	if _, err := l.open(path, cs); !errors.Is(err, unix.EBUSY) {
		t.Errorf("taps that are held open again: %v", err)
	}
	closeAll(fds)
	must(t, l.part(path, cs))
	back, err := l.links(path)
	must(t, err)
	for i := range back {
		if back[i].Name == "eth0" && (back[i].MAC != cs[0].MAC || fmt.Sprint(back[i].Addresses) != "[10.1.0.2/24]") {
			t.Errorf("given back %s", text(t, back[i]))
		}
	}
	if bytes.Contains([]byte(text(t, back)), []byte(`"tap0"`)) {
		t.Error("a tap is left")
	}
}
