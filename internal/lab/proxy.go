package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Proxy stands between a client and a lab's API server, passes everything on unchanged, and acts when an exact
// response goes by: tests use it to kill a process at a chosen point between two of its writes.
//
// It speaks HTTP/1.1 over TLS with the API server's own certificate (in HTTP/2 a response has not ended for the
// client before the server's handler returns, so a hook could not run right after it), and streams watches and logs
// without buffering. A request with a bearer token keeps its identity; any other gets the administrator's.
type Proxy struct {
	url        string
	kubeconfig string
	server     *http.Server
	served     chan struct{}
	transports []*http2.Transport

	mu     sync.Mutex
	rules  []*rule
	faults []*faultPlan
	open   map[net.Conn]struct{}
}

// Request is what a Proxy knows of a request to the API server.
type Request struct {
	// Method is the HTTP method.
	Method string
	// Group, Version and Resource name the kind, such as "", "v1", "pods". They are empty for other paths.
	Group, Version, Resource string
	// Namespace, Name and Subresource are empty where the path has none.
	Namespace, Name, Subresource string
	// Watch is true for a watch, whose response does not end by itself.
	Watch bool
	// URL is the request's URL.
	URL *url.URL
	// Body is the request's body, read only for a Match with Where; nil otherwise.
	Body []byte
}

// Match selects responses. Only successful ones (status 2xx) ever match. A zero field matches everything, but
// AnySubresource decides about subresources.
type Match struct {
	// Method is an HTTP method, such as POST.
	Method string
	// Group and Resource name the kind; Group is compared only if Resource is given.
	Group, Resource string
	// Subresource is compared, so "" means the resource itself, unless AnySubresource is set.
	Subresource    string
	AnySubresource bool
	// Namespace and Name of the object.
	Namespace, Name string
	// Where is a further condition. With it, bodies of matching requests are held in memory.
	Where func(Request) bool
}

// When says on which side of the forwarding of a response a hook runs.
type When int

const (
	// BeforeForward runs the hook after the API server has answered in full, so that the write is done, and before
	// the client sees any of it. The response is forwarded when the hook returns.
	BeforeForward When = iota
	// AfterForward runs the hook when the last byte of the response has been written to the client's connection.
	AfterForward
)

type rule struct {
	match Match
	k     int
	when  When
	do    func(Request)
	seen  int
	fired chan struct{}
}

// NewProxy starts a proxy in front of the lab, on a free loopback port. Close it before Stop.
func (l *Lab) NewProxy() (*Proxy, error) {
	target, err := url.Parse(l.config.Host)
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	pki := filepath.Join(l.dir, "pki")
	cert, err := tls.LoadX509KeyPair(filepath.Join(pki, "apiserver.crt"), filepath.Join(pki, "apiserver.key"))
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	admin, err := rest.TLSConfigFor(l.config)
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	self, err := tls.LoadX509KeyPair(filepath.Join(pki, "admin.crt"), filepath.Join(pki, "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	admin.Certificates = []tls.Certificate{self}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	p := &Proxy{url: "https://" + listener.Addr().String(), served: make(chan struct{}), open: map[net.Conn]struct{}{}}
	p.kubeconfig = filepath.Join(l.dir, fmt.Sprintf("kubeconfig-proxy-%d", listener.Addr().(*net.TCPAddr).Port))
	if err := redirect(l.Kubeconfig(), p.kubeconfig, p.url); err != nil {
		listener.Close()
		return nil, fmt.Errorf("start a proxy: %w", err)
	}
	anonymous := admin.Clone()
	anonymous.Certificates, anonymous.GetClientCertificate = nil, nil
	asAdmin, asBearer := upstream(admin), upstream(anonymous)
	p.transports = []*http2.Transport{asAdmin, asBearer}
	quiet := log.New(io.Discard, "", 0)
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = "" },
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Authorization") != "" {
				return asBearer.RoundTrip(r)
			}
			return asAdmin.RoundTrip(r)
		}),
		FlushInterval:  -1,
		ModifyResponse: p.answered,
		ErrorLog:       quiet,
	}
	p.server = &http.Server{
		Handler:           p.handler(reverse),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          quiet,
		ConnState:         p.connection,
	}
	go func() {
		defer close(p.served)
		_ = p.server.ServeTLS(listener, "", "") // returns when Close has closed the listener
	}()
	return p, nil
}

