package admission

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/muster-scheduler/muster/internal/app/gate"
)

// TestSlowClients: clients that send their reviews slowly, from the address of the API server itself, keep nobody from an answer.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var slow sync.WaitGroup // whose requests have come in
	const many = 100
	slow.Add(many)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength == 1<<20 {
			slow.Done()
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	for range many {
		c, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n{", MutatePodPath, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
	slow.Wait()
	const pod = `{metadata: {name: p}, spec: {schedulerName: kai-scheduler, containers: [{name: a}]}}`
	if got := ask(t, server.URL, MutatePodPath, "p", admissionv1.Create, pod, ""); !got.Allowed {
		t.Errorf("refused: %v", got.Result)
	}
}

// TestSlowBodiesEnd: a body that does not come is not waited for.
func TestSlowBodiesEnd(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, MutatePodPath, strings.NewReader("{}"))
	w := &patient{ResponseRecorder: httptest.NewRecorder()}
	before := time.Now()
	h.ServeHTTP(w, r)
	if w.deadline.Before(before.Add(bodyWithin)) || w.deadline.After(time.Now().Add(bodyWithin)) {
		t.Errorf("the deadline is %s, %s from the start", w.deadline, w.deadline.Sub(before))
	}
}

// patient is a response whose connection has a deadline.
type patient struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (p *patient) SetReadDeadline(at time.Time) error {
	p.deadline = at
	return nil
}

// TestReviewsWeighWhatTheyBecome: a short text of many small things becomes a large object, as of containers of two bytes each. It
// is held against its peer as what it becomes, and refused before it is.
func TestReviewsWeighWhatTheyBecome(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	review := func(spec string) string {
		return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE","namespace":"team","object":{"metadata":{"name":"p"},"spec":` + spec + `}}}`
	}
	list := func(of string, n int) string { return "[" + strings.TrimSuffix(strings.Repeat(of+",", n), ",") + "]" }
	distinct := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%x":"1"`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	const most = 1 << 20
	for _, c := range []struct {
		name, spec string
		want       int
	}{
		{"containers", `{"containers":` + list(`{}`, most) + `}`, 413},
		{"that are null", `{"containers":` + list(`null`, most) + `}`, 413},
		{"that are none", `{"containers":` + list(`0`, most) + `}`, 413},
		{"limits", `{"containers":[{"resources":{"limits":` + distinct(most/2) + `}}]}`, 413},
		{"lists in lists", `{"containers":` + strings.Repeat("[", most) + strings.Repeat("]", most) + `}`, 413},
		{"deep", `{"containers":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`, 400},
		{"an annotation that reads so", `{"schedulerName":"` + strings.Repeat(`[{},\"`, most/4) + `"}`, 200},
		{"a large pod", `{"schedulerName":"kai-scheduler","containers":[{"name":"a","env":` + list(`{"name":"A","value":"b"}`, 10000) + `}]}`, 200},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, ValidatePodPath, strings.NewReader(review(c.spec))))
		if w.Code != c.want {
			t.Errorf("%s: %d %.200s, want %d", c.name, w.Code, w.Body, c.want)
		}
	}
	if h.crowd.bytes != 0 || len(h.crowd.peers) != 0 {
		t.Errorf("%d bytes of %d peers are still held", h.crowd.bytes, len(h.crowd.peers))
	}
}

// TestCrowd: what one peer holds leaves room for others, and comes back.
func TestCrowd(t *testing.T) {
	t.Parallel()
	c := newCrowd()
	greedy := c.enter("greedy")
	for range peerBytes / maxReview {
		if !greedy.hold(maxReview) {
			t.Fatal("there is no room for one")
		}
	}
	if greedy.hold(1) || c.enter("greedy").hold(1) {
		t.Error("one peer takes more than its part")
	}
	other := c.enter("other")
	if _, err := other.read(bytes.NewReader(make([]byte, maxReview))); err != nil {
		t.Errorf("and another has none: %v", err)
	}
	if _, err := c.enter("greedy").read(bytes.NewReader(nil)); !errors.Is(err, errCrowded) {
		t.Errorf("a body of one that has no room: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	var turns []*guest
	for range peerTurns {
		g := c.enter("greedy")
		if err := g.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		turns = append(turns, g)
	}
	if err := c.enter("greedy").wait(ended); !errors.Is(err, errCrowded) {
		t.Errorf("one peer takes more than its turns: %v", err)
	}
	if err := other.wait(t.Context()); err != nil {
		t.Errorf("and another has none: %v", err)
	}
	other.leave()
	for _, g := range turns {
		g.leave()
	}
	greedy.leave()
	if len(c.turns) != 0 || c.bytes != 0 || c.peers["other"] != nil {
		t.Errorf("%d turns and %d bytes are held by nobody", len(c.turns), c.bytes)
	}
}

// TestServed: connections that bring reviews are known, over TLS and HTTP/2, and slow ones beside them are let go first.
func TestServed(t *testing.T) {
	t.Parallel()
	h, err := NewHandler(*sharing(), Sources{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	g := gate.New(server.Listener, peerConnections, allConnections)
	server.Listener, server.Config.ConnContext, server.EnableHTTP2 = g, gate.Known, true
	server.StartTLS()
	t.Cleanup(server.Close)
	client := server.Client()
	post := func() {
		resp, err := client.Post(server.URL+MutatePodPath, "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.ProtoMajor != 2 || resp.StatusCode != http.StatusBadRequest {
			t.Errorf("HTTP/%d: %s", resp.ProtoMajor, resp.Status)
		}
	}
	post()
	for range 2 * peerConnections {
		c, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a client that does not care
		if err != nil {
			continue // let go before it was greeted
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	post()
	_, proven := g.Open()
	if proven != 1 {
		t.Errorf("%d connections have brought reviews, want the first one alone", proven)
	}
}

// TestClientCertificates: where it is said who signs the API server's client certificate, nobody else is answered.
func TestClientCertificates(t *testing.T) {
	t.Parallel()
	issue := func() (tls.Certificate, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		of := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, of, of, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	known, text := issue()
	stranger, _ := issue()
	o := DefaultOptions()
	o.ClientCA = filepath.Join(t.TempDir(), "ca.crt")
	if _, err := o.clients(); err == nil || !strings.Contains(err.Error(), "--webhook-client-ca-file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(o.ClientCA, []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.clients(); err == nil || !strings.Contains(err.Error(), "has no certificate in it") {
		t.Errorf("a file without certificates: %v", err)
	}
	if err := os.WriteFile(o.ClientCA, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, one := replicas(t, o, 1)
	if err := one[0].keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	defer end()
	go func() { _ = one[0].answer(ctx, l) }()
	for name, c := range map[string]struct {
		show     []tls.Certificate
		answered bool
	}{"nobody": {nil, false}, "a stranger": {[]tls.Certificate{stranger}, false}, "the API server": {[]tls.Certificate{known}, true}} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: c.show}} //nolint:gosec // the server is not the question
		resp, err := (&http.Client{Transport: transport}).Post("https://"+l.Addr().String()+ValidatePodPath, "application/json", strings.NewReader("{}"))
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != c.answered {
			t.Errorf("%s: %v", name, err)
		}
		transport.CloseIdleConnections()
	}
}
