package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Types and bounds of neighbour discovery (RFC 4861), and its options that are used here.
const (
	ndSolicitation  = 133 // for routers
	ndAdvertisement = 134 // of a router
	ndNeighbour     = 135 // asked for
	ndNeighbourIs   = 136 // the answer
	ndHops          = 255 // whatever has fewer was not sent on this link
	optionSource    = 1
	optionTarget    = 2
	optionPrefix    = 3
	optionMTU       = 5
	optionRoute     = 24 // RFC 4191
	optionServers   = 25 // RFC 8106
	longest         = 65535 * time.Second
	maxRouters      = 4
)

// A stand-in is what a guest takes for a router whose own link-local address is not known: fe80::a9fe:fe02:0:N. It is the same in every pod,
// so that a guest that is resumed elsewhere keeps its routes. Number 0 is the server itself.
const (
	standInHigh = 0xfe800000
	standInLow  = 0xa9fefe02
)

func standIn(n int) netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint32(a[0:], standInHigh)
	binary.BigEndian.PutUint32(a[8:], standInLow)
	binary.BigEndian.PutUint32(a[12:], uint32(n))
	return netip.AddrFrom16(a)
}

// router is a gateway of a card as an advertisement can tell it. An advertisement is always of its own, link-local source, and CNI's gateways
// mostly are addresses of the pod's subnet: the guest is told a stand-in then, with the gateway's MAC.
type router struct {
	gateway netip.Addr
	address netip.Addr
	through []netip.Prefix // what it leads to; of length 0: everything
}

// stands says whether somebody has to answer for the router.
func (r router) stands() bool { return r.address != r.gateway }

// routers are those of a card: none, a default route only of the first that has one, and at most four.
func routers(card vm.Interface) (out []router) {
	hasDefault := false
	for _, r := range card.Routes {
		if !r.Destination.IsValid() || !r.Destination.Addr().Is6() || !r.Gateway.Is6() || r.Destination.Bits() == 0 && hasDefault {
			continue
		}
		gateway := r.Gateway.WithZone("")
		i := slices.IndexFunc(out, func(o router) bool { return o.gateway == gateway })
		if i < 0 {
			if len(out) == maxRouters {
				continue
			}
			i = len(out)
			at := gateway
			if !gateway.IsLinkLocalUnicast() {
				at = standIn(i + 1)
			}
			out = append(out, router{gateway: gateway, address: at})
		}
		hasDefault = hasDefault || r.Destination.Bits() == 0
		out[i].through = append(out[i].through, r.Destination.Masked())
	}
	return out
}

// AsksFor says whether gateways of a card have to be asked for in the pod's network.
func AsksFor(card vm.Interface) bool {
	return len(all6(card.Addresses)) > 0 && slices.ContainsFunc(routers(card), router.stands)
}

// advertisements are the frames that tell a guest its routers and that its addresses come by DHCPv6, and nothing by which it would make
// addresses itself. mac gives the MAC of a gateway, nil where it is not known yet: what leads through it is told once it is.
func (c *Config) advertisements(p Port, mac func(netip.Addr) net.HardwareAddr) (out [][]byte) {
	all := routers(p.Card)
	if len(all) == 0 {
		all = []router{{address: standIn(0), gateway: standIn(0)}}
	}
	for _, r := range all {
		at := mac(r.gateway)
		// No hop limit; managed addresses and other configuration; no timers.
		m := make([]byte, 16)
		m[0], m[5] = ndAdvertisement, 0xc0
		known := !r.stands() || at != nil
		if known && r.stands() {
			m = append(append(m, optionSource, 1), at...)
		}
		for _, d := range r.through {
			switch {
			case !known:
			case d.Bits() == 0:
				binary.BigEndian.PutUint16(m[6:], uint16(longest/time.Second))
			default:
				m = append(m, optionRoute, 3, byte(d.Bits()), 0)
				m = binary.BigEndian.AppendUint32(m, uint32(longest/time.Second))
				m = append(m, d.Addr().AsSlice()...)
			}
		}
		for _, d := range onLink(p.Card) {
			// On the link, and not for addresses that a guest makes.
			m = append(m, optionPrefix, 4, byte(d.Bits()), 0x80)
			m = binary.BigEndian.AppendUint32(m, 0xffffffff)
			m = append(m, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0)
			m = append(m, d.Addr().AsSlice()...)
		}
		if p.Card.MTU >= leastPacket6 {
			m = append(m, optionMTU, 1, 0, 0)
			m = binary.BigEndian.AppendUint32(m, uint32(p.Card.MTU))
		}
		if servers := c.servers6(); len(servers) > 0 {
			servers = servers[:min(len(servers), 8)]
			m = append(m, optionServers, byte(1+2*len(servers)), 0, 0)
			m = binary.BigEndian.AppendUint32(m, uint32(longest/time.Second))
			for _, s := range servers {
				m = append(m, s.AsSlice()...)
			}
		}
		if ethernetSize+ipSize6+len(m) > ethernetSize+leastPacket6 {
			m = m[:16] // so many routes that they cannot be told; the addresses can
		}
		out = append(out, frame6(multicastMAC(allNodes()), p.MAC, allNodes(), r.address, protocolICMP, m))
	}
	return out
}

