package climb

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/climb/genome"
)

// land is a made-up engine: what is slow is many shapes in the face of many gangs that run, for gangs of more than one pod. Its clock goes by a
// second with each cluster.
type land struct {
	now    time.Time
	failed bool
}

func (l *land) measure(_ context.Context, a Ask) (Measured, error) {
	l.now = l.now.Add(time.Second)
	if l.failed {
		return Measured{Error: "panic: a defect"}, nil
	}
	w := a.Genome.Lay()
	runs := 0
	for i := range w.Gangs {
		if w.Gangs[i].Pods[0].Node != "" {
			runs++
		}
	}
	shapes := 0
	for i := range a.Genome.Gangs {
		if x := &a.Genome.Gangs[i]; x.Running == 0 && x.Pods > 1 {
			shapes += min(x.Shapes, x.Count)
		}
	}
	return Measured{CPU: time.Millisecond + time.Duration(runs*shapes)*10*time.Microsecond, Stage: "made-up"}, nil
}

func (l *land) options(seed uint64, say func(string)) Options {
	return Options{
		Seed: seed, For: 1000 * time.Second, Limits: genome.Limits{Nodes: 40, Queues: 20, Gangs: 400, Pods: 800}, Cycles: 1, Runs: 1, Limit: time.Second,
		Patience: 120, Above: 100 * time.Millisecond, Measure: l.measure, Now: func() time.Time { return l.now }, Say: say,
	}
}

// TestClimb: a climb finds the cliff, and what it keeps is as slow, and has little but what makes it slow. It ends in time.
func TestClimb(t *testing.T) {
	t.Parallel()
	var lines []string
	l := &land{}
	r, err := Climb(t.Context(), l.options(3, func(line string) { lines = append(lines, line) }))
	if err != nil {
		t.Fatal(err)
	}
	if r.Took != 1000*time.Second || r.Tried != 1000 || r.Climbs < 2 || len(lines) == 0 {
		t.Errorf("%s, %d clusters, %d climbs, %d lines", r.Took, r.Tried, r.Climbs, len(lines))
	}
	const cliff = 200 * time.Millisecond // a random cluster has some milliseconds
	if len(r.Found) == 0 || r.Slowest.CPU < cliff {
		t.Fatalf("slowest %s; found %+v", r.Slowest.CPU, r.Found)
	}
	if !slices.ContainsFunc(r.Found, func(f Found) bool {
		words := strings.Split(f.Name, "_")
		return len(words) <= 4 && slices.Contains(words, "pods") && slices.Contains(words, "shapes") && f.Measured.CPU >= cliff && f.Size < f.Before
	}) {
		t.Errorf("nothing that was found is slow, has become small and has hardly more than what makes it slow: %+v", r.Found)
	}
	names := map[string]bool{}
	for i := range r.Found {
		if names[r.Found[i].Name] || i > 0 && r.Found[i].Measured.CPU > r.Found[i-1].Measured.CPU {
			t.Errorf("%s is there twice, or out of order", r.Found[i].Name)
		}
		names[r.Found[i].Name] = true
	}
	again, err := Climb(t.Context(), (&land{}).options(3, func(string) {}))
	if err != nil || !reflect.DeepEqual(again, r) {
		t.Errorf("the same seed and times found something else: %v", err)
	}
}

// TestClimbEnough: a climb ends where that is enough, and is shrunk to it.
func TestClimbEnough(t *testing.T) {
	t.Parallel()
	l := &land{}
	o := l.options(3, func(string) {})
	o.Enough = 120 * time.Millisecond
	r, err := Climb(t.Context(), o)
	if err != nil || len(r.Found) == 0 {
		t.Fatalf("%v, %d found", err, len(r.Found))
	}
	for i := range r.Found[1:] { // the last climb was cut off
		if f := &r.Found[i+1]; f.Measured.CPU > 2*o.Enough {
			t.Errorf("%s has %s, size %d", f.Name, f.Measured.CPU, f.Size)
		}
	}
}

// TestClimbFailures: a cluster that ends in a defect is kept with it, and climbing goes on.
func TestClimbFailures(t *testing.T) {
	t.Parallel()
	l := &land{failed: true}
	r, err := Climb(t.Context(), l.options(1, func(string) {}))
	if err != nil || len(r.Failed) != mostFailed || len(r.Found) != 0 || r.Failed[0].Error != "panic: a defect" {
		t.Errorf("%v, %d failed, %d found", err, len(r.Failed), len(r.Found))
	}
}

