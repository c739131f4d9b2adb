package kubetest

import (
	"context"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// started is how long, in the time of the test, a role has to take in what was there at its start.
const started = time.Second

// Run runs a role in the process, with a cache and a client that know the types of Scheme, until the test ends or stop is called; that
// the role or its cache ends with an error fails the test. build makes the role and returns what runs it. In a synctest bubble Run
// returns when the role has taken in what was there, or the process is dead.
func (p *Process) Run(t testing.TB, build func(cache.Cache, client.Client) (func(context.Context) error, error)) (stop func()) {
	t.Helper()
	scheme := Scheme()
	objects, err := p.Cache(cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Client(scheme)
	if err != nil {
		t.Fatal(err)
	}
	role, err := build(objects, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- objects.Start(ctx) }()
	go func() { done <- role(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	t.Cleanup(stop)
	wait(p.life, started)
	return stop
}
