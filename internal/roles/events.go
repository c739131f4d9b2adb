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
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/muster-scheduler/muster/internal/kube/aside"
	"github.com/muster-scheduler/muster/internal/kube/turns"
)

// eventSink writes events behind the work, of one namespace after another. An event only repeats what a condition says, so what is
// too much is left out and counted: of more than eventQueue that wait, the last of the namespace that has most; warnings that were
// given a moment ago; and warnings of one reason beyond a pace, of which a single one tells then (see moderation).
type eventSink struct {
	client  client.Client
	clients map[string]client.Client // of components that write with one of their own; complete before run
	scheme  *runtime.Scheme
	dropped prometheus.Counter
	held    prometheus.Counter
	guard   *aside.Guard // nil: nobody is told of defects
	serial  atomic.Int64

	mu     sync.Mutex
	turns  workqueue.TypedRateLimitingInterface[ticket]
	lines  map[string][]*corev1.Event // by namespace
	queued int
	moderation
}

// ticket is leave to write one event of a namespace.
type ticket struct {
	namespace string
	serial    int64
}

const (
	eventQueue   = 8192
	eventWriters = 4
	eventText    = 1000 // bytes; the API takes 1024
)

func newEventSink(c client.Client, scheme *runtime.Scheme, registry prometheus.Registerer) (*eventSink, error) {
	s := &eventSink{
		client: c, clients: map[string]client.Client{}, scheme: scheme, lines: map[string][]*corev1.Event{}, moderation: newModeration(time.Now),
		turns: turns.New(turns.Options[ticket]{Tenant: func(t ticket) string { return t.namespace }, Workers: eventWriters}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_events_dropped_total", Help: "Events that were not written because too many waited.",
		}),
		held: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "muster_events_held_total", Help: "Warnings that were not written by themselves because the same was said a moment ago, or much alike in their namespace.",
		}),
	}
	for _, c := range []prometheus.Collector{s.dropped, s.held} {
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

// put puts an event into its namespace's line. When too many wait, the longest line loses its last.
func (s *eventSink) put(e *corev1.Event) {
	if s.queued >= eventQueue {
		s.dropped.Inc()
		longest := e.Namespace
		for namespace, line := range s.lines { // order: the longest, of equals the first by name
			if n := len(s.lines[longest]); len(line) > n || len(line) == n && namespace < longest {
				longest = namespace
			}
		}
		if len(s.lines[longest]) <= len(s.lines[e.Namespace])+1 {
			return
		}
		s.lines[longest] = s.lines[longest][:len(s.lines[longest])-1]
		s.queued--
	}
	s.queued++
	s.lines[e.Namespace] = append(s.lines[e.Namespace], e)
	s.turns.Add(ticket{e.Namespace, s.serial.Add(1)})
}

// take is the next event of a namespace; nil if it was dropped.
func (s *eventSink) take(namespace string) *corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := s.lines[namespace]
	if len(line) == 0 {
		return nil
	}
	e := line[0]
	line[0] = nil
	if s.lines[namespace] = line[1:]; len(line) == 1 {
		delete(s.lines, namespace)
	}
	s.queued--
	return e
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
	log := logr.FromContextOrDiscard(ctx)
	var writers sync.WaitGroup
	for range eventWriters {
		writers.Go(func() {
			for {
				t, over := s.turns.Get()
				if over {
					return
				}
				if e := s.take(t.namespace); e != nil && ctx.Err() == nil {
					if err := s.guard.Do(ctx, "an event", e.Name, func(ctx context.Context) error { return s.writer(e).Create(ctx, e) }); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
						log.V(1).Info("an event was lost", "object", e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "error", err.Error())
					}
				}
				s.turns.Done(t)
			}
		})
	}
	tick := time.NewTicker(summaryEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			s.mu.Lock()
			for _, e := range s.summaries() {
				e.Name = eventName(e.InvolvedObject.Name, time.Now().UnixNano(), s.serial.Add(1))
				s.put(e)
			}
			s.mu.Unlock()
		}
	}
	s.turns.ShutDown()
	writers.Wait()
	return nil
}
