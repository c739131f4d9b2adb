package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-scheduler/muster/api/scheduling/v1alpha2"
	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/engine/policy"
	"github.com/muster-scheduler/muster/internal/kube/apply"
	"github.com/muster-scheduler/muster/internal/kube/feed"
	"github.com/muster-scheduler/muster/internal/profile"
)

// The tests run in bubbles of fake time. Everything around the loop is played; the store and the engine are real.

// fixture plays the feed, the writer of binds and the writer of reasons.
type fixture struct {
	t       *testing.T
	start   time.Time
	loop    *Loop
	metrics *Metrics

	synced  atomic.Bool
	changed chan struct{}
	failed  chan struct{}
	room    chan struct{}
	plugin  []policy.Factory // one more than there are; set before the start
	writer  Binds            // in place of the world; set before the start

	mu     sync.Mutex
	events []cluster.Event // to be drained
	stale  []feed.StaleBindRequest
	drains int

	plans    []string // "seconds pods" of each plan
	failures []apply.Failure
	removed  []string
	full     bool
	slow     bool // what is submitted stays queued
	queued   bool

	left    []kai.GangRecord
	resumed []string // "bundle pods" of each
	begun   bool     // a member of what is to be withdrawn has a node, as the API server knows and the feed does not
	given   []string // bundles that were withdrawn

	evictions *evictor
	rooms     *rooms
	records   *Records
	marks     []string // "seconds gang annotation" of each call

	restored  int
	published []string // "seconds gang reason" of each call
	settle    time.Duration
}

func (w *fixture) seconds() string { return fmt.Sprintf("%.2f", time.Since(w.start).Seconds()) }

func (w *fixture) Synced() bool             { return w.synced.Load() }
func (w *fixture) Changed() <-chan struct{} { return w.changed }
func (w *fixture) Drain(s *cluster.Store) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drains++
	n := 0
	for _, e := range w.events {
		if s.Apply(e) {
			n++
		}
	}
	w.events = nil
	return n
}

func (w *fixture) StaleBindRequests() []feed.StaleBindRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stale
}
func (w *fixture) Problems() map[string]string { return nil }

func (w *fixture) Submit(p engine.Plan) {
	pods := ""
	for _, b := range p.Bundles {
		for _, in := range b.Intents {
			pods += " " + in.Pod
		}
	}
	w.mu.Lock()
	w.plans = append(w.plans, w.seconds()+pods)
	for _, b := range p.Bundles {
		if w.failures != nil {
			w.failures = append(w.failures, apply.Failure{Bundle: b, Err: errors.New("refused")})
		}
	}
	failing := len(w.failures) > 0
	w.queued = w.slow
	w.mu.Unlock()
	if failing {
		select {
		case w.failed <- struct{}{}:
		default:
		}
	}
}

func (w *fixture) Full() (full bool) {
	w.set(func() { full = w.queued })
	return full
}
func (w *fixture) Room() <-chan struct{} { return w.room }

// write lets what is queued be written.
func (w *fixture) write() {
	w.set(func() { w.slow, w.queued = false, false })
	w.room <- struct{}{}
}
func (w *fixture) Failed() <-chan struct{} { return w.failed }
func (w *fixture) Failures() []apply.Failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.failures
	w.failures = []apply.Failure{}
	return out
}

func (w *fixture) Remove(_, name string, _ types.UID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return false
	}
	w.removed = append(w.removed, w.seconds()+" "+name)
	return true
}

func (w *fixture) Left(context.Context) ([]kai.GangRecord, error) { return w.left, nil }

func (w *fixture) Resume(r *kai.GangRecord, rest []kai.Intent) {
	pods := ""
	for i := range rest {
		pods += " " + rest[i].Pod
	}
	w.set(func() { w.resumed = append(w.resumed, r.Bundle+pods) })
}

func (w *fixture) Withdraw(_ context.Context, r *kai.GangRecord) (bool, error) {
	if !w.begun {
		w.set(func() { w.given = append(w.given, r.Bundle) })
	}
	return !w.begun, nil
}

func (w *fixture) Restore(context.Context) error {
	w.set(func() { w.restored++ })
	return nil
}

