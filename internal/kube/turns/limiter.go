package turns

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	// retryEvery is the time between two retries of one tenant, once it has used up retryBurst of them. No retry waits longer for
	// that than for its own failures at most, so that after an outage nobody waits longer than the longest back-off.
	retryEvery = 50 * time.Millisecond
	retryBurst = 100
)

// limiter is a workqueue.TypedRateLimiter: how long an item that failed waits.
type limiter[T comparable] struct {
	workqueue.TypedRateLimiter[T] // by the item's own failures
	tenant                        func(T) string
	clock                         clock.PassiveClock
	most                          time.Duration

	mu   sync.Mutex
	next map[string]time.Time // when a tenant's retries have caught up; earlier than now is as good as not there
	look int                  // the size of next at which it is looked through
}

func newLimiter[T comparable](o *Options[T]) *limiter[T] {
	return &limiter[T]{
		TypedRateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[T](o.Backoff, o.MaxBackoff),
		tenant:           o.Tenant, clock: o.Clock, most: o.MaxBackoff, next: map[string]time.Time{}, look: 64,
	}
}

// When notes another failure of the item and says how long it is to wait.
func (l *limiter[T]) When(item T) time.Duration {
	wait, name, now := l.TypedRateLimiter.When(item), l.tenant(item), l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.next[name]
	if next.Before(now) {
		next = now
	}
	l.next[name] = next.Add(retryEvery)
	if len(l.next) > l.look {
		for other, at := range l.next {
			if at.Before(now) {
				delete(l.next, other)
			}
		}
		l.look = 2*len(l.next) + 64
	}
	return max(wait, min(next.Sub(now)-retryBurst*retryEvery, l.most))
}
