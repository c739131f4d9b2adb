package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Bounds of what clients can hold at once. Anybody in the cluster can connect, and be slow: whatever a client holds while it is
// slow is bounded for each peer, by its address, and for all together, so that a few do not keep the API server out.
const (
	// peerConnections and allConnections are open at once, of one peer and in all. An API server needs one, of HTTP/2.
	peerConnections, allConnections = 128, 512
	// maxStreams are the requests at once on a connection of HTTP/2.
	maxStreams = 100
	// peerBytes and allBytes are what has been read of requests that are not answered yet.
	peerBytes, allBytes = 32 << 20, 64 << 20
	// peerTurns and reviewsAtOnce are the reviews that are judged at once; more wait their turn.
	peerTurns, reviewsAtOnce = 16, 32
	// headerWithin and bodyWithin are how long a client may take for what it asks. An API server takes milliseconds.
	headerWithin, bodyWithin = 3 * time.Second, 3 * time.Second
	maxHeader                = 32 << 10
)

// errCrowded is that a client holds as much as it may, or all together do.
var errCrowded = errors.New("too much is asked at once")

// crowd shares memory and turns out between peers. The zero value is not ready; see newCrowd.
type crowd struct {
	mu    sync.Mutex
	bytes int
	peers map[string]*party // of those that have a guest
	turns chan struct{}
}

// party is what one peer holds.
type party struct {
	guests, bytes int
	turns         chan struct{}
}

// guest is one request. It is used by one goroutine.
type guest struct {
	crowd *crowd
	peer  string
	party *party
	bytes int
	turn  bool
}

func newCrowd() *crowd {
	return &crowd{peers: map[string]*party{}, turns: make(chan struct{}, reviewsAtOnce)}
}

// enter takes in a request of a peer, until leave.
func (c *crowd) enter(peer string) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.peers[peer]
	if s == nil {
		s = &party{turns: make(chan struct{}, peerTurns)}
		c.peers[peer] = s
	}
	s.guests++
	return &guest{crowd: c, peer: peer, party: s}
}

// leave gives back all that the request holds.
func (g *guest) leave() {
	if g.turn {
		<-g.crowd.turns
		<-g.party.turns
	}
	c := g.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes -= g.bytes
	g.party.bytes -= g.bytes
	if g.party.guests--; g.party.guests == 0 {
		delete(c.peers, g.peer)
	}
}

// hold takes memory, and says whether there is so much.
func (g *guest) hold(n int) bool {
	c := g.crowd
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes+n > allBytes || g.party.bytes+n > peerBytes {
		return false
	}
	c.bytes, g.party.bytes, g.bytes = c.bytes+n, g.party.bytes+n, g.bytes+n
	return true
}

// wait waits for a turn: first among its peer's requests, then among all, so that a peer with many is one that waits.
func (g *guest) wait(ctx context.Context) error {
	select {
	case g.party.turns <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errCrowded, ctx.Err())
	}
	select {
	case g.crowd.turns <- struct{}{}:
		g.turn = true
		return nil
	case <-ctx.Done():
		<-g.party.turns
		return fmt.Errorf("%w: %w", errCrowded, ctx.Err())
	}
}

// read reads a body of at most maxReview bytes, and holds the memory for it piece by piece: for what has come, not for what was
// announced.
func (g *guest) read(body io.Reader) ([]byte, error) {
	const piece = 32 << 10
	var text bytes.Buffer
	for {
		if !g.hold(piece) {
			return nil, errCrowded
		}
		_, err := io.CopyN(&text, body, piece)
		switch {
		case errors.Is(err, io.EOF):
			return text.Bytes(), nil
		case err != nil:
			return nil, fmt.Errorf("read the review: %w", err)
		}
	}
}

// weigh holds the memory that a review takes once it is decoded, which may be two hundred times its text: a list of containers takes two
// bytes of text for each.
func (g *guest) weigh(text []byte) error {
	switch n := weight(text); {
	case n > peerBytes:
		return fmt.Errorf("the review has too many parts: %w", &http.MaxBytesError{Limit: peerBytes})
	case !g.hold(n):
		return errCrowded
	}
	return nil
}

