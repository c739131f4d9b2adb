package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
)

// TestWatchdog: what takes longer than the limit is named, what waits for others or gets on is not.
func TestWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewWatchdog(time.Minute)
		well := func(when string) {
			t.Helper()
			if err := d.Check(t.Context()); err != nil {
				t.Errorf("%s: %v", when, err)
			}
		}
		well("nothing is done")
		loop := d.Begin("the loop")
		for range 5 {
			elapse(time.Minute)
			well("it turns")
			loop.Turn()
		}
		loop.Wait()
		elapse(time.Hour)
		well("it waits for others")
		loop.Turn()
		_, done := d.During(t.Context(), "a piece")
		elapse(50 * time.Second)
		done()
		well("the piece is done")
		elapse(11 * time.Second)
		if err := d.Alive(); !errors.Is(err, ErrHung) || !strings.Contains(err.Error(), "the loop") || !strings.Contains(err.Error(), "1m1s") {
			t.Errorf("it hangs: %v", err)
		}
		loop.End()
		well("it has ended")

		none := NewWatchdog(0)
		w := none.Begin("nobody watches")
		elapse(time.Hour)
		w.Turn()
		w.Wait()
		w.End()
		if err := none.Alive(); err != nil {
			t.Error(err)
		}
	})
}

// TestWaitingForAnswers: a request that a piece of work makes is no time in which the work hangs, however long its answer takes; what
// the work does afterwards counts anew.
func TestWaitingForAnswers(t *testing.T) {
	t.Parallel()
	d := NewWatchdog(time.Nanosecond)
	during := errors.New("not asked")
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { during = d.Alive() }))
	t.Cleanup(server.Close)
	client, err := rest.HTTPClientFor(Waiting(&rest.Config{Host: server.URL}))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	ctx, done := d.During(t.Context(), "a worker")
	ask(ctx)
	if during != nil {
		t.Errorf("while it waits: %v", during)
	}
	ask(t.Context()) // somebody else's
	if !errors.Is(during, ErrHung) || !strings.Contains(during.Error(), "a worker") {
		t.Errorf("while somebody else waits: %v", during)
	}
	done()
	if err := d.Alive(); err != nil {
		t.Errorf("it has ended: %v", err)
	}
}
