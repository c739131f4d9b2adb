package dhcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/muster-scheduler/muster/internal/vm"
)

const guestMAC = "0a:58:0a:59:00:02"

func card(routes ...vm.Route) vm.Interface {
	return vm.Interface{
		Name: "eth0", MAC: guestMAC, MTU: 1450,
		Addresses: []netip.Prefix{netip.MustParsePrefix("fd00::2/64"), netip.MustParsePrefix("10.89.0.2/24")}, Routes: routes,
	}
}

func route(destination, gateway string) vm.Route {
	r := vm.Route{Destination: netip.MustParsePrefix(destination)}
	if gateway != "" {
		r.Gateway = netip.MustParseAddr(gateway)
	}
	return r
}

func config() *Config {
	return &Config{
		Server: netip.MustParseAddr("169.254.254.2"), Lease: 24 * time.Hour, Hostname: "web-0",
		DNS: vm.DNS{Servers: []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a")}, Search: []string{"ns.svc.cluster.local", "svc.cluster.local."}},
	}
}

// ask makes a client's message.
func ask(kind dhcpv4.MessageType, change ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	mac, _ := net.ParseMAC(guestMAC)
	m := &dhcpv4.DHCPv4{OpCode: dhcpv4.OpcodeBootRequest, HWType: iana.HWTypeEthernet, TransactionID: dhcpv4.TransactionID{1, 2, 3, 4}, ClientHWAddr: mac, Options: dhcpv4.Options{}}
	m.UpdateOption(dhcpv4.OptMessageType(kind))
	for _, c := range change {
		c(m)
	}
	return m
}

func wants(ip string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(ip)))
}

func has(ip string) dhcpv4.Modifier { return dhcpv4.WithClientIP(net.ParseIP(ip)) }

func picks(ip string) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.ParseIP(ip)))
}

