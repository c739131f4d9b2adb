package app

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// How long the API server may be silent before that is told: at the start, later, and from one time to the next.
const (
	firstSilence = time.Second
	laterSilence = 5 * time.Second
	toldEvery    = 30 * time.Second
)

// WatchAbsence makes every client built from config afterwards notice when nobody answers, and returns a role that tells the log: at the
// start as soon as a connection fails, else when there has been no answer for a few seconds; again every half minute while that lasts;
// and that it is over. What it tells is which server is asked, who named it, and how to name another: o is what config was made from.
func WatchAbsence(config *rest.Config, o ClientOptions) (role func(context.Context) error) {
	a := &absence{server: config.Host, from: o.Source(), news: make(chan struct{}, 1)}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			a.asked()
			resp, err := next.RoundTrip(r)
			a.heard(resp, err)
			return resp, err
		})
	})
	return a.run
}

// Source says in words who names the API server.
func (o ClientOptions) Source() string {
	switch {
	case o.Kubeconfig != "":
		return "--kubeconfig " + o.Kubeconfig
	case os.Getenv("KUBERNETES_SERVICE_HOST") != "" && o.Context == "":
		return "the pod's service account"
	case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "":
		return "$KUBECONFIG " + os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	return clientcmd.RecommendedHomeFile
}

// absence is what is known of an API server's silence.
type absence struct {
	server, from string
	news         chan struct{} // holds a value when something has changed

	mu       sync.Mutex
	pending  int
	since    time.Time // of the first request since its last answer; zero for none
	failed   error     // what the last of them came to, if it did
	answered bool      // ever
}

func (a *absence) asked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending++; a.since.IsZero() {
		a.since = time.Now()
		a.wake()
	}
}

func (a *absence) heard(resp *http.Response, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pending--
	switch {
	case err == nil && (resp.StatusCode == http.StatusUnauthorized || !absent(resp.StatusCode)):
		a.answered, a.since, a.failed = true, time.Time{}, nil
	case errors.Is(err, context.Canceled): // who asked does not want to know any more
		if a.pending == 0 && a.failed == nil {
			a.since = time.Time{}
		}
	case err == nil:
		a.failed = errors.New(resp.Status)
	default:
		a.failed = err
	}
	a.wake()
}

func (a *absence) wake() {
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// run tells until ctx ends.
func (a *absence) run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	var told time.Time // zero while it answers
	for {
		a.mu.Lock()
		since, failed, answered := a.since, a.failed, a.answered
		a.mu.Unlock()
		var due time.Time
		switch {
		case since.IsZero():
		case !told.IsZero():
			due = told.Add(toldEvery)
		case answered:
			due = since.Add(laterSilence)
		case failed != nil:
			due = since
		default:
			due = since.Add(firstSilence)
		}
		switch {
		case since.IsZero() && !told.IsZero():
			log.Info("the API server answers", "server", a.server)
			told = time.Time{}
		case !due.IsZero() && !time.Now().Before(due):
			why := "it says nothing"
			if failed != nil {
				why = failed.Error()
			}
			log.Info("waiting for the API server, which does not answer; --kubeconfig or $KUBECONFIG name another", "server", a.server, "from", a.from,
				"for", time.Since(since).Round(time.Second).String(), "error", why)
			told = time.Now()
			continue
		}
		var timer <-chan time.Time
		if !due.IsZero() {
			timer = time.After(time.Until(due))
		}
		select {
		case <-a.news:
		case <-timer:
		case <-ctx.Done():
			return nil
		}
	}
}
