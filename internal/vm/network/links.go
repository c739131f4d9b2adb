package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/network/dhcp"
)

// dumped asks the kernel for a list, again where it changed meanwhile.
func dumped[T any](ask func() ([]T, error)) (out []T, err error) {
	for range 5 {
		if out, err = ask(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, err
}

func (l *linux) links(path string) (out []Link, err error) {
	err = inside(path, func() error {
		all, err := dumped(netlink.LinkList)
		if err != nil {
			return fmt.Errorf("links: %w", err)
		}
		for _, k := range all {
			a := k.Attrs()
			if a.Flags&net.FlagLoopback != 0 {
				continue
			}
			link := Link{Name: a.Name, Index: a.Index, Kind: k.Type(), MAC: a.HardwareAddr.String(), MTU: a.MTU}
			if a.ParentDevBus == "pci" {
				link.PCI = a.ParentDev
			}
			if link.Addresses, err = addresses(k); err != nil {
				return fmt.Errorf("link %s: addresses: %w", a.Name, err)
			}
			if link.Routes, err = routes(k); err != nil {
				return fmt.Errorf("link %s: routes: %w", a.Name, err)
			}
			out = append(out, link)
		}
		return nil
	})
	return out, err
}

func addresses(k netlink.Link) (out []netip.Prefix, err error) {
	all, err := dumped(func() ([]netlink.Addr, error) { return netlink.AddrList(k, netlink.FAMILY_ALL) })
	for _, a := range all {
		if a.IPNet == nil || a.IP.To4() == nil && a.IP.IsLinkLocalUnicast() {
			continue
		}
		if p, ok := prefix(*a.IPNet); ok {
			out = append(out, p)
		}
	}
	return out, err
}

func routes(k netlink.Link) (out []vm.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := dumped(func() ([]netlink.Route, error) { return netlink.RouteList(k, family) })
		if err != nil {
			return nil, err
		}
		for _, r := range all {
			if r.Protocol == unix.RTPROT_KERNEL || r.Type != unix.RTN_UNICAST && r.Type != 0 || len(r.MultiPath) > 0 {
				continue
			}
			route := vm.Route{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
			if family == netlink.FAMILY_V6 {
				route.Destination = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			if r.Dst != nil {
				p, ok := prefix(*r.Dst)
				if !ok {
					continue
				}
				route.Destination = p
			}
			if gw, ok := netip.AddrFromSlice(r.Gw); ok {
				route.Gateway = gw.Unmap()
			}
			out = append(out, route)
		}
	}
	return out, nil
}

func (l *linux) join(path string, cards []Card) (ports []Port, err error) {
	err = inside(path, func() error {
		for _, c := range tapped(cards) {
			p, err := l.joinCard(c)
			if err != nil {
				return fmt.Errorf("card %s: %w", c.Name, err)
			}
			ports = append(ports, p)
		}
		return nil
	})
	for _, c := range cards {
		if c.PCI == "" || err != nil {
			continue
		}
		if err = l.takeFunction(c); err != nil {
			err = fmt.Errorf("card %s: %w", c.Name, err)
		}
	}
	return ports, err
}

// joinCard makes what is missing of a card, each thing whole before what needs it: filters are there before a link is up.
func (l *linux) joinCard(c Card) (Port, error) {
	veth, err := netlink.LinkByName(c.Name)
	if err != nil {
		return Port{}, fmt.Errorf("link %s: %w", c.Name, err)
	}
	bridge, err := l.bridge(c)
	if err != nil {
		return Port{}, fmt.Errorf("bridge %s: %w", c.Bridge, err)
	}
	if err := l.strip(veth, c); err != nil {
		return Port{}, fmt.Errorf("link %s: %w", c.Name, err)
	}
	tap, err := l.tap(c)
	if err != nil {
		return Port{}, fmt.Errorf("tap %s: %w", c.Tap, err)
	}
	for _, k := range []netlink.Link{veth, tap} {
		if err := l.enslave(k, bridge); err != nil {
			return Port{}, fmt.Errorf("link %s: %w", k.Attrs().Name, err)
		}
	}
	return Port{Tap: tap.Attrs().Index, Veth: veth.Attrs().Index, MAC: bridge.Attrs().HardwareAddr.String()}, nil
}

// bridge forwards at once and to all (no learning, whose table would mistake a guest that moves), and looks at no multicast.
func (l *linux) bridge(c Card) (netlink.Link, error) {
	k, err := netlink.LinkByName(c.Bridge)
	if missing(err) {
		if err := l.may("make bridge %s", c.Bridge); err != nil {
			return nil, err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = c.Bridge, hardware(newMAC())
		ageing, snooping := uint32(0), false
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, AgeingTime: &ageing, MulticastSnooping: &snooping}); err != nil {
			return nil, fmt.Errorf("make: %w", err)
		}
		k, err = netlink.LinkByName(c.Bridge)
	}
	if err != nil {
		return nil, err
	}
	if err := l.noIPv6(k); err != nil {
		return nil, err
	}
	if err := l.may("address of bridge %s", c.Bridge); err != nil {
		return nil, err
	}
	if err := netlink.AddrReplace(k, &netlink.Addr{IPNet: ipNet(serverAddress()), Scope: unix.RT_SCOPE_LINK}); err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	if err := l.may("bridge %s up", c.Bridge); err != nil {
		return nil, err
	}
	if err := netlink.LinkSetUp(k); err != nil {
		return nil, fmt.Errorf("up: %w", err)
	}
	return k, nil
}

// strip takes from the veth what the guest is to have: its addresses, routes and MAC.
func (l *linux) strip(k netlink.Link, c Card) error {
	if err := l.noIPv6(k); err != nil {
		return err
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := dumped(func() ([]netlink.Route, error) { return netlink.RouteList(k, family) })
		if err != nil {
			return fmt.Errorf("routes: %w", err)
		}
		for _, r := range all {
			if err := l.may("route %v of %s", r.Dst, c.Name); err != nil {
				return err
			}
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("route %v: %w", r.Dst, err)
			}
		}
	}
	all, err := dumped(func() ([]netlink.Addr, error) { return netlink.AddrList(k, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	for _, a := range all {
		if err := l.may("address %v of %s", a.IPNet, c.Name); err != nil {
			return err
		}
		if err := netlink.AddrDel(k, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("address %v: %w", a.IPNet, err)
		}
	}
	if err := l.may("MAC of %s", c.Name); err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(k, hardware(c.LinkMAC)); err != nil {
		return fmt.Errorf("MAC: %w", err)
	}
	return nil
}

// tap is persistent: it is there whether or not somebody has it open.
func (l *linux) tap(c Card) (netlink.Link, error) {
	k, err := netlink.LinkByName(c.Tap)
	if missing(err) {
		if err := l.may("make tap %s", c.Tap); err != nil {
			return nil, err
		}
		fd, err := openTap(c.Tap)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1)
		_ = unix.Close(fd)
		if err != nil {
			return nil, fmt.Errorf("persist: %w", err)
		}
		if k, err = netlink.LinkByName(c.Tap); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	if err := l.noIPv6(k); err != nil {
		return nil, err
	}
	if c.MTU > 0 && k.Attrs().MTU != c.MTU {
		if err := l.may("MTU of %s", c.Tap); err != nil {
			return nil, err
		}
		if err := netlink.LinkSetMTU(k, c.MTU); err != nil {
			return nil, fmt.Errorf("MTU %d: %w", c.MTU, err)
		}
	}
	return k, nil
}

// enslave puts a link into the bridge, with the filter that keeps DHCP from entering there.
func (l *linux) enslave(k, bridge netlink.Link) error {
	name := k.Attrs().Name
	if err := l.may("filter of %s", name); err != nil {
		return err
	}
	if err := filterIngress(k); err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	if err := l.may("bridge of %s", name); err != nil {
		return err
	}
	if err := netlink.LinkSetMaster(k, bridge); err != nil {
		return fmt.Errorf("join %s: %w", bridge.Attrs().Name, err)
	}
	if err := l.may("%s up", name); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(k); err != nil {
		return fmt.Errorf("up: %w", err)
	}
	return l.may("%s is joined", name)
}

// noIPv6 keeps the kernel from giving a link an address of its own, which would speak up in the pod's network.
func (l *linux) noIPv6(k netlink.Link) error {
	const none = 1 // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	if err := l.may("IPv6 of %s", k.Attrs().Name); err != nil {
		return err
	}
	err := netlink.LinkSetIP6AddrGenMode(k, none)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return nil // a kernel without IPv6
	}
	if err != nil {
		return fmt.Errorf("IPv6: %w", err)
	}
	return nil
}

// filterIngress has a link drop DHCP and advertisements of routers that come in by it. Done again, it changes nothing.
func filterIngress(k netlink.Link) error {
	index := k.Attrs().Index
	err := netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("clsact: %w", err)
	}
	program, err := dhcp.Leaks()
	if err != nil {
		return err
	}
	// netlink's own BpfFilter takes programs that were loaded before; this one travels in the message (linux/pkt_cls.h, TCA_BPF_OPS).
	req := nl.NewNetlinkRequest(unix.RTM_NEWTFILTER, unix.NLM_F_CREATE|unix.NLM_F_ACK)
	req.AddData(&nl.TcMsg{
		Family: nl.FAMILY_ALL, Ifindex: int32(index), Handle: 1, Parent: netlink.HANDLE_MIN_INGRESS, Info: netlink.MakeHandle(1, nl.Swap16(unix.ETH_P_ALL)),
	})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated("bpf")))
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_BPF_OPS_LEN, nl.Uint16Attr(uint16(len(program))))
	options.AddRtAttr(nl.TCA_BPF_OPS, instructions(program))
	options.AddRtAttr(nl.TCA_BPF_FLAGS, nl.Uint32Attr(nl.TCA_BPF_FLAG_ACT_DIRECT))
	req.AddData(options)
	if _, err := req.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return fmt.Errorf("cls_bpf: %w", err)
	}
	return nil
}

