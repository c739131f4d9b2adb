package image

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

// Schemes that a disk may come by.
const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
	schemeOCI   = "oci"
)

// Times that no setting changes. A body that stands still is the business of stalled.
const (
	dialTimeout   = 30 * time.Second
	tlsTimeout    = 10 * time.Second
	headerTimeout = 60 * time.Second
)

// defaultRedirects is one less than the requests that Go's client makes.
const defaultRedirects = 9

const maxTimeout = 7 * 24 * 3600 * 1000 // milliseconds

type fieldError struct{ field, rule string }

func (t Transport) validate() (errs []fieldError) {
	if t.TimeoutMilliseconds > maxTimeout {
		errs = append(errs, fieldError{"timeout", fmt.Sprintf("must be at most %d milliseconds", maxTimeout)})
	}
	if t.MaxRedirects != nil && *t.MaxRedirects < 0 {
		errs = append(errs, fieldError{"maxRedirects", "must not be negative"})
	}
	if t.Proxy != "" {
		if u, err := url.Parse(t.Proxy); err != nil || u.Host == "" || !slices.Contains([]string{schemeHTTP, schemeHTTPS, "socks5"}, u.Scheme) {
			errs = append(errs, fieldError{"proxy", "must be a URL of scheme http, https or socks5"})
		}
	}
	if _, err := t.tlsConfig(); err != nil {
		errs = append(errs, *err)
	}
	return errs
}

// tlsConfig is the configuration for the origin. Its certificates and server name are for nobody else.
func (t Transport) tlsConfig() (*tls.Config, *fieldError) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.TLS == nil {
		return config, nil
	}
	config.ServerName, config.InsecureSkipVerify = t.TLS.ServerName, t.TLS.Insecure
	for i, c := range t.TLS.Certificates {
		field := fmt.Sprintf("tls.certificates[%d]", i)
		if c.Key != "" {
			pair, err := tls.X509KeyPair([]byte(c.Cert), []byte(c.Key))
			if err != nil {
				return nil, &fieldError{field, "cert and key must be a pair in PEM"} // the error may quote the key
			}
			config.Certificates = append(config.Certificates, pair)
			continue
		}
		block, _ := pem.Decode([]byte(c.Cert))
		if block == nil {
			return nil, &fieldError{field + ".cert", "must be PEM"}
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, &fieldError{field + ".cert", err.Error()}
		}
		if !cert.IsCA {
			return nil, &fieldError{field + ".cert", "without a key it must be an authority's (CA)"}
		}
		if config.RootCAs == nil {
			if config.RootCAs, err = x509.SystemCertPool(); err != nil {
				config.RootCAs = x509.NewCertPool()
			}
		}
		config.RootCAs.AddCert(cert)
	}
	return config, nil
}

func (t Transport) timeout() time.Duration {
	return time.Duration(max(0, t.TimeoutMilliseconds)) * time.Millisecond
}

// caller makes requests for one source, and keeps them away from where a stranger's name or a redirect may not lead.
type caller struct {
	origin   *url.URL
	loopback bool // the origin may be this machine
	plain    bool // requests may go without TLS

	own, other *http.Transport // for the origin, and for whom it redirects to
	redirects  int

	mu      sync.Mutex
	isLocal bool            // the origin was found to be this machine
	proxies map[string]bool // host:port
}

func newCaller(origin *url.URL, t Transport) (*caller, error) {
	c := &caller{origin: origin, plain: origin.Scheme == schemeHTTP, redirects: defaultRedirects, proxies: map[string]bool{}}
	if t.MaxRedirects != nil {
		c.redirects = *t.MaxRedirects
	}
	config, bad := t.tlsConfig()
	if bad != nil {
		return nil, vm.Errorf(vm.Invalid, "%s: %s", bad.field, bad.rule)
	}
	proxy := http.ProxyFromEnvironment
	if t.Proxy != "" {
		u, err := url.Parse(t.Proxy)
		if err != nil {
			return nil, vm.Errorf(vm.Invalid, "proxy: must be a URL")
		}
		proxy = http.ProxyURL(u)
	}
	with := func(config *tls.Config) *http.Transport {
		return &http.Transport{
			Proxy:                  func(r *http.Request) (*url.URL, error) { return c.chosen(proxy(r)) },
			DialContext:            c.dial,
			TLSClientConfig:        config,
			TLSHandshakeTimeout:    tlsTimeout,
			ResponseHeaderTimeout:  headerTimeout,
			MaxResponseHeaderBytes: 1 << 18,
			IdleConnTimeout:        tlsTimeout,
			ForceAttemptHTTP2:      true,
		}
	}
	c.own = with(config)
	foreign := config.Clone()
	foreign.Certificates, foreign.ServerName = nil, ""
	c.other = with(foreign)
	return c, nil
}

