package main

import "testing"

func TestRunsOf(t *testing.T) {
	t.Parallel()
	const text = `# HELP muster_scheduler_run_seconds Duration of runs, from the snapshot to the last plan.
muster_scheduler_run_seconds_bucket{le="0.001"} 3
muster_scheduler_run_seconds_sum 1.5e-01
muster_scheduler_run_seconds_count 12
`
	if seconds, count, ok := runsOf(text); seconds != 0.15 || count != 12 || !ok {
		t.Errorf("%v s, %v runs, %v", seconds, count, ok)
	}
	if _, _, ok := runsOf("muster_scheduler_run_seconds_sum 1\n"); ok {
		t.Error("a sum without a count is taken")
	}
}

// TestSpreadOfRuns: runs that were seen together count as many of their mean.
func TestSpreadOfRuns(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		runs      []runSample
		mean, p99 float64
	}{
		"none":             {},
		"one":              {[]runSample{{0.2, 1}}, 0.2, 0.2},
		"a slow one of 50": {[]runSample{{0.1, 49}, {5.1, 1}}, 0.2, 5.1},
		"one of 200":       {[]runSample{{2.1, 1}, {0.1, 199}}, 0.11, 0.1},
	} {
		mean, p99 := spreadOfRuns(test.runs)
		if d := mean - test.mean; d > 1e-9 || d < -1e-9 || p99 != test.p99 {
			t.Errorf("%s: mean %v, 99th percentile %v, want %v and %v", name, mean, p99, test.mean, test.p99)
		}
	}
}
