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
