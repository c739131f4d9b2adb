package tenants

import (
	"strings"
	"testing"
	"time"
)

// TestFigures: each check of a run's figures fails on figures that must fail, and passes on those that just may.
func TestFigures(t *testing.T) {
	ms := func(n ...int) (out []time.Duration) {
		for _, n := range n {
			out = append(out, time.Duration(n)*time.Millisecond)
		}
		return out
	}
	series := func(n int, at func(int) int) (out []Memory) {
		for i := range n {
			out = append(out, Memory{Now: at(i), Most: at(i)})
		}
		return out
	}
	warm := func(i int) int { return min(60+6*i, 110) + i%3 } // grows for eight samples, and is restless then
	for _, c := range []struct{ name, got, want string }{
		{"as slow as it may be", Slower(ms(10, 20, 900), ms(1, 40, 5000)), ""},
		{"faster", Slower(ms(20, 20), ms(10, 10)), ""},
		{"too slow", Slower(ms(10, 20, 900), ms(1, 41, 50)), "half of them waited 41ms beside hostile writes and 20ms"},
		{"nobody was served", Slower(ms(10, 20), nil), "nothing to compare: 0 honest"},
		{"nobody was calm", Slower(nil, ms(1)), "nothing to compare: 1 honest"},

		{"nothing known", Unbounded(nil), ""},
		{"at the bound", Unbounded([]Memory{{Now: 90, Most: MemoryBound}}), ""},
		{"beyond the bound for a moment", Unbounded([]Memory{{Now: 90, Most: MemoryBound + 1}, {Now: 90, Most: 90}}), "it held 221 MiB"},
		{"gets warm", Unbounded(series(30, warm)), ""},
		{"one peak after the other", Unbounded(series(30, func(i int) int { return 60 + 40*(i%2) + i/10 })), ""},
		{"a step in the second half that stays within what is allowed", Unbounded(series(30, func(i int) int { return 80 + 6*(i/16) })), ""},
		{"a step in the second half", Unbounded(series(30, func(i int) int { return 80 + 7*(i/16) })), "growing: at most 80 MiB in the second quarter of the run, at least 87"},
		{"leaks a MiB a minute on top of noise", Unbounded(series(30, func(i int) int { return 50 + i + i%3 })), "it goes on growing"},
		{"leaks, but too short to tell", Unbounded(series(growthTests-1, func(i int) int { return 50 + 5*i })), ""},

		{"as many events as may be", Flood(eventsPerWrite*100+eventsBesides, 100), ""},
		{"too many events", Flood(eventsPerWrite*100+eventsBesides+1, 100), "1501 events for 100 writes"},

		{"a quiet log", Complaint("one\ntwo\n"), ""},
		{"a panic in a log", Complaint("one\npanic: runtime error\ngoroutine 1 [running]:\n"), "panic: runtime error"},
		{"a stack in a log", Complaint("x\n goroutine 7 [running]:\n"), "goroutine 7 [running]:"},
	} {
		if c.want == "" && c.got != "" || !strings.Contains(c.got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}
