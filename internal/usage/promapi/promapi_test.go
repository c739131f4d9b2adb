package promapi

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/muster-scheduler/muster/internal/fairshare"
	"github.com/muster-scheduler/muster/internal/usage"
	"github.com/muster-scheduler/muster/internal/usage/usagetest"
)

// source is a source on a real server.
func source(t *testing.T, server *usagetest.Server, params string) (*Server, usage.Config) {
	t.Helper()
	c := usagetest.Parse(t, fmt.Sprintf(`{"clientType":"prometheus","connectionString":%q,"usageParams":{%s}}`, server.URL, params))
	s, err := New(c, c.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, c
}

// TestOracle compares a real Prometheus server with the slow sums on three days of random history, for each kind of
// window, with and without half-life.
func TestOracle(t *testing.T) {
	t.Parallel()
	const steps = 3 * 24 * 60
	start := time.Date(2026, 3, 27, 22, 0, 0, 0, time.UTC) // summer time begins in the middle
	past := usagetest.Random(start, time.Minute, steps, false)
	server := usagetest.Start(t, past, time.Minute)
	if server == nil {
		return
	}
	for _, params := range []string{
		`"windowSize":"1d"`,
		`"windowSize":"2d","halfLifePeriod":"5h"`,
		`"windowType":"tumbling","windowSize":"20h","tumblingWindowStartTime":"2026-03-01T03:00:00Z"`,
		`"windowType":"tumbling","windowSize":"20h","tumblingWindowStartTime":"2027-03-01T03:00:00Z","halfLifePeriod":"1h"`,
		`"windowType":"cron","cronString":"CRON_TZ=Europe/Berlin 0 5 * * *"`,
		`"windowType":"cron","cronString":"30 */7 * * *","halfLifePeriod":"90m"`,
		`"windowSize":"6h","halfLifePeriod":"10m","extraParams":{"queryResolution":"1m","gpuCapacityMetric":"sum(kube_node_status_capacity{unit=\"integer\"})"}`,
	} {
		s, c := source(t, server, params)
		for i := 100; i < steps; i += 331 {
			now := past[i].At.Add(time.Duration(i%59)*time.Second + 777*time.Microsecond + 7*time.Millisecond)
			got, err := s.Fetch(t.Context(), now)
			if err != nil {
				t.Fatalf("%s: %v", params, err)
			}
			if len(got) == 0 && now.Sub(c.Window.Start(now)) > time.Minute {
				t.Errorf("%s: at %s nobody has used anything", params, now)
			}
			usagetest.Near(t, fmt.Sprintf("%s at %s", params, now), got, past.Shares(&c, now))
		}
	}
}

// TestGreed is the story of the feature: in a cluster of 24 GPUs, queue a holds all of them for the last hour, queue b
// nothing; then both want everything. The shares follow from the formula, worked out here by hand:
//
//	usage(a) = Σ over 60 minutes of 2^(−age/h) / Σ over 120 minutes of 2^(−age/h)      h: half-life
//	s(q) = n + k·(n − usage(q)), n = 1/2        share(q) = 24 · s(q) / (s(a) + s(b))
func TestGreed(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 27, 22, 0, 0, 0, time.UTC)
	past := usagetest.GPUs(start, time.Minute, 120, 24, func(step int) map[string]int64 {
		if step < 60 {
			return map[string]int64{"a": 0, "b": 0}
		}
		return map[string]int64{"a": 24, "b": 0}
	})
	server := usagetest.Start(t, past, time.Minute)
	if server == nil {
		return
	}
	now := past[len(past)-1].At
	for _, c := range []struct {
		halfLife string
		minutes  float64
		k        float64
	}{{"", math.Inf(1), 1}, {"1h", 60, 1}, {"1h", 60, 0.4}, {"10m", 10, 0.5}, {"10m", 10, 1}} {
		params := `"windowSize":"2h"`
		if c.halfLife != "" {
			params += fmt.Sprintf(`,"halfLifePeriod":%q`, c.halfLife)
		}
		s, _ := source(t, server, params)
		got, err := s.Fetch(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		// A server before Prometheus 3 counts the window's two ends; at its far end nothing was recorded.
		var used, all float64
		for age := range 120 {
			decay := math.Exp2(-float64(age) / c.minutes)
			all += decay
			if age < 60 {
				used += decay
			}
		}
		want := used / all
		if part := float64(got["a"]["gpu"]) / usage.One; math.Abs(part-want) > 2e-6 {
			t.Errorf("half-life %q: a used %f of the cluster, want %f", c.halfLife, part, want)
		}
		if part := got["b"]["gpu"]; part != 0 {
			t.Errorf("half-life %q: b used %d", c.halfLife, part)
		}
		sa, sb := max(0, 0.5+c.k*(0.5-want)), 0.5+c.k*0.5
		wantA, wantB := 24*sa/(sa+sb), 24*sb/(sa+sb)
		var d fairshare.Divider
		ask := []int64{24_000_000}
		shares := d.Divide(&fairshare.Input{
			Total: []int64{24_000}, KValue: fairshare.Fixed(c.k), // in thousandths of a GPU, so that nothing is rounded away
			Queues: []fairshare.Queue{
				{Parent: -1, UID: "a", Request: ask, Limit: []int64{fairshare.Unlimited}, Weight: []int64{1}, Usage: []int64{got["a"]["gpu"]}},
				{Parent: -1, UID: "b", Request: ask, Limit: []int64{fairshare.Unlimited}, Weight: []int64{1}, Usage: []int64{got["b"]["gpu"]}},
			},
		})
		gotA, gotB := float64(shares.Of(0)[0])/1000, float64(shares.Of(1)[0])/1000
		t.Logf("half-life %4q k %.1f: a used %.4f of the cluster and gets %.3f GPUs, b gets %.3f", c.halfLife, c.k, want, gotA, gotB)
		if math.Abs(gotA-wantA) > 0.002 || math.Abs(gotB-wantB) > 0.002 {
			t.Errorf("half-life %q: shares %.3f and %.3f, want %.3f and %.3f", c.halfLife, gotA, gotB, wantA, wantB)
		}
	}
}

// TestNoCapacity: a server that knows nothing of the cluster is told apart from queues that used nothing.
func TestNoCapacity(t *testing.T) {
	t.Parallel()
	server := usagetest.Start(t, nil, time.Minute)
	if server == nil {
		return
	}
	s, _ := source(t, server, "")
	if got, err := s.Fetch(t.Context(), time.Now()); err == nil || !strings.Contains(err.Error(), "kube-state-metrics") {
		t.Errorf("%v, %v", got, err)
	}
}

// answering is a server that gives the same answer to each question, except for what is asked about capacity.
func answering(t *testing.T, held string) *usagetest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		text := held
		if strings.Contains(r.FormValue("query"), "capacity") {
			text = `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"10"]}]}}`
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	return &usagetest.Server{URL: server.URL}
}

// TestBadAnswers: nothing a server says makes usage of anything but a number.
func TestBadAnswers(t *testing.T) {
	t.Parallel()
	vector := func(result string) string {
		return `{"status":"success","data":{"resultType":"vector","result":[` + result + `]}}`
	}
	for answer, want := range map[string]usage.Shares{
		vector(``): {},
		vector(`{"metric":{"queue_name":"a"},"value":[1,"5"]}`):                                                                                  {"a": {"gpu": 500_000, "cpu": 500_000, "memory": 500_000}},
		vector(`{"metric":{"queue_name":"a","instance":"1"},"value":[1,"2"]},{"metric":{"queue_name":"a","instance":"2"},"value":[1,"1"]}`):      {"a": {"gpu": 200_000, "cpu": 200_000, "memory": 200_000}},
		vector(`{"metric":{"queue_name":"a"},"value":[1,"NaN"]},{"metric":{"queue_name":"b"},"value":[1,"+Inf"]},{"metric":{},"value":[1,"5"]}`): {},
		vector(`{"metric":{"queue_name":"a"},"value":[1,"-5"]}`):                                                                                 {},
		vector(`{"metric":{"queue_name":"a"},"value":[1,"1e300"]}`):                                                                              {"a": {"gpu": 1000 * usage.One, "cpu": 1000 * usage.One, "memory": 1000 * usage.One}},
		`{"status":"success","data":{"resultType":"matrix","result":[]}}`:                                                                        nil,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"5"]}}`:                                                                   nil,
		`{"status":"error","errorType":"bad_data","error":"parse error"}`:                                                                        nil,
		`<html>`: nil,
		``:       nil,
	} {
		s, _ := source(t, answering(t, answer), "")
		got, err := s.Fetch(t.Context(), time.Now())
		if (err != nil) != (want == nil) {
			t.Errorf("%s: %v, %v", answer, got, err)
			continue
		}
		if err == nil {
			usagetest.Near(t, answer, got, want)
		}
	}
}

// TestSilence: a server that does not answer costs the timeout of one question.
func TestSilence(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	s, _ := source(t, &usagetest.Server{URL: server.URL}, `"extraParams":{"usageQueryTimeout":"50ms"}`)
	began := time.Now()
	if _, err := s.Fetch(t.Context(), began); err == nil {
		t.Error("silence is an answer")
	} else {
		t.Log(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
}