// small is 4 full nodes, and gangs that wait for what is theirs, in vain but for 4 of them.
func small() genome.Genome {
	q := genome.Queues{Count: 1, Quotas: 1, Limit: -1, Weight: 1, Priority: 100, Priorities: 1}
	g := genome.Gangs{Count: 32, Pods: 1, Sets: 1, MilliGPU: 1000, MilliCPU: 1000, Shapes: 1, Priority: 50, Priorities: 1, Labels: 1}
	x := genome.Genome{Nodes: []genome.Nodes{{Count: 4, GPUs: 8, CPUs: 64}}, Queues: []genome.Queues{q, q}, Gangs: []genome.Gangs{g, g}}
	x.Queues[1].Quota = 4
	x.Gangs[0].Running, x.Gangs[1].Queue, x.Gangs[1].Count = 1, 1, 4
	return x
}

// TestMeasure runs the real engine: what is decided shows that the cluster is the one that the genome describes.
func TestMeasure(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                      string
		change                    func(g *genome.Genome)
		evicted, nominated, bound int
	}{
		{"reclaim", func(*genome.Genome) {}, 4, 4, 0},
		{"not preemptible", func(g *genome.Genome) { g.Gangs[0].Fixed = 1 }, 0, 0, 0},
		{"some not preemptible", func(g *genome.Genome) {
			g.Gangs[0].Fixed, g.Gangs[1].Count, g.Gangs[1].MilliGPU, g.Queues[1].Quota = 8, 1, 8000, 8
		}, 0, 0, 0},
		{"minimum runtime", func(g *genome.Genome) { g.MinRuntime, g.Gangs[0].Started = 60, 5 }, 0, 0, 0},
		{"minimum runtime of the queue", func(g *genome.Genome) { g.Queues[0].MinRuntime, g.Gangs[0].Started = 60, 5 }, 0, 0, 0},
		{"minimum runtime that is over", func(g *genome.Genome) { g.MinRuntime, g.Gangs[0].Started = 60, 61 }, 4, 4, 0},
		{"delay", func(g *genome.Genome) { g.Gangs[1].Delay = 60 }, 0, 0, 0},
		{"room", func(g *genome.Genome) { g.Gangs[0].PerNode = 7 }, 0, 0, 4},
		{"room that nobody tolerates", func(g *genome.Genome) { g.Gangs[0].PerNode, g.Nodes[0].Tainted = 7, 1 }, 0, 0, 0},
		{"room that each tolerates", func(g *genome.Genome) {
			g.Gangs[0].PerNode, g.Nodes[0].Tainted, g.Gangs[1].Tolerates = 7, 1, genome.OneNode
		}, 0, 0, 4},
		{"room of other labels", func(g *genome.Genome) { g.Gangs[0].PerNode, g.Nodes[0].Own, g.Gangs[1].Selects = 7, 1, genome.NoNode }, 0, 0, 0},
		{"room near nobody", func(g *genome.Genome) {
			g.Gangs[0].PerNode, g.Gangs[1].Says, g.Gangs[1].Of = 7, genome.Requires, genome.OfNobody
		}, 0, 0, 0},
		{"room apart from all", func(g *genome.Genome) {
			g.Gangs[0].PerNode, g.Gangs[1].Says, g.Gangs[1].Of = 7, genome.Avoids, genome.OfAll
		}, 28, 4, 0},
		{"a rack too small", func(g *genome.Genome) {
			g.Gangs[0].PerNode, g.Nodes[0].Rack, g.Gangs[1].Count, g.Gangs[1].Pods, g.Gangs[1].Near = 7, 2, 1, 4, genome.Rack
			g.Gangs[0].Fixed = 1
		}, 0, 0, 0},
		{"a rack large enough", func(g *genome.Genome) {
			g.Gangs[0].PerNode, g.Nodes[0].Rack, g.Gangs[1].Count, g.Gangs[1].Pods, g.Gangs[1].Near = 7, 4, 1, 4, genome.Rack
		}, 0, 0, 4},
		{"parts of GPUs", func(g *genome.Genome) { g.Gangs[0].Count, g.Gangs[0].MilliGPU, g.Gangs[1].MilliGPU = 64, 500, 500 }, 4, 4, 0},
		{"limit", func(g *genome.Genome) { g.Gangs[0].PerNode, g.Queues[1].Limit = 7, 3 }, 0, 0, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := Ask{Genome: small(), Cycles: 2, Runs: 1, Limit: time.Minute}
			c.change(&a.Genome)
			m, err := a.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if m.Evicted != c.evicted || m.Nominated != c.nominated || m.Bound != c.bound {
				t.Errorf("%d evicted, %d nominated, %d bound; want %d, %d, %d", m.Evicted, m.Nominated, m.Bound, c.evicted, c.nominated, c.bound)
			}
			if m.CPU <= 0 || m.Wall <= 0 || m.Stage == "" || len(m.Cycles) != 2 || m.Cut {
				t.Errorf("%+v", m)
			}
		})
	}
}

