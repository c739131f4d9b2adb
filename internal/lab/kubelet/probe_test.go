package kubelet

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestAsk: what each kind of probe takes for a yes.
func TestAsk(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/moved":
			w.WriteHeader(http.StatusNotModified)
		case r.URL.Path != "/well" || r.Header.Get("X-Who") == "":
			http.Error(w, "because", http.StatusTeapot)
		}
	})
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	port := func(s *httptest.Server) intstr.IntOrString {
		_, p, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(s.URL, "https://"), "http://"), ":")
		return intstr.Parse(p)
	}
	who := []corev1.HTTPHeader{{Name: "X-Who", Value: "me"}}
	for name, c := range map[string]struct {
		probe corev1.ProbeHandler
		fails string // "" for a yes
	}{
		"well":         {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/well", Port: port(plain), HTTPHeaders: who}}, ""},
		"no slash":     {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "well", Port: port(plain), HTTPHeaders: who}}, ""},
		"by name":      {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/well", Port: intstr.FromString("http"), HTTPHeaders: who}}, ""},
		"over TLS":     {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/well", Port: port(secure), Scheme: corev1.URISchemeHTTPS, HTTPHeaders: who}}, ""},
		"below 400":    {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/moved", Port: port(plain)}}, ""},
		"no":           {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ill", Port: port(plain)}}, "418 I'm a teapot: because"},
		"unknown port": {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromString("x")}}, `no port called "x"`},
		"open":         {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: port(plain)}}, ""},
		"closed":       {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(1)}}, "refused"},
		"done":         {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "test $WORD = told"}}}, ""},
		"by the image": {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "true"}}}, ""},
		"not done":     {corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/bin/sh", "-c", "echo why; exit 1"}}}, "exit status 1: why"},
		"nothing":      {corev1.ProbeHandler{}, "not played"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &probe{
				spec: &corev1.Probe{ProbeHandler: c.probe, TimeoutSeconds: 10}, host: "127.0.0.1", program: "/bin/sh", env: []string{"WORD=told"}, dir: t.TempDir(),
				ports: []corev1.ContainerPort{{Name: "http", ContainerPort: port(plain).IntVal}},
			}
			if err := p.ask(t.Context()); (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("got %v, want %q", err, c.fails)
			}
		})
	}
}

// TestAttend: what the probes' answers lead to, and when. Each probe is answered by a switch, in fake time.
func TestAttend(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var started, ready, alive atomic.Bool
		asks := func(ok *atomic.Bool, spec corev1.Probe) *probe {
			return &probe{spec: &spec, answer: func() error {
				if ok.Load() {
					return nil
				}
				return http.ErrServerClosed
			}}
		}
		c := &command{
			startup:   asks(&started, corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3}),
			readiness: asks(&ready, corev1.Probe{PeriodSeconds: 5, FailureThreshold: 2}),
			liveness:  asks(&alive, corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3, InitialDelaySeconds: 7}),
		}
		alive.Store(true)
		ill := make(chan error, 1)
		go c.attend(t.Context(), func(err error) { ill <- err })
		step := func(d time.Duration, what string, started, ready bool) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if f := c.look(); f.started != started || f.ready != ready {
				t.Errorf("%s: started %t, ready %t", what, f.started, f.ready)
			}
		}
		step(25*time.Second, "before its three periods are over", false, false)
		started.Store(true)
		step(time.Second, "its startup probe says yes", true, false)
		step(time.Minute, "it is never ready", true, false)
		ready.Store(true)
		step(time.Second, "it is seen at once that it is ready", true, true)
		ready.Store(false)
		step(5*time.Second, "one no is not enough", true, true)
		step(6*time.Second, "two are", true, false)
		ready.Store(true)
		step(time.Second, "ready again", true, true)
		alive.Store(false)
		select {
		case err := <-ill:
			if !strings.HasPrefix(err.Error(), "liveness probe: ") {
				t.Errorf("ill because of %v", err)
			}
		case <-time.After(31 * time.Second):
			t.Error("it is ill, and nobody was told")
		}
		synctest.Wait()
		if c.look().ready {
			t.Error("what is ill is ready")
		}

		never := &command{startup: asks(new(atomic.Bool), corev1.Probe{PeriodSeconds: 10, FailureThreshold: 3})}
		since := time.Now()
		go never.attend(t.Context(), func(err error) { ill <- err })
		if err := <-ill; !strings.HasPrefix(err.Error(), "startup probe: ") || time.Since(since) < 30*time.Second || time.Since(since) > 31*time.Second {
			t.Errorf("given up after %v: %v", time.Since(since), err)
		}
	})
}