// TestAnswer is RFC 2131's table of what a server does, for a client whose address is 10.89.0.2.
func TestAnswer(t *testing.T) {
	t.Parallel()
	none := dhcpv4.MessageTypeNone
	for _, test := range []struct {
		name   string
		in     *dhcpv4.DHCPv4
		answer dhcpv4.MessageType
		event  Event
	}{
		{"discover", ask(dhcpv4.MessageTypeDiscover), dhcpv4.MessageTypeOffer, Offered},
		{"discover that wishes another address", ask(dhcpv4.MessageTypeDiscover, wants("10.0.0.9")), dhcpv4.MessageTypeOffer, Offered},
		{"request of the offer", ask(dhcpv4.MessageTypeRequest, wants("10.89.0.2"), picks("169.254.254.2")), dhcpv4.MessageTypeAck, Acknowledged},
		{"request of another server's offer", ask(dhcpv4.MessageTypeRequest, wants("10.89.0.2"), picks("10.89.0.1")), none, Ignored},
		{"request of another address", ask(dhcpv4.MessageTypeRequest, wants("10.89.0.3"), picks("169.254.254.2")), dhcpv4.MessageTypeNak, Refused},
		{"after a boot, the same address", ask(dhcpv4.MessageTypeRequest, wants("10.89.0.2")), dhcpv4.MessageTypeAck, Acknowledged},
		{"after a boot, an address of before", ask(dhcpv4.MessageTypeRequest, wants("192.168.1.7")), dhcpv4.MessageTypeNak, Refused},
		{"renewal", ask(dhcpv4.MessageTypeRequest, has("10.89.0.2")), dhcpv4.MessageTypeAck, Acknowledged},
		{"renewal of another address", ask(dhcpv4.MessageTypeRequest, has("10.89.0.3")), dhcpv4.MessageTypeNak, Refused},
		{"request of nothing", ask(dhcpv4.MessageTypeRequest), none, Ignored},
		{"inform", ask(dhcpv4.MessageTypeInform, has("10.89.0.7")), dhcpv4.MessageTypeAck, Informed},
		{"inform without an address", ask(dhcpv4.MessageTypeInform), none, Ignored},
		{"release", ask(dhcpv4.MessageTypeRelease, has("10.89.0.2"), picks("169.254.254.2")), none, Released},
		{"release of another's", ask(dhcpv4.MessageTypeRelease, has("10.89.0.3"), picks("169.254.254.2")), none, Ignored},
		{"decline", ask(dhcpv4.MessageTypeDecline, wants("10.89.0.2"), picks("169.254.254.2")), none, Declined},
		{"no type", ask(none), none, Ignored},
		{"a server's message", ask(dhcpv4.MessageTypeDiscover, func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootReply }), none, Ignored},
		{"another's MAC", ask(dhcpv4.MessageTypeDiscover, dhcpv4.WithHwAddr(net.HardwareAddr{2, 0, 0, 0, 0, 9})), none, Ignored},
		{"a MAC that only begins so", ask(dhcpv4.MessageTypeDiscover, func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = append(m.ClientHWAddr, 0) }), none, Ignored},
		{"by a relay", ask(dhcpv4.MessageTypeDiscover, dhcpv4.WithGatewayIP(net.IP{10, 0, 0, 1})), none, Ignored},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, event := config().Answer(card(), test.in)
			got := none
			if out != nil {
				got = out.MessageType()
				if out.TransactionID != test.in.TransactionID || out.OpCode != dhcpv4.OpcodeBootReply {
					t.Errorf("the answer belongs to another question: %s", out.Summary())
				}
			}
			if got != test.answer || event != test.event {
				t.Fatalf("answer %s, event %s; want %s, %s", got, event, test.answer, test.event)
			}
			if out == nil {
				return
			}
			yours, lease := out.YourIPAddr.String(), out.Options.Has(dhcpv4.OptionIPAddressLeaseTime)
			wantYours, wantLease := "10.89.0.2", true
			if got == dhcpv4.MessageTypeNak || event == Informed {
				wantYours, wantLease = "0.0.0.0", false
			}
			if yours != wantYours || lease != wantLease {
				t.Errorf("it gives %s, with a lease time: %v; want %s, %v", yours, lease, wantYours, wantLease)
			}
			if got == dhcpv4.MessageTypeNak && out.Options.Has(dhcpv4.OptionSubnetMask) {
				t.Error("a refusal describes the network")
			}
		})
	}
	ipv6 := card()
	ipv6.Addresses = ipv6.Addresses[:1]
	if out, _ := config().Answer(ipv6, ask(dhcpv4.MessageTypeDiscover)); out != nil {
		t.Error("a card without an IPv4 address is offered one")
	}
}

// TestOptions compares every option of an offer, byte by byte, with what the RFCs say.
func TestOptions(t *testing.T) {
	t.Parallel()
	in := ask(dhcpv4.MessageTypeDiscover,
		dhcpv4.WithGeneric(dhcpv4.OptionClientMachineIdentifier, []byte{0, 7, 7}), dhcpv4.WithGeneric(dhcpv4.OptionClientIdentifier, []byte{1, 9}))
	out, _ := config().Answer(card(route("0.0.0.0/0", "10.89.0.1")), in)
	want := dhcpv4.Options{
		1:   {255, 255, 255, 0},
		3:   {10, 89, 0, 1},
		6:   {10, 96, 0, 10},
		12:  []byte("web-0"),
		15:  []byte("ns.svc.cluster.local"),
		26:  {0x05, 0xaa},
		51:  {0, 1, 0x51, 0x80},
		53:  {2},
		54:  {169, 254, 254, 2},
		58:  {0, 0, 0xa8, 0xc0},
		59:  {0, 0, 0xfd, 0x20},
		61:  {1, 9},
		97:  {0, 7, 7},
		119: []byte("\x02ns\x03svc\x07cluster\x05local\x00\x03svc\x07cluster\x05local\x00"),
	}
	if d := cmp.Diff(want, out.Options); d != "" {
		t.Errorf("options (-want +got):\n%s", d)
	}
	// It survives the wire.
	back, err := dhcpv4.FromBytes(out.ToBytes())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(out.Options, back.Options); d != "" {
		t.Errorf("options after the wire (-want +got):\n%s", d)
	}
}

