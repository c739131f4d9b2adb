package ui

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
	"sync"
	"time"

	"github.com/muster-scheduler/muster/internal/app/gate"
	"github.com/muster-scheduler/muster/internal/cycles"
)

// Bounds of what a client can make the server hold. A proxy is one peer for many people.
const (
	peerConnections, allConnections = 128, 512
	maxHeader                       = 64 << 10 // a token of a cloud's identity can be long, and a cookie beside it
	headerWithin                    = 5 * time.Second
	writeWithin                     = forProof + 30*time.Second
	// rereadAfter is how long a certificate that was read from files counts.
	rereadAfter = time.Minute
)

// Certificates says by which certificate a server is known: that of the files, read again every minute, or without files one of the process's own, whose
// fingerprint it returns.
func Certificates(certFile, keyFile string) (_ *tls.Config, fingerprint string, err error) {
	if (certFile == "") != (keyFile == "") {
		return nil, "", errors.New("a certificate takes a key, and a key a certificate: give both files or neither")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if certFile == "" {
		own, err := cycles.Certificate("muster-ui", time.Now())
		if err != nil {
			return nil, "", err
		}
		c.Certificates = []tls.Certificate{own}
		return c, cycles.Fingerprint(own.Certificate[0]), nil
	}
	k := &keeper{cert: certFile, key: keyFile}
	if _, err := k.get(nil); err != nil {
		return nil, "", err
	}
	c.GetCertificate = k.get
	return c, "", nil
}

// keeper has the certificate of two files.
type keeper struct {
	cert, key string

	mu   sync.Mutex
	have *tls.Certificate
	read time.Time
}

// get returns the certificate. Files that cannot be read leave the one that was there.
func (k *keeper) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.have != nil && time.Since(k.read) < rereadAfter {
		return k.have, nil
	}
	k.read = time.Now()
	cert, err := os.ReadFile(k.cert)
	if err == nil {
		var key []byte
		if key, err = os.ReadFile(k.key); err == nil {
			var pair tls.Certificate
			if pair, err = tls.X509KeyPair(cert, key); err == nil {
				k.have = &pair
			}
		}
	}
	if k.have == nil {
		return nil, fmt.Errorf("read the certificate %s and its key: %w", k.cert, err)
	}
	return k.have, nil
}

// Serve serves on l, which it closes, until ctx ends; without TLS if the configuration is nil.
func (a *Answerer) Serve(ctx context.Context, l net.Listener, t *tls.Config) error {
	server := &http.Server{
		Handler: a.Handler(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerWithin, ReadTimeout: headerWithin, WriteTimeout: writeWithin, IdleTimeout: time.Minute,
		ConnContext: gate.Known, BaseContext: func(net.Listener) context.Context { return ctx },
		TLSConfig: t, ErrorLog: log.New(io.Discard, "", 0), // of connections that strangers break
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	l = gate.New(l, peerConnections, allConnections)
	serve := func() error { return server.Serve(l) }
	if t != nil {
		serve = func() error { return server.ServeTLS(l, "", "") }
	}
	if err := serve(); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve at %s: %w", l.Addr(), err)
	}
	return nil
}
