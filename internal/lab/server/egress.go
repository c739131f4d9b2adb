package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/lab"
)

// dialGrace bounds how long a connection to a pod's process may take to come about.
const dialGrace = 10 * time.Second

// egress is how the API server reaches pods: webhooks, aggregated APIs, and what it proxies (kubectl get --raw
// …/services/NAME:PORT/proxy/). It asks this proxy, by CONNECT over TLS on loopback, for the pod that it has chosen among a
// Service's ready endpoints, and the proxy connects it to that pod's process (lab.ProcessAddress). Real nodes and their pods
// have addresses that lead there, and pass as they are.
type egress struct {
	listener net.Listener
	config   string // the file that tells the API server
}

// newEgress opens the proxy's port and writes what the API server has to read. Serve serves it.
func newEgress(dir string, p pki) (*egress, error) {
	cert, err := tls.LoadX509KeyPair(p.path("apiserver.crt"), p.path("apiserver.key"))
	if err != nil {
		return nil, fmt.Errorf("the proxy to pods: %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("the proxy to pods: %w", err)
	}
	e := &egress{config: filepath.Join(dir, "egress.yaml")}
	// Only HTTP/1.1: a connection is taken over whole.
	e.listener = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	text := fmt.Sprintf(`apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      tcp:
        url: https://%s
        tlsConfig: {caBundle: %q, clientCert: %q, clientKey: %q}
`, l.Addr(), p.path("ca.crt"), p.path("admin.crt"), p.path("admin.key"))
	if err := os.WriteFile(e.config, []byte(text), 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("the proxy to pods: %w", err), l.Close())
	}
	return e, nil
}

// flags are what the API server is told: to choose an endpoint of a Service by itself, since nothing here routes cluster
// addresses, and to reach it through the proxy.
func (e *egress) flags() []string {
	return []string{"--enable-aggregator-routing=true", "--egress-selector-config-file=" + e.config}
}

// serve connects until ctx ends, and returns when every connection has ended.
func (e *egress) serve(ctx context.Context) error {
	var open sync.WaitGroup
	server := &http.Server{
		ReadHeaderTimeout: dialGrace, ErrorLog: log.New(io.Discard, "", 0), // of clients that hang up
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodConnect {
				http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
				return
			}
			dialing, cancel := context.WithTimeout(r.Context(), dialGrace)
			defer cancel()
			to, err := new(net.Dialer).DialContext(dialing, "tcp", lab.ProcessAddress(r.Host))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			from, read, err := http.NewResponseController(w).Hijack()
			if err != nil {
				to.Close()
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			open.Add(1)
			go func() {
				defer open.Done()
				join(ctx, from, read, to)
			}()
		}),
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(e.listener)
	open.Wait()
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the proxy to pods: %w", err)
	}
	return nil
}

// join says yes and carries bytes both ways until one side ends or ctx does. It closes both.
func join(ctx context.Context, from net.Conn, read io.Reader, to net.Conn) {
	end := func() { from.Close(); to.Close() }
	defer end()
	stop := context.AfterFunc(ctx, end)
	defer stop()
	if _, err := io.WriteString(from, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer end()
		_, _ = io.Copy(to, read)
	})
	_, _ = io.Copy(from, to)
	end()
	wg.Wait()
}
