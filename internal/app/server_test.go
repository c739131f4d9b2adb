package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func TestServer(t *testing.T) {
	t.Parallel()
	registry := Registry()
	counter := prometheus.NewCounter(prometheus.CounterOpts{Name: "kai_test_total", Help: "A test."})
	registry.MustRegister(counter)
	counter.Inc()
	s := &Server{Metrics: registry}
	s.AddLiveness("loop", func(context.Context) error { return nil })
	s.AddReadiness("loop", func(context.Context) error { return nil })
	s.AddReadiness("feed", func(context.Context) error { return errors.New("12 of 14 kinds synced") })
	web := httptest.NewServer(s.Handler())
	t.Cleanup(web.Close)

	type answer struct {
		Status int
		Body   string
	}
	for path, want := range map[string]answer{
		"/healthz":         {200, "ok\n"},
		"/healthz?verbose": {200, "[+] loop\nok\n"},
		"/healthz/loop":    {200, "ok\n"},
		"/readyz":          {500, "[-] feed: 12 of 14 kinds synced\n[+] loop\n"},
		"/readyz/feed":     {500, "[-] feed: 12 of 14 kinds synced\n"},
		"/readyz/none":     {404, "no check is named \"none\"\n"},
		"/debug/pprof/":    {404, "404 page not found\n"},
	} {
		var got answer
		got.Status, got.Body = get(t, web.URL+path)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("GET %s (-want +got):\n%s", path, d)
		}
	}
	_, metrics := get(t, web.URL+"/metrics")
	for _, want := range []string{"kai_test_total 1\n", "go_goroutines ", "process_start_time_seconds "} {
		if !strings.Contains(metrics, want) {
			t.Errorf("/metrics lacks %q", want)
		}
	}

	// A check may come later, and replace an earlier one.
	s.AddReadiness("feed", func(context.Context) error { return nil })
	if status, body := get(t, web.URL+"/readyz"); status != 200 {
		t.Errorf("GET /readyz = %d %q after the feed has synced", status, body)
	}
}

func TestServerProfiles(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer((&Server{Profiling: true}).Handler())
	t.Cleanup(web.Close)
	if status, _ := get(t, web.URL+"/debug/pprof/goroutine?debug=1"); status != 200 {
		t.Errorf("profiling is on, and /debug/pprof answers %d", status)
	}
	if status, _ := get(t, web.URL+"/metrics"); status != 404 {
		t.Errorf("a server without a registry answers /metrics with %d", status)
	}
}

func TestServerRunStops(t *testing.T) {
	t.Parallel()
	l, err := Listen("x", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- new(Server).Run(ctx, l) }()
	if status, _ := get(t, "http://"+l.Addr().String()+"/healthz"); status != 200 {
		t.Errorf("a server without checks answers /healthz with %d", status)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := Listen("x", l.Addr().String()); err != nil {
		t.Errorf("the port is still taken after the stop: %v", err)
	}
}

// TestServerIsBounded: what somebody in the cluster can make a role hold by its open port is little: headers are short, and whoever opens
// connections without end loses his own and keeps no probe out.
func TestServerIsBounded(t *testing.T) {
	t.Parallel()
	l, err := Listen("x", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- (&Server{Metrics: Registry()}).Run(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		return c
	}
	say := func(c net.Conn, header string) (status int) {
		_, _ = fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nNote: %s\r\n\r\n", header)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := say(dial(), strings.Repeat("x", 1<<10)); got != http.StatusOK {
		t.Errorf("a short header is answered with %d", got)
	}
	if got := say(dial(), strings.Repeat("x", 64<<10)); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header is answered with %d", got)
	}
	first := dial()
	if got := say(first, ""); got != http.StatusOK {
		t.Fatalf("the first connection is answered with %d", got)
	}
	for range 2 * peerConnections {
		dial()
	}
	if n, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest of too many connections stays open: %d, %v", n, err)
	}
	if got := say(dial(), ""); got != http.StatusOK {
		t.Errorf("a probe beside too many connections is answered with %d", got)
	}
}

// TestMetricsOnce: however many ask for the metrics at once, few answers are made at a time, and who reads slowly keeps nobody from one.
func TestMetricsOnce(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan bool), make(chan bool)
	h := (&Server{Metrics: prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		begun <- true
		<-goOn
		return nil, nil
	})}).Handler()
	ask := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return w
	}
	var asking sync.WaitGroup
	for range gathersAtOnce {
		asking.Go(func() {
			if w := ask(); w.Code != http.StatusOK {
				t.Errorf("answered with %d", w.Code)
			}
		})
		<-begun
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one more is answered with %d", w.Code)
	}
	close(goOn)
	asking.Wait()
}

func TestServerRunFails(t *testing.T) {
	t.Parallel()
	l, err := Listen("x", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := new(Server).Run(t.Context(), l); err == nil {
		t.Error("serving a closed listener succeeded")
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	for _, off := range []string{"", "0"} {
		if l, err := Listen("x", off); l != nil || err != nil {
			t.Errorf("Listen(%q) = %v, %v; want it turned off", off, l, err)
		}
	}
	if _, err := Listen("some-address", "nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") || !strings.Contains(err.Error(), "--some-address:") {
		t.Errorf("got %v, want an error that names the address", err)
	}
}

func TestHosted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ address, host, want string }{
		{":8080", "", ":8080"},
		{":8080", "127.1.2.3", "127.1.2.3:8080"},
		{":8080", "::1", "[::1]:8080"},
		{"127.0.0.1:8080", "127.1.2.3", "127.0.0.1:8080"},
		{"nonsense", "127.1.2.3", "nonsense"},
	} {
		if got := hosted(c.address, c.host); got != c.want {
			t.Errorf("%q with host %q is %q, want %q", c.address, c.host, got, c.want)
		}
	}
}
