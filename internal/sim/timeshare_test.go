package sim

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/muster-scheduler/muster/internal/engine/builtin"
)

// shared returns a path of the project's shared data; a test without it is skipped.
func shared(t testing.TB, path string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		at := filepath.Join(dir, "shared", path)
		if _, err := os.Stat(at); err == nil {
			return at
		}
		dir = filepath.Dir(dir)
	}
	t.Skipf("shared/%s is not here: nothing to test", path)
	return ""
}

func parse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := ParseConfig([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func play(t testing.TB, c *Config) *Series {
	t.Helper()
	s, err := Timeshare(t.Context(), c, builtin.Registry(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func trail(t testing.TB, s *Series, name string) *Trail {
	t.Helper()
	for i := range s.Queues {
		if s.Queues[i].Name == name {
			return &s.Queues[i]
		}
	}
	t.Fatalf("there is no queue %q", name)
	return nil
}

// oscillation is KAI's example.
func oscillation(t testing.TB) *Config {
	t.Helper()
	path := shared(t, "compat/kai/examples/examples/time-based-fairshare/two-queue-oscillation/simulation-config.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}

// TestOscillation: in KAI's example the two teams take turns with the whole cluster, for as long as it takes until the one that
// runs has used up the window: its fair share falls to nothing, and the other reclaims.
func TestOscillation(t *testing.T) {
	t.Parallel()
	c := oscillation(t)
	s := play(t, c)
	if s.Cycles() != 1024 || s.GPUs != 16000 || s.Timed {
		t.Fatalf("%d cycles, %d milli-GPU, timed %v", s.Cycles(), s.GPUs, s.Timed)
	}
	a, b := trail(t, s, "team-a"), trail(t, s, "team-b")
	var turns []string
	var lengths []int
	last := ""
	for k := range s.Cycles() {
		who := ""
		switch {
		case a.Allocation[k] == 16000 && b.Allocation[k] == 0:
			who = "a"
		case b.Allocation[k] == 16000 && a.Allocation[k] == 0:
			who = "b"
		case a.Allocation[k]+b.Allocation[k] != 0:
			t.Fatalf("cycle %d: %d and %d", k, a.Allocation[k], b.Allocation[k])
		}
		if who != last && who != "" {
			turns, lengths = append(turns, who), append(lengths, 0)
		}
		if last = who; who != "" {
			lengths[len(lengths)-1]++
		}
		if sum := a.FairShare[k] + b.FairShare[k]; sum != 16000 {
			t.Fatalf("cycle %d: fair shares add up to %d", k, sum)
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "a", "b", "a", "b", "a"}, turns); diff != "" {
		t.Errorf("turns (-want +got):\n%s", diff)
	}
	if slices.ContainsFunc(lengths[2:6], func(n int) bool { return n < 230 || n > 250 }) {
		t.Errorf("turns last %v cycles; those in the middle should last about 240, the window but for what has faded", lengths)
	}
	if dept := trail(t, s, "training-department"); dept.Leaf || dept.FairShare[500] != 16000 || dept.Allocation[500] != 16000 {
		t.Errorf("the department: leaf %v, fair share %d, allocation %d", dept.Leaf, dept.FairShare[500], dept.Allocation[500])
	}
}

// TestUsageByDefinition: in every cycle, usage is the faded sum of what the series says was allocated before, over that of the
// cluster.
func TestUsageByDefinition(t *testing.T) {
	t.Parallel()
	for _, head := range []string{"windowSize: 40, halfLifePeriod: 13", "windowSize: 40", "windowSize: 500, halfLifePeriod: 100"} {
		c := parse(t, fmt.Sprintf("{%s, cycles: 400, %s}", head, strings.TrimSpace(rivals)))
		s := play(t, c)
		set, err := c.resolve()
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Queues {
			q := &s.Queues[i]
			for k := range s.Cycles() {
				used, whole := 0.0, 0.0
				for age := 0; age < min(set.window, k); age++ {
					weight := 1.0
					if set.halfLife > 0 {
						weight = math.Pow(0.5, float64(age)/set.halfLife)
					}
					used += weight * float64(q.Allocation[k-1-age])
					whole += weight * float64(s.GPUs)
				}
				want := int32(0)
				if k > 0 {
					want = int32(math.Round(used / whole * 1e6))
				}
				if q.Usage[k] != want {
					t.Fatalf("%s: queue %s, cycle %d: usage %d, want %d", head, q.Name, k, q.Usage[k], want)
				}
			}
		}
	}
}

// rivals are three teams of different weight on 24 GPUs, one of them with work that ends.
const rivals = `
nodes: [{gpus: 8, count: 3}],
queues: [{name: d}, {name: a, parent: d}, {name: b, parent: d, weight: 2}, {name: c, parent: d, deservedGPUs: 4, limitGPUs: 12}],
jobs: {a: {gpus: 8, numJobs: 5}, b: {gpus: 4, numPods: 3, minPods: 1, numJobs: 4}, c: [{gpus: 2, duration: 30, every: 12m, random: true}, {gpus: 4, numJobs: 1, start: 50}]}
`

// TestSkippedDecisions: deciding in every cycle gives the same series as deciding only when there is something new.
func TestSkippedDecisions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 7))
			head := fmt.Sprintf("seed: %d, cycles: 600, windowSize: %d, halfLifePeriod: %d, kValue: %v, grace: %ds",
				seed, 1+r.IntN(200), r.IntN(2)*r.IntN(100), []float64{0.3, 1, 3}[r.IntN(3)], r.IntN(2)*90)
			c := parse(t, fmt.Sprintf("{%s, %s}", head, strings.TrimSpace(rivals)))
			var all [2]*Series
			for i := range all {
				set, err := c.resolve()
				if err != nil {
					t.Fatal(err)
				}
				ts, err := newTimeshare(c, set, builtin.Registry())
				if err != nil {
					t.Fatal(err)
				}
				ts.always = i == 1
				if all[i], err = ts.play(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(all[0].Queues, all[1].Queues); diff != "" {
				t.Errorf("{%s}: deciding only when something is new (-) and always (+):\n%s", head, diff)
			}
			if all[0].Figures.Decisions >= all[1].Figures.Decisions {
				t.Errorf("%d decisions, no fewer than %d", all[0].Figures.Decisions, all[1].Figures.Decisions)
			}
			again := play(t, c)
			if diff := cmp.Diff(all[0], again, cmpopts.IgnoreUnexported(Figures{})); diff != "" {
				t.Errorf("the same again is another:\n%s", diff)
			}
		})
	}
}

// TestYear: KAI's example drawn out to a year of ten minutes, few of which have to be decided anew.
func TestYear(t *testing.T) {
	t.Parallel()
	c := oscillation(t)
	c.Cycles = nil
	span := func(d time.Duration) *Span { return &Span{Time: d, timed: true} }
	c.Step, c.Duration, c.WindowSize, c.HalfLifePeriod = span(10*time.Minute), span(365*24*time.Hour), span(7*24*time.Hour), span(3*24*time.Hour)
	s := play(t, c)
	t.Logf("%d cycles, %d of them decided anew", s.Cycles(), s.Figures.Decisions)
	if s.Cycles() != 52560 || s.Figures.Decisions > s.Cycles()/20 {
		t.Errorf("%d cycles, %d of them decided anew; want 52,560, and one in twenty at most", s.Cycles(), s.Figures.Decisions)
	}
	for _, name := range []string{"team-a", "team-b"} {
		sum := int64(0)
		for _, x := range trail(t, s, name).Allocation {
			sum += x
		}
		if part := float64(sum) / float64(s.GPUs) / float64(s.Cycles()); math.Abs(part-0.5) > 0.02 {
			t.Errorf("%s had %.3f of the cluster; over a year that should be half", name, part)
		}
	}
}

// TestTimeshareStops: an aborted simulation is an error, and progress is told.
func TestTimeshareStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	c := parse(t, "{cycles: 10000, queues: [{name: a}]}")
	told := 0
	_, err := Timeshare(ctx, c, builtin.Registry(), func(done, of int) {
		if told = done; done >= 512 {
			cancel()
		}
		if of != 10000 {
			t.Errorf("of %d", of)
		}
	})
	if !errors.Is(err, context.Canceled) || told != 512 || !strings.Contains(err.Error(), "stopped after 768 of 10000 cycles") {
		t.Errorf("error %v, told %d", err, told)
	}
}

// TestNothing: simulations without nodes, queues or jobs are played too.
func TestNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "{}", "queues: [{name: a}]", "{nodes: [{gpus: 0, count: 0}], queues: [{name: a}], jobs: {a: {gpus: 1}}}"} {
		s := play(t, parse(t, text))
		var out bytes.Buffer
		if err := s.WriteJSON(&out); err != nil || !json.Valid(out.Bytes()) {
			t.Errorf("%q: %v, %q", text, err, out.String())
		}
	}
}

