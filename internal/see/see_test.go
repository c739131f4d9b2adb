package see

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/engine"
	"github.com/muster-scheduler/muster/internal/engine/builtin"
	"github.com/muster-scheduler/muster/internal/profile"
	"github.com/muster-scheduler/muster/internal/replay"
	"github.com/muster-scheduler/muster/internal/sim"
)

// stage is a cluster whose cycles are looked at.
type stage struct {
	*sim.Cluster
	t     testing.TB
	works map[cluster.Key]Work
}

// newStage has so many nodes of eight GPUs and a queue of its own for each name.
func newStage(t testing.TB, nodes int, queues ...string) *stage {
	t.Helper()
	e, err := engine.New(profile.BuiltIn(), builtin.Registry())
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Cluster: sim.NewCluster(sim.Options{Engine: e, Start: time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)}), t: t, works: map[cluster.Key]Work{}}
	for i := range nodes {
		if err := s.AddNode(sim.Node{Name: fmt.Sprintf("node-%03d", i), Allocatable: sim.Room(8000, 128_000, 1<<40, 250)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range queues {
		s.Store.Apply(cluster.QueueState{
			Name: q, UID: q, Priority: 100, Created: s.Now(), Weight: []cluster.Quantity{{Name: "gpu", Value: 1000}},
			Quota: []cluster.Quantity{{Name: "gpu", Value: int64(8000 * nodes / len(queues))}, {Name: "cpu", Value: cluster.Unlimited}, {Name: "memory", Value: cluster.Unlimited}},
		})
	}
	return s
}

// submit sends a gang of one pod.
func (s *stage) submit(name, queue string, gpus int64, took time.Duration, w Work) {
	s.t.Helper()
	s.works[sim.Key(name)] = w
	if err := s.Submit(sim.Gang{Name: name, Queue: queue, Pods: 1, Requests: sim.Room(gpus*1000, 1000, 1<<30, 1), Priority: 50, Duration: took}); err != nil {
		s.t.Fatal(err)
	}
}

// live lets time pass, a second at a time where something happens; each cycle is shown to the history.
func (s *stage) live(d time.Duration, h *History) {
	s.t.Helper()
	for end := s.Now().Add(d); s.Now().Before(end); {
		to := s.Now().Add(time.Second)
		if !s.Due() {
			to = cluster.Earliest(end, cluster.Latest(to, s.Next()))
		}
		if err := s.Advance(to); err != nil {
			s.t.Fatal(err)
		}
		if !s.Due() {
			continue
		}
		if _, err := s.Decide(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
		if h != nil {
			if err := h.Learn(s.cycle()); err != nil {
				s.t.Fatal(err)
			}
		}
	}
}

func (s *stage) cycle() *Cycle {
	return &Cycle{
		Cluster: "c1", Works: s.works, Registry: builtin.Registry(),
		Case: &replay.Case{Profile: profile.BuiltIn(), Image: s.Store.Snapshot(s.Now()).Image()},
	}
}

func (s *stage) forecast(h *History, d Draws) *Outlook {
	s.t.Helper()
	o, err := Forecast(s.t.Context(), s.cycle(), h, d)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// TestDeclared: a node is full with train-7, which its owner expects to take two hours, and which has run for half an hour. The next gang starts when
// it ends, and is told so in words; the one behind it when that has ended. What was told is scored when they start.
func TestDeclared(t *testing.T) {
	t.Parallel()
	s, h := newStage(t, 1, "a"), &History{}
	s.submit("train-7", "a", 8, 2*time.Hour, Work{Expected: 2 * time.Hour})
	s.live(30*time.Minute, h)
	s.submit("eval-1", "a", 8, time.Hour, Work{Expected: time.Hour})
	s.live(time.Second, h)
	s.submit("eval-2", "a", 8, time.Hour, Work{Expected: time.Hour})
	s.live(time.Second, h)
	o := s.forecast(h, Draws{N: 16})
	if len(o.Gangs) != 2 || o.Cluster != "c1" || o.APIVersion != "see.muster.dev/v1" || o.Unknown != 0 {
		t.Fatalf("outlook %+v", o)
	}
	for i, want := range []struct {
		at   time.Duration
		says string
	}{
		{2 * time.Hour, "train-7 ends"},
		{3 * time.Hour, "eval-1 ends"},
	} {
		g := o.Of(sim.Key(fmt.Sprintf("eval-%d", i+1)))
		at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC).Add(want.at)
		if off := g.P50.Sub(at); g.Word != Between || off < 0 || off > 3*time.Minute || g.Never != 0 || g.Decides != want.says || g.Part != 1 {
			t.Errorf("%s: %+v, off by %s", g.Gang, g, off)
		}
		if !g.P10.Before(g.P50) || !g.P50.Before(g.P90) || g.P90.Sub(g.P10) > 3*time.Hour {
			t.Errorf("%s: band %s %s %s", g.Gang, g.P10, g.P50, g.P90)
		}
		text := o.Text(g, time.UTC)
		for _, part := range []string{"between 1", " (8 in 10), if no more work comes; most likely when " + want.says + ".", "There is no record of such bands yet (0)."} {
			if !strings.Contains(text, part) {
				t.Errorf("%q lacks %q", text, part)
			}
		}
	}
	if text := o.Text(o.Of(sim.Key("eval-1")), time.FixedZone("", 3600)); !strings.Contains(text, "between 14:24 and 15:59") {
		t.Errorf("in another time zone: %s", text)
	}
	if o.Of(sim.Key("train-7")) != nil {
		t.Error("who runs has no forecast")
	}
	again := s.forecast(nil, Draws{N: 16})
	if a, b := o.Of(sim.Key("eval-1")).P50, again.Of(sim.Key("eval-1")).P50; a != b {
		t.Errorf("the same seed: %s and %s", a, b)
	}
	s.live(4*time.Hour, h)
	if r := h.Records[RecordKey{Queue: "a"}]; r == nil || r.Of != 2 || r.Held != 2 {
		t.Errorf("record %+v", r)
	}
	var took []time.Duration
	for _, r := range h.Runs {
		if r.Ended {
			took = append(took, r.Took.Round(time.Minute))
		}
	}
	if diff := cmp.Diff([]time.Duration{2 * time.Hour, time.Hour, time.Hour}, took); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// TestSameSeed: one input, one outlook; another seed, another.
func TestSameSeed(t *testing.T) {
	t.Parallel()
	var seen []*Outlook
	for _, seed := range []uint64{1, 1, 2} {
		s, h := busy(t)
		seen = append(seen, s.forecast(h, Draws{N: 8, Seed: seed}))
	}
	if diff := cmp.Diff(seen[0], seen[1]); diff != "" {
		t.Errorf("twice the same differs:\n%s", diff)
	}
	if cmp.Equal(seen[0].Gangs, seen[2].Gangs) {
		t.Error("another seed makes no difference")
	}
}

// busy is a stage on which runs of a stem have been learned, and some gangs wait.
func busy(t testing.TB) (*stage, *History) {
	s, h := newStage(t, 1, "a"), &History{}
	s.live(time.Minute, h)
	for i := range 60 {
		s.submit(fmt.Sprintf("train-%d", i), "a", 4, time.Duration(10+i*7%40)*time.Minute, Work{Kind: "Job", Stem: Stem(fmt.Sprintf("train-%d", i))})
		s.live(time.Duration(5+i*5%13)*time.Minute, h)
	}
	return s, h
}

// TestLearned: without a word of their owners, runtimes are learned from runs of the same stem, and said to be; so are arrivals.
func TestLearned(t *testing.T) {
	t.Parallel()
	s, h := busy(t)
	o := s.forecast(h, Draws{})
	if len(o.Gangs) < 3 || o.Past < 10*time.Hour || len(o.Notes) > 0 {
		t.Fatalf("%d wait, past %s, notes %v", len(o.Gangs), o.Past, o.Notes)
	}
	if text := o.Text(&o.Gangs[0], time.UTC); !strings.Contains(text, ", if work comes as in the last ") || !strings.Contains(text, " hours; ") {
		t.Errorf("text %q", text)
	}
	for i := range o.Gangs {
		g := &o.Gangs[i]
		if g.Runtime.How != RuntimeLearned || g.Runtime.By != "stem and amount" || g.Runtime.Runs < 20 || g.Word != Between {
			t.Errorf("%+v", g)
		}
	}
	// Another team's runs of another kind are no guide, but the cluster's are, where there is nothing nearer.
	r, same := learn(h, s.Now(), nil), h.Runs[0].Ask
	for _, c := range []struct {
		queue string
		ask   string
		w     Work
		how   string
		by    string
	}{
		{"a", same, Work{Kind: "Job", Stem: "train"}, RuntimeLearned, "stem and amount"},
		{"a", "", Work{Kind: "Job", Stem: "train"}, RuntimeLearned, "stem"},
		{"a", same, Work{Kind: "Job", Stem: "other"}, RuntimeLearned, "kind, queue and amount"},
		{"a", "", Work{Kind: "Job", Stem: "other"}, RuntimeLearned, "kind, queue and size"},
		{"a", same, Work{Kind: "Pod"}, RuntimeLearned, "queue"},
		{"b", same, Work{Kind: "Job", Stem: "train"}, RuntimeLearned, "cluster"},
		{"a", same, Work{Expected: time.Hour}, RuntimeDeclared, ""},
	} {
		if got := r.of(asker{c.queue, (&Shape{Pods: 1, Requests: sim.Room(4000, 0, 0, 1)}).size(), c.ask}, c.w); got.How != c.how || got.By != c.by {
			t.Errorf("%s %+v: %+v", c.queue, c.w, got.Source)
		}
	}
}

// notes are the codes of an outlook's notes.
func notes(o *Outlook) (out []NoteCode) {
	for _, n := range o.Notes {
		out = append(out, n.Code)
	}
	return out
}

// TestBadInput: each is told by its name, and nothing falls.
func TestBadInput(t *testing.T) {
	t.Parallel()
	t.Run("no history", func(t *testing.T) {
		s := newStage(t, 1, "a")
		s.submit("runs", "a", 8, time.Hour, Work{})
		s.live(time.Minute, nil)
		s.submit("waits", "a", 8, time.Hour, Work{})
		s.live(time.Second, nil)
		o := s.forecast(nil, Draws{N: 4})
		g := o.Of(sim.Key("waits"))
		if diff := cmp.Diff([]NoteCode{NoRuns, UnknownRuntimes, NoArrivals}, notes(o)); diff != "" || g.Word != Unknown || g.Never != 1 || g.Runtime.How != RuntimeUnknown || o.Unknown != 1 {
			t.Errorf("%+v, notes (-want +got):\n%s", g, diff)
		}
		if text := o.Text(g, time.UTC); text != "unknown: nobody knows how long 1 of the running gangs run, if no more work comes." {
			t.Errorf("text %q", text)
		}
	})
	t.Run("only a deadline", func(t *testing.T) {
		s := newStage(t, 1, "a")
		s.submit("runs", "a", 8, time.Hour, Work{Deadline: 3 * time.Hour})
		s.live(time.Minute, nil)
		s.submit("waits", "a", 8, time.Hour, Work{})
		s.live(time.Second, nil)
		o := s.forecast(nil, Draws{N: 4})
		if g := o.Of(sim.Key("waits")); g.Word != Between || g.P50.Sub(o.At).Round(10*time.Minute) != 3*time.Hour || o.Unknown != 0 {
			t.Errorf("%+v", g)
		}
	})
	t.Run("only censored runs", func(t *testing.T) {
		h := &History{}
		for range 50 {
			h.Runs = append(h.Runs, Run{Queue: "a", Took: time.Hour, At: cluster.UnixNano(1795521600_000000000)})
		}
		s := newStage(t, 1, "a")
		s.submit("runs", "a", 8, time.Hour, Work{})
		s.live(time.Minute, h)
		o := s.forecast(h, Draws{N: 2})
		if diff := cmp.Diff([]NoteCode{OnlyCensored, UnknownRuntimes, NoArrivals}, notes(o)); diff != "" || len(o.Gangs) != 0 {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
	})
	t.Run("few runs", func(t *testing.T) {
		h := &History{Runs: []Run{{Queue: "a", Took: time.Hour, At: cluster.UnixNano(1795521600_000000000), Ended: true}}}
		if o := newStage(t, 1, "a").forecast(h, Draws{N: 2}); notes(o)[0] != FewRuns {
			t.Errorf("notes %v", o.Notes)
		}
	})
	t.Run("a deadline past", func(t *testing.T) {
		s := newStage(t, 1, "a")
		s.submit("late", "a", 8, 9*time.Hour, Work{Deadline: time.Hour})
		s.live(2*time.Hour, nil)
		s.submit("waits", "a", 8, time.Hour, Work{})
		s.live(time.Second, nil)
		o := s.forecast(nil, Draws{N: 4})
		if g := o.Of(sim.Key("waits")); g.P50.Sub(o.At) > 2*time.Minute || o.Notes[0].Code != DeadlinePast || o.Notes[0].Object != "sim/late" {
			t.Errorf("%+v, %v", g, o.Notes)
		}
	})
	t.Run("a clock set back", func(t *testing.T) {
		s, h := busy(t)
		c := s.cycle()
		runs, arrivals := len(h.Runs), len(h.Arrivals)
		c.Case.Image.Now = c.Case.Image.Now.Add(-3 * time.Hour)
		o, err := Forecast(t.Context(), c, h, Draws{N: 4})
		if err != nil {
			t.Fatal(err)
		}
		codes := fmt.Sprint(notes(o))
		if !strings.Contains(codes, string(ClockSetBack)) || !strings.Contains(codes, string(StartAhead)) || h.SetBack < 150*time.Minute || len(h.Runs) != runs || len(h.Arrivals) < arrivals {
			t.Errorf("notes %v, set back by %s, %d runs, %d arrivals", codes, h.SetBack, len(h.Runs), len(h.Arrivals))
		}
		for _, r := range h.Runs {
			if r.Took < 0 || r.At.After(c.Case.Image.Now) {
				t.Errorf("run %+v", r)
			}
		}
		for i := range o.Gangs {
			if g := &o.Gangs[i]; g.Word == Between && g.P10.Before(o.At) {
				t.Errorf("it starts before now: %+v", g)
			}
		}
	})
	t.Run("a clock set back and put right", func(t *testing.T) {
		s, h := busy(t)
		if err := h.Learn(s.cycle()); err != nil {
			t.Fatal(err)
		}
		runs := len(h.Runs)
		for _, by := range []time.Duration{3 * time.Hour, 2 * time.Hour, time.Hour, 0, 0} {
			c := s.cycle()
			c.Case.Image.Now = c.Case.Image.Now.Add(-by)
			if err := h.Learn(c); err != nil {
				t.Fatal(err)
			}
		}
		if len(h.Runs) != runs {
			t.Errorf("%d runs were over by that: %+v", len(h.Runs)-runs, h.Runs[runs:])
		}
	})
	t.Run("beyond a day", func(t *testing.T) {
		s := newStage(t, 1, "a")
		s.submit("long", "a", 8, 90*time.Hour, Work{Expected: 90 * time.Hour})
		s.live(time.Minute, nil)
		s.submit("waits", "a", 8, time.Hour, Work{})
		s.live(time.Second, nil)
		o := s.forecast(nil, Draws{N: 4})
		g := o.Of(sim.Key("waits"))
		if text := o.Text(g, time.UTC); g.Word != NotWithinHorizon || text != "not within a day, if no more work comes." {
			t.Errorf("%+v: %s", g, text)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		s := newStage(t, 1, "a")
		other := s.cycle()
		other.Cluster = "c2"
		for want, call := range map[string]func() error{
			"cycle: case is missing":                            func() error { _, err := Forecast(t.Context(), &Cycle{}, nil, Draws{}); return err },
			"history: cluster is c1; the cycle is of c2":        func() error { _, err := Forecast(t.Context(), other, &History{Cluster: "c1"}, Draws{}); return err },
			"draws: n is -1; it must be between 1 and 1000":     func() error { _, err := Forecast(t.Context(), s.cycle(), nil, Draws{N: -1}); return err },
			"draws: horizon is 1s; it must be between a minute": func() error { _, err := Forecast(t.Context(), s.cycle(), nil, Draws{Horizon: time.Second}); return err },
			"draws: cycle is 1ms; it must be between a second": func() error {
				_, err := Forecast(t.Context(), s.cycle(), nil, Draws{Cycle: time.Millisecond})
				return err
			},
			"draws: past is 1s; it must be between a minute":         func() error { _, err := Forecast(t.Context(), s.cycle(), nil, Draws{Past: time.Second}); return err },
			"draws: grace is -1s; it must be between 0":              func() error { _, err := Forecast(t.Context(), s.cycle(), nil, Draws{Grace: -time.Second}); return err },
			"Job x: activeDeadlineSeconds is 0; it must be positive": func() error { zero := int64(0); _, err := Declared("Job", "x", nil, &zero); return err },
			`annotation muster.dev/expected-runtime is "soon"; it must`: func() error {
				_, err := Declared("Job", "x", map[string]string{AnnotationExpectedRuntime: "soon"}, nil)
				return err
			},
		} {
			err := call()
			if _, typed := err.(*Refusal); !typed || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}

// TestDeclaredBy: what owners say.
func TestDeclaredBy(t *testing.T) {
	t.Parallel()
	seconds := int64(7200)
	w, err := Declared("Job", "train-7f9c-2", map[string]string{AnnotationExpectedRuntime: "90m"}, &seconds)
	if diff := cmp.Diff(Work{Kind: "Job", Stem: "train", Deadline: 2 * time.Hour, Expected: 90 * time.Minute}, w); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for name, want := range map[string]string{"train": "train", "train-7": "train", "train7": "train", "a-b": "a-b", "a-b-0x1f": "a-b", "2024-01-01": "2024", "7": "7", "x.3_4-5": "x", "": "", "-1": "-"} {
		if got := Stem(name); got != want {
			t.Errorf("the stem of %q is %q, want %q", name, got, want)
		}
	}
}
