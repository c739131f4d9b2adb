package app

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
)

// TestAbsenceIsTold: an API server that nobody can reach, or that says nothing, is told of at once, with its address, who named it and how
// to name another; then so often and no oftener; and when it is there, that. One that was there may be silent for a moment.
func TestAbsenceIsTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		mute bool
		was  bool // it answered before
		// first is when it is told for the first time.
		first time.Duration
		why   string
	}{
		{"refused", false, false, 0, "connection refused"},
		{"mute", true, false, time.Second, "it says nothing"},
		{"gone", false, true, 5 * time.Second, "connection refused"},
		{"struck dumb", true, true, 5 * time.Second, "it says nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				there := c.was
				config := &rest.Config{Host: "https://api.example:6443", WrapTransport: func(http.RoundTripper) http.RoundTripper {
					return roundTripper(func(r *http.Request) (*http.Response, error) {
						switch {
						case there:
							return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
						case c.mute:
							<-r.Context().Done()
							return nil, r.Context().Err()
						}
						return nil, errors.New("connection refused")
					})
				}}
				role := WatchAbsence(config, ClientOptions{Kubeconfig: "there.yaml"})
				var lines []string
				var at []time.Duration
				began := time.Now()
				ctx, end := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(_, args string) {
					lines, at = append(lines, args), append(at, time.Since(began))
				}, funcr.Options{})))
				go func() { _ = role(ctx) }()
				transport := config.WrapTransport(nil)
				ask := func(limit time.Duration) {
					within, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					r, err := http.NewRequestWithContext(within, http.MethodGet, config.Host, nil)
					if err != nil {
						t.Fatal(err)
					}
					if resp, err := transport.RoundTrip(r); err == nil {
						resp.Body.Close()
					}
				}
				if c.was {
					ask(time.Second)
					there = false
				}
				for time.Since(began) < 100*time.Second {
					left := time.Now().Add(time.Second)
					ask(time.Second)
					time.Sleep(time.Until(left))
				}
				synctest.Wait()
				var want []time.Duration
				for d := c.first; d < 100*time.Second; d += 30 * time.Second {
					want = append(want, d)
				}
				if len(at) != len(want) {
					t.Fatalf("told at %v, want %v:\n%s", at, want, strings.Join(lines, "\n"))
				}
				for i := range want {
					if at[i] != want[i] {
						t.Errorf("told at %v, want %v", at, want)
					}
				}
				for _, part := range []string{"waiting for the API server", "https://api.example:6443", "--kubeconfig there.yaml", "$KUBECONFIG", c.why} {
					if !strings.Contains(lines[0], part) && !(part == c.why && strings.Contains(lines[0], "deadline exceeded")) {
						t.Errorf("%q is not in %s", part, lines[0])
					}
				}
				there = true
				ask(time.Second)
				synctest.Wait()
				if last := lines[len(lines)-1]; !strings.Contains(last, "the API server answers") {
					t.Errorf("the last word is %s", last)
				}
				end()
			})
		})
	}
}

// TestAnIdleClientIsNotTold: nobody waits where nobody asks, or whoever asked does not want to know any more.
func TestAnIdleClientIsNotTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &absence{news: make(chan struct{}, 1)}
		said := 0
		ctx, end := context.WithCancel(logr.NewContext(t.Context(), funcr.New(func(string, string) { said++ }, funcr.Options{})))
		go func() { _ = a.run(ctx) }()
		a.asked()
		a.heard(nil, context.Canceled)
		<-time.After(time.Minute)
		a.asked()
		a.heard(&http.Response{StatusCode: http.StatusForbidden}, nil)
		<-time.After(time.Minute)
		if said != 0 {
			t.Errorf("told %d times", said)
		}
		end()
	})
}
