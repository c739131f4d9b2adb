package dhcp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/iana"
	"golang.org/x/net/bpf"

	"github.com/muster-scheduler/muster/internal/vm"
)

func client6() dhcpv6.DUID {
	mac, _ := net.ParseMAC(guestMAC)
	return &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: mac}
}

// ask6 makes a client's message, with an association that names some addresses.
func ask6(kind dhcpv6.MessageType, server dhcpv6.DUID, addresses ...string) *dhcpv6.Message {
	m := &dhcpv6.Message{MessageType: kind, TransactionID: dhcpv6.TransactionID{1, 2, 3}}
	m.AddOption(dhcpv6.OptClientID(client6()))
	if server != nil {
		m.AddOption(dhcpv6.OptServerID(server))
	}
	if kind != dhcpv6.MessageTypeInformationRequest {
		ia := &dhcpv6.OptIANA{IaId: [4]byte{9, 9, 9, 9}}
		for _, a := range addresses {
			ia.Options.Add(&dhcpv6.OptIAAddress{IPv6Addr: net.ParseIP(a)})
		}
		m.AddOption(ia)
	}
	return m
}

// given are the addresses of an answer's associations, those that end marked with a minus.
func given(m *dhcpv6.Message) (out []string) {
	for _, ia := range m.Options.IANA() {
		for _, a := range ia.Options.Addresses() {
			s := a.IPv6Addr.String()
			if a.ValidLifetime == 0 {
				s = "-" + s
			}
			out = append(out, s)
		}
		if st := ia.Options.Status(); st != nil {
			out = append(out, st.StatusCode.String())
		}
	}
	if st := m.Options.Status(); st != nil {
		out = append(out, st.StatusCode.String())
	}
	return out
}

