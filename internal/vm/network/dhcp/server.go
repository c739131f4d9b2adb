package dhcp

import (
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
	// MAC is the source of the frames that the server sends.
	MAC  net.HardwareAddr
	Card vm.Interface
}

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

// Server is the DHCP server of a pod.
type Server struct {
	config Config
	ports  []Port
	conn   Conn
	log    logr.Logger
	now    func() time.Time
	end    context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex
	leases map[string]Lease
}

// Start serves until Close, in one goroutine. It owns conn from then on.
func Start(conn Conn, config Config, ports []Port, log logr.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{config: config, ports: ports, conn: conn, log: log, now: time.Now, end: cancel, done: make(chan struct{}), leases: map[string]Lease{}}
	go s.serve(ctx)
	return s
}

// Close ends the server and waits for its goroutine.
func (s *Server) Close() {
	s.end()
	_ = s.conn.Close()
	<-s.done
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
		if l, ok := s.leases[p.Card.Name]; ok {
			out = append(out, l)
		}
	}
	return out
}

func (s *Server) serve(ctx context.Context) {
	defer close(s.done)
	limit := rate.NewLimiter(packetsPerSecond, packetsAtOnce)
	b := make([]byte, 2048)
	for {
		// Before the read: what a flood brings meanwhile stays in the socket's buffer, or is dropped there.
		if limit.Wait(ctx) != nil {
			return
		}
		n, link, err := s.conn.ReadFrame(b)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) && ctx.Err() == nil {
				s.log.Error(err, "DHCP: cannot read; guests get no more answers until the pod is recovered")
			}
			return
		}
		i := slices.IndexFunc(s.ports, func(p Port) bool { return p.Link == link })
		if i < 0 {
			continue
		}
		out, event := s.config.respond(s.ports[i], b[:n])
		s.note(s.ports[i].Card, event)
		if out == nil {
			continue
		}
		if err := s.conn.WriteFrame(link, out); err != nil {
			// The tap may be down for a moment, between two machines of a pod: the guest asks again.
			s.log.V(1).Info("DHCP: an answer was not sent", "card", s.ports[i].Card.Name, "error", err.Error())
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

func (s *Server) note(card vm.Interface, event Event) {
	switch event {
	case Acknowledged:
		address, _ := first4(card.Addresses)
		s.mu.Lock()
		s.leases[card.Name] = Lease{Card: card.Name, MAC: card.MAC, Address: address.Addr(), At: s.now()}
		s.mu.Unlock()
	case Released, Declined, Refused:
		s.mu.Lock()
		delete(s.leases, card.Name)
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
