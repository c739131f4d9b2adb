package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
)

// small returns a cluster of two nodes of 8 GPUs and two queues of equal weight and quota.
func small(t *testing.T, o Options) *Cluster {
	t.Helper()
	var err error
	if o.Engine, err = engine.New(profile.BuiltIn(), builtin.Registry()); err != nil {
		t.Fatal(err)
	}
	w := NewCluster(o)
	for _, name := range []string{"n1", "n2"} {
		if err := w.AddNode(Node{Name: name, Allocatable: Room(8000, 64000, 1<<38, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		w.Store.Apply(cluster.QueueState{
			Name: name, UID: name, Priority: 100, Created: w.Now(),
			Quota:  []cluster.Quantity{{Name: "gpu", Value: 8000}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}},
			Weight: []cluster.Quantity{{Name: "gpu", Value: 1000}},
		})
	}
	return w
}

// until steps as long as anything happens, or until the condition holds, and returns the seconds since the start.
func until(t *testing.T, w *Cluster, done func() bool) float64 {
	t.Helper()
	for range 10_000 {
		if done() {
			return w.Elapsed().Seconds()
		}
		more, err := w.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			if done() {
				return w.Elapsed().Seconds()
			}
			t.Fatalf("nothing happens any more after %s", w.Elapsed())
		}
	}
	t.Fatalf("it does not come to that; it is %s", w.Elapsed())
	return 0
}

// TestGangLives: a gang starts when its minimum has room, works for its time without a break, and leaves nothing.
func TestGangLives(t *testing.T) {
	t.Parallel()
	w := small(t, Options{})
	if err := w.Submit(Gang{Name: "g", Queue: "a", Pods: 4, Min: 2, Requests: Room(4000, 0, 0, 1), Duration: time.Minute}); err != nil {
		t.Fatal(err)
	}
	until(t, w, func() bool { return w.Held("a") == 16000 })
	if got := until(t, w, func() bool { return w.Gangs() == 0 }); got != 61 {
		t.Errorf("it ended after %v s; it started after one and works for 60", got)
	}
	if w.Held("a") != 0 || len(w.pods) != 0 || w.Next() != cluster.Forever {
		t.Errorf("it left %d milli-GPU, %d pods, something at %d", w.Held("a"), len(w.pods), w.Next().UnixNano())
	}
	if f := w.Figures; f.Arrived != 1 || f.Ended != 1 || f.PlacedPods != 4 || f.PlacedGPU != 16000 || f.EvictedPods != 0 {
		t.Errorf("figures %+v", f)
	}
	if more, err := w.Step(t.Context()); err != nil || more {
		until(t, w, func() bool { return true })
	}
}

// TestOutage: pods on a node that fails are lost and made anew under other UIDs; the gang's work begins again; nobody gets a place
// there until the last outage is over.
func TestOutage(t *testing.T) {
	t.Parallel()
	outages := []Outage{{"n1", 30 * time.Second, 60 * time.Second}, {"n1", 40 * time.Second, 100 * time.Second}}
	w := small(t, Options{Outages: func() (Outage, bool) {
		if len(outages) == 0 {
			return Outage{}, false
		}
		o := outages[0]
		outages = outages[1:]
		return o, true
	}})
	if err := w.Submit(Gang{Name: "g", Queue: "a", Pods: 2, Requests: Room(8000, 0, 0, 1), Duration: 50 * time.Second}); err != nil {
		t.Fatal(err)
	}
	until(t, w, func() bool { return w.Held("a") == 16000 })
	first := slices.Sorted(func(yield func(string) bool) {
		for uid := range w.pods {
			if !yield(uid) {
				return
			}
		}
	})
	if diff := cmp.Diff([]string{"g-0#0", "g-1#0"}, first); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if got := until(t, w, func() bool { return w.Figures.LostPods == 1 }); got != 30 {
		t.Errorf("lost at %v s", got)
	}
	if got := until(t, w, func() bool { return w.Held("a") == 16000 }); got < 140 || got > 142 {
		t.Errorf("it has both nodes again at %v s; the second outage ends at 140", got)
	}
	if got := until(t, w, func() bool { return w.Gangs() == 0 }); got < 190 || got > 192 {
		t.Errorf("it ended at %v s; its 50 s began anew at about 140", got)
	}
	if w.Figures.Outages != 2 || w.Figures.LostPods != 1 {
		t.Errorf("figures %+v", w.Figures)
	}
}

// TestReclaimTakesItsTime: who is evicted goes after the grace; the room is kept for the beneficiary, which starts in the cycle after;
// the victim waits under another UID.
func TestReclaimTakesItsTime(t *testing.T) {
	t.Parallel()
	w := small(t, Options{Grace: 30 * time.Second})
	for i := range 2 {
		if err := w.Submit(Gang{Name: fmt.Sprint("greedy", i), Queue: "a", Pods: 1, Requests: Room(8000, 0, 0, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, w, func() bool { return w.Held("a") == 16000 })
	if err := w.Submit(Gang{Name: "own", Queue: "b", Pods: 1, Requests: Room(8000, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	began := until(t, w, func() bool { return w.Figures.EvictedPods == 1 })
	if w.Held("a") != 8000 || w.Held("b") != 0 {
		t.Errorf("at once: a holds %d, b %d", w.Held("a"), w.Held("b"))
	}
	got := until(t, w, func() bool { return w.Held("b") == 8000 })
	if got-began != 30 {
		t.Errorf("b started %v s after the eviction; the grace is 30", got-began)
	}
	if f := w.Figures; f.EvictedPods != 1 || f.ByCause[engine.Reclaim] != 1 || f.EvictedGPU != 8000 || f.Repeats != 0 || f.ShrunkPods != 0 {
		t.Errorf("figures %+v", f)
	}
	lives := 0
	for uid, p := range w.pods {
		if strings.HasSuffix(uid, "#1") && p.state.Phase == cluster.Pending {
			lives++
		}
	}
	if lives != 1 || len(w.pods) != 3 {
		t.Errorf("%d pods were made anew, of %d", lives, len(w.pods))
	}
}

// TestWorldErrors: what makes no sense is an error that names it.
func TestWorldErrors(t *testing.T) {
	t.Parallel()
	w := small(t, Options{})
	room := Room(1000, 0, 0, 1)
	if err := w.Submit(Gang{Name: "g", Queue: "a", Pods: 1, Requests: room}); err != nil {
		t.Fatal(err)
	}
	for want, g := range map[string]Gang{
		`gang "g": there is one of that name`:                    {Name: "g", Pods: 1},
		`gang "x": it has 0 pods; it must have at least one`:     {Name: "x"},
		`gang "x": it needs 3 of 2 pods`:                         {Name: "x", Pods: 2, Min: 3},
		`gang "x": its duration is -1s; it must not be negative`: {Name: "x", Pods: 2, Duration: -time.Second},
		`gang "x": it needs -1 of 2 pods`:                        {Name: "x", Pods: 2, Min: -1},
	} {
		if err := w.Submit(g); err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := w.AddNode(Node{Name: "n1"}); err == nil || err.Error() != `there are two nodes called "n1"` {
		t.Errorf("error %v", err)
	}
	sent := false
	w = small(t, Options{Outages: func() (Outage, bool) { sent = !sent; return Outage{Node: "n9"}, sent }})
	if err := w.Advance(w.Now()); err == nil || err.Error() != `outage of node "n9", which does not exist` {
		t.Errorf("error %v", err)
	}
	sent = false
	w = small(t, Options{Arrivals: func() (Gang, bool) { sent = !sent; return Gang{Name: "x"}, sent }})
	if _, err := w.Step(t.Context()); err == nil || !strings.Contains(err.Error(), `gang "x"`) {
		t.Errorf("error %v", err)
	}
}

// TestSameSeedSameWorld: one input gives one history.
func TestSameSeedSameWorld(t *testing.T) {
	t.Parallel()
	var reports [2]string
	for i := range reports {
		s, err := newSoak(5, 20, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.live(t.Context(), 300); err != nil {
			t.Fatal(err)
		}
		reports[i] = s.report()
	}
	if diff := cmp.Diff(reports[0], reports[1]); diff != "" {
		t.Errorf("twice the same differs:\n%s", diff)
	}
}

// TestArrivals: streams are merged by time, each sends what it was told to, and a seed decides what varies.
func TestArrivals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var streams []Stream
		total := 0
		for i := range rapid.IntRange(0, 4).Draw(t, "streams") {
			s := Stream{
				Name: fmt.Sprint("s", i), First: time.Duration(rapid.IntRange(0, 50).Draw(t, "first")) * time.Second,
				Every: time.Duration(rapid.IntRange(0, 9).Draw(t, "every")) * time.Second, Count: rapid.IntRange(0, 20).Draw(t, "count"),
				Random: rapid.Bool().Draw(t, "random"), Pods: 1, Duration: time.Hour,
			}
			if s.Every == 0 || s.Count > 0 {
				total += s.Count
				streams = append(streams, s)
			}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		next, again := Arrivals(seed, streams), Arrivals(seed, streams)
		last, names := time.Duration(0), map[string]bool{}
		for range total {
			g, ok := next()
			h, _ := again()
			if !ok || g.At < last || names[g.Name] || g.Duration < time.Second {
				t.Fatalf("after %s: %+v, %v", last, g, ok)
			}
			if diff := cmp.Diff(g, h); diff != "" {
				t.Fatalf("the same seed:\n%s", diff)
			}
			last, names[g.Name] = g.At, true
		}
		if g, ok := next(); ok {
			t.Fatalf("one more: %+v", g)
		}
	})
	endless := Arrivals(1, []Stream{{Name: "s", Every: time.Second, Pods: 1}})
	for k := range 1000 {
		if g, ok := endless(); !ok || g.At != time.Duration(k)*time.Second || g.Duration != 0 {
			t.Fatalf("%d: %+v, %v", k, g, ok)
		}
	}
	if Outages(1, nil, time.Second, time.Second) != nil {
		t.Error("outages of no nodes")
	}
}

// TestJain: the index is 1 for equal parts, 1/n when one has everything, and ignores who is entitled to nothing.
func TestJain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got, entitled []float64
		want          float64
	}{
		{[]float64{1, 2, 3}, []float64{2, 4, 6}, 1},
		{[]float64{8, 0, 0, 0}, []float64{1, 1, 1, 1}, 0.25},
		{[]float64{1, 1, 9}, []float64{1, 1, 0}, 1},
		{nil, nil, 1},
		{[]float64{0, 0}, []float64{1, 1}, 1},
		{[]float64{1, 3}, []float64{1, 1}, 0.8},
	} {
		if got := Jain(c.got, c.entitled); got != c.want {
			t.Errorf("Jain(%v, %v) = %v, want %v", c.got, c.entitled, got, c.want)
		}
	}
}
