package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/muster-scheduler/muster/internal/app/gate"
)

// Bounds of what clients can make the process hold. Anybody in the cluster can reach the port; probes and a scraper need one connection
// each.
const (
	// peerConnections and allConnections are open at once, of one address and in all.
	peerConnections, allConnections = 32, 128
	maxHeader                       = 8 << 10
	requestWithin, answerWithin     = 5 * time.Second, 30 * time.Second
	// gathersAtOnce are the answers with metrics that are made at a time; who asks then is told to come again.
	gathersAtOnce = 4
)

// Check answers whether one part of the process is well: nil, or why not. It must be quick (a probe waits for it) and safe for
// concurrent use.
type Check func(ctx context.Context) error

// Registry returns a fresh metrics registry with the Go runtime's and the process's own metrics in it.
func Registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Server is the process's HTTP face for operators: /metrics, /healthz, /readyz, and /debug/pprof when asked for.
//
// /healthz says whether a restart would help; /readyz whether work should be sent here. Both answer 200 "ok", or 500 with one
// line per check; ?verbose lists the checks of a healthy process too, and /healthz/NAME asks one. A server without checks is
// healthy and ready. Checks may be added while it serves.
type Server struct {
	// Metrics is what /metrics shows; nil shows nothing.
	Metrics prometheus.Gatherer
	// Profiling serves /debug/pprof. It shows memory contents: off unless the operator asks, and then Local, on a listener of
	// ListenLocal.
	Profiling bool
	// Local answers nothing but requests to the loopback; see Local.
	Local bool
	// Grace bounds how long a stop waits for answers under way; 0 means 5 s.
	Grace time.Duration

	mu          sync.RWMutex
	live, ready map[string]Check
}

// AddLiveness adds a named check to /healthz; a second one of the same name replaces the first.
func (s *Server) AddLiveness(name string, c Check) { s.add(&s.live, name, c) }

// AddReadiness adds a named check to /readyz; a second one of the same name replaces the first.
func (s *Server) AddReadiness(name string, c Check) { s.add(&s.ready, name, c) }

func (s *Server) add(to *map[string]Check, name string, c Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *to == nil {
		*to = map[string]Check{}
	}
	(*to)[name] = c
}

// Handler is everything that the server answers, for callers that have a listener of their own.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	if s.Metrics != nil {
		// An answer is whole before it is sent: who reads slowly holds no place.
		mux.Handle("GET /metrics", http.TimeoutHandler(promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: gathersAtOnce}), answerWithin/2, "the metrics took too long"))
	}
	for path, checks := range map[string]*map[string]Check{"/healthz": &s.live, "/readyz": &s.ready} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { s.probe(w, r, checks, "") })
		mux.HandleFunc("GET "+path+"/{name}", func(w http.ResponseWriter, r *http.Request) { s.probe(w, r, checks, r.PathValue("name")) })
	}
	if s.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	if s.Local {
		return Local(mux)
	}
	return mux
}

// probe answers one health request: all checks of a list, or the one that is named.
func (s *Server) probe(w http.ResponseWriter, r *http.Request, checks *map[string]Check, only string) {
	s.mu.RLock()
	selected := map[string]Check{}
	var names []string
	for name, c := range *checks {
		if only == "" || name == only {
			selected[name] = c
			names = append(names, name)
		}
	}
	s.mu.RUnlock()
	slices.Sort(names)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if only != "" && len(names) == 0 {
		http.Error(w, fmt.Sprintf("no check is named %q", only), http.StatusNotFound)
		return
	}
	var text strings.Builder
	well := true
	for _, name := range names {
		if err := selected[name](r.Context()); err != nil {
			well = false
			fmt.Fprintf(&text, "[-] %s: %v\n", name, err)
		} else {
			fmt.Fprintf(&text, "[+] %s\n", name)
		}
	}
	_, verbose := r.URL.Query()["verbose"]
	switch {
	case !well:
		w.WriteHeader(http.StatusInternalServerError)
	case !verbose:
		text.Reset()
	}
	if well {
		text.WriteString("ok\n")
	}
	// A prober that hangs up early is its own problem.
	_, _ = w.Write([]byte(text.String()))
}

// Run serves on l until ctx ends, then stops within the grace. It closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	grace := s.Grace
	if grace == 0 {
		grace = 5 * time.Second
	}
	srv := &http.Server{
		Handler: s.Handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: requestWithin, ReadTimeout: requestWithin, IdleTimeout: 2 * time.Minute,
	}
	if !s.Profiling { // a profile takes as long as was asked for
		srv.WriteTimeout = answerWithin
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(gate.New(l, peerConnections, allConnections)) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if err := srv.Shutdown(stopping); err != nil {
		// A client that keeps its request open does not keep us from stopping.
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// EnvListenHost names the environment variable with the host for listen addresses that name none, such as ":8080". Unset or
// empty, these mean every address of the machine.
const EnvListenHost = "MUSTER_LISTEN_HOST"

// ListenHost is the host for listen addresses that name none; empty for every address of the machine.
func ListenHost() string { return os.Getenv(EnvListenHost) }

// Listen opens a TCP listener at the address that the flag of that name was given. An address of "" or "0" means that the server is
// turned off: nil, nil. An address without a host has that of ListenHost. The error names the flag, and how to choose another port.
func Listen(flag, address string) (net.Listener, error) {
	if address == "" || address == "0" {
		return nil, nil
	}
	l, err := net.Listen("tcp", hosted(address, ListenHost()))
	if err != nil {
		return nil, fmt.Errorf("--%s: %w; choose another with --%[1]s=:PORT, or none with --%[1]s=0", flag, err)
	}
	return l, nil
}

// hosted is the address with a host, where it names none.
func hosted(address, host string) string {
	if h, port, err := net.SplitHostPort(address); err == nil && h == "" && host != "" {
		return net.JoinHostPort(host, port)
	}
	return address
}