func (c *caller) chosen(proxy *url.URL, err error) (*url.URL, error) {
	if proxy != nil && err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.proxies[hostPort(proxy)] = true
	}
	return proxy, err
}

// close ends the connections that nobody uses. Those in use end with their responses.
func (c *caller) close() {
	c.own.CloseIdleConnections()
	c.other.CloseIdleConnections()
}

// client is an HTTP client that goes by the caller's rules. rt is the caller itself, or what answers a registry's challenges with it.
func (c *caller) client(rt http.RoundTripper, timeout time.Duration) *http.Client {
	return &http.Client{Transport: rt, Timeout: timeout, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > c.redirects {
			return vm.Errorf(vm.Invalid, "more than %d redirects", c.redirects)
		}
		return nil
	}}
}

// RoundTrip refuses what the dialer cannot see behind a proxy, and sends credentials to the origin alone.
func (c *caller) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case r.URL.Scheme == schemeHTTPS:
	case r.URL.Scheme != schemeHTTP:
		return nil, vm.Errorf(vm.Invalid, "the scheme %s: only http and https are followed", quote(r.URL.Scheme))
	case !c.plain:
		return nil, vm.Errorf(vm.Invalid, "%s: may not be asked without TLS", quote(r.URL.Host))
	}
	if ip, err := netip.ParseAddr(r.URL.Hostname()); err == nil {
		if err := c.mayReach(r.URL.Hostname(), ip); err != nil {
			return nil, err
		}
	}
	if c.isOrigin(r.URL) {
		return c.own.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.URL.User = nil
	r.Header.Del("Authorization")
	r.Header.Del("Referer") // a URL's query may be a credential too
	return c.other.RoundTrip(r)
}

// local reports whether the origin was found to be the node itself.
func (c *caller) local() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isLocal
}

func (c *caller) isOrigin(u *url.URL) bool {
	return u.Scheme == c.origin.Scheme && strings.EqualFold(hostPort(u), hostPort(c.origin))
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{schemeHTTP: "80", schemeHTTPS: "443", "socks5": "1080"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

func (c *caller) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c.mu.Lock()
	proxy := c.proxies[address]
	c.mu.Unlock()
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: dialTimeout}
	if !proxy {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		d.Control = func(_, resolved string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(resolved)
			if err != nil {
				return err
			}
			return c.mayReach(host, to.Addr())
		}
	}
	return d.DialContext(ctx, network, address)
}

// metadata services of clouds whose addresses are not link-local.
var metadata = []netip.Addr{netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200")}

// mayReach judges the address that a host's name led to. Link-local addresses and the metadata services of clouds are never reached. This machine
// is, where the source itself is allowed to be there, and by redirects where it is.
func (c *caller) mayReach(host string, ip netip.Addr) error {
	ip = ip.Unmap().WithZone("")
	if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() || slices.Contains(metadata, ip) {
		return vm.Errorf(vm.Invalid, "host %s: no image comes from %s, a link-local, multicast or metadata address", quote(host), ip)
	}
	if !ip.IsLoopback() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if strings.EqualFold(host, c.origin.Hostname()) {
		if !c.loopback {
			return vm.Errorf(vm.Invalid, "host %s: a name may not lead to the node itself (%s); a translation may", quote(host), ip)
		}
		c.isLocal = true
		return nil
	}
	if !c.isLocal {
		return vm.Errorf(vm.Invalid, "host %s: a redirect may not lead to the node itself (%s)", quote(host), ip)
	}
	return nil
}
