package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/ptr"

	kaiv1 "github.com/muster-scheduler/muster/api/kai/v1"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// prober asks an external Prometheus, from time to time, whether it is there.
type prober struct {
	changed func() // is told when an answer differs from the last
	pause   func(context.Context, time.Duration) error
	client  *http.Client
	guard   *aside.Guard

	mu   sync.Mutex
	last *connection

	key   string // what is asked, and how
	stop  context.CancelFunc
	ended chan struct{}
}

func newProber(changed func(), guard *aside.Guard) *prober {
	return &prober{changed: changed, client: &http.Client{}, guard: guard, pause: func(ctx context.Context, d time.Duration) error {
		return pause(ctx, d, nil)
	}}
}

// ask returns what is known of the Prometheus that the settings name, and sees to it that it is asked as they say; nil for
// none, and before the first answer. It is called by one goroutine.
func (p *prober) ask(ctx context.Context, s *kaiv1.Prometheus) *connection {
	address := strings.TrimSuffix(ptr.Deref(s.ExternalPrometheusURL, ""), "/")
	h := s.ExternalPrometheusHealthProbe
	interval, timeout, retries := max(1, *h.Interval), max(1, *h.Timeout), max(0, *h.MaxRetries)
	if key := fmt.Sprint(address, interval, timeout, retries); key != p.key {
		p.end()
		p.key, p.last = key, nil
		if address != "" {
			running, stop := context.WithCancel(ctx)
			p.stop, p.ended = stop, make(chan struct{})
			go func() {
				defer close(p.ended)
				p.run(running, address+"/api/v1/status/config", seconds(interval), seconds(timeout), retries)
			}()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

func seconds(n int) time.Duration { return time.Duration(min(n, 24*3600)) * time.Second }

// end ends the questions, and returns when no more is asked.
func (p *prober) end() {
	if p.stop != nil {
		p.stop()
		<-p.ended
		p.stop = nil
	}
}

func (p *prober) run(ctx context.Context, url string, interval, timeout time.Duration, retries int) {
	for {
		var err error
		for attempt := 0; attempt <= retries; attempt++ {
			if attempt > 0 && p.pause(ctx, time.Duration(attempt)*time.Second) != nil {
				return
			}
			if err = p.guard.Catch("a probe", url, func() error { return p.get(ctx, url, timeout) }); err == nil || ctx.Err() != nil {
				break
			}
		}
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		was := p.last
		p.last = &connection{Err: err}
		p.mu.Unlock()
		if was == nil || (was.Err == nil) != (err == nil) {
			p.changed()
		}
		if p.pause(ctx, interval) != nil {
			return
		}
	}
}

func (p *prober) get(ctx context.Context, url string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("spec.prometheus.externalPrometheusUrl is no URL: %w", err)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return fmt.Errorf("the external Prometheus does not answer: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<16)) // so that the connection can be used again
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the external Prometheus answers %s", resp.Status)
	}
	return nil
}
