package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Config is what all cards of a pod are told.
type Config struct {
	// Server is the server's identifier (option 54) and the source of its packets.
	Server netip.Addr
	// Lease is how long an address is given for (option 51), in whole seconds. Renewal (58) is due after half of it, rebinding (59) after
	// three quarters.
	Lease time.Duration
	// Hostname is option 12, and the first search domain option 15.
	Hostname string
	// DNS is options 6 and 119. IPv6 servers are left out: there is no place for them.
	DNS vm.DNS
	// Fallback are the servers of option 6 where DNS names none of IPv4. May be empty.
	Fallback []netip.Addr
	// Heard, if set, is told the name of each event that is not Ignored.
	Heard func(event string)
}

// Event is what a guest did.
type Event uint8

const (
	// Ignored is a packet that this server has nothing to do with.
	Ignored Event = iota
	// Offered is a DISCOVER that was answered.
	Offered
	// Acknowledged is a REQUEST for the card's address: the guest has it now.
	Acknowledged
	// Refused is a REQUEST for another address, which was answered with a NAK.
	Refused
	// Released is a guest that gives its address back. There is no answer.
	Released
	// Declined is a guest that found its address used by somebody else. There is no answer.
	Declined
	// Informed is an INFORM that was answered.
	Informed
)

// The least size of a message that every client takes (RFC 2131, §2), of the headers before it, and of its part without options.
const (
	leastMessage = 548
	headers      = 20 + 8
	fixedPart    = 240
	etherMTU     = 1500
)

// Answer says what a guest whose card this is gets for a message, nil for silence.
func (c *Config) Answer(card vm.Interface, m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, Event) {
	address, ok := first4(card.Addresses)
	if !ok || m.OpCode != dhcpv4.OpcodeBootRequest || m.HWType != iana.HWTypeEthernet || m.ClientHWAddr.String() != card.MAC || !zero(m.GatewayIPAddr) {
		return nil, Ignored
	}
	if id := m.Options.Get(dhcpv4.OptionServerIdentifier); id != nil && !is(id, c.Server) {
		return nil, Ignored
	}
	wanted := m.Options.Get(dhcpv4.OptionRequestedIPAddress)
	switch m.MessageType() {
	case dhcpv4.MessageTypeDiscover:
		return c.grant(card, address, m, dhcpv4.MessageTypeOffer), Offered
	case dhcpv4.MessageTypeRequest:
		switch {
		case !zero(m.ClientIPAddr): // it renews or rebinds
			wanted = m.ClientIPAddr.To4()
		case wanted == nil:
			return nil, Ignored
		}
		if !is(wanted, address.Addr()) {
			return c.refuse(m), Refused
		}
		return c.grant(card, address, m, dhcpv4.MessageTypeAck), Acknowledged
	case dhcpv4.MessageTypeInform:
		if zero(m.ClientIPAddr) {
			return nil, Ignored
		}
		r := c.reply(m, dhcpv4.MessageTypeAck)
		r.ClientIPAddr = m.ClientIPAddr
		c.tell(r, card, address, m)
		return r, Informed
	case dhcpv4.MessageTypeRelease:
		if is(m.ClientIPAddr, address.Addr()) {
			return nil, Released
		}
	case dhcpv4.MessageTypeDecline:
		if is(wanted, address.Addr()) {
			return nil, Declined
		}
	}
	return nil, Ignored
}

// reply begins every answer: what a client needs to know its own question again.
func (c *Config) reply(m *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	r := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: iana.HWTypeEthernet, TransactionID: m.TransactionID, Flags: m.Flags, ClientHWAddr: m.ClientHWAddr,
		ClientIPAddr: net.IPv4zero, YourIPAddr: net.IPv4zero, ServerIPAddr: net.IPv4zero, GatewayIPAddr: net.IPv4zero, Options: dhcpv4.Options{},
	}
	r.UpdateOption(dhcpv4.OptMessageType(kind))
	r.UpdateOption(dhcpv4.OptServerIdentifier(c.Server.AsSlice()))
	// RFC 6842 for the client's identifier, RFC 4578 for the machine's.
	for _, code := range []dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionClientMachineIdentifier} {
		if v := m.Options.Get(code); len(v) > 0 && len(v) <= 255 {
			r.UpdateOption(dhcpv4.OptGeneric(code, v))
		}
	}
	return r
}

func (c *Config) refuse(m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	r := c.reply(m, dhcpv4.MessageTypeNak)
	r.SetBroadcast()
	r.UpdateOption(dhcpv4.OptMessage("this card has another address"))
	return r
}

func (c *Config) grant(card vm.Interface, address netip.Prefix, m *dhcpv4.DHCPv4, kind dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	r := c.reply(m, kind)
	if kind == dhcpv4.MessageTypeAck {
		r.ClientIPAddr = m.ClientIPAddr
	}
	r.YourIPAddr = address.Addr().AsSlice()
	lease := c.Lease.Truncate(time.Second)
	r.UpdateOption(dhcpv4.OptIPAddressLeaseTime(lease))
	r.UpdateOption(dhcpv4.OptRenewTimeValue((lease / 2).Truncate(time.Second)))
	r.UpdateOption(dhcpv4.OptRebindingTimeValue((lease * 3 / 4).Truncate(time.Second)))
	c.tell(r, card, address, m)
	return r
}