// TestFormats: KAI's CSV to the byte, and the same as JSON with usage.
func TestFormats(t *testing.T) {
	t.Parallel()
	s := &Series{Queues: []Trail{
		{Name: "a", Leaf: true, Allocation: []int64{0, 1500}, FairShare: []int64{2000, 333}, Usage: []int32{0, 250000}},
		{Name: `b,"`, Allocation: []int64{0, 16000}, FairShare: []int64{0, 1}, Usage: []int32{0, 1}},
	}}
	var out bytes.Buffer
	if err := s.WriteCSV(&out); err != nil {
		t.Fatal(err)
	}
	want := "Time,QueueID,Allocation,FairShare\n0,a,0.000000,2.000000\n0,\"b,\"\"\",0.000000,0.000000\n1,a,1.500000,0.333000\n1,\"b,\"\"\",16.000000,0.001000\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("CSV (-want +got):\n%s", diff)
	}
	if rows, err := csv.NewReader(&out).ReadAll(); err != nil || len(rows) != 5 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	out.Reset()
	if err := s.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var got []Record
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Record{Time: 1, QueueID: "a", Allocation: 1.5, FairShare: 0.333, Usage: 0.25}, got[2]); diff != "" || len(got) != 4 {
		t.Errorf("%d records; the third (-want +got):\n%s", len(got), diff)
	}
}

func BenchmarkYear(b *testing.B) {
	c := oscillation(b)
	if c == nil {
		return
	}
	span := func(d time.Duration) *Span { return &Span{Time: d, timed: true} }
	c.Cycles, c.Step, c.Duration, c.WindowSize = nil, span(10*time.Minute), span(365*24*time.Hour), span(7*24*time.Hour)
	for b.Loop() {
		play(b, c)
	}
}
