package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"github.com/muster-scheduler/muster/internal/vm/socket"
)

// Run serves the CRI at c.Listen until ctx ends, and then for c.Grace what is under way. It returns nil when it was ended, and an error
// when it cannot begin or go on: a configuration that breaks a rule, a socket or state file that another process uses.
func Run(ctx context.Context, c Config, log logr.Logger) error {
	c, err := c.complete()
	if err != nil {
		return err
	}
	l, err := socket.Listen(c.Listen, c.Mode)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	p, err := newRouter(c, log)
	if err != nil {
		return err
	}
	c.Metrics.Gauge("muster_vm_backend_up", "Whether a runtime of the proxy is connected, by its name; the kubelet's other runtime is primary.", "backend", p.connected)
	return p.serve(ctx, l)
}

// connected says of each backend whether it is.
func (p *router) connected() map[string]float64 {
	out := map[string]float64{}
	for _, b := range p.backends {
		out[b.name] = 0
		if b.conn.GetState() == connectivity.Ready {
			out[b.name] = 1
		}
	}
	return out
}

// newRouter makes connections and reads what is remembered; close ends it. Nothing runs yet.
func newRouter(c Config, log logr.Logger) (*router, error) {
	p := &router{config: c, log: log, words: map[string]*connection{}, ending: context.Background(), now: time.Now}
	add := func(name, socket string, of Backend) error {
		conn, err := dial(socket)
		if err != nil {
			return fmt.Errorf("runtime %q at %s: %w", name, socket, err)
		}
		b := &connection{
			name: name, primary: name == primaryName, handlers: of.Handlers, prefixes: of.ImagePrefixes,
			conn: conn, known: newKnown(), greet: make(chan greeting, 1),
		}
		p.backends = append(p.backends, b)
		if !b.primary {
			for _, w := range of.words() {
				p.words[w] = b
			}
		}
		return nil
	}
	err := add(primaryName, c.Primary, Backend{})
	for _, of := range c.Backends {
		err = errors.Join(err, add(of.Name, of.Socket, of))
	}
	p.wordList = slices.Sorted(maps.Keys(p.words))
	if err == nil && len(p.backends) > 1 {
		p.store, err = openStore(c.State, p.backends, log)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *router) close() {
	for _, b := range p.backends {
		_ = b.conn.Close() // fails only if it is closed
	}
	if err := p.store.close(); err != nil {
		p.log.Error(err, "The state file cannot be closed")
	}
}

// serve answers calls at l until ctx ends, and closes the router and l.
func (p *router) serve(ctx context.Context, l net.Listener) error {
	defer p.close()
	p.ending = ctx
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	var workers sync.WaitGroup
	defer workers.Wait()
	defer end()
	for _, b := range p.backends {
		workers.Go(func() { b.watch(work) })
		workers.Go(func() { p.greetLoop(work, b) })
		if !b.primary && p.config.StatusEvery > 0 {
			workers.Go(func() { p.watchStatus(work, b) })
		}
	}
	workers.Go(func() { p.store.run(work) })

	s := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(p.handle),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.WaitForHandlers(true),
	)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	p.log.Info("The CRI is served", "socket", p.config.Listen, "backends", p.wordList)
	if p.config.Ready != nil {
		p.config.Ready()
	}
	select {
	case err := <-served:
		s.Stop()
		return fmt.Errorf("serve at %s: %w", p.config.Listen, err)
	case <-ctx.Done():
	}
	cut := time.AfterFunc(p.config.Grace, s.Stop)
	defer cut.Stop()
	s.GracefulStop()
	if err := <-served; err != nil {
		p.log.Error(err, "The socket ended before its time", "socket", p.config.Listen)
	}
	s.Stop() // returns when every handler has
	return nil
}
