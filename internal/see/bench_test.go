package see

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/explain"
	"github.com/muster-scheduler/muster/internal/sim"
)

// crowd is a cluster of so many nodes that is full, so many gangs that wait, and a history of as much work as the cluster can take.
func crowd(b *testing.B, nodes, waiting int) (*Cycle, *History) {
	b.Helper()
	s, source := newStage(b, nodes, "a", "b", "c", "d"), newRandom(1, 1)
	sizes := []int64{1, 1, 1, 2, 2, 4, 8, 8}
	names := []string{"prep", "eval", "train", "tune", "embed", "index", "label", "fold"}
	took := func() time.Duration {
		return time.Duration(4 * math.Exp(math.Sqrt2*math.Erfinv(2*source.unit()-1)-0.5) * float64(time.Hour))
	}
	free, total := int64(8*nodes), 0.0
	for _, g := range sizes {
		total += float64(g) / float64(len(sizes))
	}
	for i, behind := 0, 0; behind < waiting; i++ {
		k, q := i%len(sizes), string(rune('a'+i%4))
		s.submit(fmt.Sprintf("%s-%d", names[k], i), q, sizes[k], 0, Work{Kind: "Job", Stem: names[k]})
		if free -= sizes[k]; free < 0 {
			behind++
		}
	}
	s.live(time.Minute, nil)
	h := &History{}
	c := s.cycle()
	if err := h.Learn(c); err != nil {
		b.Fatal(err)
	}
	day := int64(24 * time.Hour)
	h.Began = s.Now().Add(-7 * time.Duration(day))
	// Work comes as fast as the cluster can do it.
	gap := time.Duration(total * 4 / float64(8*nodes) * float64(time.Hour))
	for at, i := h.Began, 0; at.Before(s.Now()); at, i = at.Add(gap), i+1 {
		k, q := i%len(sizes), string(rune('a'+i%4))
		w, shape := Work{Kind: "Job", Stem: names[k]}, Shape{Pods: 1, Min: 1, Requests: sim.Room(sizes[k]*1000, 1000, 1<<30, 1), Priority: 50}
		h.Arrivals = append(h.Arrivals, Arrival{At: at, Queue: q, Shape: shape, Work: w})
		if len(h.Runs) < maxRuns {
			h.Runs = append(h.Runs, Run{Queue: q, Size: shape.size(), Work: w, At: at, Took: took(), Ended: true})
		}
	}
	return c, h
}

// BenchmarkForecast is an outlook of 24 h for 300 gangs that wait on 500 nodes that are full, by draws: how long one draw takes, and how long 32
// would, in seconds of processor time (of this process, collection of garbage included). "day" has a gang among them that never starts, so
// that no draw ends before the day does.
func BenchmarkForecast(b *testing.B) {
	for _, whole := range []bool{false, true} {
		name := "starts"
		if whole {
			name = "day"
		}
		b.Run(name, func(b *testing.B) {
			c, h := crowd(b, 500, 300)
			if whole {
				for i, e := range c.Case.Image.Events {
					if p, ok := e.(cluster.PodState); ok && p.Phase == cluster.Pending {
						p.Requests = sim.Room(9000, 1000, 1<<30, 1)
						c.Case.Image.Events[i] = p
						break
					}
				}
			}
			const n = 8
			before := spent()
			for b.Loop() {
				o, err := Forecast(b.Context(), c, h, Draws{N: n})
				if err != nil {
					b.Fatal(err)
				}
				if len(o.Gangs) < 300 {
					b.Fatalf("%d gangs wait", len(o.Gangs))
				}
			}
			each := (spent() - before).Seconds() / float64(b.N) / n
			b.ReportMetric(each, "s/draw")
			b.ReportMetric(32*each, "s/32draws")
		})
	}
}

// spent is the processor time of this process.
func spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// queued is a full cluster of so many nodes in which so many gangs of fifty shapes wait.
func queued(b *testing.B, nodes, waiting int) *Cycle {
	b.Helper()
	s := newStage(b, nodes, "a", "b", "c", "d")
	for i := range nodes {
		s.submit(fmt.Sprintf("runs-%d", i), string(rune('a'+i%4)), 8, 0, Work{})
	}
	s.live(time.Minute, nil)
	for i := range waiting {
		shape := i % 50
		pods := 1 + shape%5
		if err := s.Submit(sim.Gang{Name: fmt.Sprintf("waits-%d", i), Queue: string(rune('a' + i%4)), Pods: pods, Requests: sim.Room(int64(1+shape/5)*1000, 1000, 1<<30, 1), Priority: 50}); err != nil {
			b.Fatal(err)
		}
	}
	return s.cycle()
}

// BenchmarkExplain is what questions cost on 500 full nodes on which 2,000 gangs of 50 shapes (and four queues) wait: "one" the answer for one gang of a
// cycle that was looked at, with its 99th percentile; "cycle" the first answer of a new cycle; "all" those of all gangs anew; "inline" one, proven
// at its place; "whatif" one change.
func BenchmarkExplain(b *testing.B) { explaining(b, 500, 2000) }

// BenchmarkExplainLarge is BenchmarkExplain of 5,000 nodes and 10,000 gangs of 50 shapes.
func BenchmarkExplainLarge(b *testing.B) { explaining(b, 5000, 10000) }

func explaining(b *testing.B, nodes, waiting int) {
	b.Helper()
	c := queued(b, nodes, waiting)
	fresh := func() *Cycle { return &Cycle{Cluster: c.Cluster, Case: c.Case, Registry: c.Registry} }
	key := func(i int) cluster.Key { return sim.Key(fmt.Sprintf("waits-%d", i%waiting)) }
	b.Run("one", func(b *testing.B) {
		k := fresh()
		if _, err := Explain(b.Context(), k, key(0)); err != nil {
			b.Fatal(err)
		}
		var took []time.Duration
		for i := 0; b.Loop(); i++ {
			at := time.Now()
			if _, err := Explain(b.Context(), k, key(i*37)); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(at))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
	})
	b.Run("cycle", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			if _, err := Explain(b.Context(), fresh(), key(i*37)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			k := fresh()
			for i := range waiting {
				if _, err := Explain(b.Context(), k, key(i)); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("inline", func(b *testing.B) {
		k := fresh()
		if _, err := Explain(b.Context(), k, key(0)); err != nil {
			b.Fatal(err)
		}
		for i := 0; b.Loop(); i++ {
			if _, err := InLine(b.Context(), k, key(i*37+waiting*7/10)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whatif", func(b *testing.B) {
		for b.Loop() {
			if _, err := WhatIf(b.Context(), fresh(), []*explain.Change{explain.MoreNodes("node-000", 1)}, Horizon{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
