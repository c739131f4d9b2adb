package image

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/vm"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	parse := func(name, text string) Mapping {
		m, err := ParseMapping(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	mappings := []Mapping{
		parse("a.yaml", `
translations:
- {regexp: 'cirros/(\d\.\d\.\d)', url: 'http://a.example/cirros-$1.img', transport: slow}
- {regexp: 'fedora', url: 'http://a.example/fedora'}
- {name: ubuntu, url: 'a.example/first'}
- {name: ubuntu, url: 'a.example/second'}
transports:
  slow: {timeout: 90000}
  "": {maxRedirects: 3}
`),
		parse("b.yaml", `
prefix: corp
translations:
- {name: ubuntu, url: 'oci://b.example/ubuntu:1'}
- {regexp: '(?P<os>[a-z]+)-(?P<n>.*)', url: 'https://b.example/${os}/${n}.qcow2'}
`),
		parse("c.yaml", `
translations:
- {name: fedora, url: 'http://c.example/exact'}
- {name: corp/debian-12, url: 'http://c.example/corp'}
`),
	}
	for _, test := range []struct {
		name, url string // no URL: nothing matches
		exact     bool   // without regexps
	}{
		{name: "ubuntu", url: "a.example/first"},
		{name: "fedora", url: "http://c.example/exact"}, // before a regexp of an earlier mapping
		{name: "cirros/0.3.5", url: "http://a.example/cirros-0.3.5.img"},
		{name: "cirros/0.3.5", exact: true},
		{name: "cirros/0.3.55"}, // regexps match whole names
		{name: "x-cirros/0.3.5"},
		{name: "fedora2"},
		{name: "corp/ubuntu", url: "oci://b.example/ubuntu:1"},
		{name: "corp/debian-11", url: "https://b.example/debian/11.qcow2"},
		{name: "corp/debian-12", url: "http://c.example/corp"},
		{name: "corporation/ubuntu"},
		{name: "debian-11"},
		{name: ""},
	} {
		got, ok := translate(mappings, test.name, !test.exact)
		if ok != (test.url != "") || got.url != test.url {
			t.Errorf("%s: %q, %v; want %q", test.name, got.url, ok, test.url)
		}
	}
	if got, _ := translate(mappings, "cirros/0.3.5", true); got.transport.TimeoutMilliseconds != 90000 || got.transport.timeout() != 90*time.Second {
		t.Errorf("transport %+v", got.transport)
	}
	if got, _ := translate(mappings, "ubuntu", true); got.transport.MaxRedirects == nil || *got.transport.MaxRedirects != 3 {
		t.Errorf("the transport of rules without one: %+v", got.transport)
	}
	if got, _ := translate(mappings, "corp/ubuntu", true); got.transport != (Transport{}) {
		t.Errorf("a profile that is not there: %+v", got.transport)
	}
}

func TestParseMappingRefuses(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"translations: [{name: a, url: b, regex: c}]": "regex",
		"translation: []":                                                     "translation",
		"translations: [{url: b}]":                                            "either name or regexp",
		"translations: [{name: a, regexp: b, url: c}]":                        "either name or regexp",
		"translations: [{name: a}]":                                           "translations[0].url: must not be empty",
		"translations: [{name: a, url: b}, {regexp: '(', url: c}]":            "translations[1].regexp",
		"translations: [{name: a, url: 'file:///etc/shadow'}]":                "scheme must be https, http or oci",
		"transports: {p: {maxRedirects: -1}}":                                 "transports[p].maxRedirects",
		"transports: {p: {proxy: 'unix:///x'}}":                               "transports[p].proxy",
		"transports: {p: {tls: {certificates: [{cert: x}]}}}":                 "transports[p].tls.certificates[0].cert: must be PEM",
		"transports: {p: {tls: {certificates: [{cert: x, key: secretkey}]}}}": "certificates[0]: cert and key",
		"apiVersion: virtlet.k8s/v1\nkind: VirtletImageMapping":               "unknown field",
		"\t":                                   "bad.yaml",
		"translations: {a: {a: *x}}":           "bad.yaml",
		strings.Repeat("#", maxMappingBytes+1): "at most",
	} {
		_, err := ParseMapping("bad.yaml", []byte(text))
		if err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "bad.yaml") || strings.Contains(err.Error(), "secretkey") {
			t.Errorf("%.80q: %v, want %q", text, err, says)
		}
		if err != nil && vm.KindOf(err) != vm.Invalid {
			t.Errorf("%.80q: kind %d", text, vm.KindOf(err))
		}
	}
}