// TestMain makes this program a runner too, for TestRunner.
func TestMain(m *testing.M) {
	switch os.Getenv("CLIMB_RUNNER") {
	case "":
		os.Exit(m.Run())
	case "hangs":
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // until it is killed
		os.Exit(0)
	case "dies":
		panic("as it is told")
	}
	if err := Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		panic(err)
	}
}

// TestRunner: a process measures one cluster after another; what is wrong with a question is the answer to it; one that hangs is killed, and
// so is one that dies missed by nobody: the next question starts another.
func TestRunner(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		how, err string
		cut      bool
	}{{"measures", "", false}, {"hangs", "", true}, {"dies", "as it is told", false}} {
		t.Run(c.how, func(t *testing.T) {
			t.Setenv("CLIMB_RUNNER", c.how)
			r := &Runner{Command: []string{self}}
			if c.how == "hangs" {
				r.Patience = time.Millisecond
			}
			defer r.Close()
			for range 2 {
				m, err := r.Measure(t.Context(), Ask{Genome: small(), Cycles: 1, Runs: 1, Limit: time.Second})
				if err != nil || m.Cut != c.cut || !strings.Contains(m.Error, c.err) || (m.Error == "") != (c.err == "") {
					t.Fatalf("%+v, %v", m, err)
				}
			}
			if c.how != "measures" {
				return
			}
			if m, err := r.Measure(t.Context(), Ask{Limit: time.Second}); err != nil || !strings.Contains(m.Error, "nodes has 0 groups") {
				t.Errorf("%+v, %v", m, err)
			}
			ctx, stop := context.WithCancel(t.Context())
			stop()
			r.Close()
			if _, err := r.Measure(ctx, Ask{Genome: small(), Limit: time.Second}); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestCases: what was found is read, is within limits, and is decided on by the engine of today without a defect.
func TestCases(t *testing.T) {
	t.Parallel()
	files := cases(t)
	for _, file := range files {
		f, err := ReadCase(file)
		if err != nil {
			t.Fatal(err)
		}
		if !f.Genome.Within(DefaultLimits()) {
			t.Errorf("%s is beyond the limits", file)
		}
		m, err := (&Ask{Genome: f.Genome, Cycles: 1, Runs: 1, Limit: time.Minute}).Run(t.Context())
		if err != nil || m.Cut {
			t.Errorf("%s: %v, cut short %v", file, err, m.Cut)
		}
	}
}

func cases(tb testing.TB) []string {
	files, err := filepath.Glob("testdata/cases/*.json")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no cases: %v", err)
	}
	return files
}

// TestWriteCase: a file that was written says the same when it is read, and what is wrong with one is named.
func TestWriteCase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := Found{Name: "reclaim_shapes", Genome: small(), Measured: Measured{CPU: 1234 * time.Millisecond, Stage: "reclaim"}}
	if err := WriteCase(dir, &in); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "reclaim_shapes.json")
	out, err := ReadCase(file)
	if err != nil || out.Name != in.Name || !reflect.DeepEqual(out.Genome, in.Genome) {
		t.Errorf("%v, %+v", err, out)
	}
	text, err := json.Marshal(map[string]any{"found": "", "genome": map[string]any{"nodes": []int{}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCase(file); err == nil || !strings.Contains(err.Error(), "reclaim_shapes.json: genome: nodes has 0 groups") {
		t.Errorf("%v", err)
	}
}
