package scheduler

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/dialect/kai"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/plugins/proportion"
)

// TestWaitingByQueue: every queue that exists has a series, at 0 too; what names a queue that does not exist shares one, so
// that nobody makes series by writing names; a queue that is gone takes its series with it.
func TestWaitingByQueue(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m, err := NewMetrics("kai", "default", r)
	if err != nil {
		t.Fatal(err)
	}
	store := cluster.NewStore(cluster.Options{})
	store.Apply(cluster.QueueState{Name: "q", UID: "q"}, cluster.QueueState{Name: "idle", UID: "idle"})
	var waits []engine.GangTrace
	for i := range 3 {
		name := fmt.Sprint("lost", i)
		for _, s := range gang(name, name) {
			if g, ok := s.(cluster.GangState); ok {
				g.Queue = "no-such-" + name
				s = g
			}
			store.Apply(s)
		}
		waits = append(waits, waiting(name))
	}
	store.Apply(gang("g", "p")...)
	waits = append(waits, waiting("g"))
	run := func() {
		snap := store.Snapshot(cluster.Instant{}.Add(time.Hour))
		for i := range waits {
			waits[i].ID = snap.GangByKey(waits[i].Gang).ID
		}
		m.run(snap, &engine.Result{Trace: engine.Trace{Gangs: waits}}, 3*time.Millisecond)
	}
	run()
	compare := func(want string) {
		t.Helper()
		head := "# HELP muster_queue_waiting_gangs Gangs that wait, by queue, after the last run; of queues that do not exist, together under an empty name.\n# TYPE muster_queue_waiting_gangs gauge\n"
		if err := testutil.GatherAndCompare(r, strings.NewReader(head+want), "muster_queue_waiting_gangs"); err != nil {
			t.Error(err)
		}
	}
	compare("muster_queue_waiting_gangs{queue_name=\"\"} 3\nmuster_queue_waiting_gangs{queue_name=\"idle\"} 0\nmuster_queue_waiting_gangs{queue_name=\"q\"} 1\n")
	store.Apply(cluster.QueueGone{Name: "idle"})
	waits = waits[:0]
	run()
	compare("muster_queue_waiting_gangs{queue_name=\"q\"} 0\n")
	for kind, want := range map[string]float64{"gang": 4, "queue": 2, "node": 0} {
		if got := testutil.ToFloat64(m.pulse.objects.WithLabelValues(kind)); got != want {
			t.Errorf("%v objects of kind %s, want %v (counted once a second)", got, kind, want)
		}
	}
}

func waiting(name string) engine.GangTrace {
	return engine.GangTrace{Gang: kai.GangKey("a", name), Diagnosis: &engine.Diagnosis{Verdict: engine.Verdict{Code: engine.No, Reason: proportion.ReasonOverLimit}}}
}

// TestDrained: the lag is what the oldest change waited.
func TestDrained(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	m, err := NewMetrics("kai", "default", r)
	if err != nil {
		t.Fatal(err)
	}
	m.Drained(3, 20*time.Millisecond)
	m.Drained(1, 2*time.Second)
	if n := counter(m.pulse.events); n != 4 {
		t.Errorf("%v objects, want 4", n)
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "muster_feed_lag_seconds" {
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 2.02 {
				t.Errorf("lag: %v", h)
			}
			return
		}
	}
	t.Error("no muster_feed_lag_seconds")
}

// TestStory: a decision is a line with the keys that docs/operations/logs.md promises, at level 3 and not below.
func TestStory(t *testing.T) {
	t.Parallel()
	store := cluster.NewStore(cluster.Options{})
	store.Apply(gang("g", "p")...)
	p := &engine.Plan{Action: "reclaim", Bundles: []engine.Bundle{
		{ID: "b1", Gang: kai.GangKey("a", "g"), Intents: []engine.Intent{{Verb: engine.Nominate}, {Verb: engine.Evict}, {Verb: engine.Evict}}},
		{ID: "b2", Gang: kai.GangKey("a", "gone"), Intents: []engine.Intent{{Verb: engine.Bind}}},
	}}
	for verbosity, want := range map[int]string{2: "", 3: `"level"=3 "msg"="decided" "gang"="a/g" "queue"="q" "bundle"="b1" "action"="reclaim" "binds"=0 "nominations"=1 "evictions"=2
"level"=3 "msg"="decided" "gang"="a/gone" "queue"="" "bundle"="b2" "action"="reclaim" "binds"=1 "nominations"=0 "evictions"=0
`} {
		got := ""
		log := funcr.New(func(_, line string) { got += line + "\n" }, funcr.Options{Verbosity: verbosity})
		story(log.V(3), p, gangsOf(p, store, store.Snapshot(cluster.Instant{})))
		if got != want {
			t.Errorf("at verbosity %d:\n%s\nwant:\n%s", verbosity, got, want)
		}
	}
}
