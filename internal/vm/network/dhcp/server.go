package dhcp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/time/rate"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Conn carries Ethernet frames of some links.
type Conn interface {
	// ReadFrame waits for a frame, and says by which link it came. After Close it fails with os.ErrClosed.
	ReadFrame(b []byte) (n, link int, err error)
	// WriteFrame sends a frame out by a link.
	WriteFrame(link int, frame []byte) error
	Close() error
}

// Port is a card of the guest with the link that leads to it.
type Port struct {
	// Link is the tap's index.
	Link int
	// Outer is the index of the link that leads to the pod's network, where gateways are asked for; 0 where none has to be (AsksFor).
	Outer int
	// MAC is the source of the frames that the server sends.
	MAC  net.HardwareAddr
	Card vm.Interface
}

// gatewayOf is a gateway as a port's network has it.
type gatewayOf struct {
	outer   int
	gateway netip.Addr
}

// Advertisements are repeated after as long, and at most as long: what a guest is told by one holds for 18 hours. Gateways are asked for as often.
const (
	repeatFirst = time.Second
	repeatMost  = 10 * time.Minute
	// answerTime is how long what a neighbour says of itself is taken for the answer to a question.
	answerTime = 3 * time.Second
)

// Lease is what a guest was last seen to hold.
type Lease struct {
	Card    string     `json:"card"`
	MAC     string     `json:"mac"`
	Address netip.Addr `json:"address"`
	// At is when it was acknowledged; its end is by the server's lease time later.
	At time.Time `json:"at"`
}

// How many packets a second of a pod are looked at, and how many at once. A guest that boots sends a handful.
const (
	packetsPerSecond = 50
	packetsAtOnce    = 20
)

// Server is the DHCP server of a pod, and tells its guest the routers of IPv6.
type Server struct {
	config  Config
	ports   []Port
	conn    Conn
	network Conn
	log     logr.Logger
	now     func() time.Time
	end     context.CancelFunc
	done    chan struct{} // conn is served no more
	others  sync.WaitGroup
	again   chan struct{} // routers are told anew, soon

	mu     sync.Mutex
	leases map[leaseKey]Lease
	macs   map[gatewayOf]net.HardwareAddr
	asking map[gatewayOf]time.Time
}

type leaseKey struct {
	card string
	six  bool
}

// Start serves until Close: one goroutine hears the guests by conn, and where a card has IPv6, one tells its routers, and one hears by network
// what gateways answer. It owns both from then on; network is nil where no gateway has to be asked for.
func Start(conn, network Conn, config Config, ports []Port, log logr.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{
		config: config, ports: ports, conn: conn, network: network, log: log, now: time.Now, end: cancel, done: make(chan struct{}),
		again: make(chan struct{}, 1), leases: map[leaseKey]Lease{}, macs: map[gatewayOf]net.HardwareAddr{}, asking: map[gatewayOf]time.Time{},
	}
	go func() {
		defer close(s.done)
		s.serve(ctx, conn, s.guest)
	}()
	if network != nil {
		s.others.Go(func() { s.serve(ctx, network, s.learn) })
	}
	if slices.ContainsFunc(ports, func(p Port) bool { return len(all6(p.Card.Addresses)) > 0 }) {
		s.others.Go(func() { s.repeat(ctx) })
	}
	return s
}

// Close ends the server and waits for its goroutines.
func (s *Server) Close() {
	s.end()
	_ = s.conn.Close()
	if s.network != nil {
		_ = s.network.Close()
	}
	<-s.done
	s.others.Wait()
}

// Running says whether the server still answers: it does not, once its socket has failed.
func (s *Server) Running() bool {
	select {
	case <-s.done:
		return false
	default:
		return true
	}
}

// Links are the indices of the links that the server hears.
func (s *Server) Links() []int {
	out := make([]int, len(s.ports))
	for i, p := range s.ports {
		out[i] = p.Link
	}
	return out
}

// Leases are those that guests took since the server was started, in the order of cards. After a restart they come back as guests renew.
func (s *Server) Leases() []Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Lease
	for _, p := range s.ports {
		for _, six := range []bool{false, true} {
			if l, ok := s.leases[leaseKey{p.Card.Name, six}]; ok {
				out = append(out, l)
			}
		}
	}
	return out
}

// serve hands every frame of a socket to somebody, at a bounded rate.
func (s *Server) serve(ctx context.Context, conn Conn, heard func(link int, frame []byte)) {
	limit := rate.NewLimiter(packetsPerSecond, packetsAtOnce)
	b := make([]byte, 2048)
	for {
		// Before the read: what a flood brings meanwhile stays in the socket's buffer, or is dropped there.
		if limit.Wait(ctx) != nil {
			return
		}
		n, link, err := conn.ReadFrame(b)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
				s.log.Error(err, "DHCP: cannot read; guests get no more answers until the pod is recovered")
			}
			return
		}
		heard(link, b[:n])
	}
}

// guest answers what came in by a tap.
func (s *Server) guest(link int, frame []byte) {
	i := slices.IndexFunc(s.ports, func(p Port) bool { return p.Link == link })
	if i < 0 {
		return
	}
	p := s.ports[i]
	has6 := len(all6(p.Card.Addresses)) > 0
	if solicits(frame) {
		if has6 {
			s.advertise(p)
			s.soon()
		}
		return
	}
	if target, from, ok := asked(frame); ok {
		if has6 {
			s.stands(p, target, from)
		}
		return
	}
	six := false
	out, event := s.config.respond(p, frame)
	if event == Ignored {
		six = true
		out, event = s.config.respond6(p, frame)
	}
	s.note(p.Card, six, event)
	if out != nil {
		s.send(p, out)
	}
}

