package apply

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/engine"
)

// How often pods are told that a node was chosen for them: so many a second, after a first burst. Whoever starts a few pods
// reads it of each; when thousands start at once, the event of each that it is bound must do.
const (
	newsRate  = 5
	newsBurst = 50
)

// What is told of pods that are bound stands back while others are being bound, as the binder's reports do (ADR 5): until none was for
// boundQuiet, boundLongest at most. Then so many a second are told, and so many while binds go on. What is more than boundMost is told at
// once: nothing is left out.
const (
	boundQuiet   = 500 * time.Millisecond
	boundLongest = time.Minute
	boundRate    = 60
	boundBusy    = 20
	boundMost    = 8192
)

// News tells pods, in events, which node was chosen for them, and that they are bound.
type News struct {
	pool  string
	event func(about client.Object, kind, reason, message string)
	pace  *rate.Limiter

	mu    sync.Mutex
	bound []boundPod // in the order of their binds
	last  time.Time  // of the last bind
	free  time.Time  // when the next may be told
	some  chan struct{}
}

// boundPod is one whose event is still to come.
type boundPod struct {
	pod  *v1.Pod
	node string
	at   time.Time
}

// NewNews returns a teller for the shard called pool; Run tells what trails. event must not block.
func NewNews(pool string, event func(about client.Object, kind, reason, message string)) *News {
	return &News{pool: pool, event: event, pace: rate.NewLimiter(newsRate, newsBurst), some: make(chan struct{}, 1)}
}

// Scheduled tells the pods that a bundle binds. It does not block, is safe for concurrent use, and tells nobody when too many
// have been told lately.
func (n *News) Scheduled(b *engine.Bundle) {
	for i := range b.Intents {
		in := &b.Intents[i]
		if in.Verb != engine.Bind {
			continue
		}
		if !n.pace.Allow() {
			return
		}
		n.event(meant(in), v1.EventTypeNormal, keys.EventScheduled, fmt.Sprintf("node %s was chosen for the pod, in node pool %s", in.Node, n.pool))
	}
}

// Bound has a pod told, later, that it is bound. It does not block and is safe for concurrent use.
func (n *News) Bound(in *engine.Intent) {
	now := time.Now()
	next := boundPod{pod: meant(in), node: in.Node, at: now}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last = now
	if n.bound = append(n.bound, next); len(n.bound) > boundMost {
		n.tell()
	}
	signal(n.some)
}

// meant is the pod of an intent, as far as events go.
func meant(in *engine.Intent) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Pod, UID: types.UID(in.UID)}}
}

// tell tells the pod that was bound first. The lock is held.
func (n *News) tell() {
	first := n.bound[0]
	n.bound[0] = boundPod{}
	n.bound = n.bound[1:]
	n.event(first.pod, v1.EventTypeNormal, keys.EventBound, "Bound to node "+first.node)
}

// Run tells bound pods, at its pace, until ctx ends. Those that have not been told by then never are.
func (n *News) Run(ctx context.Context) error {
	for {
		var timer <-chan time.Time
		if wait, any := n.next(time.Now()); any {
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-n.some:
		case <-ctx.Done():
			return nil
		}
	}
}

// next tells a pod if it is time, and returns how long it is until the next may be told; any: there is one.
func (n *News) next(now time.Time) (wait time.Duration, any bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.bound) == 0 {
		return 0, false
	}
	quiet, due := n.last.Add(boundQuiet), n.bound[0].at.Add(boundLongest)
	at := quiet
	if due.Before(at) {
		at = due
	}
	if at.Before(n.free) {
		at = n.free
	}
	if now.Before(at) {
		return at.Sub(now), true
	}
	n.tell()
	n.free = now.Add(time.Second / boundRate)
	if now.Before(quiet) {
		n.free = now.Add(time.Second / boundBusy)
	}
	return n.free.Sub(now), len(n.bound) > 0
}
