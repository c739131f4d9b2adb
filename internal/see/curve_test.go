package see

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-scheduler/muster/internal/cluster"
)

// TestCurve: the remission times of Freireich's trial of 6-MP (1963), of which every textbook has the estimate.
func TestCurve(t *testing.T) {
	t.Parallel()
	var spans []span
	for _, x := range []float64{6, 6, 6, 7, 10, 13, 16, 22, 23} {
		spans = append(spans, span{took: x, ended: true})
	}
	for _, x := range []float64{6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35} {
		spans = append(spans, span{took: x})
	}
	c := newCurve(spans)
	for at, want := range map[float64]float64{5: 1, 6: 0.857, 7: 0.807, 10: 0.753, 13: 0.690, 16: 0.627, 22: 0.538, 23: 0.448, 34: 0.448, 35: 0.448, 70: 0.448 * 0.448} {
		if got := c.beyond(at); math.Abs(got-want) > 0.0006 {
			t.Errorf("beyond %v: %.4f, want %.3f", at, got, want)
		}
	}
	if c.ends != 9 || c.runs != 21 {
		t.Errorf("%d ends of %d", c.ends, c.runs)
	}
}

// TestCurveDraws: whatever the runs, what is drawn is above the age, falls as u grows, and is the curve's own: of many draws the part beyond any
// time is what the curve says.
func TestCurveDraws(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var spans []span
		for range rapid.IntRange(1, 40).Draw(t, "runs") {
			spans = append(spans, span{took: float64(rapid.IntRange(0, 50).Draw(t, "took")), ended: rapid.Bool().Draw(t, "ended")})
		}
		c := newCurve(spans)
		age := float64(rapid.IntRange(0, 80).Draw(t, "age"))
		last := math.Inf(1)
		const n = 400
		var got []float64
		for i := range n {
			x := c.draw(age, (float64(i)+0.5)/n)
			if !(x > age) || x > last {
				t.Fatalf("u %d of %d: %v after %v, at the age of %v", i, n, x, last, age)
			}
			last = x
			got = append(got, x)
		}
		slices.Sort(got)
		for _, at := range []float64{age + 1, age + 7, age + 30} {
			if c.rate <= 0 {
				break
			}
			i, _ := slices.BinarySearchFunc(got, at, func(x, at float64) int {
				if x <= at {
					return -1
				}
				return 1
			})
			if want, part := c.beyond(at)/c.beyond(age), float64(n-i)/n; math.Abs(part-want) > 0.02 {
				t.Fatalf("beyond %v at the age of %v: %.3f of the draws, %.3f of the curve %+v", at, age, part, want, c)
			}
		}
	})
}

// TestRecord: draws that are four times too sure, then four times too wide, then late by half: over time the bands hold for four fifths all the same.
func TestRecord(t *testing.T) {
	t.Parallel()
	r, source := &Record{}, newRandom(1, 1)
	normal := func() float64 { return math.Sqrt2 * math.Erfinv(2*source.unit()-1) }
	for _, c := range []struct {
		name        string
		width, late float64
	}{{"too sure", 0.25, 0}, {"too wide", 4, 0}, {"late", 1, 0.5}} {
		held, n := 0, 0
		for i := range 3000 {
			mid := math.Exp(8 + 0.5*normal())
			b := Band{Middle: time.Duration(mid * 1e9)}.around(0.5 * c.width * ninetieth)
			shown := r.Scale(b)
			wait := back(axis(b.Middle) + c.late + 0.5*normal())
			r.Take(b, shown, wait, 1)
			if shown.Low > shown.Middle+time.Microsecond || shown.High < shown.Middle-time.Microsecond || shown.Low < 0 {
				t.Fatalf("shown %v", shown)
			}
			if i >= 500 { // learning
				n++
				if wait >= shown.Low && wait <= shown.High {
					held++
				}
			}
		}
		if part := float64(held) / float64(n); part < 0.76 || part > 0.84 {
			t.Errorf("%s: %.3f held", c.name, part)
		}
	}
	if r.Of != 100 || r.Held < 65 || r.Held > 95 {
		t.Errorf("%d of %d", r.Held, r.Of)
	}
	young := &Record{}
	b := Band{Low: 10 * time.Minute, Middle: 20 * time.Minute, High: 40 * time.Minute}
	if got, want := young.Scale(b), b.Stretched(1, 1); got != want || got.Low > b.Low || got.High < b.High || got.High > 50*time.Minute {
		t.Errorf("a young record shows %v for %v", got, b)
	}
	young.Take(b, b, 5*time.Hour, 1)
	if got := young.Scale(b); got.High > 3*b.High {
		t.Errorf("one wait moved it to %v", got)
	}
}

// around is a band of so much on both sides of its middle, on the axis.
func (b Band) around(reach float64) Band {
	return Band{Low: back(axis(b.Middle) - reach), Middle: b.Middle, High: back(axis(b.Middle) + reach)}
}

// TestDeclaredIsCorrected: runs that took twice what their owners expected teach that the next does; runs that took a third of their deadlines teach that
// of gangs whose names are not known; no draw is beyond a deadline.
func TestDeclaredIsCorrected(t *testing.T) {
	t.Parallel()
	h := &History{}
	for i := range 30 {
		e := time.Duration(1+i%3) * time.Hour
		h.Runs = append(h.Runs, Run{Queue: "a", Work: Work{Kind: "Job", Stem: "x", Expected: e}, Took: 2 * e, Ended: true})
		h.Runs = append(h.Runs, Run{Queue: "b", Work: Work{Kind: "Job", Deadline: e}, Took: e / 3, Ended: true})
	}
	r := learn(h, cluster.Instant{}, nil)
	for _, c := range []struct {
		queue string
		work  Work
		age   time.Duration
		want  time.Duration
	}{
		{"a", Work{Kind: "Job", Stem: "y", Expected: 90 * time.Minute}, 0, 3 * time.Hour},
		{"a", Work{Kind: "Job", Stem: "y", Expected: 90 * time.Minute, Deadline: 2 * time.Hour}, 0, 2 * time.Hour},
		{"b", Work{Kind: "Job", Stem: "z", Deadline: 6 * time.Hour}, 0, 2 * time.Hour},
		{"b", Work{Kind: "Job", Deadline: time.Hour}, 70 * time.Minute, 70*time.Minute + 1},
	} {
		rt := r.of(asker{queue: c.queue}, c.work)
		if got := rt.draw(c.age, 0.5); (got - c.want).Abs() > time.Second {
			t.Errorf("%s %+v: %s (%+v), want %s", c.queue, c.work, got, rt.Source, c.want)
		}
	}
}
