package usagetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Server is a real Prometheus server.
type Server struct {
	// URL is its address.
	URL string
}

// patience bounds the waits for the server; it is ready within a second on an idle machine.
const patience = time.Minute

// Start starts a Prometheus server on a free port of loopback with a past that promtool has written for it, and ends it
// with the test. Every target, "host:port" of a /metrics, is scraped at the interval. Without the programs prometheus and
// promtool on PATH it says so and returns nil: then there is nothing to test.
func Start(t testing.TB, past Past, interval time.Duration, targets ...string) *Server {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Logf("nothing tested: there is no %s on PATH (Debian's package prometheus has it)", program)
			return nil
		}
	}
	folder := t.TempDir()
	data := filepath.Join(folder, "data")
	if len(past) > 0 {
		text := filepath.Join(folder, "past.txt")
		if err := os.WriteFile(text, past.OpenMetrics(), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", text, data).CombinedOutput(); err != nil {
			t.Fatalf("promtool: %v: %s", err, out)
		}
	}
	config := filepath.Join(folder, "prometheus.yml")
	if err := os.WriteFile(config, scrapes(interval, targets), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("prometheus", "--config.file="+config, "--storage.tsdb.path="+data, "--storage.tsdb.retention.time=10y", "--web.listen-address=127.0.0.1:0")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	// Should this test die, so does the server: the signal comes when the thread that started it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	begun, ended := make(chan error), make(chan error, 1)
	port, last, read := make(chan string, 1), "", make(chan struct{})
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		begun <- err
		if err == nil {
			<-read // all of what it says, before Wait closes the pipe
			ended <- cmd.Wait()
		}
	}()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(read)
		listening := regexp.MustCompile(`msg="Listening on" address=127\.0\.0\.1:(\d+)`)
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			last = lines.Text()
			if m := listening.FindStringSubmatch(last); m != nil {
				port <- m[1]
			}
		}
		_, _ = io.Copy(io.Discard, said)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := <-ended; err != nil {
			t.Errorf("prometheus did not end well: %v", err)
		}
	})
	select {
	case p := <-port:
		s := &Server{URL: "http://127.0.0.1:" + p}
		s.ready(t)
		return s
	case <-read:
		t.Fatalf("prometheus has ended: %s", last)
	case <-time.After(patience):
		t.Fatal("prometheus does not listen")
	}
	return nil
}

func scrapes(interval time.Duration, targets []string) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "scrape_configs:")
	for i, target := range targets {
		fmt.Fprintf(&b, "- {job_name: target-%d, scrape_interval: %s, scrape_timeout: %s, static_configs: [{targets: [%q]}]}\n", i, interval, interval, target)
	}
	return b.Bytes()
}

// ready waits until the server answers questions.
func (s *Server) ready(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/-/ready", nil)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := http.DefaultClient.Do(req); err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("prometheus at %s does not become ready: %v", s.URL, ctx.Err())
		}
	}
}

// Await waits until a question has an answer of one series with that value.
func (s *Server) Await(t testing.TB, query string, want float64) {
	t.Helper()
	client, err := api.NewClient(api.Config{Address: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last model.Value
	for {
		value, _, err := v1.NewAPI(client).Query(ctx, query, time.Now())
		if err == nil {
			last = value
		}
		if v, ok := last.(model.Vector); ok && len(v) == 1 && float64(v[0].Value) == want {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s is %v (%v), want %v", query, last, err, want)
		}
	}
}