// URL is where the proxy serves.
func (p *Proxy) URL() string { return p.url }

// Kubeconfig is the path of a kubeconfig that leads through the proxy. Its rights are an administrator's.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// Config is a configuration that leads through the proxy, without a limit of rate.
func (p *Proxy) Config() (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("load the proxy's kubeconfig: %w", err)
	}
	cfg.QPS = -1
	return cfg, nil
}

// On has do called once, at the k-th response from now on that m matches (k counts from 1). The call is made on the
// goroutine that serves the response, which waits for it. The channel is closed when do has returned.
func (p *Proxy) On(m Match, k int, when When, do func(Request)) <-chan struct{} {
	r := &rule{match: m, k: max(1, k), when: when, do: do, fired: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r.fired
}

// Count has matching responses counted from now on, and returns a function that tells how many there were.
func (p *Proxy) Count(m Match) func() int {
	r := &rule{match: m}
	p.mu.Lock()
	p.rules = append(p.rules, r)
	p.mu.Unlock()
	return func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return r.seen
	}
}

// Reset forgets every hook, counter and fault.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.faults = nil, nil
}

// Close cuts every connection and waits until the proxy no longer accepts any.
func (p *Proxy) Close() error {
	err := p.server.Close()
	<-p.served
	for _, t := range p.transports {
		t.CloseIdleConnections()
	}
	if err != nil {
		return fmt.Errorf("close the proxy: %w", err)
	}
	return nil
}

// exchange is what handler and answered share about one request.
type exchange struct {
	req   Request
	after []*rule
}

type exchangeKey struct{}

func (p *Proxy) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{req: parseRequest(r)}
		if p.wantsBody(x.req) && r.Body != nil {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			x.req.Body = body
			r.Body = io.NopCloser(bytes.NewReader(body))
			r.ContentLength = int64(len(body))
		}
		if f := p.fault(x.req); f != nil && !f.play(w, r) {
			return
		}
		// ReverseProxy ends a cut response with a panic that the server understands; the hooks of a response that
		// was not handed over in full must not run, and they do not.
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x)))
		if len(x.after) > 0 {
			_ = http.NewResponseController(w).Flush()
			for _, rule := range x.after {
				rule.fire(x.req)
			}
		}
	})
}

// answered counts a response when the API server has begun it, and runs the hooks that come before the client.
func (p *Proxy) answered(resp *http.Response) error {
	x, ok := resp.Request.Context().Value(exchangeKey{}).(*exchange)
	if !ok || resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil
	}
	before := p.count(x)
	if len(before)+len(x.after) == 0 {
		return nil
	}
	if !x.req.Watch { // whole, and of known length: so it is complete for the client once it is flushed
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return fmt.Errorf("read the API server's response: %w", err)
		}
		resp.Body.Close()
		resp.Body = io.NopCloser(bytes.NewReader(body))
		resp.ContentLength = int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	}
	for _, rule := range before {
		rule.fire(x.req)
	}
	return nil
}

// count notes the response with every rule it matches, and returns those that fire before it is forwarded. Those
// that fire afterwards it leaves in x.
func (p *Proxy) count(x *exchange) (before []*rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		if !r.match.matches(x.req) {
			continue
		}
		r.seen++
		if r.do == nil || r.seen != r.k {
			continue
		}
		if r.when == BeforeForward {
			before = append(before, r)
		} else {
			x.after = append(x.after, r)
		}
	}
	return before
}

func (p *Proxy) wantsBody(req Request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		where := r.match.Where
		m := r.match
		m.Where = nil
		if where != nil && m.matches(req) {
			return true
		}
	}
	return false
}

func (r *rule) fire(req Request) {
	r.do(req)
	close(r.fired)
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func upstream(c *tls.Config) *http2.Transport {
	c = c.Clone()
	c.NextProtos = []string{"h2"}
	return &http2.Transport{TLSClientConfig: c, DisableCompression: true}
}

// redirect copies a kubeconfig with another server in it.
func redirect(from, to, server string) error {
	c, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	if len(c.Clusters) == 0 {
		return errors.New(from + " names no cluster")
	}
	for _, cluster := range c.Clusters {
		cluster.Server = server
	}
	return clientcmd.WriteToFile(*c, to)
}
