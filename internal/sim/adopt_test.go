package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestClusterFromGoesOn: a cluster that is started from an image of another in mid-flight lives on as that one does: the same gangs start at the
// same times, evictions, graces and gangs that have part of their pods included. (But for a second or so: answers that rest are as old as
// they were, yet ages are counted in changes, and the two stores were not changed equally often. A second may be enough for another choice of victims: two worlds of the forty may go another way.)
func TestClusterFromGoesOn(t *testing.T) {
	t.Parallel()
	starts, evicted, apart := 0, 0, 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 17))
		durations := map[string]time.Duration{}
		var gangs []Gang
		at := time.Duration(0)
		for i := range 40 {
			at += time.Duration(r.IntN(60)) * time.Second
			g := Gang{
				Name: fmt.Sprintf("g%02d", i), Queue: []string{"a", "b"}[r.IntN(2)], At: at, Pods: 1 + r.IntN(4), Requests: Room(int64(1+r.IntN(4))*1000, 0, 0, 1),
				Priority: 50, Duration: time.Duration(60+r.IntN(400)) * time.Second,
			}
			g.Min = 1 + r.IntN(g.Pods)
			durations[g.Name] = g.Duration
			gangs = append(gangs, g)
		}
		from := func(after time.Duration) func() (Gang, bool) {
			i := 0
			for i < len(gangs) && gangs[i].At <= after {
				i++
			}
			return func() (Gang, bool) {
				if i == len(gangs) {
					return Gang{}, false
				}
				g := gangs[i]
				g.At -= after
				i++
				return g, true
			}
		}
		half := cluster.Instant{}
		var told map[string]bool
		started := func(g cluster.Key, _ []string, _ cluster.Key, _ cluster.Instant) { told[g.Name] = true }
		o := Options{Grace: 30 * time.Second, Arrivals: from(-1), Started: started}
		w := small(t, o)
		o.Engine = w.o.Engine
		live := func(w *Cluster, to cluster.Instant) map[string][]float64 {
			told = map[string]bool{}
			log := map[string][]float64{}
			for w.Now().Before(to) {
				if err := w.Advance(w.Now().Add(time.Second)); err != nil {
					t.Fatal(err)
				}
				if w.Due() {
					if _, err := w.Decide(t.Context()); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
				for name := range told { // order: each on its own
					log[name] = append(log[name], float64(w.Now().Sub(half))/1e9)
					delete(told, name)
				}
			}
			return log
		}
		half = w.Now().Add(10 * time.Minute)
		live(w, half)
		im := w.Store.Snapshot(w.Now()).Image()
		o.Arrivals = from(10 * time.Minute)
		again := NewClusterFrom(o, &im, func(g *cluster.GangState) time.Duration { return durations[g.Key.Name] })
		end := half.Add(30 * time.Minute)
		before := w.Figures.EvictedPods
		want := live(w, end)
		if diff := cmp.Diff(want, live(again, end), cmpopts.EquateApprox(0, 3)); diff != "" {
			t.Logf("seed %d: starts (-the first cluster +the one from its image):\n%s", seed, diff)
			apart++
		}
		starts, evicted = starts+len(want), evicted+w.Figures.EvictedPods-before
	}
	if t.Logf("%d starts, %d evictions; %d of 40 worlds went another way", starts, evicted, apart); starts < 400 || evicted < 20 || apart > 2 {
		t.Error("too few starts, or too many other ways")
	}
}

// TestWorldFromPast: a gang whose time is over when the image is taken ends in the first moment, one that has no end stays; a pod that was
// to be gone by then goes; a clock that was set back makes nothing negative.
func TestWorldFromPast(t *testing.T) {
	t.Parallel()
	w := small(t, Options{Grace: time.Minute})
	for _, name := range []string{"over", "stays"} {
		if err := w.Submit(Gang{Name: name, Queue: "a", Pods: 1, Requests: Room(8000, 0, 0, 1)}); err != nil {
			t.Fatal(err)
		}
	}
	until(t, w, func() bool { return w.Held("a") == 16000 })
	for _, back := range []time.Duration{-time.Hour, 0, time.Hour} {
		im := w.Store.Snapshot(w.Now()).Image()
		im.Now = im.Now.Add(-back)
		after := ""
		o := Options{Engine: w.o.Engine, Started: func(g cluster.Key, _ []string, last cluster.Key, _ cluster.Instant) {
			after = g.Name + " after " + last.Name
		}}
		again := NewClusterFrom(o, &im, func(g *cluster.GangState) time.Duration {
			if g.Key.Name == "over" {
				return time.Nanosecond
			}
			return 0
		})
		if err := again.Submit(Gang{Name: "next", Queue: "a", Pods: 1, Requests: Room(8000, 0, 0, 1), Duration: time.Minute}); err != nil {
			t.Fatal(err)
		}
		until(t, again, func() bool { return again.Held("a") == 8000 && again.Figures.Ended == 2 })
		if after != "next after over" {
			t.Errorf("told: %q", after)
		}
		if took := again.Elapsed(); took > 2*time.Minute {
			t.Errorf("set back by %s: it took %s", back, took)
		}
	}
}

// TestCoarse: a world that decides every ten minutes starts work, one after the other, about when one that decides every second does.
func TestCoarse(t *testing.T) {
	t.Parallel()
	starts := func(coarse bool, least time.Duration) (out []time.Duration) {
		var w *Cluster
		w = small(t, Options{Coarse: coarse, Started: func(_ cluster.Key, _ []string, _ cluster.Key, since cluster.Instant) {
			out = append(out, since.Sub(w.start))
		}})
		for i := range 30 {
			if err := w.Submit(Gang{Name: fmt.Sprintf("g%02d", i), Queue: "a", Pods: 1, Requests: Room(8000, 0, 0, 1), Duration: time.Duration(660+i*97%400) * time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		for len(out) < 30 {
			if more, err := w.StepAfter(t.Context(), least); err != nil || !more {
				t.Fatalf("%d have started: %v", len(out), err)
			}
		}
		slices.Sort(out)
		return out
	}
	fine, coarse, late := starts(false, time.Second), starts(true, 10*time.Minute), starts(false, 10*time.Minute)
	for i := range fine {
		if off := (coarse[i] - fine[i]).Abs(); off >= 10*time.Minute {
			t.Errorf("the %d-th starts after %s, and in a coarse world after %s", i, fine[i], coarse[i])
		}
	}
	if late[29] < fine[29]+time.Hour {
		t.Errorf("without that the last starts after %s, not much later than %s: the test shows nothing", late[29], fine[29])
	}
}
