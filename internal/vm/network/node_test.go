package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// The tests on a real kernel run in a process of their own, which has its own network and mounts: the machine's stay as they are. In it
// the network process under test is a third process, so that it can be killed.
const (
	nodeEnv    = "MUSTER_TEST_NETWORK_NODE"    // set: this process is the node
	processEnv = "MUSTER_TEST_NETWORK_PROCESS" // set: this process is the network process, with this Config
	podsEnv    = "MUSTER_TEST_NETWORK_PODS"    // how many pods come and go
	pluginDir  = "/usr/lib/cni"                // where Debian has them
	patience   = 30 * time.Second
)

func TestMain(m *testing.M) {
	if c := os.Getenv(processEnv); c != "" {
		os.Exit(serve(c))
	}
	os.Exit(m.Run())
}

// serve is the network process. It says "ready", and ends when it is told to.
func serve(config string) int {
	var c Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		fmt.Println(err)
		return 2
	}
	c.Ready = func() { fmt.Println("ready") }
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{})
	if err := Run(ctx, c, log); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// onNode runs the calling test on a node of its own, and says whether this is the node. Elsewhere it skips, loudly.
func onNode(t *testing.T) bool {
	t.Helper()
	if os.Getenv(nodeEnv) != "" {
		prepareNode(t)
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT CHECKED: real network namespaces, taps and CNI plugins need root")
	}
	for _, p := range []string{"bridge", "host-local", "portmap"} {
		if _, err := os.Stat(filepath.Join(pluginDir, p)); err != nil {
			t.Skipf("NOT CHECKED: the CNI plugin %s is not there (Debian: containernetworking-plugins): %v", p, err)
		}
	}
	for _, p := range []string{"iptables", "ip6tables"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT CHECKED: the CNI plugin portmap needs %s: %v", p, err)
		}
	}
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		t.Skipf("NOT CHECKED: this machine has no taps: %v", err)
	} else {
		_ = f.Close()
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), nodeEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("NOT CHECKED: this root may not make network namespaces: %v", err)
	}
	t.Logf("on the node:\n%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

func prepareNode(t *testing.T) {
	t.Helper()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	must(t, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node is a place for a network process: folders, a CNI configuration, and the process.
type node struct {
	Client
	t       *testing.T
	config  Config
	process *exec.Cmd
}

// conflist is a network with both families, port mappings and an MTU. Its leases are files in a folder of the test's.
const conflist = `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": %t, "mtu": 1450,
   "ipam": {"type": "host-local", "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    "ranges": [[{"subnet": "10.89.0.0/24"}], [{"subnet": "fd00:89::/64"}]]}}%s]}`

const withPorts = `, {"type": "portmap", "capabilities": {"portMappings": true}}`

func newNode(t *testing.T) *node {
	t.Helper()
	dir := t.TempDir()
	c := Config{
		Socket: filepath.Join(dir, "net.sock"), StateDir: filepath.Join(dir, "state"), NetnsDir: filepath.Join(dir, "netns"),
		CNIBinDirs: []string{pluginDir}, CNIConfDir: filepath.Join(dir, "conf"),
	}
	must(t, os.MkdirAll(c.CNIConfDir, 0o755))
	must(t, os.MkdirAll(c.NetnsDir, 0o755))
	must(t, os.WriteFile(filepath.Join(c.CNIConfDir, "10-podnet.conflist"), fmt.Appendf(nil, conflist, true, filepath.Join(dir, "leases"), withPorts), 0o644))
	return &node{Client: Client{Socket: c.Socket}, t: t, config: c}
}

// start runs the network process until stop or the end of the test, and waits until it answers.
func (n *node) start() {
	n.t.Helper()
	raw, err := json.Marshal(n.config)
	must(n.t, err)
	n.process = exec.Command(os.Args[0])
	n.process.Env = append(os.Environ(), processEnv+"="+string(raw))
	n.process.Stderr = os.Stderr
	out, err := n.process.StdoutPipe()
	must(n.t, err)
	must(n.t, n.process.Start())
	n.t.Cleanup(n.kill)
	line := make([]byte, 6)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "ready\n" {
		n.t.Fatalf("the network process said %q: %v", line, err)
	}
}

func (n *node) kill() {
	if n.process != nil {
		_ = n.process.Process.Kill()
		_ = n.process.Wait()
		n.process = nil
	}
}

// inventory is all that pods could leave: links of the node, mounts, files, rules, and descriptors of the network process.
func (n *node) inventory() string {
	n.t.Helper()
	links, err := netlink.LinkList()
	must(n.t, err)
	var out []string
	for _, l := range links {
		out = append(out, "link "+l.Attrs().Name)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	must(n.t, err)
	for _, m := range strings.Split(string(mounts), "\n") {
		if f := strings.Fields(m); len(f) > 4 && strings.HasPrefix(f[4], filepath.Dir(n.config.Socket)) {
			out = append(out, "mount "+f[4])
		}
	}
	must(n.t, filepath.WalkDir(filepath.Dir(n.config.Socket), func(path string, _ os.DirEntry, err error) error {
		// host-local keeps the last address of each range, so as not to give it again at once.
		if !strings.Contains(path, "last_reserved_ip") {
			out = append(out, "file "+path)
		}
		return err
	}))
	for _, cmd := range []string{"iptables-save", "ip6tables-save"} {
		rules, err := exec.Command(cmd).Output()
		if err != nil {
			n.t.Fatalf("%s: %v", cmd, err)
		}
		for _, r := range strings.Split(string(rules), "\n") {
			// Chains that plugins share stay with them; their counters say nothing.
			if strings.HasPrefix(r, "-A") {
				out = append(out, cmd+" "+r)
			}
		}
	}
	if n.process != nil {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", n.process.Process.Pid))
		must(n.t, err)
		out = append(out, fmt.Sprintf("%d descriptors", len(fds)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// guest is the far end of a tap: what QEMU would be.
type guest struct {
	t   *testing.T
	tap *os.File
	mac net.HardwareAddr
	xid byte
}

// vnetHeader is struct virtio_net_hdr, which stands before each frame of a tap with IFF_VNET_HDR. All zero: nothing is offloaded.
const vnetHeader = 10

func (n *node) guest(a Attached) *guest {
	n.t.Helper()
	taps, files, err := n.Get(n.t.Context(), filepath.Base(a.Netns), a.Token)
	must(n.t, err)
	if len(taps) != 1 || len(files) != 1 {
		n.t.Fatalf("got %d taps, %d files", len(taps), len(files))
	}
	mac, err := net.ParseMAC(taps[0].MAC)
	must(n.t, err)
	// Anew: Go waits for what it knows to be non-blocking, which a descriptor from elsewhere may be.
	fd, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(n.t, err)
	must(n.t, unix.SetNonblock(fd, true))
	_ = files[0].Close()
	g := &guest{t: n.t, tap: os.NewFile(uintptr(fd), "tap"), mac: mac}
	n.t.Cleanup(func() { _ = g.tap.Close() })
	return g
}

func (g *guest) send(frame []byte) {
	g.t.Helper()
	_, err := g.tap.Write(append(make([]byte, vnetHeader), frame...))
	must(g.t, err)
}

// until reads frames until one is wanted.
func (g *guest) until(wanted func(frame []byte) bool) []byte {
	g.t.Helper()
	f, err := g.within(patience, wanted)
	must(g.t, err)
	return f
}

// within is until, for no longer than some time.
func (g *guest) within(limit time.Duration, wanted func(frame []byte) bool) ([]byte, error) {
	g.t.Helper()
	must(g.t, g.tap.SetReadDeadline(time.Now().Add(limit)))
	b := make([]byte, 65536)
	for {
		n, err := g.tap.Read(b)
		if err != nil {
			return nil, err
		}
		if f := b[min(n, vnetHeader):n]; wanted(f) {
			return bytes.Clone(f), nil
		}
	}
}

// ask sends a DHCP message to an Ethernet and an IP address until it is answered, as clients do: a tap that has just been opened may lose
// what is sent into it until the kernel has seen that it is.
func (g *guest) ask(to net.HardwareAddr, src, dst string, kind dhcpv4.MessageType, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	g.t.Helper()
	g.xid++
	m := &dhcpv4.DHCPv4{OpCode: dhcpv4.OpcodeBootRequest, HWType: iana.HWTypeEthernet, TransactionID: dhcpv4.TransactionID{9, 9, 9, g.xid}, ClientHWAddr: g.mac, Options: dhcpv4.Options{}}
	m.UpdateOption(dhcpv4.OptMessageType(kind))
	for _, c := range change {
		c(m)
	}
	var out *dhcpv4.DHCPv4
	answer := func(f []byte) bool {
		if !isUDP(f, 68) {
			return false
		}
		a, err := dhcpv4.FromBytes(f[42:])
		if err != nil || a.TransactionID != m.TransactionID {
			return false
		}
		out = a
		return true
	}
	for end := time.Now().Add(patience); ; {
		g.send(udpFrame(to, g.mac, src, dst, 68, 67, m.ToBytes()))
		_, err := g.within(time.Second, answer)
		if err == nil {
			return out
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			must(g.t, err)
		}
	}
}

// lease is a guest's first minutes: DISCOVER, REQUEST.
func (g *guest) lease() *dhcpv4.DHCPv4 {
	g.t.Helper()
	offer := g.ask(everybody(), "0.0.0.0", "255.255.255.255", dhcpv4.MessageTypeDiscover)
	if offer.MessageType() != dhcpv4.MessageTypeOffer {
		g.t.Fatalf("offered %s", offer.Summary())
	}
	ack := g.ask(everybody(), "0.0.0.0", "255.255.255.255", dhcpv4.MessageTypeRequest,
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())))
	if ack.MessageType() != dhcpv4.MessageTypeAck {
		g.t.Fatalf("acknowledged %s", ack.Summary())
	}
	return ack
}

// ask6 is ask for DHCPv6, from a link-local address.
func (g *guest) ask6(kind dhcpv6.MessageType, options ...dhcpv6.Option) *dhcpv6.Message {
	g.t.Helper()
	g.xid++
	m := &dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{9, 9, g.xid}}
	m.AddOption(dhcpv6.OptClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: g.mac}))
	for _, o := range options {
		m.AddOption(o)
	}
	var out *dhcpv6.Message
	for end := time.Now().Add(patience); ; {
		g.send(udpFrame6(g.mac, "ff02::1:2", 546, 547, m.ToBytes()))
		_, err := g.within(time.Second, func(f []byte) bool {
			if !isUDP6(f, 546) {
				return false
			}
			a, err := dhcpv6.MessageFromBytes(f[62:])
			out = a
			return err == nil && a.TransactionID == m.TransactionID
		})
		if err == nil {
			return out
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			must(g.t, err)
		}
	}
}

// lease6 is SOLICIT, REQUEST.
func (g *guest) lease6() *dhcpv6.Message {
	g.t.Helper()
	offer := g.ask6(dhcpv6.MessageTypeSolicit, &dhcpv6.OptIANA{IaId: [4]byte{1}})
	if offer.MessageType != dhcpv6.MessageTypeAdvertise || offer.Options.OneIANA() == nil {
		g.t.Fatalf("offered %s", offer.Summary())
	}
	reply := g.ask6(dhcpv6.MessageTypeRequest, dhcpv6.OptServerID(offer.Options.ServerID()), offer.Options.OneIANA())
	if reply.MessageType != dhcpv6.MessageTypeReply || reply.Options.OneIANA() == nil || reply.Options.OneIANA().Options.OneAddress() == nil {
		g.t.Fatalf("replied %s", reply.Summary())
	}
	return reply
}

func everybody() net.HardwareAddr { return net.HardwareAddr{255, 255, 255, 255, 255, 255} }

// udpFrame has no UDP checksum: IPv4 allows that.
func udpFrame(to, from net.HardwareAddr, src, dst string, sport, dport uint16, payload []byte) []byte {
	f := slices.Concat(to, from, []byte{8, 0, 0x45, 0}, binary.BigEndian.AppendUint16(nil, uint16(28+len(payload))), []byte{0, 0, 0, 0, 64, 17, 0, 0},
		netip.MustParseAddr(src).AsSlice(), netip.MustParseAddr(dst).AsSlice())
	var sum uint32
	for i := 14; i < 34; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(f[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(f[24:], ^uint16(sum))
	f = binary.BigEndian.AppendUint16(f, sport)
	f = binary.BigEndian.AppendUint16(f, dport)
	f = binary.BigEndian.AppendUint16(f, uint16(8+len(payload)))
	return slices.Concat(f, []byte{0, 0}, payload)
}

// udpFrame6 is udpFrame for a link-local source and a multicast destination. Its checksum is left out, as a guest leaves it that offloads it.
func udpFrame6(from net.HardwareAddr, dst string, sport, dport uint16, payload []byte) []byte {
	to := netip.MustParseAddr(dst).As16()
	f := slices.Concat([]byte{0x33, 0x33}, to[12:], from, []byte{0x86, 0xdd, 0x60, 0, 0, 0}, binary.BigEndian.AppendUint16(nil, uint16(8+len(payload))), []byte{17, 255},
		netip.MustParseAddr("fe80::7").AsSlice(), to[:])
	f = binary.BigEndian.AppendUint16(f, sport)
	f = binary.BigEndian.AppendUint16(f, dport)
	f = binary.BigEndian.AppendUint16(f, uint16(8+len(payload)))
	return slices.Concat(f, []byte{0, 0}, payload)
}

func isUDP6(f []byte, dport uint16) bool {
	return len(f) >= 62 && f[12] == 0x86 && f[13] == 0xdd && f[20] == 17 && binary.BigEndian.Uint16(f[56:]) == dport
}

// icmp6 is the type of an ICMPv6 message, or 0.
func icmp6(f []byte) byte {
	if len(f) < 55 || f[12] != 0x86 || f[13] != 0xdd || f[20] != 58 {
		return 0
	}
	return f[54]
}

func isUDP(f []byte, dport uint16) bool {
	return len(f) >= 42 && f[12] == 8 && f[13] == 0 && f[23] == 17 && binary.BigEndian.Uint16(f[36:]) == dport
}

// wiretap hears, and sends, frames on a link of the node.
type wiretap struct {
	t  *testing.T
	fd int
	to unix.SockaddrLinklayer
}

func tapInto(t *testing.T, link string) *wiretap {
	t.Helper()
	k, err := netlink.LinkByName(link)
	must(t, err)
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	w := &wiretap{t: t, fd: fd, to: unix.SockaddrLinklayer{Protocol: all, Ifindex: k.Attrs().Index, Halen: 6}}
	must(t, unix.Bind(fd, &w.to))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(patience / time.Second)}))
	return w
}

func (w *wiretap) until(wanted func(frame []byte) bool) {
	w.t.Helper()
	b := make([]byte, 65536)
	for {
		n, _, err := unix.Recvfrom(w.fd, b, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		must(w.t, err)
		if wanted(b[:n]) {
			return
		}
	}
}

func (w *wiretap) send(frame []byte) {
	w.t.Helper()
	must(w.t, unix.Sendto(w.fd, frame, 0, &w.to))
}

// boots gives the guest a kernel: a network namespace whose only link is a tap with the card's MAC, and frames are carried between the
// two taps until the test ends. Without a router it is the kernel that finds one.
func (g *guest) boots(address netip.Prefix, router netip.Addr) (netns string) {
	g.t.Helper()
	dir := g.t.TempDir()
	netns = filepath.Join(dir, "guest")
	l := &linux{dir: dir}
	must(g.t, l.makeNetns(netns))
	g.t.Cleanup(func() { must(g.t, l.removeNetns(netns)) })
	fd := -1
	must(g.t, inside(netns, func() (err error) {
		if fd, err = openTap("card"); err != nil {
			return err
		}
		k, err := netlink.LinkByName("card")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetHardwareAddr(k, g.mac); err != nil {
			return err
		}
		if err := netlink.LinkSetUp(k); err != nil {
			return err
		}
		if err := netlink.AddrAdd(k, &netlink.Addr{IPNet: ipNet(address)}); err != nil {
			return err
		}
		if !router.IsValid() {
			return nil
		}
		return netlink.RouteAdd(&netlink.Route{LinkIndex: k.Attrs().Index, Gw: router.AsSlice()})
	}))
	card := os.NewFile(uintptr(fd), "card")
	must(g.t, g.tap.SetReadDeadline(time.Time{}))
	ended := make(chan struct{}, 2)
	carry := func(from, to *os.File) {
		b := make([]byte, 65536)
		for {
			n, err := from.Read(b)
			if err != nil {
				break
			}
			// What does not get through now, is lost, as on any wire.
			_, _ = to.Write(b[:n])
		}
		ended <- struct{}{}
	}
	go carry(g.tap, card)
	go carry(card, g.tap)
	g.t.Cleanup(func() {
		_ = card.Close()
		_ = g.tap.Close()
		<-ended
		<-ended
	})
	return netns
}
