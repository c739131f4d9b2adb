package roles

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/kubetest"
)

// aSink is a sink that writes to s once it runs, by a client with a limit on its requests of each kind.
func aSink(t *testing.T, s *kubetest.Server) (*eventSink, client.Client) {
	t.Helper()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	config := s.Process("muster").Config()
	config.QPS, config.Burst = 1000, 1000
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: s.Mapper()})
	if err != nil {
		t.Fatal(err)
	}
	sink, err := newEventSink(c, scheme, app.Registry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return sink, c
}

func begin(t *testing.T, s *eventSink) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func podIn(namespace, name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)}}
}

// TestEventsAreBounded: while the API server is in no hurry about events, recording one never blocks and others' writes go through, so
// many are kept, and the rest is dropped and counted. What is said again is counted, and what was kept is written in the end. A namespace
// that has less than its share loses nothing to one that fills the queue, and is served in turn with it.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := kubetest.New(kubetest.Options{})
		var hundred []string
		for i := range 100 {
			hundred = append(hundred, fmt.Sprint("n", i))
		}
		for _, namespace := range append(strings.Fields("noisy quiet other0 other1 other2 other3"), hundred...) {
			s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
		}
		s.Put(podIn("noisy", "p"))
		hurry := s.Fault(func(c kubetest.Call) (o kubetest.Outcome) {
			if kubetest.Is("create Event")(c) {
				o.Delay = time.Minute
			}
			return o
		})
		sink, c := aSink(t, s)
		begin(t, sink)
		record, since := sink.recorder("test"), time.Now()
		tell := func(namespace string, message any) {
			record(podIn(namespace, strings.Repeat("x", 253)), corev1.EventTypeNormal, "Test", fmt.Sprint(message))
		}
		for i := range eventWork.Workers { // one worker each
			tell(fmt.Sprint("other", i), "")
			synctest.Wait()
		}
		for i := range eventQueue {
			tell("noisy", i)
		}
		if err := c.SubResource("binding").Create(t.Context(), podIn("noisy", "p"), &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}); err != nil || time.Since(since) > 0 {
			t.Errorf("a bind beside a burst of events: after %v, %v", time.Since(since), err)
		}
		for i := range 3 * 10 {
			tell("quiet", i%10)
		}
		if dropped := testutil.ToFloat64(sink.dropped); dropped != float64(eventWork.Workers) || len(waiting(sink, "quiet")) != 10 {
			t.Errorf("%v dropped, %d of the quiet one wait", dropped, len(waiting(sink, "quiet")))
		}
		for i := range 2 * eventQueue { // each of a hundred gets its share, and no more
			tell(hundred[i%100], i)
		}
		kept := len(sink.fresh)
		if kept < 2*eventQueue*9/10 || kept > 2*eventQueue {
			t.Errorf("%d wait", kept)
		}
		s.Writes()
		hurry()
		<-time.After(2 * time.Minute)
		synctest.Wait()
		// Its ten are among those of ten rounds through all namespaces, but for what a worker has in its hand while others go on.
		late := 0
		for i, w := range s.Writes() {
			if w.Namespace == "quiet" && i > 10*110 {
				t.Logf("one of the quiet namespace is the %dth", i)
				late++
			}
		}
		if late > eventWork.Workers {
			t.Errorf("%d of ten of the quiet namespace are late", late)
		}
		written := 0
		for what, is := range s.State() {
			if strings.HasPrefix(what, "Event ") {
				written++
			}
			if strings.HasPrefix(what, "Event quiet/") && !strings.Contains(is, `"count":3`) {
				t.Errorf("said three times: %s", is)
			}
		}
		if written != kept+eventWork.Workers || len(sink.fresh)+len(sink.open) > 0 {
			t.Errorf("%d of %d are written, %d and %d are left", written, kept+eventWork.Workers, len(sink.fresh), len(sink.open))
		}
	})
}

// TestEventsAreTriedAgain: an event is written once for all that passes, a lost answer among it; it is given up, and counted, when nothing
// helps, and at once when it is refused, which is no loss if its namespace is going.
func TestEventsAreTriedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		rule        func(n int) kubetest.Outcome
		tries       int
		there, lost float64
	}{
		"passes": {func(n int) kubetest.Outcome {
			return [...]kubetest.Outcome{kubetest.LostRequest(), kubetest.Broken("no"), kubetest.Conflict(), kubetest.LostAnswer(), {}}[n]
		}, 5, 1, 0},
		"nothing helps": {func(int) kubetest.Outcome { return kubetest.Broken("no") }, eventWork.Tries, 0, 1},
		"refused": {func(int) kubetest.Outcome {
			return kubetest.Outcome{Err: apierrors.NewRequestEntityTooLargeError("no")}
		}, 1, 0, 1},
		"its namespace is going": {func(int) kubetest.Outcome {
			err := apierrors.NewForbidden(corev1.Resource("events"), "it", errors.New("terminating"))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return kubetest.Outcome{Err: err}
		}, 1, 0, 0},
		"the right is missing": {func(int) kubetest.Outcome {
			return kubetest.Outcome{Err: apierrors.NewForbidden(corev1.Resource("events"), "it", errors.New("no right"))}
		}, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := kubetest.New(kubetest.Options{})
				s.Put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
				tries := 0
				s.Fault(func(c kubetest.Call) kubetest.Outcome {
					if !kubetest.Is("create Event")(c) {
						return kubetest.Outcome{}
					}
					tries++
					return tc.rule(tries - 1)
				})
				sink, _ := aSink(t, s)
				begin(t, sink)
				sink.recorder("test")(podIn("a", "p"), corev1.EventTypeNormal, "Test", "it")
				<-time.After(time.Minute)
				synctest.Wait()
				there := 0
				for what := range s.State() {
					if strings.HasPrefix(what, "Event a/") {
						there++
					}
				}
				if tries != tc.tries || float64(there) != tc.there || testutil.ToFloat64(sink.lost) != tc.lost || len(sink.open) > 0 {
					t.Errorf("%d tries, %d there, %v lost, %d open", tries, there, testutil.ToFloat64(sink.lost), len(sink.open))
				}
			})
		})
	}
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
