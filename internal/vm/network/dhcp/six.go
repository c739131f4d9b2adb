package dhcp

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/muster-scheduler/muster/internal/vm"
)

// leastPacket6 is what every link carries of IPv6 (RFC 8200, §5), with its headers. An answer fits into it: of what a guest names, no more is
// looked at.
const (
	leastPacket6    = 1280
	maxAssociations = 4
	maxNamed        = 8
	maxIdentifier   = 2 + 128 // RFC 8415, §11.1
)

// serverID names the server of every pod: a guest that is resumed elsewhere renews with the server that it knows.
func serverID() dhcpv6.DUID {
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0xa9, 0xfe, 0xfe, 2}}
}

// Answer6 says what a guest whose card this is gets for a message of DHCPv6 (RFC 8415, §18.3), nil for silence: the addresses that CNI gave
// it, in its first association. Which guest it is, the tap says; its identifier is only sent back.
func (c *Config) Answer6(card vm.Interface, m *dhcpv6.Message) (*dhcpv6.Message, Event) {
	addresses := all6(card.Addresses)
	if len(addresses) == 0 {
		return nil, Ignored
	}
	client, server := m.Options.GetOne(dhcpv6.OptionClientID), m.Options.ServerID()
	if client != nil && len(client.ToBytes()) > maxIdentifier {
		return nil, Ignored
	}
	ours := server != nil && server.Equal(serverID())
	r := &dhcpv6.Message{MessageType: dhcpv6.MessageTypeReply, TransactionID: m.TransactionID}
	if client != nil {
		r.AddOption(client)
	}
	r.AddOption(dhcpv6.OptServerID(serverID()))
	// §16: who must name a server, and who must not.
	switch m.MessageType {
	case dhcpv6.MessageTypeSolicit, dhcpv6.MessageTypeConfirm, dhcpv6.MessageTypeRebind:
		if client == nil || server != nil {
			return nil, Ignored
		}
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRelease, dhcpv6.MessageTypeDecline:
		if client == nil || !ours {
			return nil, Ignored
		}
	case dhcpv6.MessageTypeInformationRequest:
		if server != nil && !ours || len(m.Options.IANA())+len(m.Options.IATA())+len(m.Options.IAPD()) > 0 {
			return nil, Ignored
		}
	default:
		return nil, Ignored
	}
	switch m.MessageType {
	case dhcpv6.MessageTypeSolicit:
		c.associate(r, m, addresses)
		c.tell6(r)
		if rapid := m.Options.GetOne(dhcpv6.OptionRapidCommit); rapid != nil {
			r.AddOption(rapid)
			return r, Acknowledged
		}
		r.MessageType = dhcpv6.MessageTypeAdvertise
		// There is no other server to wait for (§18.2.1).
		r.AddOption(dhcpv6.OptPreference(255))
		return r, Offered
	case dhcpv6.MessageTypeRequest, dhcpv6.MessageTypeRenew, dhcpv6.MessageTypeRebind:
		c.associate(r, m, addresses)
		c.tell6(r)
		if len(m.Options.IANA()) == 0 {
			return r, Informed
		}
		return r, Acknowledged
	case dhcpv6.MessageTypeInformationRequest:
		c.tell6(r)
		return r, Informed
	}
	held := named(m)
	event := Ignored
	status := iana.StatusSuccess
	switch {
	case len(held) == 0:
		return nil, Ignored
	case m.MessageType == dhcpv6.MessageTypeConfirm:
		event = Acknowledged
		if slices.ContainsFunc(held, func(a netip.Addr) bool { return !slices.Contains(addresses, a) }) {
			event, status = Refused, iana.StatusNotOnLink
		}
	case !slices.ContainsFunc(held, func(a netip.Addr) bool { return slices.Contains(addresses, a) }):
		// None of its own: nothing changes for this card.
	case m.MessageType == dhcpv6.MessageTypeRelease:
		event = Released
	default:
		event = Declined
	}
	r.AddOption(&dhcpv6.OptStatusCode{StatusCode: status})
	return r, event
}

// associate answers the associations of a message: the first gets the addresses, all others that there is nothing. An address that a guest
// has of somewhere else ends at once.
func (c *Config) associate(r, m *dhcpv6.Message, addresses []netip.Addr) {
	lease := c.Lease.Truncate(time.Second)
	all := m.Options.IANA()
	for i, ia := range all[:min(len(all), maxAssociations)] {
		out := &dhcpv6.OptIANA{IaId: ia.IaId}
		if i > 0 {
			out.Options.Add(&dhcpv6.OptStatusCode{StatusCode: iana.StatusNoAddrsAvail})
			r.AddOption(out)
			continue
		}
		out.T1, out.T2 = lease/2, lease*3/4
		for _, a := range addresses {
			out.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.AsSlice(), PreferredLifetime: lease, ValidLifetime: lease})
		}
		old := ia.Options.Addresses()
		for _, a := range old[:min(len(old), maxNamed)] {
			if had, ok := netip.AddrFromSlice(a.IPv6Addr); ok && m.MessageType != dhcpv6.MessageTypeSolicit && !slices.Contains(addresses, had) {
				out.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: a.IPv6Addr})
			}
		}
		r.AddOption(out)
	}
	prefixes := m.Options.IAPD()
	for _, ia := range prefixes[:min(len(prefixes), maxAssociations)] {
		out := &dhcpv6.OptIAPD{IaId: ia.IaId}
		out.Options.Add(&dhcpv6.OptStatusCode{StatusCode: iana.StatusNoPrefixAvail})
		r.AddOption(out)
	}
}

// tell6 adds the resolver (RFC 3646), as far as it has a place in the least packet.
func (c *Config) tell6(r *dhcpv6.Message) {
	if servers := c.servers6(); len(servers) > 0 {
		list := make([]net.IP, len(servers))
		for i, s := range servers {
			list[i] = s.AsSlice()
		}
		r.AddOption(dhcpv6.OptDNS(list...))
	}
	const optionHeader = 4
	room := leastPacket6 - ipSize6 - udpSize - len(r.ToBytes()) - optionHeader
	for n := len(c.DNS.Search); n > 0; n-- {
		if list := searchList(c.DNS.Search[:n]); len(list) > 0 && len(list) <= room {
			r.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionDomainSearchList, OptionData: list})
			break
		}
	}
}

// servers6 are the resolvers of IPv6: the pod's, else the fallback's.
func (c *Config) servers6() (out []netip.Addr) {
	for _, list := range [][]netip.Addr{c.DNS.Servers, c.Fallback} {
		for _, s := range list {
			if s.Is6() && !s.Is4In6() {
				out = append(out, s.WithZone(""))
			}
		}
		if len(out) > 0 {
			break
		}
	}
	return out
}

// named are the addresses of a message's associations.
func named(m *dhcpv6.Message) (out []netip.Addr) {
	for _, ia := range m.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			if had, ok := netip.AddrFromSlice(a.IPv6Addr); ok {
				out = append(out, had)
			}
		}
	}
	return out
}

// all6 are the card's IPv6 addresses, as many as an answer has room for.
func all6(addresses []netip.Prefix) (out []netip.Addr) {
	for _, p := range addresses {
		if p.IsValid() && p.Addr().Is6() && len(out) < maxNamed {
			out = append(out, p.Addr())
		}
	}
	return out
}