// instructions are struct sock_filter's, in the machine's own byte order.
func instructions(program []bpf.RawInstruction) []byte {
	native := nl.NativeEndian()
	out := make([]byte, 0, 8*len(program))
	for _, op := range program {
		b := make([]byte, 8)
		native.PutUint16(b, op.Op)
		b[2], b[3] = op.Jt, op.Jf
		native.PutUint32(b[4:], op.K)
		out = append(out, b...)
	}
	return out
}

func (l *linux) part(path string, cards []Card) error {
	return inside(path, func() error {
		var errs []error
		for _, c := range tapped(cards) {
			if err := l.partCard(c); err != nil {
				errs = append(errs, fmt.Errorf("card %s: %w", c.Name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// partCard goes on after a failure: each thing that it can undo is one less for somebody to find.
func (l *linux) partCard(c Card) error {
	var errs []error
	for _, name := range []string{c.Tap, c.Bridge} {
		if err := l.may("delete %s", name); err != nil {
			return err
		}
		k, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(k)
		}
		if err != nil && !missing(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", name, err))
		}
	}
	k, err := netlink.LinkByName(c.Name)
	if missing(err) {
		return errors.Join(errs...)
	}
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := l.may("give back %s", c.Name); err != nil {
		return err
	}
	err = netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: k.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}})
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		errs = append(errs, fmt.Errorf("filter of %s: %w", c.Name, err))
	}
	if err := netlink.LinkSetHardwareAddr(k, hardware(c.MAC)); err != nil {
		errs = append(errs, fmt.Errorf("MAC of %s: %w", c.Name, err))
	}
	if err := netlink.LinkSetUp(k); err != nil {
		errs = append(errs, fmt.Errorf("%s: up: %w", c.Name, err))
	}
	for _, p := range c.Addresses {
		if err := l.may("address %s of %s back", p, c.Name); err != nil {
			return err
		}
		if err := netlink.AddrReplace(k, &netlink.Addr{IPNet: ipNet(p)}); err != nil {
			errs = append(errs, fmt.Errorf("address %s: %w", p, err))
		}
	}
	for _, r := range c.Routes {
		route := netlink.Route{LinkIndex: k.Attrs().Index, Dst: ipNet(r.Destination)}
		if r.Gateway.IsValid() {
			route.Gw = r.Gateway.AsSlice()
		} else {
			route.Scope = netlink.SCOPE_LINK
		}
		// Plugins do not look at routes; they are given back for whoever looks at what is left when a plugin failed.
		if err := netlink.RouteReplace(&route); err != nil && !errors.Is(err, unix.ENETUNREACH) {
			errs = append(errs, fmt.Errorf("route to %s: %w", r.Destination, err))
		}
	}
	return errors.Join(errs...)
}

func (l *linux) open(path string, cards []Card) (fds []int, err error) {
	err = inside(path, func() error {
		for _, c := range cards {
			fd, err := openTap(c.Tap)
			if err != nil {
				return fmt.Errorf("tap %s: %w", c.Tap, err)
			}
			fds = append(fds, fd)
		}
		return nil
	})
	if err != nil {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, err
	}
	return fds, nil
}

func (l *linux) listen(path string, taps, veths []int) (guests, network dhcp.Conn, err error) {
	err = inside(path, func() error {
		if guests, err = dhcp.Listen(taps); err != nil || len(veths) == 0 {
			return err
		}
		if network, err = dhcp.ListenNetwork(veths); err != nil {
			_ = guests.Close()
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	return guests, network, nil
}

// openTap attaches a new descriptor to the one queue of a tap of this thread's namespace, which is made where it is missing.
// unix.EBUSY: the queue is somebody's.
func openTap(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("/dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("TUNSETIFF: %w", err)
	}
	return fd, nil
}

func missing(err error) bool {
	var not netlink.LinkNotFoundError
	return errors.As(err, &not) || errors.Is(err, syscall.ENODEV)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
