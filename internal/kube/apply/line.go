package apply

import (
	"k8s.io/client-go/util/workqueue"

	"github.com/muster-scheduler/muster/internal/kube/turns"
)

// queueOf is what waits of a kind of work: tenants are served in turn, or, if items have none, items as they come.
func queueOf[T comparable](kind Kind, tenant func(T) string) workqueue.TypedRateLimitingInterface[T] {
	if tenant != nil {
		return turns.New(turns.Options[T]{Tenant: tenant, Workers: kind.Workers, Backoff: kind.First, MaxBackoff: retryMost})
	}
	failures := workqueue.NewTypedItemExponentialFailureRateLimiter[T](kind.First, retryMost)
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[T]{Queue: &line[T]{failures: failures}})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[T]{Queue: inner})
	return workqueue.NewTypedRateLimitingQueueWithConfig(failures, workqueue.TypedRateLimitingQueueConfig[T]{DelayingQueue: delaying})
}

// line has items served as they come. One that failed before goes first, so that what is half done does not wait for what is not begun.
type line[T comparable] struct {
	failures     workqueue.TypedRateLimiter[T]
	again, fresh []T
}

// Touch does nothing: an item that is put again keeps its place.
func (l *line[T]) Touch(T) {}

// Len is how many wait.
func (l *line[T]) Len() int { return len(l.again) + len(l.fresh) }

// Push lets an item wait.
func (l *line[T]) Push(item T) {
	if l.failures.NumRequeues(item) > 0 {
		l.again = append(l.again, item)
	} else {
		l.fresh = append(l.fresh, item)
	}
}

// Pop takes out the next; there is one.
func (l *line[T]) Pop() T {
	from := &l.fresh
	if len(l.again) > 0 {
		from = &l.again
	}
	item := (*from)[0]
	var none T
	(*from)[0], *from = none, (*from)[1:] // so that it can go
	return item
}
