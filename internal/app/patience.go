package app

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
)

// How long a reader waits before it asks an API server again that is away.
const (
	firstPatience = 200 * time.Millisecond
	lastPatience  = time.Second
)

// Patient returns a copy of the configuration for the cache's client: while the API server is away, its reads ask again every
// second until somebody answers, instead of failing. Watches that fail are opened again only after a pause that doubles to
// half a minute, so that a process would be blind for long after an API server that was away for seconds. It asks for as long
// as the request's context lasts; writes, and answers of the API server itself, pass as they are, but for 401: see WatchCredentials,
// which knows when to give up.
func Patient(config *rest.Config) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			for wait := firstPatience; ; wait = min(2*wait, lastPatience) {
				resp, err := next.RoundTrip(r)
				if r.Method != http.MethodGet || r.Context().Err() != nil || err == nil && !absent(resp.StatusCode) {
					return resp, err
				}
				// Spread out, so that all watches of all processes do not come at once.
				pause := time.NewTimer(wait/2 + rand.N(wait))
				select {
				case <-pause.C:
				case <-r.Context().Done():
					pause.Stop()
					return resp, err
				}
				if err == nil {
					discard(resp)
				}
			}
		})
	})
	return c
}

// absent says that a proxy or a load balancer answered, because the API server did not; or that it could not tell who asks.
func absent(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusGatewayTimeout || status == http.StatusUnauthorized
}

// discard is done with an answer, so that its connection can be used again.
func discard(resp *http.Response) {
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16))
	_ = resp.Body.Close()
}

// Hurried returns a copy of the configuration for questions that are asked without a context of their own, as discovery is: an answer
// that has not come in full after limit is none, and once life ends, at once. A limit of 0 is none.
func Hurried(life context.Context, config *rest.Config, limit time.Duration) *rest.Config {
	c := rest.CopyConfig(config)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			ctx, cancel := r.Context(), context.CancelFunc(nil)
			if limit > 0 {
				ctx, cancel = context.WithTimeout(ctx, limit)
			} else {
				ctx, cancel = context.WithCancel(ctx)
			}
			stop := context.AfterFunc(life, cancel)
			done := func() { stop(); cancel() }
			resp, err := next.RoundTrip(r.WithContext(ctx))
			if err != nil {
				done()
				return nil, err
			}
			resp.Body = &answerBody{resp.Body, done}
			return resp, nil
		})
	})
	return c
}
