package lab

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestFaults: every k-th matching request is hit, by the first fault that matches it, until Reset.
func TestFaults(t *testing.T) {
	t.Parallel()
	p := &Proxy{}
	third := p.Fail(Fault{Match: Match{Method: "POST", Resource: "pods"}, Every: 3, Status: 429, RetryAfter: 2, Reason: metav1.StatusReasonTooManyRequests})
	all := p.Fail(Fault{Match: Match{Resource: "pods"}, Status: 503})
	statuses := func(method string) (out []int) {
		for range 4 {
			f := p.fault(Request{Method: method, Resource: "pods"})
			switch {
			case f == nil:
				out = append(out, 0)
			default:
				out = append(out, f.Status)
			}
		}
		return out
	}
	for method, want := range map[string][4]int{"POST": {0, 0, 429, 0}, "GET": {503, 503, 503, 503}} {
		if got := statuses(method); [4]int(got) != want {
			t.Errorf("%s: %v, want %v", method, got, want)
		}
	}
	if third() != 1 || all() != 4 {
		t.Errorf("%d and %d were hit", third(), all())
	}
	p.Reset()
	if p.fault(Request{Method: "GET", Resource: "pods"}) != nil {
		t.Error("Reset forgot none")
	}
}

// TestFaultAnswers: what the client gets is what an API server would say, and a fault without an answer only takes time, or
// as long as the client waits.
func TestFaultAnswers(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/api/v1/pods", nil)
	if (&Fault{Status: 429, RetryAfter: 2, Reason: metav1.StatusReasonTooManyRequests}).play(w, r) {
		t.Error("passed on")
	}
	if w.Code != 429 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("answered %d, %v", w.Code, w.Header())
	}
	if !(&Fault{Delay: time.Millisecond}).play(w, r) {
		t.Error("not passed on")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	open, closed := make(chan struct{}), make(chan struct{})
	close(closed)
	for _, f := range []*Fault{{Delay: time.Hour}, {Until: open}} {
		if f.play(w, r.WithContext(ctx)) {
			t.Error("passed on for a client that has gone")
		}
	}
	if !(&Fault{Until: closed}).play(w, r) {
		t.Error("not passed on when it was over")
	}
}