// TestSource: which of the rules decides, and that a mapping that cannot be read lets nobody slip in.
func TestSource(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("10.yaml", "translations: [{name: cirros, url: 'http://file.example/x'}, {name: tiny, url: 'file.example/y'}]")
	write("20.yml", "translations: [{name: tiny, url: 'file.example/z'}, {regexp: 'reg/(.*)', url: 'oci://r.example/$1'}]")
	write("README", "not YAML: [")
	object := Mapping{Name: "object", Translations: []Rule{{Name: "cirros", URL: "http://object.example/x"}}}
	mappings := func() ([]Mapping, error) { return []Mapping{object}, nil }
	where := func(s *Store, name string) string {
		n, err := ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.source(n)
		switch {
		case err != nil:
			return "error"
		case p.url != "":
			return p.url
		}
		return "registry " + p.reference.String()
	}
	for source, rows := range map[Source]map[string]string{
		SourceByName: {
			"cirros:9": "http://object.example/x", "tiny": "https://file.example/y", "reg/a": "registry r.example/a:latest", "other": "registry other:latest",
			"a.example/b.qcow2": "https://a.example/b.qcow2", "a.example/b:1": "registry a.example/b:1", "oci://a.example/b.img": "registry a.example/b.img:latest", "http://a.example/b": "http://a.example/b",
		},
		SourceURL:      {"cirros": "http://object.example/x", "a.example/b:1": "https://a.example/b", "other": "https://other", "oci://a.example/b": "registry a.example/b:latest"},
		SourceRegistry: {"cirros": "http://object.example/x", "a.example/b.img:1": "registry a.example/b.img:1"},
	} {
		s := open(t, t.TempDir(), Options{TranslationDir: dir, Mappings: mappings, DefaultSource: source})
		for name, want := range rows {
			if got := where(s, name); got != want {
				t.Errorf("%s: %s comes from %s, want %s", source, name, got, want)
			}
		}
	}
	s := open(t, t.TempDir(), Options{TranslationDir: dir, Mappings: func() ([]Mapping, error) { return nil, errors.New("no API server") }})
	for name, want := range map[string]string{"cirros": "http://file.example/x", "other": "error", "a.example/other": "registry a.example/other:latest"} {
		if got := where(s, name); got != want {
			t.Errorf("with a broken mapping, %s comes from %s, want %s", name, got, want)
		}
	}
	refused(t, s, Request{Name: "other"}, vm.Unavailable, "no API server", "other")
	s = open(t, t.TempDir(), Options{TranslationDir: filepath.Join(dir, "absent")})
	if got := where(s, "other"); got != "registry other:latest" {
		t.Errorf("without a folder: %s", got)
	}
}

