package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
)

// Run serves the CRI at c.Listen until ctx ends, and then for c.Grace what is under way. It returns nil when it was ended, and an error
// when it cannot begin or go on: a configuration that breaks a rule, a socket or state file that another process uses.
func Run(ctx context.Context, c Config, log logr.Logger) error {
	c, err := c.complete()
	if err != nil {
		return err
	}
	l, err := listen(c.Listen, c.Mode)
	if err != nil {
		return err
	}
	defer l.Close()
	p, err := newRouter(c, log)
	if err != nil {
		return err
	}
	return p.serve(ctx, l)
}

// newRouter makes connections and reads what is remembered; close ends it. Nothing runs yet.
func newRouter(c Config, log logr.Logger) (*router, error) {
	p := &router{config: c, log: log, words: map[string]*backend{}, ending: context.Background(), now: time.Now}
	add := func(name, socket string, of Backend) error {
		conn, err := dial(socket)
		if err != nil {
			return fmt.Errorf("runtime %q at %s: %w", name, socket, err)
		}
		b := &backend{
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

// listener is a unix socket that removes its path when it is closed, unless another process has put its own there since.
type listener struct {
	*net.UnixListener
	path string
	made os.FileInfo
	once sync.Once
}

// Close ends listening.
func (l *listener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
			_ = os.Remove(l.path) // a path that stays is replaced by the next listener
		}
	})
	return l.UnixListener.Close()
}

// listen makes the socket. One that nobody serves any more is replaced; one that is served, and what is no socket, is an error. The socket
// is made in a folder that only this user can enter and moved to its place when its mode is right, so that nobody can connect before.
func listen(path string, mode os.FileMode) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) { return nil, fmt.Errorf("socket %s: %w", path, err) }
	if st, err := os.Lstat(path); err == nil {
		if st.Mode().Type() != os.ModeSocket {
			return fail(errors.New("there is something else of that name, which is not removed"))
		}
		conn, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			conn.Close()
			return fail(errors.New("another process serves it"))
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fail(fmt.Errorf("it cannot be told whether another process serves it: %w", err))
		}
	}
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	made := filepath.Join(dir, "s")
	if len(made) > 107 {
		return fail(errors.New("a socket's path, and that of a folder beside it, has at most 107 bytes"))
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return fail(err)
	}
	l.SetUnlinkOnClose(false)
	var st os.FileInfo
	err = os.Chmod(made, mode)
	if err == nil {
		st, err = os.Lstat(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		_ = l.Close()
		return fail(err)
	}
	return &listener{UnixListener: l, path: path, made: st}, nil
}
