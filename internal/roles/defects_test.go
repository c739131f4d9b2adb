package roles

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-scheduler/muster/api/scheduling/v2alpha2"
	"github.com/muster-scheduler/muster/internal/app"
	"github.com/muster-scheduler/muster/internal/kube/aside"
)

// one is a cache that has a pod and nothing else.
type one struct {
	cache.Cache
	pod corev1.Pod
}

func (c *one) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if p, ok := o.(*corev1.Pod); ok && key == client.ObjectKeyFromObject(&c.pod) {
		c.pod.DeepCopyInto(p)
		return nil
	}
	return errors.New("there is none")
}

// waiting are a namespace's events that have not been tried, in no order.
func waiting(s *eventSink, namespace string) (out []*corev1.Event) {
	for _, e := range s.fresh { // order: none is promised
		if e.Namespace == namespace {
			out = append(out, e)
		}
	}
	return out
}

// TestDefectIsTold: an object that brings out a defect gets a warning, in the name of the role that met it, found by its UID whether the
// work knew that or the name alone; however often it is tried, and however many there are, no more are written than anybody can read,
// and nothing of what the defect says itself.
func TestDefectIsTold(t *testing.T) {
	t.Parallel()
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	sink, err := newEventSink(nil, scheme, app.Registry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	named := func(namespace, name string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	known := &one{pod: named("a", "p")}
	known.pod.UID = "1"
	p := &process{
		Settings: &Settings{}, log: logr.Discard(), registry: app.Registry(), dog: app.NewWatchdog(0), events: sink, cache: known, life: t.Context(),
	}
	p.SchedulerNames = []string{"kai-scheduler"}
	meet := func(role string, o client.Object) {
		t.Helper()
		g, err := p.guard(role)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Do(t.Context(), "a worker", o, func(context.Context) error { panic("about another's secret") }); !errors.Is(err, aside.ErrDefect) {
			t.Fatal(err)
		}
	}
	byName := named("a", "p")
	for range 100 {
		meet(PodGrouper, &byName)
	}
	meet(Scheduler, &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "g", UID: "2"}})
	meet(caches, &v2alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "unknown"}})
	var got []string
	for _, e := range waiting(sink, "a") {
		got = append(got, fmt.Sprint(e.ReportingController, " ", e.InvolvedObject.Kind, " ", e.InvolvedObject.Name, " ", e.InvolvedObject.UID, " ", e.Type, " ", e.Reason))
		if !strings.Contains(e.Message, "a defect of Muster") || strings.Contains(e.Message, "secret") {
			t.Errorf("it says: %s", e.Message)
		}
	}
	slices.Sort(got)
	if want := "kai-scheduler PodGroup g 2 Warning Defect; muster PodGroup unknown  Warning Defect; podgrouper Pod p 1 Warning Defect"; strings.Join(got, "; ") != want {
		t.Errorf("told %q, want %q", got, want)
	}
	for i := range 3 * warnBurst {
		many := named("many", fmt.Sprint("p", i))
		many.UID = types.UID(many.Name)
		meet(Binder, &many)
	}
	if n := len(waiting(sink, "many")); n < warnBurst || n > warnBurst+20 {
		t.Errorf("%d are told at once, want about %d", n, warnBurst)
	}
}
