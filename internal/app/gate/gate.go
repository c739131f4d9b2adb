// Package gate bounds how many connections a server has open, of each peer and in all. Anybody in the cluster can connect, and stay:
// whoever opens connections without end loses his own, and keeps nobody out.
package gate

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync"
)

// Gate is a listener that bounds open connections. A newcomer that finds no room takes the place of the oldest connection of the peer
// that has the most, preferably of one that never brought a whole request; it is only turned away where its own peer has the most and
// all its connections have.
type Gate struct {
	net.Listener
	perPeer, all int

	mu    sync.Mutex
	count int
	peers map[string][]*visitor // oldest first
}

// visitor is an open connection.
type visitor struct {
	net.Conn
	gate   *Gate
	peer   string
	proven bool // guarded by the gate's lock
	once   sync.Once
}

// New puts a gate before a listener: at most perPeer connections of one address, and at most all together.
func New(l net.Listener, perPeer, all int) *Gate {
	return &Gate{Listener: l, perPeer: perPeer, all: all, peers: map[string][]*visitor{}}
}

// Accept returns the next connection that there is room for.
func (g *Gate) Accept() (net.Conn, error) {
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

// Open is how many connections are open now, and how many of them have brought a whole request.
func (g *Gate) Open() (all, proven int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, list := range g.peers { // order: a sum
		for _, v := range list {
			if v.proven {
				proven++
			}
		}
	}
	return g.count, proven
}

// admit takes a connection in, and says which one has to go for it. It is nil where there is no room.
func (g *Gate) admit(c net.Conn) (v, goes *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v = &visitor{Conn: c, gate: g, peer: Peer(c.RemoteAddr().String())}
	own := len(g.peers[v.peer])
	switch {
	case own >= g.perPeer:
		goes = unproven(g.peers[v.peer])
	case g.count >= g.all:
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
	if goes == nil && (own >= g.perPeer || g.count >= g.all) {
		return nil, nil
	}
	g.peers[v.peer] = append(g.peers[v.peer], v)
	g.count++
	return v, goes
}

// unproven is the oldest connection that never brought a whole request; nil for none.
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

// prove notes that a whole request came by the connection.
func (v *visitor) prove() {
	v.gate.mu.Lock()
	defer v.gate.mu.Unlock()
	v.proven = true
}

// visitorKey is the key of a request's connection in its context.
type visitorKey struct{}

// Known puts the connection of a server into the contexts of its requests, so that Proves finds it: an http.Server's ConnContext.
func Known(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
		c = t.NetConn()
	}
	if v, ok := c.(*visitor); ok {
		return context.WithValue(ctx, visitorKey{}, v)
	}
	return ctx
}

// Proves notes that a request was whole. Its connection is let go after those that never brought one.
func Proves(r *http.Request) {
	if v, ok := r.Context().Value(visitorKey{}).(*visitor); ok {
		v.prove()
	}
}

// Peer is the address that a request comes from, without its port.
func Peer(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}
