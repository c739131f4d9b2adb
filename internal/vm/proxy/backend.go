package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxMessage bounds one message, in bytes. A kubelet takes 16 MiB; what is larger passes to it, so that it is the kubelet that says no.
const maxMessage = 64 << 20

// connection is one runtime, the primary included, with its connection, which comes back by itself.
type connection struct {
	name     string
	primary  bool
	handlers []string
	prefixes []string
	conn     *grpc.ClientConn
	known    *known
	// greet has room for one: the connection is new, or a pull has ended. What the backend has is then asked for.
	greet chan greeting
	// failing is true while lists of it fail, so that each failure is logged once.
	failing atomic.Bool
	// greetings counts what was asked so; tests wait for it.
	greetings atomic.Uint64

	mu sync.Mutex
	// status is its last answer to Status, nil before the first; plain what came of the last that was not verbose, and when.
	status  []byte
	plain   answer
	plainAt time.Time
}

// greeting says what to ask a backend for.
type greeting uint8

const (
	askImages greeting = iota
	askAll
)

// dial makes the connection without waiting for it.
func dial(socket string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///runtime",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
}

// outgoing makes a call's context one for a backend: its metadata goes along.
func outgoing(ctx context.Context) context.Context {
	in, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx
	}
	out := in.Copy()
	// These two belong to the connection. What else does, grpc leaves out.
	out.Delete("grpc-accept-encoding")
	out.Delete("user-agent")
	return metadata.NewOutgoingContext(ctx, out)
}

// answer is what came back from a call with one message each way.
type answer struct {
	body            []byte
	header, trailer metadata.MD
	err             error
}

// call makes one call. ctx has outgoing metadata already.
func (b *connection) call(ctx context.Context, method string, req []byte) answer {
	var a answer
	var out frame
	a.err = b.conn.Invoke(ctx, method, &frame{body: req}, &out, grpc.Header(&a.header), grpc.Trailer(&a.trailer))
	a.body = out.body
	return a
}

// gone tells whether there is no connection to the backend: an error is then about that, and not an answer.
func (b *connection) gone(err error) bool {
	return status.Code(err) == codes.Unavailable && b.conn.GetState() != connectivity.Ready
}

// leaves tells, of a call that failed just now, whether the connection went with it. A call may know that a moment before the connection
// does.
func (b *connection) leaves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return b.conn.GetState() != connectivity.Ready || b.conn.WaitForStateChange(ctx, connectivity.Ready)
}

// method is the one that lists a kind.
func (k kind) method() string {
	return [...]string{runtimeService + "ListPodSandbox", runtimeService + "ListContainers", imageService + "ListImages"}[k]
}

// watch keeps the connection up, and has the backend greeted whenever it is new.
func (b *connection) watch(ctx context.Context) {
	for {
		state := b.conn.GetState()
		switch state {
		case connectivity.Idle:
			b.conn.Connect()
		case connectivity.Ready:
			b.ask(askAll)
		case connectivity.Shutdown:
			return
		}
		if !b.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// ask has the backend greeted soon.
func (b *connection) ask(g greeting) {
	for {
		select {
		case b.greet <- g:
			return
		default:
		}
		// The one that waits is taken out; the larger of both goes in.
		select {
		case waiting := <-b.greet:
			g = max(g, waiting)
		default:
		}
	}
}

// learn asks for everything of a kind. No answer leaves what was known.
func (b *connection) learn(ctx context.Context, kind kind) error {
	since := b.known.mark()
	a := b.call(ctx, kind.method(), nil)
	if a.err != nil {
		return a.err
	}
	list, err := listItems(a.body)
	if err != nil {
		return err
	}
	b.known.replace(kind, list, since)
	return nil
}

// pipe connects a call, for as long as ctx, with a backend, message by message, until one side ends it. first are messages that were already
// read. Neither side is read before the other has taken what was read before, so that a slow reader slows down its writer and nobody else.
func (b *connection) pipe(ctx context.Context, ss grpc.ServerStream, method string, first ...[]byte) error {
	ctx, cancel := context.WithCancel(outgoing(ctx))
	defer cancel()
	cs, err := b.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	if err != nil {
		return err
	}
	go func() { // ends when the call does, whose context its reads and writes have
		for _, body := range first {
			if cs.SendMsg(&frame{body: body}) != nil {
				return // the other direction has the reason
			}
		}
		for {
			var f frame
			err := ss.RecvMsg(&f)
			if errors.Is(err, io.EOF) {
				_ = cs.CloseSend()
				return
			}
			if err != nil {
				cancel()
				return
			}
			if cs.SendMsg(&f) != nil {
				return
			}
		}
	}()
	if header, err := cs.Header(); err == nil && len(header) > 0 {
		if err := ss.SendHeader(header); err != nil {
			return err
		}
	}
	for {
		var f frame
		err := cs.RecvMsg(&f)
		if err != nil {
			ss.SetTrailer(cs.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := ss.SendMsg(&f); err != nil {
			return err
		}
	}
}

// owns tells whether a handler is declared to be the backend's own.
func (b *connection) owns(handler string) bool { return slices.Contains(b.handlers, handler) }

// prefix is the backend's prefix that begins a name, "" if none does.
func (b *connection) prefix(name string) string {
	for _, p := range b.prefixes {
		if strings.HasPrefix(name, p) {
			return p
		}
	}
	return ""
}

// strip takes the backend's prefix off a name.
func (b *connection) strip(name string) string { return strings.TrimPrefix(name, b.prefix(name)) }
