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
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/muster-scheduler/muster/internal/app/gate"
	"github.com/muster-scheduler/muster/internal/app/review"
	"github.com/muster-scheduler/muster/internal/replay"
)

// Path is where cycles are served; the right to read them is the verb get on it. OutlookPath is where the scheduler is told what is forecast of its gangs; the right to tell it is the verb post.
const (
	Path        = "/cycle"
	OutlookPath = "/outlook"
)

// Bounds of what a client can make the server hold.
const (
	peerConnections, allConnections = 16, 64
	maxHeader                       = 32 << 10 // a token of a cloud's identity can be long
	maxOutlook                      = 32 << 20 // of 50,000 gangs that wait
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
	// Told, if set, is given what is forecast, as the caller wrote it; an error is the caller's fault. One call at a time. Set it before Run.
	Told func(outlook []byte) error

	telling sync.Mutex
	stream  *replay.Stream
	review  Reviewer
	cert    tls.Certificate
	print   string
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
	mux.HandleFunc("POST /outlook", s.told)
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

// may says whether the caller has the right to do that on a path, and has answered him if not.
func (s *Server) may(w http.ResponseWriter, r *http.Request, verb, path string) bool {
	user, err := s.review.Caller(r)
	if err == nil {
		err = s.review.Path(r.Context(), user, verb, path)
	}
	if err != nil {
		http.Error(w, err.Error(), review.Status(err))
		return false
	}
	gate.Proves(r)
	return true
}

// told takes a forecast. Who has no use for one says so with 404, before the body is read.
func (s *Server) told(w http.ResponseWriter, r *http.Request) {
	if !s.may(w, r, "post", OutlookPath) {
		return
	}
	if s.Told == nil {
		http.Error(w, "gangs' objects are not told why they wait: the scheduler runs without --explain-gangs", http.StatusNotFound)
		return
	}
	s.telling.Lock() // what one of them may make the process hold is bounded, so all of them is
	defer s.telling.Unlock()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOutlook))
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		http.Error(w, fmt.Sprintf("the forecast is longer than %d bytes", large.Limit), http.StatusRequestEntityTooLarge)
		return
	}
	if err == nil {
		err = s.Told(body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.may(w, r, "get", Path) {
		return
	}
	line := http.NewResponseController(w)
	packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // an error is of a level that there is not; what a higher one saves is less than it costs the scheduler
	begun := false
	err := s.stream.Follow(r.Context(), func(text []byte) error {
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
