package roles

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cycles"
)

// TestCyclesAreFound: the Lease of a scheduler that serves its cycles says where, at an address that others reach, and by which certificate; who asks there without a token is
// refused. Others' Leases, and one that serves none, say nothing.
func TestCyclesAreFound(t *testing.T) {
	t.Parallel()
	server := newPlane(t, true)
	_, log, _ := launch(t, Scheduler, quiet(Scheduler, "--kubeconfig="+server.kubeconfig(), "--leader-elect", "--cycle-listen-address=:0")...)
	launch(t, Binder, quiet(Binder, "--kubeconfig="+server.kubeconfig(), "--leader-elect")...)
	server.await(begins(Binder))
	server.await("/bindrequests")
	found := func(role string) (cycles.Place, error) {
		server.mu.Lock()
		defer server.mu.Unlock()
		l := server.leases["apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases/"+leaseOf(role)]
		if l == nil {
			return cycles.Place{}, fmt.Errorf("no Lease of role %s", role)
		}
		return cycles.PlaceOf(l)
	}
	var place cycles.Place
	var err error
	until(t, func() bool { place, err = found(Scheduler); return err == nil })
	if !strings.HasPrefix(place.URL, "https://127.0.0.1:") || strings.HasSuffix(place.URL, ":0") || !strings.Contains(log.String(), place.Fingerprint) {
		t.Errorf("%+v\n%s", place, log)
	}
	until(t, func() bool {
		_, err = found(Binder)
		return err != nil && strings.Contains(err.Error(), "does not say")
	})
	ctx, end := context.WithCancel(t.Context())
	c := &cycles.Client{Find: func(context.Context) (cycles.Place, error) { return place, nil }, Token: func() (string, error) { return "", nil }, Pause: time.Millisecond}
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	until(t, func() bool { _, _, _, _, err = c.Latest(); return err != nil })
	if end(); !errors.Is(err, cycles.ErrRefused) || !strings.Contains(err.Error(), "401") {
		t.Errorf("%v", err)
	}
	if ended := <-done; ended != nil && !errors.Is(ended, context.Canceled) {
		t.Error(ended)
	}
}

// until waits until something is so.
func until(t *testing.T, so func() bool) {
	t.Helper()
	for limit := time.After(20 * time.Second); !so(); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatal("it does not come to be so")
		}
	}
}