func (w *fixture) Publish(_ *cluster.Snapshot, t *engine.Trace) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	line := w.seconds()
	for _, g := range t.Gangs {
		if g.Diagnosis != nil {
			line += " " + g.Gang.Name + ":" + g.Diagnosis.Verdict.Reason.String()
		}
	}
	w.published = append(w.published, line)
	if w.settle > 0 {
		return time.Now().Add(w.settle)
	}
	return time.Time{}
}

// begin starts a loop over a node of two GPUs; change prepares the world.
func begin(t *testing.T, o Options, change func(*fixture)) *fixture {
	t.Helper()
	m, err := NewMetrics("kai", "default", prometheus.NewPedanticRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w := &fixture{t: t, start: time.Now(), metrics: m, changed: make(chan struct{}, 1), failed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
	w.evictions, w.rooms = &evictor{fixture: w, settled: make(chan struct{}, 1)}, &rooms{fixture: w}
	w.synced.Store(true)
	w.events = []cluster.Event{
		cluster.QueueState{Name: "q", UID: "q", Quota: []cluster.Quantity{{Name: "gpu", Value: cluster.Unlimited}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}}},
		cluster.NodeState{Name: "n1", UID: "n1", Allocatable: []cluster.Quantity{{Name: "cpu", Value: 64000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 2000}, {Name: "pods", Value: 110}}},
	}
	if change != nil {
		change(w)
	}
	prof, registry := profile.BuiltIn(), builtin.Registry()
	if w.plugin != nil {
		registry.Plugins["more"] = w.plugin
		prof.Tiers[0] = append(slices.Clone(prof.Tiers[0]), engine.PluginUse{Name: "more"})
	}
	e, err := engine.New(prof, registry)
	if err != nil {
		t.Fatal(err)
	}
	if o.Records == nil {
		o.Records = &Records{}
	}
	w.records = o.Records
	if w.writer == nil {
		w.writer = w
	}
	w.loop = New(Parts{Feed: w, Engine: e, Binds: w.writer, Evictions: w.evictions, Nominations: w.rooms, Annotations: w, Statuses: w, Metrics: m}, o)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.loop.Run(ctx) }()
	t.Cleanup(func() {
		asked := time.Now()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(asked); took > time.Second {
			t.Errorf("it took %v to end", took)
		}
	})
	return w
}

// set changes, or reads, the world while the loop is at work.
func (w *fixture) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// happens lets the events come in.
func (w *fixture) happens(events ...cluster.Event) {
	w.set(func() { w.events = append(w.events, events...) })
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// pass lets time pass.
func (w *fixture) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *fixture) expect(what string, got *[]string, want ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := cmp.Diff(want, *got); d != "" {
		w.t.Errorf("%s: %s", what, d)
	}
	*got = nil
}

// gang is a gang of one pod per name, all of which must start together.
func gang(name string, pods ...string) []cluster.Event {
	key := kai.GangKey("a", name)
	out := []cluster.Event{cluster.GangState{
		Key: key, UID: "g-" + name, Queue: "q", Preemptible: true, MarkUnschedulable: true,
		Sets: []cluster.Set{{Name: cluster.DefaultSet, Leaf: true, Min: int32(len(pods)), Parent: cluster.None}},
	}}
	for _, p := range pods {
		out = append(out, pod(p, key, cluster.Pending, ""))
	}
	return out
}

func pod(name string, key cluster.Key, phase cluster.Phase, node string) cluster.PodState {
	return cluster.PodState{
		UID: "u-" + name, Namespace: "a", Name: name, Gang: key, Phase: phase, NodeName: node, Ours: true,
		Requests: []cluster.Quantity{{Name: "cpu", Value: 100}, {Name: "gpu", Value: 1000}, {Name: "pods", Value: 1}},
	}
}

func (w *fixture) count(n *int) (out int) {
	w.set(func() { out = *n })
	return out
}

// reports returns what was published since the last call.
func (w *fixture) reports() (out []string) {
	w.set(func() { out, w.published = w.published, nil })
	return out
}

func (w *fixture) runs() int {
	return int(counter(w.metrics.runs))
}

func TestWaitsForTheFeed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, func(w *fixture) { w.synced.Store(false); w.happens(gang("g", "p")...) })
		w.pass(5 * time.Second)
		w.expect("before the feed has everything", &w.plans)
		if w.count(&w.restored) != 0 {
			t.Error("reasons were restored from a cache that is not complete")
		}
		w.synced.Store(true)
		w.pass(50 * time.Millisecond)
		w.expect("with everything", &w.plans, "5.01 p")
		if n := w.count(&w.restored); n != 1 {
			t.Errorf("restored %d times", n)
		}
	})
}