// TestAnswer6 is RFC 8415's §18.3, for a client whose address is fd00::2.
func TestAnswer6(t *testing.T) {
	t.Parallel()
	other := &dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: net.HardwareAddr{2, 0, 0, 0, 0, 9}}
	ours := serverID()
	none := dhcpv6.MessageTypeNone
	rapid := ask6(dhcpv6.MessageTypeSolicit, nil)
	rapid.AddOption(&dhcpv6.OptionGeneric{OptionCode: dhcpv6.OptionRapidCommit})
	two := ask6(dhcpv6.MessageTypeSolicit, nil)
	two.AddOption(&dhcpv6.OptIANA{IaId: [4]byte{8}})
	anonymous := ask6(dhcpv6.MessageTypeSolicit, nil)
	anonymous.Options.Del(dhcpv6.OptionClientID)
	for _, test := range []struct {
		name   string
		in     *dhcpv6.Message
		answer dhcpv6.MessageType
		event  Event
		given  string
	}{
		{"solicit", ask6(dhcpv6.MessageTypeSolicit, nil), dhcpv6.MessageTypeAdvertise, Offered, "[fd00::2]"},
		{"solicit that wishes another address", ask6(dhcpv6.MessageTypeSolicit, nil, "fd00::9"), dhcpv6.MessageTypeAdvertise, Offered, "[fd00::2]"},
		{"solicit in a hurry", rapid, dhcpv6.MessageTypeReply, Acknowledged, "[fd00::2]"},
		{"solicit of two associations", two, dhcpv6.MessageTypeAdvertise, Offered, "[fd00::2 NoAddrsAvail]"},
		{"solicit that names a server", ask6(dhcpv6.MessageTypeSolicit, ours), none, Ignored, ""},
		{"solicit of nobody", anonymous, none, Ignored, ""},
		{"request", ask6(dhcpv6.MessageTypeRequest, ours, "fd00::2"), dhcpv6.MessageTypeReply, Acknowledged, "[fd00::2]"},
		{"request of another server's", ask6(dhcpv6.MessageTypeRequest, other, "fd00::2"), none, Ignored, ""},
		{"renew", ask6(dhcpv6.MessageTypeRenew, ours, "fd00::2"), dhcpv6.MessageTypeReply, Acknowledged, "[fd00::2]"},
		{"renew of an address of before", ask6(dhcpv6.MessageTypeRenew, ours, "fd77::2"), dhcpv6.MessageTypeReply, Acknowledged, "[fd00::2 -fd77::2]"},
		{"rebind", ask6(dhcpv6.MessageTypeRebind, nil, "fd00::2"), dhcpv6.MessageTypeReply, Acknowledged, "[fd00::2]"},
		{"confirm", ask6(dhcpv6.MessageTypeConfirm, nil, "fd00::2"), dhcpv6.MessageTypeReply, Acknowledged, "[Success]"},
		{"confirm of another's", ask6(dhcpv6.MessageTypeConfirm, nil, "fd00::3"), dhcpv6.MessageTypeReply, Refused, "[NotOnLink]"},
		{"confirm of nothing", ask6(dhcpv6.MessageTypeConfirm, nil), none, Ignored, ""},
		{"release", ask6(dhcpv6.MessageTypeRelease, ours, "fd00::2"), dhcpv6.MessageTypeReply, Released, "[Success]"},
		{"release of another's", ask6(dhcpv6.MessageTypeRelease, ours, "fd00::3"), dhcpv6.MessageTypeReply, Ignored, "[Success]"},
		{"decline", ask6(dhcpv6.MessageTypeDecline, ours, "fd00::2"), dhcpv6.MessageTypeReply, Declined, "[Success]"},
		{"information", ask6(dhcpv6.MessageTypeInformationRequest, nil), dhcpv6.MessageTypeReply, Informed, "[]"},
		{"a server's message", ask6(dhcpv6.MessageTypeAdvertise, ours), none, Ignored, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, event := config().Answer6(card(), test.in)
			if event != test.event {
				t.Errorf("event %s, want %s", event, test.event)
			}
			if out == nil {
				if test.answer != none {
					t.Fatal("no answer")
				}
				return
			}
			back, err := dhcpv6.MessageFromBytes(out.ToBytes())
			if err != nil {
				t.Fatal(err)
			}
			if back.MessageType != test.answer || fmt.Sprint(given(back)) != test.given || back.TransactionID != test.in.TransactionID ||
				!back.Options.ClientID().Equal(client6()) || !back.Options.ServerID().Equal(ours) {
				t.Errorf("answered %s, giving %v; want %s, %s", back.Summary(), given(back), test.answer, test.given)
			}
			if tells := test.event == Offered || test.event == Informed || test.event == Acknowledged && test.in.MessageType != dhcpv6.MessageTypeConfirm; tells !=
				(fmt.Sprint(back.Options.DNS(), back.Options.DomainSearchList()) == "[fd00::a] [ns.svc.cluster.local svc.cluster.local]") {
				t.Errorf("resolver %v %v, of an answer that should tell it: %v", back.Options.DNS(), back.Options.DomainSearchList(), tells)
			}
			for _, ia := range back.Options.IANA()[:min(1, len(back.Options.IANA()))] {
				if ia.T1 != 12*time.Hour || ia.T2 != 18*time.Hour || ia.Options.Addresses()[0].ValidLifetime != 24*time.Hour {
					t.Errorf("association %s", ia)
				}
			}
		})
	}
	four := card()
	four.Addresses = four.Addresses[1:]
	if out, _ := config().Answer6(four, ask6(dhcpv6.MessageTypeSolicit, nil)); out != nil {
		t.Error("a card without an IPv6 address is offered one")
	}
}

