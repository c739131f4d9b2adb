package see

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-scheduler/muster/internal/cluster"
	"github.com/muster-scheduler/muster/internal/sim"
)

// TestLearn: gangs that come are arrivals, but for those that were there before; who is evicted has a run that was cut short, who ends one that ended;
// another gang of the same name is another; a cycle that is shown twice teaches nothing.
func TestLearn(t *testing.T) {
	t.Parallel()
	s, h := newStage(t, 2, "a", "b"), &History{}
	s.submit("before", "b", 1, 5*time.Minute, Work{})
	s.live(time.Minute, h)
	if len(h.Arrivals) != 1 || len(h.Gangs) != 1 { // the first cycle shows "before"; it came before anybody watched
		h.Arrivals = nil
	}
	// Queue a lends room that b takes back ten minutes later.
	for i := range 2 {
		s.submit(fmt.Sprintf("greedy-%d", i), "a", 7, 40*time.Minute, Work{Kind: "Job", Stem: "greedy"})
	}
	s.live(10*time.Minute, h)
	s.submit("own", "b", 8, 10*time.Minute, Work{})
	s.live(90*time.Minute, h)
	if err := h.Learn(s.cycle()); err != nil {
		t.Fatal(err)
	}
	type ran struct {
		Stem  string
		Took  time.Duration
		Ended bool
	}
	var got []ran
	for _, r := range h.Runs {
		got = append(got, ran{r.Work.Stem, r.Took.Round(time.Minute), r.Ended})
	}
	want := []ran{{"", 5 * time.Minute, true}, {"greedy", 10 * time.Minute, false}, {"", 10 * time.Minute, true}, {"greedy", 40 * time.Minute, true}, {"greedy", 40 * time.Minute, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
	var came []string
	for _, a := range h.Arrivals {
		came = append(came, fmt.Sprint(a.Queue, a.Shape.gpu()/1000))
	}
	if diff := cmp.Diff([]string{"a7", "a7", "b8"}, came); diff != "" {
		t.Errorf("arrivals (-want +got):\n%s", diff)
	}
	if len(h.Gangs) != 0 {
		t.Errorf("it still knows %v", h.Gangs)
	}
	// The same name, another object.
	s.submit("again", "a", 1, 0, Work{})
	s.live(time.Minute, h)
	c := s.cycle()
	for i, e := range c.Case.Image.Events {
		if g, ok := e.(cluster.GangState); ok {
			g.UID = "another"
			c.Case.Image.Events[i] = g
		}
	}
	before := len(h.Runs)
	if err := h.Learn(c); err != nil {
		t.Fatal(err)
	}
	if last := h.Runs[len(h.Runs)-1]; len(h.Runs) != before+1 || !last.Ended || h.Gangs[sim.Key("again")].UID != "another" {
		t.Errorf("%d runs, %+v, %+v", len(h.Runs), last, h.Gangs[sim.Key("again")])
	}
}

// TestHistoryIsBounded: whatever comes, what is kept is old at most thirty days, or seven for arrivals, and so many.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	h := &History{Now: cluster.Instant{}.Add(100 * 24 * time.Hour)}
	for i := range maxRuns + 500 {
		h.Runs = append(h.Runs, Run{At: h.Now.Add(-time.Second * time.Duration(maxRuns+500-i))})
	}
	for i := range maxArrivals + 500 {
		h.Arrivals = append(h.Arrivals, Arrival{At: h.Now.Add(-time.Second * time.Duration(maxArrivals+500-i))})
	}
	h.forget()
	if len(h.Runs) != maxRuns || len(h.Arrivals) != maxArrivals {
		t.Errorf("%d runs, %d arrivals", len(h.Runs), len(h.Arrivals))
	}
	h.Now = h.Now.Add(8 * 24 * time.Hour)
	if h.forget(); len(h.Runs) != maxRuns || len(h.Arrivals) != 0 {
		t.Errorf("after a week: %d runs, %d arrivals", len(h.Runs), len(h.Arrivals))
	}
	h.Now = h.Now.Add(30 * 24 * time.Hour)
	if h.forget(); len(h.Runs) != 0 {
		t.Errorf("after a month: %d runs", len(h.Runs))
	}
	k := &Known{}
	for i := range 3 * maxForecasts {
		k.tell(Told{At: cluster.UnixNano(int64(i))})
	}
	if first, last := k.Told[0], k.Told[len(k.Told)-1]; len(k.Told) != maxForecasts || !first.First || !first.At.IsZero() || last.At != cluster.UnixNano(3*maxForecasts-1) || last.First {
		t.Errorf("%d told, %+v to %+v", len(k.Told), first, last)
	}
}

// TestHistoryIsKept: a history that was written and read again says what it said, and forecasts go on as if nothing had happened.
func TestHistoryIsKept(t *testing.T) {
	t.Parallel()
	s, h := newStage(t, 1, "a"), &History{}
	for i := range 6 {
		s.submit(fmt.Sprint("train-", i), "a", 8, time.Hour, Work{Kind: "Job", Stem: "train", Expected: time.Hour})
		s.live(20*time.Minute, h)
		s.forecast(h, Draws{N: 4})
	}
	text, err := h.Text()
	if err != nil {
		t.Fatal(err)
	}
	again, err := ReadHistory(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Records) == 0 || len(h.Runs) == 0 || len(h.Arrivals) == 0 {
		t.Fatalf("%+v is too little for a test", h)
	}
	second, err := again.Text()
	if err != nil || string(second) != string(text) {
		t.Errorf("%v\n%s\n%s", err, text, second)
	}
	if a, b := s.forecast(h, Draws{N: 8}), s.forecast(again, Draws{N: 8}); !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	for _, text := range []string{"", "{}", `{"Version":"history/v0"}`} {
		if _, err := ReadHistory([]byte(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
