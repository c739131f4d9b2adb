package runtime

import (
	"context"
	"fmt"
	"maps"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestToldToEnd: a process that is told to end, after any step of a pod's life, ends no machine and changes nothing, and the one that comes after it finds every machine again, with its
// log, and goes on.
func TestToldToEnd(t *testing.T) {
	t.Parallel()
	for n := range newStory().steps {
		synctest.Test(t, func(t *testing.T) {
			w := newFakeNode()
			h := open(t, w, 0, false)
			s := newStory()
			for i, st := range s.steps {
				if err := st.do(h); err != nil {
					t.Fatalf("ended after step %d: %s: %v", n, st.name, err)
				}
				synctest.Wait()
				if i == n {
					h = endAndBeginAgain(t, h, fmt.Sprintf("ended after %s", st.name))
				}
			}
			if left := w.left(); left != "true" {
				t.Errorf("ended after step %d: at the end %s", n, left)
			}
			h.end()
		})
	}
}

// endAndBeginAgain ends a process as SIGTERM does, and starts another.
func endAndBeginAgain(t *testing.T, h *fixture, when string) *fixture {
	t.Helper()
	w := h.w
	ran, listed := w.running(), states(t, h)
	w.told()
	h.end()
	if did := w.told(); len(did) > 0 || !maps.Equal(w.running(), ran) {
		t.Errorf("%s: the process has done %q, and of %v run %v", when, did, ran, w.running())
	}
	w.mu.Lock()
	w.logs = map[string]bool{} // they end with their process
	w.mu.Unlock()
	h = open(t, w, 0, false)
	if !maps.Equal(w.running(), ran) || !maps.Equal(states(t, h), listed) {
		t.Errorf("%s: %v ran, and %v run; containers were %v, and are %v", when, ran, w.running(), listed, states(t, h))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range ran {
		if !w.logs[id] {
			t.Errorf("%s: nobody writes the log of %s", when, id)
		}
	}
	return h
}

// states are those of all containers, as a kubelet is told them.
func states(t *testing.T, h *fixture) map[string]runtimeapi.ContainerState {
	t.Helper()
	out := map[string]runtimeapi.ContainerState{}
	r, err := call(h, h.ListContainers, &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Error(err)
	}
	for _, c := range r.GetContainers() {
		out[c.GetId()] = c.GetState()
	}
	return out
}

// TestToldToEndWhileStopping: a stop that waits for its guest when the process is told to end is cut off after a moment, and the machine runs on: the kubelet, which counts its
// grace, asks the next process again.
func TestToldToEndWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFakeNode()
		w.deaf = true
		ctx, sigterm := context.WithCancel(context.Background())
		defer sigterm()
		server, err := New(ctx, (&hand{w: w, ctx: ctx}).parts(time.Now), testOptions(), logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		l := bufconn.Listen(1 << 16)
		served := make(chan error, 1)
		go func() { served <- server.Serve(ctx, l) }()
		conn, err := grpc.NewClient("passthrough:node", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		h := &fixture{t: t, w: w, Server: server}
		s := newStory()
		for _, st := range s.steps[:3] {
			if err := st.do(h); err != nil {
				t.Fatalf("%s: %v", st.name, err)
			}
		}
		stopped := make(chan error, 1)
		go func() {
			_, err := runtimeapi.NewRuntimeServiceClient(conn).StopContainer(context.Background(), &runtimeapi.StopContainerRequest{ContainerId: s.init, Timeout: 600})
			stopped <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		sigterm()
		if err := <-served; err != nil || time.Since(began) > 2*grace {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := <-stopped; status.Code(err) != codes.Unavailable && status.Code(err) != codes.Canceled {
			t.Errorf("the stop: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if !w.running()[s.init] {
			t.Error("the machine was ended")
		}
		next := open(t, w, 0, false)
		if got := states(t, next)[s.init]; got != runtimeapi.ContainerState_CONTAINER_RUNNING {
			t.Errorf("the next process calls it %v", got)
		}
		if _, err := call(next, next.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: s.init}); err != nil || w.running()[s.init] {
			t.Errorf("asked again: %v, running %v", err, w.running())
		}
		next.end()
	})
}
