package apply

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/kai/keys"
	"github.com/muster-scheduler/muster/internal/dialect"
	"github.com/muster-scheduler/muster/internal/engine"
)

// How often pods are told that a node was chosen for them: so many a second, after a first burst. Whoever starts a few pods
// reads it of each; when thousands start at once, the event of each that it is bound must do.
const (
	chosenRate  = 5
	chosenBurst = 50
)

// What is told of pods that are bound, or were evicted, stands back while others are being bound or evicted, as the binder's reports do (ADR 5): until
// none was for boundQuiet, boundLongest at most. Then boundRate a second are told at most, and boundBusy while that goes on, those of boundTogether
// together: one at a time each would wake the API server, its store and ourselves for itself, which costs more processor time than the event.
// What is more than boundMost is told at once: nothing is left out.
const (
	boundQuiet    = 500 * time.Millisecond
	boundLongest  = time.Minute
	boundRate     = 240
	boundBusy     = 20
	boundTogether = 100 * time.Millisecond
	boundMost     = 8192
)

// Events tells pods, in events, which node was chosen for them, and has other events stand back with these. To a pod that the scheduler binds that is
// said once it is bound; the others are told by the binder when they are.
type Events struct {
	pool  string
	event func(about client.Object, kind, reason, message string)
	pace  *rate.Limiter
	each  time.Duration // between two that are told while nobody is bound or evicted
	work  *Queue[*boundPod]
	last  atomic.Pointer[time.Time] // of the last bind of a pod by itself
	busy  atomic.Pointer[time.Time] // of the last of which Busy was told, or that was put
	free  time.Time                 // when the next would be told if each were by itself; of the one worker
}

// boundPod is one whose event is still to come. Thousands may be: it is no object of ten times the size.
type boundPod struct {
	types.NamespacedName
	uid  types.UID
	node string
	at   time.Time
	say  func() // what is said in place of that it is bound; nil for that
}

// NewEvents returns a teller for the shard called pool; workers tell what trails. Pods that have not been told when they end never are. qps is how many requests a second
// the process may make of the API server, of which events that stood back take four fifths at most, so that whoever is to be bound next finds some left; 0 and less is no bound. event
// must not block.
func NewEvents(workers *Pool, pool string, qps float32, event func(about client.Object, kind, reason, message string)) *Events {
	each := time.Second / boundRate
	if qps > 0 {
		each = max(each, time.Duration(float32(time.Second)/(0.8*qps)))
	}
	n := &Events{pool: pool, event: event, pace: rate.NewLimiter(chosenRate, chosenBurst), each: each}
	n.work = NewQueue(workers, eventWork, Job[*boundPod]{About: (*boundPod).about, Pace: n.wait, Try: n.tell})
	return n
}

// Scheduled tells the pods that the binder was asked to bind. It does not block, is safe for concurrent use, and tells nobody when too many
// have been told lately.
func (n *Events) Scheduled(b *engine.Bundle) {
	for i := range b.Intents {
		in := &b.Intents[i]
		if in.Verb != engine.Bind {
			continue
		}
		if !n.pace.Allow() {
			return
		}
		n.event(about(types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, types.UID(in.UID)), v1.EventTypeNormal, keys.EventScheduled, fmt.Sprintf("node %s was chosen for the pod, in node pool %s", in.Node, n.pool))
	}
}

// Bound has a pod told, later, that the scheduler has bound it: the one event that it gets. It does not block and is safe for concurrent use.
func (n *Events) Bound(in *engine.Intent) {
	b := &boundPod{types.NamespacedName{Namespace: in.Namespace, Name: in.Pod}, types.UID(in.UID), in.Node, time.Now(), nil}
	n.last.Store(&b.at)
	n.put(b)
}

// Later has something said once binds and evictions pause, or soon after a minute. It does not block and is safe for concurrent use; say must not block.
func (n *Events) Later(say func()) { n.put(&boundPod{at: time.Now(), say: say}) }

// OfPodLater has an event of a pod recorded, as Later has: in place of the function that records it at once.
func (n *Events) OfPodLater(pod client.Object, kind, reason, message string) {
	who := about(client.ObjectKeyFromObject(pod), pod.GetUID()) // the pod itself may be all that the API server answered
	n.Later(func() { n.event(who, kind, reason, message) })
}

// Busy says that a pod is being bound, or evicted, so that what is to be told stands back. It does not block and is safe for concurrent use.
func (n *Events) Busy() {
	now := time.Now()
	n.busy.Store(&now)
}

func (n *Events) put(b *boundPod) {
	n.busy.Store(&b.at)
	if n.work.Full() {
		n.say(b)
		return
	}
	n.work.Put(0, b)
}

// Last is when a pod was last bound by the scheduler by itself; the zero time for never. It is safe for concurrent use.
func (n *Events) Last() time.Time {
	if at := n.last.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// toldPods is how many pods the event of a gang names.
const toldPods = 8

// BoundGang has a gang told that the scheduler has bound so many of its pods, in one event of its PodGroup: sixteen pods need not say each what
// sixteen nodes say. It does not block.
func (n *Events) BoundGang(b *engine.Bundle) {
	var places []string
	pods := 0
	for i := range b.Intents {
		in := &b.Intents[i]
		if in.Verb != engine.Bind {
			continue
		}
		if pods++; pods <= toldPods {
			places = append(places, in.Pod+" to "+in.Node)
		}
	}
	if more := pods - len(places); more > 0 {
		places = append(places, fmt.Sprintf("and %d more", more))
	}
	n.event(dialect.Group(b.Gang, b.UID), v1.EventTypeNormal, keys.EventScheduled, fmt.Sprintf("%d pods were bound, in node pool %s: %s", pods, n.pool, strings.Join(places, ", ")))
}

// about is a pod, as far as events go.
func about(pod types.NamespacedName, uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: uid}}
}

// about is the pod, or the words, that a defect is told of.
func (b *boundPod) about() any {
	if b.say != nil {
		return "an event that stood back"
	}
	return about(b.NamespacedName, b.uid)
}

func (n *Events) say(b *boundPod) {
	if b.say != nil {
		b.say()
		return
	}
	n.event(about(b.NamespacedName, b.uid), v1.EventTypeNormal, keys.EventScheduled, fmt.Sprintf("bound to node %s, in node pool %s", b.node, n.pool))
}

// wait waits until it is time to tell a pod.
func (n *Events) wait(ctx context.Context, b *boundPod) error {
	for {
		now, at := time.Now(), n.busy.Load().Add(boundQuiet)
		if due := b.at.Add(boundLongest); due.Before(at) {
			at = due
		}
		if now.Before(n.free) {
			at = later(at, n.free.Add(boundTogether))
		}
		if !now.Before(at) {
			return nil
		}
		select {
		case <-time.After(at.Sub(now)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell tells a pod.
func (n *Events) tell(_ context.Context, b *boundPod) error {
	n.say(b)
	now, each := time.Now(), n.each
	if now.Before(n.busy.Load().Add(boundQuiet)) {
		each = max(each, time.Second/boundBusy)
	}
	n.free = later(n.free, now.Add(-boundTogether)).Add(each)
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