// TestRoutes is about options 3 and 121.
func TestRoutes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		address string
		routes  []vm.Route
		request []byte // option 55
		router  []byte
		static  []byte
	}{
		{name: "none", address: "10.89.0.2/24"},
		{name: "a default route", address: "10.89.0.2/24", routes: []vm.Route{route("0.0.0.0/0", "10.89.0.1")}, router: []byte{10, 89, 0, 1}},
		{
			name: "another route takes the default along", address: "10.89.0.2/24",
			routes: []vm.Route{route("0.0.0.0/0", "10.89.0.1"), route("10.96.0.0/12", "10.89.0.5")},
			static: []byte{0, 10, 89, 0, 1, 12, 10, 96, 10, 89, 0, 5},
		},
		{
			name: "a client that does not ask for 121 keeps 3", address: "10.89.0.2/24", request: []byte{1, 3, 6},
			routes: []vm.Route{route("0.0.0.0/0", "10.89.0.1"), route("10.96.0.0/12", "10.89.0.5")},
			router: []byte{10, 89, 0, 1}, static: []byte{0, 10, 89, 0, 1, 12, 10, 96, 10, 89, 0, 5},
		},
		{
			name: "Calico", address: "10.244.3.7/32",
			routes: []vm.Route{route("169.254.1.1/32", ""), route("0.0.0.0/0", "169.254.1.1")},
			static: []byte{32, 169, 254, 1, 1, 0, 0, 0, 0, 0, 169, 254, 1, 1},
		},
		{
			name: "a gateway that nothing leads to gets a route of its own", address: "10.244.3.7/32", routes: []vm.Route{route("0.0.0.0/0", "10.0.0.1")},
			static: []byte{32, 10, 0, 0, 1, 0, 0, 0, 0, 0, 10, 0, 0, 1},
		},
		{name: "IPv6 has no place", address: "10.89.0.2/24", routes: []vm.Route{route("::/0", "fd00::1")}},
		{
			name: "lengths that end within a byte", address: "10.89.0.2/24", routes: []vm.Route{route("10.128.0.0/9", "10.89.0.1"), route("192.0.2.128/25", "10.89.0.1")},
			static: []byte{9, 10, 128, 10, 89, 0, 1, 25, 192, 0, 2, 128, 10, 89, 0, 1},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := card(test.routes...)
			c.Addresses = []netip.Prefix{netip.MustParsePrefix(test.address)}
			in := ask(dhcpv4.MessageTypeDiscover)
			if test.request != nil {
				in.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionParameterRequestList, test.request))
			}
			out, _ := config().Answer(c, in)
			if got := out.Options.Get(dhcpv4.OptionRouter); !bytes.Equal(got, test.router) {
				t.Errorf("option 3 is %v, want %v", got, test.router)
			}
			if got := out.Options.Get(dhcpv4.OptionClasslessStaticRoute); !bytes.Equal(got, test.static) {
				t.Errorf("option 121 is %v, want %v", got, test.static)
			}
		})
	}
}

// TestSearchList decodes what the encoder made with a decoder of its own, and leaves out what DNS cannot hold.
func TestSearchList(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 63)
	in := []string{"example.com", "b.", "", ".", "x..y", long + "a.org", long + ".org", strings.Repeat(long+".", 4) + "x"}
	var got []string
	for b := searchList(in); len(b) > 0; {
		var labels []string
		for b[0] != 0 {
			n := int(b[0])
			labels, b = append(labels, string(b[1:1+n])), b[1+n:]
		}
		b = b[1:]
		got = append(got, strings.Join(labels, "."))
	}
	if want := []string{"example.com", "b", long + ".org"}; !slices.Equal(got, want) {
		t.Errorf("search list %q, want %q", got, want)
	}
}

