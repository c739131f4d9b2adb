package roles

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// eventSink writes events behind the work, of one namespace after another: a kind of work of an apply.Pool of its own, which shares
// neither workers nor a queue with what a role writes besides. Who records an event never waits, so that what is too much has to go: what
// is said again while it waits is one event with a count; warnings that were given a moment ago, and those of one reason beyond a pace,
// are told of in a single one once there is room (see moderation); and when eventQueue are open, of a namespace no more than its share
// is taken. An event only repeats what a condition says.
type eventSink struct {
	client  client.Client
	clients map[string]client.Client // of components that write with one of their own; complete before run
	scheme  *runtime.Scheme
	dropped prometheus.Counter
	held    prometheus.Counter
	lost    prometheus.Counter
	guard   *aside.Guard
	serial  atomic.Int64
	workers *apply.Pool
	queue   *apply.Queue[*corev1.Event]

	mu    sync.Mutex
	open  map[string]int           // how many there are of each namespace
	fresh map[saying]*corev1.Event // that have not been tried yet
	moderation
}

// saying is what an event says.
type saying struct {
	warning
	component, kind, annotations string
}

func sayingOf(e *corev1.Event) saying {
	return saying{warningOf(e), e.ReportingController, e.Type, fmt.Sprint(e.Annotations)}
}

// eventWork is the row of events: what the API server was too busy for is tried for about half a minute. Of thousands that fail at once
// each waits no longer than apply's longest wait between two tries.
var eventWork = apply.Kind{Name: "an event", Workers: 4, First: time.Second, Tries: 6, Bound: eventQueue}

const (
	eventQueue = 8192
	eventText  = 1000 // bytes; the API takes 1024
)

// newEventSink returns a sink that writes by c, once it runs; guard sets aside what ends in a defect, nil: nobody is told.
func newEventSink(c client.Client, scheme *runtime.Scheme, registry prometheus.Registerer, guard *aside.Guard) (*eventSink, error) {
	s := &eventSink{
		client: c, clients: map[string]client.Client{}, scheme: scheme, guard: guard, workers: apply.NewPool(guard),
		open: map[string]int{}, fresh: map[saying]*corev1.Event{}, moderation: newModeration(time.Now),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_events_dropped_total", Help: "Events that were not written because too many waited.",
		}),
		held: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_events_held_total", Help: "Warnings that were not written by themselves because the same was said a moment ago, or much alike in their namespace.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_events_lost_total", Help: "Events that the API server refused, or did not take in several tries.",
		}),
	}
	s.queue = apply.NewQueue(s.workers, eventWork, apply.Job[*corev1.Event]{
		Tenant: func(e *corev1.Event) string { return e.Namespace }, About: func(e *corev1.Event) any { return e.Name }, Try: s.try, End: s.end,
	})
	for _, c := range []prometheus.Collector{s.dropped, s.held, s.lost} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register the metrics of events: %w", err)
		}
	}
	return s, nil
}

// recorder returns a function that records events in a component's name. It never blocks.
func (s *eventSink) recorder(component string) func(obj client.Object, kind, reason, message string) {
	return func(obj client.Object, kind, reason, message string) {
		s.record(component, obj, kind, reason, message, nil)
	}
}

// annotated returns a function that records normal events with annotations. It never blocks.
func (s *eventSink) annotated(component string) func(obj client.Object, reason, message string, annotations map[string]string) {
	return func(obj client.Object, reason, message string, annotations map[string]string) {
		s.record(component, obj, corev1.EventTypeNormal, reason, message, annotations)
	}
}

func (s *eventSink) record(component string, obj client.Object, kind, reason, message string, annotations map[string]string) {
	gvk, err := apiutil.GVKForObject(obj, s.scheme)
	if err != nil {
		return
	}
	if len(message) > eventText { // of whole characters
		message = strings.ToValidUTF8(message[:eventText], "")
	}
	now := metav1.Now()
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: eventName(obj.GetName(), time.Now().UnixNano(), s.serial.Add(1)), Annotations: annotations},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: obj.GetNamespace(),
			Name: obj.GetName(), UID: obj.GetUID(),
		},
		Type: kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == corev1.EventTypeWarning && !s.admit(e) {
		s.held.Inc()
		return
	}
	s.put(e)
}

// put has an event written, or counts it with one that says the same. The lock is held.
func (s *eventSink) put(e *corev1.Event) {
	what := sayingOf(e)
	if before := s.fresh[what]; before != nil {
		before.Count, before.LastTimestamp = before.Count+e.Count, e.LastTimestamp
		return
	}
	if s.queue.Full() && s.open[e.Namespace] >= eventQueue/max(1, len(s.open)) {
		s.dropped.Inc()
		return
	}
	s.open[e.Namespace]++
	s.fresh[what] = e
	s.queue.Put(0, e)
}

// try writes an event, which does not change from then on. One that is there was written by a try whose answer was lost.
func (s *eventSink) try(ctx context.Context, e *corev1.Event) error {
	s.mu.Lock()
	if what := sayingOf(e); s.fresh[what] == e {
		delete(s.fresh, what)
	}
	s.mu.Unlock()
	return s.guard.Do(ctx, eventWork.Name, e.Name, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(s.writer(e).Create(ctx, e))
	})
}

// end is told what became of an event. That its namespace is gone, or going, is no loss.
func (s *eventSink) end(ctx context.Context, e *corev1.Event, err error) {
	s.mu.Lock()
	if s.open[e.Namespace]--; s.open[e.Namespace] == 0 {
		delete(s.open, e.Namespace)
	}
	s.mu.Unlock()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		s.lost.Inc()
		logr.FromContextOrDiscard(ctx).V(1).Info("an event was lost", "object", e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "error", err.Error())
	}
}

// writer is the client of the role that tells the event: one that does not lead any more tells nothing.
func (s *eventSink) writer(e *corev1.Event) client.Client {
	if c := s.clients[e.ReportingController]; c != nil {
		return c
	}
	return s.client
}

// eventName is a name for an event about the object called name, which may itself be as long as a name can be.
func eventName(name string, at, serial int64) string {
	if len(name) > 200 {
		name = strings.TrimRight(name[:200], "-.")
	}
	return fmt.Sprintf("%s.%x%x", name, at, serial)
}

// run writes until ctx ends.
func (s *eventSink) run(ctx context.Context) error {
	var summaries sync.WaitGroup
	defer summaries.Wait()
	summaries.Go(func() {
		tick := time.NewTicker(summaryEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.summarize()
			}
		}
	})
	return s.workers.Run(ctx)
}

// summarize tells of the warnings that were too many, once there is room.
func (s *eventSink) summarize() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue.Full() {
		return
	}
	for _, e := range s.summaries() {
		e.Name = eventName(e.InvolvedObject.Name, time.Now().UnixNano(), s.serial.Add(1))
		s.put(e)
	}
}