// past is a history of usage whose news come from the test.
type past struct {
	mu      sync.Mutex
	settled bool
	changed chan struct{}
	news    []cluster.Event
	seen    int
}

func (p *past) Settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settled
}
func (p *past) Changed() <-chan struct{} { return p.changed }

func (p *past) Drain(s *cluster.Store) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.news)
	for _, e := range p.news {
		s.Apply(e)
	}
	p.news = nil
	return n
}

func (p *past) Observe(*cluster.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen++
}

func (p *past) tell(settled bool, gpus int64) {
	p.mu.Lock()
	p.settled = settled
	p.news = append(p.news, cluster.UsageState{Queues: map[string][]cluster.Quantity{"q": {{Name: "gpu", Value: gpus}}}})
	p.mu.Unlock()
	p.changed <- struct{}{}
}

// TestUsage: scheduling waits for the past, each change of it is decided on at once, and none is not.
func TestUsage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &past{changed: make(chan struct{}, 1)}
		w := begin(t, Options{Usage: h}, func(w *fixture) { w.happens(gang("g", "p")...) })
		w.pass(5 * time.Second)
		w.expect("before the past is known", &w.plans)
		h.tell(true, 100)
		w.pass(100 * time.Millisecond)
		w.expect("with the past", &w.plans, "5.00 p")
		w.pass(3 * time.Second)
		for gpus, more := range map[int64]int{100: 0, 101: 1} {
			runs := w.runs()
			h.tell(true, gpus)
			w.pass(60 * time.Millisecond)
			if got := w.runs() - runs; gpus == 101 && got != more || got > more {
				t.Errorf("usage %d: %d more runs, want %d", gpus, got, more)
			}
			h.tell(true, 100)
			w.pass(3 * time.Second)
		}
		if h.seen != w.runs() {
			t.Errorf("the past was shown %d of %d looks", h.seen, w.runs())
		}
	})
}

// measured tells how busy nodes are.
type measured struct {
	changed chan struct{}
	news    []cluster.Event
}

func (m *measured) Changed() <-chan struct{} { return m.changed }

func (m *measured) Drain(s *cluster.Store) int {
	n := len(m.news)
	s.Apply(m.news...)
	m.news = nil
	return n
}

// TestNodeUse: nobody waits to be told how busy nodes are; what is told is decided on at once, and the same again is not.
func TestNodeUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &measured{changed: make(chan struct{}, 1)}
		w := begin(t, Options{NodeUse: h}, func(w *fixture) { w.happens(gang("g", "p")...) })
		w.pass(100 * time.Millisecond)
		w.expect("before anything is told", &w.plans, "0.00 p")
		w.pass(3 * time.Second)
		for i, percent := range []int64{10, 10, 11} {
			runs := w.runs()
			h.news = append(h.news, cluster.ObjectState{Kind: cluster.NodeUses, Key: "n", Object: &cluster.NodeUse{CPU: percent}})
			h.changed <- struct{}{}
			w.pass(60 * time.Millisecond)
			if got := w.runs() - runs; (got == 0) != (i == 1) {
				t.Errorf("told %d percent: %d more runs", percent, got)
			}
			w.pass(3 * time.Second)
		}
	})
}

func TestRunsOnChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, nil)
		w.pass(500 * time.Millisecond)
		idle := w.runs()
		w.happens(gang("g", "p", "q")...)
		w.pass(time.Millisecond)
		w.expect("decided at once", &w.plans, "0.50 p q")
		w.pass(time.Minute)
		if n := w.runs() - idle; n > 2 {
			t.Errorf("%d runs for one change", n)
		}
		idle = w.runs()
		for range 100 {
			w.happens() // a change that is none
			w.pass(30 * time.Millisecond)
		}
		if n := w.runs() - idle; n > 0 {
			t.Errorf("%d runs without a change", n)
		}
		w.expect("nothing new", &w.plans)
	})
}