// tell adds what describes the network, whether asked for or not: a guest that boots knows less than the node.
func (c *Config) tell(r *dhcpv4.DHCPv4, card vm.Interface, address netip.Prefix, m *dhcpv4.DHCPv4) {
	r.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(address.Bits(), 32)))
	if card.MTU >= 68 && card.MTU <= 65535 { // RFC 2132, §5.1
		r.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, binary.BigEndian.AppendUint16(nil, uint16(card.MTU))))
	}
	var servers []net.IP
	for _, list := range [][]netip.Addr{c.DNS.Servers, c.Fallback} {
		for _, s := range list {
			if s.Is4() {
				servers = append(servers, s.AsSlice())
			}
		}
		if len(servers) > 0 {
			r.UpdateOption(dhcpv4.OptDNS(servers...))
			break
		}
	}
	routers, classless := routes(card, address)
	// What does not fit into one packet cannot be told: an address and a default route are better than nothing.
	packet := etherMTU
	if card.MTU > 0 {
		packet = max(card.MTU, leastMessage+headers)
	}
	if classless != nil && !addWithin(r, packet-headers, dhcpv4.OptionClasslessStaticRoute, classless) {
		classless = nil
	}
	// A client that asks for option 121 and gets it has to ignore option 3 (RFC 3442): the default route is in both. One that asks for 3
	// alone has only that.
	if routers.IsValid() && (classless == nil || !asks(m, dhcpv4.OptionClasslessStaticRoute)) {
		r.UpdateOption(dhcpv4.OptRouter(routers.AsSlice()))
	}
	// What comes last can be done without, where the client takes no more.
	room := leastMessage
	if size, err := m.MaxMessageSize(); err == nil && int(size)-headers > room {
		room = int(size) - headers
	}
	room = min(room, packet-headers)
	if c.Hostname != "" && len(c.Hostname) <= 255 {
		addWithin(r, room, dhcpv4.OptionHostName, []byte(c.Hostname))
	}
	if len(c.DNS.Search) > 0 {
		if d := strings.TrimSuffix(c.DNS.Search[0], "."); d != "" && len(d) <= 253 {
			addWithin(r, room, dhcpv4.OptionDomainName, []byte(d))
		}
		for n := len(c.DNS.Search); n > 0; n-- {
			if list := searchList(c.DNS.Search[:n]); len(list) > 0 && addWithin(r, room, dhcpv4.OptionDNSDomainSearchList, list) {
				break
			}
		}
	}
}

// addWithin adds an option unless the message grew over room by it.
func addWithin(r *dhcpv4.DHCPv4, room int, code dhcpv4.OptionCode, value []byte) bool {
	size := fixedPart + 1
	for _, v := range r.Options { // order: a sum
		size += optionSize(len(v))
	}
	if size+optionSize(len(value)) > room {
		return false
	}
	r.UpdateOption(dhcpv4.OptGeneric(code, value))
	return true
}

// optionSize is what an option of n bytes takes: beyond 255 bytes it is written in parts (RFC 3396).
func optionSize(n int) int { return n + 2*max(1, (n+254)/255) }

// routes gives the router of option 3, and the value of option 121 where there are routes that option 3 cannot tell. A gateway that is in
// no subnet of the card and behind no on-link route gets an on-link route of its own, first, because a client makes them in order.
func routes(card vm.Interface, address netip.Prefix) (router netip.Addr, classless []byte) {
	var on, through []vm.Route
	needed := false
	reachable := func(a netip.Addr) bool {
		return address.Bits() < 32 && address.Masked().Contains(a) || slices.ContainsFunc(on, func(r vm.Route) bool { return r.Destination.Contains(a) })
	}
	for _, r := range card.Routes {
		if r.Destination.IsValid() && r.Destination.Addr().Is4() && !r.Gateway.IsValid() {
			on, needed = append(on, r), true
		}
	}
	for _, r := range card.Routes {
		if !r.Destination.IsValid() || !r.Destination.Addr().Is4() || !r.Gateway.Is4() {
			continue
		}
		if !reachable(r.Gateway) {
			on, needed = append(on, vm.Route{Destination: netip.PrefixFrom(r.Gateway, 32)}), true
		}
		if r.Destination.Bits() > 0 {
			needed = true
		} else if !router.IsValid() {
			router = r.Gateway
		}
		through = append(through, r)
	}
	if !needed {
		return router, nil
	}
	for _, r := range append(on, through...) {
		gateway := r.Gateway
		if !gateway.IsValid() {
			gateway = netip.IPv4Unspecified()
		}
		bits := r.Destination.Bits()
		classless = append(classless, byte(bits))
		classless = append(classless, r.Destination.Masked().Addr().AsSlice()[:(bits+7)/8]...)
		classless = append(classless, gateway.AsSlice()...)
	}
	return router, classless
}

// searchList is the value of option 119: names as in DNS (RFC 1035, §3.1), uncompressed, each ended by a zero byte. A name that DNS could
// not hold is left out.
func searchList(domains []string) []byte {
	var out []byte
next:
	for _, d := range domains {
		d = strings.TrimSuffix(d, ".")
		if d == "" || len(d) > 253 {
			continue
		}
		var name []byte
		for _, label := range strings.Split(d, ".") {
			if label == "" || len(label) > 63 {
				continue next
			}
			name = append(append(name, byte(len(label))), label...)
		}
		out = append(append(out, name...), 0)
	}
	return out
}

// first4 is the card's IPv4 address: a lease has one.
func first4(addresses []netip.Prefix) (netip.Prefix, bool) {
	for _, p := range addresses {
		if p.IsValid() && p.Addr().Is4() {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// asks says whether a client wants an option; one that lists none takes all.
func asks(m *dhcpv4.DHCPv4, code dhcpv4.OptionCode) bool {
	list := m.Options.Get(dhcpv4.OptionParameterRequestList)
	return len(list) == 0 || bytes.IndexByte(list, code.Code()) >= 0
}

func zero(ip net.IP) bool { return len(ip) == 0 || ip.Equal(net.IPv4zero) }

func is(b []byte, a netip.Addr) bool {
	got, ok := netip.AddrFromSlice(b)
	return ok && got.Unmap() == a
}
