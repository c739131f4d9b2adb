package usage

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
)

// asked fetches once at a moment and returns the questions about GPUs, with the moments they were asked for.
func asked(t *testing.T, r func(Config, Ask) *Reader, params string, now time.Time) (out []string) {
	t.Helper()
	c, err := Parse([]byte(`{"usageParams":{` + params + `}}`))
	if err != nil {
		t.Fatal(err)
	}
	reader := r(c, func(_ context.Context, query string, at time.Time) (model.Vector, error) {
		if strings.Contains(query, "gpu") {
			out = append(out, at.UTC().Format("15:04:05.999 ")+query)
		}
		return model.Vector{{Metric: model.Metric{"queue_name": "a"}, Value: 1}}, nil
	})
	if _, err := reader.Fetch(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestQueries: what is asked of a server is what KAI asks, letter by letter; windows with a beginning are asked for as the
// sum since then.
func TestQueries(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 10, 0, 0, 500_000_000, time.UTC)
	const had = `sum(kube_node_status_capacity{resource="nvidia_com_gpu"})`
	for params, want := range map[string][]string{
		``: {
			`10:00:00.5 sum_over_time((` + had + `)[1w:1m])`,
			`10:00:00.5 sum_over_time((max by (queue_name) (kai_queue_allocated_gpus))[1w:1m])`,
		},
		`"halfLifePeriod":"90m","windowSize":"36h","extraParams":{"queryResolution":"30s"}`: {
			`10:00:00.5 sum_over_time(((` + had + `) * (0.5^((1767261600.5 - time()) / 5400)))[1d12h:30s])`,
			`10:00:00.5 sum_over_time(((max by (queue_name) (kai_queue_allocated_gpus)) * (0.5^((1767261600.5 - time()) / 5400)))[1d12h:30s])`,
		},
		`"windowType":"tumbling","windowSize":"1d","tumblingWindowStartTime":"2027-01-01T06:00:00Z"`: {
			`10:00:00.5 sum_over_time((` + had + `)[4h499ms:1m])`,
			`10:00:00.5 sum_over_time((max by (queue_name) (kai_queue_allocated_gpus))[4h499ms:1m])`,
		},
		`"windowType":"cron","cronString":"30 9 * * *"`: {
			`10:00:00.5 sum_over_time((` + had + `)[30m499ms:1m])`,
			`10:00:00.5 sum_over_time((max by (queue_name) (kai_queue_allocated_gpus))[30m499ms:1m])`,
		},
	} {
		if d := cmp.Diff(want, asked(t, NewReader, params, now)); d != "" {
			t.Errorf("%s: %s", params, d)
		}
	}
	// At the very moment of a beginning there is nothing to ask.
	if got := asked(t, NewReader, `"windowType":"cron","cronString":"30 9 * * *"`, now.Truncate(24*time.Hour).Add(9*time.Hour+30*time.Minute)); got != nil {
		t.Errorf("asked %v", got)
	}
}

// TestPieces: a patient reader asks for each piece that has passed once, and comes to the same figures as one that
// asks for the whole window, whatever the values.
func TestPieces(t *testing.T) {
	t.Parallel()
	for _, params := range []string{`"windowSize":"12h"`, `"windowSize":"12h","halfLifePeriod":"40m"`, `"windowType":"cron","cronString":"17 */6 * * *","halfLifePeriod":"2h"`} {
		c, err := Parse([]byte(`{"usageParams":{` + params + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 1, 1, 10, 0, 30, 0, time.UTC)
		questions := 0
		// A source that works the sums out: value of minute m is m modulo 7 held, 10 had.
		ask := func(_ context.Context, query string, at time.Time) (model.Vector, error) {
			questions++
			rangeText := query[strings.LastIndexByte(query, '[')+1 : strings.LastIndex(query, ":1m]")]
			length, err := model.ParseDuration(rangeText)
			if err != nil {
				return nil, err
			}
			sum := 0.0
			for m := at.Truncate(time.Minute); m.After(at.Add(-time.Duration(length))); m = m.Add(-time.Minute) {
				v := 10.0
				if !strings.Contains(query, "capacity") {
					v = float64(m.Unix() / 60 % 7)
				}
				sum += v * c.decay(at.Sub(m))
			}
			return model.Vector{{Metric: model.Metric{"queue_name": "a"}, Value: model.SampleValue(sum)}}, nil
		}
		whole, patient := NewReader(c, ask), NewPatientReader(c, ask)
		for range 150 {
			now = now.Add(7 * time.Minute)
			want, err := whole.Fetch(t.Context(), now)
			if err != nil {
				t.Fatal(err)
			}
			questions = 0
			got, err := patient.Fetch(t.Context(), now)
			if err != nil {
				t.Fatal(err)
			}
			if a, b := got["a"]["gpu"], want["a"]["gpu"]; math.Abs(float64(a-b)) > 1 {
				t.Fatalf("%s at %s: piece by piece %d, as a whole %d", params, now, a, b)
			}
		}
		if questions > 3*6 {
			t.Errorf("%s: %d questions for the last fetch", params, questions)
		}
		if len(patient.past) > 8 {
			t.Errorf("%s: %d pieces remembered", params, len(patient.past))
		}
	}
}

// TestFetchFails: an error names the dimension and the question, and nothing half is returned.
func TestFetchFails(t *testing.T) {
	t.Parallel()
	c, err := Parse([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(c, func(_ context.Context, query string, _ time.Time) (model.Vector, error) {
		if strings.Contains(query, "kai_queue_allocated_memory_bytes") {
			return nil, errors.New("out of memory")
		}
		return model.Vector{{Metric: model.Metric{"queue_name": "a"}, Value: 1}}, nil
	})
	got, err := r.Fetch(t.Context(), time.Now())
	if err == nil || got != nil || !strings.Contains(err.Error(), "usage of memory (sum_over_time(") {
		t.Errorf("%v, %v", got, err)
	}
}
