package cycles

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/muster-scheduler/muster/internal/app/gate"
	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/replay"
)

// Path is where cycles are served; the right to read them is the verb get on it.
const Path = "/cycle"

// Bounds of what a client can make the server hold.
const (
	peerConnections, allConnections = 16, 64
	maxHeader                       = 32 << 10 // a token of a cloud's identity can be long
	headerWithin                    = 5 * time.Second
	// writeWithin is how long a reader may take for what it is sent; its connection is closed then.
	writeWithin = 30 * time.Second
	// again is when one who found no room may come again.
	again = 10 * time.Second
)

// Reviewer says whose a request is and what he may; see package review.
type Reviewer interface {
	Caller(*http.Request) (authenticationv1.UserInfo, error)
	Path(ctx context.Context, user authenticationv1.UserInfo, verb, path string) error
}

// Server serves the cycles of a stream.
type Server struct {
	stream *replay.Stream
	review Reviewer
	cert   tls.Certificate
	print  string
}

// NewServer returns a server with a certificate of its own.
func NewServer(s *replay.Stream, r Reviewer) (*Server, error) {
	cert, err := Certificate("muster-scheduler", time.Now())
	if err != nil {
		return nil, err
	}
	return &Server{stream: s, review: r, cert: cert, print: Fingerprint(cert.Certificate[0])}, nil
}

// Fingerprint is the hash of the server's certificate, by which clients know it.
func (s *Server) Fingerprint() string { return s.print }

// Fingerprint is the SHA-256 of a certificate, in hexadecimal digits.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Certificate makes a key and signs a certificate of that name for it, good for as long as any process lives. Clients look at its hash and at nothing it says.
func Certificate(name string, now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	about := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, &about, &about, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("sign the certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Run serves on l, which it closes, until ctx ends.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cycle", s.serve)
	server := &http.Server{
		Handler: mux, MaxHeaderBytes: maxHeader, ReadHeaderTimeout: headerWithin, ReadTimeout: headerWithin, IdleTimeout: time.Minute, ConnContext: gate.Known,
		BaseContext: func(net.Listener) context.Context { return ctx }, // streams end with it
		TLSConfig:   &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{s.cert}},
		ErrorLog:    log.New(io.Discard, "", 0), // of connections that strangers break
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.ServeTLS(gate.New(l, peerConnections, allConnections), "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve cycles at %s: %w", l.Addr(), err)
	}
	return nil
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	user, err := s.review.Caller(r)
	if err == nil {
		err = s.review.Path(r.Context(), user, "get", Path)
	}
	if err != nil {
		http.Error(w, err.Error(), review.Status(err))
		return
	}
	gate.Proves(r)
	line := http.NewResponseController(w)
	packed := gzip.NewWriter(w)
	begun := false
	err = s.stream.Follow(r.Context(), func(text []byte) error {
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.Header().Set("Content-Encoding", "gzip")
			begun = true
		}
		if err := line.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil {
			return err
		}
		if _, err := packed.Write(text); err != nil {
			return err
		}
		if err := packed.Flush(); err != nil {
			return err
		}
		return line.Flush()
	})
	switch {
	case errors.Is(err, replay.ErrReaders):
		w.Header().Set("Retry-After", fmt.Sprint(int(again.Seconds())))
		http.Error(w, err.Error(), http.StatusTooManyRequests)
	case err != nil && !begun:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