// TestRouters: CNI's routes become routers with addresses of their own.
func TestRouters(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		routes []vm.Route
		want   string
	}{
		{"none", nil, "[]"},
		{"IPv4's", []vm.Route{route("0.0.0.0/0", "10.89.0.1")}, "[]"},
		{"a gateway of the subnet", []vm.Route{route("::/0", "fd00::1")}, "[{fd00::1 fe80::a9fe:fe02:0:1 [::/0]}]"},
		{"Calico's", []vm.Route{route("fe80::ecee:eeff:feee:eeee/128", ""), route("::/0", "fe80::ecee:eeff:feee:eeee")}, "[{fe80::ecee:eeff:feee:eeee fe80::ecee:eeff:feee:eeee [::/0]}]"},
		{
			"two, of which one is the default",
			[]vm.Route{route("fd77::/48", "fd00::5"), route("::/0", "fd00::1"), route("::/0", "fd00::5"), route("fd78::/48", "fd00::5")},
			"[{fd00::5 fe80::a9fe:fe02:0:1 [fd77::/48 fd78::/48]} {fd00::1 fe80::a9fe:fe02:0:2 [::/0]}]",
		},
	} {
		short := []string{}
		for _, r := range routers(card(test.routes...)) {
			short = append(short, fmt.Sprintf("{%s %s %s}", r.gateway, r.address, r.through))
		}
		if got := fmt.Sprint(short); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// advertised is an advertisement, read by the test's own reader.
type advertised struct {
	from     netip.Addr
	lifetime uint16
	flags    byte
	options  map[byte][]byte
}

func readAdvertisement(t *testing.T, f []byte) advertised {
	t.Helper()
	src, hops, m, ok := packet6(f, protocolICMP)
	if !ok || hops != 255 || m[0] != ndAdvertisement || net.HardwareAddr(f[:6]).String() != "33:33:00:00:00:01" {
		t.Fatalf("no advertisement: %x", f)
	}
	pseudo := slices.Concat(f[22:54], []byte{0, 0}, f[18:20], []byte{0, 0, 0, 58})
	if got := plainSum(append(pseudo, f[54:]...)); got != 0xffff {
		t.Errorf("it sums up to %#x", got)
	}
	a := advertised{from: src, flags: m[5], lifetime: binary.BigEndian.Uint16(m[6:]), options: map[byte][]byte{}}
	for o := m[16:]; len(o) > 0; o = o[8*int(o[1]):] {
		a.options[o[0]] = o[2 : 8*int(o[1])]
	}
	return a
}

// TestAdvertisements: a guest is told its subnet, MTU, resolver and routes, that its addresses come by DHCPv6, and a stand-in only when it is known whose it is.
func TestAdvertisements(t *testing.T) {
	t.Parallel()
	gateway := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}
	p := Port{Link: 7, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Card: card(route("::/0", "fd00::1"), route("fd77::/48", "fd00::1"))}
	for _, known := range []bool{true, false} {
		all := config().advertisements(p, func(g netip.Addr) net.HardwareAddr {
			if known && g.String() == "fd00::1" {
				return gateway
			}
			return nil
		})
		if len(all) != 1 {
			t.Fatalf("%d advertisements", len(all))
		}
		a := readAdvertisement(t, all[0])
		if a.from.String() != "fe80::a9fe:fe02:0:1" || a.flags != 0xc0 || (a.lifetime == 65535) != known {
			t.Errorf("known %v: %+v", known, a)
		}
		if got, want := string(a.options[optionSource]), map[bool]string{true: string(gateway)}[known]; got != want {
			t.Errorf("known %v: its MAC is %x", known, got)
		}
		prefix := a.options[optionPrefix]
		if len(prefix) != 30 || prefix[0] != 64 || prefix[1] != 0x80 || netip.AddrFrom16([16]byte(prefix[14:])).String() != "fd00::" {
			t.Errorf("prefix %x: want fd00::/64, on the link, and no address to be made of it", prefix)
		}
		if binary.BigEndian.Uint32(a.options[optionMTU][2:]) != 1450 || netip.AddrFrom16([16]byte(a.options[optionServers][6:])).String() != "fd00::a" {
			t.Errorf("options %x", a.options)
		}
		if r := a.options[optionRoute]; known != (len(r) == 22 && r[0] == 48 && netip.AddrFrom16([16]byte(r[6:])).String() == "fd77::") {
			t.Errorf("known %v: route %x", known, r)
		}
	}
	p.Card = card(route("::/0", "fe80::1"))
	if a := readAdvertisement(t, config().advertisements(p, func(netip.Addr) net.HardwareAddr { return nil })[0]); a.from.String() != "fe80::1" || a.lifetime != 65535 || a.options[optionSource] != nil {
		t.Errorf("a router that is known by its own address: %+v", a)
	}
	p.Card = card()
	if a := readAdvertisement(t, config().advertisements(p, func(netip.Addr) net.HardwareAddr { return nil })[0]); a.lifetime != 0 || a.flags != 0xc0 {
		t.Errorf("no router: %+v", a)
	}
}

func solicitation() []byte {
	mac, _ := net.ParseMAC(guestMAC)
	return frame6(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 2}, mac, netip.MustParseAddr("ff02::2"), netip.MustParseAddr("fe80::7"), protocolICMP, []byte{ndSolicitation, 0, 0, 0, 0, 0, 0, 0})
}

func request6(m *dhcpv6.Message) []byte {
	mac, _ := net.ParseMAC(guestMAC)
	f := frame6(net.HardwareAddr{0x33, 0x33, 0, 1, 0, 2}, mac, netip.MustParseAddr("ff02::1:2"), netip.MustParseAddr("fe80::7"), protocolUDP, udp6(m.ToBytes()))
	binary.BigEndian.PutUint16(f[54:], clientPort6)
	binary.BigEndian.PutUint16(f[56:], serverPort6)
	return f
}