func (s *Server) send(p Port, frame []byte) {
	if err := s.conn.WriteFrame(p.Link, frame); err != nil {
		// The tap may be down for a moment, between two machines of a pod: the guest asks again.
		s.log.V(1).Info("DHCP: an answer was not sent", "card", p.Card.Name, "error", err.Error())
	}
}

// repeat tells routers, and asks for gateways, again and again: soon at first, and after a guest has asked.
func (s *Server) repeat(ctx context.Context) {
	wait := repeatFirst
	for {
		for _, p := range s.ports {
			if len(all6(p.Card.Addresses)) > 0 {
				s.ask(p)
				s.advertise(p)
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
			wait = min(2*wait, repeatMost)
		case <-s.again:
			t.Stop()
			// The next round is a second away, however often guests ask.
			wait = repeatFirst
			select {
			case <-time.After(repeatFirst):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (s *Server) soon() {
	select {
	case s.again <- struct{}{}:
	default:
	}
}

// ask asks for the gateways of a card that others stand for.
func (s *Server) ask(p Port) {
	if s.network == nil || p.Outer == 0 {
		return
	}
	for _, r := range routers(p.Card) {
		q := question(p.Card, r.gateway)
		if !r.stands() || q == nil {
			continue
		}
		s.mu.Lock()
		s.asking[gatewayOf{p.Outer, r.gateway}] = s.now()
		s.mu.Unlock()
		if err := s.network.WriteFrame(p.Outer, q); err != nil {
			s.log.V(1).Info("IPv6: a gateway was not asked for", "card", p.Card.Name, "gateway", r.gateway, "error", err.Error())
		}
	}
}

// learn takes what a gateway that was asked for says of itself. Guests are told if it is new.
func (s *Server) learn(outer int, frame []byte) {
	gateway, mac, ok := neighbour(frame)
	if !ok {
		return
	}
	key := gatewayOf{outer, gateway}
	s.mu.Lock()
	at, wanted := s.asking[key]
	wanted = wanted && s.now().Sub(at) <= answerTime
	news := wanted && !bytes.Equal(s.macs[key], mac)
	if wanted {
		s.macs[key] = mac
		delete(s.asking, key) // the first answer counts: who waits to speak last changes nothing
	}
	s.mu.Unlock()
	if !news {
		return
	}
	for _, p := range s.ports {
		if p.Outer == outer {
			s.advertise(p)
		}
	}
}

func (s *Server) mac(p Port, gateway netip.Addr) net.HardwareAddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.macs[gatewayOf{p.Outer, gateway}]
}

func (s *Server) advertise(p Port) {
	for _, f := range s.config.advertisements(p, func(gateway netip.Addr) net.HardwareAddr { return s.mac(p, gateway) }) {
		s.send(p, f)
	}
}

// stands answers a guest that asks for the router, with what is known of its gateway; and asks for that anew, which it may have moved.
func (s *Server) stands(p Port, target, from netip.Addr) {
	if target == standIn(0) {
		s.send(p, standsFor(p, target, from, p.MAC))
		return
	}
	for _, r := range routers(p.Card) {
		if r.address != target || !r.stands() {
			continue
		}
		s.soon()
		if mac := s.mac(p, r.gateway); mac != nil {
			s.send(p, standsFor(p, target, from, mac))
		}
	}
}

// respond turns a frame into the frame that answers it, or nil: pure.
func (c *Config) respond(p Port, in []byte) ([]byte, Event) {
	message, ok := payload(in)
	if !ok {
		return nil, Ignored
	}
	m, err := dhcpv4.FromBytes(message)
	if err != nil {
		return nil, Ignored
	}
	r, event := c.Answer(p.Card, m)
	if r == nil {
		return nil, event
	}
	// RFC 2131, §4.1: to the address that the client has, by broadcast if it asks so or must learn that it has none, else to the one
	// that it is given.
	mac, to := r.ClientHWAddr, netip.Addr{}
	switch {
	case r.MessageType() == dhcpv4.MessageTypeNak:
	case !zero(m.ClientIPAddr):
		to, _ = netip.AddrFromSlice(m.ClientIPAddr.To4())
	case !m.IsBroadcast():
		to, _ = netip.AddrFromSlice(r.YourIPAddr.To4())
	}
	if !to.IsValid() {
		mac, to = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, netip.AddrFrom4([4]byte{255, 255, 255, 255})
	}
	return frame(mac, p.MAC, to, c.Server, r.ToBytes()), event
}

func (s *Server) note(card vm.Interface, six bool, event Event) {
	key := leaseKey{card.Name, six}
	switch event {
	case Acknowledged:
		first, _ := first4(card.Addresses)
		address := first.Addr()
		if six {
			address = all6(card.Addresses)[0]
		}
		s.mu.Lock()
		s.leases[key] = Lease{Card: card.Name, MAC: card.MAC, Address: address, At: s.now()}
		s.mu.Unlock()
	case Released, Declined, Refused:
		s.mu.Lock()
		delete(s.leases, key)
		s.mu.Unlock()
	}
	if event != Ignored && s.config.Heard != nil {
		s.config.Heard(strings.ToLower(event.String()))
	}
	if event != Ignored {
		s.log.V(1).Info("DHCP", "card", card.Name, "event", strings.ToLower(event.String()))
	}
}

var eventNames = []string{"Ignored", "Offered", "Acknowledged", "Refused", "Released", "Declined", "Informed"}

// String is the event's name.
func (e Event) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return "Event?"
}

// Events are the names of all that Config.Heard may be told.
func Events() []string {
	var out []string
	for _, name := range eventNames[1:] {
		out = append(out, strings.ToLower(name))
	}
	return out
}