// TestSize: what a client takes is not exceeded, and the address comes first.
func TestSize(t *testing.T) {
	t.Parallel()
	c := config()
	c.DNS.Search = nil
	for i := range 30 {
		c.DNS.Search = append(c.DNS.Search, fmt.Sprintf("%d.%s.example.com", i, strings.Repeat("x", 30)))
	}
	kept := map[int]int{}
	for _, size := range []int{0, 576, 1000, 1400, 9000} {
		in := ask(dhcpv4.MessageTypeDiscover)
		if size > 0 {
			in.UpdateOption(dhcpv4.OptMaxMessageSize(uint16(size)))
		}
		out, _ := c.Answer(card(route("0.0.0.0/0", "10.89.0.1")), in)
		room := max(size, 576)
		if n := len(out.ToBytes()) + 28; n > min(room, 1450) {
			t.Errorf("a client that takes %d bytes gets %d", room, n)
		}
		if !out.Options.Has(dhcpv4.OptionRouter) || !out.Options.Has(dhcpv4.OptionDNSDomainSearchList) {
			t.Errorf("a client that takes %d bytes gets no router or no search list", room)
		}
		kept[size] = len(out.Options.Get(dhcpv4.OptionDNSDomainSearchList))
	}
	if kept[1400] <= kept[576] {
		t.Errorf("search lists are as short for a client that takes more: %v", kept)
	}
}

// TestFrames: an answer is addressed as RFC 2131 §4.1 says, and its checksums hold by a plain sum.
func TestFrames(t *testing.T) {
	t.Parallel()
	mac, _ := net.ParseMAC(guestMAC)
	port := Port{Link: 3, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Card: card()}
	for _, test := range []struct {
		name string
		in   *dhcpv4.DHCPv4
		mac  net.HardwareAddr
		ip   string
	}{
		{"an offer", ask(dhcpv4.MessageTypeDiscover), mac, "10.89.0.2"},
		{"an offer that is to be broadcast", ask(dhcpv4.MessageTypeDiscover, dhcpv4.WithBroadcast(true)), broadcastMAC(), "255.255.255.255"},
		{"a renewal", ask(dhcpv4.MessageTypeRequest, has("10.89.0.2")), mac, "10.89.0.2"},
		{"a refusal", ask(dhcpv4.MessageTypeRequest, wants("10.89.0.9")), broadcastMAC(), "255.255.255.255"},
		{"what an inform asks", ask(dhcpv4.MessageTypeInform, has("10.89.0.7")), mac, "10.89.0.7"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			out, _ := config().respond(port, request(test.in))
			if out == nil {
				t.Fatal("no answer")
			}
			if got := net.HardwareAddr(out[:6]); got.String() != test.mac.String() {
				t.Errorf("to %s, want %s", got, test.mac)
			}
			if got := net.IP(out[30:34]).String(); got != test.ip {
				t.Errorf("to %s, want %s", got, test.ip)
			}
			if got := plainSum(out[14:34]); got != 0xffff {
				t.Errorf("the IP header sums up to %#x", got)
			}
			pseudo := append(append(slices.Clone(out[26:34]), 0, 17), out[38:40]...)
			if got := plainSum(append(pseudo, out[34:]...)); got != 0xffff {
				t.Errorf("the UDP packet sums up to %#x", got)
			}
			if _, err := dhcpv4.FromBytes(out[42:]); err != nil {
				t.Error(err)
			}
		})
	}
}

func broadcastMAC() net.HardwareAddr { return net.HardwareAddr{255, 255, 255, 255, 255, 255} }

// plainSum adds up big-endian words with end-around carry, the slow way.
func plainSum(b []byte) uint16 {
	if len(b)%2 == 1 {
		b = append(slices.Clone(b), 0)
	}
	var s uint64
	for ; len(b) > 0; b = b[2:] {
		s += uint64(binary.BigEndian.Uint16(b))
		if s > 0xffff {
			s -= 0xffff
		}
	}
	return uint16(s)
}

// request puts a client's message into a frame, as a guest sends it.
func request(m *dhcpv4.DHCPv4) []byte {
	f := frame(broadcastMAC(), m.ClientHWAddr, netip.MustParseAddr("255.255.255.255"), netip.IPv4Unspecified(), m.ToBytes())
	binary.BigEndian.PutUint16(f[34:], clientPort)
	binary.BigEndian.PutUint16(f[36:], serverPort)
	return f
}
