package apply

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/turns"
)

// All writers of this package work in one of two ways, and both are here.
//
// What is done (binds, evictions) is an order: drain takes orders from a line as they came. An order is tried at most attempts times,
// with pause between; then it has failed, and the loop, which is told, decides anew. A line that is full keeps the next
// cycle waiting, and nobody else.
//
// What is told (conditions, events, annotations, nominated nodes) is a level: work serves a queue of objects, namespaces in turn, each
// object by one worker at a time, and says the last word about it. A write that fails is repeated until it is made or there is
// nothing to say any more, after waits that double up to retryMost. The queue holds an object once, however often it changes.
//
// When ctx ends, for a lost Lease as for a process that stops, nothing more is taken and both return when the calls in flight have. No
// failure is told of what that cut short: the next process decides on what the objects show.

// How often an order is tried, and how long after the first failure; the wait doubles. Six seconds in all.
const (
	attempts  = 8
	firstWait = 50 * time.Millisecond
)

// retryMost is the longest wait between two attempts to tell something.
const retryMost = 5 * time.Minute

// pause waits after the failed attempt of that number, the first being 1; false when ctx ends.
func pause(ctx context.Context, try int) bool {
	timer := time.NewTimer(firstWait << (try - 1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// drain hands what is put into a line to so many workers, until ctx ends.
func drain[T any](ctx context.Context, orders *line[T], workers int, do func(context.Context, T)) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for o, ok := orders.take(ctx); ok; o, ok = orders.take(ctx) {
				do(ctx, o)
			}
		})
	}
	group.Wait()
}

// item is the gang or pod of that UID, which something is to be written about.
type item struct{ namespace, uid string }

// inTurn is a queue of such, which serves namespaces in turn.
func inTurn(workers int, backoff time.Duration) workqueue.TypedRateLimitingInterface[item] {
	return turns.New(turns.Options[item]{Tenant: func(i item) string { return i.namespace }, Workers: workers, Backoff: backoff, MaxBackoff: retryMost})
}

// work serves a queue until ctx ends; an item is never worked on twice at once. what and about say what a defect is told of.
func work(
	ctx context.Context, queue workqueue.TypedRateLimitingInterface[item], workers int, guard *aside.Guard, what string,
	about func(item) client.Object, serve func(context.Context, item) error,
) {
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for {
				item, stopped := queue.Get()
				if stopped {
					return
				}
				if ctx.Err() == nil {
					if err := guard.Catch(what, about(item), func() error { return serve(ctx, item) }); err == nil {
						queue.Forget(item)
					} else if ctx.Err() == nil {
						logr.FromContextOrDiscard(ctx).Error(err, "a write is left for later")
						queue.AddRateLimited(item)
					}
				}
				queue.Done(item)
			}
		})
	}
	<-ctx.Done()
	queue.ShutDown()
	group.Wait()
}
