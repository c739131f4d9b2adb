package roles

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/app"
)

// stuckWriter is an API server that takes no event until it is let go.
type stuckWriter struct {
	client.Client
	open    chan struct{}
	written atomic.Int64
}

func (w *stuckWriter) Create(ctx context.Context, _ client.Object, _ ...client.CreateOption) error {
	select {
	case <-w.open:
		w.written.Add(1)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestEventsAreBounded: while no event can be written, recording one never blocks, so many are kept, and the rest is dropped
// and counted; what was kept is written once it can be.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	w := &stuckWriter{open: make(chan struct{})}
	s, err := newEventSink(scheme, app.Registry())
	if err != nil {
		t.Fatal(err)
	}
	record := s.recorder("test", w)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: strings.Repeat("x", 253)}}
	const extra = 100
	for i := range eventQueue + extra {
		record(pod, corev1.EventTypeNormal, "Test", fmt.Sprint(i))
	}
	if dropped := testutil.ToFloat64(s.dropped); dropped != extra || len(s.queue) != eventQueue {
		t.Errorf("%v dropped and %d kept, want %d and %d", dropped, len(s.queue), extra, eventQueue)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	close(w.open)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(10 * time.Second); w.written.Load() < eventQueue; {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%d of %d events were written", w.written.Load(), eventQueue)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