// TestSchedulePeriod: --schedule-period is the longest time between two looks.
func TestSchedulePeriod(t *testing.T) {
	t.Parallel()
	for _, period := range []time.Duration{time.Second, 7 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := begin(t, Options{Period: period}, nil)
			w.pass(time.Minute + time.Second/2)
			first := w.count(&w.drains)
			w.pass(10 * period)
			if n := w.count(&w.drains) - first; n != 10 {
				t.Errorf("period %v: %d looks in ten periods", period, n)
			}
		})
	}
}

// TestBurstIsOneRun: changes that come one after the other are decided on together.
func TestBurstIsOneRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, nil)
		w.pass(time.Second)
		before := w.runs()
		for i := range 1000 {
			w.happens(cluster.NodeState{Name: fmt.Sprintf("m%d", i), UID: "m"})
			w.pass(time.Millisecond)
		}
		if n := w.runs() - before; n > 55 {
			t.Errorf("%d runs in a second of changes", n)
		}
	})
}

// TestAssumedPodsAreNotDecidedTwice: however long the writes take, and whatever changes meanwhile.
func TestAssumedPodsAreNotDecidedTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, func(w *fixture) { w.slow = true; w.happens(gang("g", "p")...) })
		w.pass(30 * time.Second)
		w.happens(gang("h", "q", "r")...)
		w.write()
		w.pass(30 * time.Second)
		w.expect("the second gang has no room while the first is on its way", &w.plans, "0.00 p")
		w.happens(gang("i", "s")...)
		w.pass(time.Second)
		w.expect("the room left", &w.plans, "60.00 s")
		w.happens(pod("p", kai.GangKey("a", "g"), cluster.Running, "n1"))
		w.pass(58 * time.Second)
		w.expect("confirmed", &w.plans)
	})
}

// TestHeldBack: while too many decisions are to be written, nothing more is decided. The world is followed meanwhile, reasons are told, and how long
// it lasted; and when there is room, what has come is decided at once.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, func(w *fixture) { w.slow = true; w.happens(gang("g", "p")...) })
		w.pass(time.Second)
		w.expect("decided", &w.plans, "0.00 p")
		runs, looks := w.runs(), w.count(&w.drains)
		w.happens(gang("h", "q")...)
		w.pass(10*time.Second + 500*time.Millisecond)
		w.expect("while too much is queued", &w.plans)
		if n := w.runs() - runs; n != 0 {
			t.Errorf("%d runs meanwhile", n)
		}
		if n := w.count(&w.drains) - looks; n < 9 || n > 30 {
			t.Errorf("%d looks in ten seconds", n)
		}
		if s := counter(w.metrics.heldBack); s < 9 || s > 11 {
			t.Errorf("held back for %v seconds", s)
		}
		w.write()
		w.pass(time.Millisecond)
		w.expect("there is room", &w.plans, "11.50 q")
		held := counter(w.metrics.heldBack)
		w.pass(10 * time.Second)
		if s := counter(w.metrics.heldBack); s != held {
			t.Errorf("then held back for %v seconds more", s-held)
		}
	})
}

// TestLostDecisionIsMadeAnew: a decision that nobody confirms or fails is forgotten after two minutes.
func TestLostDecisionIsMadeAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour}, func(w *fixture) { w.happens(gang("g", "p")...) })
		w.pass(3 * time.Minute)
		w.expect("twice, two minutes apart", &w.plans, "0.00 p", "120.00 p")
	})
}

// TestFailedBundleIsForgottenAndWaits: whole, longer each time, up to a minute.
func TestFailedBundleIsForgottenAndWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour, Gap: time.Nanosecond}, func(w *fixture) {
			w.failures = []apply.Failure{}
			w.happens(gang("g", "p", "q")...)
		})
		w.pass(3*time.Minute + 30*time.Second)
		w.expect("doubling", &w.plans, "0.00 p q", "1.00 p q", "3.00 p q", "7.00 p q", "15.00 p q", "31.00 p q", "63.00 p q", "123.00 p q", "183.00 p q")
		if n := counter(w.metrics.failedBundles); n != 9 {
			t.Errorf("%v failures counted", n)
		}
	})
}

