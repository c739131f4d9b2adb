package app

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestPatient: a read waits for an API server that is away and gets its answer soon after it is back, a write fails at once, and
// what the API server itself says is passed on.
func TestPatient(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	client, err := rest.HTTPClientFor(Patient(&rest.Config{Host: "http://" + address}))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context, method, path string) (int, error) {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(""))
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(r)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	if _, err := ask(t.Context(), http.MethodPost, "/"); err == nil {
		t.Error("a write to nobody did not fail")
	}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := ask(ctx, http.MethodGet, "/"); err == nil {
		t.Error("a read of nobody did not fail when its time was over")
	}

	type answer struct {
		status int
		err    error
	}
	got := make(chan answer, 1)
	go func() {
		status, err := ask(t.Context(), http.MethodGet, "/back")
		got <- answer{status, err}
	}()
	if l, err = net.Listen("tcp", address); err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/back" && asked.Add(1) == 1:
			w.WriteHeader(http.StatusBadGateway) // of a load balancer in front of nobody
		case r.URL.Path == "/busy":
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	select {
	case a := <-got:
		if a.err != nil || a.status != http.StatusOK || asked.Load() != 2 {
			t.Errorf("answered %d, %v after %d attempts", a.status, a.err, asked.Load())
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer within 10 s of the return")
	}
	if status, err := ask(t.Context(), http.MethodGet, "/busy"); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("the API server's own words became %d, %v", status, err)
	}
}

// standing is a context that lasts, and counts who waits for its end.
type standing struct {
	context.Context
	end     chan struct{}
	waiting atomic.Int64
}

func (s *standing) Done() <-chan struct{} { return s.end }

// AfterFunc is what contexts made from this one ask for.
func (s *standing) AfterFunc(func()) func() bool {
	s.waiting.Add(1)
	return func() bool { s.waiting.Add(-1); return true }
}

// TestRequestsLeaveNothing: when a request is over, nothing of it stays with the context it was made with, which may last as long as
// the process.
func TestRequestsLeaveNothing(t *testing.T) {
	t.Parallel()
	answer := &rest.Config{WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost {
				return nil, context.DeadlineExceeded
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		})
	}}
	for name, config := range map[string]*rest.Config{
		"within a limit": Hurried(t.Context(), answer, time.Hour), "for ever": Hurried(t.Context(), answer, 0),
		"patient": Patient(answer), "waiting": Waiting(answer),
	} {
		s := &standing{Context: context.Background(), end: make(chan struct{})}
		transport := config.WrapTransport(nil)
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r, err := http.NewRequestWithContext(s, method, "http://api.example/", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := transport.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
			if n := s.waiting.Load(); n != 0 {
				t.Errorf("%s: %s leaves %d with its context", name, method, n)
			}
		}
	}
}
