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
)

// eventSink writes events behind the work: a bounded queue, and what does not fit is dropped and counted. An event only
// repeats what a condition says.
type eventSink struct {
	scheme  *runtime.Scheme
	queue   chan event
	dropped prometheus.Counter
	serial  atomic.Int64
}

// event is one that waits, and the client of the role that tells it: a role that does not lead any more tells nothing.
type event struct {
	*corev1.Event
	client client.Client
}

const (
	eventQueue   = 8192
	eventWriters = 4
	eventText    = 1000 // bytes; the API takes 1024
)

func newEventSink(scheme *runtime.Scheme, registry prometheus.Registerer) (*eventSink, error) {
	s := &eventSink{scheme: scheme, queue: make(chan event, eventQueue), dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "muster_events_dropped_total", Help: "Events that were not written because too many waited.",
	})}
	if err := registry.Register(s.dropped); err != nil {
		return nil, fmt.Errorf("register muster_events_dropped_total: %w", err)
	}
	return s, nil
}

// recorder returns a function that records events in a component's name, with its role's client. It never blocks.
func (s *eventSink) recorder(component string, c client.Client) func(obj client.Object, kind, reason, message string) {
	return func(obj client.Object, kind, reason, message string) {
		s.record(c, component, obj, kind, reason, message, nil)
	}
}

// annotated returns a function that records normal events with annotations. It never blocks.
func (s *eventSink) annotated(component string, c client.Client) func(obj client.Object, reason, message string, annotations map[string]string) {
	return func(obj client.Object, reason, message string, annotations map[string]string) {
		s.record(c, component, obj, corev1.EventTypeNormal, reason, message, annotations)
	}
}

func (s *eventSink) record(c client.Client, component string, obj client.Object, kind, reason, message string, annotations map[string]string) {
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
	select {
	case s.queue <- event{e, c}:
	default:
		s.dropped.Inc()
	}
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
				select {
				case e := <-s.queue:
					if err := e.client.Create(ctx, e.Event); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
						log.V(1).Info("an event was lost", "object", e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "error", err.Error())
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	writers.Wait()
	return nil
}