// TestRoomGoneIsDecidedAnew: the room of a gang goes between the decision and the write of its second pod. Nothing of it is left, and the gang
// is decided on anew.
func TestRoomGoneIsDecidedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kinds := runtime.NewScheme()
		if err := errors.Join(v1.AddToScheme(kinds), v1alpha2.AddToScheme(kinds)); err != nil {
			t.Fatal(err)
		}
		asked, let := make(chan string), make(chan struct{})
		serial := 0
		api := fake.NewClientBuilder().WithScheme(kinds).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
				if br, ok := obj.(*v1alpha2.BindRequest); ok {
					asked <- br.Name + " " + br.Spec.SelectedNode
					<-let
					serial++
					br.UID = types.UID(fmt.Sprint(serial))
				}
				return c.Create(ctx, obj, o...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, _ ...client.DeleteOption) error {
				return c.Delete(ctx, obj)
			},
		}).Build()
		for _, name := range []string{"p", "q"} {
			if err := api.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID("u-" + name)}}); err != nil {
				t.Fatal(err)
			}
		}
		var known atomic.Pointer[cluster.Snapshot]
		pool := apply.NewPool(nil)
		binds := apply.NewBinds(pool, api, api, apply.BindOptions{Workers: 1, Latest: known.Load})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- pool.Run(ctx) }()
		w := begin(t, Options{Known: known.Store}, func(w *fixture) { w.writer = binds; w.happens(gang("g", "p", "q")...) })
		w.expect("asked for", &[]string{<-asked}, "p n1")
		other := []cluster.Event{cluster.NodeState{Name: "n2", UID: "n2", Allocatable: []cluster.Quantity{{Name: "cpu", Value: 64000}, {Name: "memory", Value: 1 << 40}, {Name: "gpu", Value: 2000}, {Name: "pods", Value: 110}}}}
		stranger := pod("stranger", cluster.Key{}, cluster.Running, "n1")
		stranger.Ours, stranger.Requests[1].Value = false, 2000
		w.happens(append(other, stranger)...)
		w.pass(time.Second)
		let <- struct{}{}
		for _, name := range []string{"p", "q"} {
			w.expect("asked for anew", &[]string{<-asked}, name+" n2")
			let <- struct{}{}
		}
		w.pass(time.Minute)
		var list v1alpha2.BindRequestList
		if err := api.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		bundles := map[string]int{}
		for i := range list.Items {
			bundles[list.Items[i].Spec.SelectedNode+" "+list.Items[i].Labels[kai.BundleSizeLabel]]++
		}
		if d := cmp.Diff(map[string]int{"n2 2": 2}, bundles); d != "" {
			t.Error(d)
		}
		if n := counter(w.metrics.failedBundles); n != 1 {
			t.Errorf("%v failures", n)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestFailureLeavesOthersAlone: while the failed gang waits, another one takes the room.
func TestFailureLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Gap: time.Nanosecond}, func(w *fixture) { w.failures = []apply.Failure{}; w.happens(gang("g", "p", "q")...) })
		w.pass(100 * time.Millisecond)
		w.set(func() { w.failures = nil })
		w.happens(gang("h", "r", "s")...)
		w.pass(10 * time.Second)
		w.expect("the other one", &w.plans, "0.00 p q", "0.10 r s")
	})
}

func TestStaleRequestsAreRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, func(w *fixture) {
			w.stale = []feed.StaleBindRequest{{Namespace: "a", Name: "p", UID: "1", PodUID: "u-p", Reason: feed.Failed}}
			w.happens(gang("g", "p")...)
		})
		w.pass(900 * time.Millisecond)
		w.expect("the pod of a failed request waits a second", &w.plans)
		w.pass(8 * time.Second)
		w.expect("and then not", &w.plans, "1.00 p")
		w.expect("once while the delete is on its way", &w.removed, "0.00 p")
		w.pass(3 * time.Second)
		w.set(func() { w.stale = nil })
		w.expect("again when it is still there", &w.removed, "10.00 p")
		w.pass(time.Minute)
		w.expect("no more", &w.removed)

		w.set(func() {
			w.full = true
			w.stale = []feed.StaleBindRequest{{Namespace: "a", Name: "x", UID: "2", Reason: feed.NodeGone}}
		})
		w.pass(2 * time.Second)
		w.set(func() { w.full = false })
		w.pass(2 * time.Second)
		w.set(func() {
			if len(w.removed) != 1 {
				t.Errorf("a delete for which there was no room was asked for %d times afterwards", len(w.removed))
			}
		})
	})
}

