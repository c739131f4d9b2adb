package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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
