package gate

import (
	"fmt"
	"net"
	"testing"
)

// line is a connection that goes nowhere.
type line struct {
	net.Conn
	from   string
	closed bool
}

func (l *line) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(l.from), Port: 1} }
func (l *line) Close() error         { l.closed = true; return nil }

// TestGate: whoever opens connections without end loses his own, and keeps nobody out.
func TestGate(t *testing.T) {
	t.Parallel()
	const perPeer, all = 128, 512
	g := New(nil, perPeer, all)
	come := func(from string) (*line, *visitor) {
		l := &line{from: from}
		v, goes := g.admit(l)
		if goes != nil {
			_ = goes.Close()
		}
		return l, v
	}
	api, v := come("10.0.0.1")
	v.prove()
	first, _ := come("10.0.0.2")
	for range perPeer {
		if _, v := come("10.0.0.2"); v == nil {
			t.Fatal("a newcomer finds no room beside those who bring nothing")
		}
	}
	if !first.closed || len(g.peers["10.0.0.2"]) != perPeer {
		t.Errorf("a peer has %d connections, the first of them closed: %t", len(g.peers["10.0.0.2"]), first.closed)
	}
	for i := range 2 * all / perPeer {
		for range perPeer {
			come(fmt.Sprintf("10.0.1.%d", i))
		}
	}
	if g.count != all {
		t.Errorf("%d connections are open", g.count)
	}
	for range 2 * all {
		come("10.0.2.1")
	}
	if again, v := come("10.0.0.3"); v == nil || api.closed {
		t.Errorf("the API server's connection is closed: %t; another's: %t", api.closed, again.closed)
	}
	for _, list := range g.peers {
		for _, v := range append([]*visitor(nil), list...) {
			_ = v.Close()
			_ = v.Close()
		}
	}
	if g.count != 0 || len(g.peers) != 0 {
		t.Errorf("%d connections of %d peers are left", g.count, len(g.peers))
	}
	for range perPeer {
		_, v := come("10.0.0.4")
		v.prove()
	}
	if _, v := come("10.0.0.4"); v != nil {
		t.Error("a peer whose connections all bring reviews has room for more than its part")
	}
}
