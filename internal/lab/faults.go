package lab

import (
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Fault is what a Proxy does to requests instead of passing them on at once.
type Fault struct {
	// Match selects requests; it is asked before they are passed on.
	Match Match
	// Every is which of them are hit: each one for 0 or 1, each third for 3.
	Every int
	// Status is answered in the API server's place, which never hears of the request; 0 passes it on.
	Status int
	// Reason is the reason in that answer, such as metav1.StatusReasonConflict.
	Reason metav1.StatusReason
	// RetryAfter, in whole seconds, is asked of the client in the answer; 0 for nothing.
	RetryAfter int
	// Delay is how long a request waits first.
	Delay time.Duration
	// Until, if set, is what a request waits for besides, until it is closed.
	Until <-chan struct{}
}

type faultPlan struct {
	Fault
	seen, hit int
}

// Fail has matching requests fail, or wait, from now on until Reset. The function it returns tells how many were hit. Of
// several faults that match a request, the first one counts.
func (p *Proxy) Fail(f Fault) func() int {
	one := &faultPlan{Fault: f}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, one)
	return func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return one.hit
	}
}

// Drop cuts every connection there is, and with them every watch. New ones are accepted. It returns how many were cut.
func (p *Proxy) Drop() int {
	p.mu.Lock()
	all := slices.Collect(maps.Keys(p.open))
	p.mu.Unlock()
	for _, c := range all {
		_ = c.Close() // it may have ended by itself
	}
	return len(all)
}

// connection keeps account of the connections.
func (p *Proxy) connection(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.open[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(p.open, c)
	}
}

// faultPlan returns what hits a request; nil for nothing.
func (p *Proxy) fault(req Request) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if !f.Match.matches(req) {
			continue
		}
		if f.seen++; f.seen%max(1, f.Every) != 0 {
			return nil
		}
		f.hit++
		return &f.Fault
	}
	return nil
}

// play answers a request, or lets it wait and says that it is to be passed on.
func (f *Fault) play(w http.ResponseWriter, r *http.Request) (pass bool) {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return false
		}
	}
	if f.Until != nil {
		select {
		case <-f.Until:
		case <-r.Context().Done():
			return false
		}
	}
	if f.Status == 0 {
		return true
	}
	s := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(f.Status),
		Reason: f.Reason, Message: "the test says so",
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
		s.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(f.RetryAfter)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.Status)
	_ = json.NewEncoder(w).Encode(s) // the client has gone
	return false
}
