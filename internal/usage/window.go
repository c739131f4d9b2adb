package usage

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // a container may have no time zones of its own, and a cron window may name one

	"github.com/robfig/cron/v3"
)

// Window says how far back usage counts. Its zero value is not usable; make one with [Sliding], [Tumbling] or [Cron].
type Window struct {
	size     time.Duration // of sliding and tumbling windows
	origin   time.Time     // the beginning of one tumbling window; zero: none
	schedule cron.Schedule // the beginnings of cron windows; nil: none
	longest  time.Duration
}

// Sliding is the window of the last size, at any time.
func Sliding(size time.Duration) Window { return Window{size: size, longest: size} }

// Tumbling is the window since the last beginning, where beginnings are size apart and one of them is origin. They
// go on before origin as they do after it, so that an origin in the future is as good as one in the past. A size is a
// number of seconds, not of calendar days: clocks that change do not move the beginnings.
func Tumbling(size time.Duration, origin time.Time) Window {
	return Window{size: size, origin: origin, longest: size}
}

// Cron is the window since the last time that a cron expression of five fields names. Times are UTC unless the
// expression begins with CRON_TZ=Area/City. There, a time that the change to summer time skips names no beginning on
// that day, and one that the change back repeats names two. @daily and its like are fine; @every names no times.
func Cron(expression string) (Window, error) {
	if strings.Contains(expression, "@every") {
		return Window{}, fmt.Errorf("%q names an interval and no times; use a tumbling window", expression)
	}
	if zone, fields, _ := strings.Cut(expression, " "); strings.Contains(zone, "TZ=") && strings.TrimSpace(fields) == "" {
		return Window{}, fmt.Errorf("%q is no cron expression: it names a zone and no times", expression) // the parser would panic
	}
	s, err := cron.ParseStandard(expression)
	if err != nil {
		return Window{}, fmt.Errorf("%q is no cron expression: %w", expression, err)
	}
	if spec, ok := s.(*cron.SpecSchedule); ok && spec.Location == time.Local {
		spec.Location = time.UTC // what time.Local is depends on the machine; a window must not
	}
	w := Window{schedule: s}
	// The longest gap between two beginnings, found from a look at each day of two leap cycles and so right to a day.
	day := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	for range 2 * 1461 {
		next := s.Next(day)
		if next.IsZero() {
			return Window{}, fmt.Errorf("%q names a time that never comes", expression)
		}
		w.longest = max(w.longest, next.Sub(day)+24*time.Hour)
		day = day.AddDate(0, 0, 1)
	}
	return w, nil
}

// Longest is the most time that can lie between a window's start and now; for a cron window up to a day more.
func (w Window) Longest() time.Duration { return w.longest }

// Resets reports whether the window begins anew from time to time, and does not just move along.
func (w Window) Resets() bool { return w.schedule != nil || !w.origin.IsZero() }

// Start returns the window's start at a time: it counts what was used after Start and not after now. At the very moment
// of a beginning, Start is now.
func (w Window) Start(now time.Time) time.Time {
	switch {
	case w.schedule != nil:
		return w.last(now)
	case !w.origin.IsZero():
		since := now.Sub(w.origin) % w.size
		if since < 0 {
			since += w.size
		}
		return now.Add(-since)
	}
	return now.Add(-w.size)
}

// last is the latest time of the schedule that is not after now. A schedule only tells what comes next; what comes after
// t comes the later the later t is, so the last t with a next time up to now is found by bisection.
func (w Window) last(now time.Time) time.Time {
	named := func(t time.Time) bool {
		next := w.schedule.Next(t)
		return !next.IsZero() && !next.After(now)
	}
	low, high := now.Add(-w.longest-24*time.Hour), now
	if !named(low) {
		return now.Add(-w.longest) // cannot be, unless the calendar has a gap that two leap cycles do not show
	}
	for high.Sub(low) > time.Second {
		if mid := low.Add(high.Sub(low) / 2); named(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return w.schedule.Next(low)
}