// TestTransports: each field of a profile does what it says.
func TestTransports(t *testing.T) {
	t.Parallel()
	want := disk("transport")
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"node.example"}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	cert, private := block("CERTIFICATE", der), block("EC PRIVATE KEY", keyDER)

	var shown atomic.Int64 // client certificates that another host was shown
	other := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown.Add(int64(len(r.TLS.PeerCertificates)))
		_, _ = w.Write(want)
	}))
	other.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	other.StartTLS()
	defer other.Close()
	first := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/mine" && len(r.TLS.PeerCertificates) == 0:
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path == "/other":
			http.Redirect(w, r, other.URL, http.StatusFound)
		case r.URL.Path == "/plain":
			http.Redirect(w, r, "http://plain.example/", http.StatusFound)
		case r.URL.Path == "/slow":
			<-r.Context().Done()
		default:
			_, _ = w.Write(want)
		}
	}))
	first.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	first.StartTLS()
	defer first.Close()
	authority := Certificate{Cert: block("CERTIFICATE", first.Certificate().Raw)}
	none := 0
	for name, test := range map[string]struct {
		path      string
		transport Transport
		kind      vm.Kind
		says      string // of the refusal; empty: it comes
	}{
		"unknown authority":  {"/", Transport{}, vm.Unavailable, "certificate"},
		"insecure":           {"/", Transport{TLS: &TLS{Insecure: true}}, 0, ""},
		"authority":          {"/", Transport{TLS: &TLS{Certificates: []Certificate{authority}}}, 0, ""},
		"server name":        {"/", Transport{TLS: &TLS{Certificates: []Certificate{authority}, ServerName: "example.com"}}, 0, ""},
		"other server name":  {"/", Transport{TLS: &TLS{Certificates: []Certificate{authority}, ServerName: "wrong.example"}}, vm.Unavailable, "wrong.example"},
		"no own certificate": {"/mine", Transport{TLS: &TLS{Certificates: []Certificate{authority}}}, vm.Invalid, "403"},
		"own certificate":    {"/mine", Transport{TLS: &TLS{Certificates: []Certificate{authority, {Cert: cert, Key: private}}}}, 0, ""},
		"redirect":           {"/other", Transport{TLS: &TLS{Certificates: []Certificate{authority, {Cert: cert, Key: private}}, ServerName: "example.com"}}, 0, ""},
		"no redirects":       {"/other", Transport{MaxRedirects: &none, TLS: &TLS{Insecure: true}}, vm.Invalid, "more than 0 redirects"},
		"out of TLS":         {"/plain", Transport{TLS: &TLS{Insecure: true}}, vm.Invalid, "without TLS"},
		"timeout":            {"/slow", Transport{TimeoutMilliseconds: 50, TLS: &TLS{Insecure: true}}, vm.Unavailable, "exceeded"},
		"dead proxy":         {"/", Transport{Proxy: "http://127.0.0.1:1", TLS: &TLS{Insecure: true}}, vm.Unavailable, "proxy"},
	} {
		s := open(t, t.TempDir(), Options{Mappings: func() ([]Mapping, error) {
			return []Mapping{{Name: "m", Translations: []Rule{{Name: "tiny", URL: first.URL + test.path, Transport: "p"}}, Transports: map[string]Transport{"p": test.transport}}}, nil
		}})
		if test.says != "" {
			refused(t, s, Request{Name: "tiny"}, test.kind, test.says)
			continue
		}
		if i, err := s.Pull(t.Context(), Request{Name: "tiny"}); err != nil || i.ID != digestOf(want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if shown.Load() != 0 {
		t.Error("another host was shown the node's certificate")
	}
}

// TestProxy: a proxy is asked, also one at the node itself, and does not help past the addresses that no request goes to.
func TestProxy(t *testing.T) {
	t.Parallel()
	want := disk("proxied")
	var asked atomic.Pointer[string]
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(&r.RequestURI)
		_, _ = w.Write(want)
	}))
	defer proxy.Close()
	to := "http://disks.example/x"
	s := open(t, t.TempDir(), Options{Mappings: func() ([]Mapping, error) {
		return []Mapping{{Name: "m", Translations: []Rule{{Name: "tiny", URL: to}}, Transports: map[string]Transport{"": {Proxy: proxy.URL}}}}, nil
	}})
	holds(t, pull(t, s, "tiny"), want)
	if got := asked.Load(); got == nil || *got != to {
		t.Errorf("the proxy was asked for %v", got)
	}
	to = "http://169.254.169.254/latest"
	refused(t, s, Request{Name: "tiny"}, vm.Invalid, "169.254.169.254")
}

// FuzzMapping: any file is read or refused, and what is read says the same after a round through JSON and never leads to another scheme.
func FuzzMapping(f *testing.F) {
	f.Add("translations: [{name: a, url: 'http://b'}]", "a")
	f.Add("prefix: p\ntranslations: [{regexp: '(.*)x', url: 'http://b/$1'}]\ntransports: {t: {timeout: 5, tls: {insecure: true}}}", "p/yx")
	f.Add("translations: [{regexp: '(a*)*', url: '$1://x'}]", "aaaa")
	f.Fuzz(func(t *testing.T, text, name string) {
		m, err := ParseMapping("f", []byte(text))
		if err != nil {
			if vm.KindOf(err) != vm.Invalid {
				t.Fatalf("kind %d: %v", vm.KindOf(err), err)
			}
			return
		}
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseMapping("f", data)
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		one, ok := translate([]Mapping{m}, name, true)
		two, same := translate([]Mapping{again}, name, true)
		if ok != same || one.url != two.url {
			t.Fatalf("%q and %q", one.url, two.url)
		}
	})
}
