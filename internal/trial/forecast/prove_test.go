package forecast

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/see"
)

// trace is the recorded one: beside the repository, not in it.
const trace = "../../../../shared/traces/openb/pods.csv"

// page is where the results are written, between its two marks.
const page = "../../../docs/concepts/eta.md"

// recorded returns the trace's load, nil without the trace.
func recorded(t *testing.T, rho float64) *Load {
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Logf("NOT CHECKED on the recorded trace: %v", err)
		return nil
	}
	l, err := Recorded(bytes.NewReader(text), rho)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestProve asks whether the bands hold: FORECASTS=2000 (make prove-forecast, long) for every load, and writes the page; else a few for two loads,
// which shows that the proof itself works.
func TestProve(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("FORECASTS"))
	full := n > 0
	p := Proof{Forecasts: n + 100, Young: 100, Warm: 48 * time.Hour, Every: 45 * time.Minute, Draws: see.Draws{Cycle: 2 * time.Minute}}
	loads := []*Load{Made("bimodal", 0.7, 1)}
	if full {
		loads = nil
		for _, rt := range Runtimes() {
			for _, rho := range Loads() {
				loads = append(loads, Made(rt, rho, 1))
			}
		}
	} else {
		p = Proof{Forecasts: 80, Young: 20, Warm: 36 * time.Hour, Every: 45 * time.Minute, Draws: see.Draws{N: 8, Cycle: 5 * time.Minute}}
	}
	for _, rho := range Loads() {
		if l := recorded(t, rho); l != nil && (full || rho == 0.7) {
			loads = append(loads, l)
		}
	}
	ctx := t.Context()
	if end, ok := t.Deadline(); ok { // what is scored by then counts, and the test says that it is too little
		var stop func()
		ctx, stop = context.WithDeadline(ctx, end.Add(-30*time.Second))
		defer stop()
	}
	outcomes := make([]*Outcome, len(loads))
	t.Run("load", func(t *testing.T) {
		for i, l := range loads {
			t.Run(l.Name(), func(t *testing.T) {
				t.Parallel()
				began := time.Now()
				o, err := p.Run(ctx, l, func() time.Duration { return time.Since(began) })
				if err != nil {
					t.Fatal(err)
				}
				outcomes[i] = o
				f := &o.Figures
				t.Logf("%s lived; %d gangs came, %d ended, %d pods evicted; %d forecasts in %s; %d had no band, %d nothing to compare; later ones held %d of %d",
					o.Lived.Round(time.Minute), f.Arrived, f.Ended, f.EvictedPods, o.Calls, o.Spent.Round(time.Second), o.NoBand, o.Missing, o.LaterHeld, o.LaterOf)
			})
		}
	})
	if t.Failed() {
		return
	}
	t.Log("\n" + Table(outcomes))
	var past, qbets []float64
	least, most := 0.75, 0.85
	if !full {
		least, most = 0.6, 0.97
	}
	for _, o := range outcomes {
		if c := o.Shown.Coverage(); c < least || c > most || o.Shown.N < p.Forecasts-p.Young {
			t.Errorf("%s: %d of %d bands held", o.Load.Name(), o.Shown.Held, o.Shown.N)
		}
		a, b := o.Ratios()
		if past, qbets = append(past, a), append(qbets, b); full && (a >= 1 || b >= 1) {
			t.Errorf("%s: the score is %.2f of past waits', %.2f of QBETS's", o.Load.Name(), a, b)
		}
	}
	if a, b := Median(past), Median(qbets); full && (a > 0.7 || b > 0.7) {
		t.Errorf("in the median the score is %.2f of past waits', %.2f of QBETS's", a, b)
	}
	for name, draw := range map[string]func(io.Writer, []*Outcome) error{"eta-coverage.png": PlotCoverage, "eta-score.png": PlotScores} {
		var picture bytes.Buffer
		if err := draw(&picture, outcomes); err != nil || !bytes.HasPrefix(picture.Bytes(), []byte("\x89PNG")) {
			t.Errorf("%s: %v", name, err)
		}
		if full {
			if err := os.WriteFile(filepath.Join(filepath.Dir(page), name), picture.Bytes(), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	if full {
		if err := write(outcomes); err != nil {
			t.Error(err)
		}
	}
}

// write puts the table into the page.
func write(outcomes []*Outcome) error {
	if raw := os.Getenv("FORECASTS_RAW"); raw != "" {
		text, err := json.Marshal(outcomes)
		if err != nil {
			return err
		}
		if err := os.WriteFile(raw, text, 0o644); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	head, rest, ok := strings.Cut(string(text), "<!-- table -->\n")
	_, tail, closed := strings.Cut(rest, "<!-- end -->\n")
	if !ok || !closed {
		return fmt.Errorf("%s has no place for the table", page)
	}
	return os.WriteFile(page, []byte(head+"<!-- table -->\n"+Table(outcomes)+"<!-- end -->\n"+tail), 0o644)
}