// onLink are the card's subnets, and what routes say is on the link.
func onLink(card vm.Interface) (out []netip.Prefix) {
	add := func(p netip.Prefix) {
		if p = p.Masked(); p.Bits() < 128 && !slices.Contains(out, p) && len(out) < 8 {
			out = append(out, p)
		}
	}
	for _, p := range card.Addresses {
		if p.IsValid() && p.Addr().Is6() {
			add(p)
		}
	}
	for _, r := range card.Routes {
		if r.Destination.IsValid() && r.Destination.Addr().Is6() && !r.Gateway.IsValid() {
			add(r.Destination)
		}
	}
	return out
}

// question asks the pod's network for a gateway, as the guest would: from one of its addresses and its MAC.
func question(card vm.Interface, gateway netip.Addr) []byte {
	mac, err := net.ParseMAC(card.MAC)
	addresses := all6(card.Addresses)
	if err != nil || len(addresses) == 0 {
		return nil
	}
	from := addresses[0]
	for _, p := range card.Addresses {
		if p.IsValid() && p.Addr().Is6() && p.Masked().Contains(gateway) {
			from = p.Addr()
			break
		}
	}
	g := gateway.As16()
	to := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: g[13], 14: g[14], 15: g[15]})
	m := append([]byte{ndNeighbour, 0, 0, 0, 0, 0, 0, 0}, g[:]...)
	m = append(append(m, optionSource, 1), mac...)
	return frame6(multicastMAC(to), mac, to, from, protocolICMP, m)
}

// neighbour reads what a neighbour says of itself: its address and MAC.
func neighbour(frame []byte) (netip.Addr, net.HardwareAddr, bool) {
	_, hops, m, ok := packet6(frame, protocolICMP)
	if !ok || hops != ndHops || len(m) < 24 || m[0] != ndNeighbourIs || m[1] != 0 {
		return netip.Addr{}, nil, false
	}
	address, _ := netip.AddrFromSlice(m[8:24])
	mac := net.HardwareAddr(frame[6:12])
	for o := m[24:]; len(o) >= 8 && o[1] > 0 && len(o) >= 8*int(o[1]); o = o[8*int(o[1]):] {
		if o[0] == optionTarget && o[1] == 1 {
			mac = o[2:8]
		}
	}
	if mac[0]&1 != 0 || bytes.Equal(mac, make([]byte, 6)) {
		return netip.Addr{}, nil, false
	}
	return address, bytes.Clone(mac), true
}

// asked reads a guest's question for a stand-in, and who wants to know; a guest that only looks whether it may have the address is none.
func asked(frame []byte) (target, from netip.Addr, ok bool) {
	from, hops, m, ok := packet6(frame, protocolICMP)
	if !ok || hops != ndHops || len(m) < 24 || m[0] != ndNeighbour || m[1] != 0 || from.IsUnspecified() || from.IsMulticast() {
		return target, from, false
	}
	target, _ = netip.AddrFromSlice(m[8:24])
	return target, from, true
}

// solicits says whether a guest asks for routers.
func solicits(frame []byte) bool {
	_, hops, m, ok := packet6(frame, protocolICMP)
	return ok && hops == ndHops && len(m) >= 8 && m[0] == ndSolicitation && m[1] == 0
}

// standsFor answers for a stand-in: it is the gateway's MAC.
func standsFor(p Port, target, to netip.Addr, mac net.HardwareAddr) []byte {
	// A router, asked, whose MAC replaces what was known.
	m := append([]byte{ndNeighbourIs, 0, 0, 0, 0xe0, 0, 0, 0}, target.AsSlice()...)
	m = append(append(m, optionTarget, 1), mac...)
	return frame6(hardware(p.Card.MAC), p.MAC, to, target, protocolICMP, m)
}

// respond6 turns a frame with a message of DHCPv6 into the frame that answers it, or nil: pure.
func (c *Config) respond6(p Port, in []byte) ([]byte, Event) {
	from, message, ok := payload6(in)
	if !ok {
		return nil, Ignored
	}
	m, err := dhcpv6.MessageFromBytes(message)
	if err != nil {
		return nil, Ignored
	}
	r, event := c.Answer6(p.Card, m)
	if r == nil {
		return nil, event
	}
	return frame6(hardware(p.Card.MAC), p.MAC, from, standIn(0), protocolUDP, udp6(r.ToBytes())), event
}

func allNodes() netip.Addr { return netip.AddrFrom16([16]byte{0xff, 2, 15: 1}) }

// multicastMAC is RFC 2464's, §7.
func multicastMAC(a netip.Addr) net.HardwareAddr {
	b := a.As16()
	return net.HardwareAddr{0x33, 0x33, b[12], b[13], b[14], b[15]}
}

func hardware(mac string) net.HardwareAddr {
	a, err := net.ParseMAC(mac)
	if err != nil || len(a) != 6 {
		return make(net.HardwareAddr, 6)
	}
	return a
}
