package runtime

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
)

const (
	// maxMessage bounds a request, as other runtimes do: a kubelet sends far less.
	maxMessage = 16 << 20
	// maxCalls bounds the calls under way on a connection; more wait.
	maxCalls = 512
	// grace is how long calls under way have to end.
	grace = 5 * time.Second
)

// Serve runs the server and answers calls at l until ctx ends, and then for a moment those under way. What a call had begun that is cut off is
// undone or finished by the next process, as after a crash. l is closed. It returns nil when it was ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	g := grpc.NewServer(append(s.Interceptors(), grpc.MaxRecvMsgSize(maxMessage), grpc.MaxConcurrentStreams(maxCalls), grpc.WaitForHandlers(true))...)
	s.Register(g)
	running, end := context.WithCancel(ctx)
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		_ = s.Run(running) // it ends without an error
	}()
	defer func() { end(); <-ran }()
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	select {
	case err := <-served:
		g.Stop()
		return fmt.Errorf("serve at %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	cut := time.AfterFunc(grace, g.Stop)
	defer cut.Stop()
	g.GracefulStop()
	if err := <-served; err != nil {
		s.log.Error(err, "the socket ended before its time")
	}
	return nil
}
