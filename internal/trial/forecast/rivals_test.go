package forecast

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/see"
)

// TestOrderStatistic: the numbers that the method's descriptions give: 59 waits for 0.95 with confidence 0.95, and of more, fewer than all.
func TestOrderStatistic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		n             int
		q, confidence float64
		want          int
	}{{59, 0.95, 0.95, 59}, {29, 0.9, 0.95, 29}, {100, 0.9, 0.95, 96}, {1000, 0.95, 0.95, 962}, {10, 0.5, 0.5, 6}} {
		if got := orderStatistic(c.n, c.q, c.confidence); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestQBETS: a history of waits of a minute gives a band around it; too few give none; after three waits of an hour in a row the past counts no more.
func TestQBETS(t *testing.T) {
	t.Parallel()
	q := newQBETS()
	for range least - 1 {
		q.started("a", 0, time.Minute)
	}
	if _, ok := q.tell("a", 0, 0); ok {
		t.Error("a band of too few")
	}
	for range 300 {
		q.started("a", 0, time.Minute)
	}
	if b, ok := q.tell("a", 7, 0); !ok || b.Low != time.Minute || b.High != time.Minute {
		t.Errorf("band %v", b)
	}
	for i := range 3 {
		if b, _ := q.tell("a", 0, 0); b.High != time.Minute {
			t.Errorf("after %d: %v", i, b)
		}
		q.started("a", 0, time.Hour)
	}
	if b, _ := q.tell("a", 0, time.Minute); b.High != time.Hour-time.Minute || b.Low != 0 {
		t.Errorf("after the change: %v", b)
	}
}

// TestPastWaits: quantiles of what those that waited as long went on to wait.
func TestPastWaits(t *testing.T) {
	t.Parallel()
	p := newPastWaits()
	for i := range 100 {
		p.started("a", i%2, time.Duration(i+1)*time.Minute)
	}
	if b, _, ok := p.tell("a", 5, 50*time.Minute); !ok || b.Low != 6*time.Minute || b.Middle != 26*time.Minute || b.High != 45*time.Minute {
		t.Errorf("band %v", b)
	}
	if _, _, ok := p.tell("a", 0, 98*time.Minute); ok {
		t.Error("a band of two")
	}
}

// TestBars: the interval score, by hand.
func TestBars(t *testing.T) {
	t.Parallel()
	var b Bars
	band := see.Band{Low: 10 * time.Second, High: 30 * time.Second}
	for _, wait := range []time.Duration{20 * time.Second, 5 * time.Second, 33 * time.Second, time.Hour} {
		b.add(band, wait, time.Minute)
	}
	if want := (20. + (20 + 50) + (20 + 30) + (20 + 300)) / 4; b.Score != want || b.Held != 1 || b.Low != 1 || b.High != 2 || b.Coverage() != 0.25 {
		t.Errorf("%+v, want %v", b, want)
	}
}

// TestLoads: one seed, one load; the mean runtime and what is asked for are as the name says.
func TestLoads(t *testing.T) {
	t.Parallel()
	for _, kind := range Runtimes() {
		for _, rho := range Loads() {
			l, again := Made(kind, rho, 3), Made(kind, rho, 3)
			work, last := 0.0, time.Duration(0)
			for range 60_000 {
				j, ok := l.next()
				if k, _ := again.next(); !ok || k.Name != j.Name || k.Duration != j.Duration || k.At != j.At || j.At < last {
					t.Fatalf("%s: %+v", l.Name(), j)
				}
				work += float64(j.Pods) * float64(j.Requests[0].Value) / 1000 * j.Duration.Hours()
				last = j.At
			}
			if got := work / last.Hours() / (nodes * nodeGPUs); got < rho*0.93 || got > rho*1.07 {
				t.Errorf("%s asks for %.3f", l.Name(), got)
			}
		}
	}
	if _, err := Recorded(strings.NewReader("a,b\n1,2\n"), 0.7); err == nil || !strings.Contains(err.Error(), "line 2 of the trace has 2 fields") {
		t.Errorf("error %v", err)
	}
	if _, err := Recorded(strings.NewReader("n,c,m,g,gm,s,q,p,cr,de,sc\nx,1,1,one,1,,LS,Running,1,2,1\n"), 0.7); err == nil || !strings.Contains(err.Error(), "line 2 of the trace") {
		t.Errorf("error %v", err)
	}
}
