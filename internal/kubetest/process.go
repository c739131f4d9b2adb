package kubetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
)

// Process is somebody with clients of the server, such as a role: one life of it. Its requests go to the server without a socket.
type Process struct {
	server *Server
	name   string
	life   context.Context
	kill   context.CancelFunc

	mu     sync.Mutex
	writes int
	crash  int
	after  bool
}

// ErrDead is the error of the requests of a process that was killed.
var ErrDead = errors.New("kubetest: this process is dead")

// Process returns a new one. Several may have one name.
func (s *Server) Process(name string) *Process {
	life, kill := context.WithCancel(context.Background())
	return &Process{server: s, name: name, life: life, kill: kill}
}

// Kill ends what the process does to the server, as a crash or a cable that is cut: its requests fail, those under way too, and its watches
// end. What the process is told of it is errors; the test ends its goroutines as always.
func (p *Process) Kill() { p.kill() }

// Dead is closed when the process was killed.
func (p *Process) Dead() <-chan struct{} { return p.life.Done() }

// CrashAt kills the process at its n-th write, counted from 1 and from its beginning: after the write took effect, or before.
func (p *Process) CrashAt(n int, after bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crash, p.after = n, after
}

// Config is the configuration of clients of the process, without a limit on requests.
func (p *Process) Config() *rest.Config {
	return &rest.Config{Host: "http://kubetest.invalid", UserAgent: p.name, Transport: p, QPS: -1}
}

// Client returns a client of the process.
func (p *Process) Client(scheme *runtime.Scheme) (client.WithWatch, error) {
	return client.NewWithWatch(p.Config(), client.Options{Scheme: scheme, Mapper: p.server.Mapper()})
}

// quiet keeps libraries from complaining: one that it has no logger, another of each watch that ends, after which it has the watch wait
// until what it takes for the time of the last complaint is past, be that of another bubble.
var quiet = sync.OnceFunc(func() {
	ctrllog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
})

// Cache returns a cache of the process, which is not started.
func (p *Process) Cache(o cache.Options) (cache.Cache, error) {
	if o.Mapper == nil {
		o.Mapper = p.server.Mapper()
	}
	return cache.New(p.Config(), o)
}

// count numbers a write, and says whether the process dies at it, before and after.
func (p *Process) count() (n int, before, after bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writes++
	hit := p.writes == p.crash
	return p.writes, hit && !p.after, hit && p.after
}

type processKey struct{}

// RoundTrip has a request served.
func (p *Process) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.life.Err() != nil {
		return nil, ErrDead
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		if err := r.Body.Close(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), processKey{}, p))
	stop := context.AfterFunc(p.life, cancel)
	in := r.Clone(ctx)
	in.Body = io.NopCloser(bytes.NewReader(body))
	out := &answer{header: http.Header{}, code: make(chan int, 1), broken: make(chan struct{})}
	out.read, out.write = io.Pipe()
	go func() {
		defer cancel()
		defer stop()
		defer func() {
			if v := recover(); v != nil {
				if v != http.ErrAbortHandler {
					panic(v)
				}
				close(out.broken)
				_ = out.write.CloseWithError(ErrLost)
				return
			}
			out.WriteHeader(http.StatusOK)
			_ = out.write.Close()
		}()
		p.server.ServeHTTP(out, in)
	}()
	select {
	case code := <-out.code:
		return &http.Response{
			Status: http.StatusText(code), StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: out.header, Body: &stream{out.read, cancel}, ContentLength: -1, Request: r,
		}, nil
	case <-out.broken:
		if p.life.Err() != nil {
			return nil, ErrDead
		}
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return nil, ErrLost
	}
}

// answer is an http.ResponseWriter whose answer is read while it is written.
type answer struct {
	header http.Header
	code   chan int // has one when the header is there
	once   sync.Once
	broken chan struct{}
	read   *io.PipeReader
	write  *io.PipeWriter
}

// Header is the answer's.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader begins the answer.
func (a *answer) WriteHeader(code int) { a.once.Do(func() { a.code <- code }) }

// Write goes on with it. It returns when the client has read it, or wants no more.
func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.write.Write(b)
}

// Flush does nothing: what was written was read.
func (a *answer) Flush() { a.WriteHeader(http.StatusOK) }

// stream is the body of an answer. Whoever closes it ends the request.
type stream struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Read goes on with it. After Close it is at its end, as whoever closes a watch expects: client-go's watches of metadata keep a goroutine for
// ever after another error.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = io.EOF
	}
	return n, err
}

// Close ends the request.
func (s *stream) Close() error {
	s.cancel()
	return s.ReadCloser.Close()
}
