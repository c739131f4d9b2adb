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
	"k8s.io/apimachinery/pkg/types"
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
	s, err := newEventSink(w, scheme, app.Registry())
	if err != nil {
		t.Fatal(err)
	}
	record := s.recorder("test")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: strings.Repeat("x", 253)}}
	const extra = 100
	for i := range eventQueue + extra {
		record(pod, corev1.EventTypeNormal, "Test", fmt.Sprint(i))
	}
	if dropped := testutil.ToFloat64(s.dropped); dropped != extra || s.queued != eventQueue {
		t.Errorf("%v dropped and %d kept, want %d and %d", dropped, s.queued, extra, eventQueue)
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

// TestNamespacesShareTheEventQueue: one that fills it loses events to others, not they to it.
func TestNamespacesShareTheEventQueue(t *testing.T) {
	t.Parallel()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newEventSink(&stuckWriter{open: make(chan struct{})}, scheme, app.Registry())
	if err != nil {
		t.Fatal(err)
	}
	record := s.recorder("test")
	for i := range eventQueue {
		record(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "noisy", Name: "p"}}, corev1.EventTypeNormal, "Test", fmt.Sprint(i))
	}
	for i := range 10 {
		record(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "quiet", Name: "p"}}, corev1.EventTypeNormal, "Test", fmt.Sprint(i))
	}
	if s.queued != eventQueue || len(s.lines["quiet"]) != 10 {
		t.Errorf("%d wait, %d of the quiet one", s.queued, len(s.lines["quiet"]))
	}
	var order []string
	for range 6 {
		next, _ := s.turns.Get()
		order = append(order, s.take(next.namespace).Namespace)
		s.turns.Done(next)
	}
	if got := strings.Join(order, " "); got != "noisy quiet noisy quiet noisy quiet" {
		t.Error("written in the order", got)
	}
	s.turns.ShutDown()
}

// TestWarningsAreModerated: of 2,500 broken pods that are looked at again and again, the first are told of at once, all in time, and
// nobody again before long; another namespace's warning is given whatever happens there.
func TestWarningsAreModerated(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	m := newModeration(func() time.Time { return now })
	warn := func(namespace string, n int) *corev1.Event {
		name := fmt.Sprint("p", n)
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
			Reason:         "PodGrouperWarning", Message: "broken", Count: 1,
		}
	}
	told, summaries := map[int]int{}, 0
	given := func() (n int) {
		for _, k := range told { // order: a sum
			n += k
		}
		return n + summaries
	}
	for minute := range 60 {
		for i := range 2500 {
			if m.admit(warn("noisy", i)) {
				told[i]++
			}
		}
		if minute == 0 && (len(told) != warnBurst || told[0] != 1) {
			t.Fatalf("%d are told at once", len(told))
		}
		if !m.admit(warn("quiet", minute)) {
			t.Fatal("another namespace's warning is lost")
		}
		for range 6 {
			now = now.Add(summaryEvery)
			for _, e := range m.summaries() {
				summaries++
				if summaries == 1 && (e.Count != 2500-warnBurst || !strings.HasSuffix(e.Message, "(and 2299 more warnings like it in this namespace)")) {
					t.Errorf("%d: %s", e.Count, e.Message)
				}
			}
		}
	}
	if len(told) != 2500 {
		t.Errorf("%d of 2500 are told within the hour", len(told))
	}
	if n := given(); n > warnBurst+3600*2 {
		t.Errorf("%d warnings in an hour", n)
	}
	before := given()
	for range 60 { // by now everybody has been told
		for i := range 2500 {
			if m.admit(warn("noisy", i)) {
				told[i]++
			}
		}
		now = now.Add(time.Minute)
		m.summaries()
	}
	if n := given() - before; n > 7000 {
		t.Errorf("%d warnings in the second hour", n)
	}
	for i := range 3 * repeatsKept {
		m.admit(warn(fmt.Sprint("n", i), 0))
	}
	if len(m.repeats) > repeatsKept || m.oldest.Len() > repeatsKept {
		t.Errorf("%d are remembered", len(m.repeats))
	}
}
