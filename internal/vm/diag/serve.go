package diag

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/muster-scheduler/muster/internal/vm"
	"github.com/muster-scheduler/muster/internal/vm/socket"
)

// Garbage is something that nobody needs.
type Garbage struct {
	// Kind says what it is: "machine", "network", "volumes", "folder", "image file" and the like; ID or Path which.
	Kind string `json:"kind"`
	ID   string `json:"id"`
	// Why is why it is nobody's.
	Why string `json:"why"`
	// Bytes that it takes, where that is known.
	Bytes int64 `json:"bytes,omitempty"`
	// Error is why it is still there.
	Error string `json:"error,omitempty"`
}

// Collector finds what is nobody's and, unless dry, takes it away. What it gives beside an error is what it found nonetheless.
type Collector func(ctx context.Context, dry bool) ([]Garbage, error)

// Service is what a process serves.
type Service struct {
	// Sources are the process's own.
	Sources []Source
	// GC is nil where there is nothing to collect.
	GC Collector
	// Metrics, if set, are told too, and are a source of the dump.
	Metrics prometheus.Gatherer
	// Bounds are of a collection.
	Bounds Bounds
}

// Serve serves at a unix socket, which only the user of this process can connect to, until ctx ends. A socket that nobody serves is replaced; one that
// is served is an error. ready, if set, is called once calls are answered.
func Serve(ctx context.Context, path string, s Service, ready func()) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o711); err != nil { //nolint:gosec // QEMU's user gets through
		return err
	}
	l, err := socket.Listen(path, 0o600)
	if err != nil {
		return fmt.Errorf("diagnostics: %w", err)
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Minute, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if ready != nil {
		ready()
	}
	if err := server.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("diagnostics: %w", err)
	}
	return nil
}

func (s Service) handler() http.Handler {
	answer := func(w http.ResponseWriter, v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	turn := make(chan struct{}, 1) // one look at a time: a dump takes memory
	mux := http.NewServeMux()
	sources := s.Sources
	if s.Metrics != nil {
		mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{}))
		sources = append(slices.Clip(sources), Source{Name: "metrics", Ext: "txt", Read: func(_ context.Context, to io.Writer) error {
			families, err := s.Metrics.Gather()
			for _, f := range families {
				_, bad := expfmt.MetricFamilyToText(to, f)
				err = errors.Join(err, bad)
			}
			return err
		}})
	}
	do := func(w http.ResponseWriter, r *http.Request, f func()) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			f()
		case <-r.Context().Done():
			http.Error(w, "another look is under way", http.StatusServiceUnavailable)
		}
	}
	mux.HandleFunc("GET /dump", func(w http.ResponseWriter, r *http.Request) {
		do(w, r, func() { answer(w, Collect(r.Context(), sources, s.Bounds)) })
	})
	mux.HandleFunc("POST /gc", func(w http.ResponseWriter, r *http.Request) {
		dry, err := strconv.ParseBool(r.URL.Query().Get("dry"))
		if err != nil || s.GC == nil {
			http.Error(w, "dry must be true or false, and there must be something to collect", http.StatusBadRequest)
			return
		}
		do(w, r, func() {
			found, err := s.GC(r.Context(), dry)
			out := collected{Found: found}
			if err != nil {
				out.Error = err.Error()
			}
			answer(w, out)
		})
	})
	return mux
}

type collected struct {
	Found []Garbage `json:"found"`
	Error string    `json:"error,omitempty"`
}

// Client asks a process. One that does not answer is Unavailable.
type Client struct{ Socket string }

// Dump gives a process's tree.
func (c Client) Dump(ctx context.Context) (out Result, err error) {
	err = c.call(ctx, http.MethodGet, "/dump", &out)
	return out, err
}

// GC finds what is nobody's and, unless dry, has it taken away. What it gives beside an error was found nonetheless.
func (c Client) GC(ctx context.Context, dry bool) ([]Garbage, error) {
	var out collected
	if err := c.call(ctx, http.MethodPost, "/gc?dry="+strconv.FormatBool(dry), &out); err != nil {
		return nil, err
	}
	if out.Error != "" {
		return out.Found, errors.New(out.Error)
	}
	return out.Found, nil
}

// Metrics gives what a process counts.
func (c Client) Metrics(ctx context.Context) (out []*dto.MetricFamily, err error) {
	err = c.ask(ctx, http.MethodGet, "/metrics", func(body io.Reader) error {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(body)
		for _, name := range slices.Sorted(maps.Keys(families)) {
			out = append(out, families[name])
		}
		return err
	})
	return out, err
}

func (c Client) call(ctx context.Context, method, path string, into any) error {
	return c.ask(ctx, method, path, func(body io.Reader) error { return json.NewDecoder(body).Decode(into) })
}

// ask has read take the answer, of which it sees at most what a dump may have.
func (c Client) ask(ctx context.Context, method, path string, read func(io.Reader) error) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	}}
	r, err := http.NewRequestWithContext(ctx, method, "http://node"+path, nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return vm.Errorf(vm.Unavailable, "%s: %w", c.Socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(answer.Body, 1024))
		return vm.Errorf(vm.Unavailable, "%s: %s: %s", c.Socket, answer.Status, bytes.TrimSpace(said))
	}
	if err := read(io.LimitReader(answer.Body, maxDump)); err != nil {
		return vm.Errorf(vm.Unavailable, "%s: %w", c.Socket, err)
	}
	return nil
}

// Stack is a source: what the goroutines of this process do.
func Stack() Source {
	return Source{Name: "stack", Ext: "log", Read: func(_ context.Context, to io.Writer) error {
		text := make([]byte, 16<<20)
		_, err := to.Write(text[:runtime.Stack(text, true)])
		return err
	}}
}