func neighbourQuestion(target netip.Addr, from string) []byte {
	mac, _ := net.ParseMAC(guestMAC)
	m := append([]byte{ndNeighbour, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	return frame6(net.HardwareAddr{0x33, 0x33, 0xff, 0, 0, 1}, mac, netip.MustParseAddr("ff02::1:ff00:1"), netip.MustParseAddr(from), protocolICMP, m)
}

func neighbourAnswer(target string, mac net.HardwareAddr) []byte {
	a := netip.MustParseAddr(target)
	m := slices.Concat([]byte{ndNeighbourIs, 0, 0, 0, 0x60, 0, 0, 0}, a.AsSlice(), []byte{optionTarget, 1}, mac)
	return frame6(hardware(guestMAC), mac, netip.MustParseAddr("fd00::2"), a, protocolICMP, m)
}

// TestServer6 is a guest that looks for its router, whose MAC is not known at first, changes later, and is nobody's to say unasked.
func TestServer6(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		guest, network := newPipe(), newPipe()
		guest.out, network.out = make(chan sent, 1000), make(chan sent, 1000)
		first, second := net.HardwareAddr{2, 0, 0, 0, 0, 0x77}, net.HardwareAddr{2, 0, 0, 0, 0, 0x78}
		s := Start(guest, network, *config(), []Port{{Link: 7, Outer: 3, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Card: card(route("::/0", "fd00::1"))}}, logr.Discard())
		defer s.Close()
		drain := func(p *pipe) (out []sent) {
			synctest.Wait()
			for {
				select {
				case f := <-p.out:
					out = append(out, f)
				default:
					return out
				}
			}
		}
		last := func() advertised {
			all := drain(guest)
			if len(all) == 0 {
				t.Fatal("nothing was advertised")
			}
			return readAdvertisement(t, all[len(all)-1].frame)
		}
		q := drain(network)
		if len(q) != 1 || q[0].link != 3 {
			t.Fatalf("asked the network %v", q)
		}
		src, _, m, _ := packet6(q[0].frame, protocolICMP)
		if src.String() != "fd00::2" || m[0] != ndNeighbour || netip.AddrFrom16([16]byte(m[8:24])).String() != "fd00::1" || net.HardwareAddr(q[0].frame[:6]).String() != "33:33:ff:00:00:01" {
			t.Errorf("asked %x", q[0].frame)
		}
		if a := last(); a.lifetime != 0 {
			t.Errorf("a router that nobody knows is advertised: %+v", a)
		}
		guest.in <- sent{7, neighbourQuestion(standIn(1), "fe80::7")}
		if got := drain(guest); len(got) != 0 {
			t.Errorf("answered for a router that nobody knows: %x", got)
		}
		network.in <- sent{3, neighbourAnswer("fd00::9", second)} // not what was asked for
		network.in <- sent{3, neighbourAnswer("fd00::1", first)}
		network.in <- sent{3, neighbourAnswer("fd00::1", second)} // a second answer to one question
		if a := last(); a.lifetime != 65535 || string(a.options[optionSource]) != string(first) {
			t.Errorf("advertised %+v", a)
		}
		guest.in <- sent{7, solicitation()}
		if a := last(); a.lifetime != 65535 {
			t.Errorf("solicited, advertised %+v", a)
		}
		guest.in <- sent{7, neighbourQuestion(standIn(1), "::")}      // looks whether the address is free
		guest.in <- sent{7, neighbourQuestion(standIn(2), "fe80::7")} // nobody's
		guest.in <- sent{7, neighbourQuestion(standIn(1), "fe80::7")}
		got := drain(guest)
		if len(got) != 1 {
			t.Fatalf("%d answers for the router", len(got))
		}
		if a, mac, ok := neighbour(got[0].frame); !ok || a != standIn(1) || mac.String() != first.String() {
			t.Errorf("the router is %s at %s", a, mac)
		}
		// The question had the gateway asked for anew; it has moved.
		time.Sleep(2 * repeatFirst)
		if len(drain(network)) == 0 {
			t.Error("the gateway was not asked for again")
		}
		drain(guest)
		network.in <- sent{3, neighbourAnswer("fd00::1", second)}
		if a := last(); string(a.options[optionSource]) != string(second) {
			t.Errorf("moved, advertised %+v", a)
		}
		// Long after the last question, nobody is believed.
		time.Sleep(time.Hour)
		drain(guest)
		for len(drain(network)) == 0 {
			time.Sleep(time.Second)
		}
		drain(guest)
		time.Sleep(answerTime + time.Second)
		network.in <- sent{3, neighbourAnswer("fd00::1", first)}
		if got := drain(guest); len(got) != 0 {
			t.Errorf("somebody was believed who was not asked: %d frames", len(got))
		}
		guest.in <- sent{7, request6(ask6(dhcpv6.MessageTypeRequest, serverID(), "fd00::2"))}
		drain(guest)
		if l := s.Leases(); len(l) != 1 || l[0].Address.String() != "fd00::2" {
			t.Errorf("leases %+v", l)
		}
	})
}