// TestFailedBindingIsTold: a pod whose bind came to nothing is told in KAI's event, one of a gang for all of it, and not when the
// pod itself had changed.
func TestFailedBindingIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		var w *fixture
		o := Options{Period: time.Hour, Event: func(about client.Object, kind, reason, text string) {
			w.set(func() {
				told = append(told, strings.Join([]string{about.GetNamespace(), about.GetName(), string(about.GetUID()), kind, reason, text}, " "))
			})
		}}
		begin(t, o, func(of *fixture) {
			w = of
			w.failures = []apply.Failure{}
			w.happens(gang("g", "p", "q")...)
		})
		w.pass(500 * time.Millisecond)
		w.expect("refused", &told, "a p u-p Warning FailedBinding node n1 was chosen, which could not be written; it will be chosen anew: refused")
		w.set(func() {
			w.failures = []apply.Failure{{Bundle: engine.Bundle{Intents: []engine.Intent{{Verb: engine.Bind, Namespace: "a", Pod: "p", UID: "u-p"}}}, Err: apply.ErrMoved}}
			w.stale = []feed.StaleBindRequest{{Namespace: "a", Name: "r", Pod: "r", UID: "1", PodUID: "u-r", Node: "n1", Reason: feed.Failed}}
		})
		w.happens(gang("h", "other")...)
		w.pass(200 * time.Millisecond)
		w.set(func() {
			given := 0
			for _, line := range told {
				if line == "a r u-r Warning FailedBinding the binder could not bind the pod to node n1; a node will be chosen anew" {
					given++
				}
				if strings.Contains(line, apply.ErrMoved.Error()) {
					t.Errorf("told besides: %s", line)
				}
			}
			if given != 1 {
				t.Errorf("given up: %v", told)
			}
		})
	})
}

// TestFailsBeforeItIsSeen: a request may fail so soon that nobody saw it stand. Its decision is not taken for granted then.
func TestFailsBeforeItIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, func(w *fixture) { w.happens(gang("g", "p")...) })
		w.pass(900 * time.Millisecond)
		w.expect("decided", &w.plans, "0.00 p")
		w.set(func() {
			w.stale = []feed.StaleBindRequest{{Namespace: "a", Name: "p", UID: "1", PodUID: "u-p", Reason: feed.Failed}}
		})
		w.happens(gang("h", "other")...) // something to look up for
		w.pass(5 * time.Second)
		w.expect("decided anew", &w.plans, "0.90 other", "1.90 p")
	})
}

// TestReasonsAreToldAtOnce: the first run of a gang has its reason, whatever the reason; and reasons are looked at again
// when they ask for it, and not more than five times a second.
func TestReasonsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{Period: time.Hour}, nil)
		w.pass(time.Second)
		w.reports()
		notReady := gang("unready", "a1", "a2")[:2]
		lost := gang("lost", "b1")
		state := lost[0].(cluster.GangState)
		state.Queue = "nowhere"
		lost[0] = state
		w.happens(append(append(notReady, lost...), gang("big", "c1", "c2", "c3")...)...)
		w.pass(time.Millisecond)
		first := w.reports()
		if len(first) != 1 {
			t.Fatalf("published %v", first)
		}
		for _, want := range []string{"unready:GangNotReady", "lost:QueueDoesNotExist", "big:GangNoRoom"} {
			if !containsWord(first[0], want) {
				t.Errorf("%q lacks %s", first[0], want)
			}
		}
		w.pass(time.Minute)
		w.expect("nobody asked", &w.published)
		w.set(func() { w.settle = 3 * time.Second })
		w.happens(cluster.NodeState{Name: "n2", UID: "n2"})
		w.pass(7 * time.Second)
		if got := w.reports(); len(got) != 3 {
			t.Errorf("asked for every three seconds: %v", got)
		}
		w.set(func() { w.settle = 0 })
		for i := range 40 {
			w.happens(cluster.NodeState{Name: fmt.Sprintf("m%d", i), UID: "m"})
			w.pass(50 * time.Millisecond)
		}
		if n := len(w.reports()); n > 11 || n < 9 {
			t.Errorf("published %d times in two seconds of changes", n)
		}
	})
}

// TestEndsWhileWritersAreSlow: begin's cleanup measures it.
func TestEndsWhileWritersAreSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := begin(t, Options{}, func(w *fixture) { w.slow = true; w.happens(gang("g", "p")...) })
		w.pass(time.Second)
		w.expect("submitted", &w.plans, "0.00 p")
	})
}
