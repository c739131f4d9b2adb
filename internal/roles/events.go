package roles

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
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
	client  client.Client
	scheme  *runtime.Scheme
	queue   chan *corev1.Event
	dropped atomic.Int64
	serial  atomic.Int64
}

const (
	eventQueue   = 8192
	eventWriters = 4
)

func newEventSink(c client.Client, scheme *runtime.Scheme) *eventSink {
	return &eventSink{client: c, scheme: scheme, queue: make(chan *corev1.Event, eventQueue)}
}

// recorder returns a function that records events in a component's name. It never blocks.
func (s *eventSink) recorder(component string) func(obj client.Object, kind, reason, message string) {
	return func(obj client.Object, kind, reason, message string) {
		gvk, err := apiutil.GVKForObject(obj, s.scheme)
		if err != nil {
			return
		}
		if len(message) > 1000 {
			message = message[:1000]
		}
		now := metav1.Now()
		namespace := obj.GetNamespace()
		if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		e := &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%.200s.%x%x", obj.GetName(), time.Now().UnixNano(), s.serial.Add(1))},
			InvolvedObject: corev1.ObjectReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: obj.GetNamespace(),
				Name: obj.GetName(), UID: obj.GetUID()},
			Type: kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
			Source: corev1.EventSource{Component: component}, ReportingController: component,
		}
		select {
		case s.queue <- e:
		default:
			s.dropped.Add(1)
		}
	}
}

// run writes until ctx ends.
func (s *eventSink) run(ctx context.Context) error {
	log := logr.FromContextOrDiscard(ctx)
	done := make(chan struct{})
	for range eventWriters {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case e := <-s.queue:
					if err := s.client.Create(ctx, e); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
						log.V(1).Info("an event was lost", "object", e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "error", err.Error())
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	for range eventWriters {
		<-done
	}
	return nil
}
