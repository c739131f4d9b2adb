package dhcp

import (
	"bytes"
	"encoding/binary"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/net/bpf"
)

// pipe is a Conn whose frames are a test's.
type pipe struct {
	in     chan sent
	out    chan sent
	closed chan struct{}
	once   sync.Once
}

type sent struct {
	link  int
	frame []byte
}

func newPipe() *pipe {
	return &pipe{in: make(chan sent), out: make(chan sent, 16), closed: make(chan struct{})}
}

func (p *pipe) ReadFrame(b []byte) (int, int, error) {
	select {
	case s := <-p.in:
		return copy(b, s.frame), s.link, nil
	case <-p.closed:
		return 0, 0, os.ErrClosed
	}
}

func (p *pipe) WriteFrame(link int, frame []byte) error {
	p.out <- sent{link, bytes.Clone(frame)}
	return nil
}

func (p *pipe) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// TestServer: the answer goes where the question came from; another link's questions have none; leases come and go.
func TestServer(t *testing.T) {
	t.Parallel()
	// Without IPv6, of which a guest would be told unasked.
	first := card()
	first.Addresses = first.Addresses[1:]
	second := first
	second.Name, second.MAC = "net1", "0a:58:0a:59:00:03"
	p := newPipe()
	s := Start(p, nil, *config(), []Port{{Link: 7, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Card: first}, {Link: 9, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Card: second}}, logr.Discard())
	defer s.Close()
	p.in <- sent{8, request(ask(dhcpv4.MessageTypeDiscover))}      // no link of the pod's
	p.in <- sent{9, request(ask(dhcpv4.MessageTypeDiscover))}      // the first card's MAC on the second's link
	p.in <- sent{7, []byte("garbage")}                             // no packet
	p.in <- sent{7, request(ask(dhcpv4.MessageTypeDiscover))[:60]} // half a packet
	p.in <- sent{7, request(ask(dhcpv4.MessageTypeRequest, wants("10.89.0.2")))}
	got := <-p.out
	m, err := dhcpv4.FromBytes(got.frame[42:])
	if err != nil {
		t.Fatal(err)
	}
	if got.link != 7 || m.MessageType() != dhcpv4.MessageTypeAck {
		t.Errorf("the first answer went to link %d: %s", got.link, m.Summary())
	}
	if l := s.Leases(); len(l) != 1 || l[0].Card != "eth0" || l[0].Address.String() != "10.89.0.2" || l[0].At.IsZero() {
		t.Errorf("leases %+v, want eth0's", l)
	}
	p.in <- sent{7, request(ask(dhcpv4.MessageTypeRelease, has("10.89.0.2")))}
	p.in <- sent{7, request(ask(dhcpv4.MessageTypeDiscover))}
	<-p.out
	if l := s.Leases(); len(l) != 0 {
		t.Errorf("after its release a guest still has %+v", l)
	}
	s.Close()
	if s.Running() {
		t.Error("a closed server runs")
	}
}

// TestLeaks runs the filter in a machine of x/net: what has to do with DHCP is dropped, in either direction, and nothing else is.
func TestLeaks(t *testing.T) {
	t.Parallel()
	machine, err := bpf.NewVM(leakFilter())
	if err != nil {
		t.Fatal(err)
	}
	udp := func(change ...func([]byte)) []byte {
		f := request(ask(dhcpv4.MessageTypeDiscover))
		for _, c := range change {
			c(f)
		}
		return f
	}
	dst := func(port uint16) func([]byte) {
		return func(f []byte) { binary.BigEndian.PutUint16(f[36:], port) }
	}
	six := func(next byte, port uint16) []byte {
		f := make([]byte, 80)
		binary.BigEndian.PutUint16(f[12:], etherIPv6)
		f[20] = next
		binary.BigEndian.PutUint16(f[56:], port)
		return f
	}
	// Options before UDP move its ports: four bytes more.
	options := append(append([]byte{}, udp()[:34]...), append([]byte{1, 1, 1, 1}, udp()[34:]...)...)
	options[14] = 0x46
	for _, test := range []struct {
		name  string
		frame []byte
		drop  bool
	}{
		{"a client's", udp(), true},
		{"a server's", udp(dst(68)), true},
		{"another port", udp(dst(53)), false},
		{"TCP to port 67", udp(func(f []byte) { f[23] = 6 }), false},
		{"with options", options, true},
		{"a first fragment", udp(func(f []byte) { f[20] = 0x20 }), true},
		{"a later fragment, whose bytes are no port", udp(func(f []byte) { f[21] = 1 }), false},
		{"ARP", udp(func(f []byte) { f[12], f[13] = 0x08, 0x06 }), false},
		{"DHCPv6, a client's", six(17, 547), true},
		{"DHCPv6, a server's", six(17, 546), true},
		{"IPv6, another port", six(17, 53), false},
		{"ICMPv6", six(58, 547), false},
	} {
		n, err := machine.Run(test.frame)
		if err != nil {
			t.Fatal(err)
		}
		if got := uint32(n) == drops; got != test.drop {
			t.Errorf("%s: dropped %v, want %v (%#x)", test.name, got, test.drop, n)
		}
	}
	for _, n := range []int{1, 2, 16, 64} {
		links := make([]int, n)
		if _, err := hears(links); err != nil {
			t.Errorf("a filter for %d links: %v", n, err)
		}
	}
	if _, err := hears(nil); err == nil {
		t.Error("a filter for no link")
	}
}

// FuzzRespond: whatever a guest sends, the server lives, answers only the card's own MAC, and only with the card's address.
func FuzzRespond(f *testing.F) {
	f.Add(request(ask(dhcpv4.MessageTypeDiscover)))
	f.Add(request(ask(dhcpv4.MessageTypeRequest, wants("10.89.0.2"), picks("169.254.254.2"))))
	f.Add(request(ask(dhcpv4.MessageTypeRequest, wants("10.89.0.9"))))
	f.Add(request(ask(dhcpv4.MessageTypeInform, has("10.89.0.2"))))
	f.Add(request(ask(dhcpv4.MessageTypeRelease, has("10.89.0.2"))))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, whole := range []bool{true, false} {
			frame := in
			if !whole { // the fuzzer seldom finds the headers: give it them
				frame = append(request(ask(dhcpv4.MessageTypeDiscover))[:42:42], in...)
				binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
				binary.BigEndian.PutUint16(frame[38:], uint16(len(frame)-34))
			}
			out, _ := config().respond(Port{Link: 1, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Card: card(route("0.0.0.0/0", "10.89.0.1"))}, frame)
			if out == nil {
				continue
			}
			m, err := dhcpv4.FromBytes(out[42:])
			if err != nil {
				t.Fatalf("the answer cannot be read: %v", err)
			}
			if m.ClientHWAddr.String() != guestMAC || !zero(m.YourIPAddr) && m.YourIPAddr.String() != "10.89.0.2" {
				t.Errorf("answered %s", m.Summary())
			}
			if len(out) > 14+1450 {
				t.Errorf("an answer of %d bytes", len(out))
			}
		}
	})
}