// weight is a bound, in bytes, on what JSON becomes beside the texts in it. What is not JSON weighs something, too.
func weight(text []byte) int {
	const element, member = 1 << 10, 128 // of a list, of which a container is the largest, and copied as the list grows; and of an object
	cost := map[byte]int{'[': element, '{': member}
	var open []byte
	n, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted:
			if c == '\\' {
				i++
			}
			quoted = c != '"'
		case c == '"':
			quoted = true
		case c == '[' || c == '{':
			open = append(open, c)
			n += cost[c]
		case len(open) == 0:
		case c == ',':
			n += cost[open[len(open)-1]]
		case c == ']' || c == '}':
			open = open[:len(open)-1]
		}
	}
	return n
}

// peerOf is the address that a request comes from, without its port.
func peerOf(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}

// gate is a listener that bounds open connections, of each peer and of all. A newcomer that finds no room takes the place of the
// oldest connection of the peer that has the most, preferably of one that never brought a whole review; it is only turned away where
// its own peer has the most and all its connections have.
type gate struct {
	net.Listener
	mu    sync.Mutex
	count int
	peers map[string][]*visitor // oldest first
}

// visitor is an open connection.
type visitor struct {
	net.Conn
	gate   *gate
	peer   string
	proven bool // guarded by the gate's lock
	once   sync.Once
}

func newGate(l net.Listener) *gate { return &gate{Listener: l, peers: map[string][]*visitor{}} }

// Accept returns the next connection that there is room for.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err // what net/http looks at
		}
		v, goes := g.admit(c)
		if goes != nil {
			_ = goes.Close()
		}
		if v != nil {
			return v, nil
		}
		_ = c.Close()
	}
}

// admit takes a connection in, and says which one has to go for it. It is nil where there is no room.
func (g *gate) admit(c net.Conn) (v, goes *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v = &visitor{Conn: c, gate: g, peer: peerOf(c.RemoteAddr().String())}
	own := len(g.peers[v.peer])
	switch {
	case own >= peerConnections:
		goes = unproven(g.peers[v.peer])
	case g.count >= allConnections:
		most := ""
		for peer, list := range g.peers { // order: the longest list, of these the first name
			if n := len(list) - len(g.peers[most]); n > 0 || n == 0 && peer < most {
				most = peer
			}
		}
		list := g.peers[most]
		if goes = unproven(list); goes == nil && len(list) > own+1 {
			goes = list[0]
		}
	}
	if goes == nil && (own >= peerConnections || g.count >= allConnections) {
		return nil, nil
	}
	g.peers[v.peer] = append(g.peers[v.peer], v)
	g.count++
	return v, goes
}

// unproven is the oldest connection that never brought a whole review; nil for none.
func unproven(list []*visitor) *visitor {
	if i := slices.IndexFunc(list, func(v *visitor) bool { return !v.proven }); i >= 0 {
		return list[i]
	}
	return nil
}

// Close ends the connection and makes room.
func (v *visitor) Close() error {
	v.once.Do(func() {
		g := v.gate
		g.mu.Lock()
		defer g.mu.Unlock()
		g.count--
		if list := slices.DeleteFunc(g.peers[v.peer], func(x *visitor) bool { return x == v }); len(list) > 0 {
			g.peers[v.peer] = list
		} else {
			delete(g.peers, v.peer)
		}
	})
	return v.Conn.Close()
}

// prove notes that a whole review came by the connection.
func (v *visitor) prove() {
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.proven = true
}

// visitorKey is the key of a request's connection in its context.
type visitorKey struct{}

// known puts the connection of a server into the contexts of its requests.
func known(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
		c = t.NetConn()
	}
	if v, ok := c.(*visitor); ok {
		return context.WithValue(ctx, visitorKey{}, v)
	}
	return ctx
}

// proves notes that a request was whole.
func proves(r *http.Request) {
	if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok {
		v.prove()
	}
}