// TestFilters6 runs the kernel's filters in a machine of x/net, from the link that is asked about on.
func TestFilters6(t *testing.T) {
	t.Parallel()
	leaks, err := bpf.NewVM(leakFilter())
	if err != nil {
		t.Fatal(err)
	}
	// The machine knows no extensions of Linux: what loads them is taken out, with what looks at it.
	tail := func(raw []bpf.RawInstruction, err error) *bpf.VM {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all, _ := bpf.Disassemble(raw)
		at := slices.IndexFunc(all, func(i bpf.Instruction) bool { l, ok := i.(bpf.LoadAbsolute); return ok && l.Off == 12 && l.Size == 2 })
		vm, err := bpf.NewVM(all[at:])
		if err != nil {
			t.Fatal(err)
		}
		return vm
	}
	guests, network := tail(hears([]int{1, 2})), tail(answers([]int{1}))
	solicit := solicitation()
	advertise := slices.Clone(solicit)
	advertise[54] = ndAdvertisement
	for _, test := range []struct {
		name                 string
		frame                []byte
		drop, guest, outside bool
	}{
		{"DHCP", request(ask(1)), true, true, false},
		{"DHCPv6", request6(ask6(dhcpv6.MessageTypeSolicit, nil)), true, true, false},
		{"a router that is asked for", solicit, true, true, false},
		{"a router that is advertised", advertise, true, false, false},
		{"a stand-in", neighbourQuestion(standIn(3), "fe80::7"), false, true, false},
		{"another neighbour", neighbourQuestion(netip.MustParseAddr("fe80::1"), "fe80::7"), false, false, false},
		{"a neighbour that answers", neighbourAnswer("fd00::1", net.HardwareAddr{2, 0, 0, 0, 0, 1}), false, false, true},
		{"TCP", func() []byte { f := slices.Clone(solicit); f[20] = 6; return f }(), false, false, false},
	} {
		dropped, err := leaks.Run(test.frame)
		if err != nil {
			t.Fatal(err)
		}
		heard, err := guests.Run(test.frame)
		if err != nil {
			t.Fatal(err)
		}
		answered, err := network.Run(test.frame)
		if err != nil {
			t.Fatal(err)
		}
		if uint32(dropped) == drops != test.drop || heard > 0 != test.guest || answered > 0 != test.outside {
			t.Errorf("%s: dropped %v, heard of the guest %v, of the network %v", test.name, uint32(dropped) == drops, heard > 0, answered > 0)
		}
	}
}

// FuzzRespond6: whatever a guest or a neighbour sends, the server lives, and gives only the card's address, in a packet that every link carries.
func FuzzRespond6(f *testing.F) {
	f.Add(request6(ask6(dhcpv6.MessageTypeSolicit, nil)))
	f.Add(request6(ask6(dhcpv6.MessageTypeRenew, serverID(), "fd77::2")))
	f.Add(solicitation())
	f.Add(neighbourQuestion(standIn(1), "fe80::7"))
	f.Add(neighbourAnswer("fd00::1", net.HardwareAddr{2, 0, 0, 0, 0, 1}))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, whole := range []bool{true, false} {
			frame := in
			if !whole {
				frame = append(request6(ask6(dhcpv6.MessageTypeSolicit, nil))[:62:62], in...)
				if len(frame) > 2048 {
					frame = frame[:2048]
				}
				binary.BigEndian.PutUint16(frame[18:], uint16(len(frame)-54))
				binary.BigEndian.PutUint16(frame[58:], uint16(len(frame)-54))
			}
			_ = solicits(frame)
			_, _, _ = asked(frame)
			_, _, _ = neighbour(frame)
			out, _ := config().respond6(Port{Link: 1, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Card: card()}, frame)
			if out == nil {
				continue
			}
			m, err := dhcpv6.MessageFromBytes(out[62:])
			if err != nil {
				t.Fatalf("the answer cannot be read: %v", err)
			}
			for _, a := range given(m) {
				if strings.Contains(a, ":") && a[0] != '-' && a != "fd00::2" {
					t.Errorf("gave %s", a)
				}
			}
			if len(out) > ethernetSize+leastPacket6 {
				t.Errorf("an answer of %d bytes", len(out))
			}
		}
	})
}
